--
-- CREATE TABLE AS and SELECT INTO from a foreign table as a load: each result equals the server's own.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema create_table_as
\i :helpers
CALL make_table('ft', 'id int, word text, day date, n int', $$format 'csv'$$,
	E'1,one,2001-01-01,10\n2,,2001-02-02,\n3,three,2001-03-03,30\n');
-- The first statement of a connection: the library is not loaded yet.
\c
\pset tuples_only
\pset format unaligned
\set ECHO all
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) CREATE TABLE create_table_as.first AS SELECT * FROM create_table_as.ft
\g |grep Direct
SET search_path = create_table_as, public;
TABLE first;
\set ECHO none
\getenv data PGB_DATA
SELECT set_config('test.dir', :'data', false) AS data \gset
-- The plan, and the result if it is equal with direct_insert on and off: columns, rows, row count, or error.
-- Otherwise both results. Everything is rolled back.
CREATE FUNCTION either_way(statement text) RETURNS SETOF text LANGUAGE plpgsql SET client_min_messages = warning AS $$
DECLARE
	mode text;
	n bigint;
	state text;
	message text;
	detail text;
	con text;
	results text[];
	all_results text[] := '{}';
	line text;
	direct boolean;
	why text;
BEGIN
	FOREACH mode IN ARRAY ARRAY['on', 'off'] LOOP
		PERFORM set_config('pg_bulk.direct_insert', mode, true);
		direct := false;
		why := NULL;
		BEGIN
			FOR line IN EXECUTE 'EXPLAIN (ANALYZE, VERBOSE, COSTS OFF) ' || statement LOOP
				direct := direct OR line ~ 'Direct Insert: yes';
				why := coalesce(why, substring(line FROM 'Direct Insert: no (\(.*\))'));
			END LOOP;
			RETURN NEXT mode || ': ' || CASE WHEN direct THEN 'direct' ELSE concat_ws(' ', 'core', why) END;
			RAISE SQLSTATE 'UNDO0';
		EXCEPTION WHEN OTHERS THEN NULL;
		END;
		BEGIN
			EXECUTE statement;
			GET DIAGNOSTICS n = ROW_COUNT;
			SELECT array_agg(format('%s %s%s', attname, format_type(atttypid, atttypmod), ' ' || nullif(attcollation, 0)::regcollation) ORDER BY attnum) INTO results
				FROM pg_attribute WHERE attrelid = to_regclass('made') AND attnum > 0;
			IF to_regclass('made') IS NOT NULL THEN
				EXECUTE 'SELECT array_agg(x::text ORDER BY x::text) || $1 FROM made x' INTO results USING results;
				FOR line IN SELECT v::text FROM pg_class c JOIN pg_am m ON m.oid = relam, public.verify_heapam(c.oid) v WHERE c.oid = to_regclass('made') AND amname = 'heap' LOOP
					RETURN NEXT mode || ' corrupt: ' || line;
				END LOOP;
			END IF;
			results := ARRAY[n || ' rows'] || results;
			RAISE SQLSTATE 'UNDO0';
		EXCEPTION WHEN SQLSTATE 'UNDO0' THEN NULL;
		WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, con = CONSTRAINT_NAME;
			results := ARRAY[without_path(concat_ws(' | ', state, message, nullif(detail, ''), nullif(con, '')))];
		END;
		all_results := all_results || array_to_string(results, E'\n', 'NULL');
	END LOOP;
	IF all_results[1] = all_results[2] THEN
		RETURN NEXT all_results[1];
	ELSE
		RETURN NEXT E'direct:\n' || coalesce(all_results[1], 'NULL');
		RETURN NEXT E'core:\n' || coalesce(all_results[2], 'NULL');
	END IF;
END $$;
\set ECHO all
SELECT either_way('CREATE TABLE made AS SELECT * FROM ft');
SELECT either_way('CREATE TABLE made (a, b) AS SELECT word, id FROM ft');
SELECT either_way('CREATE TABLE made (a, b, c) AS SELECT word, id FROM ft');
SELECT either_way('CREATE TABLE made AS SELECT id, n FROM ft WHERE n > 5');
SELECT either_way('CREATE TABLE made AS SELECT id, id AS again, upper(word) AS up, n + 1, ''x''::varchar(3) AS x, NULL AS nothing FROM ft WHERE n IS NOT NULL');
SELECT either_way('CREATE TABLE made AS SELECT * FROM ft WITH NO DATA');
SELECT either_way('CREATE UNLOGGED TABLE made WITH (fillfactor = 20) AS SELECT * FROM ft');
SELECT either_way('CREATE TABLE made AS SELECT word COLLATE "C" AS word, day::timestamp FROM ft');
SELECT either_way('CREATE TABLE made AS TABLE ft');
SELECT either_way('CREATE TABLE made AS SELECT f FROM ft f');
SELECT either_way('CREATE TABLE made AS SELECT tableoid::regclass, id FROM ft');
CREATE VIEW over AS SELECT word, id FROM ft WHERE id < 3;
SELECT either_way('CREATE TABLE made AS SELECT * FROM over');
SELECT either_way('CREATE TABLE made AS WITH c AS (SELECT * FROM ft) SELECT id FROM c');
-- Statements that the server itself runs.
CREATE ACCESS METHOD insert_heap TYPE TABLE HANDLER heap_tableam_handler;
SELECT either_way('CREATE TEMPORARY TABLE made AS SELECT * FROM ft');
SELECT either_way('CREATE TABLE made AS SELECT 1 AS one FROM ft');
SELECT either_way('CREATE TABLE made AS SELECT count(*) FROM ft');
SELECT either_way('CREATE TABLE made AS SELECT * FROM ft ORDER BY id DESC');
SELECT either_way('CREATE TABLE made AS SELECT * FROM ft LIMIT 1');
SELECT either_way('CREATE TABLE made AS SELECT DISTINCT n FROM ft');
SELECT either_way('CREATE TABLE made AS SELECT id, (SELECT 1) AS one FROM ft');
SELECT either_way('CREATE TABLE made AS SELECT f.id FROM ft f JOIN ft g USING (id)');
SELECT either_way('CREATE TABLE made AS TABLE ft UNION ALL SELECT * FROM ft WHERE id > 1');
SELECT either_way('CREATE TABLE made AS SELECT id, word FROM ft FOR UPDATE');
SELECT either_way('CREATE TABLE made USING insert_heap AS SELECT * FROM ft');
SELECT either_way('CREATE TABLE made AS SELECT * FROM ft WHERE current_date > ''2000-01-01''');
SELECT either_way('CREATE TABLE made AS SELECT id, generate_series(1, 2) g FROM ft');
SELECT either_way('CREATE MATERIALIZED VIEW made AS SELECT * FROM ft');
CREATE SEQUENCE seq;
SELECT either_way('CREATE TABLE made AS SELECT id, currval(''seq'') FROM ft');
CREATE FUNCTION loud() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
SELECT either_way('CREATE TABLE made AS SELECT id, loud() FROM ft');
-- The table exists already, or cannot be created.
CREATE TABLE there ();
SELECT either_way('CREATE TABLE there AS SELECT * FROM ft');
CREATE TABLE IF NOT EXISTS there AS SELECT * FROM ft;
TABLE there;
SELECT either_way('CREATE TABLE nowhere.made AS SELECT * FROM ft');
SELECT either_way('CREATE TABLE made (a, a) AS SELECT id, n FROM ft');
-- An error in the file rolls back the table.
CALL write_file('ft', E'1,one,2001-01-01,10\nx,,2001-02-02,\n');
SELECT either_way('CREATE TABLE made AS SELECT * FROM ft');
SELECT either_way('CREATE TABLE made AS SELECT word FROM ft');
SELECT error_of('CREATE TABLE made AS SELECT * FROM ft');
SELECT to_regclass('made');
SELECT either_way('CREATE TABLE made AS SELECT 1 / (length(word) - 3) FROM ft WHERE word IS NOT NULL');
CALL write_file('ft', '');
SELECT either_way('CREATE TABLE made AS SELECT * FROM ft');
CALL write_file('ft', E'1,one,2001-01-01,10\n2,,2001-02-02,\n3,three,2001-03-03,30\n');
-- Variants of the syntax.
SELECT id, word INTO made FROM ft WHERE id > 1;
TABLE made;
DROP TABLE made;
PREPARE rows AS SELECT id, day FROM ft;
CREATE TABLE made AS EXECUTE rows;
TABLE made;
SELECT public.verify_heapam('made');
DROP TABLE made;
PREPARE filtered(int) AS SELECT id, day FROM ft WHERE id = $1;
CREATE TABLE made AS EXECUTE filtered(2);
TABLE made;
DROP TABLE made;
SET plan_cache_mode = force_generic_plan;
CREATE TABLE made AS EXECUTE filtered(2);
TABLE made;
RESET plan_cache_mode;
DROP TABLE made;
DO $$
DECLARE
	n bigint;
BEGIN
	CREATE TABLE made AS SELECT * FROM ft WHERE id <> 2;
	GET DIAGNOSTICS n = ROW_COUNT;
	RAISE NOTICE '%, %', n, FOUND;
	INSERT INTO made SELECT * FROM ft;
END $$;
SELECT count(*) FROM made;
DROP TABLE made;
BEGIN;
SAVEPOINT s;
CREATE TABLE made AS SELECT * FROM ft;
SELECT count(*) FROM made;
ROLLBACK TO s;
SELECT to_regclass('made');
CREATE TABLE made AS SELECT * FROM ft;
DELETE FROM made WHERE id = 1;
COMMIT;
TABLE made;
DROP TABLE made;
BEGIN READ ONLY;
CREATE TABLE made AS SELECT * FROM ft;
ROLLBACK;
-- Privileges.
CREATE ROLE create_table_as_user;
GRANT USAGE, CREATE ON SCHEMA create_table_as TO create_table_as_user;
SET ROLE create_table_as_user;
CREATE TABLE made AS SELECT * FROM ft;
RESET ROLE;
GRANT SELECT (id) ON ft TO create_table_as_user;
SET ROLE create_table_as_user;
CREATE TABLE made AS SELECT * FROM ft;
CREATE TABLE made AS SELECT id FROM ft;
TABLE made;
RESET ROLE;
SELECT relowner::regrole FROM pg_class WHERE oid = 'made'::regclass;
DROP TABLE made;
-- Event triggers see the table with its rows.
CREATE FUNCTION see() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE
	object text;
	n bigint;
BEGIN
	FOR object IN SELECT object_identity FROM pg_event_trigger_ddl_commands() WHERE command_tag IN ('CREATE TABLE AS', 'SELECT INTO') LOOP
		EXECUTE 'SELECT count(*) FROM ' || object INTO n;
		RAISE NOTICE '% %', object, n;
	END LOOP;
END $$;
CREATE EVENT TRIGGER create_table_as ON ddl_command_end EXECUTE FUNCTION see();
CREATE TABLE made AS SELECT * FROM ft;
DROP EVENT TRIGGER create_table_as;
DROP TABLE made;
-- A program runs only once.
DO $$ BEGIN EXECUTE format('CREATE FOREIGN TABLE program (id int) SERVER bulk_files OPTIONS (program %L)', 'echo >> ' || data_path('table_runs') || '; echo 1'); END $$;
CREATE TABLE made AS SELECT * FROM program;
TABLE made;
DROP TABLE made;
SELECT length(pg_read_file(data_path('table_runs')));

-- Several processes.
DO $$
DECLARE
	lines text := (SELECT string_agg(format(E'%s,%s,%s,%s\n', i, repeat('w', i % 30), date '2000-01-01' + i % 100, i % 7), '' ORDER BY i) FROM generate_series(1, 20000) i);
BEGIN
	CALL write_file('ft', lines);
END $$;
SET pg_bulk.workers = 2;
SET pg_bulk.chunk_size = 4096;
SELECT count(*), sum(id) ids, sum(length(word)) words, max(day), sum(n) FROM ft;
CREATE TABLE made AS SELECT * FROM ft;
SELECT count(*), sum(id) ids, sum(length(word)) words, max(day), sum(n) FROM made;
SELECT public.verify_heapam('made');
DROP TABLE made;
-- EXPLAIN ANALYZE shows the figures of the scan.
CALL make_table('bad', 'id int, n int', $$format 'csv', on_error 'ignore'$$, E'1,1\nx,2\n3,3\n');
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) CREATE TABLE made AS SELECT * FROM bad WHERE n > 1
\g |sed 's/File: .*/File/; s/\(rows=[0-9]*\)\.[0-9]*/\1/'
TABLE made;
DROP TABLE made;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) CREATE TABLE made AS SELECT id, n * 2 AS twice FROM ft WHERE n = 3
\g |sed 's/File: .*/File/; s/\(rows=[0-9]*\)\.[0-9]*/\1/'
SELECT count(*), sum(id), sum(twice) FROM made;
SELECT count(*), sum(id), sum(n * 2) FROM ft WHERE n = 3;
SELECT public.verify_heapam('made');
DROP TABLE made;
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA create_table_as CASCADE;
DROP ROLE create_table_as_user;
DROP ACCESS METHOD insert_heap;
