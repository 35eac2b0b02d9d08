--
-- Settings of a job: those of its owner (ALTER ROLE ... SET), and the option settings.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema queue_settings
\i :helpers
SET client_min_messages = warning;
CREATE ROLE queue_settings_user LOGIN IN ROLE pg_read_server_files;
CREATE ROLE queue_settings_super LOGIN SUPERUSER;
GRANT USAGE, CREATE ON SCHEMA queue_settings TO queue_settings_user;
SET search_path = queue_settings, public;
\set ECHO all
\pset tuples_only
\pset format unaligned
CALL write_file('n.txt', E'1\n2\n');
-- An audit trigger that records settings.
CREATE TABLE t (a int, seen text);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	new.seen := concat_ws(' ', session_user, current_setting('app.user', true), current_setting('session_replication_role'),
		current_setting('work_mem'), current_setting('application_name') ~ '^pg_bulk job');
	RETURN new;
END $$;
CREATE TRIGGER audit BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION audit();
ALTER TABLE t ENABLE ALWAYS TRIGGER audit;
CREATE TABLE fired (a int);
CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO queue_settings.fired VALUES (new.a); RETURN NULL; END $$;
CREATE TRIGGER fire AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION fire();
GRANT SELECT, INSERT ON t, fired TO queue_settings_user;
CREATE FUNCTION loaded(options jsonb DEFAULT '{}', OUT seen text, OUT fired bigint) LANGUAGE sql AS $$
	SELECT string_agg(DISTINCT seen, ', '), (SELECT count(*) FROM fired) FROM t
$$;

-- Settings of the role: every session of the role has them, and so has a job.
ALTER ROLE queue_settings_user SET app."user" = 'alice';
ALTER ROLE queue_settings_user SET work_mem = '7MB';
ALTER ROLE queue_settings_super SET session_replication_role = 'replica';
ALTER ROLE queue_settings_super SET app."user" = 'root';
SET ROLE queue_settings_user;
SELECT bulk_enqueue(data_path('n.txt'), 't', '{"columns": ["a"]}') AS job \gset
SELECT bulk_wait(:job, '1 min');
RESET ROLE;
SELECT * FROM loaded();
TRUNCATE t, fired;
SET ROLE queue_settings_super;
SELECT bulk_enqueue(data_path('n.txt'), 't', '{"columns": ["a"]}') AS job \gset
SELECT bulk_wait(:job, '1 min');
RESET ROLE;
SELECT * FROM loaded();
TRUNCATE t, fired;

-- Settings of the job override those of the role.
SET ROLE queue_settings_user;
SELECT bulk_enqueue(data_path('n.txt'), 't', '{"columns": ["a"], "settings": {"app.user": "bob", "work_mem": 5000, "enable_seqscan": false}}') AS job \gset
SELECT bulk_wait(:job, '1 min');
-- The next job does not have them.
SELECT bulk_enqueue(data_path('n.txt'), 't', '{"columns": ["a"], "settings": null}') AS job \gset
SELECT bulk_wait(:job, '1 min');
RESET ROLE;
SELECT * FROM loaded();
TRUNCATE t, fired;
SET ROLE queue_settings_super;
SELECT bulk_enqueue(data_path('n.txt'), 't', '{"columns": ["a"], "settings": {"session_replication_role": "origin", "application_name": "nightly"}}') AS job \gset
SELECT bulk_wait(:job, '1 min');
RESET ROLE;
SELECT * FROM loaded();
TRUNCATE t, fired;
-- The rows are converted under them, and they override the session's settings at bulk_enqueue.
CREATE TABLE days (d date);
CALL write_file('day.txt', E'05.06.2024\n');
SET DateStyle = 'ISO, MDY';
SELECT bulk_enqueue(data_path('day.txt'), 'days', '{"settings": {"DateStyle": "German"}}') AS job \gset
SELECT bulk_wait(:job, '1 min');
SELECT to_char(d, 'YYYY-MM-DD') FROM days;
RESET DateStyle;

-- The owner needs the privilege to set them, both when the job is enqueued ...
SET ROLE queue_settings_user;
CREATE FUNCTION refused(settings jsonb) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT queue_settings.error_of(format('SELECT bulk_enqueue(%L, ''queue_settings.t'', %L)', queue_settings.data_path('n.txt'), jsonb_build_object('settings', settings)))
$$;
SELECT refused('{"session_replication_role": "replica"}');
SELECT refused('{"no_such_setting": 1}');
SELECT refused('{"work_mem": "much"}');
SELECT refused('{"pg_bulk.max_running_jobs": 100}');
SELECT refused('{"work_mem": null}');
SELECT refused('{"work_mem": ["1MB"]}');
SELECT refused('["work_mem"]');
SELECT refused('"work_mem"');
-- ... (settings that a job sets for itself are always refused) ...
SELECT name, refused(jsonb_build_object(name, 'none')) FROM unnest(ARRAY['default_transaction_isolation', 'default_transaction_read_only',
	'default_transaction_deferrable', 'transaction_isolation', 'transaction_read_only', 'transaction_deferrable', 'synchronous_commit', 'Exit_On_Error',
	'transaction_timeout', 'ROLE', 'session_authorization']) name;
RESET ROLE;
-- ... and when it runs.
ALTER ROLE queue_settings_user SUPERUSER;
SELECT bulk_pause();
SET ROLE queue_settings_user;
SELECT bulk_enqueue(data_path('n.txt'), 't', '{"settings": {"session_replication_role": "replica"}}') AS job \gset
RESET ROLE;
ALTER ROLE queue_settings_user NOSUPERUSER;
SELECT bulk_resume();
\set ECHO none
SET client_min_messages = error;
\set ECHO all
SELECT bulk_wait(:job, '1 min');
SELECT error_sqlstate, error_message FROM bulk_jobs WHERE job_id = :job;
SELECT * FROM loaded();
-- bulk_load in a session refuses the option: SET works there.
SELECT error_of(format('SELECT bulk_load(%L, ''t'', ''{"settings": {"work_mem": "1MB"}}'')', data_path('n.txt')));
SELECT error_of(format('SELECT bulk_check(%L, ''t'', ''{"settings": {"work_mem": "1MB"}}'')', data_path('n.txt')));
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA queue_settings CASCADE;
DROP ROLE queue_settings_user, queue_settings_super;
