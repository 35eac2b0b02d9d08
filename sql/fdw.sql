CREATE FOREIGN DATA WRAPPER bulk_fdw
    HANDLER @extschema@.bulk_fdw_handler
    VALIDATOR @extschema@.bulk_fdw_validator;

CREATE SERVER bulk_files FOREIGN DATA WRAPPER bulk_fdw;

-- A role that may read the server's files may create foreign tables over them.
GRANT USAGE ON FOREIGN SERVER bulk_files TO pg_read_server_files;

COMMENT ON FUNCTION bulk_fdw_handler() IS 'handler of foreign-data wrapper bulk_fdw';
COMMENT ON FUNCTION bulk_fdw_validator(text[], oid)
IS 'validator of foreign-data wrapper bulk_fdw. options: the options. catalog: OID of the system catalog of the object that has them.';
COMMENT ON FOREIGN DATA WRAPPER bulk_fdw IS 'reads files of the server, and the output of programs, as foreign tables';
COMMENT ON SERVER bulk_files IS 'foreign tables of any file that their user may read';
