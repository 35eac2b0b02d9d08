-- Not STRICT: a NULL argument is an error, not an empty result.
CREATE FUNCTION bulk_load(path text, target regclass, options jsonb DEFAULT '{}') RETURNS TABLE (
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

COMMENT ON FUNCTION bulk_load(text, regclass, jsonb)
IS 'loads a file into a table in the current transaction. path: file, directory, pattern or, with the option program, shell command. target: the table. options: JSON object of options, see docs/reference/options.md. Returns one row with the figures of the load.';

-- bulk_load of a file's bytes. Not STRICT either.
CREATE FUNCTION bulk_load(data bytea, target regclass, options jsonb DEFAULT '{}') RETURNS TABLE (
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

COMMENT ON FUNCTION bulk_load(bytea, regclass, jsonb)
IS 'loads the bytes of a value into a table in the current transaction. data: the contents of a file. target: the table. options: JSON object of options, see docs/reference/options.md. Returns one row with the figures of the load.';

CREATE FUNCTION bulk_read(path text, options jsonb DEFAULT '{}') RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_read';

COMMENT ON FUNCTION bulk_read(text, jsonb)
IS 'returns the rows of a file; call it in FROM with a column definition list. path: file, directory, pattern or, with the option program, shell command. options: JSON object of options, see docs/reference/options.md.';

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

COMMENT ON FUNCTION bulk_sniff(text, jsonb)
IS 'finds out the format, header and column types of a file, and proposes statements for a table. path: file, directory, pattern or, with the option program, shell command. options: JSON object of options, see docs/reference/options.md.';

-- bulk_load with a name as its target, which option `create` creates. Calls with literals resolve to this function. It has no default,
-- so calls without options resolve to the regclass one. Not STRICT either.
CREATE FUNCTION bulk_load(path text, target text, options jsonb) RETURNS TABLE (
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

COMMENT ON FUNCTION bulk_load(text, text, jsonb)
IS 'loads a file into a table in the current transaction, or into a new table. path: file, directory, pattern or, with the option program, shell command. target: name of the table; with the option create, of the new table. options: JSON object of options, see docs/reference/options.md. Returns one row with the figures of the load.';

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

COMMENT ON FUNCTION bulk_load(text, regclass, jsonb, text[])
IS 'loads a file into a table in the current transaction. path: file, directory, pattern or, with the option program, shell command. target: the table. options: JSON object of options, see docs/reference/options.md. allow: names of options that a SECURITY DEFINER function sets itself and that pg_bulk would otherwise refuse there. Returns one row with the figures of the load.';

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

COMMENT ON FUNCTION bulk_load(bytea, regclass, jsonb, text[])
IS 'loads the bytes of a value into a table in the current transaction. data: the contents of a file. target: the table. options: JSON object of options, see docs/reference/options.md. allow: names of options that a SECURITY DEFINER function sets itself and that pg_bulk would otherwise refuse there. Returns one row with the figures of the load.';

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

COMMENT ON FUNCTION bulk_load(text, text, jsonb, text[])
IS 'loads a file into a table in the current transaction, or into a new table. path: file, directory, pattern or, with the option program, shell command. target: name of the table; with the option create, of the new table. options: JSON object of options, see docs/reference/options.md. allow: names of options that a SECURITY DEFINER function sets itself and that pg_bulk would otherwise refuse there. Returns one row with the figures of the load.';

CREATE FUNCTION bulk_read(path text, options jsonb, allow text[]) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_read';

COMMENT ON FUNCTION bulk_read(text, jsonb, text[])
IS 'returns the rows of a file; call it in FROM with a column definition list. path: file, directory, pattern or, with the option program, shell command. options: JSON object of options, see docs/reference/options.md. allow: names of options that a SECURITY DEFINER function sets itself and that pg_bulk would otherwise refuse there.';

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

COMMENT ON FUNCTION bulk_sniff(text, jsonb, text[])
IS 'finds out the format, header and column types of a file, and proposes statements for a table. path: file, directory, pattern or, with the option program, shell command. options: JSON object of options, see docs/reference/options.md. allow: names of options that a SECURITY DEFINER function sets itself and that pg_bulk would otherwise refuse there.';

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

COMMENT ON FUNCTION bulk_create(text, text, jsonb, text[])
IS 'creates a table with the columns of a file and loads the file into it, in the current transaction. path: file, directory, pattern or, with the option program, shell command. target: name of the new table. options: JSON object of options, see docs/reference/options.md. allow: names of options that a SECURITY DEFINER function sets itself and that pg_bulk would otherwise refuse there. Returns one row with the figures of the load.';

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

COMMENT ON FUNCTION bulk_create(text, text, jsonb)
IS 'creates a table with the columns of a file and loads the file into it, in the current transaction. path: file, directory, pattern or, with the option program, shell command. target: name of the new table. options: JSON object of options, see docs/reference/options.md. Returns one row with the figures of the load.';

-- bulk_load passes rows to its INSERT by this function. Other calls fail: each load has a random token.
CREATE FUNCTION bulk_rows(target anyelement, token bigint) RETURNS SETOF anyelement
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_rows';

-- A trigger on each table of the extension: rows from logical replication belong to another server (src/queue/local.rs).
CREATE FUNCTION bulk_keep_local() RETURNS trigger
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_keep_local';

-- The local role of a row's owner, 0 if there is none; a dump may be restored in another cluster (src/queue/home.rs).
CREATE FUNCTION bulk_owner(owner oid, owner_name name, cluster bigint) RETURNS oid
LANGUAGE c STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'bulk_owner';

-- bulk_load itself takes load_ids from it; no role needs a privilege on it.
CREATE SEQUENCE bulk_load_id_seq;
SELECT pg_catalog.pg_extension_config_dump('@extschema@.bulk_load_id_seq', '');

COMMENT ON FUNCTION bulk_rows(anyelement, bigint)
IS 'returns the rows of a running load to the INSERT of its buffered writer; not for users. target: NULL of the row type. token: random number of the load.';
COMMENT ON FUNCTION bulk_keep_local() IS 'trigger of the tables of pg_bulk: skips rows that logical replication applies';
COMMENT ON FUNCTION bulk_owner(oid, name, bigint)
IS 'returns the OID of the role that owns a row of pg_bulk in this database, or 0; not for users. owner, owner_name: OID and name of the role when the row was written. cluster: system identifier of the server that wrote it.';
COMMENT ON SEQUENCE bulk_load_id_seq IS 'numbers of loads and jobs';
