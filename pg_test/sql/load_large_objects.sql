--
-- bulk_load of a file's bytes that are passed as a value or stored in a large object.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set load_helpers :data '/load_helpers.sql'
\set schema load_large_objects
\i :helpers
\i :load_helpers
-- The OID of a large object differs from run to run.
CREATE FUNCTION without_number(line text) RETURNS text LANGUAGE sql AS $$ SELECT regexp_replace(line, 'large object \d+', 'large object N') $$;
\set ECHO all
\pset tuples_only
\pset format unaligned
-- The overloaded functions have the same attributes, and an untyped literal is a path.
SELECT count(*), count(DISTINCT (provolatile, proparallel, proisstrict, prosecdef, procost, prorows, coalesce(proacl::text, ''), proowner, pg_get_function_result(oid))) FROM pg_proc WHERE proname = 'bulk_load';
CREATE TABLE t (a int, b text);
SELECT error_of($$SELECT bulk_load('no such file', 't')$$);
SELECT error_of($$SELECT bulk_load(NULL, 't')$$);
SELECT error_of($$SELECT bulk_load(NULL::bytea, 't')$$);
SELECT error_of($$SELECT bulk_load(data => '\x', target => NULL)$$);
SELECT rows_loaded, bytes_read, writer, workers, notes FROM bulk_load('\x310974776f0a320a'::bytea, 't', '{"columns": ["a", "b"], "on_error": "table"}');
SELECT rows_loaded, bytes_read FROM bulk_load(data => convert_to(E'a,b\n1,one\n2,two\n', 'UTF8'), target => 't', options => '{"format": "csv", "header": "match"}');
SELECT rows_loaded, rows_filtered FROM bulk_load(convert_to(E'b;a\nx;3\ny;4\nz;5\n', 'UTF8'), 't', '{"format": "csv", "match_by": "name", "delimiter": ";", "where": "a > 3", "limit": 1}');
SELECT rows_loaded, bytes_read FROM bulk_load('\x'::bytea, 't');
TABLE t ORDER BY a, b;
SELECT path, rows_loaded FROM bulk_history ORDER BY load_id DESC LIMIT 1;
SELECT path, line_number, byte_offset, raw_line, message FROM bulk_rejects WHERE path = 'bytea' AND target LIKE '%load_large_objects%';
SELECT error_of($$SELECT bulk_load(convert_to(E'1\tone\nx\ttwo\n', 'UTF8'), 't')$$);
SELECT error_of($$SELECT bulk_load('\x3109ff0a'::bytea, 't', '{"encoding": "UTF8"}')$$);
SELECT rows_loaded FROM bulk_load('\x3109e40a'::bytea, 't', '{"encoding": "latin1", "truncate": true}');
TABLE t;
-- A value of some megabytes, stored out of line, and a large object of the same size. Results equal those for a file.
CREATE TABLE original AS SELECT i AS id, md5(i::text) AS word FROM generate_series(1, 60000) i;
CREATE TABLE files (name text, data bytea);
ALTER TABLE files ALTER data SET STORAGE EXTERNAL;
INSERT INTO files SELECT 'large', convert_to(string_agg(id || E'\t' || word || E'\n', '' ORDER BY id), 'UTF8') FROM original;
SELECT lo_from_bytea(0, data) AS large FROM files \gset
CREATE TABLE loaded (id int PRIMARY KEY, word text);
SELECT rows_loaded, bytes_read = length(data) AS all_bytes, writer FROM files, bulk_load(data, 'loaded');
SELECT count(*) FROM (TABLE original EXCEPT ALL TABLE loaded) d;
SELECT rows_loaded, bytes_read = (SELECT length(data) FROM files) AS all_bytes, writer FROM bulk_load(NULL, 'loaded', jsonb_build_object('large_object', :large, 'truncate', true, 'lock', 'share'));
SELECT count(*) FROM (TABLE original EXCEPT ALL TABLE loaded) d;
SELECT rows_loaded, writer FROM bulk_load('', 'loaded', jsonb_build_object('large_object', :'large', 'truncate', true, 'writer', 'buffered'));
SELECT count(*) FROM (TABLE original EXCEPT ALL TABLE loaded) d;
SELECT count(*) FROM verify_heapam('loaded');
SELECT bt_index_check('loaded_pkey', true);
SELECT without_number(path), rows_loaded FROM bulk_history ORDER BY load_id DESC LIMIT 1;
SELECT without_number(e) FROM error_of(format('SELECT bulk_load(NULL, ''loaded'', ''{"large_object": %s}'')', :large)) e;
SELECT without_number(path), count(*), min(line_number), max(message) FROM bulk_check(NULL, 'loaded', jsonb_build_object('large_object', :large)) GROUP BY path;
SELECT count(*) FROM loaded;
-- Rejects after the load are reported by reading the bytes again.
CREATE TABLE losing (id int PRIMARY KEY, word text);
CREATE FUNCTION lost() RETURNS SETOF text LANGUAGE sql AS $$
	SELECT (line_number, byte_offset, raw_line, constraint_name)::text FROM bulk_rejects WHERE load_id = (SELECT max(load_id) FROM bulk_rejects) ORDER BY line_number
$$;
SELECT convert_to(string_agg(CASE i WHEN 40000 THEN 7 WHEN 50000 THEN 39999 ELSE i END || E'\t' || md5(i::text) || E'\n', '' ORDER BY i), 'UTF8') AS content FROM generate_series(1, 60000) i \gset
SELECT rows_loaded FROM bulk_load(:'content'::bytea, 'losing', '{"on_error": "table", "truncate": true}');
SELECT lost();
SELECT rows_loaded FROM bulk_load(:'content'::bytea, 'losing', '{"on_error": "table", "truncate": true, "encoding": "latin1"}');
SELECT lost();
SELECT lo_from_bytea(0, :'content') AS twice \gset
SELECT rows_loaded FROM bulk_load(NULL, 'losing', jsonb_build_object('on_error', 'table', 'truncate', true, 'large_object', :twice));
SELECT lost();
SELECT without_number(e) FROM error_of(format('SELECT bulk_load(NULL, ''losing'', ''{"truncate": true, "large_object": %s}'')', :twice)) e;
SELECT lo_unlink(:twice);
\set content '\\x' `printf '1\tone\n2\ttwo\n1\tthree\n' | gzip -c | od -An -v -tx1 | tr -d ' \n'`
SELECT rows_loaded FROM bulk_load(:'content'::bytea, 'losing', '{"on_error": "table", "truncate": true}');
SELECT lost();
-- Compressed with the formats of compressed files.
\set content '\\x' `printf '1\tone\n2\ttwo\n' | gzip -c | od -An -v -tx1 | tr -d ' \n'`
SELECT lo_from_bytea(0, :'content') AS packed \gset
TRUNCATE t;
SELECT rows_loaded, bytes_read = length(:'content'::bytea) AS all_bytes FROM bulk_load(:'content'::bytea, 't');
SELECT rows_loaded FROM bulk_load(NULL, 't', jsonb_build_object('large_object', :packed));
SELECT rows_loaded FROM bulk_load(NULL, 't', jsonb_build_object('large_object', :packed, 'compression', 'gzip'));
SELECT error_of(format('SELECT bulk_load(%L::bytea, ''t'', ''{"compression": "none"}'')', :'content'));
SELECT error_of(format('SELECT bulk_load(substring(%L::bytea FOR 20), ''t'')', :'content'));
SELECT lo_put(:packed, 12, '\xffffffff');
SELECT DISTINCT without_number(e) FROM error_of(format('SELECT bulk_load(NULL, ''t'', ''{"large_object": %s}'')', :packed)) e WHERE e !~ 'DETAIL';
TABLE t;
-- Options for files only.
SELECT error_of(format('SELECT bulk_load(NULL, ''t'', jsonb_build_object(''large_object'', 1) || %L)', o)) FROM unnest(ARRAY['{"program": true}', '{"server": "bulk_files"}', '{"once": true}', '{"large_object": 0}', '{"large_object": "x"}', '{"large_object": 5000000000}', '{"large_object": null}']) o;
SELECT error_of(format('SELECT bulk_load(''\x''::bytea, ''t'', %L)', o)) FROM unnest(ARRAY['{"program": true}', '{"query": "SELECT 1"}', '{"large_object": 1}', '{"once": true}', '{"each_file": true}']) o;
SELECT error_of($$SELECT bulk_load('/x', 't', '{"large_object": 1}')$$);
SELECT error_of($$SELECT bulk_load(NULL, 't', '{"large_object": 4294967295}')$$);
-- Privileges: those on the large object, and none on files.
CREATE ROLE regress_large_objects LOGIN;
GRANT USAGE ON SCHEMA load_large_objects TO regress_large_objects;
GRANT INSERT, SELECT ON t TO regress_large_objects;
SELECT lo_from_bytea(0, '\x380965696768740a') AS own \gset
SET ROLE regress_large_objects;
SELECT rows_loaded FROM bulk_load('\x37097365760a'::bytea, 't');
SELECT without_number(e) FROM error_of(format('SELECT bulk_load(NULL, ''t'', ''{"large_object": %s}'')', :own)) e;
SELECT without_number(e) FROM error_of(format('SELECT bulk_enqueue(NULL, ''t'', ''{"large_object": %s}'')', :own)) e;
SELECT without_number(e) FROM error_of(format('SELECT bulk_check(NULL, ''t'', ''{"large_object": %s}'')', :own)) e;
RESET ROLE;
GRANT SELECT ON LARGE OBJECT :own TO regress_large_objects;
SET ROLE regress_large_objects;
SELECT rows_loaded FROM bulk_load(NULL, 't', jsonb_build_object('large_object', :own));
SELECT bulk_enqueue(NULL, 't', jsonb_build_object('large_object', :own)) AS job \gset
SELECT bulk_wait(:job);
SELECT path, status, rows_loaded FROM bulk_jobs WHERE job_id = :job;
SELECT error_of($$SELECT bulk_load('postgresql.conf', 't')$$);
RESET ROLE;
REVOKE SELECT ON LARGE OBJECT :own FROM regress_large_objects;
SET lo_compat_privileges = on;
SET ROLE regress_large_objects;
SELECT rows_loaded FROM bulk_load(NULL, 't', jsonb_build_object('large_object', :own));
RESET ROLE;
RESET lo_compat_privileges;
TABLE t ORDER BY a, b;
SELECT lo_unlink(oid) FROM unnest(ARRAY[:own, :large, :packed]) oid;
DROP OWNED BY regress_large_objects;
DROP ROLE regress_large_objects;
