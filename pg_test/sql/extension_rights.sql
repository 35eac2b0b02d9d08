--
-- Privileges: to create the extension, and those of PUBLIC on its objects and settings. A new object changes the result of this test.
--
\pset tuples_only
\pset format unaligned
SELECT superuser, trusted, relocatable FROM pg_available_extension_versions WHERE name = 'pg_bulk' AND installed;
-- The owner of a database is not enough.
SELECT current_database() AS here \gset
CREATE ROLE extension_landlord;
CREATE DATABASE extension_rights OWNER extension_landlord;
\c extension_rights
SET ROLE extension_landlord;
CREATE EXTENSION pg_bulk;
\c :here
DROP DATABASE extension_rights;
DROP ROLE extension_landlord;

-- Functions that PUBLIC may call.
CREATE VIEW members AS
SELECT classid, objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
WHERE e.extname = 'pg_bulk' AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e';
SELECT p.proname FROM members JOIN pg_proc p ON p.oid = objid
WHERE classid = 'pg_proc'::regclass AND has_function_privilege('public', objid, 'EXECUTE') ORDER BY p.proname COLLATE "C";
-- Functions that PUBLIC may not call.
SELECT p.proname FROM members JOIN pg_proc p ON p.oid = objid
WHERE classid = 'pg_proc'::regclass AND NOT has_function_privilege('public', objid, 'EXECUTE') ORDER BY p.proname COLLATE "C";
-- None of them is SECURITY DEFINER.
SELECT count(*) FROM members JOIN pg_proc p ON p.oid = objid WHERE classid = 'pg_proc'::regclass AND (p.prosecdef OR p.proleakproof);
-- Tables, views and sequences: the privileges of PUBLIC.
SELECT c.relname, c.relkind, array_to_string(ARRAY(
	SELECT r FROM unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) r WHERE has_table_privilege('public', objid, r)), ',')
FROM members JOIN pg_class c ON c.oid = objid WHERE classid = 'pg_class'::regclass ORDER BY c.relname COLLATE "C";
SELECT has_foreign_data_wrapper_privilege('public', 'bulk_fdw', 'USAGE'), has_server_privilege('public', 'bulk_files', 'USAGE'),
	has_server_privilege('pg_read_server_files', 'bulk_files', 'USAGE');
-- A role that is granted EXECUTE may pause the queue.
CREATE ROLE extension_pauser;
GRANT EXECUTE ON FUNCTION bulk_pause(), bulk_resume() TO extension_pauser;
SET ROLE extension_pauser;
SELECT bulk_pause();
SELECT bulk_resume();
RESET ROLE;
REVOKE EXECUTE ON FUNCTION bulk_pause(), bulk_resume() FROM extension_pauser;
SET ROLE extension_pauser;
SELECT bulk_pause();
RESET ROLE;
DROP ROLE extension_pauser;
-- Settings. Context user: every role may set it.
LOAD 'pg_bulk';
SELECT name, context FROM pg_settings WHERE name LIKE 'pg\_bulk.%' ORDER BY name COLLATE "C";
DROP VIEW members;
