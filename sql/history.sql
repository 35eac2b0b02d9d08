-- A row for each load that succeeded, written in the loading transaction, and for each job that failed or was
-- canceled while it ran. Only the library reads and writes the table (by no SQL statement, under no
-- privilege). Dumps include it, since it is useful after a restore.
CREATE TABLE bulk_loads (
    load_id bigint NOT NULL,
    target text NOT NULL,
    path text NOT NULL,
    owner oid NOT NULL,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    rows_loaded bigint NOT NULL,
    rows_rejected bigint NOT NULL,
    rows_duplicate bigint NOT NULL,
    rows_filtered bigint NOT NULL,
    -- NULL for a failed load.
    bytes_read bigint,
    seconds double precision NOT NULL,
    writer text,
    workers integer,
    indexes jsonb NOT NULL,
    notes text[] NOT NULL,
    -- As in bulk_queue.
    owner_name text NOT NULL,
    cluster bigint NOT NULL,
    -- Only for jobs.
    attempt integer,
    status text NOT NULL,
    error_sqlstate text,
    error_message text,
    -- For several files: the counts and the error of each (src/load/files.rs).
    files jsonb
) USING heap;
REVOKE ALL ON bulk_loads FROM PUBLIC;
CREATE TRIGGER keep_local BEFORE INSERT OR UPDATE OR DELETE ON bulk_loads FOR EACH ROW EXECUTE FUNCTION bulk_keep_local();
ALTER TABLE bulk_loads ENABLE REPLICA TRIGGER keep_local;
SELECT pg_catalog.pg_extension_config_dump('@extschema@.bulk_loads', '');

-- The rows that the caller may see: loads of roles whose privileges he has, or all loads with those of pg_read_all_stats.
CREATE FUNCTION bulk_finished_loads() RETURNS SETOF bulk_loads
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_finished_loads';

CREATE VIEW bulk_history WITH (security_barrier) AS
SELECT f.load_id, f.target, f.path, COALESCE(r.rolname, f.owner_name) AS owner, f.started_at, f.finished_at,
    f.rows_loaded, f.rows_rejected, f.rows_duplicate, f.rows_filtered, f.bytes_read, f.seconds, f.writer, f.workers,
    f.indexes, f.notes, f.attempt, f.status, f.error_sqlstate, f.error_message
FROM @extschema@.bulk_finished_loads() f
LEFT JOIN pg_catalog.pg_roles r ON r.oid = @extschema@.bulk_owner(f.owner, f.owner_name::name, f.cluster);
GRANT SELECT ON bulk_history TO PUBLIC;

COMMENT ON VIEW bulk_history IS 'loads that have ended';

CREATE VIEW bulk_load_files WITH (security_barrier) AS
SELECT f.load_id, f.target, x.path, x.files, x.rows_read, x.rows_loaded, x.rows_rejected, x.rows_duplicate,
    x.rows_filtered, x.bytes_read, f.attempt, COALESCE(x.status, 'loaded') AS status, x.error_message
FROM @extschema@.bulk_finished_loads() f
CROSS JOIN LATERAL pg_catalog.jsonb_to_recordset(f.files) x (path text, files integer, rows_read bigint,
    rows_loaded bigint, rows_rejected bigint, rows_duplicate bigint, rows_filtered bigint, bytes_read bigint,
    status text, error_message text);
GRANT SELECT ON bulk_load_files TO PUBLIC;

COMMENT ON VIEW bulk_load_files IS 'what became of each file of loads over several';
