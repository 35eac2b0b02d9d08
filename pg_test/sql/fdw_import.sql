--
-- IMPORT FOREIGN SCHEMA: a foreign table for each file of a directory.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema fdw_import
\i :helpers
SET client_min_messages = warning;
\! rm -rf "$PGB_DATA/import" && mkdir -p -m 777 "$PGB_DATA/import/sub" "$PGB_DATA/import/same"
-- The statement, for a directory below the test data.
CREATE FUNCTION import(directory text, rest text DEFAULT '', options text DEFAULT '', server text DEFAULT 'bulk_files') RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('IMPORT FOREIGN SCHEMA dir %s FROM SERVER %I INTO imported OPTIONS (filename %L%s)', rest, server, CASE server WHEN 'bulk_files' THEN data_path(directory) ELSE directory END, ', ' || nullif(options, ''));
	RETURN 'imported';
END $$;
CREATE FUNCTION imported() RETURNS SETOF text LANGUAGE sql AS $$
	SELECT without_path(concat_ws(' ', c.relname, (SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || coalesce(' ' || a.attfdwoptions::text, ''), ', ' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0), s.srvname, t.ftoptions))
	FROM pg_foreign_table t JOIN pg_class c ON c.oid = t.ftrelid JOIN pg_foreign_server s ON s.oid = t.ftserver WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'imported') ORDER BY c.relname
$$;
CREATE PROCEDURE anew() LANGUAGE plpgsql AS $$
BEGIN
	DROP SCHEMA IF EXISTS imported CASCADE;
	CREATE SCHEMA imported;
END $$;
CALL write_file('import/orders.csv', E'id,amount,"paid on"\n1,1.50,2024-01-01\n2,3,\n');
CALL write_file('import/Names.TSV', E'a\t\\N\nb\tc\\td\n');
CALL write_file('import/quoted.txt', E'"id";"n"\n"1";""\n"";"x"\n');
CALL write_file('import/empty.csv', '');
CALL write_file('import/.hidden.csv', E'1\n');
CALL write_file('import/sub/inner.csv', E'1,2\n');
CALL write_file('import/same/t.csv', E'1,2\n');
CALL write_file('import/same/t.txt', E'1,2\n');
\set ECHO all
\pset tuples_only
\pset format unaligned
CALL anew();
DO $$ BEGIN
	IF import('import', 'LIMIT TO (empty)') = 'imported' AND (SELECT count(*) FROM imported()) = 0 THEN
		RAISE WARNING 'a file that is empty has no table';
	END IF;
END $$;
SELECT import('import');
SELECT imported();
SELECT t.*, t."paid on" IS NULL FROM imported.orders t;
SELECT * FROM imported."Names";
SELECT id IS NULL, n FROM imported.quoted;
-- LIMIT TO and EXCEPT. Files left out are not even opened.
CALL write_bytes('import/broken.csv', '\x00ff');
CALL anew();
SELECT error_of($$SELECT import('import')$$);
SELECT imported();
SELECT error_of($$SELECT import('import', 'LIMIT TO (orders, missing)')$$);
SELECT imported();
CALL anew();
SELECT import('import', 'EXCEPT (broken, "Names", empty)');
SELECT imported();
CALL anew();
SELECT import('import/*.[tT]*', '', $$format 'csv', header 'true', sample 'all'$$);
SELECT imported();
SELECT error_of($$SELECT import('import', 'LIMIT TO (orders)', $x$header 'maybe'$x$)$$);
SELECT error_of($$SELECT import('import', 'LIMIT TO (orders)', $x$force_null '*'$x$)$$);
SELECT error_of($$SELECT import('import', 'LIMIT TO (orders)', $x$sample 'some'$x$)$$);
-- Two files with one table name, a table that exists, a single file, no file.
SELECT error_of($$SELECT import('import/same')$$);
CALL anew();
SELECT import('import/same/*.txt');
SELECT imported();
SELECT error_of($$SELECT import('import/same/*.txt')$$);
SELECT import('import/sub/inner.csv');
SELECT error_of($$SELECT import('import/missing')$$);
SELECT error_of($$SELECT import('import/*.missing')$$);
SELECT error_of($$IMPORT FOREIGN SCHEMA "/fdw_import/missing" FROM SERVER bulk_files INTO imported$$);
SELECT error_of($$IMPORT FOREIGN SCHEMA "/" FROM SERVER bulk_files INTO missing$$);
-- A file that exists gives its name to the table, also if the name looks like a pattern; a pattern takes that of a directory.
\! mkdir -m 777 "$PGB_DATA/import/named" && printf '1\n' > "$PGB_DATA/import/named/x[1].csv" && printf '1\n2\n' > "$PGB_DATA/import/named/x[2].csv" && printf '3\n' > "$PGB_DATA/import/named/x1.csv"
CALL anew();
SELECT import('import/named');
SELECT imported();
SELECT (SELECT count(*) FROM imported."x[1]"), (SELECT count(*) FROM imported."x[2]");
CALL anew();
SELECT import('import/named/x[2].csv');
SELECT imported();
-- A file name that is not valid text in the server's encoding names no table.
\! mkdir -m 777 "$PGB_DATA/import/bytes" && printf '1\n' > "$PGB_DATA/import/bytes/a.csv" && printf '1\n' > "$PGB_DATA/import/bytes/$(printf 'b\377').csv"
CALL anew();
SELECT error_of($$SELECT import('import/bytes')$$);
SELECT imported();
SELECT import('import/bytes', 'LIMIT TO (a)');
SELECT imported();
CALL anew();
SELECT import('import/bytes', 'EXCEPT (new_table)');
SELECT imported();
-- Types and characters do not depend on the settings of the session that reads.
\! mkdir -m 777 "$PGB_DATA/import/lasting"
CALL write_bytes('import/lasting/t.csv', convert_to(E'iso,paid,at,name\n2024-01-02,13/04/2024,2024-01-02 10:00,\u00e9\n2024-01-03,03/04/2024,13/04/2024 10:00,x\n', 'LATIN1'));
CALL anew();
SET client_encoding = 'LATIN1';
SET datestyle = 'ISO, DMY';
SET client_min_messages = notice;
SELECT import('import/lasting');
RESET client_encoding;
RESET datestyle;
SET client_min_messages = warning;
SELECT imported();
SELECT * FROM imported.t;
-- Servers with a directory: names are below it.
CREATE SERVER import_server FOREIGN DATA WRAPPER bulk_fdw;
DO $$ BEGIN EXECUTE format('ALTER SERVER import_server OPTIONS (ADD directory %L)', data_path('import')); END $$;
CALL anew();
IMPORT FOREIGN SCHEMA "sub" FROM SERVER import_server INTO imported;
IMPORT FOREIGN SCHEMA "." LIMIT TO (orders) FROM SERVER import_server INTO imported;
SELECT imported();
SELECT count(*) FROM imported.orders, imported.inner;
CALL anew();
IMPORT FOREIGN SCHEMA "named/x[2].csv" FROM SERVER import_server INTO imported;
IMPORT FOREIGN SCHEMA "named/x[[]1].csv" FROM SERVER import_server INTO imported;
IMPORT FOREIGN SCHEMA "**/inner.*" FROM SERVER import_server INTO imported;
SELECT imported();
SELECT error_of($$IMPORT FOREIGN SCHEMA ".." FROM SERVER import_server INTO imported$$);
SELECT error_of($$IMPORT FOREIGN SCHEMA "/etc" FROM SERVER import_server INTO imported$$);
-- Privileges are those to name a file. Without them, errors do not tell which files exist.
CREATE ROLE regress_fdw_import;
GRANT ALL ON SCHEMA imported TO regress_fdw_import;
GRANT USAGE ON SCHEMA fdw_import TO regress_fdw_import;
SET ROLE regress_fdw_import;
SELECT error_of($$SELECT import('import/sub')$$);
SELECT error_of($$SELECT import('sub', '', '', 'import_server')$$);
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER bulk_files, import_server TO regress_fdw_import;
SET ROLE regress_fdw_import;
SELECT error_of($$SELECT import('import/sub')$$);
SELECT error_of($$SELECT import('import/missing')$$);
RESET ROLE;
DROP FOREIGN TABLE imported.inner;
SET ROLE regress_fdw_import;
SELECT import('sub', '', '', 'import_server');
SELECT * FROM imported.inner;
RESET ROLE;
SET client_min_messages = warning;
DROP SCHEMA imported CASCADE;
DROP SERVER import_server CASCADE;
REVOKE USAGE ON FOREIGN SERVER bulk_files FROM regress_fdw_import;
REVOKE USAGE ON SCHEMA fdw_import FROM regress_fdw_import;
DROP ROLE regress_fdw_import;
\! rm -rf "$PGB_DATA/import"
DROP SCHEMA fdw_import CASCADE;
