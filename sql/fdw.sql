CREATE FOREIGN DATA WRAPPER bulk_fdw
    HANDLER @extschema@.bulk_fdw_handler
    VALIDATOR @extschema@.bulk_fdw_validator;

CREATE SERVER bulk_files FOREIGN DATA WRAPPER bulk_fdw;

-- Who may name a file of the server's machine may make a foreign table of it.
GRANT USAGE ON FOREIGN SERVER bulk_files TO pg_read_server_files;
