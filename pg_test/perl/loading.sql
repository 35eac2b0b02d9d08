-- One load, from the server's side; included after comparison.sql, which describes a
-- case. `loads` has the kind of table, the number of workers, the
-- chunk size, and the place from which bulk_load is called:
--
--   top     a statement of its own, into an existing table
--   sub     in a subtransaction, into an existing table
--   new     in a subtransaction, into a table that is created there
--
-- begin_case() records COPY's outcome and creates the table, end_case() compares
-- its content. The table is then dropped. COPY loads into a plain table.

CREATE EXTENSION amcheck;
CREATE SCHEMA loaded;
CREATE SEQUENCE triggered;

CREATE TABLE loads (
    id          int PRIMARY KEY,
    traits      text[] NOT NULL,
    workers     int NOT NULL,
    chunk_size  int NOT NULL,       -- 0: the default
    writer      text NOT NULL,
    called      text NOT NULL
);
CREATE TABLE by_copy (said outcome);
CREATE TABLE by_load (said outcome, writer text, workers int, rows_loaded bigint);
-- The loads by kind, so that the tests can require enough loads without fallback.
CREATE TABLE census (writer text, workers int, traits text[], called text);

CREATE FUNCTION count_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval('triggered');
    RETURN NULL;
END $$;

CREATE FUNCTION not_zero(number int8) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN number <> 0;
END $$;

CREATE FUNCTION target_of(which int) RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN 'temporary' = ANY(traits) THEN 'pg_temp.t' ELSE 'loaded.t' END FROM loads WHERE id = which
$$;

CREATE PROCEDURE make_target(which int) LANGUAGE plpgsql AS $$
DECLARE
    c cases;
    traits text[];
    target text := target_of(which);
    kind text := '';
    columns text;
    tail text := '';
BEGIN
    SELECT * INTO STRICT c FROM cases WHERE id = which;
    SELECT l.traits INTO STRICT traits FROM loads l WHERE id = which;
    columns := c.heap_columns;
    IF 'temporary' = ANY(traits) THEN
        kind := 'TEMPORARY';
    ELSIF 'unlogged' = ANY(traits) THEN
        kind := 'UNLOGGED';
    END IF;
    IF 'generated' = ANY(traits) THEN
        columns := columns || ', "generated from it" int8 GENERATED ALWAYS AS ("ordinal in the file" * 2) STORED';
    END IF;
    IF 'partitioned' = ANY(traits) THEN
        EXECUTE format('CREATE TABLE loaded.t (%s) PARTITION BY HASH ("ordinal in the file")', columns);
        CREATE TABLE loaded.t0 PARTITION OF loaded.t FOR VALUES WITH (MODULUS 3, REMAINDER 0);
        -- Its attributes have other numbers than the parent's.
        CREATE TABLE loaded.t1 (gone int, LIKE loaded.t INCLUDING ALL);
        ALTER TABLE loaded.t1 DROP gone;
        ALTER TABLE loaded.t ATTACH PARTITION loaded.t1 FOR VALUES WITH (MODULUS 3, REMAINDER 1);
        CREATE TABLE loaded.t2 PARTITION OF loaded.t FOR VALUES WITH (MODULUS 3, REMAINDER 2);
    ELSE
        IF 'dropped' = ANY(traits) THEN
            columns := 'gone int, ' || columns || ', gone_too text';
        END IF;
        IF 'child' = ANY(traits) THEN
            EXECUTE format('CREATE TABLE loaded.parent (%s)', columns);
            columns := '';
            tail := 'INHERITS (loaded.parent)';
        END IF;
        IF 'fillfactor' = ANY(traits) THEN
            tail := tail || ' WITH (fillfactor = 30)';
        END IF;
        EXECUTE format('CREATE %s TABLE %s (%s) %s', kind, target, columns, tail);
        IF 'dropped' = ANY(traits) THEN
            EXECUTE format('ALTER TABLE %s DROP gone, DROP gone_too', CASE WHEN 'child' = ANY(traits) THEN 'loaded.parent' ELSE target END);
        END IF;
    END IF;
    IF 'checked' = ANY(traits) THEN
        EXECUTE format('ALTER TABLE %s ADD CHECK (not_zero("ordinal in the file"))', target);
    END IF;
    IF 'filled' = ANY(traits) THEN
        BEGIN
            EXECUTE format('INSERT INTO %s ("ordinal in the file") SELECT -i FROM generate_series(1, 100) i', target);
        EXCEPTION WHEN OTHERS THEN
            NULL;       -- columns that are not null
        END;
    END IF;
    IF 'indexed' = ANY(traits) THEN
        EXECUTE format('CREATE UNIQUE INDEX ON %s ("ordinal in the file")', target);
        EXECUTE format('CREATE INDEX ON %s (("ordinal in the file" %% 7), ("ordinal in the file" / 2))', target);
        EXECUTE format('CREATE INDEX ON %s USING hash ("ordinal in the file")', target);
        EXECUTE format('CREATE INDEX ON %s USING brin ("ordinal in the file")', target);
    END IF;
    IF 'trigger' = ANY(traits) THEN
        EXECUTE format('CREATE TRIGGER count_row AFTER INSERT ON %s FOR EACH ROW EXECUTE FUNCTION count_row()', target);
    END IF;
END $$;

CREATE FUNCTION load_statement(which int) RETURNS text LANGUAGE sql AS $$
    SELECT format('INSERT INTO by_load SELECT NULL, writer, workers, rows_loaded FROM bulk_load(%L, %L, %L)', c.scan_file,
                  target_of(which), c.load_options || jsonb_build_object('workers', l.workers, 'writer', l.writer))
    FROM cases c JOIN loads l USING (id) WHERE id = which
$$;

CREATE PROCEDURE begin_case(which int) LANGUAGE plpgsql AS $$
DECLARE
    c cases;
    l loads;
    said outcome;
BEGIN
    TRUNCATE by_copy, by_load;
    SELECT * INTO STRICT c FROM cases WHERE id = which;
    SELECT * INTO STRICT l FROM loads WHERE id = which;
    FOR i IN 1 .. cardinality(c.settings) - 1 BY 2 LOOP
        PERFORM set_config(c.settings[i], c.settings[i + 1], false);
    END LOOP;
    PERFORM set_config('client_encoding', c.client_encoding, false);
    IF l.chunk_size > 0 THEN
        PERFORM set_config('pg_bulk.chunk_size', l.chunk_size::text, false);
    END IF;
    said := outcome_of(format('COPY copied.t %s FROM %L WITH %s', c.loaded_columns, c.copy_file, c.copy_options),
                       'copied.t', c.heap_columns, c.copy_file, c.typed);
    IF said.error LIKE '58%' THEN
        RAISE '%', said.error;
    END IF;
    INSERT INTO by_copy VALUES (said);
    PERFORM setval('triggered', 1, false);
    IF l.called <> 'new' THEN
        CALL make_target(which);
    END IF;
END $$;

-- The rows of the table, in the order of the file.
CREATE FUNCTION rows_of(which int) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    target text := target_of(which);
    columns text;
    typed boolean;
    rows text[];
BEGIN
    SELECT heap_columns, c.typed INTO columns, typed FROM cases c WHERE id = which;
    EXECUTE format('SELECT coalesce(array_agg(%s ORDER BY %s), ''{}'') FROM %s the_row %s', row_signature(target::regclass, typed),
                   CASE WHEN columns LIKE '%"ordinal in the file"%' THEN '"ordinal in the file"' ELSE 'ctid' END, target,
                   CASE WHEN columns LIKE '%"ordinal in the file"%' THEN 'WHERE "ordinal in the file" > 0' ELSE '' END) INTO rows;
    RETURN rows;
END $$;

CREATE PROCEDURE load_case(which int) LANGUAGE plpgsql AS $$
DECLARE
    said outcome;
    state text; message text; detail text; hint text; context text;
    type_name text; constraint_name text; column_name text;
BEGIN
    IF (SELECT called FROM loads WHERE id = which) = 'new' THEN
        CALL make_target(which);
    END IF;
    BEGIN
        EXECUTE load_statement(which);
    EXCEPTION WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
            hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT, type_name = PG_DATATYPE_NAME,
            constraint_name = CONSTRAINT_NAME, column_name = COLUMN_NAME;
        -- A load adds a HINT that COPY does not have.
        hint := CASE WHEN hint SIMILAR TO '(This file looks|The file begins) like %' THEN '' ELSE hint END;
        said.error := error_text(state, message, detail, hint, type_name, constraint_name, column_name, context,
                                 (SELECT scan_file FROM cases WHERE id = which));
        INSERT INTO by_load VALUES (said, NULL, NULL, NULL);
    END;
END $$;

-- amcheck's messages about the table, and other violated conditions.
CREATE FUNCTION complaints(which int, expected int) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    target regclass := target_of(which);
    heap regclass;
    index regclass;
    traits text[];
    n bigint;
BEGIN
    SELECT l.traits INTO traits FROM loads l WHERE id = which;
    FOR heap IN SELECT relid FROM pg_partition_tree(target) WHERE isleaf UNION SELECT target WHERE NOT 'partitioned' = ANY(traits) LOOP
        RETURN QUERY SELECT format('%s block %s item %s attribute %s: %s', heap, blkno, offnum, attnum, msg) FROM verify_heapam(heap);
        FOR index IN SELECT indexrelid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam
                     WHERE indrelid = heap AND amname = 'btree' LOOP
            PERFORM bt_index_parent_check(index, true, true);
        END LOOP;
    END LOOP;
    IF 'indexed' = ANY(traits) THEN
        SET LOCAL enable_seqscan = off;
        EXECUTE format('SELECT count(*) FROM %s WHERE "ordinal in the file" > 0', target) INTO n;
        SET LOCAL enable_seqscan = on;
        IF n <> expected THEN
            RETURN NEXT format('an index finds %s rows', n);
        END IF;
    END IF;
    IF 'generated' = ANY(traits) THEN
        EXECUTE format('SELECT count(*) FROM %s WHERE "generated from it" IS DISTINCT FROM "ordinal in the file" * 2', target) INTO n;
        IF n <> 0 THEN
            RETURN NEXT format('%s generated values are wrong', n);
        END IF;
    END IF;
    IF 'trigger' = ANY(traits) AND expected > 0 AND (SELECT last_value FROM triggered) <> expected THEN
        RETURN NEXT format('the trigger ran for %s rows', (SELECT last_value FROM triggered));
    END IF;
EXCEPTION WHEN OTHERS THEN
    RETURN NEXT SQLSTATE || ': ' || SQLERRM;
END $$;

CREATE PROCEDURE end_case(which int, state text, message text) LANGUAGE plpgsql AS $$
DECLARE
    c cases;
    l loads;
    copy outcome;
    load outcome;
    result by_load;
    start int;
    difference text;
    found text;
BEGIN
    SELECT * INTO STRICT c FROM cases WHERE id = which;
    SELECT * INTO STRICT l FROM loads WHERE id = which;
    SELECT (said).* INTO STRICT copy FROM by_copy;
    SELECT * INTO result FROM by_load;
    load.error := (result.said).error;
    IF l.called = 'top' AND state <> '00000' THEN
        load.error := state || ': ' || message;
    END IF;
    -- psql knows neither DETAIL nor CONTEXT of an error. Errors of options have no context, and the
    -- SQLSTATE of the function that raises them.
    IF l.called = 'top' OR copy.error NOT LIKE E'%\nCONTEXT: COPY t%' THEN
        start := CASE WHEN copy.error LIKE E'%\nCONTEXT: COPY t%' THEN 1 ELSE 8 END;
        copy.error := substr(split_part(copy.error, E'\n', 1), start);
        load.error := substr(split_part(load.error, E'\n', 1), start);
    END IF;
    SELECT string_agg(complaint, E'\n') INTO found FROM complaints(which, coalesce(cardinality(copy.rows), 0)) complaint;
    IF load.error IS NULL THEN
        load.rows := rows_of(which);
    ELSIF cardinality(rows_of(which)) <> 0 THEN
        found := concat_ws(E'\n', found, 'a load that failed left rows');
    END IF;
    -- Without a column that distinguishes the rows, several processes may store rows in any order.
    IF result.workers > 0 AND c.heap_columns NOT LIKE '%"ordinal in the file"%' AND load.rows IS NOT NULL AND copy.rows IS NOT NULL THEN
        load.rows := ARRAY(SELECT r FROM unnest(load.rows) r ORDER BY r);
        copy.rows := ARRAY(SELECT r FROM unnest(copy.rows) r ORDER BY r);
    END IF;
    IF load.rows IS DISTINCT FROM copy.rows THEN
        difference := CASE WHEN copy.rows IS NULL THEN 'COPY fails, the load does not'
                           WHEN load.rows IS NULL THEN 'the load fails, COPY does not'
                           ELSE 'the rows differ' END;
    ELSIF load.error IS DISTINCT FROM copy.error AND NOT c.rows_only THEN
        difference := 'the errors differ';
    ELSIF result.rows_loaded <> cardinality(load.rows) THEN
        difference := format('rows_loaded is %s', result.rows_loaded);
    END IF;
    difference := concat_ws(E'\n', difference, found);
    IF difference <> '' THEN
        INSERT INTO mismatches VALUES (which, l.chunk_size, difference, digest(copy, load), digest(load, copy));
    END IF;
    INSERT INTO census VALUES (result.writer, result.workers, l.traits, l.called);
    INSERT INTO done VALUES (which, copy.rows IS NOT NULL, coalesce(cardinality(copy.rows), 0), 1);
    EXECUTE format('DROP TABLE %s CASCADE', target_of(which));
    DROP TABLE IF EXISTS loaded.parent;
    FOR i IN 1 .. cardinality(c.settings) - 1 BY 2 LOOP
        EXECUTE format('RESET %s', c.settings[i]);
    END LOOP;
    RESET pg_bulk.chunk_size;
    RESET client_encoding;
END $$;
