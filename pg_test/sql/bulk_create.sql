--
-- bulk_create: a load into a table that it makes.
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
SELECT pg_get_function_arguments(oid), provolatile, proparallel, proisstrict, pg_get_function_result(oid) = (SELECT pg_get_function_result(oid) FROM pg_proc WHERE proname = 'bulk_load') FROM pg_proc WHERE proname = 'bulk_create';
CALL write_file('create.csv', E'id;"paid on";n\n1;2024-01-01;"1"\n2;;""\n3000000000;2024-01-02;3\n');
SELECT rows_loaded, rows_rejected FROM bulk_create(data_path('create.csv'), 'orders');
\d orders
SELECT * FROM orders ORDER BY id;
SELECT target, rows_loaded FROM bulk_history ORDER BY load_id DESC LIMIT 1;
-- Names are regclass's; what is made is what is loaded, whatever else has the name.
SELECT rows_loaded FROM bulk_create(data_path('create.csv'), '"Orders 2"', '{"on_error": "table", "limit": 2}');
SELECT rows_loaded FROM bulk_create(data_path('create.csv'), 'bulk_create.Pg_Class', '{"header": true, "workers": 0, "sample": "1kB"}');
SELECT rows_loaded FROM bulk_create(data_path('create.csv'), 'pg_attribute');
SELECT n.nspname, c.relname, c.reltuples >= 0 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'bulk_create' AND c.relkind = 'r' AND relname <> 'test' ORDER BY 2;
SELECT rows_loaded FROM bulk_create('printf "1,x\n2,y\n"', 'of_program', '{"program": true}');
SELECT * FROM of_program;
-- A sample is no promise: then nothing remains.
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
-- Without the right to make a table there is none.
CREATE ROLE regress_bulk_create;
GRANT USAGE ON SCHEMA bulk_create TO regress_bulk_create;
SET ROLE regress_bulk_create;
SELECT error_of($$SELECT * FROM bulk_create(data_path('create.csv'), 'bulk_create.mine')$$);
RESET ROLE;
GRANT pg_read_server_files TO regress_bulk_create;
SET ROLE regress_bulk_create;
SELECT error_of($$SELECT * FROM bulk_create(data_path('create.csv'), 'bulk_create.mine')$$);
RESET ROLE;
REVOKE USAGE ON SCHEMA bulk_create FROM regress_bulk_create;
DROP ROLE regress_bulk_create;
DROP SCHEMA bulk_create CASCADE;
