--
-- Several files whose fields are matched by position, and whose headers list the columns in different orders.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema header_order
\i :helpers
\! rm -rf "$PGB_DATA"/header_order*; mkdir -p "$PGB_DATA/header_order" "$PGB_DATA/header_order_bad" "$PGB_DATA/header_order_many"
\set ECHO all
\pset tuples_only
\pset format unaligned
-- The first file is empty and has no header. Header names need not be names of the table's columns.
CALL write_file('header_order/0.csv', E'');
CALL write_file('header_order/1.csv', E'first,"the second",n\na1,b1,1\na2,b2,2\n');
CALL write_file('header_order/2.csv', E'the second,first,n\nb3,a3,3\n');
CALL write_file('header_order/3.csv', E'n,first,the second\r\n4,a4,b4\r\n5,a5,b5');
CALL write_file('header_order/4.csv', E'');
CALL write_file('header_order/5.csv', E'First,the second,Number\na6,b6,6\n');
CALL write_file('header_order/6.csv', E'n,the second,first\n7,b7,a7\n');
CALL write_file('header_order/7.csv', E'first,the second,n');
CALL write_file('header_order/8.csv', E'"first",the second,n\na8,b8,8\n');
CREATE TABLE t (a text, b text, n int NOT NULL, line int);
CREATE FUNCTION loaded(pattern text, options text DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
	SELECT (rows_loaded, rows_rejected, writer, workers)::text
	FROM bulk_load(data_path(pattern), 't', '{"format": "csv", "header": true, "columns": ["a", "b", "n", {"column": "line", "source": "line_number"}], "truncate": true}'::jsonb || options::jsonb)
$$;
SELECT loaded('header_order/*.csv', '{"workers": 0}');
TABLE t;
CREATE TABLE first AS TABLE t;
CREATE FUNCTION differ() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM (TABLE t EXCEPT ALL TABLE first) x $$;
SELECT loaded('header_order/*.csv', '{"workers": 2}'), differ();
SELECT verify_heapam('t');
SELECT loaded('header_order/*.csv', '{"writer": "buffered"}'), differ();
SELECT loaded('header_order', '{"workers": 2, "where": "n > 2", "on_error": "table"}'), differ();
-- The first file that is read need not be the first in the list.
SELECT loaded('header_order/[2346].csv', '{"workers": 2}');
SELECT string_agg(a || b || n, ' ' ORDER BY n) FROM t;
-- A file whose header has other names than the first file is an error.
SELECT error_of($$SELECT loaded('header_order/[2-6].csv', '{"workers": 2}')$$);
SELECT without_path(path), line_number, column_name FROM bulk_check(data_path('header_order/*.csv'), 't', '{"format": "csv", "header": true, "columns": ["a", "b", "n"]}');

-- Foreign tables, bulk_read and INSERTs.
CREATE FUNCTION make_foreign(name text, pattern text, columns text, options text DEFAULT '') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE FOREIGN TABLE %I (%s) SERVER bulk_files OPTIONS (filename %L, format ''csv'', header ''true''%s)', name, columns, data_path(pattern), options);
END $$;
SELECT make_foreign('ft', 'header_order/*.csv', $$a text, b text, n int, line int OPTIONS (source 'line_number')$$);
TABLE ft;
SELECT a FROM ft WHERE b > 'b2';
SELECT count(*), sum(n), max(b) FROM ft;
SELECT i, (SELECT string_agg(a, ' ') FROM ft WHERE n % 2 = i) FROM generate_series(0, 1) i;
SELECT b, n FROM bulk_read(data_path('header_order'), '{"format": "csv", "header": true}') AS (a text, b text, n int) WHERE a > 'a4';
TRUNCATE t;
INSERT INTO t SELECT a, b, n, line FROM ft;
SELECT differ(), count(*) FROM t;
TRUNCATE t;
INSERT INTO t (b, a, n) SELECT upper(b), a, n FROM ft WHERE n <> 5;
SELECT string_agg(a || b || n, ' ' ORDER BY n) FROM t;

-- Headers that differ in more than their order are an error with a hint; so is a name that occurs twice.
CALL write_file('header_order_bad/1.csv', E'a,b,n\na1,b1,1\n');
CALL write_file('header_order_bad/2.csv', E'a,b,n\na2,b2,2\n');
CALL write_file('header_order_bad/3.csv', E'b,c,n\nb3,c3,3\n');
CALL write_file('header_order_bad/4.twice', E'x,x,n\n4,4,4\n');
CALL write_file('header_order_bad/5.twice', E'n,x,x\n5,5,5\n');
CALL write_file('header_order_bad/1.less', E'a,b,n\na1,b1,1\n');
CALL write_file('header_order_bad/2.less', E'a,n\na2,2\n');
CALL write_file('header_order_bad/1.more', E'a,b,n\na1,b1,1\n');
CALL write_file('header_order_bad/2.more', E'n,a,b,more\n2,a2,b2,x\n');
SELECT error_of($$SELECT loaded('header_order_bad/*.csv', '{"workers": 0}')$$);
SELECT error_of($$SELECT loaded('header_order_bad/*.csv', '{"workers": 2}')$$);
SELECT error_of($$SELECT loaded('header_order_bad/*.csv', '{"writer": "buffered"}')$$);
SELECT error_of($$SELECT loaded('header_order_bad/*.csv', '{"on_error": "table"}')$$);
SELECT error_of($$SELECT loaded('header_order_bad/*.twice')$$);
SELECT error_of($$SELECT loaded('header_order_bad/*.less')$$);
SELECT error_of($$SELECT loaded('header_order_bad/*.more')$$);
DO $$ DECLARE detail text; hint text;
BEGIN
	PERFORM loaded('header_order_bad/*.csv');
EXCEPTION WHEN bad_copy_file_format THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RAISE NOTICE '% %', detail, hint;
END $$;
SELECT make_foreign('bad', 'header_order_bad/*.csv', 'a text, b text, n int');
SELECT error_of('SELECT * FROM bad');
SELECT error_of('SELECT count(*) FROM bad');
SELECT error_of('INSERT INTO t (a, b, n) SELECT * FROM bad');
-- With match_by = name it is no error; a header of several lines has no names; header = match keeps its meaning.
SELECT rows_loaded FROM bulk_load(data_path('header_order_bad/*.csv'), 't', '{"format": "csv", "match_by": "name", "truncate": true}');
SELECT string_agg(concat(a, b, n), ' ' ORDER BY n) FROM t;
SELECT loaded('header_order_bad/*.csv', '{"header": 2}');
SELECT error_of($$SELECT loaded('header_order_bad/*.csv', '{"header": "match"}')$$);
-- With match_by = position, the order of the fields counts.
SELECT loaded('header_order_bad/*.csv', '{"match_by": "position"}');
SELECT string_agg(a || b || n, ' ' ORDER BY n) FROM t;
SELECT loaded('header_order/2.csv'), loaded('header_order/[12].csv', '{"match_by": "position", "workers": 2}');
SELECT string_agg(a || b || n, ' ' ORDER BY n) FROM t;
SELECT make_foreign('positions', 'header_order/*.csv', 'a text, b text, n text', $$, match_by 'position'$$);
SELECT string_agg(concat_ws('-', a, b, n), ' ') FROM positions;
-- Fewer names than fields do not identify the fields; an empty header line names no field, in the first file, too.
\! mkdir "$PGB_DATA/header_order_few" "$PGB_DATA/header_order_blank" "$PGB_DATA/header_order_bytes"
CALL write_file('header_order_few/1', E'b,n\na1,b1,1\n');
CALL write_file('header_order_few/2', E'b,n\na2,b2,2\n');
SELECT loaded('header_order_few');
CALL write_file('header_order_few/3', E'n,b\na3,3,b3\n');
SELECT error_of($$SELECT loaded('header_order_few')$$);
CALL write_file('header_order_blank/1', E'\na1,b1,1\n');
CALL write_file('header_order_blank/2', E'a,b,n\na2,b2,2\n');
CALL write_file('header_order_blank/3', E'n,a,b\n3,a3,b3\n');
CALL write_file('header_order_blank/4', E'\na4,b4,4\n');
SELECT loaded('header_order_blank', '{"workers": 0}');
SELECT string_agg(a || b || n, ' ' ORDER BY n) FROM t;
SELECT loaded('header_order_blank', '{"workers": 3}');
SELECT string_agg(a || b || n, ' ' ORDER BY n) FROM t;
-- Invalid bytes in a header are no errors if records with invalid bytes are rejected, in any process.
DO $$ BEGIN EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'cat >/dev/null; cd "' || data_path('header_order_bytes') || '"; for i in 1 2 3 4; do printf ''a\377,b,n\nx,y,%d\n'' $i >$i; done'); END $$;
SELECT loaded('header_order_bytes', '{"on_error": "table", "workers": 0}');
SELECT loaded('header_order_bytes', '{"on_error": "table", "workers": 3}');
-- A single file cannot differ from another one.
SELECT loaded('header_order_bad/3*.csv');
SELECT a || b FROM t;

-- Large files of which several processes read chunks; text format with escapes and an unnamed field.
\! cd "$PGB_DATA/header_order_many"; seq 9000 | awk -v OFS='\t' '{ print "a" $1, "b" $1, $1 }' >x; (printf 'one\\ttab\t\\N\tn\n'; cat x) >1; (printf '\\N\tn\tone\\ttab\n'; awk -F'\t' -v OFS='\t' '{ print $2, $3, $1 }' x) >2; (printf 'n\tone\\ttab\t\\N\n'; awk -F'\t' -v OFS='\t' '{ print $3, $1, $2 }' x) >3; gzip -c 3 >4; cp 1 5; rm x; chmod a+r *
CREATE TABLE many (a text, b text, n int);
CREATE FUNCTION many(pattern text, options text) RETURNS text LANGUAGE sql AS $$
	SELECT (rows_loaded, workers)::text FROM bulk_load(data_path(pattern), 'many', '{"header": true, "truncate": true}'::jsonb || options::jsonb)
$$;
-- Two fields without a name cannot be matched.
SELECT error_of($$SELECT many('header_order_many', '{"workers": 2}')$$);
\! cd "$PGB_DATA/header_order_many"; gunzip -c 4 >6; sed -i '1s/\\N/other/' 1 2 3 5 6; gzip -c 6 >4; rm 6
SET pg_bulk.chunk_size = 16384;
SELECT many('header_order_many', '{"workers": 2}');
SELECT count(*), count(*) FILTER (WHERE a = 'a' || n AND b = 'b' || n) FROM many;
SELECT many('header_order_many/[234]', '{"workers": 3, "columns": ["b", "n", "a"]}');
SELECT count(*), count(*) FILTER (WHERE a = 'a' || n AND b = 'b' || n) FROM many;
CREATE FOREIGN TABLE parts (a text, b text, n int) SERVER bulk_files OPTIONS (filename 'x', format 'text', header 'true');
DO $$ BEGIN EXECUTE format('ALTER FOREIGN TABLE parts OPTIONS (SET filename %L)', data_path('header_order_many')); END $$;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT count(*), count(*) FILTER (WHERE a = 'a' || n AND b = 'b' || n), sum(n), max(b) FROM parts;
SET max_parallel_workers_per_gather = 0;
SELECT count(*), count(*) FILTER (WHERE a = 'a' || n AND b = 'b' || n), sum(n), max(b) FROM parts;
TRUNCATE many;
INSERT INTO many SELECT * FROM parts;
SELECT count(*), count(*) FILTER (WHERE a = 'a' || n AND b = 'b' || n) FROM many;
SET client_min_messages = warning;
DROP SCHEMA header_order CASCADE;
