-- One comparison, from the server's side. A case names a file, the options and
-- the columns. compare_case() loads the file with COPY into copied.t. Then it
-- scans the file through the foreign table scanned.t into kept.t, once for each chunk
-- size, alternately with and without a condition, and for some files with parallel workers,
-- too. It also loads the file into kept.t by bulk_load. It records every scan and
-- load whose outcome differs from COPY's.
--
-- An outcome is all rows in order, or all fields of an error. Every load
-- runs in its own subtransaction, which is rolled back on success, too, so
-- that thousands of cases leave neither tables nor settings behind. The tables
-- have the same name in different schemas: COPY's CONTEXT names the relation without
-- its schema and is therefore equal on both sides.

CREATE SCHEMA copied;
CREATE SCHEMA scanned;
CREATE SCHEMA kept;

-- Rows are compared in the order of the file. The heap does not keep it: if a row is too
-- long for a page, a later and shorter row may take the space there. So both
-- heap tables number their rows by a column that is not loaded.
CREATE SEQUENCE ordinals;

CREATE TABLE cases (
    id              int PRIMARY KEY,
    copy_file       text NOT NULL,
    scan_file       text NOT NULL,
    copy_options    text NOT NULL,      -- in parentheses, for COPY
    scan_options    text NOT NULL,      -- in parentheses, for CREATE FOREIGN TABLE
    heap_columns    text NOT NULL,
    loaded_columns  text NOT NULL,      -- the list of loaded columns, or nothing for all of them
    scan_columns    text NOT NULL,      -- the same with the options of columns
    load_options    jsonb,              -- for bulk_load; NULL: no loads
    load_writers    text[] NOT NULL,    -- which writers load
    chunk_sizes     int[] NOT NULL,     -- 0: the default
    client_encoding text NOT NULL,
    settings        text[] NOT NULL,    -- name, value, name, value, ...
    typed           boolean NOT NULL,   -- compare the values stored, not only their text
    rows_only       boolean NOT NULL    -- an error's words are not compared
);

-- A case that crashes the server or hangs has no row here.
CREATE TABLE done (
    id       int PRIMARY KEY,
    accepted boolean NOT NULL,
    row_count int NOT NULL,
    scans    int NOT NULL,              -- scans and loads
    shared   int NOT NULL DEFAULT 0     -- scans that were planned for workers
);

CREATE TABLE mismatches (
    case_id     int NOT NULL,
    chunk_size  int NOT NULL,
    what        text NOT NULL,
    copy_said   bytea NOT NULL,
    scan_said   bytea NOT NULL
);

CREATE TYPE outcome AS (rows text[], error text);

-- An expression for a row of kept.t or copied.t as text. For typed
-- columns it adds data that text output hides: the stored size and the binary
-- form (-0 and 0, NaN, the scale of a numeric, a padded bpchar).
CREATE FUNCTION row_signature(relation regclass, typed boolean) RETURNS text
LANGUAGE sql AS $$
    SELECT format('ROW(%s)::text', string_agg(format('the_row.%I', attname), ', ' ORDER BY attnum))
        || CASE WHEN typed THEN coalesce(string_agg(
        format($f$ || ' ' || coalesce(pg_column_size(the_row.%1$I) || ':' || md5(%2$s(the_row.%1$I)), '-')$f$,
               attname, typsend::regproc), '' ORDER BY attnum), '') ELSE '' END
    FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
    WHERE attrelid = relation AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('ordinal in the file', 'generated from it')
$$;

-- All fields of an error. Its context is cut before the lines of the function that caught it, and before a scan's own
-- last line, which names the file. The rest is the context that COPY gives a client. It has more than
-- one line if a field's value spans lines or a type's own parser (json) adds a line before COPY's.
CREATE FUNCTION error_text(state text, message text, detail text, hint text, type_name text, constraint_name text,
                           column_name text, context text, file text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    context := split_part(E'\n' || context, E'\nSQL statement "', 1);
    IF right(context, length(file) + 8) = format(E'\nfile "%s"', file) THEN
        context := left(context, -length(file) - 8);
    END IF;
    -- A load adds this HINT of its own (src/load/hint.rs) to an error that has none.
    IF hint SIMILAR TO '(This file looks|The file begins) like %' THEN
        hint := '';
    END IF;
    RETURN state || ': ' || message
        || coalesce(E'\nDETAIL: ' || nullif(detail, ''), '') || coalesce(E'\nHINT: ' || nullif(hint, ''), '')
        || coalesce(E'\nTYPE: ' || nullif(type_name, ''), '')
        || coalesce(E'\nCONSTRAINT: ' || nullif(constraint_name, ''), '')
        || coalesce(E'\nCOLUMN: ' || nullif(column_name, ''), '')
        || coalesce(E'\nCONTEXT: ' || nullif(substr(context, 2), ''), '');
END $$;

-- The outcome of one load into a new table. (A table that held rows of a rolled-back
-- load would return rows in another order, since their space is used again.)
CREATE FUNCTION outcome_of(load text, relation text, columns text, file text, typed boolean) RETURNS outcome
LANGUAGE plpgsql AS $$
DECLARE
    result outcome;
    state text; message text; detail text; hint text; context text;
    type_name text; constraint_name text; column_name text;
BEGIN
    EXECUTE format('CREATE TABLE %s (%s)', relation, columns);
    EXECUTE load;
    EXECUTE format('SELECT coalesce(array_agg(%s ORDER BY %s), ''{}'') FROM %s the_row',
                   row_signature(relation::regclass, typed),
                   CASE WHEN columns LIKE '%"ordinal in the file"%' THEN '"ordinal in the file"' ELSE 'ctid' END,
                   relation) INTO result.rows;
    RAISE EXCEPTION SQLSTATE 'UNDO0';
EXCEPTION
    WHEN SQLSTATE 'UNDO0' THEN
        RETURN result;
    WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
            hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT, type_name = PG_DATATYPE_NAME,
            constraint_name = CONSTRAINT_NAME, column_name = COLUMN_NAME;
        result.rows := NULL;
        result.error := error_text(state, message, detail, hint, type_name, constraint_name, column_name, context, file);
        RETURN result;
END
$$;

-- Projection and rescan read the same file on other paths than SELECT *. They
-- run on files that COPY accepts, over the existing foreign table.
CREATE FUNCTION projection_differs(expected text[]) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    last_column text;
    n bigint;
    whole text; projected text;
BEGIN
    SELECT attname INTO last_column FROM pg_attribute
    WHERE attrelid = 'scanned.t'::regclass AND attnum > 0 ORDER BY attnum DESC LIMIT 1;
    EXECUTE 'SELECT count(*) FROM scanned.t' INTO n;
    IF n <> cardinality(expected) THEN
        RETURN format('count(*) is %s', n);
    END IF;
    IF last_column IS NOT NULL THEN
        EXECUTE format('SELECT md5(array_agg(%1$I::text)::text) FROM (SELECT %1$I FROM scanned.t) alone', last_column) INTO projected;
        EXECUTE format('SELECT md5(array_agg((the_row).%1$I::text)::text) FROM (SELECT the_row FROM scanned.t the_row) rows', last_column) INTO whole;
        IF projected IS DISTINCT FROM whole THEN
            RETURN 'the last column alone is not the last column of the row';
        END IF;
        SELECT count(*) INTO n FROM (VALUES (1), (2)) v (i), LATERAL (SELECT v.i FROM scanned.t OFFSET 0) s;
        IF n <> 2 * cardinality(expected) THEN
            RETURN format('a scan and its rescan give %s rows', n);
        END IF;
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RETURN format('projection fails: %s %s', SQLSTATE, SQLERRM);
END
$$;

-- The value that a query returns, or its error.
CREATE FUNCTION answer(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    said text;
BEGIN
    EXECUTE query INTO said;
    RETURN said;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ': ' || SQLERRM;
END
$$;

-- Compares aggregates that a scan computes, also with several processes, with those that core computes from rows in order. A sum
-- of floats depends on the order of rows: it is the file's unless the scan is parallel.
CREATE FUNCTION aggregates_differ(shared boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    wanted text;
    by_scan text;
    by_rows text;
BEGIN
    SELECT string_agg(concat_ws(', ', format('count(%I)', attname),
            CASE WHEN atttypid = ANY ('{int2,int4,int8,oid,float4,float8,date,time,timestamp,timestamptz}'::regtype[])
                THEN format('min(%1$I), max(%1$I)', attname) END,
            CASE WHEN atttypid = ANY ('{int2,int4,int8}'::regtype[]) OR NOT shared AND atttypid = ANY ('{float4,float8}'::regtype[])
                THEN format('sum(%I)', attname) END), ', ' ORDER BY attnum)
    INTO wanted
    FROM pg_attribute WHERE attrelid = 'scanned.t'::regclass AND attnum BETWEEN 1 AND 20;
    wanted := concat_ws(', ', 'count(*)', wanted);
    by_scan := answer(format('SELECT ROW(%s)::text FROM scanned.t', wanted));
    PERFORM set_config('max_parallel_workers_per_gather', '0', true);
    by_rows := answer(format('SELECT ROW(%s)::text FROM (SELECT * FROM scanned.t OFFSET 0) one_by_one', wanted));
    RETURN CASE WHEN by_scan IS DISTINCT FROM by_rows THEN format('of (%s) the scan says %s, its rows %s', wanted, by_scan, by_rows) END;
END
$$;

CREATE FUNCTION as_bytes(said text) RETURNS bytea LANGUAGE sql AS
$$ SELECT replace(said, E'\\', E'\\\\')::bytea $$;

-- The rows around the first difference, or the error.
CREATE FUNCTION digest(said outcome, other outcome) RETURNS bytea
LANGUAGE plpgsql AS $$
DECLARE
    at int;
BEGIN
    IF said.rows IS NULL THEN
        RETURN as_bytes('ERROR ' || coalesce(said.error, '(none)'));
    ELSIF other.rows IS NULL THEN
        RETURN as_bytes(format(E'%s rows:\n%s', cardinality(said.rows), left(array_to_string(said.rows[1:5], E'\n'), 2000)));
    END IF;
    SELECT min(i) INTO at FROM generate_series(1, greatest(cardinality(said.rows), cardinality(other.rows))) i
    WHERE said.rows[i] IS DISTINCT FROM other.rows[i];
    RETURN as_bytes(format(E'%s rows; row %s: %s', cardinality(said.rows), at, left(coalesce(said.rows[at], '(none)'), 2000)));
END
$$;

CREATE FUNCTION difference_of(by_copy outcome, by_other outcome, other text, rows_only boolean) RETURNS text
LANGUAGE sql AS $$
    SELECT CASE WHEN by_other.rows IS DISTINCT FROM by_copy.rows THEN
        CASE WHEN by_copy.rows IS NULL THEN format('COPY fails, the %s does not', other)
             WHEN by_other.rows IS NULL THEN format('the %s fails, COPY does not', other)
             ELSE format('the rows differ in the %s', other) END
    WHEN by_other.error IS DISTINCT FROM by_copy.error AND NOT rows_only THEN
        format('the errors differ in the %s', other)
    END
$$;

CREATE FUNCTION compare_case(which int, chunk_guc text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    c cases;
    by_copy outcome;
    by_scan outcome;
    by_load outcome;
    by_parallel outcome;
    conditions text[];
    condition text;
    workers int;
    plan json;
    shared int := 0;
    chunk_size int;
    writer text;
    found mismatches[] := '{}';
    difference text;
    scans int := 0;
    i int;
BEGIN
    SELECT * INTO STRICT c FROM cases WHERE id = which;
    BEGIN
        FOR i IN 1 .. cardinality(c.settings) - 1 BY 2 LOOP
            PERFORM set_config(c.settings[i], c.settings[i + 1], true);
        END LOOP;
        PERFORM set_config('client_encoding', c.client_encoding, true);
        by_copy := outcome_of(format('COPY copied.t %s FROM %L WITH %s', c.loaded_columns, c.copy_file, c.copy_options),
                              'copied.t', c.heap_columns, c.copy_file, c.typed);
        IF by_copy.error LIKE '58%' THEN
            RAISE '%', by_copy.error;       -- both fail alike, and nothing is compared
        END IF;

        -- Only scans here: InsertDifferential.pm compares INSERTs that are loads.
        PERFORM set_config('pg_bulk.direct_insert', 'off', true);
        by_scan := NULL;
        BEGIN
            EXECUTE format('CREATE FOREIGN TABLE scanned.t (%s) SERVER bulk_files OPTIONS %s', c.scan_columns, c.scan_options);
        EXCEPTION WHEN OTHERS THEN
            by_scan.error := SQLSTATE || ': ' || SQLERRM;
            by_copy.error := split_part(by_copy.error, E'\n', 1);      -- the error of an option has no context
        END;
        -- With a condition, rows are converted one by one, and first the columns of the condition. Here these are the columns that COPY
        -- converts first. All these conditions are true.
        SELECT ARRAY['', ' WHERE tableoid <> 0'] || format(' WHERE (%I IS NULL) IS NOT NULL', attname) INTO conditions
        FROM pg_attribute WHERE attrelid = to_regclass('scanned.t') AND attnum > 0 ORDER BY attnum LIMIT 1;
        conditions := coalesce(conditions, '{""}');
        FOREACH chunk_size IN ARRAY c.chunk_sizes LOOP
            condition := conditions[1 + (which + array_position(c.chunk_sizes, chunk_size)) % cardinality(conditions)];
            IF chunk_size > 0 THEN
                PERFORM set_config(chunk_guc, chunk_size::text, true);
            END IF;
            IF to_regclass('scanned.t') IS NOT NULL THEN
                by_scan := outcome_of(format('INSERT INTO kept.t %s SELECT * FROM scanned.t%s', c.loaded_columns, condition),
                                      'kept.t', c.heap_columns, c.scan_file, c.typed);
            END IF;
            scans := scans + 1;
            difference := coalesce(difference_of(by_copy, by_scan, 'scan' || condition, c.rows_only),
                                   CASE WHEN by_copy.rows IS NOT NULL THEN projection_differs(by_copy.rows) END,
                                   CASE WHEN by_copy.rows IS NOT NULL AND chunk_size = c.chunk_sizes[cardinality(c.chunk_sizes)]
                                        THEN aggregates_differ(false) END);
            IF difference IS NOT NULL THEN
                found := found || ROW(which, chunk_size, difference, digest(by_copy, by_scan), digest(by_scan, by_copy))::mismatches;
            END IF;
            -- A parallel scan, by the leader alone, or with workers: then the error may be about another row.
            -- Rows come in any order; their stored form has been compared before.
            IF which % 12 = 0 AND NOT c.typed AND to_regclass('scanned.t') IS NOT NULL
               AND chunk_size = c.chunk_sizes[cardinality(c.chunk_sizes)] THEN
                workers := CASE WHEN which % 24 = 0 THEN (ARRAY[1, 2, 4])[1 + which / 24 % 3] ELSE 0 END;
                condition := conditions[1 + which / 72 % cardinality(conditions)];
                PERFORM set_config(name, value, true) FROM (VALUES ('min_parallel_table_scan_size', '0'), ('parallel_setup_cost', '0'),
                    ('parallel_tuple_cost', '0'), ('max_parallel_workers_per_gather', greatest(workers, 2)::text),
                    ('max_parallel_workers', workers::text)) s (name, value);
                EXECUTE 'EXPLAIN (FORMAT JSON) SELECT * FROM scanned.t' || condition INTO plan;
                IF plan -> 0 -> 'Plan' ->> 'Node Type' = 'Gather' THEN
                    shared := shared + 1;
                END IF;
                by_parallel := outcome_of(format('CREATE TEMPORARY TABLE through AS SELECT * FROM scanned.t%s;
                                                  INSERT INTO kept.t %s SELECT * FROM through', condition, c.loaded_columns),
                                          'kept.t', c.heap_columns, c.scan_file, c.typed);
                scans := scans + 1;
                IF by_copy.rows IS NULL OR by_parallel.rows IS NULL THEN
                    difference := difference_of(by_copy, by_parallel, 'parallel scan' || condition, c.rows_only OR workers > 0);
                ELSE
                    difference := coalesce(difference_of(ROW(ARRAY(SELECT r FROM unnest(by_copy.rows) r ORDER BY r COLLATE "C"), NULL),
                                                         ROW(ARRAY(SELECT r FROM unnest(by_parallel.rows) r ORDER BY r COLLATE "C"), NULL),
                                                         'parallel scan' || condition, c.rows_only),
                                           aggregates_differ(true));
                END IF;
                IF difference IS NOT NULL THEN
                    found := found || ROW(which, chunk_size, difference, digest(by_copy, by_parallel), digest(by_parallel, by_copy))::mismatches;
                END IF;
                PERFORM set_config('max_parallel_workers_per_gather', '0', true);
            END IF;
            -- A load takes longer than a scan: one chunk size suffices.
            CONTINUE WHEN c.load_options IS NULL OR chunk_size <> c.chunk_sizes[cardinality(c.chunk_sizes)];
            FOREACH writer IN ARRAY c.load_writers LOOP
                by_load := outcome_of(format('SELECT bulk_load(%L, ''kept.t'', %L)', c.scan_file,
                                             c.load_options || jsonb_build_object('writer', writer)),
                                      'kept.t', c.heap_columns, c.scan_file, c.typed);
                -- For functions, an invalid value of one option is 22023.
                by_load.error := regexp_replace(by_load.error, '^22023(: COPY \w+ must be a single one-byte character)', '0A000\1');
                scans := scans + 1;
                difference := difference_of(by_copy, by_load, writer || ' load', c.rows_only);
                IF difference IS NOT NULL THEN
                    found := found || ROW(which, chunk_size, difference, digest(by_copy, by_load), digest(by_load, by_copy))::mismatches;
                END IF;
            END LOOP;
        END LOOP;
        RAISE EXCEPTION SQLSTATE 'UNDO1';
    EXCEPTION WHEN SQLSTATE 'UNDO1' THEN
        NULL;
    END;
    INSERT INTO mismatches SELECT * FROM unnest(found);
    INSERT INTO done VALUES (which, by_copy.rows IS NOT NULL, coalesce(cardinality(by_copy.rows), 0), scans, shared);
END
$$;

-- The inputs that a type accepts, as positions. The inputs are stored, not cast: a
-- cast would truncate long ones.
CREATE FUNCTION accepted_inputs(type text, settings text[], inputs text[]) RETURNS int[]
LANGUAGE plpgsql AS $$
DECLARE
    accepted int[] := '{}';
BEGIN
    FOR i IN 1 .. cardinality(settings) - 1 BY 2 LOOP
        PERFORM set_config(settings[i], settings[i + 1], true);
    END LOOP;
    EXECUTE format('CREATE TEMPORARY TABLE probe (value %s)', type);
    FOR i IN 1 .. cardinality(inputs) LOOP
        BEGIN
            EXECUTE format('INSERT INTO probe VALUES (%L)', inputs[i]);
            accepted := accepted || i;
        EXCEPTION WHEN OTHERS THEN
            NULL;
        END;
    END LOOP;
    DROP TABLE probe;
    RETURN accepted;
END
$$;
