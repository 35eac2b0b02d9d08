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

CREATE VIEW bulk_load_files WITH (security_barrier) AS
SELECT f.load_id, f.target, x.path, x.files, x.rows_read, x.rows_loaded, x.rows_rejected, x.rows_duplicate,
    x.rows_filtered, x.bytes_read, f.attempt, COALESCE(x.status, 'loaded') AS status, x.error_message
FROM @extschema@.bulk_finished_loads() f
CROSS JOIN LATERAL pg_catalog.jsonb_to_recordset(f.files) x (path text, files integer, rows_read bigint,
    rows_loaded bigint, rows_rejected bigint, rows_duplicate bigint, rows_filtered bigint, bytes_read bigint,
    status text, error_message text);
GRANT SELECT ON bulk_load_files TO PUBLIC;

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

COMMENT ON TABLE bulk_loads IS 'history of loads; read it in the views bulk_history and bulk_load_files';
COMMENT ON FUNCTION bulk_finished_loads() IS 'returns the rows of bulk_loads that the current role may see; not for users';
