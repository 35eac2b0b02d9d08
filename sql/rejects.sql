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

COMMENT ON FUNCTION bulk_check(text, regclass, jsonb)
IS 'returns the rows of a file that a load would reject, and loads nothing. path: file, directory, pattern or, with the option program, shell command. target: the table. options: JSON object of options, see docs/reference/options.md.';

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

COMMENT ON FUNCTION bulk_check(text, regclass, jsonb, text[])
IS 'returns the rows of a file that a load would reject, and loads nothing. path: file, directory, pattern or, with the option program, shell command. target: the table. options: JSON object of options, see docs/reference/options.md. allow: names of options that a SECURITY DEFINER function sets itself and that pg_bulk would otherwise refuse there.';

COMMENT ON TABLE bulk_reject IS 'rejected rows of loads; read them in the view bulk_rejects';
