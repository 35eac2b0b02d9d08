--
-- Quotes without a partner: with on_error = table, reading goes on at the next good line. Notes about quotes.
--
\set ECHO none
-- The HINT of rejected rows has the number of the load, which depends on earlier tests.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set load_helpers :data '/load_helpers.sql'
\set schema unpaired_quotes
\i :helpers
\i :load_helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CREATE TABLE t (a int, b text);
CREATE TABLE checked (LIKE t);
-- Loads the content; shows the figures, the rows and the rejects, which bulk_check must find, too.
CREATE FUNCTION mend(content text, options jsonb DEFAULT '{}') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	id bigint;
	line text;
BEGIN
	CALL write_file('t', content);
	options := '{"format": "csv", "on_error": "table"}' || options;
	TRUNCATE t;
	SELECT load_id, concat_ws(' ', rows_loaded, rows_rejected, notes) INTO id, line FROM bulk_load(data_path('t'), 't', options);
	RETURN NEXT line;
	RETURN QUERY SELECT to_json(r)::text FROM t r;
	RETURN QUERY SELECT format('line %s, byte %s: %s: %s', line_number, byte_offset, message, to_json(raw_line)) FROM bulk_rejects WHERE load_id = id ORDER BY line_number;
	IF EXISTS (SELECT line_number, byte_offset, raw_line, message FROM bulk_rejects WHERE load_id = id EXCEPT
		SELECT line_number, byte_offset, raw_line, message FROM bulk_check(data_path('t'), 'checked', options)) THEN
		RETURN NEXT 'bulk_check differs';
	END IF;
END $$;
SET client_min_messages = warning;
-- Not closed until the end of the file, at its end, with a line that is not good before two good ones, and at another line's quote.
SELECT mend(E'1,one\n2,"two\n3,three\n4,"f,o"\n5,five\n');
SELECT mend(E'1,one\r\n2,"two\r\n3,three\r\n4,four\r\n');
SELECT mend(E'1,one\n2,"two\n3,three\n');
SELECT mend(E'1,one\n2,two"\n');
SELECT mend(E'1,one\n2,"two\nx,3\n4\n5,five\n6,"a\nb"\n7,seven');
SELECT mend(E'1,one\n"2,"t,w"\n3,"three"\n4,four\n"5,"f,i"\n6,six\n7,seven\n');
SELECT mend(E'"1,"o"\n2,two\n3,three\n');
-- Lines in quotes of a good record stay, and so does a record of the right number of fields.
SELECT mend(E'1,"2,two\n3,three\n4,four"\n5,five,"6,six\n7,seven\n8,eight"\n9,nine\n');
-- Other actions, sources and options are as before.
SELECT error_of(format('SELECT * FROM bulk_load(%L, ''t'', ''{"format": "csv"}'')', data_path('t')));
SELECT rows_loaded, rows_rejected FROM bulk_load(convert_to(E'1,one\n2,"two\n3,three\n4,four\n', 'UTF8'), 't', '{"format": "csv", "on_error": "table"}');
SELECT mend(E'1,one\n2,"two\n3,three\n4,four\n', '{"lenient_quotes": true}');
SELECT mend(E'1,one\n2,"two\n3,three\n4,four\n', '{"writer": "buffered"}');
SELECT mend(E'1,one\n2,"two\n3,three\n4,four\n', '{"columns": ["a", "x", {"name": "b", "expr": "upper(x)"}]}');
SELECT mend(E'0,zero\n1,one\n2,"two\n3,three\n4,four\n', '{"skip": 1, "limit": 2}');
-- One process and several, in chunks; duplicates are found by the position of their records.
CREATE FUNCTION lines(a int, b int) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(format(E'%s,"two %s"\n', i, i), '') FROM generate_series(a, b) i $$;
SELECT n, alike('a int PRIMARY KEY, b text', lines(1, 60) || bytes || lines(55, 160), '{"format": "csv", "on_error": "table"}')
FROM (VALUES (1, E'0,"no end\n'), (2, E'"0,"n"\n' || lines(200, 250) || E'"0,"n"\n'), (3, E'0,x"\nx\n' || lines(200, 240) || E'0,x"\n\n' || lines(230, 260) || E'0,x"\n')) v (n, bytes);
-- A skipped line that the exact reader reads ends the broken record; lines of records that are only tried are not counted.
CREATE TABLE numbers (a int, b int);
CALL write_bytes('t', convert_to(E'1,1\n2,"2\n3,3\n4,4\n# 5" pipes\n6,6\n# Z', 'UTF8') || '\xfc' || convert_to(E'rich\n7,7\n8,8\n', 'UTF8'));
SELECT rows_loaded, rows_rejected FROM bulk_load(data_path('t'), 'numbers', '{"format": "csv", "comment": "#", "on_error": "table"}');
CALL write_file('t', E'1,1\n2,"2\nx,"3"a\ny,4"\n5,5\nbad,6\n7,7\n');
SELECT line_number, raw_line FROM bulk_check(data_path('t'), 'numbers', '{"format": "csv"}');
CALL write_file('t', E'1,1\n2,"2\n3,3\n4,4\n5" x\n# c\nbad,6\n');
SELECT line_number, raw_line FROM bulk_check(data_path('t'), 'numbers', '{"format": "csv", "comment": "#"}');
-- Lines of a value whose quotes are in order are no records.
CREATE TABLE notes (note text, n int);
CALL write_file('t', E'"first\nx,1\ny,2\nz",bad\nlast,3\n');
SELECT rows_loaded, rows_rejected FROM bulk_load(data_path('t'), 'notes', '{"format": "csv", "on_error": "table"}');
TABLE notes;
-- Workers leave the lines of a broken first record alone.
CALL write_file('t', E'"\n79,a\n965,"x,y""z"\n\n713\n927,"xaaaaaaaaaaaaaa\n948,a,zz,1\n756,aaaa\nx');
SET pg_bulk.chunk_size = '64';
SELECT rows_loaded, rows_rejected FROM bulk_load(data_path('t'), 't', '{"format": "csv", "on_error": "table", "workers": 3}');
RESET pg_bulk.chunk_size;
-- Dropped quotes: a note of the first line, in all ways of decoding. Doubled quotes are none.
SELECT mend(E'1,"bla"x\n2,"a ""b"""\n3,a"b,c"d\n4,"x"""\n');
SELECT mend(E'1,"bla"x\n2,b"c"\n', '{"trim": "both"}');
SELECT mend(E'1,"bla"x\n2,b"c"\n', '{"writer": "buffered"}');
RESET client_min_messages;
SELECT count(*) FROM bulk_check(data_path('t'), 't', '{"format": "csv"}');
SELECT * FROM bulk_read(data_path('t'), '{"format": "csv"}') AS t (a int, b text);
-- Scans report them in a NOTICE: a record once, though its columns are decoded in two steps, in columns that are read.
CALL make_table('f', 'a int, b text, c text', $$format 'csv'$$, E'1,"bla"x,"y"z\n2,"a ""b""",""\n3,a"b,c"d,\n4,e,f"g"\n');
SELECT to_json(f) FROM f;
SELECT c FROM f WHERE b <> 'x';
SELECT a FROM f WHERE b = 'e';
SELECT count(*) FROM f;
SELECT count(b), max(c) FROM f;
INSERT INTO t SELECT a, b FROM f;
ALTER FOREIGN TABLE f OPTIONS (ADD log_verbosity 'silent');
SELECT c FROM f;
-- All processes of a scan; a rescan counts anew.
SELECT string_agg(format(E'%s,%s\n', i, CASE WHEN i % 1000 = 7 THEN '"b"c' ELSE 'b' END), '') AS content FROM generate_series(1, 9000) i \gset
CALL make_table('wide', 'a int, b text', $$format 'csv'$$, :'content');
SET min_parallel_table_scan_size = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET parallel_leader_participation = off;
SET pg_bulk.chunk_size = 1000;
SELECT l FROM plan_of($$SELECT a FROM wide WHERE b = 'bc'$$) l WHERE l ~ 'Workers';
SELECT count(*), sum(a) FROM (SELECT a FROM wide WHERE b = 'bc' OFFSET 0) s;
SELECT count(a), max(b) FROM wide;
RESET parallel_leader_participation;
SET max_parallel_workers_per_gather = 0;
SET enable_material = off;
SELECT count(*) FROM generate_series(1, 3) g LEFT JOIN (SELECT b FROM wide OFFSET 0) s ON b = 'bc';
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA unpaired_quotes CASCADE;
DROP SCHEMA IF EXISTS loaded CASCADE;
