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

COMMENT ON VIEW bulk_load_files IS 'what became of each file of loads over several';

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

    COMMENT ON FUNCTION @extschema@.bulk_check(text, regclass, jsonb)
    IS 'the rows of a file that a load would reject, without a load';

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

    COMMENT ON FUNCTION @extschema@.bulk_load(bytea, regclass, jsonb) IS 'load a file that is a value into a table, in this transaction';

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

    COMMENT ON FUNCTION @extschema@.bulk_load(text, text, jsonb) IS 'load a file into a table of that name, or into one that it makes, in this transaction';

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

COMMENT ON VIEW bulk_once IS 'files that are not loaded again';

CREATE FUNCTION bulk_forget(target regclass, path text DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_forget';

COMMENT ON FUNCTION bulk_forget(regclass, text) IS 'forget what was loaded into a table with option once; says of how many files';

CREATE FUNCTION bulk_sniff(path text, options jsonb DEFAULT '{}') RETURNS TABLE (
    format text,
    delimiter text,
    quote text,
    escape text,
    header boolean,
    line_end text,
    compression text,
    rows_sampled bigint,
    complete boolean,
    columns jsonb,
    options jsonb,
    create_table text,
    create_foreign_table text,
    notes text[]
)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
AS 'MODULE_PATHNAME', 'bulk_sniff';

COMMENT ON FUNCTION bulk_sniff(text, jsonb) IS 'what a file is: dialect, header, columns and their types, statements that make a table of it';

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

COMMENT ON FUNCTION bulk_load(text, regclass, jsonb, text[]) IS 'load a file into a table, in this transaction';

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

COMMENT ON FUNCTION bulk_load(bytea, regclass, jsonb, text[]) IS 'load a file that is a value into a table, in this transaction';

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

COMMENT ON FUNCTION bulk_load(text, text, jsonb, text[]) IS 'load a file into a table of that name, or into one that it makes, in this transaction';

CREATE FUNCTION bulk_read(path text, options jsonb, allow text[]) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_read';

COMMENT ON FUNCTION bulk_read(text, jsonb, text[]) IS 'the rows of a file; call it in FROM, with a column definition list';

CREATE FUNCTION bulk_sniff(path text, options jsonb, allow text[]) RETURNS TABLE (
    format text,
    delimiter text,
    quote text,
    escape text,
    header boolean,
    line_end text,
    compression text,
    rows_sampled bigint,
    complete boolean,
    columns jsonb,
    options jsonb,
    create_table text,
    create_foreign_table text,
    notes text[]
)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
AS 'MODULE_PATHNAME', 'bulk_sniff';

COMMENT ON FUNCTION bulk_sniff(text, jsonb, text[]) IS 'what a file is: dialect, header, columns and their types, statements that make a table of it';

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

COMMENT ON FUNCTION bulk_check(text, regclass, jsonb, text[]) IS 'the rows of a file that a load would reject, without a load';

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

COMMENT ON FUNCTION bulk_enqueue(text, regclass, jsonb, text[], integer, timestamptz, integer)
IS 'have a background worker load a file into a table, once this transaction has committed';

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

COMMENT ON FUNCTION bulk_run_job(bigint, text, text, jsonb) IS 'what the worker of a job runs; not to be called';

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
    sniffing CONSTANT pg_catalog.text[] := '{format,delimiter,quote,escape,null,header,encoding,compression,program,server,sample}';
    -- Types whose names are not SQL keywords: without a schema, they could be those of another schema.
    bare CONSTANT pg_catalog.text[] := '{date,json,jsonb,text,timestamptz,uuid}';
    parts pg_catalog.text[];
    made pg_catalog.text;
    making pg_catalog.text;
    given pg_catalog.jsonb;
    loading pg_catalog.jsonb;
    forced pg_catalog.jsonb;
    sniffed pg_catalog.record;
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
    SELECT * INTO sniffed FROM @extschema@.bulk_sniff(path, given, allow);
    SELECT pg_catalog.format('CREATE TABLE %s (%s)', made, pg_catalog.string_agg(pg_catalog.format('%I %s%s', c.name,
        CASE WHEN c.type OPERATOR(pg_catalog.=) ANY (bare) THEN 'pg_catalog.' END, c.type), ', ' ORDER BY c.number)) INTO making
    FROM (SELECT number, value OPERATOR(pg_catalog.->>) 'name'::pg_catalog.text, value OPERATOR(pg_catalog.->>) 'type'::pg_catalog.text
        FROM pg_catalog.jsonb_array_elements(sniffed.columns) WITH ORDINALITY t (value, number)) c (number, name, type);
    EXECUTE making;
    RAISE NOTICE USING MESSAGE = making;
    loading := (options OPERATOR(pg_catalog.-) '{sample,create}'::pg_catalog.text[]) OPERATOR(pg_catalog.||) sniffed.options;
    -- force_null has the caller's columns, and those that bulk_sniff found.
    forced := options OPERATOR(pg_catalog.->) 'force_null'::pg_catalog.text;
    IF pg_catalog.jsonb_typeof(forced) OPERATOR(pg_catalog.=) 'array' AND pg_catalog.jsonb_typeof(sniffed.options OPERATOR(pg_catalog.->) 'force_null'::pg_catalog.text) OPERATOR(pg_catalog.=) 'array' THEN
        SELECT pg_catalog.jsonb_agg(DISTINCT value) INTO forced
        FROM pg_catalog.jsonb_array_elements(forced OPERATOR(pg_catalog.||) (sniffed.options OPERATOR(pg_catalog.->) 'force_null'::pg_catalog.text)) t (value);
    END IF;
    IF pg_catalog.jsonb_typeof(forced) OPERATOR(pg_catalog.<>) 'null' THEN
        loading := loading OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object('force_null', forced);
    END IF;
    RETURN QUERY SELECT l.load_id, l.rows_loaded, l.rows_rejected, l.rows_duplicate, l.rows_filtered, l.bytes_read, l.seconds, l.writer, l.workers,
        l.indexes, pg_catalog.array_cat(sniffed.notes, l.notes)
    FROM @extschema@.bulk_load(path, made::pg_catalog.regclass, loading, allow) l;
END
$function$;

COMMENT ON FUNCTION bulk_create(text, text, jsonb, text[]) IS 'make a table of a file, and load the file into it, in this transaction';

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

COMMENT ON FUNCTION bulk_create(text, text, jsonb) IS 'make a table of a file, and load the file into it, in this transaction';

-- The queue: the attempt that a crash ended; an index for the jobs of each owner (src/queue/choice.rs); the privilege for priorities below 0.
ALTER TABLE bulk_queue ADD COLUMN crashed_in integer;
DROP INDEX bulk_queue_queued;
CREATE INDEX bulk_queue_queued ON bulk_queue (owner, priority, run_at, job_id) WHERE status = 'queued';

CREATE FUNCTION bulk_prioritize(job_id bigint, priority integer) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_prioritize';

COMMENT ON FUNCTION bulk_prioritize(bigint, integer) IS 'change the priority of a job that is queued';

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
-- reports its progress (src/pg/progress.rs).
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
