-- Rejects of loads with on_error 'table'. Only the library writes the table: no other role has a privilege on it, and
-- the view shows each role the rejects of its own loads.
CREATE TABLE bulk_reject (
    load_id bigint NOT NULL,
    attempt integer NOT NULL,
    owner oid NOT NULL,
    target_oid oid NOT NULL,
    target text NOT NULL,
    path text NOT NULL,
    line_number bigint,
    byte_offset bigint,
    column_name text,
    raw_field text,
    raw_line text,
    raw_bytes bytea,
    sqlstate text NOT NULL,
    message text,
    constraint_name text,
    rejected_at timestamp with time zone NOT NULL
);
CREATE INDEX bulk_reject_load ON bulk_reject (load_id);
REVOKE ALL ON bulk_reject FROM PUBLIC;
CREATE TRIGGER keep_local BEFORE INSERT OR UPDATE OR DELETE ON bulk_reject FOR EACH ROW EXECUTE FUNCTION bulk_keep_local();
ALTER TABLE bulk_reject ENABLE REPLICA TRIGGER keep_local;

CREATE VIEW bulk_rejects WITH (security_barrier) AS
SELECT load_id, attempt, target, path, line_number, byte_offset, column_name, raw_field, raw_line, raw_bytes, sqlstate,
       message, constraint_name, rejected_at
FROM bulk_reject
WHERE pg_catalog.pg_has_role(owner, 'USAGE');
REVOKE ALL ON bulk_rejects FROM PUBLIC;
GRANT SELECT ON bulk_rejects TO PUBLIC;

COMMENT ON VIEW bulk_rejects IS 'rows that loads have left out with on_error ''table''';

-- Not STRICT: a NULL argument is an error, not an empty result.
CREATE FUNCTION bulk_check(path text, target regclass, options jsonb DEFAULT '{}') RETURNS TABLE (
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

COMMENT ON FUNCTION bulk_check(text, regclass, jsonb) IS 'the rows of a file that a load would reject, without a load';

-- The overload with `allow`, as of bulk_load.
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
