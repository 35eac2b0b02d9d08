-- Functions for tests of INSERT … SELECT, in addition to helpers.sql.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck SCHEMA public;
RESET client_min_messages;

-- The plan, and the result if it is equal with direct_insert on and off: rows, row count, ids, or
-- error. Otherwise both results. With one process and, on request, with several. If there are many rows, only their number.
-- Everything is rolled back. The target is a table, or a query of it in parentheses.
CREATE FUNCTION either_way(statement text, target text DEFAULT 't', processes int[] DEFAULT '{0}') RETURNS SETOF text LANGUAGE plpgsql
SET client_min_messages = warning AS $$
DECLARE
	schema name := current_schema;
	relation text := CASE WHEN target LIKE '(%' THEN substring(target FROM 'FROM (\w+)') ELSE target END;
	mode int;
	line text;
	how text := 'core';
	n bigint;
	state text;
	message text;
	detail text;
	hint text;
	con text;
	rel text;
	col text;
	kind text;
	results text[];
	result text;
	cores text;
BEGIN
	PERFORM set_config('pg_bulk.direct_insert', 'on', true);
	BEGIN
		FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || statement LOOP
			how := CASE WHEN line ~ '^ *(->  )?Custom Scan' THEN 'direct' ELSE coalesce(substring(line FROM 'Direct Insert: no.*'), how) END;
		END LOOP;
	EXCEPTION WHEN OTHERS THEN
		how := 'no plan';
	END;
	RETURN NEXT how;
	-- Minus one stands for core's INSERT.
	FOREACH mode IN ARRAY -1 || processes LOOP
		PERFORM set_config('pg_bulk.direct_insert', CASE mode WHEN -1 THEN 'off' ELSE 'on' END, true);
		IF mode >= 0 THEN
			PERFORM set_config('pg_bulk.workers', mode::text, true);
		END IF;
		IF mode > 0 AND (SELECT source = 'default' FROM pg_settings WHERE name = 'pg_bulk.chunk_size') THEN
			PERFORM set_config('pg_bulk.chunk_size', '64', true);
		END IF;
		PERFORM setval(q::regclass, 1, false) FROM (SELECT format('%I.%I', schemaname, sequencename) q FROM pg_sequences
			WHERE schemaname = schema) s WHERE has_sequence_privilege(q, 'UPDATE');
		BEGIN
			EXECUTE statement;
			GET DIAGNOSTICS n = ROW_COUNT;
			EXECUTE format('SELECT array_agg(x::text ORDER BY x::text) FROM %s x', target) INTO results;
			FOR line IN EXECUTE format('SELECT v::text FROM pg_class c JOIN pg_am m ON m.oid = relam, public.verify_heapam(c.oid) v WHERE relkind = ''r'' AND amname = ''heap'' AND %L
				AND (c.oid = %L::regclass OR c.oid IN (SELECT relid FROM pg_partition_tree(%2$L)))', current_setting('is_superuser'), relation) LOOP
				RETURN NEXT mode || ' corrupt: ' || line;
			END LOOP;
			IF current_setting('is_superuser')::boolean THEN
				PERFORM public.bt_index_parent_check(c.oid, true, true) FROM pg_index JOIN pg_class c ON c.oid = indexrelid
				WHERE relkind = 'i' AND relam = (SELECT oid FROM pg_am WHERE amname = 'btree') AND indisvalid
					AND (indrelid = to_regclass(relation) OR indrelid IN (SELECT relid FROM pg_partition_tree(to_regclass(relation))));
			END IF;
			results := ARRAY[n || ' inserted'] || results;
			SET CONSTRAINTS ALL IMMEDIATE;
			RAISE SQLSTATE 'UNDO0';
		EXCEPTION WHEN SQLSTATE 'UNDO0' THEN NULL;
		WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT,
				con = CONSTRAINT_NAME, rel = TABLE_NAME, col = COLUMN_NAME, kind = PG_DATATYPE_NAME;
			results := ARRAY[without_path(concat_ws(' | ', state, message, nullif(detail, ''), nullif(hint, ''), nullif(con, ''),
				nullif(concat_ws(' ', nullif(rel, ''), nullif(col, ''), nullif(kind, '')), '')))];
		END;
		result := array_to_string(results, E'\n', 'NULL');
		IF mode = -1 THEN
			cores := result;
			RETURN NEXT coalesce(CASE WHEN cardinality(results) > 30 THEN results[1] ELSE result END, 'NULL');
		ELSIF result IS DISTINCT FROM cores THEN
			RETURN NEXT format(E'with %s workers:\n%s', mode, coalesce(array_to_string(results[:20], E'\n', 'NULL'), 'NULL'));
		END IF;
	END LOOP;
END $$;

-- The same, also with two workers.
CREATE FUNCTION any_way(statement text, target text DEFAULT 't') RETURNS SETOF text LANGUAGE sql AS $$
	SELECT either_way(statement, target, '{0,2}')
$$;

CREATE TABLE numbered (id int, word text, day date, n int);
INSERT INTO numbered VALUES (1, 'one', '2001-01-01', 10), (2, NULL, '2001-02-02', NULL), (3, 'three', '2001-03-03', 30),
	(4, 'four', NULL, 40), (5, 'five', '2001-05-05', 50), (6, 'six', '2001-06-06', 60), (7, 'seven', NULL, 70),
	(8, 'eight', '2001-08-08', 80), (9, NULL, '2001-09-09', 90), (10, 'ten', '2001-10-10', NULL), (11, 'eleven', '2001-11-11', 110),
	(12, 'twelve', '2001-12-12', 120);
CREATE FUNCTION as_file(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	content text;
BEGIN
	EXECUTE format('SELECT string_agg(line, '''') FROM (SELECT array_to_string(ARRAY(SELECT value FROM json_each_text(row_to_json(q))), '','', '''') || E''\n'' AS line FROM (%s) q) lines', query) INTO content;
	RETURN content;
END $$;
-- Foreign tables of three rows, and of twelve.
CALL make_table('ft', 'id int, word text, day date, n int', $$format 'csv'$$, as_file('TABLE numbered LIMIT 3'));
CALL make_table('twelve', 'id int, word text, day date, n int', $$format 'csv'$$, as_file('TABLE numbered'));
