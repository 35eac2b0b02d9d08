-- A case of loading.sql as INSERT … SELECT from a foreign table over the file; included after loading.sql.

-- Runs it, and returns the writer, the number of workers, and the number of rows.
CREATE FUNCTION inserted(which int, OUT writer text, OUT workers int, OUT rows_loaded bigint) LANGUAGE plpgsql AS $$
DECLARE
    c cases;
    plan json;
    statement text;
BEGIN
    SELECT * INTO STRICT c FROM cases WHERE id = which;
    EXECUTE format('CREATE FOREIGN TABLE scanned.t (%s) SERVER bulk_files OPTIONS %s', c.scan_columns, c.scan_options);
    PERFORM set_config('pg_bulk.workers', l.workers::text, true) FROM loads l WHERE id = which;
    statement := format('INSERT INTO %s %s SELECT * FROM scanned.t', target_of(which), c.loaded_columns);
    IF which % 4 = 0 THEN
        EXECUTE statement;
        GET DIAGNOSTICS rows_loaded = ROW_COUNT;
        writer := 'not asked';
    ELSE
        EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, WAL, FORMAT JSON) ' || statement INTO plan;
        plan := plan -> 0 -> 'Plan';
        IF plan ->> 'Node Type' = 'Custom Scan' AND plan -> 'Rows Inserted' IS NOT NULL THEN
            writer := 'direct';
            workers := plan ->> 'Workers Launched';
            rows_loaded := plan ->> 'Rows Inserted';
        ELSE
            writer := 'core';
        END IF;
    END IF;
    DROP FOREIGN TABLE scanned.t;
END $$;

CREATE OR REPLACE FUNCTION load_statement(which int) RETURNS text LANGUAGE sql AS $$
    SELECT format('INSERT INTO by_load SELECT NULL, * FROM inserted(%s)', which)
$$;
