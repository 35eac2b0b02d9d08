--
-- Indexes that the server's code builds, several of a table at once by several processes: of all access methods, with
-- expressions and conditions, unique ones. Afterwards they find the rows of sequential scans, and the catalog's figures are
-- those after REINDEX.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_index_team
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set helpers :data '/index_helpers.sql'
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
-- Small chunks, so that few rows suffice for several processes.
SET pg_bulk.chunk_size = '8kB';
SET pg_bulk.workers = 3;
CREATE FUNCTION lines(first int, last int) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(concat_ws(E'\t', a, CASE WHEN a % 7 = 0 THEN '\N' ELSE (a * 31 % 1000)::text END, 
		(SELECT string_agg(md5(concat_ws('-', a, nullif(i, 1))), ' ' ORDER BY i) FROM generate_series(1, CASE WHEN a % 50 = 0 THEN 100 ELSE 1 END) i),
		format('(%s,%s)', a % 100, a % 77), format('[%s,%s)', a * 10, a * 10 + 5), format('{%s,%s}', a % 50, a % 3)), E'\n' ORDER BY md5(a::text)) || E'\n'
	FROM generate_series(first, last) a
$$;
-- A file of rows, computed by an expression over a.
CREATE PROCEDURE write_rows(name text, expression text, last int) LANGUAGE plpgsql AS $$
DECLARE
	content text;
BEGIN
	EXECUTE format('SELECT string_agg(%s, E''\n'' ORDER BY a) || E''\n'' FROM generate_series(1, %s) a', expression, last) INTO content;
	CALL write_file(name, content);
END $$;
CALL write_file('team_few', lines(1, 1000));
CALL write_file('team_more', lines(1001, 4000));
CREATE PROCEDURE make_indexed(name text, kind text DEFAULT '') LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE %s TABLE %I (a int PRIMARY KEY, b numeric, t text, p point, r int4range, l int[])', kind, name);
	EXECUTE format('CREATE UNIQUE INDEX %I ON %I (left(t, 40), a)', name || '_expr', name);
	EXECUTE format('CREATE INDEX %I ON %I (b DESC NULLS FIRST) INCLUDE (a) WHERE a %% 2 = 0', name || '_part', name);
	EXECUTE format('CREATE INDEX %I ON %I USING hash (left(t, 40))', name || '_hash', name);
	EXECUTE format('CREATE INDEX %I ON %I USING gist (p)', name || '_gist', name);
	EXECUTE format('CREATE INDEX %I ON %I USING gist (r) WHERE b IS NOT NULL', name || '_some', name);
	EXECUTE format('CREATE INDEX %I ON %I USING spgist (r)', name || '_spgist', name);
	EXECUTE format('CREATE INDEX %I ON %I USING gin (l)', name || '_gin', name);
	EXECUTE format('CREATE INDEX %I ON %I USING gin (to_tsvector(''simple'', t))', name || '_words', name);
	EXECUTE format('CREATE INDEX %I ON %I USING brin (a) WITH (pages_per_range = 4)', name || '_brin', name);
END $$;
-- The results of the indexes that are not B-trees, and the number of them whose results differ from a sequential scan.
CREATE FUNCTION found(target text, OUT by_index text, OUT wrong bigint) RETURNS record LANGUAGE sql AS $$
	WITH conditions (kind, condition) AS (VALUES
		('hash', format('left(t, 40) = (SELECT left(t, 40) FROM %I LIMIT 1)', target)), ('gist', 'p <@ box ''((10,10),(40,60))'''),
		('some', 'r && ''[3000,19004)'' AND b IS NOT NULL'), ('spgist', 'r && ''[3000,19004)'''), ('gin', 'l @> ''{2}'''),
		('words', 'to_tsvector(''simple'', t) @@ to_tsquery(''simple'', md5(''77'') || '' | '' || md5(''1077''))'), ('brin', 'a BETWEEN 100 AND 1400')),
	counts AS (
		SELECT kind, by_index(format('%I', target || '_' || kind)::regclass, query) AS indexs, by_table(query) AS tables
		FROM conditions, format('SELECT count(*) FROM %I WHERE %s', target, condition) query)
	SELECT string_agg(kind || ' ' || indexs, ', '), count(*) FILTER (WHERE indexs <> tables) FROM counts
$$;
-- The catalog's figures of a table and its indexes. The size of a hash index depends on the table's earlier statistics. A GiST build without
-- sorting chooses at random between equally good pages (gistchoose, gistutil.c). For GiST, only whether the index is large is compared.
CREATE FUNCTION said(target text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT format('%s: %s rows, %s pages, %s all visible', c.oid::regclass, reltuples, CASE WHEN a.amname = 'hash' THEN '-1' WHEN relname LIKE '%\_some' THEN CASE WHEN relpages > 2 + reltuples / 100 THEN 'many' ELSE 'few' END ELSE relpages::text END, relallvisible)
	FROM pg_class c LEFT JOIN pg_am a ON a.oid = c.relam
	WHERE c.oid = target::regclass OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = target::regclass)
$$;
-- The differences between these figures after the load and after a REINDEX, for indexes that a load builds otherwise.
CREATE FUNCTION differs(target text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	before text[] := ARRAY(SELECT said(target));
BEGIN
	EXECUTE format('REINDEX TABLE %I', target);
	RETURN QUERY SELECT 'load: ' || b FROM unnest(before) b WHERE b <> ALL (ARRAY(SELECT said(target)));
	RETURN QUERY SELECT 'REINDEX: ' || s FROM said(target) s WHERE s <> ALL (before);
END $$;

-- An empty table, and a table with rows: for the latter, the server builds the B-trees, too.
CALL make_indexed('team');
SELECT indexed('team_few', 'team', '{"indexes": "rebuild", "truncate": true}');
SELECT * FROM found('team');
SELECT indexed('team_more', 'team', '{"indexes": "rebuild", "lock": "share"}');
SELECT * FROM found('team');
SELECT differs('team');
-- No workers are available, or none are wanted.
SET max_parallel_workers = 0;
SELECT indexed('team_few', 'team', '{"indexes": "rebuild", "truncate": true}');
SELECT * FROM found('team');
SELECT differs('team');
RESET max_parallel_workers;
SELECT jsonb_agg(i ->> 'workers') FROM bulk_load(data_path('team_more'), 'team', '{"indexes": "rebuild", "lock": "share", "workers": 0}'), jsonb_array_elements(indexes) i;
SELECT * FROM found('team');
-- A new table, in a subtransaction, too; unlogged; temporary.
BEGIN;
CALL make_indexed('fresh');
SAVEPOINT s;
SELECT indexed('team_more', 'fresh', '{"indexes": "rebuild"}');
ROLLBACK TO s;
SELECT faults('fresh');
SELECT indexed('team_more', 'fresh', '{"indexes": "rebuild"}');
COMMIT;
SELECT faults('fresh');
SELECT * FROM found('fresh');
SELECT differs('fresh');
CALL make_indexed('unlogged', 'UNLOGGED');
SELECT indexed('team_more', 'unlogged', '{"indexes": "rebuild", "truncate": true}');
SELECT * FROM found('unlogged');
SELECT count(*) FROM pg_index WHERE indrelid = 'unlogged'::regclass AND (pg_stat_file(pg_relation_filepath(indexrelid) || '_init')).size > 0;
CALL make_indexed('temporary', 'TEMPORARY');
SELECT indexed('team_more', 'temporary', '{"indexes": "rebuild"}');
SELECT * FROM found('temporary');

-- The error is that of a build by one process, and the load is rolled back.
CREATE TABLE wrong (a int, t text, l int[]);
CREATE UNIQUE INDEX wrong_unique ON wrong (lower(t), (a % 10000));
CREATE INDEX wrong_gin ON wrong USING gin (l);
CREATE INDEX wrong_hash ON wrong USING hash (t);
INSERT INTO wrong VALUES (0, 'before', '{1}');
CALL write_rows('team_twice', $$concat_ws(E'\t', a, CASE a % 10000 WHEN 77 THEN 'Same' ELSE a::text END, '{' || a % 9 || '}')$$, 12000);
SELECT error_of($$SELECT * FROM bulk_load(data_path('team_twice'), 'wrong', '{"indexes": "rebuild", "lock": "share"}')$$);
SELECT count(*) FROM wrong;
SELECT faults('wrong');
SELECT current_setting('maintenance_work_mem'), count(*) FROM pg_locks WHERE relation = 'wrong'::regclass;
-- The fields of an error in a function, and its context.
CREATE FUNCTION refuses(a int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	IF a = 3000 THEN
		RAISE EXCEPTION '% is refused', a USING DETAIL = 'Why not.', HINT = 'Ask for another.', CONSTRAINT = 'refusal';
	END IF;
	RETURN a;
END $$;
DROP INDEX wrong_unique;
CREATE INDEX wrong_refused ON wrong USING hash (refuses(a));
CREATE FUNCTION refusal() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	message text; detail text; hint text; name text; context text;
BEGIN
	PERFORM bulk_load(data_path('team_twice'), 'wrong', '{"indexes": "rebuild", "lock": "share"}');
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, name = CONSTRAINT_NAME, context = PG_EXCEPTION_CONTEXT;
	RETURN QUERY VALUES (message), (detail), (hint), (name);
	RETURN QUERY SELECT regexp_split_to_table(context, E'\n');
END $$;
-- (From 17 on the function's name has its schema.)
SELECT replace(without_path(refusal()), 'load_index_team.', '');
SELECT count(*) FROM wrong;
SELECT faults('wrong');
-- The same if a worker raises it while the leader waits. Only if no worker is about to raise it, the leader does.
CREATE OR REPLACE FUNCTION refuses(a int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
	is_leader boolean;
BEGIN
	IF a = 3000 THEN
		is_leader := (SELECT leader_pid IS NULL FROM pg_stat_activity WHERE pid = pg_backend_pid());
		PERFORM pg_sleep(CASE WHEN is_leader THEN 0.3 ELSE 1.5 END);
		PERFORM pg_stat_clear_snapshot();
		IF NOT is_leader OR NOT EXISTS (SELECT FROM pg_stat_activity WHERE leader_pid = pg_backend_pid() AND wait_event = 'PgSleep') THEN
			RAISE EXCEPTION '% is refused by a worker', a USING CONSTRAINT = 'refusal';
		END IF;
	END IF;
	RETURN a;
END $$;
CREATE INDEX wrong_too ON wrong USING hash (refuses(a));
CREATE INDEX wrong_three ON wrong USING hash (refuses(a));
CREATE INDEX wrong_four ON wrong USING hash (refuses(a));
-- (From 17 on the function's name has its schema.)
SELECT replace(without_path(refusal()), 'load_index_team.', '');
DROP INDEX wrong_too, wrong_three, wrong_four;
-- A query in an index function must not use an index that is being built.
CREATE FUNCTION reads(a int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET enable_seqscan = off AS $$
BEGIN
	RETURN (SELECT count(*) FROM load_index_team.wrong w WHERE w.l @> '{1}');
END $$;
DROP INDEX wrong_refused;
CREATE INDEX wrong_reads ON wrong USING hash (reads(a));
SELECT error_of($$SELECT * FROM bulk_load(data_path('team_twice'), 'wrong', '{"indexes": "rebuild", "lock": "share"}')$$) LIMIT 1;
DROP TABLE wrong;

-- If the loader has the owner's privileges, functions run as the owner in each process, and processes divide maintenance_work_mem.
CREATE ROLE load_index_team_owner;
CREATE ROLE load_index_team_loader;
GRANT pg_read_server_files, load_index_team_owner TO load_index_team_loader;
GRANT USAGE, CREATE ON SCHEMA load_index_team TO load_index_team_owner, load_index_team_loader;
-- A process without workers has all of it.
GRANT pg_read_all_stats TO load_index_team_owner;
CREATE FUNCTION is_alone() RETURNS boolean LANGUAGE sql PARALLEL SAFE AS $$
	SELECT pg_stat_clear_snapshot();
	SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE leader_pid = pg_backend_pid() OR pid = pg_backend_pid() AND leader_pid IS NOT NULL)
$$;
CREATE FUNCTION who(int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	IF current_user <> 'load_index_team_owner' AND $1 > 0 THEN
		RAISE 'run by %', current_user;
	END IF;
	IF current_setting('maintenance_work_mem') <> '16MB' AND $1 > 0 AND NOT (current_setting('maintenance_work_mem') = '64MB' AND load_index_team.is_alone()) THEN
		RAISE 'with % of memory', current_setting('maintenance_work_mem');
	END IF;
	RETURN $1;
END $$;
CREATE TABLE owned (a int, l int[]);
ALTER TABLE owned OWNER TO load_index_team_owner;
CREATE INDEX owned_1 ON owned USING hash (who(a));
CREATE INDEX owned_2 ON owned USING brin (who(a));
CREATE INDEX owned_3 ON owned USING gin ((ARRAY[who(a)]));
CREATE INDEX owned_4 ON owned USING spgist (int4range(who(a), NULL));
GRANT SELECT, INSERT, TRUNCATE ON owned TO load_index_team_loader;
CALL write_rows('team_owned', $$a || E'\t{1}'$$, 12000);
SET maintenance_work_mem = '64MB';
SET ROLE load_index_team_loader;
SELECT indexed.* FROM bulk_load(current_setting('test.dir') || '/team_owned', 'owned', '{"truncate": true}') l,
	LATERAL (SELECT rows_loaded, jsonb_agg(i - 'seconds' - 'workers') FROM jsonb_array_elements(l.indexes) i) indexed;
SELECT current_user, current_setting('maintenance_work_mem');
RESET ROLE;
RESET maintenance_work_mem;
DROP TABLE owned;
-- The leader builds indexes that are not parallel safe, outside of parallel mode.
CREATE SEQUENCE calls;
CREATE FUNCTION unsafe(int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN PERFORM nextval('load_index_team.calls'); RETURN $1; END $$;
CREATE OPERATOR CLASS unsafe_hash FOR TYPE int USING hash AS OPERATOR 1 =, FUNCTION 1 unsafe(int);
CREATE FUNCTION unsafe_less(int, int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN PERFORM nextval('load_index_team.calls'); RETURN $1 < $2; END $$;
CREATE OPERATOR <<< (LEFTARG = int, RIGHTARG = int, FUNCTION = unsafe_less);
CREATE OPERATOR CLASS unsafe_brin FOR TYPE int USING brin AS OPERATOR 1 <<<, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 brin_minmax_opcinfo(internal), FUNCTION 2 brin_minmax_add_value(internal, internal, internal, internal),
	FUNCTION 3 brin_minmax_consistent(internal, internal, internal), FUNCTION 4 brin_minmax_union(internal, internal, internal);
CREATE TABLE mixed (a int, l int[]);
CREATE INDEX mixed_expression ON mixed USING gin ((ARRAY[unsafe(a)]));
CREATE INDEX mixed_condition ON mixed USING hash (a) WHERE unsafe(a) > 5;
CREATE INDEX mixed_hash ON mixed USING hash (a unsafe_hash);
CREATE INDEX mixed_brin ON mixed USING brin (a unsafe_brin);
CREATE INDEX mixed_gin ON mixed USING gin (l);
CREATE INDEX mixed_safe ON mixed USING hash (a);
SELECT rows_loaded, jsonb_agg(i - 'seconds' - 'workers') FROM bulk_load(data_path('team_owned'), 'mixed', '{"indexes": "rebuild", "lock": "share"}'), jsonb_array_elements(indexes) i GROUP BY 1;
SELECT faults('mixed');
DROP TABLE mixed;

-- Partitions, one after the other, with duplicates.
CREATE TABLE halves (a int PRIMARY KEY, l int[], t text) PARTITION BY HASH (a);
CREATE TABLE halves_0 PARTITION OF halves FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE halves_1 PARTITION OF halves FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE INDEX ON halves USING gin (l);
CREATE INDEX ON halves USING hash (t);
CALL write_rows('team_parts', $$concat_ws(E'\t', a % 2900, '{' || a % 9 || '}', a)$$, 3000);
SELECT rows_loaded, rows_rejected FROM bulk_load(data_path('team_parts'), 'halves', '{"truncate": true, "on_error": "table", "indexes": "rebuild"}');
SELECT faults(relid) FROM pg_partition_tree('halves') WHERE isleaf;
SELECT by_index(name::regclass, query) AS indexs, by_table(query) AS tables
FROM (VALUES ('halves_0_l_idx', 'SELECT count(*) FROM halves_0 WHERE l @> ''{3}'''), ('halves_1_t_idx', 'SELECT count(*) FROM halves_1 WHERE t = ''40''')) v (name, query);

\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA load_index_team CASCADE;
DROP ROLE load_index_team_owner, load_index_team_loader;
