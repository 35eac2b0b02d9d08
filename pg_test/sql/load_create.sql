--
-- bulk_load with a name as its target: which overloaded function a call resolves to, how the name is resolved, and option create, which creates
-- the table. The test of bulk_create covers the created table and its types.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_create
\i :helpers
SET client_min_messages = warning;
CREATE FUNCTION function_of(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	found text;
BEGIN
	EXECUTE 'CREATE TEMP VIEW called AS SELECT l.load_id FROM ' || call || ' l';
	SELECT string_agg(refobjid::regprocedure::text, ' ') INTO found FROM pg_depend d JOIN pg_proc p ON p.oid = d.refobjid
	WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_proc'::regclass AND p.proname = 'bulk_load'
		AND d.objid IN (SELECT oid FROM pg_rewrite WHERE ev_class = 'called'::regclass);
	DROP VIEW called;
	RETURN found;
END $$;
CALL write_file('load_create.csv', E'id;"paid on"\n1;2024-01-01\n2;\n');
CALL write_file('load_create_plain.txt', E'5\n6\n');
CREATE TABLE there (id integer);
CREATE SCHEMA "Other";
CREATE TABLE "Other"."There" (id integer);
\set ECHO all
\pset tuples_only
\pset format unaligned
SELECT pg_get_function_arguments(oid), provolatile, proparallel, proisstrict, pg_get_function_result(oid) = (SELECT pg_get_function_result(oid) FROM pg_proc WHERE oid = 'bulk_load(text, regclass, jsonb)'::regprocedure) FROM pg_proc WHERE oid = 'bulk_load(text, text, jsonb)'::regprocedure;
-- The function that a call resolves to: with options, a literal is a name; other calls are as before.
SELECT call, function_of(call) FROM unnest(ARRAY[
	$$bulk_load('f', 'there')$$,
	$$bulk_load('f', 'there', '{}')$$,
	$$bulk_load('f'::text, 'there', '{}'::jsonb)$$,
	$$bulk_load(options => '{}', target => 'there', path => 'f')$$,
	$$bulk_load(target => 'there', path => 'f')$$,
	$$bulk_load(data => '', target => 'there', options => '{}')$$,
	$$bulk_load('f', 'there'::regclass, '{}')$$,
	$$bulk_load('f', 'there'::regclass::oid, '{}')$$,
	$$bulk_load('f', 1259, '{}')$$,
	$$bulk_load('f', 'there'::text, '{}')$$,
	$$bulk_load('f', 'there'::varchar, '{}')$$,
	$$bulk_load('f'::varchar, 'there', '{}')$$,
	$$bulk_load('f', 'there'::text)$$,
	$$bulk_load(''::bytea, 'there', '{}')$$,
	$$bulk_load(''::bytea, 'there'::text, '{}'::jsonb)$$,
	$$bulk_load(''::bytea, 'there')$$,
	$$bulk_load(NULL, 'there', '{}')$$]) call;
-- A name is resolved as a literal of type regclass, at the time of the call.
SELECT rows_loaded FROM bulk_load(data_path('load_create_plain.txt'), 'there', '{}');
SELECT rows_loaded FROM bulk_load(data_path('load_create_plain.txt'), ' "Other" . "There" ', '{"create": false}');
SELECT rows_loaded FROM bulk_load(data_path('load_create_plain.txt'), 'there'::regclass::oid::text, '{"create": null}');
SELECT rows_loaded FROM bulk_load(data_path('load_create_plain.txt'), 'there'::regclass, '{"create": "off"}');
SELECT rows_loaded FROM bulk_load('\x370a'::bytea, 'there', '{"create": false}');
SELECT array_agg(id ORDER BY id) FROM there;
SELECT count(*) FROM "Other"."There";
PREPARE by_name AS SELECT rows_loaded FROM bulk_load($1, $2, $3);
EXECUTE by_name(data_path('load_create_plain.txt'), 'there', '{"limit": 1}');
SET search_path = "Other", public, load_create;
EXECUTE by_name(data_path('load_create_plain.txt'), '"There"', '{}');
SET search_path = load_create, public;
DEALLOCATE by_name;
PREPARE later AS SELECT rows_loaded FROM bulk_load(data_path('load_create_plain.txt'), 'later', '{}');
CREATE TABLE later (id integer);
EXECUTE later;
DEALLOCATE later;
SELECT error_of($$SELECT * FROM bulk_load('f', 'no_such_table', '{}')$$);
SELECT line ~ 'no_such_schema.* does not exist' FROM error_of($$SELECT * FROM bulk_load('f', 'no_such_schema.t', '{}')$$) line;
SELECT error_of($$SELECT * FROM bulk_load('f', 'a b', '{}')$$);
SELECT error_of($$SELECT * FROM bulk_load('f', '', '{}')$$);
SELECT error_of($$SELECT * FROM bulk_load('f', '-', '{}')$$);
SELECT error_of($$SELECT * FROM bulk_load('f', NULL, '{}')$$);
SELECT error_of($$SELECT * FROM bulk_load('f', 'there', NULL)$$);
SELECT error_of($$SELECT * FROM bulk_load(NULL, 'there', '{}')$$);
SELECT error_of($$SELECT * FROM bulk_load('f', 'there', '[]')$$);
SELECT error_of($$SELECT * FROM bulk_load('f', 'there', '{"created": true}')$$);
-- create creates the table, with notices about it.
SET client_min_messages = notice;
SELECT rows_loaded FROM bulk_load(data_path('load_create.csv'), 'made', '{"create": true}');
SET client_min_messages = warning;
\d made
SELECT * FROM made ORDER BY id;
SELECT target, rows_loaded FROM bulk_history ORDER BY load_id DESC LIMIT 1;
SELECT rows_loaded, rows_filtered FROM bulk_load(data_path('load_create.csv'), '"Other"."Made 2"', '{"create": "on", "where": "id > 1", "sample": "1kB"}');
SELECT * FROM "Other"."Made 2";
SELECT rows_loaded, notes FROM bulk_load(target => 'named', options => jsonb_build_object('create', true, 'header', true), path => data_path('load_create.csv'));
DO $$
BEGIN
	PERFORM bulk_load(data_path('load_create.csv'), 'of_list', '{"create": 1}');
END $$;
SELECT count(*) FROM of_list;
SELECT (bulk_load(data_path('load_create.csv'), 'of_list_' || n, '{"create": true}')).rows_loaded FROM generate_series(1, 2) n;
SELECT count(*), (SELECT count(*) FROM of_list_2) FROM of_list_1;
-- ROLLBACK removes the table.
BEGIN;
SELECT rows_loaded FROM bulk_load(data_path('load_create.csv'), 'gone', '{"create": true}');
ROLLBACK;
SELECT to_regclass('gone');
-- If the table exists, create is an error in each of the functions; no row is loaded into it.
SELECT error_of($$SELECT * FROM bulk_load(data_path('load_create.csv'), 'made', '{"create": true}')$$);
SELECT error_of($$SELECT * FROM bulk_load(data_path('load_create.csv'), 'made'::regclass, '{"create": true}')$$);
SELECT error_of($$SELECT * FROM bulk_load(''::bytea, 'made', '{"create": true}')$$);
SELECT error_of($$SELECT * FROM bulk_load(data_path('load_create.csv'), 0::regclass, '{"create": true}')$$);
SELECT count(*) FROM made;
-- Neither is a file read, nor a program run, if the table cannot be created.
SELECT error_of(format('SELECT * FROM bulk_load(%L, %L, %L)', 'touch ' || data_path('load_create.ran'), 'made', '{"create": true, "program": true}'));
SELECT pg_stat_file(data_path('load_create.ran'), true) IS NULL;
-- A name of digits is a table's, or an OID if no table has this name. If both exist, it is an error.
CREATE TABLE "2024" (a int);
SELECT rows_loaded FROM bulk_load(data_path('load_create_plain.txt'), '2024', '{}');
SELECT rows_loaded FROM bulk_load(data_path('load_create_plain.txt'), '2024'::text, '{}');
SELECT rows_loaded FROM bulk_load(data_path('load_create_plain.txt'), '"2024"'::regclass::oid::text, '{}');
SELECT count(*) FROM "2024";
DO $$ BEGIN EXECUTE format('CREATE TABLE %I (a int)', '"2024"'::regclass::oid); END $$;
SELECT replace(line, '"2024"'::regclass::oid::text, 'OID') FROM error_of(format('SELECT * FROM bulk_load(data_path(%L), %L, %L)', 'load_create_plain.txt', '"2024"'::regclass::oid, '{}')) line;
-- Invalid calls.
SELECT error_of($$SELECT * FROM bulk_load(data_path('load_create.csv'), 'bad', '{"create": "maybe"}')$$);
SELECT error_of($$SELECT * FROM bulk_load(data_path('load_create.csv'), 'bad', '{"create": [true]}')$$);
SELECT error_of($$SELECT * FROM bulk_load(data_path('load_create.csv'), 'bad', '{"create": true, "created": 1}')$$);
SELECT error_of($$SELECT * FROM bulk_load(data_path('load_create.csv'), 'made', '{"sample": "all"}')$$);
SELECT error_of($$SELECT * FROM bulk_load(NULL, 'bad', '{"create": true, "query": "SELECT 1"}')$$);
SELECT error_of($$SELECT * FROM bulk_load(NULL, 'bad', '{"large_object": 1, "create": true}')$$);
SELECT error_of($$SELECT * FROM bulk_load(data_path('load_create.csv'), 'bad', '{"create": true, "format": "binary"}')$$);
SELECT error_of($$SELECT * FROM bulk_load(data_path('load_create.csv'), NULL, '{"create": true}')$$);
SELECT error_of($$SELECT * FROM bulk_load(NULL, 'bad', '{"create": true}')$$);
SELECT error_of($$SELECT * FROM bulk_load(data_path('load_create_missing.csv'), 'bad', '{"create": true}')$$);
SELECT error_of($$SELECT * FROM bulk_load(data_path('load_create.csv'), 'bad', '{"create": true, "columns": ["id", "no"]}')$$);
SELECT error_of($$SELECT * FROM bulk_check(data_path('load_create.csv'), 'made', '{"create": true}')$$);
SELECT error_of($$SELECT bulk_enqueue(data_path('load_create.csv'), 'made', '{"create": true}')$$);
SELECT to_regclass('bad');
-- Privileges: on the file, to create the table, and EXECUTE on the functions that this one calls. No other way leads around them.
CREATE ROLE regress_load_create;
GRANT USAGE, CREATE ON SCHEMA load_create TO regress_load_create;
GRANT INSERT ON there TO regress_load_create;
SET ROLE regress_load_create;
SELECT error_of($$SELECT * FROM bulk_load(data_path('load_create.csv'), 'load_create.mine', '{"create": true}')$$);
RESET ROLE;
GRANT pg_read_server_files TO regress_load_create;
REVOKE CREATE ON SCHEMA load_create FROM regress_load_create;
SET ROLE regress_load_create;
SELECT error_of($$SELECT * FROM bulk_load(data_path('load_create.csv'), 'load_create.mine', '{"create": true}')$$);
SELECT rows_loaded FROM bulk_load(data_path('load_create_plain.txt'), 'load_create.there', '{}');
RESET ROLE;
BEGIN;
REVOKE EXECUTE ON FUNCTION bulk_load(text, regclass, jsonb), bulk_create(text, text, jsonb) FROM PUBLIC;
GRANT CREATE ON SCHEMA load_create TO regress_load_create;
SET ROLE regress_load_create;
SELECT error_of($$SELECT * FROM bulk_load(data_path('load_create_plain.txt'), 'load_create.there', '{}')$$);
SELECT error_of($$SELECT * FROM bulk_load(data_path('load_create.csv'), 'load_create.mine', '{"create": true}')$$);
RESET ROLE;
GRANT EXECUTE ON FUNCTION bulk_create(text, text, jsonb) TO PUBLIC;
SET ROLE regress_load_create;
SELECT error_of($$SELECT * FROM bulk_load(data_path('load_create.csv'), 'load_create.mine', '{"create": true}')$$);
RESET ROLE;
GRANT EXECUTE ON FUNCTION bulk_load(text, regclass, jsonb) TO PUBLIC;
SET ROLE regress_load_create;
SELECT rows_loaded FROM bulk_load(data_path('load_create.csv'), 'load_create.mine', '{"create": true}');
RESET ROLE;
SELECT to_regclass('mine') IS NOT NULL;
ROLLBACK;
-- Attributes that ALTER FUNCTION gives to the called function also hold for calls through this one.
BEGIN;
REVOKE pg_read_server_files FROM regress_load_create;
ALTER FUNCTION bulk_load(text, regclass, jsonb) SECURITY DEFINER SET enable_sort = off;
SET ROLE regress_load_create;
SELECT rows_loaded FROM bulk_load(data_path('load_create_plain.txt'), 'load_create.there', '{}');
RESET ROLE;
ALTER FUNCTION bulk_load(text, regclass, jsonb) SECURITY INVOKER;
SET ROLE regress_load_create;
SELECT rows_loaded FROM bulk_load(NULL, 'load_create.there', '{"query": "SELECT 7 WHERE current_setting(''enable_sort'') = ''off''"}');
ROLLBACK;
DROP OWNED BY regress_load_create;
DROP ROLE regress_load_create;
DROP SCHEMA load_create CASCADE;
DROP SCHEMA "Other" CASCADE;
