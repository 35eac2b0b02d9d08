-- Functions for many test files: files with given bytes, errors as rows, plans without details that differ from machine to
-- machine. A test file sets `schema` and includes this file; all objects are in this schema, which the test drops.
CREATE SCHEMA :schema;
SET search_path = :schema, public;
\getenv data PGB_DATA
SELECT set_config('test.dir', :'data', false) AS data \gset

CREATE FUNCTION data_path(name text) RETURNS text LANGUAGE sql AS $$
	SELECT current_setting('test.dir') || '/' || name
$$;

-- Replaces the data directory's path by PGB_DATA.
CREATE FUNCTION without_path(line text) RETURNS text LANGUAGE sql AS $$
	SELECT replace(line, current_setting('test.dir'), 'PGB_DATA')
$$;

CREATE PROCEDURE write_bytes(name text, content bytea) LANGUAGE plpgsql AS $$
DECLARE
	large oid := lo_from_bytea(0, content);
BEGIN
	PERFORM lo_export(large, data_path(name));
	PERFORM lo_unlink(large);
END $$;

CREATE PROCEDURE write_file(name text, content text) LANGUAGE sql AS $$
	CALL write_bytes(name, convert_to(content, 'UTF8'))
$$;

-- Writes the file, and creates a foreign table `name` for it.
CREATE PROCEDURE make_table(name text, columns text, options text, content text) LANGUAGE plpgsql
SET client_min_messages = warning AS $$
BEGIN
	CALL write_file(name, content);
	EXECUTE format('DROP FOREIGN TABLE IF EXISTS %I CASCADE', name);
	EXECUTE format('CREATE FOREIGN TABLE %I (%s) SERVER bulk_files OPTIONS (filename %L%s)', name, columns, data_path(name),
		', ' || nullif(options, ''));
END $$;

-- Converts COPY's messages about options from 17 on into the older message and SQLSTATE. That they equal those of the server's own
-- COPY is tested by t/001_differential.t.
CREATE FUNCTION older_words(said text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE
		WHEN said ~ '^0A000: COPY [A-Z_]+ requires CSV mode$'
		THEN '0A000: COPY ' || lower(replace(substring(said, '^0A000: COPY ([A-Z_]+) '), '_', ' ')) || ' available only in CSV mode'
		WHEN said ~ '^22023: .* must not appear in the NULL specification$'
		THEN replace(replace(said, '22023', '0A000'), 'delimiter character', 'delimiter')
		WHEN said ~ ' must not appear in the DEFAULT specification$' THEN replace(said, 'delimiter character', 'delimiter')
		ELSE said
	END
$$;

-- The error of a statement: its SQLSTATE, MESSAGE, DETAIL, HINT and the CONTEXT of the scan.
CREATE FUNCTION error_of(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	message text;
	detail text;
	hint text;
	context text;
	line text;
BEGIN
	EXECUTE statement;
	RETURN NEXT 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT,
		context = PG_EXCEPTION_CONTEXT;
	RETURN NEXT older_words(without_path(SQLSTATE || ': ' || message));
	IF detail <> '' THEN
		RETURN NEXT without_path('DETAIL: ' || detail);
	END IF;
	IF hint <> '' THEN
		-- From 17 or 18 on, settings have the names of pg_settings.
		RETURN NEXT without_path('HINT: ' || replace(hint, '"DateStyle"', '"datestyle"'));
	END IF;
	FOREACH line IN ARRAY string_to_array(context, E'\n') LOOP
		EXIT WHEN line LIKE 'SQL statement %' OR line LIKE 'PL/pgSQL function %error_of%';
		-- From 18 on, the context names the expression's function.
		RETURN NEXT without_path('CONTEXT: ' || replace(line, 'PL/pgSQL expression "', 'SQL expression "'));
	END LOOP;
END $$;

-- Lines of a plan, without times and memory; 18 writes row counts with decimals.
CREATE FUNCTION plan_of(statement text, options text DEFAULT 'COSTS OFF') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE format('EXPLAIN (%s) %s', options, statement) LOOP
		-- From 18 on, JSON has a field `Disabled` for each node, and describes each window.
		line := regexp_replace(line, '\n *"Disabled": false,', '', 'g');
		CONTINUE WHEN line ~ 'Memory|Disabled|Storage|^ *Window: ';
		-- From 17 on, plans refer to an InitPlan by its number.
		line := regexp_replace(regexp_replace(line, '(InitPlan \d+) \(returns .*\)', '\1'), '\$0', '(InitPlan 1).col1');
		RETURN NEXT without_path(regexp_replace(line, '(rows=\d+)\.\d+', '\1'));
	END LOOP;
END $$;

-- The planner's row estimate for a statement.
CREATE FUNCTION rows_expected(statement text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE format('EXPLAIN (FORMAT JSON) %s', statement) INTO plan;
	RETURN plan -> 0 -> 'Plan' ->> 'Plan Rows';
END $$;
