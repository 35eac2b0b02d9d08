--
-- INSERT … SELECT from several foreign tables by UNION ALL, as partitions or by inheritance: one load of several
-- files, with the same result as core's INSERT.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema insert_select_append
\i :helpers
CALL make_table('a', 'id int, word text, n int', $$format 'csv'$$, E'1,one,10\n2,,\n3,three,30\n');
CALL make_table('b', 'n bigint, id int, word varchar(10)', $$format 'csv', header 'true'$$, E'n,id,word\n40,4,four\n50,5,\n');
CALL make_table('c', 'id int, word text, n int', $$format 'text'$$, E'6\tsix\t60\n\\N\tnull\t\\N\n');
CALL make_table('e', 'id int, word text, n int', $$format 'csv'$$, '');
CREATE TABLE fresh (id int, word text, n int);
-- The first statement of a connection: the library is not loaded yet.
\c
SET search_path = insert_select_append, public;
\set ECHO all
\pset tuples_only
\pset format unaligned
DO $$
DECLARE line text;
BEGIN
	EXECUTE 'EXPLAIN (COSTS OFF) INSERT INTO fresh SELECT * FROM a UNION ALL SELECT * FROM c' INTO line;
	RAISE NOTICE '%', line;
END $$;
\c
SET search_path = insert_select_append, public;
INSERT INTO fresh SELECT * FROM a UNION ALL SELECT * FROM c;
SELECT * FROM fresh;
\set ECHO none
\getenv data PGB_DATA
SELECT set_config('test.dir', :'data', false) AS data \gset
-- amcheck's messages about a table, its partitions and their B-trees.
CREATE FUNCTION complaints(target text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	heap regclass;
	tree regclass;
BEGIN
	FOR heap IN SELECT relid FROM pg_partition_tree(target) WHERE isleaf UNION SELECT oid FROM pg_class WHERE oid = target::regclass AND relkind = 'r' LOOP
		RETURN QUERY SELECT heap || ': ' || msg FROM public.verify_heapam(heap);
		FOR tree IN SELECT indexrelid FROM pg_index i JOIN pg_class c ON c.oid = indexrelid WHERE indrelid = heap AND relam = 403 LOOP
			PERFORM public.bt_index_parent_check(tree, true, true);
		END LOOP;
	END LOOP;
END $$;
\set helpers :data '/insert_helpers.sql'
\i :helpers
\set ECHO all

-- EXPLAIN lists each file.
CREATE TABLE t (id int, word text, n bigint);
SELECT plan_of('INSERT INTO t SELECT * FROM a UNION ALL SELECT id, word, n FROM b', 'VERBOSE, COSTS OFF');
SELECT plan_of('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM c', 'VERBOSE, COSTS OFF');
SELECT plan_of('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM c', 'COSTS OFF, FORMAT JSON');
SELECT plan_of('INSERT INTO t SELECT * FROM a WHERE n > 10 UNION ALL SELECT * FROM e UNION ALL SELECT * FROM c', 'ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF');
TRUNCATE t;

-- Columns in another order, constants, expressions; conditions inside and outside.
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM c');
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM c UNION ALL SELECT * FROM e UNION ALL SELECT * FROM a');
SELECT either_way('INSERT INTO t SELECT * FROM e UNION ALL SELECT * FROM e');
SELECT either_way('INSERT INTO t (id, word) SELECT id, word FROM a UNION ALL SELECT id, word FROM c');
SELECT either_way('INSERT INTO t (n, id) SELECT n, id FROM c UNION ALL SELECT id, n FROM a');
SELECT either_way('INSERT INTO t SELECT id, ''x'', n FROM a UNION ALL SELECT n, word, 7 FROM c');
SELECT either_way('INSERT INTO t SELECT id, NULL, n FROM a UNION ALL SELECT n, word, NULL FROM c');
SELECT either_way('INSERT INTO t SELECT id + 1, upper(word), n * 2 FROM a UNION ALL SELECT id, word || id, -n FROM c');
SELECT either_way('INSERT INTO t SELECT * FROM a WHERE id > 1 UNION ALL SELECT * FROM c WHERE word LIKE ''s%''');
SELECT either_way('INSERT INTO t SELECT id * 10, word, id FROM (SELECT * FROM a UNION ALL SELECT * FROM c) s WHERE id > 1');
SELECT either_way('INSERT INTO t SELECT x, kind, x FROM (SELECT id + n AS x, ''a'' AS kind FROM a WHERE n > 0 UNION ALL SELECT id - n, ''c'' FROM c) s WHERE x <> 11');
SELECT either_way('INSERT INTO t SELECT x, kind, x FROM (SELECT id AS x, ''a'' AS kind FROM a UNION ALL SELECT id, ''c'' FROM c) s WHERE kind = ''c''');
SELECT either_way('INSERT INTO t SELECT x, kind, x FROM (SELECT id AS x, ''a'' AS kind FROM a UNION ALL SELECT id, ''c'' FROM c) s WHERE kind = ''d''');
SELECT either_way('INSERT INTO t SELECT id, word, n FROM (SELECT * FROM a UNION ALL (SELECT * FROM c WHERE n > 1 UNION ALL SELECT * FROM a)) s WHERE word <> ''''');
SELECT either_way('INSERT INTO t SELECT 1, word, 1 / (n - 10) FROM a WHERE n <> 10 UNION ALL SELECT 2, word, n FROM c');
SELECT either_way('INSERT INTO t SELECT 1, word, 1 / (n - 60) FROM c UNION ALL SELECT 2, word, n FROM a');
SELECT either_way('WITH w AS (SELECT * FROM a UNION ALL SELECT * FROM c) INSERT INTO t SELECT * FROM w');
CREATE VIEW both_files AS SELECT * FROM a UNION ALL SELECT * FROM c;
SELECT either_way('INSERT INTO t SELECT * FROM both_files WHERE id < 6');
CREATE VIEW guarded WITH (security_barrier) AS SELECT * FROM a WHERE n > 10;
SELECT either_way('INSERT INTO t SELECT * FROM guarded WHERE length(word) > 1');
SELECT either_way('INSERT INTO t SELECT * FROM guarded WHERE 100 / (id - 1) > 1 UNION ALL SELECT * FROM c');
ALTER FOREIGN TABLE c ADD gone int;
ALTER FOREIGN TABLE c DROP gone, ADD late int;
CALL write_file('c', E'6\tsix\t60\t1\n\\N\tnull\t\\N\t2\n');
SELECT either_way('INSERT INTO t SELECT id, word, late FROM c UNION ALL SELECT * FROM a');
SELECT either_way('INSERT INTO t SELECT id, word, late FROM c WHERE late > 1 UNION ALL SELECT id + 1, word, n FROM a');
ALTER FOREIGN TABLE c DROP late;
CALL write_file('c', E'6\tsix\t60\n\\N\tnull\t\\N\n');
-- Expressions that cannot be evaluated twice, or that the SELECT computes at a higher level.
CREATE VIEW differ AS SELECT * FROM t WHERE id <> n;
SELECT either_way('INSERT INTO t (id, n) SELECT x * 1000000, x * 1000000 FROM (SELECT random() AS x FROM a UNION ALL SELECT random() FROM c) s', 'differ');
SELECT either_way('INSERT INTO t (id, n) SELECT x * 1000000, x * 1000000 FROM (SELECT random() AS x FROM a WHERE id > 1) s', 'differ');
DROP VIEW differ;
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL SELECT id, word, n FROM b');
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL SELECT id, word::text, n::int FROM b');
SELECT either_way('INSERT INTO t SELECT * FROM a UNION SELECT * FROM a');
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM c ORDER BY 1');
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM c LIMIT 4');
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL (SELECT * FROM c LIMIT 1)');
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL SELECT max(id), word, 1 FROM c GROUP BY word');
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL SELECT 1, ''values'', 1');
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM fresh');
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL SELECT c.* FROM c JOIN fresh USING (id)');
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM c WHERE id IN (SELECT id FROM fresh)');
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM c WHERE now() > ''2000-01-01''');
SELECT either_way('INSERT INTO t SELECT id, s::text, 1 FROM (SELECT * FROM a UNION ALL SELECT * FROM c) s');

-- Partitions: in another order of columns, of several levels, with some left out.
CREATE TABLE p (id int, word text, n int) PARTITION BY LIST (n);
CREATE FOREIGN TABLE p1 (word text, id int, n int) SERVER bulk_files OPTIONS (filename '/nowhere', format 'csv');
CALL write_file('p1', E'one,1,1\nun,11,1\n');
DO $$ BEGIN EXECUTE format('ALTER FOREIGN TABLE p1 OPTIONS (SET filename %L)', data_path('p1')); END $$;
ALTER TABLE p ATTACH PARTITION p1 FOR VALUES IN (1);
CREATE TABLE p23 (n int, id int, word text) PARTITION BY LIST (n);
DO $$ BEGIN
	EXECUTE format('CREATE FOREIGN TABLE p2 PARTITION OF p23 FOR VALUES IN (2) SERVER bulk_files OPTIONS (filename %L, format ''csv'')', data_path('p2'));
	EXECUTE format('CREATE FOREIGN TABLE p3 PARTITION OF p23 FOR VALUES IN (3) SERVER bulk_files OPTIONS (filename %L, format ''csv'')', data_path('p3'));
END $$;
CALL write_file('p2', E'2,2,two\n');
CALL write_file('p3', E'3,3,three\n3,33,\n');
ALTER TABLE p ATTACH PARTITION p23 FOR VALUES IN (2, 3);
SELECT plan_of('INSERT INTO t SELECT * FROM p WHERE n < 3', 'VERBOSE, COSTS OFF');
SELECT either_way('INSERT INTO t SELECT * FROM p');
SELECT either_way('INSERT INTO t (word, id) SELECT word, id FROM p');
SELECT either_way('INSERT INTO t SELECT * FROM p WHERE n = 3');
SELECT either_way('INSERT INTO t SELECT * FROM p WHERE n IN (1, 2) AND id < 10');
SELECT either_way('INSERT INTO t SELECT * FROM p WHERE n = 4');
SELECT either_way('INSERT INTO t SELECT id + n, word || n, n FROM p WHERE length(word) > 2');
SELECT either_way('INSERT INTO t SELECT * FROM p UNION ALL SELECT * FROM a UNION ALL SELECT id, word, n FROM p23');
SELECT either_way('INSERT INTO t SELECT id, p::text, n FROM p');
SELECT either_way('INSERT INTO t SELECT id, tableoid::regclass::text, n FROM p');
CREATE TABLE p4 PARTITION OF p FOR VALUES IN (4);
INSERT INTO p4 VALUES (4, 'four', 4);
SELECT either_way('INSERT INTO t SELECT * FROM p');
SELECT either_way('INSERT INTO t SELECT * FROM p WHERE n < 4');
DROP TABLE p4;
-- Some files are pruned only at execution; errors in the pruned files have no effect.
CALL write_file('p2', E'2,2,two\n3,22,astray\n');
CREATE FUNCTION three() RETURNS int LANGUAGE sql STABLE AS 'SELECT length(current_setting(''pg_bulk.direct_insert'')) * 0 + 3';
SELECT either_way('INSERT INTO t SELECT * FROM p WHERE n = three()');
SELECT either_way('INSERT INTO t SELECT * FROM p WHERE n + 0 = three()');
SELECT either_way('INSERT INTO t SELECT * FROM p WHERE n = 3');
CALL write_file('p2', E'2,2,two\n');
CREATE FOREIGN TABLE child () INHERITS (a) SERVER bulk_files OPTIONS (filename '/nowhere', format 'csv');
DO $$ BEGIN EXECUTE format('ALTER FOREIGN TABLE child OPTIONS (SET filename %L)', data_path('a')); END $$;
SELECT either_way('INSERT INTO t SELECT * FROM a');
SELECT either_way('INSERT INTO t SELECT * FROM ONLY a');
DROP FOREIGN TABLE child;

-- Targets: keys, constraints, triggers and ids see one INSERT.
CREATE TABLE keyed (id int PRIMARY KEY, word text, n int REFERENCES keyed);
CREATE INDEX ON keyed (word, n);
CREATE INDEX ON keyed (lower(word)) WHERE n IS NULL;
SELECT either_way('INSERT INTO keyed SELECT id, word, 6 FROM a UNION ALL SELECT id, word, 1 FROM c WHERE id = 6', 'keyed');
SELECT either_way('INSERT INTO keyed SELECT id, word, 7 FROM a UNION ALL SELECT id, word, 1 FROM c WHERE id = 6', 'keyed');
SELECT either_way('INSERT INTO keyed SELECT id, word, NULL::int FROM a UNION ALL SELECT id - 3, word, NULL FROM c WHERE id = 6', 'keyed');
SELECT either_way('INSERT INTO keyed SELECT id, word, NULL::int FROM a UNION ALL SELECT id, word, NULL FROM c', 'keyed');
INSERT INTO keyed VALUES (100, 'old', NULL);
SELECT either_way('INSERT INTO keyed SELECT id, word, 100 FROM a UNION ALL SELECT 100 + n, word, 3 FROM c WHERE id = 6', 'keyed');
SELECT either_way('INSERT INTO keyed SELECT id, word, 100 FROM a UNION ALL SELECT 40 + n, word, 3 FROM c WHERE id = 6', 'keyed');
CREATE TABLE checked (id int, word text CHECK (length(word) < 5), n int, twice int GENERATED ALWAYS AS (n * 2) STORED, more text DEFAULT 'more');
SELECT either_way('INSERT INTO checked SELECT * FROM c UNION ALL SELECT * FROM a WHERE id < 3', 'checked');
SELECT either_way('INSERT INTO checked SELECT * FROM c UNION ALL SELECT * FROM a', 'checked');
SELECT either_way('INSERT INTO checked (id, more) SELECT id, ''more'' FROM c UNION ALL SELECT id, word FROM a', 'checked');
CREATE TABLE series (i serial, id int, word text);
SELECT either_way('INSERT INTO series (id, word) SELECT id, word FROM a UNION ALL SELECT id, word FROM c UNION ALL SELECT id, word FROM a WHERE n > 10', 'series');
CREATE TABLE parted (id int, word text, n int) PARTITION BY RANGE (id);
CREATE TABLE parted1 PARTITION OF parted FOR VALUES FROM (0) TO (3);
CREATE TABLE parted2 (n int, word text, id int);
ALTER TABLE parted ATTACH PARTITION parted2 FOR VALUES FROM (3) TO (100);
CREATE UNIQUE INDEX ON parted (id);
SELECT either_way('INSERT INTO parted SELECT * FROM a UNION ALL SELECT * FROM c WHERE id = 6', 'parted');
SELECT either_way('INSERT INTO parted SELECT * FROM a UNION ALL SELECT * FROM c', 'parted');
SELECT either_way('INSERT INTO parted SELECT * FROM p', 'parted');
CREATE TABLE log (line text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO log SELECT concat_ws(' ', TG_NAME, TG_WHEN, TG_LEVEL, NEW.id, (SELECT count(*) FROM t));
	RETURN NEW;
END $$;
CREATE TRIGGER a AFTER INSERT ON t EXECUTE FUNCTION note();
CREATE TRIGGER r AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION note();
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM e UNION ALL SELECT * FROM c', 'log');
CREATE TRIGGER b BEFORE INSERT ON t EXECUTE FUNCTION note();
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM c', 'log');
DROP TRIGGER a ON t;
DROP TRIGGER b ON t;
DROP TRIGGER r ON t;
-- Out-of-line values; few rows, appended behind existing rows.
CREATE TABLE wide (id int, word text, n bigint);
ALTER TABLE wide ALTER word SET STORAGE EXTERNAL;
INSERT INTO wide VALUES (0, 'old', 0);
DO $$ BEGIN CALL write_file('wide', E'1,' || repeat('w', 9000) || E',1\n2,few,2\n'); END $$;
CALL make_table('w', 'id int, word text, n int', $$format 'csv'$$, E'');
DO $$ BEGIN EXECUTE format('ALTER FOREIGN TABLE w OPTIONS (SET filename %L)', data_path('wide')); END $$;
CREATE VIEW wide_rows AS SELECT id, md5(word), n FROM wide;
SELECT either_way('INSERT INTO wide SELECT id, left(word, 5000), n FROM w UNION ALL SELECT * FROM a UNION ALL SELECT * FROM w', 'wide_rows');
INSERT INTO wide SELECT id, left(word, 5000), n FROM w UNION ALL SELECT * FROM a UNION ALL SELECT * FROM w;
SELECT complaints('wide');

-- Errors name the file, and no row of the other files stays.
CALL make_table('bad', 'id int, word text, n int', $$format 'csv'$$, E'7,seven,70\n8,eight,x\n');
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM bad');
SELECT error_of('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM bad');
SELECT error_of('INSERT INTO t SELECT * FROM bad UNION ALL SELECT * FROM a');
SELECT either_way('INSERT INTO t (id) SELECT id FROM a UNION ALL SELECT id FROM bad');
SELECT error_of('INSERT INTO checked SELECT * FROM c UNION ALL SELECT * FROM a');
CALL write_file('bad', E'7,seven,70\n8,eight\n');
SELECT error_of('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM bad');
ALTER FOREIGN TABLE bad OPTIONS (ADD header 'match');
SELECT error_of('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM bad');
ALTER FOREIGN TABLE bad OPTIONS (DROP header, ADD on_error 'ignore', ADD reject_limit '1');
CALL write_file('bad', E'x,seven,70\n8,eight,x\n9,nine,90\n');
SELECT error_of('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM bad');
ALTER FOREIGN TABLE bad OPTIONS (SET reject_limit '2');
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM bad UNION ALL SELECT * FROM c UNION ALL SELECT * FROM bad');
SELECT either_way('INSERT INTO t (id) SELECT id FROM a UNION ALL SELECT id FROM bad');
INSERT INTO t SELECT * FROM bad UNION ALL SELECT * FROM bad;
TRUNCATE t;
ALTER FOREIGN TABLE bad OPTIONS (SET filename '/nowhere');
SELECT either_way('INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM bad');
ALTER FOREIGN TABLE e OPTIONS (ADD skip '1', ADD limit '1');
CALL write_file('e', E'1,one,1\n2,two,2\n3,three,3\n');
SELECT either_way('INSERT INTO t SELECT * FROM e UNION ALL SELECT * FROM a UNION ALL SELECT * FROM e');
SELECT either_way('INSERT INTO t SELECT * FROM e WHERE id > 0 UNION ALL SELECT * FROM a');
SELECT count(*) FROM t;

-- Errors about keys name the later of two rows, in any file.
CREATE FUNCTION key_error(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY SELECT l FROM error_of(statement) l WHERE l !~ '^HINT';
END $$;
CREATE TABLE ids (id int PRIMARY KEY, word text, n int);
SELECT key_error('INSERT INTO ids SELECT * FROM a UNION ALL SELECT * FROM a');
SELECT key_error('INSERT INTO ids SELECT * FROM a UNION ALL SELECT * FROM c WHERE id = 6 UNION ALL SELECT * FROM a WHERE id = 2');
SELECT key_error('INSERT INTO ids SELECT * FROM a UNION ALL SELECT id / 4, word, 1 FROM c WHERE id = 6 UNION ALL SELECT id + 10, word, n FROM a');
SELECT key_error('INSERT INTO ids SELECT * FROM a UNION ALL SELECT 5, word::text, 1 FROM b UNION ALL SELECT id + 10, word, n FROM a');
INSERT INTO ids VALUES (2);
SELECT key_error('INSERT INTO ids SELECT * FROM a UNION ALL SELECT * FROM c WHERE id = 6');
TRUNCATE ids;
-- Programs, which cannot be read again.
CREATE FOREIGN TABLE printed (id int, word text, n int) SERVER bulk_files OPTIONS (program 'printf "id,word,n\n21,x,1\n22,\"a\nb\",1\n3,y,1\n"', format 'csv', header 'true');
SELECT key_error('INSERT INTO ids SELECT * FROM printed UNION ALL SELECT id, word, n FROM c WHERE id = 6 UNION ALL SELECT id * 11 + 11, word, n FROM a WHERE id = 1');
SELECT key_error('INSERT INTO ids SELECT * FROM a UNION ALL SELECT * FROM printed UNION ALL SELECT id, word, n FROM c WHERE id = 6');
CREATE UNIQUE INDEX ON ids (word);
SELECT key_error('INSERT INTO ids SELECT * FROM c WHERE id = 6 UNION ALL SELECT id, ''six'', n FROM a WHERE id = 3 UNION ALL SELECT id + 10, word, n FROM a');

-- Privileges are those on the parent; for a view, those of its owner.
CREATE ROLE insert_select_append_user;
GRANT USAGE ON SCHEMA insert_select_append TO insert_select_append_user;
GRANT INSERT, SELECT ON t TO insert_select_append_user;
GRANT SELECT ON p, both_files, c TO insert_select_append_user;
GRANT SELECT (id) ON a TO insert_select_append_user;
SET ROLE insert_select_append_user;
INSERT INTO t SELECT * FROM p;
INSERT INTO t SELECT * FROM both_files;
INSERT INTO t (id) SELECT id FROM a UNION ALL SELECT id FROM c;
SELECT count(*) FROM t;
SELECT error_of('INSERT INTO t SELECT * FROM c UNION ALL SELECT * FROM a');
SELECT error_of('INSERT INTO t SELECT id, word, n FROM p1 UNION ALL SELECT * FROM c');
RESET ROLE;
TRUNCATE t;

-- Row count, savepoints, an isolation level with one snapshot.
DO $$
DECLARE n int;
BEGIN
	INSERT INTO t SELECT * FROM a UNION ALL SELECT * FROM c;
	GET DIAGNOSTICS n = ROW_COUNT;
	RAISE NOTICE '% %', n, FOUND;
END $$;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SAVEPOINT s;
INSERT INTO t SELECT * FROM p;
ROLLBACK TO s;
INSERT INTO t SELECT * FROM p;
COMMIT;
SELECT count(*) FROM t;
SELECT complaints('t');

-- Kept plans: the present files, partitions, triggers and setting count when a plan runs.
TRUNCATE t;
PREPARE load AS INSERT INTO t SELECT * FROM a UNION ALL SELECT id, word, n FROM p;
EXECUTE load;
EXECUTE load;
EXECUTE load;
EXECUTE load;
EXECUTE load;
EXECUTE load;
EXECUTE load;
SELECT count(*) FROM t;
SET plan_cache_mode = force_generic_plan;
\set analyze 'ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF'
SELECT plan_of('EXECUTE load', :'analyze');
SET pg_bulk.direct_insert = off;
SELECT plan_of('EXECUTE load', :'analyze');
RESET pg_bulk.direct_insert;
TRUNCATE t;
DO $$ BEGIN
	CALL write_file('p4', E'4,four,4\n');
	EXECUTE format('CREATE FOREIGN TABLE p4 PARTITION OF p FOR VALUES IN (4) SERVER bulk_files OPTIONS (filename %L, format ''csv'')', data_path('p4'));
END $$;
EXECUTE load;
SELECT count(*), max(n) FROM t WHERE n < 5;
ALTER TABLE p DETACH PARTITION p23;
TRUNCATE t;
EXECUTE load;
SELECT count(*), max(n) FROM t WHERE n < 5;
ALTER FOREIGN TABLE p4 OPTIONS (ADD header 'true');
TRUNCATE t;
EXECUTE load;
SELECT count(*), max(n) FROM t WHERE n < 5;
ALTER TABLE t DROP n, ADD n int;
TRUNCATE t;
EXECUTE load;
SELECT * FROM t ORDER BY id, word;
CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION note();
SELECT plan_of('EXECUTE load', 'VERBOSE, COSTS OFF');
DROP TRIGGER x ON t;
PREPARE filtered (int) AS INSERT INTO t SELECT * FROM a WHERE id > $1 UNION ALL SELECT * FROM c;
SELECT plan_of('EXECUTE filtered(1)', 'COSTS OFF, VERBOSE');
RESET plan_cache_mode;
SELECT plan_of('EXECUTE filtered(1)', 'COSTS OFF, VERBOSE');

-- Several processes for some of the files. A file that gets workers by its size is too large for a test, so the test sets their number.
DO $$
DECLARE
	line text := E'%s,%s,%s,%s\n';
	made text;
BEGIN
	CALL make_table('m1', 'id int, word text, day date, n int', $f$format 'csv'$f$, '');
	CALL make_table('m2', 'n int, id int, word text, day date', $f$format 'csv', header 'true'$f$, '');
	CALL make_table('m3', 'id int, word text, day date, n int', $f$format 'csv'$f$, E'70001,tiny,2001-01-01,7\n');
	CALL make_table('m4', 'id int, word text, day date, n int', $f$format 'csv'$f$, '');
	made := (SELECT string_agg(format(line, i, repeat('w', i % 30), date '2000-01-01' + i % 100, i % 7), '' ORDER BY i) FROM generate_series(1, 12000, 3) i);
	CALL write_file('m1', made);
	made := (SELECT string_agg(format(line, i % 7, i, repeat('x', i % 50), date '2000-01-01' + i % 100), '' ORDER BY i DESC) FROM generate_series(20001, 30000, 3) i);
	CALL write_file('m2', E'n,id,word,day\n' || made);
	made := (SELECT string_agg(format(line, i, CASE i % 1000 WHEN 0 THEN repeat(md5(i::text), 200) ELSE i::text END, date '2000-01-01' + i % 100, i % 7), '' ORDER BY i % 10, i) FROM generate_series(40002, 48000, 2) i);
	CALL write_file('m4', made);
END $$;
CREATE VIEW all_files AS SELECT id, word, day, n FROM m1 UNION ALL SELECT id, word, day, n FROM m2 UNION ALL SELECT id, word, day, n FROM m3 UNION ALL SELECT id, word, day, n FROM m4;
CREATE TABLE l (id int PRIMARY KEY, word text COLLATE "C", day date, n bigint, s serial);
CREATE UNIQUE INDEX ON l (day, id);
CREATE INDEX ON l (word, n);
CREATE INDEX ON l (md5(word));
CREATE INDEX ON l (n) WHERE n > 3;
CREATE INDEX ON l ((word COLLATE "POSIX")) INCLUDE (n);
CREATE INDEX ON l USING hash (n);
-- The number of ids and their order are the same, but there are gaps.
CREATE VIEW result AS SELECT count(*), sum(id) ids, sum(length(word)) words, max(day), sum(n) ns, count(DISTINCT s) s, md5(string_agg(md5((id, word, day, n)::text), '' ORDER BY id)) FROM l;
CREATE FUNCTION result_of(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY SELECT either_way(statement, 'result', '{0,1,2}');
	RETURN QUERY SELECT complaints('l');
END $$;
SET pg_bulk.chunk_size = 4096;
SELECT result_of('INSERT INTO l (id, word, day, n) SELECT * FROM all_files');
SELECT result_of('INSERT INTO l (id, word, day, n) SELECT * FROM all_files WHERE n = 3');
SELECT result_of('INSERT INTO l (id, word, day, n) SELECT id * 2, word || ''x'', day + n, n FROM all_files');
SELECT result_of('INSERT INTO l (id, word, day, n) SELECT * FROM m3 UNION ALL SELECT * FROM m1 UNION ALL SELECT id, word, day, n FROM m2');
SELECT result_of('INSERT INTO l (id, word, day, n) SELECT id + 1, word, day, n FROM m3 UNION ALL SELECT * FROM m3 UNION ALL SELECT * FROM m4');
SELECT result_of('INSERT INTO l (id, word) SELECT id % 65002, word FROM all_files');
SELECT result_of('INSERT INTO l (id, n) SELECT id, 1 / (id - 45000) FROM all_files');
SELECT result_of('INSERT INTO l (id, n) SELECT id, n FROM m1 UNION ALL SELECT id - 36000, n FROM m4 WHERE id > 47999 OR id = 40006');
CREATE FUNCTION key_errors(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	FOR workers IN 0 .. 2 LOOP
		PERFORM set_config('pg_bulk.workers', workers::text, true);
		RETURN QUERY SELECT key_error(statement);
	END LOOP;
END $$;
SELECT DISTINCT key_errors('INSERT INTO l (id, word, day, n) SELECT * FROM m4 UNION ALL SELECT id + 60000, word, day, n FROM m1 UNION ALL SELECT * FROM m3 UNION ALL
	SELECT id + 30000, word, day, n FROM m1 WHERE id = 10996 OR id < 1000 UNION ALL SELECT id + 80000, word, day, n FROM m1');
-- Behind existing rows, and into a new table.
INSERT INTO l (id, word, day, n, s) SELECT -i, md5(i::text), '2001-01-01', i, -i FROM generate_series(1, 1000) i;
SELECT result_of('INSERT INTO l (id, word, day, n) SELECT * FROM all_files');
SET pg_bulk.workers = 2;
TRUNCATE l;
BEGIN;
TRUNCATE l;
INSERT INTO l (id, word, day, n) SELECT * FROM all_files;
SELECT * FROM result;
SELECT complaints('l');
INSERT INTO l (id, word, day, n) SELECT id + 100000, word, day, n FROM all_files;
SELECT complaints('l');
COMMIT;
SELECT count(*), count(DISTINCT id), count(DISTINCT s) FROM l;
SELECT bool_and(s > before) FROM (SELECT s, lag(s) OVER (ORDER BY id) AS before FROM l WHERE id BETWEEN 1 AND 12000) ids;
SELECT max(s) FILTER (WHERE id <= 12000) < min(s) FILTER (WHERE id > 12000) FROM l WHERE id < 100000;
TRUNCATE l;
SELECT regexp_replace(plan_of('INSERT INTO l (id, word, day, n) SELECT * FROM all_files', 'ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF'), '(Pages Appended|Workers Launched): [1-9]\d*', '\1');
SELECT complaints('l');
-- Into partitions; each file has rows for each of them.
CREATE TABLE parts (id int, word text, day date, n int, PRIMARY KEY (id, n)) PARTITION BY HASH (n);
CREATE TABLE parts0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parts1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE INDEX ON parts (word);
SELECT either_way('INSERT INTO parts SELECT * FROM all_files', 'parts');
INSERT INTO parts SELECT * FROM all_files;
SELECT complaints('parts');
SELECT count(*) FROM (TABLE parts EXCEPT ALL TABLE all_files) x;
SELECT count(*) FROM (TABLE all_files EXCEPT ALL TABLE parts) x;
-- An error in the last file, after the others have been loaded.
DO $$ BEGIN EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'cat >/dev/null; echo 1,2,3 >>' || data_path('m4')); END $$;
SELECT error_of('INSERT INTO parts SELECT * FROM all_files WHERE id > 45000');
SELECT count(*) FROM parts;

-- Rejected rows, and more of them than reject_limit allows.
CALL make_table('m5', 'id int, word text, day date, n int', $f$format 'csv', on_error 'ignore', reject_limit '4'$f$, '');
DO $$
DECLARE
	lines text := (SELECT string_agg(format(E'%s,w,2001-01-01,%s\n', i, CASE WHEN i % 1000 = 0 THEN 'x' ELSE '1' END), '' ORDER BY i) FROM generate_series(50001, 54999) i);
BEGIN
	CALL write_file('m5', lines);
END $$;
TRUNCATE l;
SELECT result_of('INSERT INTO l (id, word, day, n) SELECT * FROM m1 UNION ALL SELECT * FROM m5 UNION ALL SELECT * FROM m3');
ALTER FOREIGN TABLE m5 OPTIONS (SET reject_limit '3');
SELECT result_of('INSERT INTO l (id, word, day, n) SELECT * FROM m1 UNION ALL SELECT * FROM m5 UNION ALL SELECT * FROM m3');
SET pg_bulk.workers = 2;
SELECT error_of('INSERT INTO l (id, word, day, n) SELECT * FROM m1 UNION ALL SELECT * FROM m5 UNION ALL SELECT * FROM m3');
SELECT count(*) FROM l;

-- An accelerated INSERT adds no row to the history.
SELECT count(*) FROM bulk_history WHERE target LIKE 'insert_select_append.%';
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA insert_select_append CASCADE;
DROP ROLE insert_select_append_user;
