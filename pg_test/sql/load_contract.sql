--
-- The interface of bulk_load: arguments, result, transactions, nested loads.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_contract
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set ECHO all
SELECT p.oid::regprocedure, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), provolatile, proparallel,
	proisstrict, prosecdef
FROM pg_proc p WHERE proname IN ('bulk_load', 'bulk_rows') ORDER BY proname, 2;

CALL write_file('three.csv', E'1,one\n2,two\n3,three\n');
CREATE TABLE t (a int, b text);
SELECT rows_loaded, rows_rejected, rows_duplicate, rows_filtered, bytes_read, writer, workers, indexes, notes,
	load_id > 0 AS has_id, seconds > 0 AND seconds < 60 AS has_seconds
FROM bulk_load(data_path('three.csv'), 't', '{"format": "csv", "writer": "buffered"}');
TABLE t ORDER BY a;

-- Without options: a text file.
CALL write_file('three.txt', E'4\tfour\n5\t\\N\n');
SELECT rows_loaded FROM bulk_load(data_path('three.txt'), 't');
SELECT rows_loaded FROM bulk_load(path => data_path('three.txt'), target => 't', options => '{}');
TABLE t ORDER BY a, b;
-- A program.
SELECT rows_loaded, bytes_read FROM bulk_load('printf "6,six\\n"', 't', '{"format": "csv", "program": true}');
TABLE t ORDER BY a DESC LIMIT 1;

-- In a SELECT list, for several rows, in a join, as a subquery, in a prepared statement, in a cursor.
TRUNCATE t;
SELECT (bulk_load(data_path('three.csv'), 't', '{"format": "csv"}')).rows_loaded FROM generate_series(1, 3);
SELECT n, rows_loaded FROM generate_series(1, 2) n, bulk_load(data_path('three.csv'), 't', jsonb_build_object('format', 'csv', 'limit', n));
SELECT sum((SELECT rows_loaded FROM bulk_load(data_path('three.csv'), 't', '{"format": "csv"}')));
PREPARE load(text) AS SELECT rows_loaded FROM bulk_load(data_path($1), 't', '{"format": "csv"}');
EXECUTE load('three.csv');
EXECUTE load('three.csv');
BEGIN;
DECLARE c CURSOR FOR SELECT rows_loaded FROM bulk_load(data_path('three.csv'), 't', '{"format": "csv"}');
FETCH c;
COMMIT;
SELECT count(*) FROM t;

-- load_id ascends; other roles have no privileges on its sequence.
SELECT a.load_id < b.load_id AS ascending FROM bulk_load(data_path('three.csv'), 't', '{"format": "csv"}') a,
	LATERAL (SELECT a.rows_loaded) l, bulk_load(data_path('three.csv'), 't', '{"format": "csv"}') b;
SELECT relacl FROM pg_class WHERE oid = 'public.bulk_load_id_seq'::regclass;

-- NULL.
SELECT * FROM error_of($$SELECT bulk_load(NULL, 't')$$);
SELECT * FROM error_of($$SELECT bulk_load('f', NULL)$$);
SELECT * FROM error_of($$SELECT bulk_load('f', 't', NULL)$$);
-- Later statements see the rows; a failed load, and ROLLBACK TO, remove them.
TRUNCATE t;
BEGIN;
SELECT rows_loaded FROM bulk_load(data_path('three.csv'), 't', '{"format": "csv"}');
SELECT count(*) FROM t;
SAVEPOINT s;
SELECT rows_loaded FROM bulk_load(data_path('three.csv'), 't', '{"format": "csv"}');
SELECT count(*) FROM t;
ROLLBACK TO s;
SELECT count(*) FROM t;
COMMIT;
CALL write_file('bad.csv', E'1,one\n2,two\nthree,three\n');
SELECT * FROM error_of($$SELECT bulk_load(data_path('bad.csv'), 't', '{"format": "csv"}')$$);
SELECT count(*) FROM t;
-- A function sees the rows of its own load, and continues after a load that failed.
CREATE FUNCTION twice() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text := '';
BEGIN
	FOR i IN 1..2 LOOP
		BEGIN
			PERFORM bulk_load(data_path('bad.csv'), 't', '{"format": "csv"}');
		EXCEPTION WHEN invalid_text_representation THEN
			result := result || 'failed, ' || (SELECT count(*) FROM t) || ' rows; ';
		END;
		PERFORM bulk_load(data_path('three.csv'), 't', '{"format": "csv"}');
		result := result || 'loaded, ' || (SELECT count(*) FROM t) || ' rows; ';
	END LOOP;
	RETURN result;
END $$;
SELECT twice();
-- Not in read-only transactions.
BEGIN READ ONLY;
SELECT bulk_load(data_path('three.csv'), 't', '{"format": "csv"}');					-- ERROR
ROLLBACK;
-- Repeatable read, serializable.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM t;
SELECT rows_loaded FROM bulk_load(data_path('three.csv'), 't', '{"format": "csv"}');
SELECT count(*) FROM t;
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT rows_loaded FROM bulk_load(data_path('three.csv'), 't', '{"format": "csv"}');
COMMIT;

-- A load in a trigger of a load: each has its own rows and its own CONTEXT.
CREATE TABLE outer_t (a int, b text);
CREATE FUNCTION load_inner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM bulk_load(data_path(TG_ARGV[0]), 't', '{"format": "csv"}');
	RETURN NEW;
END $$;
CREATE TRIGGER load_inner BEFORE INSERT ON outer_t FOR EACH ROW EXECUTE FUNCTION load_inner('three.csv');
TRUNCATE t;
SELECT * FROM figures('three.csv', 'outer_t', '{"format": "csv"}');
SELECT a, count(*) FROM outer_t GROUP BY a ORDER BY a;
SELECT a, count(*) FROM t GROUP BY a ORDER BY a;
DROP TRIGGER load_inner ON outer_t;
CREATE TRIGGER load_inner BEFORE INSERT ON outer_t FOR EACH ROW WHEN (NEW.a = 2) EXECUTE FUNCTION load_inner('bad.csv');
SELECT * FROM error_of($$SELECT bulk_load(data_path('three.csv'), 'outer_t', '{"format": "csv"}')$$);
-- If the inner load fails and its error is caught, the outer load continues.
CREATE FUNCTION try_inner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM bulk_load(data_path('bad.csv'), 't', '{"format": "csv"}');
	RETURN NEW;
EXCEPTION WHEN invalid_text_representation THEN
	NEW.b := NEW.b || ' (the inner load failed)';
	RETURN NEW;
END $$;
DROP TRIGGER load_inner ON outer_t;
CREATE TRIGGER try_inner BEFORE INSERT ON outer_t FOR EACH ROW EXECUTE FUNCTION try_inner();
TRUNCATE t, outer_t;
SELECT rows_loaded FROM bulk_load(data_path('three.csv'), 'outer_t', '{"format": "csv"}');
TABLE outer_t ORDER BY a;
SELECT count(*) FROM t;

-- Only bulk_load may read rows through bulk_rows.
SELECT public.bulk_rows(NULL::t, 0);												-- ERROR
SELECT * FROM public.bulk_rows(NULL::t, NULL);										-- ERROR
CREATE FUNCTION thief() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM * FROM public.bulk_rows(NULL::t, 1);
	RETURN NULL;
END $$;
CREATE TRIGGER thief BEFORE INSERT ON t EXECUTE FUNCTION thief();
SELECT bulk_load(data_path('three.csv'), 't', '{"format": "csv", "writer": "buffered"}');		-- ERROR
DROP TRIGGER thief ON t;

-- TRUNCATE and ANALYZE.
SELECT rows_loaded FROM bulk_load(data_path('three.csv'), 't', '{"format": "csv", "truncate": true, "analyze": true}');
SELECT count(*), (SELECT reltuples FROM pg_class WHERE oid = 't'::regclass) AS reltuples,
	(SELECT count(*) FROM pg_stats WHERE schemaname = 'load_contract' AND tablename = 't') AS columns
FROM t;
-- Cases in which TRUNCATE fails; a load that fails afterwards leaves the old rows.
SELECT bulk_load(data_path('three.csv'), 't', '{"format": "csv", "truncate": true}') FROM t;		-- ERROR
SELECT * FROM error_of($$SELECT bulk_load(data_path('bad.csv'), 't', '{"format": "csv", "truncate": true}')$$);
SELECT count(*) FROM t;
-- truncate empties the target only, not its child tables.
CREATE TABLE child () INHERITS (t);
INSERT INTO child VALUES (9, 'nine');
SELECT rows_loaded FROM bulk_load(data_path('three.csv'), 't', '{"format": "csv", "truncate": true}');
SELECT tableoid::regclass, count(*) FROM t GROUP BY 1 ORDER BY 1;

-- Waiting for a FIFO without a writer can be canceled.
DO $$ BEGIN EXECUTE format('COPY (SELECT WHERE false) TO PROGRAM %L', 'mkfifo ' || quote_literal(data_path('fifo'))); END $$;
SET statement_timeout = '100ms';
\set SHOW_CONTEXT never
SELECT bulk_load(data_path('fifo'), 't', '{"writer": "buffered"}');					-- ERROR
SELECT bulk_load(data_path('fifo'), 't');											-- ERROR
\set SHOW_CONTEXT errors
RESET statement_timeout;

-- Locks.
CREATE FUNCTION locks(options jsonb) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM bulk_load(data_path('three.csv'), 't', options || '{"format": "csv"}');
	RETURN QUERY SELECT mode FROM pg_locks WHERE relation = 't'::regclass AND pid = pg_backend_pid() ORDER BY 1;
END $$;
BEGIN;
SELECT 'RowExclusiveLock' IN (SELECT locks('{"writer": "buffered"}')) AS online;
ROLLBACK;
BEGIN;
SELECT 'ShareRowExclusiveLock' IN (SELECT locks('{"lock": "share"}')) AS share;
ROLLBACK;
BEGIN;
SELECT 'AccessExclusiveLock' IN (SELECT locks('{"truncate": true}')) AS truncate;
ROLLBACK;

-- An OID that is no relation's.
SELECT bulk_load('f', 1::regclass);													-- ERROR
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA load_contract CASCADE;
