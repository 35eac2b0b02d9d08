--
-- bulk_create: creates a table and loads a file into it.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema bulk_create
\i :helpers
SET client_min_messages = warning;
\set ECHO all
\pset tuples_only
\pset format unaligned
SELECT pg_get_function_arguments(oid), provolatile, proparallel, proisstrict, pg_get_function_result(oid) = (SELECT pg_get_function_result(oid) FROM pg_proc WHERE oid = 'bulk_load(text, regclass, jsonb)'::regprocedure) FROM pg_proc WHERE proname = 'bulk_create';
CALL write_file('create.csv', E'id;"paid on";n\n1;2024-01-01;"1"\n2;;""\n3000000000;2024-01-02;3\n');
SELECT rows_loaded, rows_rejected FROM bulk_create(data_path('create.csv'), 'orders');
\d orders
SELECT * FROM orders ORDER BY id;
SELECT target, rows_loaded FROM bulk_history ORDER BY load_id DESC LIMIT 1;
-- A name is read as regclass reads it. The load goes into the new table, even if another schema has a relation of this name.
SELECT rows_loaded FROM bulk_create(data_path('create.csv'), '"Orders 2"', '{"on_error": "table", "limit": 2}');
SELECT rows_loaded FROM bulk_create(data_path('create.csv'), 'bulk_create.Pg_Class', '{"header": true, "workers": 0, "sample": "1kB"}');
SELECT rows_loaded FROM bulk_create(data_path('create.csv'), 'pg_attribute');
SELECT n.nspname, c.relname, c.reltuples >= 0 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'bulk_create' AND c.relkind = 'r' AND relname <> 'test' ORDER BY 2;
SELECT rows_loaded FROM bulk_create('printf "1,x\n2,y\n"', 'of_program', '{"program": true}');
SELECT * FROM of_program;
-- The notes about the sampled file come with the result of the load.
SELECT to_json(notes) FROM bulk_create(data_path('create.csv'), 'noted');
CALL write_file('create_forced.csv', E'"id","n","t"\n"1","","a"\n"","2",""\n');
SELECT rows_loaded FROM bulk_create(data_path('create_forced.csv'), 'forced', '{"force_null": ["t", "id"]}');
SELECT id IS NULL, n IS NULL, t IS NULL FROM forced;
SELECT rows_loaded FROM bulk_create(data_path('create_forced.csv'), 'forced_all', '{"force_null": "*"}');
SELECT rows_loaded, (SELECT count(*) FROM forced_all WHERE t IS NULL) FROM bulk_create(data_path('create_forced.csv'), 'forced_some', '{"force_null": null}');
SELECT id IS NULL, n IS NULL, t IS NULL FROM forced_some;
-- A header cannot be matched with a table that does not exist yet.
SELECT error_of($$SELECT * FROM bulk_create(data_path('create.csv'), 'bad', '{"header": "Match"}')$$);
SELECT error_of($$SELECT * FROM bulk_create(data_path('create.csv'), 'bad', '{"match_by": "name"}')$$);
SELECT rows_loaded FROM bulk_create(data_path('create.csv'), 'by_position', '{"match_by": "position"}');
-- Type names mean the server's types, even if another schema has types of these names.
CALL write_file('create_types.csv', E'd,t,tz,u,j,k\n2024-01-02,x,2024-01-01 10:00:00+02,a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,{},"{""a"": ""\\u0000""}"\n');
DO $$
DECLARE
	name text;
BEGIN
	FOREACH name IN ARRAY '{text,jsonb,record,regclass,date,timestamptz,uuid,json}'::text[] LOOP
		EXECUTE format('CREATE DOMAIN pg_temp.%I AS pg_catalog.varchar CHECK (false)', name);
	END LOOP;
END $$;
SELECT rows_loaded FROM bulk_create(data_path('create_types.csv'), 'bulk_create.typed');
DO $$
DECLARE
	name pg_catalog.text;
BEGIN
	FOREACH name IN ARRAY '{text,jsonb,record,regclass,date,timestamptz,uuid,json}'::pg_catalog.text[] LOOP
		EXECUTE pg_catalog.format('DROP DOMAIN pg_temp.%I', name);
	END LOOP;
END $$;
\d typed
-- The sample does not promise that the rest fits. If it does not, the table is not left behind.
CALL write_file('create_late.csv', repeat(E'1,x\n', 2000) || E'x,y\n');
SELECT error_of($$SELECT * FROM bulk_create(data_path('create_late.csv'), 'late', '{"sample": "1kB"}')$$);
SELECT to_regclass('late');
SELECT rows_loaded FROM bulk_create(data_path('create_late.csv'), 'late');
SELECT error_of($$SELECT * FROM bulk_create(data_path('create.csv'), 'late')$$);
SELECT error_of($$SELECT * FROM bulk_create(data_path('create.csv'), 'no_schema.t')$$);
SELECT error_of($$SELECT * FROM bulk_create(data_path('create.csv'), 'a b')$$);
SELECT error_of($$SELECT * FROM bulk_create(data_path('create.csv'), 'bad', '{"limits": 1}')$$);
SELECT error_of($$SELECT * FROM bulk_create(data_path('create.csv'), 'bad', '[]')$$);
SELECT error_of($$SELECT * FROM bulk_create(data_path('create.csv'), 'bad', NULL)$$);
SELECT error_of($$SELECT * FROM bulk_create(data_path('create.csv'), NULL)$$);
SELECT error_of($$SELECT * FROM bulk_create(NULL, 'bad')$$);
SELECT error_of($$SELECT * FROM bulk_create(data_path('create_missing.csv'), 'bad')$$);
SELECT to_regclass('bad');
-- A caller without the privilege to create tables gets an error and no table.
CREATE ROLE regress_bulk_create;
GRANT USAGE, CREATE ON SCHEMA bulk_create TO regress_bulk_create;
SET ROLE regress_bulk_create;
SELECT error_of($$SELECT * FROM bulk_create(data_path('create.csv'), 'bulk_create.mine')$$);
RESET ROLE;
GRANT pg_read_server_files TO regress_bulk_create;
REVOKE CREATE ON SCHEMA bulk_create FROM regress_bulk_create;
SET ROLE regress_bulk_create;
SELECT error_of($$SELECT * FROM bulk_create(data_path('create.csv'), 'bulk_create.mine')$$);
RESET ROLE;
REVOKE USAGE ON SCHEMA bulk_create FROM regress_bulk_create;
DROP ROLE regress_bulk_create;
DROP SCHEMA bulk_create CASCADE;
