--
-- bulk_load of a query's rows: the result equals INSERT's, with either writer.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set load_helpers :data '/load_helpers.sql'
\set schema load_query
\i :helpers
\i :load_helpers
-- A load by each writer, compared with core's INSERT of the same query: equal counts and tables, or equal errors, and amcheck finds no error
-- in heap and indexes.
CREATE FUNCTION as_insert(definition text, query text, options jsonb DEFAULT '{}', columns text DEFAULT '', more text DEFAULT '') RETURNS SETOF text LANGUAGE plpgsql
SET client_min_messages = warning AS $$
DECLARE
	inserted text[];
	ours text[];
	kind text;
	differing bigint;
	total bigint;
	index regclass;
BEGIN
	DROP SCHEMA IF EXISTS inserted, loaded CASCADE;
	CREATE SCHEMA inserted;
	CREATE SCHEMA loaded;
	EXECUTE format('CREATE TABLE inserted.t (%s); CREATE TABLE loaded.t (%s); %s', definition, definition, replace(more, '#', 'inserted') || ';' || replace(more, '#', 'loaded'));
	inserted := ARRAY(SELECT error_of(format('INSERT INTO inserted.t %s %s', columns, query)));
	FOREACH kind IN ARRAY ARRAY['buffered', 'direct'] LOOP
		TRUNCATE loaded.t RESTART IDENTITY;
		EXECUTE replace(more, '#', 'loaded');
		ours := ARRAY(SELECT error_of(format('SELECT * FROM bulk_load(NULL, ''loaded.t'', %L)', options || jsonb_build_object('query', query, 'writer', kind))));
		IF ours[1:array_length(inserted, 1)] <> inserted THEN
			RETURN QUERY SELECT kind || ': ' || unnest(ours);
			RETURN QUERY SELECT 'INSERT: ' || unnest(inserted);
			RETURN;
		END IF;
		SELECT count(*) INTO differing FROM (
			(SELECT t::text FROM inserted.t EXCEPT ALL SELECT t::text FROM loaded.t) UNION ALL
			(SELECT t::text FROM loaded.t EXCEPT ALL SELECT t::text FROM inserted.t)) d;
		IF differing > 0 THEN
			RETURN NEXT format('%s: %s rows differ', kind, differing);
		END IF;
		RETURN QUERY SELECT kind || ' corrupt: ' || v::text FROM public.verify_heapam('loaded.t') v;
		FOR index IN SELECT indexrelid FROM pg_index JOIN pg_class c ON c.oid = indexrelid JOIN pg_am a ON a.oid = c.relam AND amname = 'btree' WHERE indrelid = 'loaded.t'::regclass LOOP
			PERFORM public.bt_index_parent_check(index, true);
		END LOOP;
	END LOOP;
	IF ours[1] = 'no error' THEN
		SELECT count(*) INTO total FROM loaded.t;
		RETURN NEXT total || ' rows';
	ELSE
		RETURN QUERY SELECT unnest(ours);
	END IF;
END $$;
CREATE FUNCTION loaded(query text, target regclass, options jsonb DEFAULT '{}', OUT loaded bigint, OUT rejected bigint, OUT duplicate bigint, OUT filtered bigint, OUT writer text, OUT notes text) RETURNS record LANGUAGE sql AS $$
	SELECT rows_loaded, rows_rejected, rows_duplicate, rows_filtered, writer, array_to_string(notes, E'\n') FROM bulk_load(NULL, target, options || jsonb_build_object('query', query))
$$;
\set ECHO all
\pset tuples_only
\pset format unaligned
CREATE TABLE t (a int, b text DEFAULT 'none', c numeric(5, 1));
SELECT rows_loaded, bytes_read, writer, workers, notes FROM bulk_load(NULL, 't', '{"query": "SELECT 1, ''one'', 1.25"}');
SELECT rows_loaded FROM bulk_load('', 't', '{"query": "VALUES (2, ''two'', 2), (3, NULL, ''3.33'')"}');
SELECT rows_loaded FROM bulk_load(NULL, 't', '{"query": "WITH w (x) AS (VALUES (4), (5)) SELECT x FROM w ORDER BY x DESC"}');
SELECT rows_loaded FROM bulk_load(NULL, 't', '{"query": "TABLE t", "where": "a < 3"}');
TABLE t ORDER BY a, ctid;
SELECT path, rows_loaded, status FROM bulk_history ORDER BY load_id DESC LIMIT 1;
-- Types are coerced as INSERT coerces them: literals take the column's type, assignment casts, domains, lengths.
CREATE DOMAIN small AS int CHECK (VALUE < 100);
SELECT as_insert('a int, b date, c text, d small, e varchar(3), f bool', $$SELECT '7', '2024-02-29', 12, 99::int8, 'abc', 'yes'$$);
SELECT as_insert('a int, b varchar(3)', $$VALUES (1, 'abc   '), (2.5, 'xyz')$$);
SELECT as_insert('a int, b text', $$SELECT '1', 'x' UNION ALL SELECT 2, 'y'$$);
SELECT as_insert('a int, b text, c numeric(5, 1)', $$VALUES (1, 'x', '1.25'), ('2', true, 3), (3.5, now() IS NULL, NULL)$$);
SELECT as_insert('a int, b varchar(2)', $$VALUES (1, 'xy'), (2, 'xyz')$$);
SELECT as_insert('a int, b text', $$VALUES (1, 'x'), (now(), 'y')$$);
SELECT as_insert('a int, b text', $$VALUES (1, 'x'), (2)$$);
SELECT as_insert('a int, b text', $$VALUES (1, 'x', 2), (2, 'x', 3)$$);
SELECT as_insert('a int, b text', $$VALUES ((SELECT 1), 'x'), (2, (SELECT max(id)::text FROM (SELECT 3 AS id) s))$$);
SELECT as_insert('a int, b text', $$VALUES (1, '2'), (3, '4') ORDER BY 1 LIMIT 1$$);
SELECT as_insert('a int, b text', $$VALUES (1, '2'), ('x', '4') ORDER BY 1$$);
SELECT as_insert('a int, b text', $$SELECT i, NULL FROM generate_series(1, 3000) i$$);
SELECT as_insert('a int, b text', $$SELECT i, repeat('long', i) FROM generate_series(1, 3000, 100) i$$);
SELECT as_insert('a float4, b int[], c jsonb, d point', $$SELECT i / 7.0, ARRAY[i, i + 1], jsonb_build_object('a', i), point(i, i) FROM generate_series(1, 300) i$$);
SELECT as_insert('a int', $$SELECT now()$$);
SELECT as_insert('a int', $$SELECT 'x'::text$$);
SELECT as_insert('a int', $$SELECT 'x'$$);
SELECT as_insert('a small', $$SELECT i FROM generate_series(98, 101) i$$);
SELECT as_insert('a varchar(3)', $$VALUES ('abc'), ('abcd')$$);
-- Fewer columns than the table has: the others get their defaults. A list of columns requires as many values.
SELECT as_insert('a int, b text DEFAULT ''none'', c serial', $$SELECT i FROM generate_series(1, 300) i$$);
SELECT as_insert('a int, b text', $$SELECT 1, 'b', 3$$);
SELECT as_insert('a int, b text', $$SELECT 1$$, '{"columns": ["b", "a"]}', '(b, a)');
SELECT as_insert('a int, b text', $$SELECT 1, 2, 3$$, '{"columns": ["b", "a"]}', '(b, a)');
SELECT as_insert('a int, b text, c int GENERATED ALWAYS AS (a * 2) STORED', $$SELECT 'b', 1$$, '{"columns": ["b", "a"]}', '(b, a)');
SELECT as_insert('a int, b text', $$SELECT$$);
SELECT error_of($$SELECT loaded('SELECT 1', 't', '{"columns": ["x"]}')$$);
SELECT error_of($$SELECT loaded('SELECT 1, 2', 't', '{"columns": ["a", "a"]}')$$);
-- A dropped column takes no value.
SELECT as_insert('a int, b text, c int', $$SELECT i, i + 1 FROM generate_series(1, 300) i$$, '{}', '', 'ALTER TABLE #.t DROP COLUMN IF EXISTS b');
-- Out-of-line values are copied into the target.
CREATE TABLE wide (id int, text text);
ALTER TABLE wide ALTER text SET STORAGE EXTERNAL;
INSERT INTO wide SELECT i, repeat(i::text, 4000) FROM generate_series(1, 20) i;
SELECT as_insert('id int, text text', 'TABLE load_query.wide');
BEGIN;
TRUNCATE wide;
SELECT count(*), sum(length(text)) FROM loaded.t;
ROLLBACK;
CREATE FUNCTION grown(n int) RETURNS int[] LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ DECLARE made int[] := '{}'; BEGIN FOR i IN 1..n LOOP made[i] := i; END LOOP; RETURN made; END $$;
SELECT as_insert('a int, b int[] CHECK (cardinality(b) < 4000)', 'SELECT i, load_query.grown(i) FROM generate_series(1, 3000, 300) i');
-- A foreign table's rows: an error in its file has the file's CONTEXT.
CALL make_table('ft', 'a int, b text', '', E'1\tone\nx\ttwo\n');
SELECT error_of($$SELECT loaded('SELECT b, a FROM ft', 't', '{"columns": ["b", "a"]}')$$);
SELECT loaded FROM loaded('SELECT b FROM ft', 't', '{"columns": ["b"], "limit": 1}');
-- An identity column takes the query's values, as in COPY.
CREATE TABLE ident (id int GENERATED ALWAYS AS IDENTITY, b text);
SELECT loaded FROM loaded('VALUES (7, ''seven'')', 'ident');
SELECT loaded FROM loaded('VALUES (''one'')', 'ident', '{"columns": ["b"]}');
TABLE ident;
-- Keys, constraints, triggers, partitions.
SELECT as_insert('a int PRIMARY KEY, b text CHECK (b <> ''c'')', $$SELECT i, 'x' || i FROM generate_series(5000, 1, -1) i$$);
SELECT as_insert('a int PRIMARY KEY, b text CHECK (b <> ''c'')', $$SELECT i % 4000, 'x' FROM generate_series(1, 5000) i$$);
SELECT as_insert('a int PRIMARY KEY, b text CHECK (b <> ''c'')', $$VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')$$);
SELECT as_insert('a int NOT NULL', $$VALUES (1), (2), (NULL)$$);
CREATE TABLE log (said text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO load_query.log VALUES (TG_WHEN || ' ' || TG_LEVEL || ' ' || coalesce(NEW.a, 0)); RETURN NEW; END $$;
CREATE TABLE noted (a int);
CREATE TRIGGER before_all BEFORE INSERT ON noted FOR EACH STATEMENT EXECUTE FUNCTION note();
CREATE TRIGGER after_each AFTER INSERT ON noted FOR EACH ROW EXECUTE FUNCTION note();
-- The query sees neither changes by the statement's triggers nor its own rows.
SELECT * FROM loaded('SELECT count(*) FROM load_query.log UNION ALL SELECT count(*) FROM load_query.noted', 'noted', '{"writer": "direct"}');
TABLE log;
TRUNCATE log, noted;
SELECT * FROM loaded('SELECT count(*) FROM load_query.log UNION ALL SELECT count(*) FROM load_query.noted', 'noted', '{"writer": "buffered"}');
TABLE log;
CREATE TABLE parted (a int, b text) PARTITION BY RANGE (a);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100);
CREATE TABLE parted_2 (b text, a int);
ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES FROM (100) TO (1000);
SELECT * FROM loaded($$SELECT i, 'x' FROM generate_series(1, 999) i$$, 'parted', '{"writer": "direct"}');
SELECT tableoid::regclass, count(*), sum(a) FROM parted GROUP BY 1 ORDER BY 1;
SELECT error_of($e$SELECT loaded($$SELECT i, 'x' FROM generate_series(995, 2000) i$$, 'parted')$e$);
CREATE VIEW shown AS SELECT a, b FROM t WHERE a > 10 WITH CHECK OPTION;
SELECT * FROM loaded($$VALUES (11, 'by view')$$, 'shown');
SELECT error_of($e$SELECT loaded($$VALUES (12, 'by view'), (1, 'hidden')$$, 'shown')$e$);
CREATE RULE twice AS ON INSERT TO noted DO ALSO INSERT INTO load_query.log VALUES (NEW.a);
SELECT error_of($$SELECT loaded('SELECT 1', 'noted')$$);
DROP RULE twice ON noted;
-- A query on the target sees its earlier rows, also if it scans the target several times, and by index.
CREATE TABLE self (a int PRIMARY KEY);
INSERT INTO self SELECT generate_series(1, 1000);
SELECT * FROM loaded('SELECT s.a + 1000 * o.a FROM self s, (VALUES (1), (2)) o (a) WHERE EXISTS (SELECT FROM self x WHERE x.a = s.a)', 'self', '{"writer": "direct"}');
SELECT * FROM loaded('SELECT a + 3000 FROM self', 'self', '{"writer": "buffered"}');
SELECT count(*), max(a) FROM self;
SELECT * FROM loaded('SELECT a FROM self', 'self', '{"truncate": true}');
SELECT bt_index_check('self_pkey', true);
SELECT count(*) FROM verify_heapam('self');
SELECT * FROM loaded('SELECT a + 9000 FROM (VALUES (1), (2)) v (a)', 'self');
SELECT * FROM loaded('SELECT a + 1 FROM self WHERE a = 9002 FOR UPDATE', 'self');
DELETE FROM self;
-- Volatile functions may query the target: they see the rows inserted before.
CREATE FUNCTION there() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT count(*) FROM load_query.self); END $$;
SELECT * FROM loaded('SELECT there() FROM generate_series(1, 3)', 'self');
TABLE self ORDER BY a;
SELECT error_of($$SELECT loaded('SELECT there() FROM generate_series(1, 3)', 'self', '{"writer": "direct"}')$$);
CREATE VIEW counted AS SELECT there() AS a;
SELECT writer, notes FROM loaded('SELECT a + 10 FROM counted', 'self');
CREATE SEQUENCE numbers START 100;
SELECT writer, notes FROM loaded($$SELECT nextval('load_query.numbers') FROM generate_series(1, 3)$$, 'self');
ALTER FUNCTION there STABLE PARALLEL RESTRICTED;
SELECT * FROM loaded('SELECT 1000 * i + there() FROM generate_series(1, 3) i', 'self');
SELECT a FROM self WHERE a >= 100 ORDER BY a;
-- Rows are computed one by one: all of them would not fit anywhere, and rows behind the limit are not computed.
CREATE TABLE few (a int8, b int8);
SELECT * FROM loaded('SELECT generate_series(1, 1000000000000)', 'few', '{"limit": 3}');
SELECT * FROM loaded('SELECT * FROM generate_series(1, 1000000000000)', 'few', '{"limit": 3, "where": "a % 1000 = 0"}');
SELECT * FROM loaded('SELECT i, 1 / (4 - i) FROM generate_series(1, 1000000000000) AS g (i)', 'few', '{"limit": 3}');
SELECT * FROM loaded('SELECT i, 1 / (4 - i) FROM generate_series(1, 1000000000000) AS g (i)', 'few', '{"limit": 3, "writer": "buffered"}');
CREATE FUNCTION pairs(OUT a int8, OUT b int8) RETURNS SETOF record LANGUAGE sql AS $$ SELECT i, i * i FROM (SELECT generate_series(1, 1000000000000) AS i) g $$;
SELECT * FROM loaded('SELECT b, a FROM pairs()', 'few', '{"limit": 2}');
CREATE FUNCTION fews() RETURNS SETOF few LANGUAGE sql AS $$ SELECT i, -i FROM (SELECT generate_series(1, 1000000000000) AS i) g $$;
SELECT * FROM loaded('SELECT p.*  FROM fews() p WHERE p.a > 4', 'few', '{"limit": 2}');
SELECT * FROM loaded('SELECT * FROM unnest(ARRAY[7, 8], ARRAY[9, 10])', 'few');
SELECT * FROM loaded('SELECT a, ordinality FROM unnest(ARRAY[20, 21]) WITH ORDINALITY u (a)', 'few');
SELECT * FROM loaded('SELECT (f).a, (f).b FROM fews() f', 'few', '{"limit": 0}');
TABLE few;
-- An error in the middle of a query rolls back the load, and is not about a row of the load.
CREATE TABLE broken (a int PRIMARY KEY, b int CHECK (b <> 13));
SELECT error_of($$SELECT loaded('SELECT i, 10 / (5000 - i) FROM generate_series(1, 9999) i', 'broken')$$);
SELECT error_of($$SELECT loaded('SELECT i, 10 / (5000 - i) FROM generate_series(1, 9999) i', 'broken', '{"writer": "buffered"}')$$);
SELECT error_of($$SELECT loaded('SELECT i, i FROM generate_series(1, 99) i', 'broken')$$);
SELECT error_of($$SELECT loaded('SELECT i, i FROM generate_series(1, 99) i', 'broken', '{"writer": "buffered"}')$$);
SELECT error_of($$SELECT loaded('SELECT i % 3000, 1 FROM generate_series(1, 4000) i', 'broken')$$);
SELECT count(*), pg_relation_size('broken') > 0 AS appended FROM broken;
SELECT count(*) FROM verify_heapam('broken');
SELECT bt_index_check('broken_pkey', true);
-- Rows that violate constraints are rejected, with their row numbers; errors of the query itself are not about a row.
SELECT * FROM loaded('SELECT nullif(i % 3000, 5), i % 20 FROM generate_series(1, 4000) i', 'broken', '{"on_error": "table"}');
SELECT line_number, byte_offset, column_name, raw_field, raw_line, sqlstate, constraint_name FROM bulk_rejects WHERE target = 'load_query.broken' AND line_number IN (5, 13, 33, 3001, 3002, 4000) ORDER BY line_number, sqlstate;
SELECT count(*), max(path) FROM bulk_rejects WHERE target = 'load_query.broken';
SELECT count(*) FROM verify_heapam('broken');
SELECT bt_index_check('broken_pkey', true);
TRUNCATE broken;
SELECT error_of($$SELECT loaded('SELECT i, i % 20 FROM generate_series(1, 100) i', 'broken', '{"on_error": "table", "reject_limit": 2}')$$);
SELECT error_of($$SELECT loaded('SELECT i, i % 20 FROM generate_series(1, 100) i', 'broken', '{"on_error": "table", "reject_limit": "4%"}')$$);
SELECT error_of($$SELECT loaded('SELECT i, 1 / (50 - i) FROM generate_series(1, 100) i', 'broken', '{"on_error": "table"}')$$);
SELECT count(*) FROM broken;
-- Duplicates.
INSERT INTO broken VALUES (1, 0), (2, 0);
SELECT * FROM loaded('VALUES (1, 1), (3, 1), (3, 2)', 'broken', '{"on_duplicate": "keep_old"}');
SELECT * FROM loaded('VALUES (2, 7), (4, 1), (4, 2)', 'broken', '{"on_duplicate": "keep_new"}');
SELECT * FROM loaded('SELECT a, b + 100 FROM broken', 'broken', '{"on_duplicate": "keep_new"}');
TABLE broken ORDER BY a;
SELECT bt_index_check('broken_pkey', true);
-- Frozen rows would be visible to the query at once, so freeze is refused if the query reads the target.
BEGIN;
TRUNCATE self;
SELECT error_of($$SELECT loaded('SELECT 1 FROM self', 'self', '{"freeze": true}')$$);
SELECT rows_loaded, writer FROM bulk_load(NULL, 'self', '{"query": "SELECT generate_series(1, 500)", "freeze": true, "lock": "share", "analyze": true}');
COMMIT;
SELECT count(*) FROM self;
-- Texts that are not a query.
SELECT error_of(format('SELECT loaded(%L, ''t'')', q)) FROM unnest(ARRAY['', 'SELECT 1; SELECT 2', 'DELETE FROM t', 'INSERT INTO t VALUES (1) RETURNING a', 'WITH d AS (DELETE FROM t RETURNING a) SELECT a FROM d',
	'SELECT 1 INTO x', 'SELECT $1', 'SELEC 1', 'SELECT nothing FROM t', 'SELECT 1) x; DROP TABLE t; --', 'SHOW port', 'VALUES (DEFAULT)', 'EXPLAIN SELECT 1']) q;
\set VERBOSITY default
SELECT * FROM loaded('SELECT 1, ''a'', ''x''', 't');
SELECT * FROM loaded('SELECT 1, now(), now()', 't');
-- Options that cannot be combined with a query.
SELECT error_of($$SELECT bulk_load('/x', 't', '{"query": "SELECT 1"}')$$);
SELECT error_of(format('SELECT loaded(''SELECT 1'', ''t'', %L)', o)) FROM unnest(ARRAY['{"format": "csv"}', '{"program": true}', '{"once": true}', '{"skip": 1}', '{"match_by": "name"}', '{"on_error": "ignore"}', '{"large_object": 1}',
	'{"columns": ["a", {"name": "b", "expr": "upper(b)"}]}', '{"server": "bulk_files"}']) o;
SELECT error_of(format('SELECT bulk_load(NULL, ''t'', %L)', o)) FROM unnest(ARRAY['{"query": null}', '{"query": ["SELECT 1"]}', '{"query": 1}']) o;
SELECT error_of($$SELECT bulk_check(NULL, 't', '{"query": "SELECT 1"}')$$);
SELECT error_of($$SELECT bulk_load(NULL, 't')$$);
-- Privileges: the caller's on the tables, and none on files.
CREATE ROLE regress_load_query LOGIN;
GRANT USAGE ON SCHEMA load_query TO regress_load_query;
GRANT INSERT (a), SELECT (a) ON t TO regress_load_query;
CREATE TABLE secret (a int);
CREATE TABLE rows_of (a int, owner name);
INSERT INTO rows_of VALUES (1, 'regress_load_query'), (2, 'somebody');
ALTER TABLE rows_of ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON rows_of USING (owner = current_user);
GRANT SELECT ON rows_of TO regress_load_query;
SET ROLE regress_load_query;
SELECT rows_loaded FROM bulk_load(NULL, 't', '{"query": "SELECT a FROM rows_of"}');
SELECT error_of($$SELECT bulk_load(NULL, 't', '{"query": "SELECT a FROM secret"}')$$);
SELECT error_of($$SELECT bulk_load(NULL, 't', '{"query": "SELECT 1, ''b''"}')$$);
SELECT error_of($$SELECT bulk_load(NULL, 'secret', '{"query": "SELECT 1"}')$$);
-- A job runs its query as the job's owner.
SELECT bulk_enqueue(NULL, 't', '{"query": "SELECT a + 1000 FROM rows_of"}') AS job \gset
SELECT bulk_wait(:job);
SELECT path, options, status, rows_loaded FROM bulk_jobs WHERE job_id = :job;
SELECT bulk_enqueue(NULL, 't', '{"query": "SELECT a FROM secret"}') AS job \gset
SET client_min_messages = warning;
SELECT bulk_wait(:job);
RESET client_min_messages;
SELECT status, error_message FROM bulk_jobs WHERE job_id = :job;
SELECT error_of($$SELECT bulk_enqueue(NULL, 't', '{"query": "SELEC 1"}')$$);
SELECT error_of($$SELECT bulk_enqueue(NULL, 't')$$);
RESET ROLE;
SELECT a FROM t WHERE a > 1000;
-- A load can be canceled by statement_timeout, within the query and between rows.
SET statement_timeout = '300ms';
\set VERBOSITY sqlstate
SELECT loaded('SELECT generate_series(1, 1000000000000)', 'few');
SELECT loaded('SELECT generate_series(1, 1000000000000)', 'few', '{"writer": "buffered", "where": "a < 0"}');
SELECT loaded('SELECT count(*) FROM generate_series(1, 1000000000) a, generate_series(1, 3) b', 'few');
\set VERBOSITY default
RESET statement_timeout;
SELECT count(*) FROM few;
SELECT count(*) FROM verify_heapam('few');
-- In functions, with savepoints, and while other cursors are open.
DO $$
DECLARE
	r record;
	n bigint := 0;
BEGIN
	FOR r IN SELECT a FROM self ORDER BY a LIMIT 3 LOOP
		n := n + (SELECT rows_loaded FROM bulk_load(NULL, 'few', jsonb_build_object('query', format('SELECT %s, i FROM generate_series(1, 10) i', r.a))));
		BEGIN
			PERFORM bulk_load(NULL, 'few', '{"query": "SELECT 1 / (2 - i) FROM generate_series(1, 5) i"}');
		EXCEPTION WHEN division_by_zero THEN
			n := n + 1000;
		END;
	END LOOP;
	RAISE NOTICE '%', n;
END $$;
SELECT count(*) FROM few;
SELECT rows_loaded FROM bulk_load(NULL, 'few', '{"query": "SELECT l.loaded FROM load_query.loaded(''SELECT 5, 6'', ''few'') l"}');
SELECT count(*) FROM few;
DROP OWNED BY regress_load_query;
DROP ROLE regress_load_query;
