--
-- bulk_read: the rows of a file without a table.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema bulk_read
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
SELECT pg_get_function_arguments(oid), pg_get_function_result(oid), provolatile, proparallel, proisstrict FROM pg_proc WHERE proname = 'bulk_read';
CALL write_file('read.csv', E'id,name,born\n1,one,2020-01-02\n2,"t,wo",\n3,,2021-12-31\n');
SELECT * FROM bulk_read(data_path('read.csv'), '{"format": "csv", "header": true}') AS t (id int, name text, born date);
SELECT t, t.born IS NULL FROM bulk_read(data_path('read.csv'), '{"format": "csv", "header": "match"}') AS t (id int, name text, born date) WHERE id > 1;
SELECT * FROM bulk_read(path => data_path('read.csv')) AS t (line text);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
SELECT id, n, b FROM bulk_read(data_path('read.csv'), '{"format": "csv", "header": 1, "skip": 1, "limit": 1}') AS t (id positive, n varchar(4), b timestamptz);
-- Rows equal those of a foreign table of the same file, for types that are decoded natively and others.
CALL make_table('many', 'a int, b text, c numeric, d timestamp, e point, f int[]', $$format 'csv'$$, repeat(E'1,"a ""b""",1.50,2020-01-01 10:00,"(1,2)","{1,2}"\n,,,,,\n-7,x,1e3,infinity,"(0,0)",{}\n', 3000));
SELECT count(*) FROM (SELECT t::text FROM many t EXCEPT ALL SELECT t::text FROM bulk_read(data_path('many'), '{"format": "csv"}') AS t (a int, b text, c numeric, d timestamp, e point, f int[])) x;
SELECT count(*), sum(a), count(b) FROM bulk_read(data_path('many'), '{"format": "csv"}') AS t (a int, b text, c numeric, d timestamp, e point, f int[]);
SELECT count(*), sum(a), max(b) FROM bulk_read(data_path('many'), '{"format": "csv", "force_null": ["b"], "limit": 5000}') AS t (a int, b text, c text, d text, e text, f text);
-- With little work_mem the rows are spooled to a temporary file; in joins, twice in a query, LATERAL, in functions with columns, in a view.
SET work_mem = '64kB';
SELECT count(*), sum(m.a) FROM many m, bulk_read(data_path('many'), '{"format": "csv", "limit": 3}') AS t (a int, b text, c text, d text, e text, f text) WHERE m.a = t.a;
SELECT n, count(*) FROM generate_series(1, 3) n, LATERAL bulk_read(data_path('many'), jsonb_build_object('format', 'csv', 'limit', n)) AS t (a int, b text, c text, d text, e text, f text) GROUP BY n ORDER BY n;
SELECT * FROM ROWS FROM (bulk_read(data_path('read.csv'), '{"format": "csv", "header": true, "limit": 2}') AS (id int, name text, born date), generate_series(1, 3)) x;
CREATE VIEW seen AS SELECT * FROM bulk_read(data_path('read.csv'), '{"format": "csv", "header": true}') AS t (id int, name text, born date);
SELECT count(*) FROM seen;
SELECT count(*) FROM bulk_read(data_path('many'), '{"format": "csv", "limit": 9000}') AS t (a int, b text, c text, d text, e text, f text);
RESET work_mem;
-- Compressed files, programs.
SELECT ending, count(*), sum(id) FROM unnest('{gz,zst,lz4,bz2,xz}'::text[]) ending, LATERAL bulk_read(data_path('compressed/many.' || ending), '{"format": "csv"}') AS t (id int, word text) GROUP BY ending ORDER BY ending;
SELECT * FROM bulk_read('printf "1,one\n2,two\n"', '{"format": "csv", "program": true}') AS t (a int, b text);
SELECT error_of($$SELECT * FROM bulk_read('exit 3', '{"program": true}') AS t (a text)$$);
-- Errors are COPY's, with the same line and column.
CALL write_file('read_bad.csv', E'1,one\nx,two\n3\n4,four\n');
SELECT error_of($$SELECT * FROM bulk_read(data_path('read_bad.csv'), '{"format": "csv"}') AS t (id int, name text)$$);
SELECT error_of($$SELECT * FROM bulk_read(data_path('read_bad.csv'), '{"format": "csv"}') AS t (id point, name text)$$);
SELECT error_of($$SELECT * FROM bulk_read(data_path('read_bad.csv'), '{"format": "csv", "skip": 2}') AS t (id int, name text)$$);
SELECT error_of($$SELECT * FROM bulk_read(data_path('read_bad.csv'), '{"format": "csv", "skip": 3}') AS t (id int)$$);
SELECT error_of($$SELECT * FROM bulk_read(data_path('read.csv'), '{"format": "csv", "header": "match"}') AS t (id int, nome text, born date)$$);
CALL write_file('read_bad.csv', E'1,one\nx,two\n3,three\ny,four\n');
SELECT * FROM bulk_read(data_path('read_bad.csv'), '{"format": "csv", "on_error": "ignore"}') AS t (id int, name text);
SELECT * FROM bulk_read(data_path('read_bad.csv'), '{"format": "csv", "on_error": "set_null", "log_verbosity": "silent"}') AS t (id int, name text);
SELECT error_of($$SELECT * FROM bulk_read(data_path('read_bad.csv'), '{"format": "csv", "on_error": "ignore", "reject_limit": 1}') AS t (id int, name text)$$);
SELECT error_of($$SELECT * FROM bulk_read(data_path('read_bad.csv'), '{"format": "csv", "on_error": "ignore", "reject_limit": "25%"}') AS t (id int, name text)$$);
SELECT error_of($$SELECT * FROM bulk_read(data_path('read_bad.csv'), '{"on_error": "table"}') AS t (id int, name text)$$);
SELECT error_of($$SELECT * FROM bulk_read(data_path('read_bad.csv'), '{"truncate": true}') AS t (id int, name text)$$);
SELECT error_of($$SELECT * FROM bulk_read(data_path('read_bad.csv'), '{"format": "csv", "force_null": ["word"]}') AS t (id int, name text)$$);
SELECT error_of($$SELECT * FROM bulk_read(data_path('read_bad.csv'), '[]') AS t (id int, name text)$$);
SELECT error_of($$SELECT * FROM bulk_read(NULL) AS t (id int, name text)$$);
SELECT error_of($$SELECT * FROM bulk_read('', NULL) AS t (id int, name text)$$);
SELECT error_of($$SELECT bulk_read(data_path('read.csv'))$$);
SELECT error_of($$SELECT * FROM bulk_read(data_path('read.csv'))$$);
SELECT error_of($$SELECT * FROM bulk_read(data_path('missing')) AS t (a text)$$);
-- Columns matched by name, in each of several files.
CALL write_file('read_more.1.csv', E'id,name\n1,one\n2,two\n');
CALL write_file('read_more.2.csv', E'name,other,id\nthree,x,3\n');
SELECT * FROM bulk_read(data_path('read_more.*.csv'), '{"format": "csv", "match_by": "name"}') AS t (name text, id int, extra date);
SELECT * FROM bulk_read(data_path('read_more.*.csv'), '{"format": "csv", "match_by": "name", "limit": 3}') AS t (name text, id int);
SELECT error_of($$SELECT * FROM bulk_read(data_path('read_more.*.csv'), '{"format": "csv", "header": true}') AS t (a text, b text)$$);
-- bulk_read requires the same privileges as a load.
SET client_min_messages = warning;
CREATE ROLE read_user;
CREATE SERVER read_files FOREIGN DATA WRAPPER bulk_fdw;
DO $$ BEGIN EXECUTE format('ALTER SERVER read_files OPTIONS (ADD directory %L)', data_path('')); END $$;
RESET client_min_messages;
GRANT USAGE ON SCHEMA bulk_read TO read_user;
SET ROLE read_user;
SELECT error_of($$SELECT * FROM bulk_read(data_path('missing')) AS t (a text)$$);
SELECT error_of($$SELECT * FROM bulk_read('echo', '{"program": true}') AS t (a text)$$);
SELECT error_of($$SELECT * FROM bulk_read('read.csv', '{"server": "read_files"}') AS t (a text)$$);
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER read_files TO read_user;
SET ROLE read_user;
SELECT * FROM bulk_read('read.csv', '{"server": "read_files", "limit": 1}') AS t (a text);
SELECT error_of($$SELECT * FROM bulk_read('/etc/passwd', '{"server": "read_files"}') AS t (a text)$$);
RESET ROLE;
-- bulk_read writes nothing: it works in a READ ONLY transaction. It can be canceled.
BEGIN READ ONLY;
SELECT count(*) FROM bulk_read(data_path('read.csv')) AS t (a text);
COMMIT;
SET statement_timeout = '200ms';
DO $$ BEGIN PERFORM count(*) FROM bulk_read('yes', '{"program": true}') AS t (a text); EXCEPTION WHEN query_canceled THEN RAISE NOTICE 'canceled'; END $$;
RESET statement_timeout;
SET client_min_messages = warning;
DROP SERVER read_files CASCADE;
DROP SCHEMA bulk_read CASCADE;
DROP ROLE read_user;
