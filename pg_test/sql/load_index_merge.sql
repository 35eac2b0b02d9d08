--
-- Indexes that are merged, built or rebuilt: the catalogs equal those after REINDEX, and settings of the indexes
-- stay. Entries that VACUUM removed do not come back; rows that the transaction itself deleted do not conflict.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
CREATE EXTENSION IF NOT EXISTS pageinspect;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_index_merge
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set helpers :data '/index_helpers.sql'
\i :helpers
\set helpers :data '/build_helpers.sql'
\i :helpers
-- The strategy of each index (a worker that starts late has no work), and where statistics, pages or size differ from those after REINDEX.
CREATE FUNCTION merged(file text, target regclass, options jsonb DEFAULT '{}') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	result record;
	index regclass;
	before record;
	after record;
BEGIN
	SELECT * INTO result FROM bulk_load(data_path(file), target, '{"lock": "share", "indexes": "merge"}' || options);
	RETURN NEXT result.rows_loaded || ' rows';
	RETURN QUERY SELECT concat_ws(' from ', i ->> 'method', i ->> 'from') || ': ' || count(*) || CASE WHEN count(i ->> 'workers') > 0 THEN ', not all by one process' ELSE '' END
		FROM jsonb_array_elements(result.indexes) i GROUP BY i ->> 'method', i ->> 'from' ORDER BY 1;
	RETURN QUERY SELECT faults(target);
	FOR index IN SELECT (i ->> 'index')::regclass FROM jsonb_array_elements(result.indexes) i WHERE i ->> 'method' = 'merge' ORDER BY i ->> 'index' LOOP
		SELECT relpages, reltuples, pg_relation_size(oid) AS size INTO before FROM pg_class WHERE oid = index;
		EXECUTE format('REINDEX INDEX %s', index);
		SELECT relpages, reltuples, pg_relation_size(oid) AS size INTO after FROM pg_class WHERE oid = index;
		IF before.relpages * current_setting('block_size')::int <> before.size OR before.reltuples <> after.reltuples OR before.size > after.size * 1.02 + 3 * current_setting('block_size')::int * (options ? 'workers')::int THEN
			RETURN NEXT format('%s: %s, but %s after REINDEX', index, before, after);
		END IF;
	END LOOP;
END $$;
-- The settings of a table's indexes, and their files.
CREATE FUNCTION marks(target regclass) RETURNS TABLE (index text, marks text) LANGUAGE sql AS $$
	SELECT c.relname::text, concat_ws(' ', CASE WHEN indisclustered THEN 'clustered' END, CASE WHEN indisreplident THEN 'replident' END,
		CASE WHEN NOT indisvalid OR NOT indisready OR NOT indislive OR indcheckxmin THEN 'wrong' END, array_to_string(c.reloptions, ' '),
		(SELECT string_agg('statistics ' || attstattarget, ' ') FROM pg_attribute WHERE attrelid = c.oid AND attstattarget > 0),
		(SELECT string_agg('known: ' || stadistinct, ' ') FROM pg_statistic WHERE starelid = c.oid))
	FROM pg_index i JOIN pg_class c ON c.oid = indexrelid WHERE indrelid = target ORDER BY 1
$$;
CREATE FUNCTION files(target regclass) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(relfilenode::text, ' ' ORDER BY relname) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indrelid = target
$$;
\set ECHO all
\pset tuples_only
\pset format unaligned

-- A fifth of the rows is deleted, and VACUUM has run.
CREATE TABLE t (a int PRIMARY KEY, b int, c text COLLATE "C", d bigint) WITH (autovacuum_enabled = off);
CREATE INDEX ON t (b);
CREATE INDEX ON t (b) WITH (deduplicate_items = off);
CREATE INDEX ON t (c);
CREATE UNIQUE INDEX ON t (d DESC, b) WITH (fillfactor = 60);
CALL write_file('first', series($$concat_ws(E'\t', a * 2, a % 100, md5(a::text), CASE WHEN a % 10 > 0 THEN (a::bigint * 7919 % 1000003)::text ELSE '\N' END)$$, 10000));
CALL write_file('second', series($$concat_ws(E'\t', a * 2 - 1, a % 100, md5((-a)::text), a::bigint * 7919 % 1000003 + 2000000)$$, 6000));
CALL write_file('third', series($$concat_ws(E'\t', a * 2 - 1 + 12000, a % 100, md5((a + 15000)::text), a::bigint * 7919 % 1000003 + 4000000)$$, 6000));
SELECT built('first', 't');
DELETE FROM t WHERE a % 10 = 0;
VACUUM t;
SELECT merged('second', 't');
DELETE FROM t WHERE b < 20;
VACUUM t;
SET pg_bulk.chunk_size = '16kB';
SELECT merged('third', 't', '{"workers": 2}');
-- With one worker: keys that do not come in order.
CALL write_file('fourth', series($$concat_ws(E'\t', a * 2 - 1 + 24000, a % 100, md5((a + 30000)::text), a::bigint * 7919 % 1000003 + 6000000)$$, 6000));
SELECT merged('fourth', 't', '{"workers": 1}');
RESET pg_bulk.chunk_size;
SELECT count(*), count(DISTINCT a), sum(a) FROM t;
-- Without VACUUM, entries of dead rows stay.
DELETE FROM t WHERE a < 4000;
SELECT rows_loaded FROM bulk_load(data_path('first'), 't', '{"lock": "share", "indexes": "merge", "where": "a % 10 = 0 AND a > 4000 AND b >= 20"}');
SELECT count(*) FROM t;
SELECT faults('t');

-- Settings of an index stay, with each strategy.
CREATE TABLE marked (a int NOT NULL, b text COLLATE "C", c int) WITH (autovacuum_enabled = off);
CREATE UNIQUE INDEX marked_ident ON marked (a) WITH (fillfactor = 80);
CREATE INDEX marked_cluster ON marked (c);
CREATE INDEX marked_expr ON marked (lower(b), (c % 10));
ALTER INDEX marked_expr ALTER COLUMN 2 SET STATISTICS 777;
ALTER TABLE marked REPLICA IDENTITY USING INDEX marked_ident, CLUSTER ON marked_cluster;
INSERT INTO marked SELECT a * 2, 'B' || a % 50, a FROM generate_series(1, 1000) a;
ANALYZE marked;
SELECT * FROM marks('marked');
CREATE TABLE before_marked AS SELECT * FROM marks('marked');
CALL write_file('marked', series($$concat_ws(E'\t', a * 2 - 1, a, a)$$, 4000));
CREATE FUNCTION marked(options jsonb) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	old text := files('marked');
BEGIN
	RETURN QUERY SELECT string_agg(concat_ws(' ', i ->> 'index', i ->> 'method', i ->> 'from'), ', ' ORDER BY i ->> 'index')
		FROM bulk_load(data_path('marked'), 'marked', options), jsonb_array_elements(indexes) i;
	RETURN QUERY SELECT concat(index, ' is now ', m.marks) FROM marks('marked') m WHERE (m.index, m.marks) NOT IN (TABLE before_marked);
	RETURN QUERY SELECT faults('marked');
	RETURN NEXT CASE WHEN old = files('marked') THEN 'old files' ELSE 'new files' END;
END $$;
BEGIN;
SELECT marked('{"indexes": "insert"}');
ROLLBACK;
BEGIN;
SELECT marked('{"indexes": "merge", "lock": "share"}');
ROLLBACK;
BEGIN;
SELECT marked('{"indexes": "rebuild", "lock": "share"}');
ROLLBACK;
SELECT marked('{"truncate": true, "indexes": "merge"}');
SELECT * FROM before_marked EXCEPT SELECT * FROM marks('marked');

-- Rows that the transaction itself has deleted or updated.
CREATE TABLE own (a int PRIMARY KEY, b int) WITH (autovacuum_enabled = off, fillfactor = 50);
CREATE INDEX own_b ON own (b);
INSERT INTO own SELECT a, a % 7 FROM generate_series(1, 500) a;
CALL write_file('own', series($$concat_ws(E'\t', a + 100, a % 5)$$, 300));
BEGIN;
INSERT INTO own SELECT a, 1 FROM generate_series(501, 600) a;
DELETE FROM own WHERE a BETWEEN 101 AND 200;
UPDATE own SET a = -a WHERE a BETWEEN 201 AND 300;
SAVEPOINT s;
SELECT error_of($$SELECT bulk_load(data_path('own'), 'own', '{"lock": "share", "indexes": "merge"}')$$);
ROLLBACK TO s;
DELETE FROM own WHERE a BETWEEN 301 AND 400;
UPDATE own SET b = 8 WHERE a BETWEEN 401 AND 450;
DELETE FROM own WHERE a > 500;
SELECT string_agg(concat_ws(' ', i ->> 'index', i ->> 'method'), ', ' ORDER BY i ->> 'index') FROM bulk_load(data_path('own'), 'own', '{"lock": "share", "indexes": "merge"}'), jsonb_array_elements(indexes) i;
SELECT faults('own');
COMMIT;
SELECT faults('own');
SELECT count(*), count(DISTINCT a), sum(a), sum(b) FROM own;

-- Three levels.
CREATE TABLE tall (a int PRIMARY KEY WITH (fillfactor = 10), b text COLLATE "C", c text) WITH (autovacuum_enabled = off);
CREATE INDEX tall_b ON tall (b) WITH (fillfactor = 10);
CREATE INDEX tall_c ON tall (c COLLATE "POSIX", a) WITH (fillfactor = 10);
CREATE FUNCTION levels(target regclass) RETURNS TABLE (index text, level bigint) LANGUAGE sql AS $$
	SELECT indexrelid::regclass::text, (public.bt_metap(indexrelid::regclass::text)).level FROM pg_index WHERE indrelid = target ORDER BY 1
$$;
CALL write_file('tall', series($$concat_ws(E'\t', a * 2, md5(a::text), md5((-a)::text))$$, 11000));
CALL write_file('taller', series($$concat_ws(E'\t', a * 2 - 1, md5((a + 20000)::text), md5((-a - 20000)::text))$$, 11000));
SELECT merged('tall', 'tall', '{"truncate": true}');
SELECT * FROM levels('tall');
SET pg_bulk.chunk_size = '16kB';
SELECT merged('taller', 'tall', '{"workers": 2}');
SELECT * FROM levels('tall');
SELECT merged('taller', 'tall', '{"truncate": true, "workers": 2}');
SELECT * FROM levels('tall');
RESET pg_bulk.chunk_size;
-- Other indexes of three levels: keys that are tuples, NULLs, and few values that each have many rows.
CREATE TABLE broad (a int, b text COLLATE "C", c text COLLATE "C") WITH (autovacuum_enabled = off);
CREATE UNIQUE INDEX broad_include ON broad (a) INCLUDE (b) WITH (fillfactor = 10);
CREATE INDEX broad_expression ON broad ((lower(b) || 'x')) WITH (fillfactor = 10);
CREATE UNIQUE INDEX broad_nulls ON broad (b DESC, c) NULLS NOT DISTINCT WITH (fillfactor = 10);
CREATE INDEX broad_few ON broad (c NULLS FIRST) WITH (fillfactor = 10);
CALL write_file('broad', series($$concat_ws(E'\t', a * 2, md5(a::text), CASE WHEN a % 5 < 2 THEN '\N' ELSE repeat(md5((a % 7)::text), 8) END)$$, 11000));
CALL write_file('broader', series($$concat_ws(E'\t', a * 2 - 1, md5((a + 20000)::text), CASE WHEN a % 5 < 2 THEN '\N' ELSE repeat(md5((a % 7)::text), 8) END)$$, 11000));
SELECT merged('broad', 'broad', '{"truncate": true}');
SELECT * FROM levels('broad');
SET pg_bulk.chunk_size = '16kB';
SELECT merged('broader', 'broad', '{"workers": 2}');
SELECT * FROM levels('broad');
RESET pg_bulk.chunk_size;
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA load_index_merge CASCADE;
