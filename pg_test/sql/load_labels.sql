--
-- The label of a user-defined function decides whether the direct writer may run it: PARALLEL SAFE and PARALLEL RESTRICTED allow it,
-- STABLE and IMMUTABLE do not suffice.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_labels
\i :helpers
\set helpers :data '/index_helpers.sql'
\i :helpers
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck SCHEMA public;
RESET client_min_messages;
\set ECHO all
\pset tuples_only
\pset format unaligned

-- A function that is labelled STABLE deletes rows of the load, which it finds by the primary key. The table is the one COPY leaves.
CREATE TABLE loaded (a int PRIMARY KEY);
CREATE TABLE copied (a int PRIMARY KEY);
CREATE FUNCTION remove(target regclass) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
	EXECUTE format('DELETE FROM %s WHERE a IN (5, 50)', target);
END $$;
CREATE FUNCTION removes(i int, target regclass) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
	IF i = 3000 THEN
		PERFORM remove(target);
	END IF;
	RETURN true;
END $$;
SELECT string_agg(i || E'\n', '') AS many, data_path('labels') AS path FROM generate_series(1, 5000) i \gset
CALL write_file('labels', :'many');
SELECT rows_loaded, writer, notes FROM bulk_load(:'path', 'loaded', '{"where": "removes(a, ''loaded'')"}');
COPY copied FROM :'path' WHERE removes(a, 'copied');
SELECT count(*), count(*) FILTER (WHERE a = 5), count(*) FILTER (WHERE a = 50) FROM loaded;
SELECT count(*), count(*) FILTER (WHERE a = 5), count(*) FILTER (WHERE a = 50) FROM copied;
SELECT faults('loaded');

-- Each place where a load runs such functions. A function that is declared PARALLEL RESTRICTED leaves the choice open.
CREATE FUNCTION same(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN i; END $$;
CREATE FUNCTION fine(i int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN true; END $$;
CREATE FUNCTION compare(a int, b int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN btint4cmp(a, b); END $$;
CREATE FUNCTION equal(a int, b int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN a = b; END $$;
CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = equal, COMMUTATOR = ===);
CREATE OPERATOR CLASS compared FOR TYPE int USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 compare(int, int);
CREATE OPERATOR CLASS equaled FOR TYPE int USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 ===, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 btint4cmp(int, int);
CREATE DOMAIN fine_int AS int CHECK (fine(VALUE));
CREATE TYPE span AS RANGE (subtype = int, subtype_opclass = compared, multirange_type_name = span_multirange);
CREATE TYPE pair AS (a int, b fine_int);
CREATE TABLE in_check (a int CHECK (fine(a)));
CREATE FUNCTION one() RETURNS int LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN 1; END $$;
CREATE TABLE in_default (a int, b int DEFAULT one());
CREATE TABLE in_generated (a int, b int GENERATED ALWAYS AS (same(a)) STORED);
CREATE TABLE in_domain (a fine_int);
CREATE TABLE in_array (a int, b fine_int[]);
CREATE TABLE in_row (a int, b pair);
CREATE TABLE in_input (a int, b span);
CREATE TABLE in_multirange (a int, b span_multirange);
CREATE TABLE in_expression (a int);
CREATE INDEX ON in_expression (same(a));
CREATE TABLE in_predicate (a int);
CREATE INDEX ON in_predicate (a) WHERE fine(a);
CREATE TABLE in_operator_class (a int);
CREATE INDEX ON in_operator_class (a compared);
CREATE TABLE in_exclusion (a int, EXCLUDE USING btree (a equaled WITH ===));
CREATE TABLE in_partition_key (a int) PARTITION BY RANGE (same(a));
CREATE TABLE in_bound PARTITION OF in_partition_key FOR VALUES FROM (0) TO (10);
CREATE TABLE in_partition_class (a int) PARTITION BY RANGE (a compared);
CREATE TABLE in_partition_class_all PARTITION OF in_partition_class DEFAULT;
CREATE TABLE in_sub_key (a int) PARTITION BY RANGE (a);
CREATE TABLE in_sub_key_all PARTITION OF in_sub_key DEFAULT PARTITION BY RANGE (same(a));
CREATE TABLE in_sub_key_all_all PARTITION OF in_sub_key_all DEFAULT;
CREATE TABLE in_nothing (a int);
CALL write_file('labels', E'1\n2\n3\n');
CREATE FOREIGN TABLE labels (a int) SERVER bulk_files OPTIONS (filename :'path');
CREATE VIEW places AS SELECT relname AS place, '{"columns": ["a"]}'::jsonb AS options, 'a' AS list FROM pg_class WHERE relname ~ '^in_' AND relkind IN ('r', 'p')
	AND relname !~ '_all|_key$' OR relname IN ('in_partition_key', 'in_sub_key');
-- The note of bulk_load, then the plan of INSERT … SELECT.
CREATE FUNCTION chosen_for(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	chosen text := 'none';
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || statement LOOP
		IF line ~ 'Direct Insert' THEN
			chosen := regexp_replace(trim(line), ' \(actual.*', '');
		END IF;
	END LOOP;
	RETURN chosen;
END $$;
CREATE FUNCTION writers() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	p record;
BEGIN
	FOR p IN SELECT * FROM places ORDER BY place LOOP
		RETURN QUERY EXECUTE format('SELECT %L || writer || '' '' || array_to_string(notes, '' '') FROM bulk_load(%L, %L, %L)', p.place || ': ', data_path('labels'), p.place, p.options);
		EXECUTE format('TRUNCATE %I', p.place);
		RETURN NEXT p.place || ': ' || chosen_for(format('INSERT INTO %I (a) SELECT a FROM labels', p.place));
		EXECUTE format('TRUNCATE %I', p.place);
	END LOOP;
	RETURN QUERY SELECT 'where: ' || writer || ' ' || array_to_string(notes, ' ') FROM bulk_load(data_path('labels'), 'in_nothing', '{"where": "fine(a)"}');
	RETURN NEXT 'where: ' || chosen_for('INSERT INTO in_nothing SELECT a FROM labels WHERE fine(a)');
	RETURN QUERY SELECT 'expr: ' || writer || ' ' || array_to_string(notes, ' ') FROM bulk_load(data_path('labels'), 'in_nothing', '{"columns": ["x", {"name": "a", "expr": "same(x::int)"}]}');
	RETURN NEXT 'expr: ' || chosen_for('INSERT INTO in_nothing SELECT same(a) FROM labels');
	RETURN QUERY SELECT 'query: ' || writer || ' ' || array_to_string(notes, ' ') FROM bulk_load(NULL, 'in_nothing', '{"query": "SELECT same(1)"}');
END $$;
SELECT * FROM writers();
ALTER FUNCTION same PARALLEL RESTRICTED;
ALTER FUNCTION one PARALLEL RESTRICTED;
ALTER FUNCTION fine PARALLEL SAFE;
ALTER FUNCTION compare PARALLEL SAFE;
ALTER FUNCTION equal PARALLEL SAFE;
SELECT * FROM writers();
