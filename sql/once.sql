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
