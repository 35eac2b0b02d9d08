--
-- Records with too few fields (short_rows) and too many fields (long_rows).
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
\set schema ragged_rows
\i :helpers
\i :load_helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CREATE FUNCTION seven() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 7; END $$;
-- Foreign tables: rows, their number, and a notice as log_verbosity says.
CALL make_table('f', $$a int, b text DEFAULT 'none', c int DEFAULT seven(), line int OPTIONS (source 'line_number')$$, $$format 'csv', short_rows 'null', long_rows 'cut', header '1'$$, E'a,b,c\n1,x,3\n2\n3,y\n4,z,5,6,"7,8"\n\n5,,\n');
SELECT to_json(t) FROM f t;
SELECT count(*) FROM f;
SELECT sum(a), count(c) FROM f WHERE a > 1;
SELECT b FROM f WHERE a < 5 AND c IS NULL;
ALTER FOREIGN TABLE f OPTIONS (SET short_rows 'default', ADD log_verbosity 'verbose');
SELECT to_json(t) FROM f t;
ALTER FOREIGN TABLE f OPTIONS (SET log_verbosity 'silent');
SELECT count(c), sum(c) FROM f;
-- An error stops the scan, and the load; with on_error = ignore it is a reject where the option is given.
ALTER FOREIGN TABLE f OPTIONS (SET short_rows 'error', SET log_verbosity 'verbose');
SELECT error_of('SELECT * FROM f');
ALTER FOREIGN TABLE f OPTIONS (ADD on_error 'ignore');
SELECT a, b, c FROM f;
ALTER FOREIGN TABLE f OPTIONS (SET long_rows 'error', ADD skip '2');
SELECT a, b, c FROM f;
ALTER FOREIGN TABLE f OPTIONS (DROP long_rows);
SELECT error_of('SELECT * FROM f');
ALTER FOREIGN TABLE f OPTIONS (DROP on_error, DROP log_verbosity, DROP skip, SET short_rows 'null', ADD long_rows 'cut');
-- Text format, and other ways to a column: a NULL marker, a DEFAULT marker, markers that are forced, a refined column.
CALL make_table('g', $$a int, b text OPTIONS (null_if '"-"'), c int DEFAULT 9$$, $$short_rows 'default', long_rows 'cut', default '\D'$$, E'1\t-\t\\D\n2\t\\N\n3\n4\tx\t5\t\\D\t\\x41\n');
SELECT to_json(t) FROM g t;
CALL make_table('g', $$a int, b text OPTIONS (force_not_null 'true'), c text OPTIONS (force_null 'true')$$, $$format 'csv', short_rows 'null'$$, E'1,,""\n2\n3,\n');
SELECT to_json(t) FROM g t;
-- By name, with the fields in another order, a field without a column and a column without a field; skip and limit.
CALL make_table('n', $$a int, b text DEFAULT 'none', c int, d int DEFAULT 8$$, $$format 'csv', match_by 'name', short_rows 'default', skip '1', limit '3'$$, E'x,c,a,b\n0,0\n0,2,1\n0,3,2,b\n0\n0\n');
SELECT to_json(t) FROM n t;
-- The header must have all columns.
CALL make_table('h', $$a int, b text$$, $$format 'csv', header 'match', short_rows 'null', long_rows 'cut'$$, E'a,b\n1\n2,3,4\n');
SELECT to_json(t) FROM h t;
CALL write_file('h', E'a\n1\n');
SELECT error_of('SELECT * FROM h');
-- A NOT NULL domain, and a table without columns.
CREATE DOMAIN filled AS int NOT NULL;
CALL make_table('d', $$a int, b filled$$, $$format 'csv', short_rows 'null'$$, E'1,2\n3\n');
SELECT a FROM d;
SELECT error_of('SELECT * FROM d');
CALL make_table('nothing', '', $$format 'csv', long_rows 'cut'$$, E'1,2\n\n3\n');
SELECT count(*) FROM nothing;
-- Loads: both writers, one process and several. A default that is not parallel safe makes one process read.
CREATE TABLE loaded (id serial PRIMARY KEY, a int, b text NOT NULL DEFAULT 'none', c int DEFAULT 7, twice int GENERATED ALWAYS AS (a * 2) STORED);
CALL write_file('some.csv', E'1,x,3\n2\n3,y\n4,z,5,6\n5,w,x,y\n6,v\n');
CREATE PROCEDURE try(options jsonb, columns jsonb DEFAULT '["a", "b", "c"]') LANGUAGE plpgsql AS $$
DECLARE
	w text;
	said text;
BEGIN
	FOREACH w IN ARRAY '{buffered,direct}'::text[] LOOP
		BEGIN
			TRUNCATE loaded RESTART IDENTITY;
			SELECT format('%s %s %s %s: %s', loaded, rejected, filtered, writer, notes) INTO said FROM figures('some.csv', 'loaded', '{"format": "csv"}' || options || jsonb_build_object('writer', w, 'columns', columns));
			RAISE NOTICE '%, %', said, (SELECT string_agg(t::text, ' ' ORDER BY id) FROM loaded t);
		EXCEPTION WHEN OTHERS THEN
			RAISE NOTICE '% %: %', w, SQLSTATE, SQLERRM;
		END;
	END LOOP;
END $$;
CALL try('{"short_rows": "default", "long_rows": "cut", "on_error": "ignore"}');
CALL try('{"short_rows": "null", "long_rows": "cut", "on_error": "ignore"}');
CALL try('{"short_rows": "null", "long_rows": "cut", "on_error": "table", "where": "a < 6"}');
CALL try('{"short_rows": "default", "on_error": "table"}');
CALL try('{"long_rows": "cut", "on_error": "table"}');
CALL try('{"long_rows": "cut", "short_rows": "error", "on_error": "ignore"}');
CALL try('{"long_rows": "error", "on_error": "ignore"}');
CALL try('{"on_error": "table"}');
CALL try('{"short_rows": "default", "long_rows": "cut", "on_error": "ignore"}', '["a", "y", {"name": "b", "expr": "coalesce(y, $$?$$)"}, "c"]');
SELECT line_number, column_name, message FROM bulk_check(data_path('some.csv'), 'loaded', '{"format": "csv", "columns": ["a", "b", "c"], "short_rows": "null", "long_rows": "cut"}') ORDER BY 1;
SELECT line_number, column_name, message FROM bulk_check(data_path('some.csv'), 'loaded', '{"format": "csv", "columns": ["a", "b", "c"]}') ORDER BY 1;
SELECT to_json(t) FROM bulk_read(data_path('some.csv'), '{"format": "csv", "short_rows": "default", "long_rows": "cut", "on_error": "set_null"}') AS t (a int, b text, c int);
SELECT bulk_enqueue(data_path('some.csv'), 'loaded', '{"format": "csv", "truncate": true, "columns": ["a", "b", "c"], "short_rows": "default", "long_rows": "cut", "on_error": "ignore"}') AS job \gset
SELECT bulk_wait(:job);
SELECT rows_loaded, rows_rejected, notes FROM bulk_history WHERE load_id = :job;
-- A filter function: NULL, or the default of the parameter.
CREATE FUNCTION halves(a int, b text DEFAULT 'none', c int DEFAULT 8) RETURNS loaded LANGUAGE sql AS $$ SELECT a, a, b, c, NULL::int $$;
SELECT loaded, rejected, notes FROM figures('some.csv', 'loaded', '{"format": "csv", "truncate": true, "filter": "halves", "short_rows": "default", "long_rows": "cut", "on_error": "ignore"}');
TABLE loaded;
SELECT loaded, rejected, notes FROM figures('some.csv', 'loaded', '{"format": "csv", "truncate": true, "filter": "halves", "short_rows": "null", "long_rows": "cut", "on_error": "table"}');
TABLE loaded;
-- Several files: the note names the file of the first line.
CALL write_file('ragged_many1.csv', E'a,b\n1,2\n3,4\n');
CALL write_file('ragged_many2.csv', E'b,a\n5,6,7\n8\n');
CREATE TABLE many (a int, b int);
SELECT loaded, without_path(notes) FROM figures('ragged_many*.csv', 'many', '{"format": "csv", "match_by": "name", "short_rows": "null", "long_rows": "cut"}');
TABLE many;
-- Many rows, in small chunks: all writers and numbers of processes agree with what is generated.
CREATE TABLE original AS SELECT i AS a, CASE WHEN i % 10 <> 3 THEN 'word' || i END AS b, CASE WHEN i % 10 NOT IN (3, 5) THEN i / 2.0 END AS c FROM generate_series(1, 20000) i;
SELECT string_agg(CASE i % 10 WHEN 3 THEN i::text WHEN 5 THEN format('%s,word%s', i, i) WHEN 7 THEN format('%s,word%s,%s,"a,b",c', i, i, i / 2.0) ELSE format('%s,"word%s",%s', i, i, i / 2.0) END, E'\n') AS content FROM generate_series(1, 20000) i \gset
CALL write_file('big.csv', :'content');
CREATE TABLE big (a int, b text, c numeric);
CREATE FUNCTION differing() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM ((TABLE big EXCEPT ALL TABLE original) UNION ALL (TABLE original EXCEPT ALL TABLE big)) d $$;
SET pg_bulk.chunk_size = '1kB';
CREATE PROCEDURE try_big() LANGUAGE plpgsql AS $$
DECLARE
	w text;
	n int;
	said text;
BEGIN
	FOREACH w IN ARRAY '{buffered,direct}'::text[] LOOP
		FOREACH n IN ARRAY '{0,3}'::int[] LOOP
			SELECT format('%s %s %s: %s', rows_loaded, writer, workers, notes) INTO said FROM bulk_load(data_path('big.csv'), 'big', jsonb_build_object('format', 'csv', 'short_rows', 'null', 'long_rows', 'cut', 'truncate', true, 'writer', w, 'workers', n));
			RAISE NOTICE '%, %', said, differing();
		END LOOP;
	END LOOP;
END $$;
CALL try_big();
CALL make_table('big_file', 'a int, b text, c numeric', $$format 'csv', short_rows 'null', long_rows 'cut'$$, :'content');
SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET max_parallel_workers_per_gather = 2;
SELECT plan_of('SELECT count(*), sum(a), count(c) FROM big_file');
SELECT count(*), sum(a), count(c) FROM big_file;
SELECT count(*) FROM big_file;
SELECT count(*) FROM big_file WHERE b IS NULL;
RESET min_parallel_table_scan_size; RESET parallel_setup_cost; RESET parallel_tuple_cost; RESET max_parallel_workers_per_gather;
SET pg_bulk.workers = 3;
TRUNCATE big;
INSERT INTO big SELECT * FROM big_file;
SELECT differing();
SET pg_bulk.direct_insert = off;
TRUNCATE big;
INSERT INTO big SELECT * FROM big_file;
SELECT differing();
RESET pg_bulk.direct_insert;
ALTER FOREIGN TABLE big_file OPTIONS (SET short_rows 'default');
ALTER FOREIGN TABLE big_file ALTER c SET DEFAULT seven();
SELECT plan_of('INSERT INTO big SELECT * FROM big_file', 'VERBOSE, COSTS OFF');
SELECT plan_of('SELECT count(*), sum(c) FROM big_file');
SELECT count(*), sum(c) FROM big_file WHERE a % 10 IN (3, 5);
RESET pg_bulk.workers;
-- Rejects, by one process and by several. Chunks have 64 bytes.
SELECT string_agg(CASE i % 50 WHEN 3 THEN 'x,' || i WHEN 5 THEN '' WHEN 7 THEN i || ',' WHEN 9 THEN i || ',a,b' WHEN 11 THEN '70000' ELSE i || ',"' || repeat(',', i % 9) || '"' END, E'\n') AS content FROM generate_series(1, 1500) i \gset
SELECT alike('a int2, b text', :'content', '{"format": "csv", "on_error": "table"}');
SELECT alike('a int2, b text', :'content', '{"format": "csv", "on_error": "table", "short_rows": "null"}');
SELECT alike('a int2, b text', :'content', '{"format": "csv", "on_error": "table", "long_rows": "cut"}');
SELECT alike('a int2, b text', :'content', '{"format": "csv", "on_error": "ignore", "short_rows": "error", "long_rows": "cut"}');
SELECT alike('a int2, b text', :'content', '{"format": "csv", "on_error": "ignore", "short_rows": "error"}');
SELECT alike('a int2, b text', :'content', '{"format": "csv", "short_rows": "null"}');
-- Values, and formats without fields.
CREATE FUNCTION refused(options text) RETURNS SETOF text LANGUAGE sql AS $$ SELECT error_of(format('CREATE FOREIGN TABLE x (a int) SERVER bulk_files OPTIONS (filename ''f'', %s)', options)) $$;
SELECT refused($$short_rows 'pad'$$);
SELECT refused($$long_rows 'null'$$);
SELECT refused($$format 'fixed', short_rows 'null'$$);
SELECT refused($$format 'json', long_rows 'cut'$$);
SELECT refused($$format 'binary', short_rows 'null'$$);
SELECT error_of($$SELECT * FROM bulk_load(NULL, 'loaded', '{"query": "SELECT 1", "short_rows": "null"}')$$);
-- A row that fits into no page, even with its values out of line, is a reject of the direct writer.
SELECT string_agg('c' || i || ' text', ', ') AS wide FROM generate_series(1, 460) i \gset
SELECT string_agg(CASE i % 20 WHEN 7 THEN repeat(repeat('x', 30) || ',', 459) || i WHEN 9 THEN repeat('1,', 459) || repeat('long', 5000) ELSE i || repeat(',', 459) END, E'\n') AS content FROM generate_series(1, 60) i \gset
SELECT alike(:'wide', :'content', '{"format": "csv", "on_error": "table"}');
SELECT left(said, 60) FROM alike(:'wide', :'content', '{"format": "csv"}') said LIMIT 1;
SELECT count(*), max(length(c460)) FROM loaded.t;
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA ragged_rows CASCADE;
DROP SCHEMA IF EXISTS loaded CASCADE;
