--
-- EXPLAIN: the files, the bytes read, the columns that were converted and when; and the estimated rows.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema fdw_explain
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CALL make_table('t', 'id int, word text, day date, "odd, name" int', $$format 'csv'$$,
	E'1,one,2001-01-01,10\n2,two,2001-02-02,20\n3,three,2001-03-03,30\n4,four,2001-04-04,40\n');

SELECT plan_of('SELECT * FROM t');
SELECT plan_of('SELECT word FROM t WHERE id > 2', 'COSTS OFF, VERBOSE');
SELECT regexp_replace(plan_of('SELECT word FROM t', 'COSTS ON'), '\(cost.*\)', '(cost)');
SELECT plan_of('SELECT word FROM t', 'COSTS OFF, FORMAT JSON');

-- ANALYZE: bytes, rows removed by the filter, the columns that were converted before and after it.
\set analyze 'ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF'
SELECT plan_of('SELECT count(*) FROM t', :'analyze');
SELECT plan_of('SELECT * FROM t', :'analyze');
SELECT plan_of('SELECT word, day FROM t WHERE id > 2', :'analyze');
SELECT plan_of('SELECT id FROM t WHERE id > 2 AND word <> $$three$$', :'analyze');
SELECT plan_of('SELECT "odd, name" FROM t WHERE false', :'analyze');
SELECT plan_of('SELECT t FROM t WHERE day IS NULL', :'analyze');
SELECT plan_of('SELECT id FROM t LIMIT 2', :'analyze');
SELECT plan_of('SELECT id FROM t ORDER BY day LIMIT 1', 'ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF');
-- A rescan reads again; a scan that was never started has read nothing.
SET enable_material = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SELECT plan_of('SELECT 1 FROM generate_series(1, 3) g LEFT JOIN t ON t.id = g', :'analyze');
RESET enable_material;
RESET enable_hashjoin;
RESET enable_mergejoin;
SELECT plan_of('SELECT id FROM t WHERE (SELECT false)', :'analyze');

-- on_error: rows that were skipped, rows with values set to NULL.
CALL make_table('bad', 'id int, n int', $$format 'csv', on_error 'ignore', log_verbosity 'silent'$$, E'1,1\nx,2\n3,y\n4,4\n');
SELECT plan_of('SELECT id FROM bad WHERE n > 1', :'analyze');
ALTER FOREIGN TABLE bad OPTIONS (SET on_error 'set_null');
SELECT plan_of('SELECT id FROM bad', :'analyze');

-- A program is shown, and runs only if the statement is executed.
SELECT format('echo x >>%s; echo 1', data_path('runs')) AS program \gset
CREATE FOREIGN TABLE p (id int) SERVER bulk_files OPTIONS (program :'program');
SELECT plan_of('SELECT * FROM p', 'COSTS ON, VERBOSE') ~ '^  Foreign Program: echo x >>PGB_DATA/runs; echo 1$' AS program;
SELECT (pg_stat_file(data_path('runs'), true)).size;
SELECT plan_of('SELECT * FROM p WHERE id = 2', :'analyze');
SELECT (pg_stat_file(data_path('runs'), true)).size;

-- The plan of a partitioned table's scan names each file.
CREATE TABLE parts (id int, word text, day date, "odd, name" int) PARTITION BY RANGE (id);
ALTER TABLE parts ATTACH PARTITION t FOR VALUES FROM (1) TO (10);
CREATE FOREIGN TABLE parts_10 PARTITION OF parts FOR VALUES FROM (10) TO (20) SERVER bulk_files OPTIONS (filename '/no/such/file');
SELECT plan_of('SELECT id FROM parts');

-- Rows expected before any ANALYZE: within a factor of two of the truth.
CREATE FUNCTION about(table_name text, truth bigint) RETURNS boolean LANGUAGE sql AS $$
	SELECT rows_expected('SELECT * FROM ' || table_name) BETWEEN truth / 2 AND truth * 2
$$;
CREATE PROCEDURE make_rows(name text, options text, header text, line text, n int) LANGUAGE plpgsql AS $$
DECLARE
	content text := header || string_agg(format(line, g), '' ORDER BY g) FROM generate_series(1, n) g;
BEGIN
	CALL make_table(name, 'id int, word text', options, content);
END $$;
CALL make_rows('small', $$format 'csv'$$, '', E'%s,some words\n', 300);
SELECT about('small', 300);
CALL make_rows('big', $$format 'csv'$$, '', E'%s,some words\n', 100000);
SELECT about('big', 100000);
CALL make_rows('textual', '', '', E'%s\tsome words\\n and more\n', 50000);
SELECT about('textual', 50000);
CALL make_rows('returns', '', '', E'%s\tsome words\r', 50000);
SELECT about('returns', 50000);
CALL make_rows('quoted', $$format 'csv'$$, '', E'%s,"some\nwords\nin\nlines"\n', 50000);
SELECT about('quoted', 50000);
CALL make_rows('wide', $$format 'csv'$$, '', '%s,' || repeat('word', 50000) || E'\n', 5);
SELECT rows_expected('SELECT * FROM wide') < 50;
CALL make_rows('headed', $$format 'csv', header 'true'$$, 'id,' || repeat('word', 5000) || E'\n', E'%s,some words\n', 10000);
SELECT about('headed', 10000);
CALL make_rows('one', $$format 'csv', header '1'$$, E'id,word\n', E'%s,one\n', 1);
SELECT about('one', 1);
CALL make_rows('few', $$format 'csv', header '1'$$, E'id,word\n', E'%s,two\n', 3);
SELECT about('few', 3);
ALTER FOREIGN TABLE big OPTIONS (ADD "limit" '10');
SELECT rows_expected('SELECT * FROM big');
ALTER FOREIGN TABLE big OPTIONS (DROP "limit", ADD skip '99000');
SELECT rows_expected('SELECT * FROM big') <= 10000;
ALTER FOREIGN TABLE big OPTIONS (DROP skip);
CALL write_file('small', '');
SELECT rows_expected('SELECT * FROM small') <= 1;
-- Quals reduce the estimate; without statistics as for any table.
SELECT rows_expected('SELECT * FROM big WHERE id = 1') BETWEEN 100 AND 1000;
-- Joins begin with the smaller side, in either order of the FROM list.
CALL make_rows('few', $$format 'csv'$$, '', E'%s,two\n', 3);
SELECT plan_of('SELECT 1 FROM big JOIN few USING (id)');
SELECT plan_of('SELECT 1 FROM few JOIN big USING (id)');

SET client_min_messages = warning;
DROP SCHEMA fdw_explain CASCADE;
