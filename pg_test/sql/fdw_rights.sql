--
-- Privileges: naming a file or a program requires the server-wide role, reading requires SELECT on the table.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema fdw_rights
\i :helpers
\set ECHO all
CALL make_table('secret', 'a int, b text', 'format ''csv''', E'1,one\n2,two\n');
SET client_min_messages = warning;
CREATE ROLE fdw_files IN ROLE pg_read_server_files;
CREATE ROLE fdw_programs IN ROLE pg_execute_server_program;
CREATE ROLE fdw_owner;
CREATE ROLE fdw_reader;
CREATE ROLE fdw_noinherit NOINHERIT IN ROLE pg_read_server_files;
GRANT USAGE, CREATE ON SCHEMA fdw_rights TO fdw_files, fdw_programs, fdw_owner, fdw_noinherit;
GRANT USAGE ON SCHEMA fdw_rights TO fdw_reader;
RESET client_min_messages;

-- The server: its usage comes with pg_read_server_files.
SELECT srvacl FROM pg_foreign_server WHERE srvname = 'bulk_files';
SET ROLE fdw_owner;
CREATE FOREIGN TABLE t (a int) SERVER bulk_files OPTIONS (filename 'f');		-- ERROR
SET ROLE fdw_programs;
CREATE FOREIGN TABLE t (a int) SERVER bulk_files OPTIONS (program 'echo 1');	-- ERROR
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER bulk_files TO fdw_owner, fdw_programs, fdw_noinherit;

-- Naming a file or a program: each requires its own role, as an inherited privilege, not one that SET ROLE would give.
SET ROLE fdw_owner;
CREATE FOREIGN TABLE t (a int) SERVER bulk_files OPTIONS (filename 'f');		-- ERROR
CREATE FOREIGN TABLE t (a int) SERVER bulk_files OPTIONS (program 'echo 1');	-- ERROR
CREATE FOREIGN TABLE t (a int) SERVER bulk_files;								-- ERROR
-- Invalid options are reported first; this reveals nothing about files.
CREATE FOREIGN TABLE t (a int) SERVER bulk_files OPTIONS (filename '/no/such', format 'xml');		-- ERROR
SET ROLE fdw_noinherit;
CREATE FOREIGN TABLE t (a int) SERVER bulk_files OPTIONS (filename 'f');		-- ERROR
SET ROLE fdw_programs;
CREATE FOREIGN TABLE t (a int) SERVER bulk_files OPTIONS (filename 'f');		-- ERROR
CREATE FOREIGN TABLE by_program (a int, b text) SERVER bulk_files OPTIONS (program 'echo 1,one', format 'csv');
SELECT * FROM by_program;
SET ROLE fdw_files;
CREATE FOREIGN TABLE t (a int) SERVER bulk_files OPTIONS (program 'echo 1');	-- ERROR
CREATE FOREIGN TABLE by_file (a int) SERVER bulk_files OPTIONS (filename '/no/such');
ALTER FOREIGN TABLE by_file OPTIONS (DROP filename, ADD program 'echo 1');		-- ERROR
DROP FOREIGN TABLE by_file;
RESET ROLE;

-- An owner without the role can change none of the table's options, harmless or not. Options of columns name no file.
ALTER FOREIGN TABLE secret OWNER TO fdw_owner;
SET ROLE fdw_owner;
SELECT count(*) FROM secret;
ALTER FOREIGN TABLE secret OPTIONS (SET filename '/etc/passwd');				-- ERROR
ALTER FOREIGN TABLE secret OPTIONS (DROP filename, ADD program 'id');			-- ERROR
ALTER FOREIGN TABLE secret OPTIONS (ADD header 'true');							-- ERROR
ALTER FOREIGN TABLE secret OPTIONS (DROP filename);								-- ERROR
ALTER FOREIGN TABLE secret ALTER b OPTIONS (ADD force_null 'true');
ALTER FOREIGN TABLE secret ALTER b OPTIONS (DROP force_null);
RESET ROLE;

-- Reading requires SELECT on the table, or on its columns.
SET ROLE fdw_reader;
SELECT * FROM secret;															-- ERROR
RESET ROLE;
GRANT SELECT (a) ON secret TO fdw_reader;
SET ROLE fdw_reader;
SELECT a FROM secret;
SELECT b FROM secret;															-- ERROR
SELECT secret FROM secret;														-- ERROR
RESET ROLE;
REVOKE SELECT (a) ON secret FROM fdw_reader;
GRANT SELECT ON secret TO fdw_reader;
SET ROLE fdw_reader;
SELECT * FROM secret;
SELECT error_of('ALTER FOREIGN TABLE secret OPTIONS (ADD header ''true'')');
SET client_min_messages = error;
ANALYZE secret;
RESET client_min_messages;
SELECT count(*) > 0 AS analyzed FROM pg_stats WHERE tablename = 'secret';
RESET ROLE;
REVOKE SELECT ON secret FROM fdw_reader;

-- In a view and a SECURITY DEFINER function the owner's privileges count.
SET ROLE fdw_owner;
CREATE VIEW revealed AS SELECT * FROM secret WHERE a = 2;
CREATE FUNCTION reveal() RETURNS SETOF text LANGUAGE sql SECURITY DEFINER AS 'SELECT b FROM fdw_rights.secret';
CREATE FUNCTION reveal_own() RETURNS SETOF text LANGUAGE sql AS 'SELECT b FROM fdw_rights.secret';
GRANT SELECT ON revealed TO fdw_reader;
SET ROLE fdw_reader;
SELECT * FROM revealed;
SELECT * FROM reveal();
SELECT * FROM reveal_own();														-- ERROR
RESET ROLE;
-- They still work when the owner of the view has only SELECT.
ALTER FOREIGN TABLE secret OWNER TO fdw_files;
GRANT SELECT ON secret TO fdw_owner;
SET ROLE fdw_reader;
SELECT * FROM revealed;
RESET ROLE;
REVOKE SELECT ON secret FROM fdw_owner;
SET ROLE fdw_reader;
SELECT * FROM revealed;															-- ERROR
RESET ROLE;
-- A cached plan is checked again.
GRANT SELECT ON secret TO fdw_reader;
SET ROLE fdw_reader;
PREPARE p AS SELECT a FROM secret;
EXECUTE p;
RESET ROLE;
REVOKE SELECT ON secret FROM fdw_reader;
SET ROLE fdw_reader;
EXECUTE p;																		-- ERROR
DEALLOCATE p;
RESET ROLE;

-- pg_bulk.allowed_directories: only the configuration file sets it; only roles that may see all settings see it.
SET pg_bulk.allowed_directories = '/';											-- ERROR
SET ROLE fdw_reader;
SELECT left(e, 5) AS sqlstate FROM error_of('SHOW pg_bulk.allowed_directories') e LIMIT 1;
RESET ROLE;
SHOW pg_bulk.allowed_directories;
\! mkdir "$PGB_DATA/inside" "$PGB_DATA/inside_not"
\! echo 3,three >"$PGB_DATA/inside/file"
\! echo 4,four >"$PGB_DATA/inside_not/file"
\! ln -s ../secret "$PGB_DATA/inside/link_out"; ln -s inside/file "$PGB_DATA/link_in"
CREATE FUNCTION reading(name text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('ALTER FOREIGN TABLE secret OPTIONS (SET filename %L)', data_path(name));
	RETURN QUERY SELECT error_of('SELECT * FROM secret');
END $$;
SELECT data_path('inside') || ',/no/such/directory' AS directories \gset
ALTER SYSTEM SET pg_bulk.allowed_directories = :'directories';
SELECT pg_reload_conf();
\c -
\getenv data PGB_DATA
SELECT set_config('test.dir', :'data', false) IS NULL AS no_directory, set_config('search_path', 'fdw_rights, public', false);
-- A value that is set before the library is loaded has no effect.
SET pg_bulk.allowed_directories = '/';
SELECT reading('secret');
SELECT without_path(current_setting('pg_bulk.allowed_directories'));
SELECT reading('inside/file');
SELECT reading('link_in');
SELECT reading('secret');
SELECT reading('inside_not/file');
SELECT reading('inside/../secret');
SELECT reading('inside/link_out');
SELECT reading('inside/missing');
SELECT reading('missing');
-- The setting restricts ANALYZE, too. EXPLAIN reads nothing, and programs are not restricted.
ALTER FOREIGN TABLE secret OPTIONS (SET filename '/etc/passwd');
SELECT error_of('ANALYZE secret');
SELECT plan_of('SELECT a FROM secret');
-- EXPLAIN does not show the size of a file that may not be read, by any of its names.
CREATE FUNCTION sizes(name text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	EXECUTE format('ALTER FOREIGN TABLE secret OPTIONS (SET filename %L)', data_path(name));
	FOR line IN EXPLAIN SELECT a FROM secret LOOP
		IF line ~ 'Foreign Files?( Size)?: *\d' THEN
			RETURN NEXT ltrim(line);
		END IF;
	END LOOP;
END $$;
SELECT name, sizes(name) FROM unnest('{inside/file, link_in, inside, inside/f*, inside/link*, inside/*, inside_not/file, inside_not/*,
	inside_not, secret, inside/link_out, inside/missing, missing}'::text[]) name;
SELECT * FROM by_program;

ALTER SYSTEM RESET pg_bulk.allowed_directories;
SELECT pg_reload_conf();
\c -
\getenv data PGB_DATA
SELECT set_config('test.dir', :'data', false) IS NULL AS no_directory, set_config('search_path', 'fdw_rights, public', false);
LOAD 'pg_bulk';
SHOW pg_bulk.allowed_directories;
SELECT reading('secret');

SET client_min_messages = warning;
REVOKE USAGE ON FOREIGN SERVER bulk_files FROM fdw_owner, fdw_programs, fdw_noinherit;
DROP SCHEMA fdw_rights CASCADE;
DROP ROLE fdw_files, fdw_programs, fdw_owner, fdw_reader, fdw_noinherit;
