--
-- Indexes of loaded tables: all access methods, sorted insertion and rebuilding, constraints and their errors. Afterwards
-- amcheck finds no error, and index scans find the rows of sequential scans.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_indexes
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set helpers :data '/index_helpers.sql'
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
-- Rows first to last, in an irregular order; every seventh b is NULL, c has few values, t is sometimes long.
CREATE FUNCTION lines(first int, last int) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(concat_ws(E'\t', a, CASE WHEN a % 7 = 0 THEN '\N' ELSE (a * 31 % 1000)::text END, a % 5, repeat(md5(a::text), 1 + a % 3),
		format('(%s,%s)', a % 100, a % 77), format('[%s,%s)', a * 10, a * 10 + 5), format('{%s,%s}', a % 50, a % 3)), E'\n' ORDER BY md5(a::text)) || E'\n'
	FROM generate_series(first, last) a
$$;
CALL write_file('few', lines(1, 500));
CALL write_file('more', lines(501, 2500));
CALL write_file('many', lines(1, 12000));
CREATE PROCEDURE make_indexed(name text, kind text DEFAULT '') LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE %s TABLE %I (a int, b numeric, c int, t text, p point, r int4range, l int[])', kind, name);
	EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (a)', name, name || '_pkey');
	EXECUTE format('CREATE INDEX %I ON %I (b DESC NULLS FIRST, c)', name || '_b', name);
	EXECUTE format('CREATE INDEX %I ON %I (c)', name || '_c', name);
	EXECUTE format('CREATE UNIQUE INDEX %I ON %I (c, t) INCLUDE (b)', name || '_ct', name);
	EXECUTE format('CREATE INDEX %I ON %I (lower(t), (a + c) DESC) WHERE a %% 2 = 0', name || '_expr', name);
	EXECUTE format('CREATE UNIQUE INDEX %I ON %I (t COLLATE "C") WHERE b IS NULL', name || '_part', name);
	EXECUTE format('CREATE INDEX %I ON %I USING hash (t)', name || '_hash', name);
	EXECUTE format('CREATE INDEX %I ON %I USING gist (p)', name || '_gist', name);
	EXECUTE format('CREATE INDEX %I ON %I USING spgist (r)', name || '_spgist', name);
	EXECUTE format('CREATE INDEX %I ON %I USING gin (l)', name || '_gin', name);
	EXECUTE format('CREATE INDEX %I ON %I USING brin (a) WITH (pages_per_range = 4)', name || '_brin', name);
END $$;
-- The results of the indexes that are not B-trees, and the number of them whose results differ from a sequential scan.
CREATE FUNCTION found(target text, OUT by_index text, OUT wrong bigint) RETURNS record LANGUAGE sql AS $$
	WITH conditions (kind, condition) AS (VALUES
		('hash', format('t = (SELECT t FROM %I LIMIT 1)', target)), ('gist', 'p <@ box ''((10,10),(40,60))'''),
		('spgist', 'r && ''[3000,9004)'''), ('gin', 'l @> ''{2}'''), ('brin', 'a BETWEEN 100 AND 1400')),
	counts AS (
		SELECT kind, by_index(format('%I', target || '_' || kind)::regclass, query) AS indexs, by_table(query) AS tables
		FROM conditions, format('SELECT count(*) FROM %I WHERE %s', target, condition) query)
	SELECT string_agg(kind || ' ' || indexs, ', '), count(*) FILTER (WHERE indexs <> tables) FROM counts
$$;

-- A table that other sessions use: keys are inserted.
CALL make_indexed('online');
INSERT INTO online SELECT a, a, 9, 'old ' || a, '(1,1)', '[1,2)', '{1}' FROM generate_series(-100, 0) a;
SELECT indexed('few', 'online');
SELECT indexed('more', 'online', '{"indexes": "auto"}');
SELECT * FROM found('online');
-- With little memory, sorts spill to disk.
CALL make_indexed('spilled');
INSERT INTO spilled (a, t) VALUES (0, '');
SELECT pg_stat_force_next_flush();
SELECT temp_files AS before FROM pg_stat_database WHERE datname = current_database() \gset
SET maintenance_work_mem = '1MB';
SELECT rows_loaded FROM bulk_load(data_path('many'), 'spilled');
RESET maintenance_work_mem;
SELECT pg_stat_force_next_flush();
SELECT spilled(:before, 3);
SELECT faults('spilled');
SELECT * FROM found('spilled');

-- A table with a new file: indexes are rebuilt if there are enough rows.
CALL make_indexed('renewed');
SELECT indexed('many', 'renewed', '{"truncate": true}');
SELECT * FROM found('renewed');
SELECT indexed('many', 'renewed', '{"truncate": true, "indexes": "insert"}');
SELECT * FROM found('renewed');
SELECT indexed('few', 'renewed', '{"truncate": true}');
SELECT indexed('few', 'renewed', '{"truncate": true, "indexes": "rebuild"}');
SELECT * FROM found('renewed');
-- Later loads do not rebuild indexes of existing rows unless the option requests this.
BEGIN;
TRUNCATE renewed;
SELECT indexed('few', 'renewed');
SELECT indexed('more', 'renewed', '{"indexes": "auto"}');
SELECT indexed('many', 'renewed', '{"indexes": "rebuild", "where": "a > 2500"}');
COMMIT;
SELECT faults('renewed');
SELECT * FROM found('renewed');
-- A table that the transaction created, also in a subtransaction that is rolled back.
BEGIN;
CALL make_indexed('fresh');
SAVEPOINT s;
SELECT indexed('many', 'fresh');
ROLLBACK TO s;
SELECT count(*), faults('fresh') FROM fresh;
SELECT indexed('many', 'fresh');
COMMIT;
SELECT faults('fresh');
SELECT * FROM found('fresh');
-- With freeze.
BEGIN;
TRUNCATE fresh;
SELECT rows_loaded, writer FROM bulk_load(current_setting('test.dir') || '/many', 'fresh', '{"freeze": true}');
COMMIT;
SELECT faults('fresh');
SELECT * FROM found('fresh');
-- Temporary and unlogged tables.
CALL make_indexed('temporary', 'TEMPORARY');
SELECT indexed('many', 'temporary');
-- Writing statistics of the table takes the lock that keeps other writers of statistics out.
TRUNCATE temporary;
BEGIN;
SELECT rows_loaded, notes FROM bulk_load(data_path('few'), 'temporary', '{"indexes": "rebuild"}');
SELECT string_agg(DISTINCT mode, ', ') FROM pg_locks WHERE relation = 'temporary'::regclass AND pid = pg_backend_pid() AND mode <> 'AccessShareLock';
ROLLBACK;
SELECT indexed('many', 'temporary');
SELECT * FROM found('temporary');
SELECT indexed('few', 'temporary', '{"where": "a = -1"}');
CALL make_indexed('unlogged', 'UNLOGGED');
SELECT indexed('many', 'unlogged', '{"truncate": true}');
SELECT * FROM found('unlogged');
SELECT count(*) FROM pg_index WHERE indrelid = 'unlogged'::regclass AND (pg_stat_file(pg_relation_filepath(indexrelid) || '_init')).size >= 0;

-- Combinations that cannot be done, and the strategies used instead.
SELECT indexed('many', 'online', '{"indexes": "rebuild", "where": "a BETWEEN 2501 AND 2600"}');
SELECT indexed('many', 'online', '{"indexes": "merge", "where": "a BETWEEN 2601 AND 2700"}');
SELECT indexed('many', 'online', '{"indexes": "rebuild", "lock": "share", "where": "a BETWEEN 2701 AND 2800"}');
SELECT * FROM found('online');
SELECT indexed('many', 'online', '{"indexes": "auto", "lock": "share", "where": "a BETWEEN 2801 AND 2900"}');
-- No index lock makes other sessions wait, except for a rebuild, which adds a note.
BEGIN;
SELECT loaded FROM figures('many', 'online', '{"where": "a BETWEEN 2901 AND 3000"}');
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND mode = 'AccessExclusiveLock' AND relation IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'online'::regclass);
SELECT loaded, notes FROM figures('many', 'online', '{"indexes": "rebuild", "lock": "share", "where": "a BETWEEN 3001 AND 3100"}');
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND mode = 'AccessExclusiveLock' AND relation IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'online'::regclass);
COMMIT;
SELECT faults('online');
-- The same session has a scan of an index open.
BEGIN;
TRUNCATE renewed;
INSERT INTO renewed (a, t) VALUES (-1, 'x'), (0, 'y');
SET LOCAL enable_seqscan = off;
DECLARE scan CURSOR FOR SELECT a FROM renewed ORDER BY a;
FETCH scan;
SELECT indexed('many', 'renewed', '{"indexes": "rebuild"}');
FETCH scan;
FETCH scan;
COMMIT;
SELECT faults('renewed');

-- Each partition has its own indexes.
CREATE TABLE parts (a int, b numeric, c int, t text, p point, r int4range, l int[], PRIMARY KEY (c, a)) PARTITION BY LIST (c);
CREATE TABLE part_0 PARTITION OF parts FOR VALUES IN (0, 1);
CREATE TABLE part_2 (l int[], t text, a int NOT NULL, gone int, b numeric, c int NOT NULL, p point, r int4range);
ALTER TABLE part_2 DROP gone;
ALTER TABLE parts ATTACH PARTITION part_2 FOR VALUES IN (2, 3);
CREATE TABLE part_4 PARTITION OF parts DEFAULT;
CREATE INDEX parts_t ON parts (lower(t));
SELECT indexed('few', 'part_4', '{"where": "c = 4"}');
SELECT indexed('many', 'parts', '{"where": "c < 4"}');
SELECT indexed('many', 'parts', '{"truncate": true}');
SELECT indexed('many', 'parts', '{"truncate": true, "indexes": "rebuild", "where": "c < 2"}');
SELECT indexed('many', 'parts', '{"indexes": "rebuild", "lock": "share", "where": "c >= 2"}');

-- Duplicate keys: by COPY, by insertion, by rebuilding.
CREATE FUNCTION error_fields(statement text, OUT words text, OUT place text) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
	message text; detail text; hint text; context text; s text; t text; k text; c text;
BEGIN
	EXECUTE statement;
	words := 'no error';
	RETURN NEXT;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT,
		s = SCHEMA_NAME, t = TABLE_NAME, c = COLUMN_NAME, k = CONSTRAINT_NAME;
	words := concat_ws(' | ', SQLSTATE, message, nullif(detail, ''), nullif(hint, ''));
	place := concat_ws(' ', s, t, nullif(c, ''), k);
	RETURN NEXT;
END $$;
CREATE FUNCTION violations(file text, target text) RETURNS TABLE (how text, words text, place text) LANGUAGE sql AS $$
	SELECT 'copy', f.* FROM error_fields(format('COPY %s FROM %L', target, data_path(file))) f UNION ALL
	SELECT 'insert', f.* FROM error_fields(format('SELECT bulk_load(%L, %L, ''{"indexes": "insert"}'')', data_path(file), target)) f UNION ALL
	SELECT 'rebuild', f.* FROM error_fields(format('SELECT bulk_load(%L, %L, ''{"indexes": "rebuild", "lock": "share"}'')', data_path(file), target)) f
$$;
CREATE TABLE "Key's" (a int PRIMARY KEY, b text);
CREATE UNIQUE INDEX ON "Key's" (lower(b), a DESC) WHERE b <> 'x';
CALL write_file('dup', E'1\tone\n2\ttwo\n1\tx\n');
CALL write_file('known', E'5\tfive\n');
CALL write_file('expr', E'3\tx\n6\tSIX\n7\tseven\n');
SELECT violations('dup', '"Key''s"');
INSERT INTO "Key's" VALUES (5, 'five');
SELECT violations('known', '"Key''s"');
CREATE UNIQUE INDEX ON "Key's" (upper(b));
INSERT INTO "Key's" VALUES (9, 'Six');
SELECT violations('expr', '"Key''s"');
SELECT * FROM "Key's" ORDER BY a;
-- NULLS DISTINCT and NULLS NOT DISTINCT.
CREATE TABLE nulls (a int UNIQUE, b int UNIQUE NULLS NOT DISTINCT);
CALL write_file('nulls', E'\\N\t1\n\\N\t2\n\\N\t\\N\n');
SELECT violations('nulls', 'nulls');
CREATE TABLE nulls_once (LIKE nulls INCLUDING ALL);
SELECT indexed('nulls', 'nulls_once');
SELECT error_of($$SELECT bulk_load(data_path('nulls'), 'nulls_once')$$);
SELECT faults('nulls_once');
-- Dead rows do not conflict; rows of this transaction do.
CREATE TABLE dead (a int PRIMARY KEY, b text);
BEGIN;
INSERT INTO dead VALUES (1, 'x'), (2, 'x'), (3, 'x');
DELETE FROM dead WHERE a < 3;
SAVEPOINT s;
INSERT INTO dead VALUES (4, 'x');
ROLLBACK TO s;
CALL write_file('again', E'4\tagain\n2\tagain\n1\tagain\n');
SELECT indexed('again', 'dead');
SELECT error_of($$SELECT bulk_load(data_path('again'), 'dead')$$);
COMMIT;
SELECT faults('dead');
TABLE dead ORDER BY a;
-- A key that is too large.
CREATE TABLE wide (a int, b text);
ALTER TABLE wide ALTER b SET STORAGE PLAIN;
CREATE INDEX wide_b ON wide (b);
CREATE FUNCTION wide_lines() RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(n || E'\t' || CASE n WHEN 700 THEN repeat('x', 2800) ELSE 'y' END, E'\n') || E'\n' FROM generate_series(1, 1000) n
$$;
CALL write_file('wide', wide_lines());
SELECT how, split_part(words, ' | ', 2) FROM violations('wide', 'wide');
-- Keys that the table stores compressed or out of line.
CREATE TABLE toasted (a int, b text, c text, PRIMARY KEY (b, a));
ALTER TABLE toasted ALTER c SET STORAGE EXTERNAL;
CREATE INDEX toasted_c ON toasted (left(c, 40));
CREATE INDEX toasted_hash ON toasted USING hash (c);
CREATE FUNCTION toasted_lines() RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(concat_ws(E'\t', n, repeat(chr(97 + n % 26), 4000), repeat(md5(n::text), 200)), E'\n') || E'\n' FROM generate_series(1, 300) n
$$;
CALL write_file('toasted', toasted_lines());
SELECT indexed('toasted', 'toasted', '{"indexes": "insert"}');
SELECT indexed('toasted', 'toasted', '{"truncate": true, "indexes": "rebuild"}');
-- A user without SELECT does not see the table's keys in errors.
CREATE ROLE load_indexes_user;
GRANT pg_read_server_files TO load_indexes_user;
GRANT USAGE ON SCHEMA load_indexes TO load_indexes_user;
CREATE TABLE secret (a int PRIMARY KEY, b text);
GRANT INSERT, TRUNCATE ON secret TO load_indexes_user;
SET ROLE load_indexes_user;
SELECT error_of($$SELECT bulk_load(data_path('dup'), 'secret', '{"truncate": true, "indexes": "insert"}')$$);
SELECT error_of($$SELECT bulk_load(data_path('dup'), 'secret', '{"truncate": true, "indexes": "rebuild"}')$$);
RESET ROLE;
GRANT SELECT (a) ON secret TO load_indexes_user;
SET ROLE load_indexes_user;
SELECT error_of($$SELECT bulk_load(data_path('dup'), 'secret', '{"truncate": true, "indexes": "insert"}')$$);
SELECT error_of($$SELECT bulk_load(data_path('dup'), 'secret', '{"truncate": true, "indexes": "rebuild"}')$$);
RESET ROLE;

-- Constraints that are checked by searching for neighbors, or later.
CREATE TABLE booked (a int, r int4range, EXCLUDE USING gist (r WITH &&));
CALL write_file('apart', E'1\t[1,5)\n2\t[5,9)\n3\t\\N\n4\t\\N\n');
CALL write_file('overlapping', E'5\t[20,25)\n6\t[10,12)\n7\t[11,12)\n8\t[24,30)\n');
CALL write_file('taken', E'9\t[4,6)\n');
SELECT indexed('apart', 'booked');
SELECT how, words FROM violations('overlapping', 'booked');
SELECT how, words FROM violations('taken', 'booked');
ALTER TABLE booked DROP CONSTRAINT booked_r_excl, ADD EXCLUDE USING gist (r WITH &&) DEFERRABLE INITIALLY DEFERRED;
BEGIN;
SELECT indexed('overlapping', 'booked');
DELETE FROM booked WHERE a IN (5, 7);
COMMIT;
BEGIN;
SELECT indexed('taken', 'booked');
COMMIT;
SELECT a FROM booked ORDER BY a;
CREATE TABLE later (a int PRIMARY KEY DEFERRABLE, b text UNIQUE DEFERRABLE INITIALLY DEFERRED);
SELECT how, words FROM violations('dup', 'later');
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
SELECT indexed('dup', 'later', '{"truncate": true, "indexes": "rebuild"}');
SAVEPOINT s;
SET CONSTRAINTS later_b_key IMMEDIATE;
SET CONSTRAINTS ALL IMMEDIATE;
ROLLBACK TO s;
UPDATE later SET a = 3 WHERE b = 'x';
COMMIT;
SELECT faults('later');
TABLE later ORDER BY a;

-- Indexes that are being built, or were left behind by a failed build. Only the ready ones get entries; none becomes valid.
CREATE TABLE building (a int, b text);
CREATE INDEX building_ready ON building (a);
CREATE INDEX building_not ON building (a);
CREATE INDEX building_dead ON building (a);
INSERT INTO building SELECT n, n::text FROM generate_series(-10, 0) n;
UPDATE pg_index SET indisvalid = false WHERE indexrelid IN ('building_ready'::regclass, 'building_not'::regclass, 'building_dead'::regclass);
UPDATE pg_index SET indisready = false WHERE indexrelid IN ('building_not'::regclass, 'building_dead'::regclass);
UPDATE pg_index SET indislive = false WHERE indexrelid = 'building_dead'::regclass;
SELECT indexed('again', 'building');
SELECT indexed('again', 'building', '{"indexes": "rebuild", "lock": "share"}');
SELECT indexrelid::regclass, indisvalid FROM pg_index WHERE indrelid = 'building'::regclass ORDER BY 1;
UPDATE pg_index SET indisvalid = true WHERE indexrelid = 'building_ready'::regclass;
SELECT faults('building');

-- A loader without the owner's privileges evaluates index expressions as himself; their errors keep all
-- fields.
CREATE FUNCTION watched(a int) RETURNS int IMMUTABLE PARALLEL RESTRICTED LANGUAGE plpgsql AS $$
BEGIN
	IF a = 2 THEN
		RAISE NOTICE 'watched by %', current_user;
	ELSIF a < 0 THEN
		RAISE 'negative: %', a USING DETAIL = 'some detail', HINT = 'a hint', CONSTRAINT = 'watch';
	END IF;
	RETURN a;
END $$;
CREATE FUNCTION even(a int) RETURNS bool IMMUTABLE PARALLEL RESTRICTED LANGUAGE plpgsql AS 'BEGIN RETURN 10 / (a - 7) IS NOT NULL; END';
CREATE TABLE watch (a int, b text);
CREATE INDEX watch_a ON watch (watched(a));
CREATE INDEX watch_even ON watch (a) WHERE even(a);
GRANT SELECT, INSERT, TRUNCATE ON watch TO load_indexes_user;
CALL write_file('negative', E'1\tx\n-5\ty\n');
CALL write_file('seven', E'1\tx\n7\ty\n');
SET ROLE load_indexes_user;
SELECT loaded FROM figures('again', 'watch', '{"indexes": "insert"}');
SELECT loaded FROM figures('again', 'watch', '{"truncate": true, "indexes": "rebuild"}');
RESET ROLE;
SELECT * FROM error_fields($$SELECT bulk_load(data_path('negative'), 'watch')$$);
SELECT error_of($$SELECT bulk_load(data_path('negative'), 'watch')$$);
SELECT error_of($$SELECT bulk_load(data_path('negative'), 'watch', '{"indexes": "rebuild", "lock": "share"}')$$);
SELECT error_of($$SELECT bulk_load(data_path('seven'), 'watch')$$);
SELECT error_of($$SELECT bulk_load(data_path('seven'), 'watch', '{"indexes": "rebuild", "lock": "share"}')$$);
SELECT faults('watch');
-- Loads that fail again and again leak no memory, no locks and no files.
SET client_min_messages = warning;
DO $$
DECLARE
	left_over text;
BEGIN
	FOR i IN 1..30 LOOP
		PERFORM error_of(format('SELECT bulk_load(data_path(%L), %L, %L)', (ARRAY['negative', 'seven', 'dup'])[1 + i % 3],
			(ARRAY['watch', 'watch', 'secret'])[1 + i % 3], jsonb_build_object('lock', 'share', 'indexes', (ARRAY['insert', 'rebuild'])[1 + i % 2])));
	END LOOP;
	SELECT string_agg(name, ', ') INTO left_over FROM (
		SELECT name FROM pg_backend_memory_contexts WHERE name ~ 'bulk|TupleSort' UNION ALL
		SELECT relation::regclass || ' ' || mode FROM pg_locks WHERE pid = pg_backend_pid() AND relation IN (
			SELECT indexrelid FROM pg_index WHERE indrelid IN ('watch'::regclass, 'secret'::regclass))) l;
	IF left_over <> '' THEN
		RAISE '%', left_over;
	END IF;
END $$;
DROP TABLE watch, secret;
-- The strategy that was chosen for each index, and the reason.
CREATE FUNCTION reasons(first int, last int, target regclass, options jsonb DEFAULT '{}') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	content text := (SELECT string_agg(concat_ws(E'\t', a, a, format('[%s,%s)', a * 10, a * 10 + 5), a), E'\n') || E'\n' FROM generate_series(first, last) a);
BEGIN
	CALL write_file('reasons', content);
	RETURN QUERY SELECT concat_ws(' from ', i ->> 'method', i ->> 'from') || ': ' || (i ->> 'why') || ': ' || string_agg(i ->> 'index', ' ' ORDER BY i ->> 'index')
	FROM bulk_load(data_path('reasons'), target, options), jsonb_array_elements(indexes) i GROUP BY i ->> 'method', i ->> 'from', i ->> 'why' ORDER BY 1;
END $$;
CREATE TABLE why (a int PRIMARY KEY, b int UNIQUE DEFERRABLE, r int4range, t text COLLATE "C", CONSTRAINT why_excl EXCLUDE USING gist (r WITH &&));
CREATE INDEX why_plus ON why ((a + b));
CREATE INDEX why_hash ON why USING hash (a);
CREATE UNIQUE INDEX why_part ON why (a, b) WHERE a > 3;
SELECT reasons(1, 10, 'why');
SELECT reasons(11, 20, 'why');
SELECT reasons(1, 10000, 'why', '{"truncate": true}');
SELECT reasons(10001, 10010, 'why', '{"lock": "share"}');
SELECT reasons(20001, 20010, 'why', '{"indexes": "insert"}');
SELECT reasons(20011, 20020, 'why', '{"indexes": "merge"}');
SELECT reasons(20011, 20020, 'why', '{"indexes": "merge", "truncate": true}');
SELECT reasons(20021, 20030, 'why', '{"indexes": "merge", "lock": "share"}');
SELECT reasons(20031, 20040, 'why', '{"indexes": "rebuild"}');
SELECT reasons(20031, 20040, 'why', '{"indexes": "rebuild", "lock": "share", "on_error": "table"}');
SELECT faults('why');
CREATE TABLE why_many (a int PRIMARY KEY WITH (fillfactor = 10), b int, r int4range, t text COLLATE "C" UNIQUE WITH (fillfactor = 40));
INSERT INTO why_many SELECT -a, 1, '[1,2)', -a FROM generate_series(1, 100) a;
SELECT reasons(1, 10000, 'why_many', '{"lock": "share"}');
INSERT INTO why_many SELECT a, 1, '[1,2)', a FROM generate_series(100001, 130000) a;
SELECT reasons(20001, 30000, 'why_many', '{"lock": "share"}');
-- A key that cannot be merged; an index that is in use; an invalid index.
DELETE FROM why_many WHERE a > 100000;
INSERT INTO why_many VALUES (0, 0, NULL, repeat('long', 300));
SELECT reasons(30001, 30010, 'why_many', '{"lock": "share", "indexes": "merge"}');
BEGIN;
SET LOCAL enable_seqscan = off;
DECLARE c CURSOR FOR SELECT FROM why_many WHERE a = 1;
FETCH c;
SELECT reasons(30011, 30020, 'why_many', '{"lock": "share", "indexes": "merge"}');
COMMIT;
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'why_many_pkey'::regclass;
SELECT reasons(30021, 30030, 'why_many', '{"lock": "share", "indexes": "merge"}');
UPDATE pg_index SET indisvalid = true WHERE indexrelid = 'why_many_pkey'::regclass;
SELECT faults('why_many');
CREATE TEMPORARY TABLE why_temporary (a int PRIMARY KEY, b int, r int4range, t text);
INSERT INTO why_temporary VALUES (0);
SELECT reasons(1, 10, 'why_temporary', '{"indexes": "merge"}');
DROP TABLE why, why_many, why_temporary;
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA load_indexes CASCADE;
DROP ROLE load_indexes_user;
