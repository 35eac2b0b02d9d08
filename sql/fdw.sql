CREATE FOREIGN DATA WRAPPER bulk_fdw
    HANDLER @extschema@.bulk_fdw_handler
    VALIDATOR @extschema@.bulk_fdw_validator;

CREATE SERVER bulk_files FOREIGN DATA WRAPPER bulk_fdw;

-- A role that may read the server's files may create foreign tables over them.
GRANT USAGE ON FOREIGN SERVER bulk_files TO pg_read_server_files;
