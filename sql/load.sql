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

COMMENT ON FUNCTION bulk_load(text, regclass, jsonb) IS 'load a file into a table, in this transaction';

CREATE FUNCTION bulk_read(path text, options jsonb DEFAULT '{}') RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_read';

COMMENT ON FUNCTION bulk_read(text, jsonb) IS 'the rows of a file; call it in FROM, with a column definition list';

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

-- How bulk_load hands rows to an INSERT. It answers no other call: the token is a load's own, made at random.
CREATE FUNCTION bulk_rows(target anyelement, token bigint) RETURNS SETOF anyelement
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_rows';

-- On each table of the extension: rows that logical replication brings are another server's (src/queue/local.rs).
CREATE FUNCTION bulk_keep_local() RETURNS trigger
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_keep_local';

-- The role that a row's owner is here, 0 if there is none; a dump may be restored elsewhere (src/queue/home.rs).
CREATE FUNCTION bulk_owner(owner oid, owner_name name, cluster bigint) RETURNS oid
LANGUAGE c STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'bulk_owner';

-- Loads are numbered by bulk_load itself; nobody needs rights on it.
CREATE SEQUENCE bulk_load_id_seq;
SELECT pg_catalog.pg_extension_config_dump('@extschema@.bulk_load_id_seq', '');
