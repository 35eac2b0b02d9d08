--
-- Aggregates that a scan computes itself: which ones, that their results equal core's, and all that may interfere.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema fdw_aggregates
\i :helpers
\set ECHO all
SET min_parallel_table_scan_size = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET max_parallel_workers_per_gather = 0;
\pset tuples_only
\pset format unaligned

-- A column of each type, with NULLs in all but one.
\set columns 'id int, i2 int2, i4 int4, i8 int8, o oid, f4 float4, f8 float8, d date, t time, ts timestamp, tz timestamptz, w text, n numeric'
CALL make_table('ft', :'columns', $$format 'csv', header 'true'$$, '');
CREATE TABLE loaded (LIKE ft);
CREATE FUNCTION fill(content text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	CALL write_file('ft', 'id,i2,i4,i8,o,f4,f8,d,t,ts,tz,w,n' || content);
	TRUNCATE loaded;
	EXECUTE format('COPY loaded FROM %L (FORMAT csv, HEADER)', data_path('ft'));
	-- The planner then uses workers even for an empty file.
	UPDATE pg_class SET reltuples = 1000000, relpages = 1 WHERE oid = 'ft'::regclass;
END $$;
CREATE FUNCTION v(i int, every int, expression text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	value text;
BEGIN
	IF i % every = 0 THEN RETURN ''; END IF;
	EXECUTE format('SELECT (%s)::text FROM (SELECT $1::bigint i) s', expression) INTO value USING i;
	RETURN value;
END $$;
CREATE FUNCTION lines(first int, last int) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(concat_ws(',', E'\n' || i, v(i, 2, 'i*7%65536-32768'), v(i, 3, 'i*7919%4294967296-2147483648'), v(i, 5, '9223372036854775807-i%3'),
		v(i, 7, '4294967295-i'), v(i, 3, 'i/7.0'), v(i, 4, '1e300/(i%9+1)'), v(i, 6, $x$date '2000-01-01'+(i*37%5000)::int$x$),
		v(i, 5, $x$time '00:00'+i*interval '7.1 s'$x$), v(i, 4, $x$timestamp '1999-12-31'-(i*13%977)*interval '1 h'$x$),
		v(i, 9, $x$timestamptz '2020-03-01 00:00+01'+i*interval '1 min'$x$), v(i, 3, $x$'"a ""' || i || E'"",\n"'$x$), v(i, 8, 'i*1.5')), '' ORDER BY i), '')
	FROM generate_series(first, last) i
$$;

-- The plans of a query, in which `Relations` names the scans that compute aggregates, and whether the result
-- equals that of core over the loaded rows.
CREATE FUNCTION ways(query text, condition text DEFAULT '') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	expected text;
	found text;
	plan text;
	outcomes text[] := '{}';
BEGIN
	EXECUTE format('SELECT s::text FROM (SELECT %s FROM loaded ft %s) s', query, condition) INTO expected;
	FOR workers IN 0 .. 2 LOOP
		PERFORM set_config('max_parallel_workers_per_gather', workers::text, true);
		FOR i IN 1 .. 2 LOOP
			PERFORM set_config('pg_bulk.chunk_size', ('{100,4000,3000,262144,8000,65536}'::text[])[workers * 2 + i], true);
			PERFORM set_config('parallel_leader_participation', (i - 1)::text, true);
			PERFORM set_config('pg_bulk.aggregate_processes', (workers + i - 1)::text, true) WHERE workers > 0;
			EXECUTE format('SELECT s::text FROM (SELECT %s FROM ft %s) s', query, condition) INTO found;
			SELECT string_agg(substring(p FROM '(?:Relations: )?(?:Partial |Finalize )?Aggregate|Gather'), ' < ') INTO plan FROM plan_of(format('SELECT %s FROM ft %s', query, condition)) p
				WHERE p ~ 'Relations|Gather|Aggregate';
			-- Core's own aggregates. The planner chooses whether they are partial.
			plan := regexp_replace(plan, '^Finalize Aggregate < Gather < Partial Aggregate$', 'Aggregate < Gather');
			outcomes := outcomes || (plan || CASE WHEN found IS NOT DISTINCT FROM expected THEN ': same' ELSE format(': %s, not %s', found, expected) END);
		END LOOP;
	END LOOP;
	PERFORM set_config('max_parallel_workers_per_gather', '0', true);
	RETURN QUERY SELECT DISTINCT o FROM unnest(outcomes) o ORDER BY o;
END $$;

-- Each aggregate by itself, over files of all sizes.
CREATE TABLE aggregates (which text);
INSERT INTO aggregates SELECT a FROM unnest('{count(*),count(1),sum(i2),sum(i4),avg(i2),avg(i4),sum(i8),avg(i8)}'::text[]) a;
INSERT INTO aggregates SELECT format('%s(%s)', f, c) FROM unnest('{min,max}'::text[]) f, unnest('{i2,i4,i8,o,f4,f8,d,t,ts,tz}'::text[]) c;
INSERT INTO aggregates SELECT format('count(%s)', c) FROM unnest('{id,i2,i4,i8,o,f4,f8,d,t,ts,tz,w,n}'::text[]) c;
CREATE FUNCTION all_ways() RETURNS SETOF text LANGUAGE sql AS $$
	SELECT w || ': ' || string_agg(which, ', ' ORDER BY which COLLATE "C") FROM aggregates, ways(which) w GROUP BY w ORDER BY 1
$$;
SELECT fill(lines(1, 0));
SELECT all_ways();
SELECT count(*), sum(i4), avg(i4), min(ts) FROM ft;
SELECT fill(lines(1, 1));
SELECT all_ways();
SELECT fill(lines(1, 100));
SELECT all_ways();
SELECT fill(lines(1, 700));
-- All of them at once, and expressions over them.
SELECT ways(string_agg(which, ', ')) FROM aggregates;
SELECT ways(string_agg(which, ', ')) FROM aggregates WHERE which !~ '(sum|avg).i8';
SELECT ways('count(*) + 1, sum(i4) / count(w), coalesce(max(i2), 0) || $$!$$, sum(i4), sum(i4), now() > max(tz), $$const$$');
SELECT ways('1', 'HAVING count(*) > 0');
SELECT ways('count(*)', 'HAVING true');
-- Conditions, also on aggregated columns.
SELECT ways('count(*), sum(i4), min(d)', 'WHERE id % 3 = 1');
SELECT ways('count(*), sum(i4), max(f8), count(w)', 'WHERE i4 > 0 AND w LIKE $$%7%$$');
SELECT ways('count(*), sum(i4)', 'WHERE i4 IS NULL');
SELECT ways('count(*), sum(i4)', 'WHERE id < 0');
SELECT ways('count(*)', 'WHERE false');
SELECT ways('count(*), sum(id)', 'WHERE id IN (SELECT generate_series(1, 500, 3))');
SELECT ways('count(*), sum(id)', 'WHERE id > (SELECT avg(id) FROM loaded)');
SELECT ways('count(*), sum(id)', 'WHERE now() > $$2000-01-01$$');
SELECT ways('count(n), sum(id)', 'WHERE n > 100 AND d > $$2001-01-01$$ AND n < 900');
-- Queries that core has to aggregate.
SELECT ways('count(DISTINCT i2)');
SELECT ways('sum(i4 ORDER BY id)');
SELECT ways('count(*) FILTER (WHERE id > 5)');
SELECT ways('sum(i4 + 1)');
SELECT ways('count(ft)');
SELECT ways('sum(n), count(*)');
SELECT ways('min(w), count(*)');
SELECT ways('count(NULL::int)');
SELECT ways('count(*)', 'WHERE ft IS NOT NULL');
SELECT ways('count(*)', 'WHERE tableoid > 0');
SELECT ways('count(*)', 'GROUP BY ()');
SELECT ways('max(c)', 'JOIN LATERAL (SELECT count(*) c FROM ft f WHERE f.id < ft.id) l ON true WHERE ft.id < 9');
SELECT ways('count(*), sum(v)', ', LATERAL (VALUES (1), (2)) s(v)');
SELECT ways('count(*) OVER ()', 'LIMIT 1');
SELECT ways('count(*), generate_series(1, 2)', 'LIMIT 1');
-- User-defined functions of the same names.
CREATE FUNCTION add_twice(bigint, int) RETURNS bigint IMMUTABLE PARALLEL SAFE LANGUAGE sql AS 'SELECT $1 + 2::bigint * coalesce($2, 0)';
CREATE AGGREGATE sum(int) (SFUNC = add_twice, STYPE = bigint, INITCOND = 0);
SELECT ways('sum(i4)');
SELECT ways('fdw_aggregates.sum(i4)');
DROP AGGREGATE fdw_aggregates.sum(int);

-- Floats: sums in the order of rows, values that are not finite, equal zeros, sums that are too large.
SELECT string_agg(format(E'%s,%s\n', i / 7.0, i / 3.0), '') AS content FROM generate_series(1, 500) i \gset
CALL make_table('floats', 'a float8, b float4', $$format 'csv'$$, :'content');
SELECT plan_of('SELECT sum(a), sum(b) FROM floats');
SELECT sum(a) = (SELECT sum(a) FROM (SELECT * FROM floats OFFSET 0) s), sum(b) = (SELECT sum(b) FROM (SELECT * FROM floats OFFSET 0) s) FROM floats;
CALL write_file('floats', E'-0,0\n0,-0\n');
SELECT sum(a), sum(b), min(a), max(a), min(b), max(b) FROM floats;
SELECT sum(a), sum(b), min(a), max(a), min(b), max(b) FROM (SELECT * FROM floats OFFSET 0) s;
CALL write_file('floats', E'1,-Infinity\nNaN,2\n-1,NaN\nInfinity,3\n');
SELECT sum(a), sum(b), min(a), max(a), min(b), max(b) FROM floats;
SELECT sum(a), sum(b), min(a), max(a), min(b), max(b) FROM (SELECT * FROM floats OFFSET 0) s;
CALL write_file('floats', E'1e308,1\n1e308,1\nx,1\n');
SELECT error_of('SELECT sum(a) FROM floats');
SELECT error_of('SELECT sum(a) FROM (SELECT * FROM floats OFFSET 0) s');
CALL write_file('floats', E'1,3e38\n1,3e38\n');
SELECT error_of('SELECT sum(b) FROM floats');
SELECT error_of('SELECT sum(b) FROM (SELECT * FROM floats OFFSET 0) s');

-- Errors: in a column that the query needs, in another column; rows that are too short or too long.
CREATE FUNCTION errors_of(name text, query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	said text;
	outcomes text[] := '{}';
BEGIN
	FOR workers IN 0 .. 2 LOOP
		PERFORM set_config('max_parallel_workers_per_gather', workers::text, true);
		FOREACH said IN ARRAY ARRAY['FROM ' || name, format('FROM (SELECT * FROM %s OFFSET 0) s', name)] LOOP
			said := string_agg(e, E'\n') FROM error_of(format('SELECT %s %s', query, said)) e WHERE e <> 'CONTEXT: parallel worker';
			outcomes := outcomes || said;
		END LOOP;
	END LOOP;
	PERFORM set_config('max_parallel_workers_per_gather', '0', true);
	RETURN QUERY SELECT DISTINCT o FROM unnest(outcomes) o;
END $$;
CREATE FUNCTION pairs_with(bad text, at int, last int DEFAULT 900) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(CASE i WHEN at THEN bad ELSE format('%s,"%s"', i, i) END || E'\n', '') FROM generate_series(1, last) i
$$;
CALL make_table('wrong', 'a int, b int', $$format 'csv'$$, pairs_with('x,2', 700));
SELECT errors_of('wrong', 'sum(a)');
SELECT errors_of('wrong', 'count(a)');
SELECT errors_of('wrong', 'sum(b)');
SELECT errors_of('wrong', 'count(*)');
SELECT errors_of('wrong', 'count(b), max(a)');
SELECT errors_of('wrong', 'count(b) + 0 * sum(b) FROM (VALUES (1)) v CROSS JOIN LATERAL (SELECT * FROM wrong WHERE a > 0) w --');
CALL write_file('wrong', pairs_with('1', 700));
SELECT errors_of('wrong', 'count(*)');
SELECT errors_of('wrong', 'sum(a)');
CALL write_file('wrong', pairs_with('1,2,3', 1));
SELECT errors_of('wrong', 'count(*)');
CALL write_file('wrong', pairs_with('', 700));
SELECT errors_of('wrong', 'count(*)');
CALL write_file('wrong', pairs_with('"', 700));
SELECT errors_of('wrong', 'count(*)');
CALL write_file('wrong', pairs_with(E'\\.', 700));
-- The end of the data up to 17, with a notice, and data from 18 on.
SET client_min_messages = warning;
SELECT string_agg(split_part(e, E'\n', 1), ', ') = CASE WHEN current_setting('server_version_num')::int < 180000 THEN 'no error'
	ELSE '22P02: invalid input syntax for type integer: "\."' END AS "right" FROM errors_of('wrong', 'count(*), sum(a)') e;
SELECT current_setting('server_version_num')::int >= 180000 OR (SELECT count(*) = 699 AND sum(a) = 244650 FROM wrong) AS "right";
RESET client_min_messages;
CALL write_bytes('wrong', convert_to(pairs_with('1,1', 700), 'UTF8') || '\xff'::bytea);
SELECT errors_of('wrong', 'count(*)');
CALL write_file('wrong', pairs_with('1,2147483648', 700));
SELECT errors_of('wrong', 'sum(b)');
-- An error of a condition does not name the file.
SELECT errors_of('wrong', 'count(*) FROM wrong WHERE 1 / (a - 500) >= 0 --');
-- Text, with escapes, and an invalid escape in a column that the query does not need.
SELECT string_agg(format(E'%s\t%s\n', i, CASE WHEN i % 100 < 50 THEN E'\\x41\\t' ELSE 'x' END), '') AS content FROM generate_series(1, 900) i \gset
CALL make_table('texts', 'a int, b text', '', :'content');
SELECT count(*), sum(a), count(b) FROM texts;
SELECT count(*) FROM texts;
ALTER FOREIGN TABLE texts ALTER b TYPE int;
SELECT count(*) FROM texts;
CALL write_file('texts', E'1\tx\n2\t\\xff\n3\tx\n');
SELECT errors_of('texts', 'count(*)');
-- No columns.
CALL make_table('nothing', '', $$format 'csv'$$, E'\n\n\n');
SELECT count(*) FROM nothing;
CALL write_file('nothing', E'\n\nx\n');
SELECT errors_of('nothing', 'count(*)');

-- Options: limit and skip, rejected rows, defaults, markers; a header that must match.
CALL make_table('options', 'a int, b int', $$format 'csv', skip '2', "limit" '5'$$, pairs_with('x,', 10, 12));
SELECT count(*), sum(a) FROM options;
SELECT count(*) FROM options;
SELECT count(*), sum(a) FROM options WHERE a > 5;
ALTER FOREIGN TABLE options OPTIONS (DROP "limit", SET skip '10');
SELECT count(*), sum(a) FROM options;
SELECT count(*) FROM options;
ALTER FOREIGN TABLE options OPTIONS (DROP skip, on_error 'ignore');
SELECT count(*), sum(b) FROM options;
SELECT count(*) FROM options;
SELECT plan_of('SELECT count(*) FROM options', 'ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF');
ALTER FOREIGN TABLE options OPTIONS (SET on_error 'set_null');
SELECT count(*), count(a), sum(b) FROM options;
ALTER FOREIGN TABLE options OPTIONS (DROP on_error, "default" 'x');
ALTER FOREIGN TABLE options ALTER a SET DEFAULT 1000;
SELECT count(*), sum(a) FROM options;
ALTER FOREIGN TABLE options ALTER a DROP DEFAULT;
SELECT error_of('SELECT count(*) FROM options');
ALTER FOREIGN TABLE options OPTIONS (DROP "default", header 'match');
SELECT error_of('SELECT count(*) FROM options');
-- Generated and dropped columns.
CALL make_table('odd', 'z int, a int, g int GENERATED ALWAYS AS (a * 2) STORED, b int, h int GENERATED ALWAYS AS (a) STORED', $$format 'csv'$$, E'1,2\n3,\n');
ALTER FOREIGN TABLE odd DROP z;
SELECT count(*), count(g), count(h), sum(g), max(h), sum(a), sum(b) FROM odd;
SELECT count(*), count(g), count(h), sum(g), max(h), sum(a), sum(b) FROM (SELECT * FROM odd OFFSET 0) s;
SELECT count(*) FROM odd WHERE h IS NULL;
-- Domains, and types that have no decoder.
CREATE DOMAIN small AS int CHECK (VALUE < 100);
CALL make_table('domains', 'a small, b box', $$format 'csv'$$, E'1,"(1,2),(3,4)"\n2,\n');
SELECT plan_of('SELECT sum(a), count(b) FROM domains');
SELECT sum(a), max(a), count(b) FROM domains;
CALL write_file('domains', E'1,"(1,2),(3,4)"\n200,\n');
SELECT errors_of('domains', 'sum(a)');
SELECT errors_of('domains', 'count(b)');

-- Rescans, with another value each time.
SELECT plan_of('SELECT i, (SELECT count(*) FROM ft WHERE id <= i) FROM generate_series(0, 3) i');
SELECT i, (SELECT count(*) FROM ft WHERE id <= i), (SELECT sum(id) FROM ft WHERE id <= i) FROM generate_series(0, 3) i;
SELECT i, s.* FROM generate_series(0, 3) i, LATERAL (SELECT count(*), sum(id) FROM ft WHERE id % 4 = i) s;
SET max_parallel_workers_per_gather = 2;
SET enable_material = off;
SELECT i, s.* FROM generate_series(0, 3) i LEFT JOIN (SELECT count(*), sum(id) FROM ft) s ON true;
RESET enable_material;
SET plan_cache_mode = force_generic_plan;
PREPARE kept(int) AS SELECT count(*), sum(id) FROM ft WHERE id > $1;
SELECT plan_of('EXECUTE kept(5)');
EXECUTE kept(5);
EXECUTE kept(690);
EXECUTE kept(NULL);
RESET plan_cache_mode;
SET max_parallel_workers_per_gather = 0;
BEGIN;
DECLARE c CURSOR FOR SELECT count(*) FROM ft;
FETCH c;
FETCH c;
COMMIT;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT count(*) FROM ft;
MOVE c;
FETCH BACKWARD c;
FETCH FIRST c;
COMMIT;
-- In statements that write, and below other nodes.
CREATE TABLE kept_counts AS SELECT count(*), sum(id) FROM ft;
INSERT INTO kept_counts SELECT count(*), sum(i4) FROM ft WHERE id < 10;
UPDATE kept_counts SET count = count + (SELECT count(*) FROM ft) WHERE sum IN (SELECT sum(id) FROM ft);
TABLE kept_counts;
SELECT count(*) FROM ft UNION ALL SELECT max(id) FROM ft ORDER BY 1;
SELECT exists(SELECT count(*) FROM ft WHERE id < 0), array(SELECT count(*) FROM ft);
WITH c AS MATERIALIZED (SELECT count(*) FROM ft) SELECT a.*, b.* FROM c a, c b;
SELECT * FROM (SELECT count(*) c, 'x' FROM ft) s WHERE c > 5;
SELECT DISTINCT count(*) FROM ft ORDER BY 1 LIMIT 1;
-- EXPLAIN.
SELECT plan_of('SELECT count(*) + 1, sum("F".id) FROM ft "F" WHERE w LIKE $$%7%$$ AND d IS NOT NULL', 'VERBOSE, COSTS OFF');
SELECT plan_of('SELECT count(*) + 1, sum(id) FROM ft WHERE d IS NOT NULL', 'ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF');
SET max_parallel_workers_per_gather = 1;
SELECT plan_of('SELECT avg(id) FROM ft', 'VERBOSE, COSTS OFF');
SET max_parallel_workers_per_gather = 0;

-- Privileges: those on the table, of a view's owner, and on the function.
SET client_min_messages = warning;
CREATE ROLE fdw_counter;
GRANT USAGE ON SCHEMA fdw_aggregates TO fdw_counter;
GRANT SELECT (id, i4) ON ft TO fdw_counter;
CREATE VIEW counted AS SELECT count(*), max(w) IS NULL AS is_null FROM ft;
CREATE VIEW shown WITH (security_barrier) AS SELECT * FROM ft WHERE id % 2 = 0;
GRANT SELECT ON counted, shown, loaded TO fdw_counter;
RESET client_min_messages;
SET ROLE fdw_counter;
SELECT count(*), sum(i4) FROM ft;
SELECT error_of('SELECT count(w) FROM ft');
SELECT error_of('SELECT count(*) FROM ft WHERE w > $$a$$');
SELECT * FROM counted;
SELECT count(*) FROM shown;
RESET ROLE;
BEGIN;
PREPARE kept_right AS SELECT count(*), sum(i4) FROM ft;
REVOKE EXECUTE ON FUNCTION pg_catalog.sum(int) FROM PUBLIC;
SET ROLE fdw_counter;
SELECT error_of('SELECT sum(i4) FROM ft');
SELECT error_of('SELECT sum(i4) FROM (SELECT * FROM loaded) s');
SELECT error_of('EXECUTE kept_right');
SELECT count(*) FROM ft;
ROLLBACK;

-- Core aggregates inheritance trees.
CREATE TABLE child () INHERITS (ft);
INSERT INTO child (id) VALUES (-1);
SELECT count(*), min(id) FROM ft;
SELECT count(*), min(id) FROM ONLY ft;
DROP TABLE child;

\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA fdw_aggregates CASCADE;
DROP ROLE fdw_counter;
