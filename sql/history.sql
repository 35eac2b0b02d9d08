-- A row for each load that succeeded, of the transaction that loaded. Written and read by the library alone (no
-- statement, no right); dumped, since it is of use after a restore.
CREATE TABLE bulk_loads (
    load_id bigint NOT NULL,
    target text NOT NULL,
    path text NOT NULL,
    owner regrole NOT NULL,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    rows_loaded bigint NOT NULL,
    rows_rejected bigint NOT NULL,
    rows_duplicate bigint NOT NULL,
    rows_filtered bigint NOT NULL,
    bytes_read bigint NOT NULL,
    seconds double precision NOT NULL,
    writer text NOT NULL,
    workers integer NOT NULL,
    indexes jsonb NOT NULL,
    notes text[] NOT NULL
) USING heap;
REVOKE ALL ON bulk_loads FROM PUBLIC;
CREATE TRIGGER keep_local BEFORE INSERT OR UPDATE OR DELETE ON bulk_loads FOR EACH ROW EXECUTE FUNCTION bulk_keep_local();
ALTER TABLE bulk_loads ENABLE REPLICA TRIGGER keep_local;
SELECT pg_catalog.pg_extension_config_dump('@extschema@.bulk_loads', '');

-- What of it the caller may see: loads of roles whose privileges they have, all of them with those of pg_read_all_stats.
CREATE FUNCTION bulk_finished_loads() RETURNS SETOF bulk_loads
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'bulk_finished_loads';

CREATE VIEW bulk_history WITH (security_barrier) AS
SELECT load_id, target, path, pg_catalog.pg_get_userbyid(owner) AS owner, started_at, finished_at,
    rows_loaded, rows_rejected, rows_duplicate, rows_filtered, bytes_read, seconds, writer, workers, indexes, notes
FROM @extschema@.bulk_finished_loads();
GRANT SELECT ON bulk_history TO PUBLIC;

COMMENT ON VIEW bulk_history IS 'loads that succeeded';
