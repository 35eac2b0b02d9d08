-- The functions and the view check who may see or change a job; no other role has privileges on the tables.
CREATE TABLE bulk_queue (
    job_id bigint PRIMARY KEY,
    owner oid NOT NULL,
    owner_name name NOT NULL,
    -- The database in which the job was enqueued: in others, names count, and OIDs do not (src/queue/home.rs).
    database oid NOT NULL,
    cluster bigint NOT NULL,
    path text NOT NULL,
    -- The OID identifies the table; the names show whether it is still the same one.
    target oid NOT NULL,
    target_schema name NOT NULL,
    target_name name NOT NULL,
    options jsonb NOT NULL,
    -- Names and values, alternately, of settings that a load depends on.
    settings text[] NOT NULL,
    -- Whether the job excludes other loads from its target.
    alone boolean NOT NULL,
    priority integer NOT NULL,
    run_at timestamptz NOT NULL,
    max_attempts integer NOT NULL,
    enqueued_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    status text NOT NULL DEFAULT 'queued' CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'canceled')),
    attempt integer NOT NULL DEFAULT 0,
    -- Attempts before bulk_retry: they do not count against max_attempts.
    attempts_before integer NOT NULL DEFAULT 0,
    -- The number of times that the process ended before the load.
    crashes integer NOT NULL DEFAULT 0,
    started_at timestamptz,
    finished_at timestamptz,
    rows_loaded bigint,
    rows_rejected bigint,
    rows_duplicate bigint,
    bytes_read bigint,
    bytes_total bigint,
    workers integer,
    error_sqlstate text,
    error_message text,
    error_detail text,
    error_hint text,
    error_context text,
    -- The attempt that a crash of the server ended, if it will be retried.
    crashed_in integer
);
CREATE INDEX bulk_queue_queued ON bulk_queue (owner, priority, run_at, job_id) WHERE status = 'queued';
CREATE INDEX bulk_queue_running ON bulk_queue (job_id) WHERE status = 'running';
CREATE INDEX bulk_queue_target ON bulk_queue (target) WHERE status IN ('queued', 'running');
CREATE INDEX bulk_queue_alone ON bulk_queue (target) WHERE alone AND status IN ('queued', 'running');
REVOKE ALL ON TABLE bulk_queue FROM PUBLIC;
CREATE TRIGGER keep_local BEFORE INSERT OR UPDATE OR DELETE ON bulk_queue FOR EACH ROW EXECUTE FUNCTION bulk_keep_local();
ALTER TABLE bulk_queue ENABLE REPLICA TRIGGER keep_local;

CREATE TABLE bulk_queue_state (paused boolean NOT NULL);
INSERT INTO bulk_queue_state VALUES (false);
-- So that it can be updated in a publication of all tables.
ALTER TABLE bulk_queue_state REPLICA IDENTITY FULL;
REVOKE ALL ON TABLE bulk_queue_state FROM PUBLIC;
CREATE TRIGGER keep_local BEFORE INSERT OR UPDATE OR DELETE ON bulk_queue_state FOR EACH ROW EXECUTE FUNCTION bulk_keep_local();
ALTER TABLE bulk_queue_state ENABLE REPLICA TRIGGER keep_local;

-- Dumps leave out unfinished jobs: a restored copy must not begin to load.
SELECT pg_catalog.pg_extension_config_dump('@extschema@.bulk_queue', $$WHERE status NOT IN ('queued', 'running')$$);

CREATE FUNCTION bulk_enqueue(
    path text,
    target regclass,
    options jsonb DEFAULT '{}',
    priority integer DEFAULT 0,
    run_at timestamptz DEFAULT pg_catalog.now(),
    max_attempts integer DEFAULT 1
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_enqueue';

COMMENT ON FUNCTION bulk_enqueue(text, regclass, jsonb, integer, timestamptz, integer)
IS 'adds a job to the queue: after this transaction commits, a background worker loads a file into a table. Returns the number of the job. path: file, directory, pattern or, with the option program, shell command. target: the table. options: JSON object of options, see docs/reference/options.md. priority: jobs with a lower number run first. run_at: earliest start. max_attempts: number of attempts after temporary errors.';

-- The overload with `allow`, as of bulk_load. It precedes the arguments with defaults; pass it by name.
CREATE FUNCTION bulk_enqueue(
    path text,
    target regclass,
    options jsonb,
    allow text[],
    priority integer DEFAULT 0,
    run_at timestamptz DEFAULT pg_catalog.now(),
    max_attempts integer DEFAULT 1
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_enqueue';

COMMENT ON FUNCTION bulk_enqueue(text, regclass, jsonb, text[], integer, timestamptz, integer)
IS 'adds a job to the queue: after this transaction commits, a background worker loads a file into a table. Returns the number of the job. path: file, directory, pattern or, with the option program, shell command. target: the table. options: JSON object of options, see docs/reference/options.md. allow: names of options that a SECURITY DEFINER function sets itself and that pg_bulk would otherwise refuse there. priority: jobs with a lower number run first. run_at: earliest start. max_attempts: number of attempts after temporary errors.';

CREATE FUNCTION bulk_wait(job_id bigint, timeout interval DEFAULT NULL) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_wait';

COMMENT ON FUNCTION bulk_wait(bigint, interval)
IS 'waits for the end of a job and returns its status. job_id: the job. timeout: longest time to wait; NULL means no limit.';

CREATE FUNCTION bulk_cancel(job_id bigint) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_cancel';

COMMENT ON FUNCTION bulk_cancel(bigint) IS 'cancels a queued or running job. Returns false if the job had ended. job_id: the job.';

CREATE FUNCTION bulk_retry(job_id bigint) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_retry';

COMMENT ON FUNCTION bulk_retry(bigint)
IS 'puts a failed or canceled job into the queue again. Returns false if the job had another status. job_id: the job.';

CREATE FUNCTION bulk_pause() RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_pause';

COMMENT ON FUNCTION bulk_pause() IS 'starts no more jobs in this database. Returns false if the queue was paused already.';

CREATE FUNCTION bulk_resume() RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_resume';

COMMENT ON FUNCTION bulk_resume() IS 'starts jobs in this database again. Returns false if the queue was not paused.';

CREATE FUNCTION bulk_prioritize(job_id bigint, priority integer) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_prioritize';

COMMENT ON FUNCTION bulk_prioritize(bigint, integer)
IS 'changes the priority of a queued job. Returns false if the job had another status. job_id: the job. priority: the new priority; jobs with a lower number run first.';

REVOKE ALL ON FUNCTION bulk_pause(), bulk_resume(), bulk_prioritize(bigint, integer) FROM PUBLIC;

-- Called by a job's worker, an error in other processes (src/queue/run_job.rs). The job's owner calls it, so PUBLIC may.
CREATE FUNCTION bulk_run_job(job_id bigint, path text, target text, options jsonb) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_run_job';

COMMENT ON FUNCTION bulk_run_job(bigint, text, text, jsonb)
IS 'runs a job in its background worker; not for users. job_id: the job. path, target, options: as enqueued.';

-- Whether a row was written in this database.
CREATE FUNCTION bulk_is_at_home(database oid, cluster bigint) RETURNS boolean
LANGUAGE c STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'bulk_is_at_home';

-- The dispatcher's order of jobs (src/queue/choice.rs): the effective priority, and whether the owner may start a job now.
-- The setting exists when the view is read, since bulk_jobs calls functions of the library before.
CREATE VIEW bulk_queue_order AS
SELECT
    q.job_id, q.owner, q.target, q.alone, q.status, q.run_at,
    CASE
        WHEN q.priority < 0 AND NOT COALESCE(pg_catalog.has_function_privilege(q.owner,
            'bulk_prioritize(bigint, integer)'::regprocedure::oid, 'EXECUTE'), false) THEN 0
        ELSE q.priority
    END AS priority,
    COALESCE(
        (SELECT pg_catalog.count(*) FROM bulk_queue r WHERE r.status = 'running')
            < pg_catalog.current_setting('pg_bulk.max_running_jobs', true)::integer
        OR (SELECT pg_catalog.count(DISTINCT r.owner) FROM bulk_queue r WHERE r.status = 'running')
                < pg_catalog.current_setting('pg_bulk.max_running_jobs', true)::integer
            AND NOT EXISTS (SELECT FROM bulk_queue r WHERE r.status = 'running' AND r.owner = q.owner),
        false) AS has_slot
FROM bulk_queue q
WHERE q.status IN ('queued', 'running');
REVOKE ALL ON TABLE bulk_queue_order FROM PUBLIC;

-- A job is running if its process holds its lock, even if the table has another status. A standby does not know the locks. The load
-- reports its progress (src/server/progress.rs).
CREATE VIEW bulk_jobs WITH (security_barrier) AS
SELECT
    q.job_id,
    -- The present name, or the former one. Citus hides shards in every query of pg_class: an outer join with it would
    -- return no row.
    COALESCE(
        (SELECT c.oid::regclass::text FROM pg_catalog.pg_class c WHERE c.oid = CASE WHEN h.at_home THEN q.target ELSE (
            SELECT o.oid FROM pg_catalog.pg_class o JOIN pg_catalog.pg_namespace n ON n.oid = o.relnamespace
            WHERE o.relname = q.target_name AND n.nspname = q.target_schema
        ) END),
        pg_catalog.format('%I.%I', q.target_schema, q.target_name)) AS target,
    q.path,
    q.options,
    COALESCE(w.rolname, q.owner_name) AS owner,
    q.priority,
    s.status,
    CASE
        WHEN s.status <> 'queued' THEN NULL
        WHEN (SELECT p.paused FROM bulk_queue_state p LIMIT 1) THEN 'pause'
        WHEN q.run_at > pg_catalog.clock_timestamp() THEN 'run_at'
        WHEN EXISTS (
            SELECT FROM bulk_queue_order o
            WHERE o.target = q.target AND o.alone AND o.job_id <> q.job_id
                AND (o.status = 'running'
                    OR (o.run_at <= pg_catalog.clock_timestamp() AND (o.owner = q.owner OR o.has_slot)
                        AND (o.priority, o.run_at, o.job_id) < (
                            SELECT w.priority, w.run_at, w.job_id FROM bulk_queue_order w WHERE w.job_id = q.job_id)))
        ) OR q.alone AND EXISTS (
            SELECT FROM bulk_queue_order o
            WHERE o.target = q.target AND o.job_id <> q.job_id
                AND (o.status = 'running'
                    OR (o.run_at <= pg_catalog.clock_timestamp() AND (o.owner = q.owner OR o.has_slot)
                        AND (o.priority, o.run_at, o.job_id) < (
                            SELECT w.priority, w.run_at, w.job_id FROM bulk_queue_order w WHERE w.job_id = q.job_id)))
        ) THEN 'target'
        ELSE 'worker slot'
    END AS waits_for,
    q.attempt,
    q.max_attempts,
    q.enqueued_at,
    q.run_at,
    q.started_at,
    q.finished_at,
    l.pid,
    COALESCE(q.rows_loaded, r.param3) AS rows_loaded,
    COALESCE(q.rows_rejected, r.param19) AS rows_rejected,
    q.rows_duplicate,
    COALESCE(q.bytes_read, r.param1) AS bytes_read,
    COALESCE(q.bytes_total, r.param2) AS bytes_total,
    CASE WHEN s.status = 'running' THEN
        (ARRAY['prepare', 'rows', 'indexes', 'rebuild', 'foreign keys', 'triggers', 'analyze'])[COALESCE(r.param8, 0) + 1]
    END AS phase,
    COALESCE(q.workers, r.param18)::integer AS workers,
    q.error_sqlstate,
    q.error_message
FROM bulk_queue q
CROSS JOIN LATERAL (
    SELECT bulk_owner(q.owner, q.owner_name, q.cluster), bulk_is_at_home(q.database, q.cluster),
        (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
) h (owner, at_home, database)
LEFT JOIN pg_catalog.pg_roles w ON w.oid = h.owner
LEFT JOIN pg_catalog.pg_locks l
    ON l.locktype = 'object' AND l.granted AND l.mode = 'ExclusiveLock'
    AND l.database = h.database
    AND l.classid = 'bulk_queue'::regclass::oid
    AND l.objid::bigint = q.job_id & 4294967295 AND l.objsubid = q.job_id >> 32 & 65535
    AND q.status = 'running'
LEFT JOIN pg_catalog.pg_stat_get_progress_info('COPY') r ON r.pid = l.pid AND r.param20 = q.job_id
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN q.status IN ('queued', 'running') AND q.database <> h.database THEN 'canceled'
        WHEN q.status = 'running' AND l.pid IS NULL AND NOT pg_catalog.pg_is_in_recovery() THEN 'queued'
        ELSE q.status
    END
) s (status)
WHERE pg_catalog.pg_has_role(h.owner, 'USAGE');

GRANT SELECT ON bulk_jobs TO PUBLIC;

COMMENT ON TABLE bulk_queue IS 'jobs; read them in the view bulk_jobs';
COMMENT ON TABLE bulk_queue_state IS 'one row: whether the queue of this database is paused';
COMMENT ON FUNCTION bulk_is_at_home(oid, bigint)
IS 'returns whether a row of the queue was written in this database; not for users. database: OID of the database of the row. cluster: system identifier of the server that wrote it.';
COMMENT ON VIEW bulk_queue_order IS 'queued and running jobs as the dispatcher sees them; not for users';
COMMENT ON COLUMN bulk_queue_order.job_id IS 'number of the job';
COMMENT ON COLUMN bulk_queue_order.owner IS 'OID of the role that enqueued the job';
COMMENT ON COLUMN bulk_queue_order.target IS 'OID of the table';
COMMENT ON COLUMN bulk_queue_order.alone IS 'whether no other job may load into the table at the same time';
COMMENT ON COLUMN bulk_queue_order.status IS 'queued or running';
COMMENT ON COLUMN bulk_queue_order.run_at IS 'earliest start of the next attempt';
COMMENT ON COLUMN bulk_queue_order.priority IS 'priority that counts: 0 for a negative one if the owner may not call bulk_prioritize';
COMMENT ON COLUMN bulk_queue_order.has_slot IS 'whether the owner may start a job now, as far as pg_bulk.max_running_jobs allows';
COMMENT ON VIEW bulk_jobs IS 'jobs of the queue; a role sees those of roles whose privileges it has';
COMMENT ON COLUMN bulk_jobs.job_id IS 'number of the job, and of its load';
COMMENT ON COLUMN bulk_jobs.target IS 'table: its present name, or its last known name';
COMMENT ON COLUMN bulk_jobs.path IS 'file';
COMMENT ON COLUMN bulk_jobs.options IS 'options of the load';
COMMENT ON COLUMN bulk_jobs.owner IS 'role that enqueued the job: its present name, or its last known name';
COMMENT ON COLUMN bulk_jobs.priority IS 'priority; jobs with a lower number run first';
COMMENT ON COLUMN bulk_jobs.status IS 'queued, running, succeeded, failed or canceled';
COMMENT ON COLUMN bulk_jobs.waits_for IS 'what a queued job waits for: pause (bulk_resume is required), run_at, target (another job of the same table) or worker slot';
COMMENT ON COLUMN bulk_jobs.attempt IS 'number of attempts so far';
COMMENT ON COLUMN bulk_jobs.max_attempts IS 'number of attempts after temporary errors';
COMMENT ON COLUMN bulk_jobs.enqueued_at IS 'time at which the job was enqueued';
COMMENT ON COLUMN bulk_jobs.run_at IS 'earliest start of the next attempt';
COMMENT ON COLUMN bulk_jobs.started_at IS 'start of the last attempt';
COMMENT ON COLUMN bulk_jobs.finished_at IS 'time at which the job ended';
COMMENT ON COLUMN bulk_jobs.pid IS 'process ID of the background worker of a running job';
COMMENT ON COLUMN bulk_jobs.rows_loaded IS 'rows that were inserted, so far for a running job';
COMMENT ON COLUMN bulk_jobs.rows_rejected IS 'rows that on_error skipped or rejected, so far for a running job';
COMMENT ON COLUMN bulk_jobs.rows_duplicate IS 'rows that on_duplicate left out';
COMMENT ON COLUMN bulk_jobs.bytes_read IS 'bytes that were read, so far for a running job';
COMMENT ON COLUMN bulk_jobs.bytes_total IS 'size of the files in bytes';
COMMENT ON COLUMN bulk_jobs.phase IS 'phase of a running job: prepare, rows, indexes, rebuild, foreign keys, triggers or analyze';
COMMENT ON COLUMN bulk_jobs.workers IS 'number of parallel workers';
COMMENT ON COLUMN bulk_jobs.error_sqlstate IS 'SQLSTATE of the last error';
COMMENT ON COLUMN bulk_jobs.error_message IS 'message of the last error';
