-- From 0.1.0 to 0.2.0: what became of each file of a load over several, of which file a rejected row is, and files that are loaded once.

\echo Use "ALTER EXTENSION pg_bulk UPDATE TO '0.2.0'" to load this file. \quit

-- Of several files: what became of each (src/load/files.rs).
ALTER TABLE bulk_loads ADD COLUMN files jsonb;

-- The same view, which is to know that its function returns one column more.
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

-- One column more, for which a function must be made anew. Who may call it stays as it was.
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
        -- These are an administrator's, not those that the extension has by itself: dumps are to tell of them.
        DELETE FROM pg_catalog.pg_init_privs i
        WHERE i.classoid = 'pg_catalog.pg_proc'::pg_catalog.regclass
            AND i.objoid = '@extschema@.bulk_check(text, regclass, jsonb)'::pg_catalog.regprocedure;
    END IF;
END
$do$;

-- The same of a file's bytes, and with a name for the target. Who may load values is who may load files. Names are everybody's to say, since
-- that function asks by itself who may call what it stands for: rights that are given to one of these later count for it, too.
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
            -- Unless somebody's default privileges say otherwise, this is so already.
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
        -- These are an administrator's, not those that the extension has by itself: dumps are to tell of them.
        DELETE FROM pg_catalog.pg_init_privs i
        WHERE i.classoid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND i.objoid = other;
    END LOOP;
END
$do$;

-- Files that were loaded with option once (src/load/once.rs): rows of the transactions that loaded them. Written and read by the
-- library alone (no statement, no right); dumped, since what was loaded is in the restored database, too.
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
    -- As in the queue.
    database oid NOT NULL,
    owner oid NOT NULL,
    owner_name text NOT NULL,
    cluster bigint NOT NULL,
    -- This table, and the transaction that made the row: not those of a row that was copied (src/load/once/home.rs).
    home oid NOT NULL,
    made_by xid NOT NULL
) USING heap;
CREATE INDEX bulk_loaded_key ON bulk_loaded (key);
REVOKE ALL ON bulk_loaded FROM PUBLIC;
CREATE TRIGGER keep_local BEFORE INSERT OR UPDATE OR DELETE ON bulk_loaded FOR EACH ROW EXECUTE FUNCTION bulk_keep_local();
ALTER TABLE bulk_loaded ENABLE REPLICA TRIGGER keep_local;
SELECT pg_catalog.pg_extension_config_dump('@extschema@.bulk_loaded', '');

-- What of it the caller may see: loads of roles whose privileges they have, all of them with those of pg_read_all_stats.
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

-- Called by the worker of a job, and an error elsewhere (src/queue/run_job.rs). The job's owner calls it, so everybody may.
CREATE FUNCTION bulk_run_job(job_id bigint, path text, target text, options jsonb) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_run_job';

COMMENT ON FUNCTION bulk_run_job(bigint, text, text, jsonb) IS 'what the worker of a job runs; not to be called';

-- A load into a table that it makes; what bulk_load does with option `create`.
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
DECLARE
    sniffing CONSTANT pg_catalog.text[] := '{format,delimiter,quote,escape,null,header,encoding,compression,program,server,sample}';
    -- Types that are no words of SQL, and could be those of another schema.
    bare CONSTANT pg_catalog.text[] := '{date,json,jsonb,text,timestamptz,uuid}';
    parts pg_catalog.text[];
    made pg_catalog.text;
    making pg_catalog.text;
    given pg_catalog.jsonb;
    loading pg_catalog.jsonb;
    forced pg_catalog.jsonb;
    sniffed pg_catalog.record;
BEGIN
    IF target IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed', MESSAGE = 'target must not be null';
    END IF;
    -- The table has the header's names, whatever they are.
    IF pg_catalog.lower(options OPERATOR(pg_catalog.->>) 'header'::pg_catalog.text) OPERATOR(pg_catalog.=) 'match' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'cannot specify header "match" with bulk_create()';
    END IF;
    IF pg_catalog.lower(options OPERATOR(pg_catalog.->>) 'match_by'::pg_catalog.text) OPERATOR(pg_catalog.=) 'name' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'cannot specify match_by "name" with bulk_create()';
    END IF;
    -- CREATE TABLE and a search for its name may come to different schemas.
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
    -- What will not be made is not worth reading a file for.
    IF pg_catalog.cardinality(parts) OPERATOR(pg_catalog.>) 1 AND pg_catalog.to_regclass(made) IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'duplicate_table',
            MESSAGE = pg_catalog.format('relation "%s" already exists', parts[pg_catalog.cardinality(parts)]);
    END IF;
    IF pg_catalog.cardinality(parts) OPERATOR(pg_catalog.=) 2 AND parts[1] OPERATOR(pg_catalog.<>) 'pg_temp'
        AND NOT pg_catalog.has_schema_privilege(parts[1], 'CREATE') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = pg_catalog.format('permission denied for schema %s', parts[1]);
    END IF;
    SELECT * INTO sniffed FROM @extschema@.bulk_sniff(path, given);
    SELECT pg_catalog.format('CREATE TABLE %s (%s)', made, pg_catalog.string_agg(pg_catalog.format('%I %s%s', c.name,
        CASE WHEN c.type OPERATOR(pg_catalog.=) ANY (bare) THEN 'pg_catalog.' END, c.type), ', ' ORDER BY c.number)) INTO making
    FROM (SELECT number, value OPERATOR(pg_catalog.->>) 'name'::pg_catalog.text, value OPERATOR(pg_catalog.->>) 'type'::pg_catalog.text
        FROM pg_catalog.jsonb_array_elements(sniffed.columns) WITH ORDINALITY t (value, number)) c (number, name, type);
    EXECUTE making;
    RAISE NOTICE USING MESSAGE = making;
    loading := (options OPERATOR(pg_catalog.-) '{sample,create}'::pg_catalog.text[]) OPERATOR(pg_catalog.||) sniffed.options;
    -- Columns are forced by who says so, and by what was seen.
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
    FROM @extschema@.bulk_load(path, made::pg_catalog.regclass, loading) l;
END
$function$;

COMMENT ON FUNCTION bulk_create(text, text, jsonb) IS 'make a table of a file, and load the file into it, in this transaction';
