--
-- INSERT … SELECT from a foreign table joined with small tables, as a load: the result equals that of core's INSERT
-- for each number of processes.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set insert_helpers :data '/insert_helpers.sql'
\set schema insert_select_joins
\i :helpers
\i :insert_helpers
CALL make_table('orders', 'id int, item int, word text, n numeric', $$format 'csv'$$,
	as_file('SELECT i, CASE WHEN i % 50 > 0 THEN i % 23 END AS item, ''word '' || i % 7 AS word, nullif(i % 11, 0) AS n FROM generate_series(1, 600) i'));
CALL make_table('none', 'id int, item int, word text, n numeric', $$format 'csv'$$, '');
CREATE TABLE items (id int, name text, price int);
INSERT INTO items SELECT i, 'item ' || i, i * 10 FROM generate_series(0, 19) i;
INSERT INTO items VALUES (3, 'another', 7), (NULL, 'no number', 1), (5, NULL, NULL);
CREATE TABLE kinds (word text PRIMARY KEY, kind text);
INSERT INTO kinds SELECT 'word ' || i, 'kind ' || i % 2 FROM generate_series(0, 4) i;
CREATE TABLE nothing (id int, name text);
ANALYZE items, kinds, nothing;
CREATE TABLE t (id int, item int, word text, n numeric);
CREATE TABLE fresh (id int, word text);
-- The first statement of a connection: the library is not loaded yet.
\c
SET search_path = insert_select_joins, public;
\set ECHO all
\pset tuples_only
\pset format unaligned
DO $$
DECLARE line text;
BEGIN
	EXECUTE 'EXPLAIN (COSTS OFF) INSERT INTO fresh SELECT o.id, i.name FROM orders o JOIN items i ON i.id = o.item' INTO line;
	RAISE NOTICE '%', line;
END $$;
\c
SET search_path = insert_select_joins, public;
INSERT INTO fresh SELECT o.id, i.name FROM orders o JOIN items i ON i.id = o.item;
SELECT count(*), min(id), max(id), count(word) FROM fresh;
\set ECHO none
\getenv data PGB_DATA
SELECT set_config('test.dir', :'data', false) AS data \gset
-- The result of one process, and with workers: number and checksum of the rows.
CREATE FUNCTION joined(statement text, target text DEFAULT 't', processes int[] DEFAULT '{0,2}') RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(line, ' ') FROM either_way(statement,
		format('(SELECT count(*), md5(string_agg(%I::text, '';'' ORDER BY %1$I::text)) FROM %1$I)', target), processes) line
$$;
-- The nodes of the plan.
CREATE FUNCTION nodes(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	result text := '';
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || statement LOOP
		result := result || coalesce(substring(line FROM '^ *(?:->  )?((?:Custom|Hash|Nested|Merge|Seq|Index|Materialize|Insert|Foreign|Memoize)[^:]*)$') || '; ', '');
	END LOOP;
	RETURN result;
END $$;
\set ECHO all
SELECT * FROM plan_of('INSERT INTO t SELECT o.id, o.item, i.name, i.price * o.n FROM orders o JOIN items i ON i.id = o.item WHERE o.n > 2 AND i.price < 150', 'VERBOSE, COSTS OFF');
-- Hash joins.
SELECT joined('INSERT INTO t SELECT o.id, o.item, i.name, i.price * o.n FROM orders o JOIN items i ON i.id = o.item', processes => '{0,1,2,4}');
SELECT joined('INSERT INTO t SELECT o.id, o.item, i.name, i.price * o.n FROM items i JOIN orders o ON i.id = o.item WHERE o.n > 2 AND i.price < 150');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name || o.word FROM orders o JOIN items i ON i.id = o.item AND i.price > o.n');
SELECT joined('INSERT INTO t SELECT o.id, i.id, i.name FROM orders o LEFT JOIN items i ON i.id = o.item');
SELECT joined('INSERT INTO t SELECT o.id, i.id, i.name FROM orders o LEFT JOIN items i ON i.id = o.item AND i.price > 100 WHERE i.id IS NULL OR o.n < 5');
SELECT joined('INSERT INTO t SELECT * FROM orders o WHERE EXISTS (SELECT FROM items i WHERE i.id = o.item)');
SELECT joined('INSERT INTO t SELECT * FROM orders WHERE item IN (SELECT id FROM items WHERE price > 20)');
SELECT joined('INSERT INTO t SELECT * FROM orders o WHERE NOT EXISTS (SELECT FROM items i WHERE i.id = o.item)', processes => '{0,1,2,4}');
SELECT joined('INSERT INTO t SELECT o.id, i.id, k.kind FROM orders o JOIN items i ON i.id = o.item JOIN kinds k USING (word)');
SELECT joined('INSERT INTO t SELECT o.id, i.id, k.kind FROM orders o LEFT JOIN items i ON i.id = o.item LEFT JOIN kinds k USING (word)', processes => '{0,1,2,4}');
SELECT joined('INSERT INTO t (id, n) SELECT o.id, total FROM orders o JOIN (SELECT id, sum(price) AS total FROM items GROUP BY id) i ON i.id = o.item');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, v FROM orders o JOIN (VALUES (1, ''a''), (2, ''b''), (2, ''c'')) v (i, v) ON i = o.item');
SELECT joined('INSERT INTO t (id) SELECT o.id FROM orders o JOIN items i ON i.id = o.item WHERE o::text LIKE ''%1%''');
-- Fields of the file that the query does not need are not converted.
SELECT joined('INSERT INTO t (id, n) SELECT i.price, i.id FROM orders o JOIN items i ON i.id = o.item');
-- No rows on one side.
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM none o LEFT JOIN items i ON i.id < o.item');
-- (From 16 on a hash join could begin with the other table.)
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SELECT joined('INSERT INTO t SELECT * FROM none o WHERE NOT EXISTS (SELECT FROM items i WHERE i.id = o.item)');
RESET enable_hashjoin;
RESET enable_mergejoin;
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN nothing i ON i.id = o.item');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o LEFT JOIN nothing i ON i.id = o.item');
SELECT joined('INSERT INTO t SELECT * FROM orders o WHERE NOT EXISTS (SELECT FROM nothing i WHERE i.id = o.item)');
-- Nested loops.
SELECT nodes('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN items i ON i.id < o.item');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN items i ON i.id < o.item');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o LEFT JOIN items i ON i.price < o.item');
SELECT joined('INSERT INTO t (id, n) SELECT o.id, i FROM orders o, generate_series(1, o.n::int % 3) i');
SELECT joined('INSERT INTO t (id) SELECT o.id FROM orders o WHERE NOT EXISTS (SELECT FROM items i WHERE i.price < o.n)');
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SELECT nodes('INSERT INTO t (id, word) SELECT o.id, k.kind FROM orders o JOIN kinds k USING (word)');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, k.kind FROM orders o JOIN kinds k USING (word)');
SET enable_seqscan = off;
SET enable_memoize = off;
SET enable_material = off;
SELECT nodes('INSERT INTO t (id, word) SELECT o.id, k.kind FROM orders o LEFT JOIN kinds k USING (word)');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, k.kind FROM orders o LEFT JOIN kinds k USING (word)');
RESET enable_hashjoin;
RESET enable_seqscan;
RESET enable_memoize;
RESET enable_material;
RESET enable_mergejoin;
-- Defaults, among which serial ids require one process; generated columns, constraints, partitions.
CREATE TABLE defaults (id serial, o int, word text DEFAULT 'none', n int DEFAULT 1, twice int GENERATED ALWAYS AS (o * 2) STORED, u text DEFAULT current_user);
SELECT joined('INSERT INTO defaults (o, n) SELECT o.id, i.price FROM orders o JOIN items i ON i.id = o.item', 'defaults');
CREATE TABLE parted (id int, item int, word text, CHECK (item >= 0)) PARTITION BY RANGE (item);
CREATE TABLE low PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (10);
CREATE TABLE high PARTITION OF parted FOR VALUES FROM (10) TO (MAXVALUE);
SELECT joined('INSERT INTO parted SELECT o.id, i.id, i.name FROM orders o JOIN items i ON i.id = o.item', 'parted');
SELECT joined('INSERT INTO parted SELECT o.id, i.id - 1, i.name FROM orders o JOIN items i ON i.id = o.item', 'parted');
-- Long values of a joined table: stored out of line, compressed, and short.
CREATE TABLE long (id int, plain text, word text);
ALTER TABLE long ALTER plain SET STORAGE EXTERNAL;
INSERT INTO long SELECT i, repeat(md5(i::text), 40 * i), repeat('word ', 1 + 900 * i) FROM generate_series(0, 5) i;
ANALYZE long;
CREATE TABLE wide (id int, word text, plain text);
CREATE INDEX ON wide (word) WHERE id < 0;
SELECT joined('INSERT INTO wide SELECT o.id, l.word, l.plain FROM orders o JOIN long l ON l.id = o.item', 'wide');
-- A value that an input function returned stays valid for all rows of a record, even when the function is called again meanwhile.
CALL make_table('points', 'id int, p point, word text', $$format 'text'$$, E'1\t(1,2)\ta\n4\t(3,4)\tb\n7\t(5,6)\tc\n12\t(7,8)\td\n');
CREATE TABLE placed (id int, p point, who text DEFAULT upper(current_user::text), at text, CHECK (p::text || who <> ''));
SELECT joined('INSERT INTO placed (id, p, at) SELECT o.id, o.p, o.p::text || i.name FROM points o LEFT JOIN items i ON i.id < o.id', 'placed');
-- If rows take long, all processes work on them.
\set ECHO none
CREATE FUNCTION slowly(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN PERFORM pg_sleep(0.0005); RETURN true; END $$;
CREATE FUNCTION who(int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN RETURN pg_backend_pid(); END $$;
CREATE TABLE slow (id int, word text, n numeric, CHECK (id % 4 > 0 OR slowly(id)));
\set ECHO all
SET pg_bulk.workers = 2;
SET pg_bulk.chunk_size = 64;
INSERT INTO slow SELECT o.id, i.name, who(o.id) FROM orders o JOIN items i ON i.id = o.item;
SELECT count(DISTINCT n) > 1, count(*) FROM slow;
TRUNCATE slow;
SELECT joined('INSERT INTO slow SELECT o.id, i.name, o.n FROM orders o JOIN items i ON i.id = o.item', 'slow');
SELECT joined('INSERT INTO slow SELECT o.id, i.name, o.n FROM orders o LEFT JOIN items i ON i.id = o.item AND i.price < 100', 'slow');
SELECT joined('INSERT INTO slow SELECT id, word, n FROM orders o WHERE EXISTS (SELECT FROM items i WHERE i.id = o.item)', 'slow');
SELECT joined('INSERT INTO slow SELECT id, word, n FROM orders o WHERE NOT EXISTS (SELECT FROM items i WHERE i.id = o.item)', 'slow');
SELECT joined('INSERT INTO slow SELECT o.id, k.kind, i.price FROM orders o JOIN items i ON i.id = o.item LEFT JOIN kinds k USING (word)', 'slow', '{4}');
SELECT joined('INSERT INTO slow SELECT o.id, i.name, o.n FROM orders o JOIN items i ON i.id < o.item WHERE o.id < 100', 'slow');
-- The last record of a process does not pass the condition.
SELECT joined('INSERT INTO slow SELECT o.id, i.name, o.n FROM orders o LEFT JOIN items i ON i.id = o.item WHERE o.id < 100', 'slow');
SELECT joined('INSERT INTO slow SELECT o.id, l.word || l.plain, 1 FROM orders o JOIN long l ON l.id = o.item', 'slow');
SELECT joined('INSERT INTO slow SELECT o.id, i.name, 1 / (o.id - 444) FROM orders o JOIN items i ON i.id = o.item', 'slow');
RESET pg_bulk.workers;
RESET pg_bulk.chunk_size;
-- Keys: built and checked after all rows are in.
CREATE TABLE kept (id int PRIMARY KEY);
CREATE TABLE keyed (id int, name text, item int REFERENCES kept (id), PRIMARY KEY (id, name));
INSERT INTO kept SELECT generate_series(0, 10);
SELECT joined('INSERT INTO keyed SELECT o.id, i.name, i.id FROM orders o JOIN items i ON i.id = o.item WHERE i.id < 11 AND name <> ''''', 'keyed');
SELECT joined('INSERT INTO keyed SELECT o.id, i.name, i.id FROM orders o JOIN items i ON i.id = o.item WHERE i.id < 12 AND name <> ''''', 'keyed');
SELECT joined('INSERT INTO keyed SELECT CASE o.id WHEN 48 THEN 25 ELSE o.id END, i.name, i.id FROM orders o JOIN items i ON i.id = o.item WHERE i.id IN (2, 4) AND name <> ''''', 'keyed');
SET pg_bulk.workers = 2;
SET pg_bulk.chunk_size = 64;
INSERT INTO keyed SELECT o.id, i.name, i.id FROM orders o JOIN items i ON i.id = o.item WHERE i.id < 11 AND name <> '';
INSERT INTO keyed SELECT o.id + 600, i.name, i.id FROM orders o JOIN items i ON i.id = o.item WHERE i.id < 11 AND name <> '';
SELECT count(*) FROM keyed;
SELECT bt_index_parent_check(indexrelid, true, true) FROM pg_index WHERE indrelid = 'keyed'::regclass;
SELECT * FROM verify_heapam('keyed');
-- The error is that of the first row, with COPY's context if it is about a value.
CALL make_table('bad', 'id int, item int, word text, n numeric', $$format 'csv'$$,
	as_file('SELECT i, i % 20 AS item, ''word'' AS word, CASE WHEN i IN (333, 500) THEN ''x'' ELSE i::text END AS n FROM generate_series(1, 600) i'));
SELECT error_of('INSERT INTO t SELECT o.id, o.item, i.name, o.n FROM bad o JOIN items i ON i.id = o.item');
SELECT error_of('INSERT INTO t SELECT o.id, o.item, i.name, o.n FROM bad o JOIN items i ON i.id = o.item WHERE o.n > 0');
-- A column without a condition is converted only in rows that pass.
SELECT error_of('INSERT INTO t SELECT o.id, o.item, i.name, o.n FROM bad o JOIN items i ON i.id = o.item WHERE o.id NOT IN (333, 500)');
SELECT error_of('INSERT INTO t (id, n) SELECT o.id, 1 / (o.id - 333) FROM bad o JOIN items i ON i.id = o.item WHERE o.id NOT IN (400, 500)');
SELECT error_of('INSERT INTO t (id, n) SELECT o.id, i.price / i.id FROM orders o JOIN items i ON i.id = o.item');
SELECT error_of('INSERT INTO parted SELECT o.id, i.id - 2, i.name FROM orders o JOIN items i ON i.id = o.item WHERE o.item > 0');
SET pg_bulk.direct_insert = off;
SELECT error_of('INSERT INTO t SELECT o.id, o.item, i.name, o.n FROM bad o JOIN items i ON i.id = o.item');
SELECT error_of('INSERT INTO t (id, n) SELECT o.id, 1 / (o.id - 333) FROM bad o JOIN items i ON i.id = o.item WHERE o.id NOT IN (400, 500)');
RESET pg_bulk.direct_insert;
SELECT count(*) FROM t;
-- Canceled in the middle of a join.
\set VERBOSITY terse
SET statement_timeout = '100ms';
SELECT error_of('INSERT INTO t (id) SELECT o.id FROM orders o, items a, items b, items c, items d WHERE a.price + b.price + c.price + d.price + o.id < 0');
RESET statement_timeout;
\set VERBOSITY default
-- Parameters.
SET plan_cache_mode = force_generic_plan;
PREPARE by_price (int, text) AS INSERT INTO t (id, word) SELECT o.id, i.name || $2 FROM orders o JOIN items i ON i.id = o.item WHERE i.price > $1 AND o.n > $1 / 100 AND slowly(o.id);
SELECT * FROM plan_of('EXECUTE by_price (100, ''!'')', 'VERBOSE, COSTS OFF');
EXECUTE by_price (100, '!');
SELECT count(*), min(word), max(word), min(id) FROM t;
EXECUTE by_price (NULL, '!');
SELECT count(*) FROM t;
TRUNCATE t;
CREATE PROCEDURE by_variables(cheapest int, mark text) LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	FOR i IN 1..2 LOOP
		INSERT INTO t (id, word) SELECT o.id, i.name || mark FROM orders o JOIN items i ON i.id = o.item WHERE i.price > cheapest;
		GET DIAGNOSTICS n = ROW_COUNT;
		RAISE NOTICE '% rows', n;
		cheapest := cheapest + 50;
	END LOOP;
END $$;
CALL by_variables(100, '?');
SELECT count(*), min(word), max(word) FROM t;
TRUNCATE t;
RESET plan_cache_mode;
-- Rows that an earlier statement of the transaction has written are joined, also after ROLLBACK TO.
BEGIN;
INSERT INTO items VALUES (22, 'new', 1);
SAVEPOINT s;
INSERT INTO items VALUES (21, 'newer', 1);
INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN items i ON i.id = o.item WHERE i.name LIKE 'new%';
SELECT word, count(*) FROM t GROUP BY word ORDER BY word;
ROLLBACK TO s;
SELECT count(*) FROM t;
INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN items i ON i.id = o.item WHERE i.name LIKE 'new%';
SELECT word, count(*) FROM t GROUP BY word ORDER BY word;
ROLLBACK;
-- A table that was small when the plan was made has grown: its hash table spills to disk.
CREATE TABLE grown (id int, name text);
INSERT INTO grown VALUES (1, 'one');
ANALYZE grown;
SET plan_cache_mode = force_generic_plan;
PREPARE by_grown AS INSERT INTO t (id, item, word) SELECT o.id, o.item, g.name FROM orders o JOIN grown g ON g.id = o.item;
PREPARE without_grown AS INSERT INTO t (id, item, word) SELECT o.id, o.item, g.name FROM orders o LEFT JOIN grown g ON g.id = o.item * 100 WHERE slowly(o.id);
EXECUTE by_grown;
EXECUTE without_grown;
ALTER TABLE grown SET (autovacuum_enabled = off);
INSERT INTO grown SELECT i, repeat(i::text, 20) FROM generate_series(2, 6000) i;
SET work_mem = '64kB';
SET hash_mem_multiplier = 1;
TRUNCATE t;
\set ECHO none
CREATE FUNCTION batches(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, FORMAT json) ' || statement INTO plan;
	RETURN CASE WHEN (jsonb_path_query_first(plan, '$.**."Hash Batches"'))::int > 1 THEN 'spilled, ' ELSE 'in memory, ' END
		|| jsonb_path_query_first(plan, '$.**."Custom Plan Provider"');
END $$;
\set ECHO all
SELECT batches('EXECUTE by_grown');
SELECT batches('EXECUTE without_grown');
CREATE TABLE by_load AS TABLE t;
TRUNCATE t;
SET pg_bulk.direct_insert = off;
EXECUTE by_grown;
EXECUTE without_grown;
RESET pg_bulk.direct_insert;
SELECT count(*) FROM by_load;
TABLE by_load EXCEPT ALL TABLE t;
TABLE t EXCEPT ALL TABLE by_load;
-- With a spilled hash table the error names no line.
TRUNCATE t;
ALTER TABLE t ADD CHECK (item <> 7);
SELECT error_of('EXECUTE by_grown');
ALTER TABLE t DROP CONSTRAINT t_item_check;
RESET work_mem;
RESET hash_mem_multiplier;
RESET plan_cache_mode;
-- EXPLAIN ANALYZE shows the sums of all processes.
\set ECHO none
-- Rows of each node, and rows removed by it. Averages over processes are rounded: each may be off by half a row.
CREATE FUNCTION figures(statement text, workers int, OUT node text, OUT loops int, OUT n numeric, OUT removed numeric) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
	json json;
BEGIN
	PERFORM set_config('pg_bulk.workers', workers::text, true);
	EXECUTE 'EXPLAIN (ANALYZE, VERBOSE, FORMAT json) ' || statement INTO json;
	RETURN QUERY WITH RECURSIVE nodes(plan) AS (SELECT json->0->'Plan' UNION ALL SELECT json_array_elements(plan->'Plans') FROM nodes)
		SELECT concat_ws(' ', plan->>'Node Type', plan->>'Custom Plan Provider', plan->>'Alias', plan->>'Rows Inserted'), (plan->>'Actual Loops')::int,
			round((plan->>'Actual Rows')::numeric * (plan->>'Actual Loops')::int), (plan->>'Rows Removed by Filter')::numeric * (plan->>'Actual Loops')::int
		FROM nodes;
END $$;
\set ECHO all
\set counted '''INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN items i ON i.id = o.item WHERE o.n IS NOT NULL'''
SELECT figures(:counted, 0);
SELECT a.node, abs(a.n - b.n) <= a.loops, abs(a.removed - b.removed) <= a.loops FROM figures(:counted, 2) a JOIN figures(:counted, 0) b USING (node) WHERE node !~ 'Scan i|Hash$';
TRUNCATE t;
-- EXPLAIN assigns no transaction id.
BEGIN;
SELECT count(*) > 3 AS explained FROM plan_of('INSERT INTO t SELECT * FROM orders') UNION ALL
SELECT count(*) > 3 FROM plan_of('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN items i ON i.id = o.item', 'VERBOSE') UNION ALL
SELECT count(*) > 3 FROM plan_of('INSERT INTO t SELECT * FROM orders UNION ALL SELECT * FROM none');
SELECT pg_current_xact_id_if_assigned() IS NULL;
SET LOCAL pg_bulk.direct_insert = 'exclusive';
SELECT count(*) > 3 AS explained FROM plan_of('INSERT INTO fresh SELECT id, word FROM orders');
SELECT pg_current_xact_id_if_assigned() IS NULL;
ROLLBACK;
-- Queries that only one process can run.
CREATE TEMP TABLE mine AS TABLE items;
ANALYZE mine;
SET pg_bulk.workers = 2;
SELECT substring(line FROM 'Workers.*') FROM plan_of('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN mine i ON i.id = o.item', 'VERBOSE, COSTS OFF') line WHERE line ~ 'Workers';
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN mine i ON i.id = o.item');
CREATE FUNCTION unsafe(text) RETURNS text LANGUAGE sql STABLE AS $$ SELECT $1 || current_setting('work_mem') $$;
SELECT joined('INSERT INTO t (id, word) SELECT o.id, unsafe(i.name) FROM orders o JOIN items i ON i.id = o.item');
-- Privileges and policies of the joined table are checked as without a load.
CREATE ROLE insert_select_joiner;
GRANT USAGE ON SCHEMA insert_select_joins TO insert_select_joiner;
GRANT ALL ON t, orders, kinds TO insert_select_joiner;
SET ROLE insert_select_joiner;
SELECT error_of('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN items i ON i.id = o.item');
RESET ROLE;
GRANT SELECT ON items TO insert_select_joiner;
ALTER TABLE items ENABLE ROW LEVEL SECURITY;
CREATE POLICY cheap ON items USING (price < 50);
SET ROLE insert_select_joiner;
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN items i ON i.id = o.item');
RESET ROLE;
ALTER TABLE items DISABLE ROW LEVEL SECURITY;
DROP OWNED BY insert_select_joiner;
DROP ROLE insert_select_joiner;
-- Queries that core runs.
SELECT joined('INSERT INTO t (id, n) SELECT o.id, o.tableoid::int - ''orders''::regclass::int FROM orders o JOIN items i ON i.id = o.item', processes => '{0}');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o RIGHT JOIN items i ON i.id = o.item', processes => '{0}');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o FULL JOIN items i ON i.id = o.item', processes => '{0}');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, p.word FROM orders o JOIN orders p ON p.id = o.item', processes => '{0}');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM (TABLE orders UNION ALL TABLE none) o JOIN items i ON i.id = o.item', processes => '{0}');
SELECT joined('INSERT INTO t SELECT * FROM orders WHERE item NOT IN (SELECT id FROM items WHERE id > 0)', processes => '{0}');
SELECT joined('INSERT INTO t (id, n) SELECT o.id, (SELECT max(price) FROM items) FROM orders o JOIN items i ON i.id = o.item', processes => '{0}');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, t.word FROM orders o LEFT JOIN t ON t.id = o.item', processes => '{0}');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN items i ON i.id = o.item WHERE i.price < random() * 0', processes => '{0}');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN (SELECT * FROM items ORDER BY price LIMIT 3) i ON i.id = o.item', processes => '{0}');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, g.name FROM grown g JOIN orders o ON g.id = o.item WHERE g.id > 0', processes => '{0}');
-- Row locks on either table; a target with another access method.
SELECT joined('INSERT INTO t (id, word) SELECT id, word FROM orders FOR UPDATE', processes => '{0}');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN items i ON i.id = o.item FOR UPDATE', processes => '{0}');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN items i ON i.id = o.item FOR UPDATE OF i', processes => '{0}');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN items i ON i.id = o.item FOR NO KEY UPDATE OF o SKIP LOCKED', processes => '{0}');
SELECT joined('INSERT INTO t (id, word) SELECT id, word FROM (SELECT * FROM orders FOR SHARE) o', processes => '{0}');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN (SELECT * FROM items FOR SHARE) i ON i.id = o.item', processes => '{0}');
SELECT joined('INSERT INTO t SELECT * FROM orders o WHERE EXISTS (SELECT FROM items i WHERE i.id = o.item FOR KEY SHARE)', processes => '{0}');
SELECT joined('INSERT INTO t SELECT * FROM orders WHERE item IN (SELECT id FROM items FOR SHARE)', processes => '{0}');
BEGIN;
INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN items i ON i.id = o.item FOR UPDATE OF i;
-- Rows of the joined table: xmax is the transaction's.
SELECT count(*) FILTER (WHERE xmax = pg_current_xact_id()::xid) AS locked, count(*) FILTER (WHERE EXISTS (SELECT FROM orders o WHERE o.item = i.id)) AS joined FROM items i;
ROLLBACK;
CREATE ACCESS METHOD insert_heap TYPE TABLE HANDLER heap_tableam_handler;
CREATE TABLE elsewhere (id int, word text) USING insert_heap;
SELECT joined('INSERT INTO elsewhere SELECT id, word FROM orders', 'elsewhere', '{0}');
SELECT joined('INSERT INTO elsewhere SELECT o.id, i.name FROM orders o JOIN items i ON i.id = o.item', 'elsewhere', '{0}');
CREATE TABLE half (id int, word text) PARTITION BY RANGE (id);
CREATE TABLE half_here PARTITION OF half FOR VALUES FROM (MINVALUE) TO (300);
CREATE TABLE half_elsewhere PARTITION OF half FOR VALUES FROM (300) TO (MAXVALUE) USING insert_heap;
SELECT joined('INSERT INTO half SELECT id, word FROM orders', 'half', '{0}');
SELECT * FROM plan_of('INSERT INTO elsewhere SELECT id, word FROM orders', 'VERBOSE, COSTS OFF');
DROP TABLE elsewhere, half;
DROP ACCESS METHOD insert_heap;
ANALYZE grown;
SET work_mem = '64kB';
SELECT joined('INSERT INTO t (id, word) SELECT o.id, g.name FROM orders o LEFT JOIN grown g ON g.id = o.item', processes => '{0}');
RESET work_mem;
ALTER FOREIGN TABLE orders OPTIONS (ADD on_error 'ignore');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN items i ON i.id = o.item', processes => '{0}');
ALTER FOREIGN TABLE orders OPTIONS (DROP on_error, ADD "limit" '100');
SELECT joined('INSERT INTO t (id, word) SELECT o.id, i.name FROM orders o JOIN items i ON i.id = o.item', processes => '{0}');
ALTER FOREIGN TABLE orders OPTIONS (DROP "limit");
SET client_min_messages = warning;
DROP SCHEMA insert_select_joins CASCADE;
