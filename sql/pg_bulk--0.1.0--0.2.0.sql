-- From 0.1.0 to 0.2.0: counts for each file of a load, the file of each reject, option once, `allow`, bulk_create, changes of the queue.

\echo Use "ALTER EXTENSION pg_bulk UPDATE TO '0.2.0'" to load this file. \quit

-- For several files: the counts and the error of each (src/load/files.rs).
ALTER TABLE bulk_loads ADD COLUMN files jsonb;

-- The unchanged view, created again because its function returns one more column.
CREATE OR REPLACE VIEW bulk_history WITH (security_barrier) AS
SELECT f.load_id, f.target, f.path, COALESCE(r.rolname, f.owner_name) AS owner, f.started_at, f.finished_at,
    f.rows_loaded, f.rows_rejected, f.rows_duplicate, f.rows_filtered, f.bytes_read, f.seconds, f.writer, f.workers,
    f.indexes, f.notes, f.attempt, f.status, f.error_sqlstate, f.error_message
FROM @extschema@.bulk_finished_loads() f
LEFT JOIN pg_catalog.pg_roles r ON r.oid = @extschema@.bulk_owner(f.owner, f.owner_name::name, f.cluster);

CREATE VIEW bulk_load_files WITH (security_barrier) AS
SELECT f.load_id, f.target, x.path, x.files, x.rows_read, x.rows_loaded, x.rows_rejected, x.rows_duplicate,
    x.rows_filtered, x.bytes_read, f.attempt, COALESCE(x.status, 'loaded') AS status, x.error_message
FROM @extschema@.bulk_finished_loads() f
CROSS JOIN LATERAL pg_catalog.jsonb_to_recordset(f.files) x (path text, files integer, rows_read bigint,
    rows_loaded bigint, rows_rejected bigint, rows_duplicate bigint, rows_filtered bigint, bytes_read bigint,
    status text, error_message text);
GRANT SELECT ON bulk_load_files TO PUBLIC;

-- One more column, for which the function must be dropped and created. Its privileges stay.
DO $do$
DECLARE
    old_function CONSTANT oid := '@extschema@.bulk_check(text, regclass, jsonb)'::pg_catalog.regprocedure;
    old_rights CONSTANT aclitem[] := (SELECT p.proacl FROM pg_catalog.pg_proc p WHERE p.oid = old_function);
    owner CONSTANT oid := (SELECT p.proowner FROM pg_catalog.pg_proc p WHERE p.oid = old_function);
    statement text;
BEGIN
    DROP FUNCTION @extschema@.bulk_check(text, regclass, jsonb);

    CREATE FUNCTION @extschema@.bulk_check(path text, target regclass, options jsonb DEFAULT '{}') RETURNS TABLE (
        line_number bigint,
        byte_offset bigint,
        column_name text,
        raw_field text,
        raw_line text,
        raw_bytes bytea,
        sqlstate text,
        message text,
        constraint_name text,
        rejected_at timestamp with time zone,
        path text
    )
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'bulk_check';

    EXECUTE pg_catalog.format('ALTER FUNCTION @extschema@.bulk_check(text, regclass, jsonb) OWNER TO %s', owner::pg_catalog.regrole);
    IF old_rights IS NOT NULL THEN
        REVOKE ALL ON FUNCTION @extschema@.bulk_check(text, regclass, jsonb) FROM PUBLIC;
        FOR statement IN
            SELECT pg_catalog.format('GRANT EXECUTE ON FUNCTION @extschema@.bulk_check(text, regclass, jsonb) TO %s%s',
                CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::pg_catalog.regrole::text END,
                CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END)
            FROM pg_catalog.aclexplode(old_rights) a WHERE a.grantee <> owner
        LOOP
            EXECUTE statement;
        END LOOP;
        -- These privileges are an administrator's, not the extension's initial ones: dumps must include them.
        DELETE FROM pg_catalog.pg_init_privs i
        WHERE i.classoid = 'pg_catalog.pg_proc'::pg_catalog.regclass
            AND i.objoid = '@extschema@.bulk_check(text, regclass, jsonb)'::pg_catalog.regprocedure;
    END IF;
END
$do$;

-- bulk_load of a file's bytes, and with a name as its target. The former gets the privileges of bulk_load of files. PUBLIC may call the latter,
-- which itself checks EXECUTE on the functions that it calls: privileges granted on these later count for it, too.
DO $do$
DECLARE
    model CONSTANT oid := '@extschema@.bulk_load(text, regclass, jsonb)'::pg_catalog.regprocedure;
    rights CONSTANT aclitem[] := (SELECT p.proacl FROM pg_catalog.pg_proc p WHERE p.oid = model);
    owner CONSTANT oid := (SELECT p.proowner FROM pg_catalog.pg_proc p WHERE p.oid = model);
    other pg_catalog.regprocedure;
    statement text;
BEGIN
    CREATE FUNCTION @extschema@.bulk_load(data bytea, target regclass, options jsonb DEFAULT '{}') RETURNS TABLE (
        load_id bigint,
        rows_loaded bigint,
        rows_rejected bigint,
        rows_duplicate bigint,
        rows_filtered bigint,
        bytes_read bigint,
        seconds double precision,
        writer text,
        workers integer,
        indexes jsonb,
        notes text[]
    )
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
    AS 'MODULE_PATHNAME', 'bulk_load_bytea';

    CREATE FUNCTION @extschema@.bulk_load(path text, target text, options jsonb) RETURNS TABLE (
        load_id bigint,
        rows_loaded bigint,
        rows_rejected bigint,
        rows_duplicate bigint,
        rows_filtered bigint,
        bytes_read bigint,
        seconds double precision,
        writer text,
        workers integer,
        indexes jsonb,
        notes text[]
    )
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
    AS 'MODULE_PATHNAME', 'bulk_load_named';

    FOREACH other IN ARRAY ARRAY['@extschema@.bulk_load(bytea, regclass, jsonb)', '@extschema@.bulk_load(text, text, jsonb)']::pg_catalog.regprocedure[] LOOP
        EXECUTE pg_catalog.format('ALTER FUNCTION %s OWNER TO %s', other, owner::pg_catalog.regrole);
        IF other = '@extschema@.bulk_load(text, text, jsonb)'::pg_catalog.regprocedure THEN
            -- This is the default, unless default privileges were altered.
            CONTINUE WHEN (SELECT p.proacl IS NULL FROM pg_catalog.pg_proc p WHERE p.oid = other);
            EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', other);
            CONTINUE;
        END IF;
        CONTINUE WHEN rights IS NULL;
        EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', other);
        FOR statement IN
            SELECT pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO %s%s', other,
                CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::pg_catalog.regrole::text END,
                CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END)
            FROM pg_catalog.aclexplode(rights) a WHERE a.grantee <> owner
        LOOP
            EXECUTE statement;
        END LOOP;
        -- These privileges are an administrator's, not the extension's initial ones: dumps must include them.
        DELETE FROM pg_catalog.pg_init_privs i
        WHERE i.classoid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND i.objoid = other;
    END LOOP;
END
$do$;

-- Files that were loaded with option once (src/load/once.rs), written in the loading transactions. Only the library reads and writes the
-- table (by no SQL statement, under no privilege). Dumps include it, since a restored database has the loaded rows, too.
CREATE TABLE bulk_loaded (
    -- The first half of the hash.
    key bigint NOT NULL,
    hash bytea NOT NULL,
    size bigint NOT NULL,
    path text NOT NULL,
    modified_at timestamp with time zone NOT NULL,
    load_id bigint NOT NULL,
    loaded_at timestamp with time zone NOT NULL,
    target oid NOT NULL,
    target_name text NOT NULL,
    -- As in bulk_queue.
    database oid NOT NULL,
    owner oid NOT NULL,
    owner_name text NOT NULL,
    cluster bigint NOT NULL,
    -- This table's OID, and the transaction that wrote the row: they differ if the row was copied (src/load/once/home.rs).
    home oid NOT NULL,
    made_by xid NOT NULL
) USING heap;
CREATE INDEX bulk_loaded_key ON bulk_loaded (key);
REVOKE ALL ON bulk_loaded FROM PUBLIC;
CREATE TRIGGER keep_local BEFORE INSERT OR UPDATE OR DELETE ON bulk_loaded FOR EACH ROW EXECUTE FUNCTION bulk_keep_local();
ALTER TABLE bulk_loaded ENABLE REPLICA TRIGGER keep_local;
SELECT pg_catalog.pg_extension_config_dump('@extschema@.bulk_loaded', '');

-- The rows that the caller may see: loads of roles whose privileges he has, or all loads with those of pg_read_all_stats.
CREATE FUNCTION bulk_loaded_files() RETURNS SETOF bulk_loaded
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_loaded_files';

CREATE VIEW bulk_once WITH (security_barrier) AS
SELECT f.load_id, f.target_name AS target, f.path, f.size, f.modified_at, pg_catalog.encode(f.hash, 'hex') AS hash,
    COALESCE(r.rolname, f.owner_name) AS owner, f.loaded_at
FROM @extschema@.bulk_loaded_files() f
LEFT JOIN pg_catalog.pg_roles r ON r.oid = @extschema@.bulk_owner(f.owner, f.owner_name::name, f.cluster);
GRANT SELECT ON bulk_once TO PUBLIC;

CREATE FUNCTION bulk_forget(target regclass, path text DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_forget';

CREATE FUNCTION bulk_sniff(path text, options jsonb DEFAULT '{}') RETURNS TABLE (
    format text,
    delimiter text,
    quote text,
    escape text,
    header boolean,
    encoding text,
    columns integer,
    rows bigint,
    details jsonb
)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
AS 'MODULE_PATHNAME', 'bulk_sniff';

-- Overloads with `allow`: options that a SECURITY DEFINER function sets itself (src/load/definer.rs). Each of them checks EXECUTE on the
-- one without it, so privileges that are granted or revoked there count here.
CREATE FUNCTION bulk_load(path text, target regclass, options jsonb, allow text[]) RETURNS TABLE (
    load_id bigint,
    rows_loaded bigint,
    rows_rejected bigint,
    rows_duplicate bigint,
    rows_filtered bigint,
    bytes_read bigint,
    seconds double precision,
    writer text,
    workers integer,
    indexes jsonb,
    notes text[]
)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
AS 'MODULE_PATHNAME', 'bulk_load';

CREATE FUNCTION bulk_load(data bytea, target regclass, options jsonb, allow text[]) RETURNS TABLE (
    load_id bigint,
    rows_loaded bigint,
    rows_rejected bigint,
    rows_duplicate bigint,
    rows_filtered bigint,
    bytes_read bigint,
    seconds double precision,
    writer text,
    workers integer,
    indexes jsonb,
    notes text[]
)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
AS 'MODULE_PATHNAME', 'bulk_load_bytea';

CREATE FUNCTION bulk_load(path text, target text, options jsonb, allow text[]) RETURNS TABLE (
    load_id bigint,
    rows_loaded bigint,
    rows_rejected bigint,
    rows_duplicate bigint,
    rows_filtered bigint,
    bytes_read bigint,
    seconds double precision,
    writer text,
    workers integer,
    indexes jsonb,
    notes text[]
)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
AS 'MODULE_PATHNAME', 'bulk_load_named';

CREATE FUNCTION bulk_read(path text, options jsonb, allow text[]) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_read';

CREATE FUNCTION bulk_sniff(path text, options jsonb, allow text[]) RETURNS TABLE (
    format text,
    delimiter text,
    quote text,
    escape text,
    header boolean,
    encoding text,
    columns integer,
    rows bigint,
    details jsonb
)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
AS 'MODULE_PATHNAME', 'bulk_sniff';

CREATE FUNCTION bulk_check(path text, target regclass, options jsonb, allow text[]) RETURNS TABLE (
    line_number bigint,
    byte_offset bigint,
    column_name text,
    raw_field text,
    raw_line text,
    raw_bytes bytea,
    sqlstate text,
    message text,
    constraint_name text,
    rejected_at timestamp with time zone,
    path text
)
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_check';

-- Here `allow` precedes the arguments with defaults; pass it by name.
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

-- PUBLIC may call them, with any default privileges.
DO $do$
DECLARE
    function pg_catalog.regprocedure;
BEGIN
    FOREACH function IN ARRAY ARRAY['@extschema@.bulk_load(text, regclass, jsonb, text[])', '@extschema@.bulk_load(bytea, regclass, jsonb, text[])',
        '@extschema@.bulk_load(text, text, jsonb, text[])', '@extschema@.bulk_read(text, jsonb, text[])',
        '@extschema@.bulk_sniff(text, jsonb, text[])', '@extschema@.bulk_check(text, regclass, jsonb, text[])',
        '@extschema@.bulk_enqueue(text, regclass, jsonb, text[], integer, timestamptz, integer)']::pg_catalog.regprocedure[]
    LOOP
        CONTINUE WHEN (SELECT p.proacl IS NULL FROM pg_catalog.pg_proc p WHERE p.oid = function);
        EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', function);
    END LOOP;
END
$do$;

-- Called by a job's worker, an error in other processes (src/queue/run_job.rs). The job's owner calls it, so PUBLIC may.
CREATE FUNCTION bulk_run_job(job_id bigint, path text, target text, options jsonb) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_run_job';

-- Creates a table and loads a file into it; bulk_load with option `create` calls it.
CREATE FUNCTION bulk_create(path text, target text, options jsonb, allow text[]) RETURNS TABLE (
    load_id bigint,
    rows_loaded bigint,
    rows_rejected bigint,
    rows_duplicate bigint,
    rows_filtered bigint,
    bytes_read bigint,
    seconds double precision,
    writer text,
    workers integer,
    indexes jsonb,
    notes text[]
)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 1
AS $function$
DECLARE
    sniffing CONSTANT pg_catalog.text[] := '{format,delimiter,trailing_delimiter,skip_blank_lines,comment,line_end,quote,escape,lenient_quotes,null,default,trim,null_if,header,encoding,compression,short_rows,long_rows,program,server,sample}';
    -- Types whose names are not SQL keywords: without a schema, they could be those of another schema.
    bare CONSTANT pg_catalog.text[] := '{date,json,jsonb,text,timestamptz,uuid}';
    parts pg_catalog.text[];
    made pg_catalog.text;
    making pg_catalog.text;
    given pg_catalog.jsonb;
    loading pg_catalog.jsonb;
    forced pg_catalog.jsonb;
    sniffed pg_catalog.jsonb;
    proposed pg_catalog.jsonb;
BEGIN
    IF NOT pg_catalog.has_function_privilege('@extschema@.bulk_create(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb)'::pg_catalog.regprocedure, 'EXECUTE') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = 'permission denied for function bulk_create';
    END IF;
    IF target IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed', MESSAGE = 'target must not be null';
    END IF;
    -- The table is created with the header's names, so a match has no meaning.
    IF pg_catalog.lower(options OPERATOR(pg_catalog.->>) 'header'::pg_catalog.text) OPERATOR(pg_catalog.=) 'match' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'cannot specify header "match" with bulk_create()';
    END IF;
    IF pg_catalog.lower(options OPERATOR(pg_catalog.->>) 'match_by'::pg_catalog.text) OPERATOR(pg_catalog.=) 'name' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'cannot specify match_by "name" with bulk_create()';
    END IF;
    -- CREATE TABLE and a lookup of its name may use different schemas.
    parts := pg_catalog.parse_ident(target);
    IF pg_catalog.cardinality(parts) OPERATOR(pg_catalog.=) 1 AND pg_catalog.current_schema() IS NOT NULL THEN
        parts := pg_catalog.array_prepend(pg_catalog.current_schema()::pg_catalog.text, parts);
    END IF;
    SELECT pg_catalog.string_agg(pg_catalog.quote_ident(part), '.' ORDER BY number) INTO made
    FROM pg_catalog.unnest(parts) WITH ORDINALITY t (part, number);
    IF pg_catalog.jsonb_typeof(options) OPERATOR(pg_catalog.=) 'object' THEN
        SELECT pg_catalog.jsonb_object_agg(key, value) INTO given
        FROM pg_catalog.jsonb_each(options) WHERE key OPERATOR(pg_catalog.=) ANY (sniffing);
        given := '{"sample": "all"}'::pg_catalog.jsonb OPERATOR(pg_catalog.||) coalesce(given, '{}')
            OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object('table', made);
    ELSE
        given := options;
    END IF;
    -- An existing table, or a missing privilege, is an error before the file is read.
    IF pg_catalog.cardinality(parts) OPERATOR(pg_catalog.>) 1 AND pg_catalog.to_regclass(made) IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'duplicate_table',
            MESSAGE = pg_catalog.format('relation "%s" already exists', parts[pg_catalog.cardinality(parts)]);
    END IF;
    IF pg_catalog.cardinality(parts) OPERATOR(pg_catalog.=) 2 AND parts[1] OPERATOR(pg_catalog.<>) 'pg_temp'
        AND NOT pg_catalog.has_schema_privilege(parts[1], 'CREATE') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = pg_catalog.format('permission denied for schema %s', parts[1]);
    END IF;
    SELECT details INTO sniffed FROM @extschema@.bulk_sniff(path, given, allow);
    proposed := sniffed OPERATOR(pg_catalog.->) 'options'::pg_catalog.text;
    -- The caller's columns have the options that the caller chose.
    IF pg_catalog.jsonb_typeof(options OPERATOR(pg_catalog.->) 'columns'::pg_catalog.text) OPERATOR(pg_catalog.<>) 'null' THEN
        proposed := proposed OPERATOR(pg_catalog.-) 'columns'::pg_catalog.text;
    END IF;
    SELECT pg_catalog.format('CREATE TABLE %s (%s)', made, pg_catalog.string_agg(pg_catalog.format('%I %s%s', c.name,
        CASE WHEN c.type OPERATOR(pg_catalog.=) ANY (bare) THEN 'pg_catalog.' END, c.type), ', ' ORDER BY c.number)) INTO making
    FROM (SELECT number, value OPERATOR(pg_catalog.->>) 'name'::pg_catalog.text, value OPERATOR(pg_catalog.->>) 'type'::pg_catalog.text
        FROM pg_catalog.jsonb_array_elements(sniffed OPERATOR(pg_catalog.->) 'columns'::pg_catalog.text) WITH ORDINALITY t (value, number)) c (number, name, type);
    EXECUTE making;
    RAISE NOTICE USING MESSAGE = making;
    loading := proposed OPERATOR(pg_catalog.||) pg_catalog.jsonb_strip_nulls(options OPERATOR(pg_catalog.-) '{sample,create}'::pg_catalog.text[]);
    -- force_null has the caller's columns, and those that bulk_sniff found.
    forced := options OPERATOR(pg_catalog.->) 'force_null'::pg_catalog.text;
    IF pg_catalog.jsonb_typeof(forced) OPERATOR(pg_catalog.=) 'array' AND pg_catalog.jsonb_typeof(proposed OPERATOR(pg_catalog.->) 'force_null'::pg_catalog.text) OPERATOR(pg_catalog.=) 'array' THEN
        SELECT pg_catalog.jsonb_agg(DISTINCT value) INTO forced
        FROM pg_catalog.jsonb_array_elements(forced OPERATOR(pg_catalog.||) (proposed OPERATOR(pg_catalog.->) 'force_null'::pg_catalog.text)) t (value);
    END IF;
    IF pg_catalog.jsonb_typeof(forced) OPERATOR(pg_catalog.<>) 'null' THEN
        loading := loading OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object('force_null', forced);
    END IF;
    RETURN QUERY SELECT l.load_id, l.rows_loaded, l.rows_rejected, l.rows_duplicate, l.rows_filtered, l.bytes_read, l.seconds, l.writer, l.workers,
        l.indexes, pg_catalog.array_cat(ARRAY(SELECT pg_catalog.jsonb_array_elements_text(sniffed OPERATOR(pg_catalog.->) 'notes'::pg_catalog.text)), l.notes)
    FROM @extschema@.bulk_load(path, made::pg_catalog.regclass, loading, allow) l;
END
$function$;

-- bulk_create without `allow`.
CREATE FUNCTION bulk_create(path text, target text, options jsonb DEFAULT '{}') RETURNS TABLE (
    load_id bigint,
    rows_loaded bigint,
    rows_rejected bigint,
    rows_duplicate bigint,
    rows_filtered bigint,
    bytes_read bigint,
    seconds double precision,
    writer text,
    workers integer,
    indexes jsonb,
    notes text[]
)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 1
AS $function$
BEGIN
    RETURN QUERY SELECT * FROM @extschema@.bulk_create(path, target, options, '{}'::pg_catalog.text[]);
END
$function$;

-- The queue: the attempt that a crash ended; an index for the jobs of each owner (src/queue/choice.rs); the privilege for priorities below 0.
ALTER TABLE bulk_queue ADD COLUMN crashed_in integer;
DROP INDEX bulk_queue_queued;
CREATE INDEX bulk_queue_queued ON bulk_queue (owner, priority, run_at, job_id) WHERE status = 'queued';

CREATE FUNCTION bulk_prioritize(job_id bigint, priority integer) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_prioritize';

REVOKE ALL ON FUNCTION bulk_prioritize(bigint, integer) FROM PUBLIC;

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

DO $do$
DECLARE
    owner CONSTANT pg_catalog.regrole := (SELECT c.relowner FROM pg_catalog.pg_class c WHERE c.oid = '@extschema@.bulk_jobs'::pg_catalog.regclass);
BEGIN
    EXECUTE pg_catalog.format('ALTER VIEW @extschema@.bulk_queue_order OWNER TO %s', owner);
    EXECUTE pg_catalog.format('ALTER FUNCTION @extschema@.bulk_prioritize(bigint, integer) OWNER TO %s', owner);
END
$do$;

-- A job is running if its process holds its lock, even if the table has another status. A standby does not know the locks. The load
-- reports its progress (src/server/progress.rs).
CREATE OR REPLACE VIEW bulk_jobs WITH (security_barrier) AS
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

-- The comments of all objects.
COMMENT ON FUNCTION bulk_load(text, regclass, jsonb)
IS 'loads a file into a table in the current transaction. path: file, directory, pattern or, with the option program, shell command. target: the table. options: JSON object of options, see docs/reference/options.md. Returns one row with the figures of the load.';
COMMENT ON FUNCTION bulk_load(bytea, regclass, jsonb)
IS 'loads the bytes of a value into a table in the current transaction. data: the contents of a file. target: the table. options: JSON object of options, see docs/reference/options.md. Returns one row with the figures of the load.';
COMMENT ON FUNCTION bulk_read(text, jsonb)
IS 'returns the rows of a file; call it in FROM with a column definition list. path: file, directory, pattern or, with the option program, shell command. options: JSON object of options, see docs/reference/options.md.';
COMMENT ON FUNCTION bulk_sniff(text, jsonb)
IS 'finds out the format, header and column types of a file, and proposes statements for a table. path: file, directory, pattern or, with the option program, shell command. options: JSON object of options, see docs/reference/options.md.';
COMMENT ON FUNCTION bulk_load(text, text, jsonb)
IS 'loads a file into a table in the current transaction, or into a new table. path: file, directory, pattern or, with the option program, shell command. target: name of the table; with the option create, of the new table. options: JSON object of options, see docs/reference/options.md. Returns one row with the figures of the load.';
COMMENT ON FUNCTION bulk_load(text, regclass, jsonb, text[])
IS 'loads a file into a table in the current transaction. path: file, directory, pattern or, with the option program, shell command. target: the table. options: JSON object of options, see docs/reference/options.md. allow: names of options that a SECURITY DEFINER function sets itself and that pg_bulk would otherwise refuse there. Returns one row with the figures of the load.';
COMMENT ON FUNCTION bulk_load(bytea, regclass, jsonb, text[])
IS 'loads the bytes of a value into a table in the current transaction. data: the contents of a file. target: the table. options: JSON object of options, see docs/reference/options.md. allow: names of options that a SECURITY DEFINER function sets itself and that pg_bulk would otherwise refuse there. Returns one row with the figures of the load.';
COMMENT ON FUNCTION bulk_load(text, text, jsonb, text[])
IS 'loads a file into a table in the current transaction, or into a new table. path: file, directory, pattern or, with the option program, shell command. target: name of the table; with the option create, of the new table. options: JSON object of options, see docs/reference/options.md. allow: names of options that a SECURITY DEFINER function sets itself and that pg_bulk would otherwise refuse there. Returns one row with the figures of the load.';
COMMENT ON FUNCTION bulk_read(text, jsonb, text[])
IS 'returns the rows of a file; call it in FROM with a column definition list. path: file, directory, pattern or, with the option program, shell command. options: JSON object of options, see docs/reference/options.md. allow: names of options that a SECURITY DEFINER function sets itself and that pg_bulk would otherwise refuse there.';
COMMENT ON FUNCTION bulk_sniff(text, jsonb, text[])
IS 'finds out the format, header and column types of a file, and proposes statements for a table. path: file, directory, pattern or, with the option program, shell command. options: JSON object of options, see docs/reference/options.md. allow: names of options that a SECURITY DEFINER function sets itself and that pg_bulk would otherwise refuse there.';
COMMENT ON FUNCTION bulk_create(text, text, jsonb, text[])
IS 'creates a table with the columns of a file and loads the file into it, in the current transaction. path: file, directory, pattern or, with the option program, shell command. target: name of the new table. options: JSON object of options, see docs/reference/options.md. allow: names of options that a SECURITY DEFINER function sets itself and that pg_bulk would otherwise refuse there. Returns one row with the figures of the load.';
COMMENT ON FUNCTION bulk_create(text, text, jsonb)
IS 'creates a table with the columns of a file and loads the file into it, in the current transaction. path: file, directory, pattern or, with the option program, shell command. target: name of the new table. options: JSON object of options, see docs/reference/options.md. Returns one row with the figures of the load.';
COMMENT ON FUNCTION bulk_rows(anyelement, bigint)
IS 'returns the rows of a running load to the INSERT of its buffered writer; not for users. target: NULL of the row type. token: random number of the load.';
COMMENT ON FUNCTION bulk_keep_local() IS 'trigger of the tables of pg_bulk: skips rows that logical replication applies';
COMMENT ON FUNCTION bulk_owner(oid, name, bigint)
IS 'returns the OID of the role that owns a row of pg_bulk in this database, or 0; not for users. owner, owner_name: OID and name of the role when the row was written. cluster: system identifier of the server that wrote it.';
COMMENT ON SEQUENCE bulk_load_id_seq IS 'numbers of loads and jobs';
COMMENT ON TABLE bulk_loads IS 'history of loads; read it in the views bulk_history and bulk_load_files';
COMMENT ON FUNCTION bulk_finished_loads() IS 'returns the rows of bulk_loads that the current role may see; not for users';
COMMENT ON VIEW bulk_history IS 'loads that succeeded, and attempts of jobs that failed or were canceled';
COMMENT ON COLUMN bulk_history.load_id IS 'number of the load or job';
COMMENT ON COLUMN bulk_history.target IS 'table of the load';
COMMENT ON COLUMN bulk_history.path IS 'file';
COMMENT ON COLUMN bulk_history.owner IS 'role that loaded the file';
COMMENT ON COLUMN bulk_history.started_at IS 'time at which the load began';
COMMENT ON COLUMN bulk_history.finished_at IS 'time at which the load ended';
COMMENT ON COLUMN bulk_history.rows_loaded IS 'rows that were inserted';
COMMENT ON COLUMN bulk_history.rows_rejected IS 'rows that on_error skipped or rejected';
COMMENT ON COLUMN bulk_history.rows_duplicate IS 'rows that on_duplicate left out';
COMMENT ON COLUMN bulk_history.rows_filtered IS 'rows that where, the filter or a trigger left out';
COMMENT ON COLUMN bulk_history.bytes_read IS 'bytes of the file that were read; NULL if the load failed';
COMMENT ON COLUMN bulk_history.seconds IS 'duration of the load in seconds';
COMMENT ON COLUMN bulk_history.writer IS 'writer of the rows: direct, buffered or none; NULL if the load failed';
COMMENT ON COLUMN bulk_history.workers IS 'number of parallel workers; NULL if the load failed';
COMMENT ON COLUMN bulk_history.indexes IS 'for each index, the strategy (insert, append, merge, rebuild), its reason and its duration';
COMMENT ON COLUMN bulk_history.notes IS 'sentences about the load, such as the reason for the buffered writer';
COMMENT ON COLUMN bulk_history.attempt IS 'attempt of the job; NULL for a call of bulk_load';
COMMENT ON COLUMN bulk_history.status IS 'succeeded, failed or canceled';
COMMENT ON COLUMN bulk_history.error_sqlstate IS 'SQLSTATE of the error of a failed job';
COMMENT ON COLUMN bulk_history.error_message IS 'message of the error of a failed job';
COMMENT ON VIEW bulk_load_files IS 'results of each file of loads that read several files';
COMMENT ON COLUMN bulk_load_files.load_id IS 'number of the load or job';
COMMENT ON COLUMN bulk_load_files.target IS 'table of the load';
COMMENT ON COLUMN bulk_load_files.path IS 'file; NULL for the sum of further files';
COMMENT ON COLUMN bulk_load_files.files IS 'number of files that this row is about';
COMMENT ON COLUMN bulk_load_files.rows_read IS 'records that were read';
COMMENT ON COLUMN bulk_load_files.rows_loaded IS 'rows that were inserted';
COMMENT ON COLUMN bulk_load_files.rows_rejected IS 'rows that on_error skipped or rejected';
COMMENT ON COLUMN bulk_load_files.rows_duplicate IS 'rows that on_duplicate left out';
COMMENT ON COLUMN bulk_load_files.rows_filtered IS 'rows that where, the filter or a trigger left out';
COMMENT ON COLUMN bulk_load_files.bytes_read IS 'bytes that were read';
COMMENT ON COLUMN bulk_load_files.attempt IS 'attempt of the job; NULL for a call of bulk_load';
COMMENT ON COLUMN bulk_load_files.status IS 'loaded; in a failed job read, failed or not read';
COMMENT ON COLUMN bulk_load_files.error_message IS 'message of the error, of the file that failed';
COMMENT ON TABLE bulk_loaded IS 'files that were loaded with the option once; read them in the view bulk_once';
COMMENT ON FUNCTION bulk_loaded_files() IS 'returns the rows of bulk_loaded that the current role may see; not for users';
COMMENT ON VIEW bulk_once IS 'files that were loaded with the option once, and that such loads skip';
COMMENT ON COLUMN bulk_once.load_id IS 'number of the load or job';
COMMENT ON COLUMN bulk_once.target IS 'table of the load, with its name at that time';
COMMENT ON COLUMN bulk_once.path IS 'path of the file at that time';
COMMENT ON COLUMN bulk_once.size IS 'size of the file in bytes';
COMMENT ON COLUMN bulk_once.modified_at IS 'modification time of the file';
COMMENT ON COLUMN bulk_once.hash IS '128-bit xxHash of the contents of the file, in hexadecimal';
COMMENT ON COLUMN bulk_once.owner IS 'role that loaded the file';
COMMENT ON COLUMN bulk_once.loaded_at IS 'time of the load';
COMMENT ON FUNCTION bulk_forget(regclass, text)
IS 'removes the record of files that were loaded with the option once, so that they can be loaded again. Returns the number of files. target: the table. path: the file; NULL means all files.';
COMMENT ON TABLE bulk_queue IS 'jobs; read them in the view bulk_jobs';
COMMENT ON TABLE bulk_queue_state IS 'one row: whether the queue of this database is paused';
COMMENT ON FUNCTION bulk_enqueue(text, regclass, jsonb, integer, timestamptz, integer)
IS 'adds a job to the queue: after this transaction commits, a background worker loads a file into a table. Returns the number of the job. path: file, directory, pattern or, with the option program, shell command. target: the table. options: JSON object of options, see docs/reference/options.md. priority: jobs with a lower number run first. run_at: earliest start. max_attempts: number of attempts after temporary errors.';
COMMENT ON FUNCTION bulk_enqueue(text, regclass, jsonb, text[], integer, timestamptz, integer)
IS 'adds a job to the queue: after this transaction commits, a background worker loads a file into a table. Returns the number of the job. path: file, directory, pattern or, with the option program, shell command. target: the table. options: JSON object of options, see docs/reference/options.md. allow: names of options that a SECURITY DEFINER function sets itself and that pg_bulk would otherwise refuse there. priority: jobs with a lower number run first. run_at: earliest start. max_attempts: number of attempts after temporary errors.';
COMMENT ON FUNCTION bulk_wait(bigint, interval)
IS 'waits for the end of a job and returns its status. job_id: the job. timeout: longest time to wait; NULL means no limit.';
COMMENT ON FUNCTION bulk_cancel(bigint) IS 'cancels a queued or running job. Returns false if the job had ended. job_id: the job.';
COMMENT ON FUNCTION bulk_retry(bigint)
IS 'puts a failed or canceled job into the queue again. Returns false if the job had another status. job_id: the job.';
COMMENT ON FUNCTION bulk_pause() IS 'starts no more jobs in this database. Returns false if the queue was paused already.';
COMMENT ON FUNCTION bulk_resume() IS 'starts jobs in this database again. Returns false if the queue was not paused.';
COMMENT ON FUNCTION bulk_prioritize(bigint, integer)
IS 'changes the priority of a queued job. Returns false if the job had another status. job_id: the job. priority: the new priority; jobs with a lower number run first.';
COMMENT ON FUNCTION bulk_run_job(bigint, text, text, jsonb)
IS 'runs a job in its background worker; not for users. job_id: the job. path, target, options: as enqueued.';
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
COMMENT ON TABLE bulk_reject IS 'rejected rows of loads; read them in the view bulk_rejects';
COMMENT ON VIEW bulk_rejects IS 'rows that loads with on_error = table rejected; a role sees those of roles whose privileges it has';
COMMENT ON COLUMN bulk_rejects.load_id IS 'number of the load or job';
COMMENT ON COLUMN bulk_rejects.attempt IS 'attempt of the job; 1 for a call of bulk_load';
COMMENT ON COLUMN bulk_rejects.target IS 'table of the load';
COMMENT ON COLUMN bulk_rejects.path IS 'file';
COMMENT ON COLUMN bulk_rejects.line_number IS 'line of the file on which the record begins';
COMMENT ON COLUMN bulk_rejects.byte_offset IS 'position of the record in the file; NULL for files that are converted from another encoding';
COMMENT ON COLUMN bulk_rejects.column_name IS 'column with the error; NULL if the error is not about one column';
COMMENT ON COLUMN bulk_rejects.raw_field IS 'value of that column in the file';
COMMENT ON COLUMN bulk_rejects.raw_line IS 'record as it is in the file, at most 1 MB; NULL if it is not valid text';
COMMENT ON COLUMN bulk_rejects.raw_bytes IS 'record as bytes, if it is not valid text';
COMMENT ON COLUMN bulk_rejects.sqlstate IS 'SQLSTATE of the error';
COMMENT ON COLUMN bulk_rejects.message IS 'message of the error';
COMMENT ON COLUMN bulk_rejects.constraint_name IS 'constraint that the row violates';
COMMENT ON COLUMN bulk_rejects.rejected_at IS 'time at which the load wrote this row';
COMMENT ON FUNCTION bulk_check(text, regclass, jsonb)
IS 'returns the rows of a file that a load would reject, and loads nothing. path: file, directory, pattern or, with the option program, shell command. target: the table. options: JSON object of options, see docs/reference/options.md.';
COMMENT ON FUNCTION bulk_check(text, regclass, jsonb, text[])
IS 'returns the rows of a file that a load would reject, and loads nothing. path: file, directory, pattern or, with the option program, shell command. target: the table. options: JSON object of options, see docs/reference/options.md. allow: names of options that a SECURITY DEFINER function sets itself and that pg_bulk would otherwise refuse there.';
COMMENT ON FUNCTION bulk_fdw_handler() IS 'handler of foreign-data wrapper bulk_fdw';
COMMENT ON FUNCTION bulk_fdw_validator(text[], oid)
IS 'validator of foreign-data wrapper bulk_fdw. options: the options. catalog: OID of the system catalog of the object that has them.';
COMMENT ON FOREIGN DATA WRAPPER bulk_fdw IS 'reads files of the server, and the output of programs, as foreign tables';
COMMENT ON SERVER bulk_files IS 'foreign tables of any file that their user may read';
