--
-- bulk_history: the record of each load, and the columns that each role may see.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_history
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck SCHEMA public;
RESET client_min_messages;
-- Remove the loads of other tests.
DELETE FROM bulk_loads;
\set ECHO all
\pset null 'NULL'
SET client_min_messages = warning;
CREATE ROLE history_one IN ROLE pg_read_server_files, pg_execute_server_program;
CREATE ROLE history_two IN ROLE pg_read_server_files;
CREATE ROLE history_both IN ROLE history_one, history_two;
CREATE ROLE history_neither;
CREATE ROLE history_noinherit NOINHERIT IN ROLE history_one;
CREATE ROLE history_stats IN ROLE pg_read_all_stats;
GRANT USAGE ON SCHEMA load_history TO PUBLIC;
RESET client_min_messages;
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = 'bulk_history'::regclass AND attnum > 0 ORDER BY attnum;
SELECT proname, provolatile, proparallel, prosecdef FROM pg_proc WHERE proname = 'bulk_finished_loads';

CALL write_file('three.csv', E'1,one\n2,two\n3,three\n');
CALL write_file('bad.csv', E'1,one\nx,two\n3,three\n');
CREATE TABLE "T t" (a int PRIMARY KEY, b text);
GRANT ALL ON "T t" TO PUBLIC;

-- The figures equal those in the load's result.
CREATE TABLE results AS SELECT * FROM bulk_load(data_path('three.csv'), '"T t"', '{"format": "csv"}');
INSERT INTO results SELECT * FROM bulk_load(data_path('bad.csv'), '"T t"',
	'{"format": "csv", "on_error": "ignore", "log_verbosity": "silent", "truncate": true, "where": "a > 1"}');
INSERT INTO results SELECT * FROM bulk_load(E'printf "4,four\\n"', '"T t"',
	'{"format": "csv", "program": true, "writer": "buffered", "analyze": true, "indexes": "merge"}');
SELECT count(*) FROM results;
SELECT target, replace(path, data_path(''), '') AS path, owner, rows_loaded, rows_rejected, rows_duplicate, rows_filtered,
	bytes_read, writer, workers, jsonb_path_query_array(indexes, '$[*].method') AS methods, notes
FROM bulk_history ORDER BY load_id;
SELECT load_id, rows_loaded, rows_rejected, rows_duplicate, rows_filtered, bytes_read, seconds, writer, workers, indexes,
	notes FROM bulk_history
EXCEPT TABLE results;
SELECT bool_and(finished_at - started_at BETWEEN '0' AND '1 minute'), bool_and(started_at > now() - interval '1 hour'),
	bool_and(abs(extract(epoch FROM finished_at - started_at) - seconds) < 1) FROM bulk_history;

-- The row belongs to the caller's transaction. A failed load leaves none.
CREATE FUNCTION loads() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM bulk_history';
SELECT loads();
SELECT * FROM error_of(format('SELECT * FROM bulk_load(%L, ''"T t"'', %L)', data_path('bad.csv'), '{"format": "csv"}'));
SELECT loads();
TRUNCATE "T t";
BEGIN;
SELECT rows_loaded, loads() FROM bulk_load(data_path('three.csv'), '"T t"', '{"format": "csv"}');
SELECT loads();
SAVEPOINT s;
TRUNCATE "T t";
SELECT rows_loaded FROM bulk_load(data_path('three.csv'), '"T t"', '{"format": "csv"}');
SELECT loads();
ROLLBACK TO s;
SELECT loads();
SAVEPOINT s;
TRUNCATE "T t";
SELECT rows_loaded FROM bulk_load(data_path('three.csv'), '"T t"', '{"format": "csv", "writer": "buffered"}');
RELEASE s;
SELECT loads();
ROLLBACK;
SELECT loads();
-- Visible at once, in every isolation level, and in functions that are declared STABLE.
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT loads();
SELECT rows_loaded FROM bulk_load(data_path('three.csv'), '"T t"', '{"format": "csv", "truncate": true}');
SELECT loads();
COMMIT;
SELECT loads();
BEGIN READ ONLY;
SELECT loads();
COMMIT;
-- Many loads in one statement.
SELECT sum(l.rows_loaded) FROM generate_series(1, 100) n,
	LATERAL bulk_load(data_path('three.csv'), '"T t"', jsonb_build_object('format', 'csv', 'limit', 0 * n)) l;
SELECT loads();
-- A temporary table; a long note, path and list of indexes, stored out of line.
CREATE TEMP TABLE temporary (a int, b text);
SELECT rows_loaded FROM bulk_load(data_path('three.csv'), 'temporary', '{"format": "csv"}');
SELECT target ~ '^pg_temp_\d+\.temporary$' FROM bulk_history ORDER BY load_id DESC LIMIT 1;
SELECT rows_loaded FROM bulk_load('printf 5,five # ' || (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1000) i),
	'"T t"', '{"format": "csv", "program": true}');
SELECT length(path), md5(path) FROM bulk_history ORDER BY load_id DESC LIMIT 1;

-- Privileges.
SET ROLE history_one;
SELECT rows_loaded FROM bulk_load(data_path('three.csv'), '"T t"', '{"format": "csv", "limit": 0}');
SET ROLE history_two;
SELECT rows_loaded FROM bulk_load(data_path('three.csv'), '"T t"', '{"format": "csv", "limit": 0}');
RESET ROLE;
CREATE FUNCTION as_definer() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$
	SELECT rows_loaded FROM bulk_load(data_path('three.csv'), '"T t"', '{"format": "csv", "limit": 0}')
$$;
ALTER FUNCTION as_definer() OWNER TO history_two;
SELECT as_definer();
SELECT owner, count(*) FROM bulk_history GROUP BY owner ORDER BY owner;
SET ROLE history_one;
SELECT owner, count(*) FROM bulk_history GROUP BY owner ORDER BY owner;
SET ROLE history_two;
SELECT owner, count(*) FROM bulk_history GROUP BY owner ORDER BY owner;
SET ROLE history_both;
SELECT owner, count(*) FROM bulk_history GROUP BY owner ORDER BY owner;
SET ROLE history_noinherit;
SELECT owner, count(*) FROM bulk_history GROUP BY owner ORDER BY owner;
SET ROLE history_neither;
SELECT owner, count(*) FROM bulk_history GROUP BY owner ORDER BY owner;
SELECT owner, count(*) FROM bulk_finished_loads() GROUP BY owner ORDER BY owner;
SET ROLE history_stats;
SELECT owner, count(*) FROM bulk_history GROUP BY owner ORDER BY owner;
-- No role but the owner may read or write the table itself, and a leaky function gets no rows.
SET ROLE history_one;
SELECT * FROM error_of('SELECT * FROM bulk_loads');
SELECT * FROM error_of('DELETE FROM bulk_loads');
SELECT * FROM error_of('INSERT INTO bulk_history (load_id) VALUES (1)');
CREATE FUNCTION pg_temp.leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$
	BEGIN RAISE NOTICE 'seen: %', $1; RETURN true; END $$;
SELECT count(*) FROM bulk_history WHERE pg_temp.leak(owner::text);
RESET ROLE;
-- A dropped role is shown by its former name.
SELECT count(*) FROM bulk_history WHERE owner LIKE 'history%';
REVOKE ALL ON "T t" FROM PUBLIC;
DROP FUNCTION as_definer();
DROP ROLE history_both, history_two;
SELECT count(*) FROM bulk_history WHERE owner LIKE 'history%';

-- Triggers on the table do not run; but an index that was added gets the entries.
CREATE INDEX history_finished ON bulk_loads (finished_at);
CREATE UNIQUE INDEX history_id ON bulk_loads ((load_id + 0)) WHERE rows_loaded = 0;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''refused''; END';
CREATE TRIGGER refuse BEFORE INSERT ON bulk_loads FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT rows_loaded FROM bulk_load(data_path('three.csv'), '"T t"', '{"format": "csv", "limit": 0}');
SELECT bt_index_parent_check('history_finished', true, true), bt_index_parent_check('history_id', true, true);
SET enable_seqscan = off;
SELECT count(*) = loads() FROM bulk_loads WHERE finished_at > '-infinity';
RESET enable_seqscan;
DROP INDEX history_finished, history_id;
DROP TRIGGER refuse ON bulk_loads;
SELECT count(*) FROM verify_heapam('bulk_loads');
-- If the table has been altered, the load fails.
BEGIN;
ALTER TABLE bulk_loads ADD COLUMN more int;
SELECT * FROM error_of($$SELECT loads()$$);
SELECT * FROM error_of($$SELECT bulk_load('true', '"T t"', '{"program": true}')$$);
ROLLBACK;
-- Its rows are included in dumps.
SELECT 'bulk_loads'::regclass = ANY(extconfig) FROM pg_extension WHERE extname = 'pg_bulk';

SET client_min_messages = warning;
DROP OWNED BY history_one, history_neither, history_noinherit, history_stats;
DROP ROLE history_noinherit, history_one, history_neither, history_stats;
DROP SCHEMA load_history CASCADE;
