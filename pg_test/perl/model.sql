-- Loads into a table with indexes, beside a model: a table of the same definition into which core inserts the same rows,
-- one after the other. RandomTables.pm generates tables and batches; this file runs them, and reports differences.
--
-- Statements have SCHEMA in place of the table's schema, `ours` or `model`. Each row has a number `n`, which no other
-- row that was ever inserted has.

\set schema proof
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\i :helpers
\set helpers :data '/index_helpers.sql'
\i :helpers

CREATE COLLATION icu (provider = icu, locale = 'en');
CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy', 'wild', 'calm', 'odd', 'even', 'low', 'high', 'none');
CREATE DOMAIN positive AS int CHECK (VALUE >= 0);

-- The strategies of indexes, so that the tests can require enough loads other than insertions; and the outcomes of loads.
CREATE TABLE census (method text, came_from text, kind text, rows bigint);
CREATE TABLE ends (what text);

-- Unique and exclusion constraints of the table, for a query whether the rows violate one.
CREATE TABLE constraints (name text, statement text, is_deferrable boolean);

CREATE PROCEDURE begin_case() LANGUAGE plpgsql SET client_min_messages = warning AS $$
BEGIN
	DROP SCHEMA IF EXISTS ours, model, other CASCADE;
	CREATE SCHEMA ours;
	CREATE SCHEMA model;
	TRUNCATE constraints;
END $$;

-- A table is kept under the name of its case.
CREATE PROCEDURE end_case(number int) LANGUAGE plpgsql SET client_min_messages = warning AS $$
BEGIN
	EXECUTE format('DROP SCHEMA IF EXISTS case_%s CASCADE', number);
	EXECUTE format('ALTER SCHEMA ours RENAME TO case_%s', number);
	DROP SCHEMA IF EXISTS model, other CASCADE;
END $$;

CREATE FUNCTION names(target regclass) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = target AND attnum > 0 AND NOT attisdropped
$$;

-- Runs a statement on both tables; the effects must be equal.
CREATE FUNCTION on_both(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	said text[] := '{}';
	schema text;
BEGIN
	FOREACH schema IN ARRAY ARRAY['ours', 'model'] LOOP
		BEGIN
			EXECUTE replace(statement, 'SCHEMA', schema);
			SET CONSTRAINTS ALL IMMEDIATE;
			said := said || 'done'::text;
		EXCEPTION WHEN unique_violation OR exclusion_violation THEN
			said := said || SQLSTATE::text;
		END;
	END LOOP;
	IF said[1] <> said[2] THEN
		RETURN NEXT format('%s: ours %s, model %s', statement, said[1], said[2]);
	END IF;
END $$;

-- A file's rows, as COPY reads them. An existing file is not written again: it may be in use.
CREATE PROCEDURE stage(content text, copy text, columns text) LANGUAGE plpgsql AS $$
BEGIN
	CALL write_file('batch', content);
	DROP TABLE IF EXISTS model.stage;
	CREATE TABLE model.stage (LIKE model.t);
	ALTER TABLE model.stage ADD place serial PRIMARY KEY;
	EXECUTE format('COPY model.stage (%s) FROM %L (%s)', columns, data_path('batch'), copy);
END $$;

-- Inserts rows into both tables, except those that violate a constraint: the content before the loads.
CREATE FUNCTION fill(content text, copy text, columns text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	schema text;
	line record;
BEGIN
	CALL stage(content, copy, columns);
	FOREACH schema IN ARRAY ARRAY['ours', 'model'] LOOP
		FOR line IN SELECT place FROM model.stage ORDER BY place LOOP
			BEGIN
				EXECUTE format('INSERT INTO %s.t (%s) SELECT %2$s FROM model.stage WHERE place = $1', schema, columns) USING line.place;
				SET CONSTRAINTS ALL IMMEDIATE;
			EXCEPTION WHEN unique_violation OR exclusion_violation THEN NULL;
			END;
		END LOOP;
	END LOOP;
	RETURN QUERY SELECT differences('fill');
END $$;

CREATE FUNCTION differences(what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	columns text := names('model.t');
BEGIN
	RETURN QUERY EXECUTE format('
		(SELECT %2$L || '': only in the model: '' || d::text FROM (SELECT %1$s FROM model.t EXCEPT ALL SELECT %1$s FROM ours.t) d ORDER BY 1 LIMIT 5)
		UNION ALL (SELECT %2$L || '': only in ours: '' || d::text FROM (SELECT %1$s FROM ours.t EXCEPT ALL SELECT %1$s FROM model.t) d ORDER BY 1 LIMIT 5)',
		-- Rows are equal if their text is equal.
		(SELECT string_agg(format('%s::text', name), ', ') FROM string_to_table(columns, ', ') name), what);
END $$;

-- Whether the rows of both tables violate this constraint.
CREATE FUNCTION is_violated(constraint_name text) RETURNS boolean LANGUAGE plpgsql SET client_min_messages = warning AS $$
DECLARE
	root text;
	statement text;
	columns text := names('model.t');
BEGIN
	-- A partition's index is listed under its parent's.
	SELECT relname INTO root FROM pg_class WHERE oid IN (SELECT pg_partition_root(oid) FROM pg_class
		WHERE relname = constraint_name AND relnamespace = 'ours'::regnamespace);
	SELECT c.statement INTO statement FROM constraints c WHERE name = coalesce(root, constraint_name);
	IF statement IS NULL THEN
		RETURN false;
	END IF;
	DROP SCHEMA IF EXISTS other CASCADE;
	CREATE SCHEMA other;
	CREATE TABLE other.t (LIKE model.t);
	EXECUTE format('INSERT INTO other.t (%1$s) SELECT %1$s FROM model.t UNION ALL SELECT %1$s FROM model.stage', columns);
	EXECUTE replace(statement, 'SCHEMA', 'other');
	SET CONSTRAINTS ALL IMMEDIATE;
	RETURN false;
EXCEPTION WHEN unique_violation OR exclusion_violation THEN
	RETURN true;
END $$;

-- Core's result for the staged rows. `conflict` is the arbiter, as in ON CONFLICT.
CREATE FUNCTION insert_into_model(columns text, conflict text, options jsonb, OUT outcome text, OUT constraint_name text, OUT rejected bigint)
LANGUAGE plpgsql AS $$
DECLARE
	keep text := coalesce(options ->> 'on_duplicate', 'error');
	goes_on boolean := options ->> 'on_error' = 'table';
	statement text := format('INSERT INTO model.t (%s) SELECT %1$s FROM model.stage', columns);
	clause text := CASE keep WHEN 'keep_old' THEN format(' ON CONFLICT %s DO NOTHING', conflict) WHEN 'keep_new' THEN format(' ON CONFLICT %s DO UPDATE SET ', conflict)
		|| (SELECT string_agg(format('%1$s = EXCLUDED.%1$s', name), ', ') FROM string_to_table(columns, ', ') name) ELSE '' END;
	line record;
BEGIN
	rejected := 0;
	SET CONSTRAINTS ALL DEFERRED;
	IF options ->> 'truncate' = 'true' THEN
		TRUNCATE model.t;
	END IF;
	IF NOT goes_on AND keep <> 'keep_new' THEN
		EXECUTE statement || ' ORDER BY place' || clause;
	ELSE
		FOR line IN SELECT place FROM model.stage ORDER BY place LOOP
			IF goes_on THEN
				BEGIN
					EXECUTE statement || ' WHERE place = $1' || clause USING line.place;
				EXCEPTION WHEN unique_violation OR exclusion_violation THEN
					rejected := rejected + 1;
				END;
			ELSE
				EXECUTE statement || ' WHERE place = $1' || clause USING line.place;
			END IF;
		END LOOP;
	END IF;
	SET CONSTRAINTS ALL IMMEDIATE;
	outcome := 'done';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS outcome = RETURNED_SQLSTATE, constraint_name = CONSTRAINT_NAME;
END $$;


CREATE TYPE loaded AS (load_id bigint, rows_loaded bigint, rows_rejected bigint, rows_duplicate bigint, rows_filtered bigint, bytes_read bigint,
	seconds float8, writer text, workers int, indexes jsonb, notes text[]);

-- The tables that store rows.
CREATE FUNCTION leaves() RETURNS SETOF regclass LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY SELECT relid FROM pg_partition_tree('ours.t') WHERE isleaf
		UNION SELECT 'ours.t'::regclass WHERE (SELECT relkind FROM pg_class WHERE oid = 'ours.t'::regclass) = 'r';
END $$;

-- Loads a batch by bulk_load and by the model. Rows have numbers from `first` on. The load runs in a subtransaction if `nested`, or
-- if it must fail.
CREATE FUNCTION batch(first int, content text, copy text, columns text, conflict text, options jsonb, nested boolean) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	model record;
	result loaded;
	outcome text := 'done';
	message text;
	constraint_name text;
	staged bigint;
	left_in bigint;
	found bigint;
	leaf regclass;
	checked text[];
	kind text := coalesce(options ->> 'indexes', 'auto') || ' ' || coalesce(options ->> 'lock', 'online');
BEGIN
	CALL stage(content, copy, columns);
	SELECT count(*) INTO staged FROM model.stage;
	SELECT * INTO model FROM insert_into_model(columns, conflict, options);
	checked := ARRAY(SELECT ROW(c.line_number, c.byte_offset, c.raw_line, c.raw_bytes, c.sqlstate, c.message, c.constraint_name)::text
		FROM bulk_check(data_path('batch'), 'ours.t', options) c);
	IF nested OR model.outcome <> 'done' THEN
		BEGIN
			SELECT * INTO result FROM bulk_load(data_path('batch'), 'ours.t', options);
			SET CONSTRAINTS ALL IMMEDIATE;
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS outcome = RETURNED_SQLSTATE, constraint_name = CONSTRAINT_NAME, message = MESSAGE_TEXT;
		END;
	ELSE
		SELECT * INTO result FROM bulk_load(data_path('batch'), 'ours.t', options);
		SET CONSTRAINTS ALL IMMEDIATE;
	END IF;
	INSERT INTO ends VALUES (CASE WHEN outcome <> 'done' THEN outcome WHEN result.rows_duplicate + result.rows_rejected > 0 THEN 'some left out' ELSE 'all loaded' END);
	IF outcome <> model.outcome AND NOT (model.outcome IN ('23505', '23P01') AND outcome IN ('23505', '23P01') AND is_violated(constraint_name)) THEN
		RETURN NEXT format('batch %s: ours %s (%s, %s), model %s (%s)', first, outcome, constraint_name, message, model.outcome, model.constraint_name);
	-- Of several violations, the first row's need not be reported.
	ELSIF outcome <> 'done' AND constraint_name <> model.constraint_name AND NOT is_violated(constraint_name) THEN
		RETURN NEXT format('batch %s: ours complains of %s, which is not violated; the model of %s', first, constraint_name, model.constraint_name);
	END IF;
	RETURN QUERY SELECT differences('batch ' || first);
	IF outcome = 'done' THEN
		SELECT count(*) INTO left_in FROM ours.t WHERE n BETWEEN first AND first + staged;
		IF result.writer <> 'direct' THEN
			RETURN NEXT format('batch %s: writer %s, %s', first, result.writer, result.notes);
		END IF;
		IF (result.rows_loaded, result.rows_rejected, result.rows_duplicate, result.rows_filtered)
			IS DISTINCT FROM (left_in, model.rejected, staged - left_in - model.rejected, 0) THEN
			RETURN NEXT format('batch %s: %s loaded, %s rejected, %s duplicate, %s filtered; model: %s, %s, %s', first, result.rows_loaded, result.rows_rejected,
				result.rows_duplicate, result.rows_filtered, left_in, model.rejected, staged - left_in - model.rejected);
		END IF;
		IF options ->> 'on_error' = 'table' THEN
			SELECT count(DISTINCT line) INTO found FROM (SELECT n - first + 1 AS line FROM ours.t WHERE n >= first
				UNION ALL SELECT line_number FROM bulk_rejects WHERE load_id = result.load_id) l;
			IF found <> staged OR (SELECT count(*) FROM bulk_rejects WHERE load_id = result.load_id) <> staged - left_in THEN
				RETURN NEXT format('batch %s: %s of %s lines, %s rejects', first, found, staged, (SELECT count(*) FROM bulk_rejects WHERE load_id = result.load_id));
			END IF;
			-- bulk_check returned the same rejects before.
			SELECT count(*) INTO found FROM (SELECT unnest(checked) AS reject, -1 AS side UNION ALL
				SELECT ROW(b.line_number, b.byte_offset, b.raw_line, b.raw_bytes, b.sqlstate, b.message, b.constraint_name)::text, 1 FROM bulk_rejects b WHERE b.load_id = result.load_id) r
				GROUP BY reject HAVING sum(side) <> 0 LIMIT 1;
			IF found > 0 THEN
				RETURN NEXT format('batch %s: a check said %s rejects', first, cardinality(checked));
				RETURN QUERY SELECT 'check: ' || c FROM unnest(checked) c EXCEPT ALL SELECT 'check: ' || ROW(b.line_number, b.byte_offset, b.raw_line, b.raw_bytes, b.sqlstate, b.message, b.constraint_name)::text
					FROM bulk_rejects b WHERE b.load_id = result.load_id LIMIT 3;
				RETURN QUERY SELECT 'load: ' || ROW(b.line_number, b.byte_offset, b.raw_line, b.raw_bytes, b.sqlstate, b.message, b.constraint_name)::text
					FROM bulk_rejects b WHERE b.load_id = result.load_id EXCEPT ALL SELECT 'load: ' || c FROM unnest(checked) c LIMIT 3;
			END IF;
		END IF;
		INSERT INTO census SELECT i ->> 'method', i ->> 'from', kind, result.rows_loaded FROM jsonb_array_elements(result.indexes) i;
	END IF;
	FOR leaf IN SELECT leaves() LOOP
		RETURN QUERY SELECT format('batch %s: %s', first, fault) FROM faults(leaf) fault;
	END LOOP;
END $$;

-- A checksum over all rows of the table.
CREATE FUNCTION digest(target regclass) RETURNS numeric LANGUAGE plpgsql STABLE AS $$
DECLARE
	result numeric;
BEGIN
	EXECUTE format('SELECT count(*) + coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM %s t', target) INTO result;
	RETURN result;
END $$;
