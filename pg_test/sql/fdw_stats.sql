--
-- ANALYZE: statistics of a file, and the planner's estimates when the file changes.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema fdw_stats
\i :helpers
\set ECHO all
CREATE PROCEDURE make_rows(name text, n int) LANGUAGE plpgsql AS $$
DECLARE
	content text := E'id,kind,maybe\n' || string_agg(format(E'%s,%s,%s\n', g, g % 4, CASE WHEN g % 2 = 0 THEN 'x' END), '' ORDER BY g)
		FROM generate_series(1, n) g;
BEGIN
	CALL write_file(name, content);
END $$;
CALL make_table('t', 'id int, kind int, maybe text', $$format 'csv', header 'match'$$, '');
CALL make_rows('t', 2000);
SELECT reltuples, relpages FROM pg_class WHERE oid = 't'::regclass;
ANALYZE t;
SELECT reltuples, relpages = ceil((pg_stat_file(data_path('t'))).size / 8192.0) AS pages_of_file
FROM pg_class WHERE oid = 't'::regclass;
SELECT attname, null_frac, n_distinct, avg_width, most_common_vals, array_length(histogram_bounds, 1) > 50 AS histogram
FROM pg_stats WHERE schemaname = 'fdw_stats' AND tablename = 't' ORDER BY attname;
SELECT rows_expected('SELECT * FROM t') AS rows, rows_expected('SELECT * FROM t WHERE kind = 1') BETWEEN 450 AND 550 AS kind,
	rows_expected('SELECT * FROM t WHERE maybe IS NULL') BETWEEN 900 AND 1100 AS nulls,
	rows_expected('SELECT * FROM t WHERE id <= 200') BETWEEN 150 AND 250 AS range;
SELECT rows_expected('SELECT kind FROM t GROUP BY kind');

-- The row density that ANALYZE found is scaled to the present size of the file.
CALL make_rows('t', 20000);
SELECT rows_expected('SELECT * FROM t') BETWEEN 17000 AND 23000 AS ten_times, rows_expected('SELECT * FROM t WHERE kind = 1') BETWEEN 4000 AND 6000 AS kind;
ANALYZE t;
CALL make_rows('t', 5000);
SELECT rows_expected('SELECT * FROM t') BETWEEN 4000 AND 6000 AS a_quarter;
CALL make_rows('t', 200);
ANALYZE t;
SELECT reltuples FROM pg_class WHERE oid = 't'::regclass;

-- A file larger than the sample: the count is exact, the sample is of the whole file.
SET default_statistics_target = 1;
CALL make_rows('t', 20000);
-- 18 prints the resource usage behind the counts.
\setenv PGDATABASE :DBNAME
\! "$PGB_BINDIR/psql" -Xqc 'SET search_path = fdw_stats; SET default_statistics_target = 1' -c 'ANALYZE VERBOSE t' 2>&1 | grep -E 'analyzing "|file contains'
SELECT reltuples FROM pg_class WHERE oid = 't'::regclass;
SELECT (histogram_bounds::text::int[])[1] < 4000 AS begins_early, (histogram_bounds::text::int[])[2] > 16000 AS ends_late
FROM pg_stats WHERE schemaname = 'fdw_stats' AND tablename = 't' AND attname = 'id';
RESET default_statistics_target;
ALTER FOREIGN TABLE t ALTER kind SET STATISTICS 0, ALTER maybe SET (n_distinct = 1234);
ANALYZE t (kind, maybe);
SELECT attname, n_distinct FROM pg_stats WHERE schemaname = 'fdw_stats' AND tablename = 't' AND attname = 'maybe';

-- skip and limit apply.
ALTER FOREIGN TABLE t OPTIONS (ADD skip '100', ADD "limit" '50');
ANALYZE t;
SELECT reltuples FROM pg_class WHERE oid = 't'::regclass;
SELECT (histogram_bounds::text::int[])[1] AS first FROM pg_stats WHERE schemaname = 'fdw_stats' AND tablename = 't' AND attname = 'id';
ALTER FOREIGN TABLE t OPTIONS (DROP skip, DROP "limit");

-- Values of the sampled columns must be good; those of other columns, too, since all columns are sampled.
CALL write_file('t', E'id,kind,maybe\n1,1,x\n2,two,x\n');
SELECT error_of('ANALYZE t');
SELECT error_of('ANALYZE t (id)');
CALL write_file('t', E'id,kind,maybe\n1,1,x\n2\n');
SELECT error_of('ANALYZE t');
CALL write_file('t', E'id,kind\n');
SELECT error_of('ANALYZE t');
-- ANALYZE evaluates defaults.
CALL make_table('d', 'a int, b int DEFAULT 7', $$default 'D'$$, E'1\tD\n2\tD\n3\tD\n');
ANALYZE d;
SELECT attname, most_common_vals FROM pg_stats WHERE schemaname = 'fdw_stats' AND tablename = 'd' AND attname = 'b';

-- An empty file, a file that was removed, and one that existed only while ANALYZE planned.
CALL write_file('d', '');
ANALYZE d;
SELECT reltuples, relpages FROM pg_class WHERE oid = 'd'::regclass;
SELECT rows_expected('SELECT * FROM d') <= 1;
SELECT data_path('gone') AS gone \gset
ALTER FOREIGN TABLE d OPTIONS (SET filename :'gone');
SELECT error_of('ANALYZE d');
SELECT rows_expected('SELECT * FROM d') > 0;

-- Programs, and paths that are not regular files, are not analyzed, as in file_fdw.
CREATE FOREIGN TABLE p (a int) SERVER bulk_files OPTIONS (program 'echo 1');
ANALYZE p;
ALTER FOREIGN TABLE p OPTIONS (DROP program, ADD filename '/dev/null');
ANALYZE p;
SELECT reltuples FROM pg_class WHERE oid = 'p'::regclass;

-- A partitioned table gets statistics of the rows of all partitions.
CREATE TABLE parts (id int, kind int, maybe text) PARTITION BY RANGE (id);
CALL make_rows('t', 1000);
ALTER FOREIGN TABLE t ALTER kind SET STATISTICS -1;
ALTER TABLE parts ATTACH PARTITION t FOR VALUES FROM (1) TO (10000);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES FROM (-10000) TO (1);
INSERT INTO parts SELECT -g, 9, NULL FROM generate_series(0, 999) g;
ANALYZE parts;
SELECT reltuples FROM pg_class WHERE oid = 'parts'::regclass;
SELECT inherited, n_distinct, null_frac FROM pg_stats
WHERE schemaname = 'fdw_stats' AND tablename = 'parts' AND attname IN ('kind', 'maybe') ORDER BY attname;

-- The planner joins a file as it joins a table with the same rows: same method, same inner side, in one process and with workers, by default costs.
\set ECHO none
CREATE PROCEDURE make_pair(name text, columns text, query text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('COPY (%s) TO %L (FORMAT csv)', query, data_path('pair_' || name));
	EXECUTE format('CREATE FOREIGN TABLE file_%s (%s) SERVER bulk_files OPTIONS (filename %L, format ''csv'', encoding ''UTF8'')', name, columns, data_path('pair_' || name));
	EXECUTE format('CREATE TABLE heap_%s (%s)', name, columns);
	EXECUTE format('COPY heap_%s FROM %L (FORMAT csv)', name, data_path('pair_' || name));
END $$;
-- The topmost join: its method, its inner relation, and whether there are workers.
CREATE FUNCTION join_of(statement text, workers int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	PERFORM set_config('max_parallel_workers_per_gather', workers::text, true);
	EXECUTE 'EXPLAIN (FORMAT json) ' || statement INTO plan;
	RETURN (WITH RECURSIVE nodes(node, depth) AS (SELECT plan -> 0 -> 'Plan', 0 UNION ALL
			SELECT child, depth + 1 FROM nodes, jsonb_array_elements(node -> 'Plans') child),
		top AS (SELECT node FROM nodes WHERE node ? 'Join Type' ORDER BY depth LIMIT 1)
		SELECT concat_ws(' ', node ->> 'Node Type', 'within:', jsonb_path_query_array(node, '$.Plans[1].**."Alias"') ->> 0,
			CASE WHEN jsonb_path_exists(plan, '$.**."Workers Planned"') THEN 'with workers' END) FROM top);
END $$;
-- The join of the table, in one process and with workers; and the join of the file where it differs.
CREATE FUNCTION compared(statement text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT concat(heap, ', but of the file ' || nullif(file, heap)) FROM unnest('{0,2}'::int[]) workers, LATERAL (SELECT join_of(format(statement, 'heap'), workers) AS heap, join_of(format(statement, 'file'), workers) AS file) j
$$;
CALL make_pair('large', 'id int, kind int, word text', 'SELECT a, a * 7919::bigint % 1000, md5(a::text) FROM generate_series(1, 250000) a');
CALL make_pair('small', 'kind int, name text', 'SELECT a, ''kind '' || a FROM generate_series(0, 999) a');
CREATE TABLE others (id int, note text);
INSERT INTO others SELECT a, 'note' FROM generate_series(1, 250000, 5) a;
ANALYZE heap_large, heap_small, others;
\set ECHO all
SELECT compared('SELECT count(*) FROM %s_large l JOIN %1$s_small s USING (kind)');
SELECT compared('SELECT count(*) FROM %s_large l JOIN others o USING (id)');
ANALYZE file_large, file_small;
SELECT compared('SELECT count(*) FROM %s_large l JOIN %1$s_small s USING (kind)');
SELECT compared('SELECT count(*) FROM %s_small s JOIN heap_large l USING (kind)');
SELECT compared('SELECT count(*) FROM %s_large l JOIN others o USING (id)');
SELECT compared('SELECT count(l.word) FROM heap_small s LEFT JOIN %s_large l ON l.kind = s.kind AND l.id < 1000');

SET client_min_messages = warning;
DROP SCHEMA fdw_stats CASCADE;
