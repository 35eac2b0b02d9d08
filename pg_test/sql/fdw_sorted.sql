--
-- Option sorted_by: the plans with it, that rows out of order are errors if a query relies on the order, and that all
-- queries return the same rows as without it.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema fdw_sorted
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
SET max_parallel_workers_per_gather = 0;

-- The option's syntax is checked when it is set; its names are resolved when a query on the table is planned.
CREATE FUNCTION sorts_by(list text, columns text DEFAULT 'id int, "Word, DESC" text, j json, n int GENERATED ALWAYS AS (id) STORED')
RETURNS SETOF text LANGUAGE plpgsql SET client_min_messages = warning AS $$
BEGIN
	RETURN QUERY SELECT error_of(format('CALL make_table(''any'', %L, %L, E''1\ta\t1\n'')', columns, format('sorted_by %L', list)));
	RETURN QUERY SELECT error_of('SELECT * FROM "any"');
	DROP FOREIGN TABLE IF EXISTS "any";
END $$;
SELECT list, sorts_by(list) FROM unnest(ARRAY['id', 'ID desc', '"Word, DESC" COLLATE "C" ASC NULLS FIRST, id -- both', '', ',', 'id,', '1', 'id + 1', 'lower(id)',
	'any.id', '*', 'id USING >', 'id LIMIT 1', 'id; SELECT 1', 'id FOR UPDATE', 'id UNION SELECT', 'id) FROM (SELECT', 'id, nothing', 'ctid', 'j', 'n',
	'id COLLATE "C"', '"Word, DESC" COLLATE nowhere', 'id id']) list;
SELECT error_of($$ALTER SERVER bulk_files OPTIONS (ADD sorted_by 'id')$$);
SELECT error_of($$CREATE FOREIGN TABLE c (a int OPTIONS (sorted_by 'a')) SERVER bulk_files OPTIONS (filename '/')$$);

-- Plans.
SELECT E'id,word,n\n' || string_agg(format('%s,%s,%s', i / 2, CASE WHEN i % 2 = 0 THEN 'b' ELSE 'a' END, i * 7 % 10), E'\n' ORDER BY i) AS content
	FROM generate_series(2, 2001) i \gset
CALL make_table('sorted', 'id int, word text, n int', $$format 'csv', header 'true', sorted_by 'id, word COLLATE "C" DESC'$$, :'content');
CREATE TABLE plain AS TABLE sorted;
ANALYZE plain;
SELECT plan_of('SELECT * FROM sorted ORDER BY id');
SELECT plan_of('SELECT n FROM sorted ORDER BY id, word COLLATE "C" DESC LIMIT 3');
SET enable_hashagg = off;
SELECT plan_of('SELECT id, count(*) FROM sorted GROUP BY id');
RESET enable_hashagg;
SET enable_hashjoin = off;
SET enable_nestloop = off;
SET enable_incremental_sort = off;
SELECT plan_of('SELECT * FROM sorted a JOIN sorted b USING (id)');
SELECT plan_of('SELECT * FROM sorted JOIN plain USING (id)');
RESET enable_incremental_sort;
RESET enable_hashjoin;
RESET enable_nestloop;
SELECT plan_of('SELECT min(id) FROM sorted');
SET enable_sort = off;
SET enable_incremental_sort = off;
SELECT plan_of('SELECT DISTINCT ON (id) id, word FROM sorted WHERE n > 3 ORDER BY id, n');
RESET enable_incremental_sort;
RESET enable_sort;
SELECT plan_of('SELECT word FROM sorted WHERE id = 7 ORDER BY word COLLATE "C" DESC');
SELECT plan_of('SELECT row_number() OVER (ORDER BY id) FROM sorted');
-- Queries that cannot use the order.
SELECT plan_of('SELECT * FROM sorted ORDER BY id DESC');
SELECT plan_of('SELECT * FROM sorted ORDER BY id NULLS FIRST');
SELECT plan_of('SELECT * FROM sorted WHERE id = 7 ORDER BY word');
SELECT plan_of('SELECT * FROM sorted');

-- The same rows with and without it.
CREATE FUNCTION of_query(statement text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
	line text;
	result text[] := '{}';
BEGIN
	FOR line IN EXECUTE format('SELECT q::text FROM (%s) q', statement) LOOP
		result := result || line;
	END LOOP;
	RETURN result;
EXCEPTION WHEN OTHERS THEN
	RETURN ARRAY[SQLERRM];
END $$;
CREATE FUNCTION same(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	expected text[] := of_query(replace(statement, 'sorted', 'plain'));
	result text[] := of_query(statement);
BEGIN
	RETURN CASE WHEN result = expected THEN cardinality(result) || ' alike' ELSE format('%s instead of %s', result[:5], expected[:5]) END;
END $$;
CREATE FUNCTION queries() RETURNS SETOF text LANGUAGE sql AS $$
	SELECT unnest(ARRAY['SELECT * FROM sorted ORDER BY id, word COLLATE "C" DESC', 'SELECT n FROM sorted ORDER BY id, word COLLATE "C" DESC LIMIT 30 OFFSET 5',
		'SELECT id, count(*), sum(n) FROM sorted GROUP BY id ORDER BY id', 'SELECT a.id, b.n FROM sorted a JOIN sorted b USING (id) ORDER BY 1, 2',
		'SELECT a.id, b.n FROM sorted a LEFT JOIN sorted b ON a.id = b.id AND b.n > 5 ORDER BY 1, 2', 'SELECT min(id), max(id) FROM sorted',
		'SELECT DISTINCT id FROM sorted WHERE n > 7 ORDER BY id', 'SELECT (SELECT min(b.id) FROM sorted b WHERE b.id > a.id) FROM sorted a WHERE a.id < 20 ORDER BY a.id',
		'SELECT x, n FROM generate_series(1, 3) x, LATERAL (SELECT n FROM sorted WHERE id >= x * 100 ORDER BY id, n LIMIT 2) y ORDER BY 1, 2',
		'SELECT sum(n) OVER (ORDER BY id) FROM sorted ORDER BY 1'])
$$;
SELECT same(q) FROM queries() q;
SET enable_hashjoin = off;
SET enable_nestloop = off;
SET enable_hashagg = off;
SET enable_sort = off;
SELECT same(q) FROM queries() q;
RESET ALL;
SET search_path = fdw_sorted, public;
SELECT set_config('test.dir', :'data', false) <> '' AS data;

-- Several processes: each has its rows in order.
SET min_parallel_table_scan_size = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET max_parallel_workers_per_gather = 3;
SET pg_bulk.chunk_size = '100';
SET enable_sort = off;
SELECT plan_of('SELECT * FROM sorted ORDER BY id');
SELECT same(q) FROM queries() q;
SET parallel_leader_participation = off;
SELECT same(q) FROM queries() q;
RESET parallel_leader_participation;

-- A file that is not in order: a query that relies on the order, and reads all rows, gets an error or the right rows.
CALL make_table('lies', 'id int, word text', $$sorted_by 'id'$$, E'1\ta\n2\tb\n2\tc\n\\N\td\n1\te\n5\tf\n');
SET max_parallel_workers_per_gather = 0;
SELECT error_of('SELECT * FROM lies ORDER BY id');
SELECT error_of('SELECT word FROM lies ORDER BY id');
SET enable_hashagg = off;
SET enable_hashjoin = off;
SET enable_nestloop = off;
SELECT error_of('SELECT id, count(*) FROM lies GROUP BY id');
SELECT error_of('SELECT a.word FROM lies a JOIN lies b USING (id) WHERE a.id IS NOT NULL AND b.id IS NOT NULL');
-- A merge join stops at a NULL, since no value equals it.
SELECT error_of('SELECT a.word FROM lies a JOIN lies b USING (id)');
RESET enable_hashagg;
RESET enable_hashjoin;
RESET enable_nestloop;
SELECT count(*), min(word), max(id) FROM lies;
SELECT * FROM lies;
-- Rows that the condition removes are not compared, and neither are rows that are not read.
SELECT word FROM lies WHERE word <> 'e' AND id IS NOT NULL ORDER BY id;
SELECT word FROM lies WHERE id IN (1, 5) AND word <> 'e' ORDER BY id;
SELECT error_of($$SELECT word FROM lies WHERE word > 'c' ORDER BY id$$);
SELECT word FROM lies ORDER BY id LIMIT 4;
SELECT error_of('SELECT word FROM lies ORDER BY id LIMIT 5');
-- Several processes: each one has its rows in order, and the leader merges them.
SELECT string_agg(format(E'%s\t%s', CASE WHEN i = 700 THEN 3 ELSE i END, i), E'\n' ORDER BY i) AS content FROM generate_series(1, 1000) i \gset
CALL make_table('lies', 'id int, word text', $$sorted_by 'id'$$, :'content');
SET max_parallel_workers_per_gather = 3;
CREATE FUNCTION right_or_error() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	ids int[];
BEGIN
	ids := ARRAY(SELECT id FROM lies ORDER BY id);
	RETURN CASE WHEN ids = ARRAY(SELECT unnest(ids) ORDER BY 1) AND cardinality(ids) = 1000 THEN 'fine' ELSE 'wrong' END;
EXCEPTION WHEN bad_copy_file_format THEN
	RETURN 'fine';
END $$;
SELECT DISTINCT right_or_error() FROM generate_series(1, 20);
SET max_parallel_workers_per_gather = 0;
SELECT error_of('SELECT * FROM lies ORDER BY id');

-- Cursors, rescans, subtransactions: each scan starts the check anew.
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM sorted ORDER BY id;
FETCH 3 FROM c;
MOVE LAST IN c;
FETCH BACKWARD 2 FROM c;
FETCH FIRST FROM c;
COMMIT;
SET enable_material = off;
SET enable_memoize = off;
SELECT count(*), bool_and(first = 10) FROM (SELECT (SELECT id FROM sorted b WHERE b.n <> x AND id > 9 ORDER BY id LIMIT 1) AS first FROM generate_series(20, 25) x) y;

-- Rejected values, and values set to NULL.
CALL make_table('bad', 'id int, n int', $$sorted_by 'id', on_error 'ignore', log_verbosity 'silent'$$, E'1\t1\n9\tx\n2\t2\n');
SELECT * FROM bad ORDER BY id;
ALTER FOREIGN TABLE bad OPTIONS (SET on_error 'set_null');
SELECT error_of('SELECT * FROM bad ORDER BY id');
CALL make_table('bad', 'id int, n int', $$sorted_by 'id', on_error 'set_null', log_verbosity 'silent'$$, E'1\t1\n2\t2\nx\t3\n');
SELECT * FROM bad ORDER BY id;
-- skip and limit.
CALL make_table('part', 'id int', $$sorted_by 'id', skip '1', limit '2'$$, E'9\n1\n2\n0\n');
SELECT * FROM part ORDER BY id;

-- NULLs, directions, collations and types: the check compares as the option says.
CREATE FUNCTION checked(list text, type text, content text, clause text DEFAULT NULL) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	statement text := 'SELECT coalesce(a::text, ''NULL'') FROM of_type ORDER BY ' || coalesce(clause, list);
BEGIN
	EXECUTE format('CALL make_table(''of_type'', ''a %s, b int'', %L, %L)', type, format('sorted_by %L', list), content);
	RETURN QUERY SELECT btrim(l) FROM plan_of(statement) l WHERE l ~ 'Sort';
	RETURN QUERY SELECT l FROM error_of(statement) WITH ORDINALITY e(l, i) WHERE i = 1;
	RETURN NEXT array_to_string(of_query(statement), ' ');
END $$;
SELECT checked('a', 'int', E'1\t1\n2\t1\n\\N\t1\n\\N\t1\n');
SELECT checked('a', 'int', E'\\N\t1\n1\t1\n');
SELECT checked('a NULLS FIRST', 'int', E'\\N\t1\n\\N\t1\n1\t1\n');
SELECT checked('a NULLS FIRST', 'int', E'1\t1\n\\N\t1\n');
SELECT checked('a DESC', 'int', E'\\N\t1\n3\t1\n1\t1\n');
SELECT checked('a DESC', 'int', E'3\t1\n1\t1\n2\t1\n');
SELECT checked('a DESC NULLS LAST', 'int', E'3\t1\n1\t1\n\\N\t1\n');
SELECT checked('a, b DESC', 'int', E'1\t2\n1\t1\n2\t9\n');
SELECT checked('a, b DESC', 'int', E'1\t1\n1\t2\n2\t9\n');
SELECT checked('a, b DESC', 'int', E'1\t1\n1\t2\n2\t9\n', 'a');
SELECT checked('a', 'float8', E'-Infinity\t1\n-0\t1\n0\t1\nNaN\t1\n');
SELECT checked('a', 'numeric', E'-1.5\t1\n1e3\t1\n1000.0\t1\nNaN\t1\n');
SELECT checked('a', 'numeric(6,1)', E'1.04\t1\n1.01\t1\n');
SELECT checked('a', 'uuid', E'00000000-0000-0000-0000-000000000002\t1\n00000000-0000-0000-0000-000000000001\t1\n');
SELECT checked('a', 'timestamptz', E'2001-01-01 00:00+01\t1\n2001-01-01 00:00+00\t1\n');
SELECT checked('a', 'int[]', E'{1,2}\t1\n{1,3}\t1\n{2}\t1\n');
SELECT checked('a', 'varchar(9)', E'a\t1\nb\t1\n');
SELECT checked('a', 'varchar(9)', E'b\t1\na\t1\n');
SELECT checked('a COLLATE "C"', 'text', E'B\t1\na\t1\nb\t1\n');
SELECT checked('a COLLATE "C"', 'text', E'a\t1\nB\t1\n');
SELECT checked('a COLLATE "C"', 'text COLLATE "POSIX"', E'B\t1\na\t1\n', 'a');
CREATE DOMAIN year AS int CHECK (VALUE > 0);
CREATE TYPE size AS ENUM ('small', 'large');
SELECT checked('a', 'year', E'1\t1\n3\t1\n2\t1\n');
SELECT checked('a', 'size', E'small\t1\nlarge\t1\n');
SELECT checked('a', 'size', E'large\t1\nsmall\t1\n');
DO $$
BEGIN
	CREATE COLLATION nobody_minds (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
EXCEPTION WHEN OTHERS THEN
	RAISE NOTICE 'no ICU';
END $$;
SELECT checked('a', 'text COLLATE nobody_minds', E'a\t1\nA\t1\na\t1\nB\t1\nb\t1\n');
SELECT checked('a', 'text COLLATE nobody_minds', E'B\t1\na\t1\n');
SELECT checked('a, b', 'text COLLATE nobody_minds', E'a\t1\nA\t2\na\t3\nB\t1\n');
SELECT checked('a, b', 'text COLLATE nobody_minds', E'a\t1\nA\t3\na\t2\nB\t1\n');
-- Long values are kept whole.
SELECT checked('a COLLATE "C"', 'text', repeat('x', 100000) || E'1\t1\n' || repeat('x', 100000) || E'0\t1\n');

-- A user-defined operator class, whose function may run any code.
CREATE TYPE pair AS (a int, b int);
CREATE FUNCTION pair_cmp(x pair, y pair) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF x.a = 13 OR y.a = 13 THEN
		RAISE 'unlucky';
	END IF;
	RETURN sign(x.a - y.a);
END $$;
CREATE FUNCTION pair_lt(pair, pair) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT pair_cmp($1, $2) < 0';
CREATE FUNCTION pair_gt(pair, pair) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT pair_cmp($1, $2) > 0';
CREATE FUNCTION pair_eq(pair, pair) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT pair_cmp($1, $2) = 0';
CREATE OPERATOR < (LEFTARG = pair, RIGHTARG = pair, FUNCTION = pair_lt);
CREATE OPERATOR > (LEFTARG = pair, RIGHTARG = pair, FUNCTION = pair_gt);
CREATE OPERATOR = (LEFTARG = pair, RIGHTARG = pair, FUNCTION = pair_eq);
CREATE OPERATOR CLASS pair_ops DEFAULT FOR TYPE pair USING btree AS OPERATOR 1 <, OPERATOR 3 =, OPERATOR 5 >, FUNCTION 1 pair_cmp(pair, pair);
SELECT checked('a', 'pair', E'(1,9)\t1\n(2,8)\t1\n(2,7)\t1\n(3,1)\t1\n');
SELECT checked('a', 'pair', E'(2,9)\t1\n(1,8)\t1\n');
SELECT checked('a', 'pair', E'(1,9)\t1\n(13,8)\t1\n');
-- An error that a comparison raises does not show the line.
SELECT error_of('SELECT a FROM of_type ORDER BY a');

-- Columns renamed and dropped; a plan that is kept.
CALL make_table('changing', 'id int, word text', $$sorted_by 'id'$$, E'2\tb\n3\ta\n');
PREPARE kept AS SELECT * FROM changing ORDER BY id;
EXECUTE kept;
EXECUTE kept;
CALL write_file('changing', E'3\tb\n2\ta\n');
SELECT error_of('EXECUTE kept');
ALTER FOREIGN TABLE changing OPTIONS (DROP sorted_by);
EXECUTE kept;
ALTER FOREIGN TABLE changing OPTIONS (ADD sorted_by 'word DESC');
EXECUTE kept;
SELECT word FROM changing ORDER BY word DESC;
ALTER FOREIGN TABLE changing RENAME word TO words;
SELECT error_of('SELECT * FROM changing');
ALTER FOREIGN TABLE changing OPTIONS (SET sorted_by 'words DESC');
SELECT words FROM changing ORDER BY words DESC;
ALTER FOREIGN TABLE changing DROP words;
SELECT error_of('SELECT * FROM changing');
DEALLOCATE kept;

-- The rows of partitions and children are merged; arms of a UNION ALL, too.
CREATE TABLE parent (id int, word text) PARTITION BY LIST (word);
CREATE FUNCTION arm(name text, content text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	CALL make_table(name, 'id int, word text', $o$sorted_by 'id', encoding 'UTF8'$o$, content);
END $$;
SELECT arm('part_a', E'1\ta\n4\ta\n'), arm('part_b', E'2\tb\n3\tb\n7\tb\n');
ALTER TABLE parent ATTACH PARTITION part_a FOR VALUES IN ('a');
ALTER TABLE parent ATTACH PARTITION part_b FOR VALUES IN ('b');
SELECT plan_of('SELECT * FROM parent ORDER BY id');
SELECT * FROM parent ORDER BY id;
SELECT plan_of('SELECT id FROM part_a UNION ALL SELECT id FROM part_b ORDER BY id');
SELECT id FROM part_a UNION ALL SELECT id FROM part_b ORDER BY id;
SELECT arm('part_c', E'9\tc\n8\tc\n');
ALTER TABLE parent ATTACH PARTITION part_c FOR VALUES IN ('c');
SELECT error_of('SELECT * FROM parent ORDER BY id');

-- INSERT keeps the order that the query asks for. A load whose query asks for none does not check the order.
CREATE TABLE target (n int GENERATED ALWAYS AS IDENTITY, id int, word text);
SELECT plan_of('INSERT INTO target (id) SELECT id FROM sorted ORDER BY id', 'VERBOSE, COSTS OFF');
INSERT INTO target (id, word) SELECT id, word FROM sorted ORDER BY id, word COLLATE "C" DESC;
SELECT count(*), bool_and(id = (n + 1) / 2) FROM target;
SELECT error_of('INSERT INTO target (id) SELECT id FROM lies ORDER BY id');
SELECT error_of('CREATE TABLE made AS SELECT id FROM lies ORDER BY id');
CREATE TABLE made AS SELECT id FROM sorted ORDER BY id;
SELECT array_agg(id) FROM (SELECT id FROM made LIMIT 4) m;
DROP TABLE made;
CREATE TABLE made AS SELECT id FROM lies;
INSERT INTO target (id) SELECT id FROM lies;
SELECT count(*) FROM made;

-- A role that may not read a column does not see its values in an error.
CREATE ROLE fdw_sorted_reader;
GRANT USAGE ON SCHEMA fdw_sorted TO fdw_sorted_reader;
GRANT SELECT (id) ON lies TO fdw_sorted_reader;
SET ROLE fdw_sorted_reader;
SELECT error_of('SELECT id FROM lies ORDER BY id');
RESET ROLE;

\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA fdw_sorted CASCADE;
DROP ROLE fdw_sorted_reader;
