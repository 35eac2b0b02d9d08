--
-- Columns matched by the names in the header, and columns that the file does not have.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema match_by
\i :helpers
\! rm -rf "$PGB_DATA/match_by"; mkdir -p "$PGB_DATA/match_by"
\set ECHO all
\pset tuples_only
\pset format unaligned
CREATE FUNCTION write_text(name text, content text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN CALL write_file(name, content); END $$;
CREATE DOMAIN given AS text CHECK (VALUE IS NOT NULL);
CALL write_file('match_by/1.csv', E'id,word,n\n1,one,10\n2,two,20\n');
CALL write_file('match_by/2.csv', E'n,more,id\n30,x,3\n40,y,4\n');
CALL write_file('match_by/3.csv', E'word,id\nfive,5\n"si\nx",6\nseven,7');
CALL write_file('match_by/4.csv', E'');
CALL write_file('match_by/5.csv', E'word,n,id\neight,80,8\n');
CREATE FUNCTION make_foreign(name text, pattern text, columns text, options text DEFAULT '') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE FOREIGN TABLE %I (%s) SERVER bulk_files OPTIONS (filename %L, format ''csv'', encoding ''UTF8''%s)', name, columns, data_path(pattern), options);
END $$;
CREATE TABLE t (id int NOT NULL, word text DEFAULT 'none', n int, extra text DEFAULT 'x');
CREATE FUNCTION loaded(pattern text, options text DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
	SELECT (rows_loaded, writer, workers, notes)::text
	FROM bulk_load(data_path(pattern), 't', '{"format": "csv", "match_by": "name"}'::jsonb || options::jsonb)
$$;
-- Loads: a column that no file has gets its default, and so does a column that one file lacks.
SELECT loaded('match_by/*.csv', '{"workers": 0}');
TABLE t;
CREATE TABLE first AS TABLE t;
TRUNCATE t;
SELECT loaded('match_by/*.csv', '{"workers": 2}');
SELECT count(*) FROM (TABLE t EXCEPT ALL TABLE first) x;
TRUNCATE t;
SELECT loaded('match_by/*.csv', '{"writer": "buffered", "where": "extra = ''x''"}');
SELECT count(*) FROM (TABLE t EXCEPT ALL TABLE first) x;
TRUNCATE t;
SET pg_bulk.chunk_size = 4;
SELECT loaded('match_by/*.csv', '{"workers": 2}');
RESET pg_bulk.chunk_size;
SELECT count(*) FROM (TABLE t EXCEPT ALL TABLE first) x;
SELECT verify_heapam('t');
TRUNCATE t;
-- A bad field is reported with its column; bad headers are errors.
CALL write_file('match_by/6.bad', E'word,id\nw,1\nx,y\n');
SELECT error_of($$SELECT loaded('match_by/[56].*')$$);
CALL write_file('match_by/6.bad', E'id,word,id\n1,w,1\n');
SELECT error_of($$SELECT loaded('match_by/[56].*')$$);
CALL write_file('match_by/6.bad', E'Id,WORD\n1,w\n');
SELECT error_of($$SELECT loaded('match_by/6*')$$);
SELECT error_of($$SELECT loaded('match_by/6*', '{"header": "match"}')$$);
SELECT error_of($$SELECT loaded('match_by/6*', '{"match_by": "nam"}')$$);
SELECT error_of($$SELECT loaded('match_by/6*', '{"workers": 0}')$$) FROM (SELECT write_text('match_by/6.bad', 'id' || repeat(',', 4095) || E'\n1' || repeat(',', 4095))) x;
SELECT error_of($$SELECT loaded('match_by/6*', '{"workers": 0}')$$) FROM (SELECT write_text('match_by/6.bad', 'id' || repeat(',', 4095) || E',word\n1' || repeat(',', 4095) || ',x')) x;
TRUNCATE t;
-- A NOT NULL column is missing in one file.
CALL write_file('match_by/6.bad', E'word\nw\n');
SELECT error_of($$SELECT loaded('match_by/[56].*')$$);

-- Foreign tables.
SELECT make_foreign('ft', 'match_by/*.csv', $$id int, name text OPTIONS (column_name 'word') DEFAULT 'none', n int, nowhere given DEFAULT 'd'$$, $$, match_by 'name'$$);
TABLE ft;
SELECT id, n FROM ft WHERE name = 'none';
SELECT count(*), sum(n), min(id) FROM ft;
SELECT error_of('INSERT INTO t SELECT id, name, n FROM ft');
TABLE t;
INSERT INTO t SELECT id, upper(name), n FROM ft WHERE n > 20;
SELECT * FROM t WHERE word = upper(word);
SELECT a.id, b.n FROM ft a, LATERAL (SELECT n FROM ft WHERE id = a.id) b;
ANALYZE ft;
SELECT attname, null_frac FROM pg_stats WHERE tablename = 'ft' ORDER BY attname;
SELECT make_foreign('one', 'match_by/2.csv', $$id int, n int$$, $$, match_by 'name', header 'true'$$);
TABLE one;
SELECT make_foreign('strange', 'match_by/2.csv', $$idd int$$, $$, match_by 'name'$$);
SELECT error_of('TABLE strange');
SELECT error_of($$SELECT make_foreign('bad', 'x', 'id int', $_$, match_by 'order'$_$)$$);
SELECT error_of($$SELECT make_foreign('bad', 'x', 'id int', $_$, match_by 'name', header '2'$_$)$$);
SELECT error_of($$SELECT make_foreign('bad', 'x', $_$id int OPTIONS (source 'file')$_$)$$);
SELECT error_of($$SELECT make_foreign('bad', 'x', $_$id int OPTIONS (source 'filename', column_name 'x')$_$)$$);
TRUNCATE t;

-- Virtual columns: the path of the file, and the line number.
SELECT make_foreign('whence', 'match_by/*.csv', $$file text OPTIONS (source 'filename'), id int, line bigint OPTIONS (source 'line_number'), word text$$, $$, match_by 'name'$$);
SELECT without_path(file), line, id, word FROM whence;
SELECT line FROM whence WHERE file LIKE '%3.csv';
SELECT without_path(max(file)), sum(line), count(*) FROM whence;
INSERT INTO t (id, n, extra) SELECT id, line, without_path(file) FROM whence;
TABLE t;
TRUNCATE t;
INSERT INTO t (id, n, extra) SELECT id, line, file FROM whence;
SELECT id, word, n, without_path(extra) FROM t;
TRUNCATE t;
SELECT make_foreign('by_position', 'match_by/3.csv', $$line smallint OPTIONS (source 'line_number'), word text, id int$$, $$, header 'match'$$);
TABLE by_position;
SELECT make_foreign('no_number', 'match_by/1.csv', $$word text, file int OPTIONS (source 'filename'), a text, b text$$);
SELECT error_of('TABLE no_number');
SELECT loaded('match_by/*.csv', '{"columns": [{"column": "extra", "source": "filename"}, {"column": "n", "source": "line_number"}]}');
SELECT id, word, n, without_path(extra) FROM t;
SELECT loaded('match_by/1.csv', '{"match_by": "position", "header": true, "columns": ["id", {"column": "extra", "source": "filename"}, "word", "n"]}');
SELECT id, word, n, without_path(extra) FROM t WHERE id < 3;
TRUNCATE t;
SELECT error_of($$SELECT loaded('match_by/1.csv', '{"columns": [{"column": "extra", "source": "name"}]}')$$);
SELECT error_of($$SELECT loaded('match_by/1.csv', '{"columns": [{"column": "extra"}]}')$$);
SELECT error_of($$SELECT loaded('match_by/1.csv', '{"columns": [{"column": "ex", "source": "filename"}]}')$$);
SELECT error_of($$SELECT loaded('match_by/1.csv', '{"columns": ["id", {"column": "extra", "source": "filename"}]}')$$);
SELECT error_of($$SELECT loaded('match_by/1.csv', '{"columns": [{"column": "id", "source": "line_number"}, {"column": "id", "source": "filename"}]}')$$);

-- With several processes, line numbers equal those of one process; a virtual column that the query does not need is not computed.
SELECT E'b,a\n' || string_agg(format(E'"%s\n",%s\n', repeat('x', i % 50), i), '') AS content FROM generate_series(1, 20000) i
\gset
\set ECHO none
CALL write_file('match_by/large', :'content');
\set ECHO all
SELECT make_foreign('large', 'match_by/large', $$a int, b text, line int OPTIONS (source 'line_number')$$, $$, match_by 'name'$$);
SELECT count(*), count(*) FILTER (WHERE line <> 2 * a + 1) FROM large;
SET pg_bulk.chunk_size = 16384;
CREATE TABLE of_large (a int, b text, line int);
SELECT rows_loaded, workers FROM bulk_load(data_path('match_by/large'), 'of_large', '{"format": "csv", "match_by": "name", "workers": 2, "columns": [{"column": "line", "source": "line_number"}]}');
SELECT count(*), count(*) FILTER (WHERE line <> 2 * a + 1) FROM of_large;
TRUNCATE of_large;
SET pg_bulk.workers = 2;
INSERT INTO of_large SELECT * FROM large;
RESET pg_bulk.workers;
SELECT count(*), count(*) FILTER (WHERE line <> 2 * a + 1), count(DISTINCT b) FROM of_large;
SELECT verify_heapam('of_large');
-- ... also in large files among small ones.
\! mkdir -p "$PGB_DATA/match_by_large"; cd "$PGB_DATA/match_by_large"; cp ../match_by/large 2; cp ../match_by/large 3; printf 'a\n1\n' >1; cp 1 4
SELECT make_foreign('larges', 'match_by_large', $$file text OPTIONS (source 'filename'), a int, line int OPTIONS (source 'line_number')$$, $$, match_by 'name'$$);
CREATE TABLE of_larges (file text, a int, line int);
CREATE VIEW wrong AS SELECT count(*) AS rows, count(*) FILTER (WHERE line <> CASE WHEN file ~ '[14]$' THEN 2 ELSE 2 * a + 1 END) AS lines, count(DISTINCT file) AS files FROM of_larges;
SET pg_bulk.workers = 2;
INSERT INTO of_larges SELECT * FROM larges;
TABLE wrong;
TRUNCATE of_larges;
SELECT rows_loaded, workers FROM bulk_load(data_path('match_by_large'), 'of_larges',
	'{"format": "csv", "match_by": "name", "workers": 2, "columns": [{"column": "line", "source": "line_number"}, {"column": "file", "source": "filename"}]}');
TABLE wrong;
TRUNCATE of_larges;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET pg_bulk.direct_insert = off;
INSERT INTO of_larges SELECT * FROM larges;
TABLE wrong;
TRUNCATE of_larges;
SELECT plan_of('SELECT * FROM larges WHERE a > 0');
DO $$ BEGIN CREATE TABLE scanned AS SELECT * FROM larges WHERE a > 0; END $$;
INSERT INTO of_larges SELECT * FROM scanned;
TABLE wrong;
-- An error in a later chunk of one file names the line within this file.
\! cd "$PGB_DATA/match_by_large"; echo x,x >>3
SELECT error_of($$SELECT count(b) FROM bulk_load(data_path('match_by_large'), 'of_larges', '{"format": "csv", "match_by": "name", "workers": 2}') b$$);
SELECT e FROM error_of($$SELECT sum(a) FROM larges$$) e WHERE e <> 'CONTEXT: parallel worker';
RESET pg_bulk.direct_insert;
RESET pg_bulk.workers;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
SET client_min_messages = warning;
DROP SCHEMA match_by CASCADE;
