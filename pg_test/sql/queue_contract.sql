--
-- The queue's functions and view: results and privileges. t/008_queue*.t test the processes.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema queue_contract
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CALL write_file('n.txt', E'1\n2\n3\n');
CALL write_file('bad.txt', E'1\ntwo\n');
-- The job_id depends on earlier loads.
CREATE FUNCTION error_without_job(statement text, job bigint) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT replace(line, 'job ' || job, 'job N') FROM error_of(format(statement, job)) line
$$;
CREATE TABLE t (a int);
CREATE TABLE plain (a int);
CREATE TEMPORARY TABLE temporary (a int);
SELECT column_name, data_type FROM information_schema.columns
WHERE table_schema = 'public' AND table_name = 'bulk_jobs' ORDER BY ordinal_position;

-- A job from bulk_enqueue to its end.
SELECT bulk_enqueue(data_path('n.txt'), 't') AS job \gset
SELECT bulk_wait(:job, '1 min');
SELECT target, without_path(path), options, owner, priority, status, waits_for, attempt, max_attempts, pid, rows_loaded,
	rows_rejected, rows_duplicate, bytes_read, bytes_total, phase, workers, error_sqlstate, error_message,
	enqueued_at <= started_at, started_at <= finished_at
FROM bulk_jobs WHERE job_id = :job;
TABLE t;
SELECT load_id = :job, rows_loaded FROM bulk_history ORDER BY load_id DESC LIMIT 1;
SELECT bulk_retry(:job), bulk_cancel(:job);
SELECT load_id > :job FROM bulk_load(data_path('n.txt'), 't', '{"limit": 0}');

-- A job that fails, and is repaired.
SELECT bulk_enqueue(data_path('bad.txt'), 't', max_attempts => 3) AS bad \gset
\set ECHO none
SET client_min_messages = warning;
\set ECHO all
SELECT bulk_wait(:bad, '1 min');
RESET client_min_messages;
SELECT status, attempt, max_attempts, error_sqlstate, error_message FROM bulk_jobs WHERE job_id = :bad;
-- Its row in the history.
SELECT load_id = :bad, target, without_path(path), owner, rows_loaded, rows_rejected, rows_duplicate, rows_filtered, bytes_read,
	seconds >= 0, writer, workers, indexes, notes, attempt, status, error_sqlstate, error_message, started_at <= finished_at
FROM bulk_history ORDER BY finished_at DESC LIMIT 1;
CALL write_file('bad.txt', E'4\n5\n');
SELECT bulk_retry(:bad);
SELECT bulk_retry(:bad);
SELECT bulk_wait(:bad, '1 min');
SELECT status, attempt, error_sqlstate, error_message FROM bulk_jobs WHERE job_id = :bad;
SELECT count(*) FROM t;
SELECT attempt, status, rows_loaded, error_sqlstate FROM bulk_history WHERE load_id = :bad ORDER BY attempt;

-- Waiting: pause, timeouts, run_at.
SELECT bulk_pause(), bulk_pause();
SELECT bulk_enqueue(data_path('n.txt'), 't') AS paused \gset
SELECT bulk_wait(:paused, '10 ms');
SELECT bulk_wait(:paused, '-1 day');
SELECT status, waits_for FROM bulk_jobs WHERE job_id = :paused;
SELECT bulk_resume(), bulk_resume();
SELECT bulk_wait(:paused, '1 min');
SELECT bulk_enqueue(data_path('n.txt'), 't', run_at => now() + interval '1 day') AS later \gset
SELECT status, waits_for FROM bulk_jobs WHERE job_id = :later;
SELECT bulk_cancel(:later), bulk_cancel(:later);
SELECT bulk_wait(:later);
SELECT status, waits_for, finished_at IS NOT NULL FROM bulk_jobs WHERE job_id = :later;

-- NULLs and nonsense.
SELECT * FROM error_of('SELECT bulk_enqueue(NULL, ''t'')');
SELECT * FROM error_of('SELECT bulk_enqueue(''x'', NULL)');
SELECT * FROM error_of('SELECT bulk_enqueue(''x'', ''t'', NULL)');
SELECT * FROM error_of('SELECT bulk_enqueue(''x'', ''t'', priority => NULL)');
SELECT * FROM error_of('SELECT bulk_enqueue(''x'', ''t'', max_attempts => 0)');
SELECT line FROM error_of('SELECT bulk_enqueue(''x'', ''t'', ''{"formt": "csv"}'')') WITH ORDINALITY e (line, n) WHERE n = 1;
SELECT * FROM error_of('SELECT bulk_enqueue(''x'', ''t'', ''{"format": "cvs"}'')');
SELECT * FROM error_of('SELECT bulk_enqueue(''x'', 0)');
SELECT * FROM error_of('SELECT bulk_enqueue(''x'', ''temporary'')');
SELECT * FROM error_of('SELECT bulk_wait(NULL)');
SELECT * FROM error_of('SELECT bulk_wait(0)');
SELECT * FROM error_of('SELECT bulk_cancel(0)');
SELECT * FROM error_of('SELECT bulk_retry(0)');
BEGIN READ ONLY;
SELECT bulk_enqueue('x', 't');
ROLLBACK;

-- A job cannot be waited for in the transaction that enqueues it, and ROLLBACK removes it.
BEGIN;
SELECT bulk_enqueue(data_path('n.txt'), 't') AS inner \gset
SELECT * FROM error_without_job('SELECT bulk_wait(%s)', :inner);
ROLLBACK;
SELECT * FROM error_without_job('SELECT bulk_wait(%s)', :inner);
BEGIN;
SAVEPOINT s;
SELECT bulk_enqueue(data_path('n.txt'), 'plain') > 0;
ROLLBACK TO s;
SELECT bulk_enqueue(data_path('n.txt'), 'plain') AS inner \gset
COMMIT;
SELECT bulk_wait(:inner, '1 min');
SELECT count(*) FROM plain;

-- The job keeps the session's settings.
CREATE TABLE moments (d date, z timestamptz, t text);
CALL write_bytes('moments.txt', convert_to(E'05.06.2024\t2024-01-01 00:00\tZürich\n', 'LATIN1'));
SET DateStyle = 'German';
SET TimeZone = 'Asia/Tokyo';
SET client_encoding = 'latin1';
SELECT bulk_enqueue(data_path('moments.txt'), 'moments') AS moments \gset
RESET DateStyle;
RESET TimeZone;
RESET client_encoding;
SELECT bulk_wait(:moments, '1 min');
SELECT d, z AT TIME ZONE 'UTC', t FROM moments;
-- ... also time zone abbreviations, and NULL.
CREATE TABLE settled (z timestamptz, words text[], n text);
CALL write_file('settled.txt', E'2024-01-01 12:00 IST\t{NULL}\tx\n2024-01-01 12:00 IST\t{NULL}\t\\N\n');
\set options '{"where": "n = NULL"}'
SET timezone_abbreviations = 'India';
SET array_nulls = off;
SET transform_null_equals = on;
SELECT rows_loaded FROM bulk_load(data_path('settled.txt'), 'settled', :'options');
SELECT bulk_enqueue(data_path('settled.txt'), 'settled', :'options') AS settled \gset
RESET timezone_abbreviations;
RESET array_nulls;
RESET transform_null_equals;
SELECT bulk_wait(:settled, '1 min');
SELECT z AT TIME ZONE 'UTC', words[1] IS NULL, n IS NULL FROM settled;

-- Roles.
\set ECHO none
SET client_min_messages = warning;
CREATE ROLE queue_member LOGIN IN ROLE pg_read_server_files;
CREATE ROLE queue_group NOLOGIN IN ROLE pg_read_server_files;
CREATE ROLE queue_other LOGIN IN ROLE pg_read_server_files;
GRANT queue_group TO queue_member;
GRANT USAGE ON SCHEMA queue_contract TO queue_member, queue_group, queue_other;
RESET client_min_messages;
\set ECHO all
SET ROLE queue_member;
SELECT * FROM error_of(format('SELECT bulk_enqueue(%L, ''t'')', data_path('n.txt')));
RESET ROLE;
GRANT INSERT ON t, plain TO queue_member, queue_group;
SET ROLE queue_member;
SELECT bulk_enqueue(data_path('n.txt'), 't') AS mine \gset
SELECT bulk_wait(:mine, '1 min');
SELECT owner, status FROM bulk_jobs;
SELECT * FROM error_of('SELECT * FROM public.bulk_queue');
SELECT * FROM error_of('UPDATE public.bulk_queue_state SET paused = true');
SELECT * FROM error_of('SELECT bulk_pause()');
SELECT * FROM error_of('SELECT bulk_resume()');
SELECT * FROM error_without_job('SELECT bulk_cancel(%s)', :bad);
SELECT * FROM error_of('SELECT nextval(''public.bulk_load_id_seq'')');
SET ROLE queue_other;
SELECT count(*) FROM bulk_jobs;
SELECT * FROM error_without_job('SELECT bulk_wait(%s)', :mine);
SELECT * FROM error_without_job('SELECT bulk_cancel(%s)', :mine);
SELECT * FROM error_without_job('SELECT bulk_retry(%s)', :mine);
RESET ROLE;
-- A leaky function in a query on the view sees only visible rows.
CREATE FUNCTION leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$
BEGIN
	RAISE NOTICE 'leaked: %', $1;
	RETURN true;
END $$;
SET ROLE queue_other;
SELECT count(*) FROM bulk_jobs WHERE leak(path);
RESET ROLE;
-- A role without LOGIN cannot own a job, up to 16.
SET ROLE queue_group;
SELECT CASE WHEN current_setting('server_version_num')::int >= 170000
	THEN '28000: role "queue_group" is not permitted to log in'
	ELSE (SELECT e FROM error_of(format('SELECT bulk_enqueue(%L, ''t'')', data_path('n.txt'))) e LIMIT 1) END;
RESET ROLE;
-- A SECURITY DEFINER function enqueues: the job belongs to the function's owner.
CREATE FUNCTION import(file text) RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$
	SELECT public.bulk_enqueue(queue_contract.data_path(file), 'queue_contract.plain')
$$;
ALTER FUNCTION import(text) OWNER TO queue_member;
SET ROLE queue_other;
SELECT import('n.txt') AS imported \gset
RESET ROLE;
SELECT bulk_wait(:imported, '1 min');
SELECT owner, status FROM bulk_jobs WHERE job_id = :imported;
-- An index function that maintenance of its table runs must not enqueue.
CREATE TABLE lure (a int);
INSERT INTO lure VALUES (1);
CREATE FUNCTION climb(a int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	PERFORM public.bulk_enqueue('x', 'queue_contract.t');
	RETURN a;
END $$;
SELECT line FROM error_of('CREATE INDEX ON lure (climb(a))') WITH ORDINALITY e (line, n) WHERE n = 1;
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA queue_contract CASCADE;
DROP ROLE queue_member, queue_group, queue_other;
