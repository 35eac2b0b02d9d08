--
-- Privileges of a load: reading files, INSERT on the columns, SELECT, TRUNCATE, locking.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_rights
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
SET client_min_messages = warning;
CREATE ROLE load_files IN ROLE pg_read_server_files;
CREATE ROLE load_programs IN ROLE pg_execute_server_program;
CREATE ROLE load_neither;
CREATE ROLE load_noinherit NOINHERIT IN ROLE pg_read_server_files;
CREATE ROLE load_owner IN ROLE pg_read_server_files;
GRANT USAGE ON SCHEMA load_rights TO load_files, load_programs, load_neither, load_noinherit, load_owner;
RESET client_min_messages;
CALL write_file('f.csv', E'1,one\n2,two\n');
CALL write_file('named.csv', E'b,a\none,1\ntwo,2\n');
CREATE TABLE t (a int, b text, c int DEFAULT 7);
GRANT ALL ON t TO load_files, load_programs, load_neither, load_noinherit;
CREATE FUNCTION says(file text, target text, options jsonb DEFAULT '{"format": "csv", "columns": ["a", "b"]}')
RETURNS SETOF text LANGUAGE sql AS $$
	SELECT error_of(format('SELECT * FROM bulk_load(%L, %L, %L)', CASE WHEN options ? 'program' THEN file ELSE data_path(file) END,
		target, options))
$$;

-- Files. Without the privilege, the error does not tell whether the file exists.
SET ROLE load_neither;
SELECT says('f.csv', 't');
SELECT says('no such file', 't');
SET ROLE load_programs;
SELECT says('f.csv', 't');
SET ROLE load_noinherit;
SELECT says('f.csv', 't');
SET ROLE load_files;
SELECT says('f.csv', 't');
SELECT says('no such file', 't');
-- Programs.
SELECT says('echo 3,three', 't', '{"format": "csv", "columns": ["a", "b"], "program": true}');
SET ROLE load_neither;
SELECT says('echo 3,three', 't', '{"format": "csv", "columns": ["a", "b"], "program": true}');
SET ROLE load_programs;
SELECT says('echo 3,three', 't', '{"format": "csv", "columns": ["a", "b"], "program": true}');
SELECT says('exit 3', 't', '{"format": "csv", "columns": ["a", "b"], "program": true}');
RESET ROLE;
TABLE t ORDER BY a;

-- Columns: as in COPY, INSERT is required on those that the file has fields for.
REVOKE ALL ON t FROM load_files;
SET ROLE load_files;
SELECT says('f.csv', 't');
-- The table's privileges are checked before the file is opened.
SELECT says('no such file', 't');
RESET ROLE;
GRANT INSERT (a) ON t TO load_files;
SET ROLE load_files;
SELECT says('f.csv', 't');
RESET ROLE;
GRANT INSERT (b) ON t TO load_files;
SET ROLE load_files;
SELECT says('f.csv', 't');
SELECT says('f.csv', 't', '{"format": "csv"}');
-- With match_by = name the header lists the columns. Without INSERT on any column the header is not read.
SELECT says('named.csv', 't', '{"format": "csv", "match_by": "name"}');
RESET ROLE;
REVOKE INSERT (b) ON t FROM load_files;
SET ROLE load_files;
SELECT says('named.csv', 't', '{"format": "csv", "match_by": "name"}');
RESET ROLE;
REVOKE ALL ON t FROM load_files;
REVOKE INSERT (a) ON t FROM load_files;
SET ROLE load_files;
SELECT says('no such file', 't', '{"format": "csv", "match_by": "name"}');
RESET ROLE;

-- The where clause requires SELECT on the columns it uses; a default requires no privilege.
GRANT INSERT (a, b) ON t TO load_files;
SET ROLE load_files;
SELECT says('f.csv', 't', '{"format": "csv", "columns": ["a", "b"], "where": "a > 1", "writer": "buffered"}');
RESET ROLE;
GRANT SELECT (a) ON t TO load_files;
SET ROLE load_files;
SELECT says('f.csv', 't', '{"format": "csv", "columns": ["a", "b"], "where": "a > 1", "writer": "buffered"}');
SELECT says('f.csv', 't', '{"format": "csv", "columns": ["a", "b"], "where": "a > 1 AND b = ''two''", "writer": "buffered"}');
RESET ROLE;

-- TRUNCATE, the exclusive lock, ANALYZE.
SET ROLE load_files;
SELECT says('f.csv', 't', '{"format": "csv", "columns": ["a", "b"], "truncate": true}');
SELECT says('f.csv', 't', '{"format": "csv", "columns": ["a", "b"], "lock": "share"}');
RESET ROLE;
GRANT INSERT, TRUNCATE ON t TO load_files;
SET ROLE load_files;
SET client_min_messages = error;		-- Only an owner may run ANALYZE; core's warning differs between versions.
SELECT says('f.csv', 't', '{"format": "csv", "columns": ["a", "b"], "truncate": true, "analyze": true}');
RESET client_min_messages;
RESET ROLE;
ALTER TABLE t OWNER TO load_owner;
SET ROLE load_owner;
SELECT says('f.csv', 't', '{"format": "csv", "columns": ["a", "b"], "lock": "share", "truncate": true}');
RESET ROLE;
SELECT count(*) FROM t;

-- Through a SECURITY DEFINER function whose owner has the privilege.
CREATE FUNCTION import(file text) RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$
	SELECT rows_loaded FROM public.bulk_load(load_rights.data_path(file), 'load_rights.t', '{"format": "csv", "columns": ["a", "b"]}')
$$;
ALTER FUNCTION import(text) OWNER TO load_owner;
SET ROLE load_neither;
SELECT import('f.csv');
RESET ROLE;

-- Row-level security: a policy for the caller is applied to each row.
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
CREATE POLICY small ON t FOR INSERT WITH CHECK (a < 2);
SET ROLE load_files;
SELECT says('f.csv', 't');
SELECT loaded, filtered, writer, notes FROM figures('f.csv', 't', '{"format": "csv", "columns": ["a", "b"], "limit": 1}');
SET row_security = off;
SELECT says('f.csv', 't');
RESET row_security;
-- The owner is exempt from policies.
SET ROLE load_owner;
SELECT loaded, notes FROM figures('f.csv', 't', '{"format": "csv", "columns": ["a", "b"], "writer": "buffered"}');
RESET ROLE;

-- The caller needs USAGE on the schemas of the extension and the target, but no privilege on the sequence.
SET ROLE load_owner;
SELECT * FROM error_of('SELECT nextval(''public.bulk_load_id_seq'')');
SELECT * FROM error_of('SELECT setval(''public.bulk_load_id_seq'', 1)');
RESET ROLE;

-- allowed_directories excludes the file.
ALTER SYSTEM SET pg_bulk.allowed_directories = '/nowhere';
SELECT pg_reload_conf();
\c -
SET search_path = load_rights, public;
\getenv data PGB_DATA
\set ECHO none
SELECT set_config('test.dir', :'data', false) AS data \gset
\set ECHO all
-- A caller with the privilege is told whether the file exists.
SELECT says('f.csv', 't');
SELECT says('missing.csv', 't');
ALTER SYSTEM RESET pg_bulk.allowed_directories;
SELECT pg_reload_conf();
\c -
SET search_path = load_rights, public;
\set ECHO none
SELECT set_config('test.dir', :'data', false) AS data \gset
\set ECHO all
SELECT says('f.csv', 't');
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA load_rights CASCADE;
DROP ROLE load_files, load_programs, load_neither, load_noinherit, load_owner;
