--
-- INSERT … SELECT from a foreign table as a load: which INSERTs pg_bulk accelerates, and that each result equals the server's own.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema insert_select
\i :helpers
CALL write_file('three', E'1,one,2001-01-01,10\n2,,2001-02-02,\n3,three,2001-03-03,30\n');
\set first 'CREATE FOREIGN TABLE first (id int, word text, day date, n int) SERVER bulk_files OPTIONS (filename ' '''' :data '/three'', format ''csv'')'
:first;
CREATE TABLE fresh (id int, word text, day date, n int);
-- The first statement of a connection: the library is not loaded yet.
\c
SET search_path = insert_select, public;
\set ECHO all
\pset tuples_only
\pset format unaligned
SELECT count(*) FROM pg_settings WHERE name LIKE 'pg_bulk.%';
PREPARE load AS INSERT INTO fresh SELECT * FROM first;
DO $$
DECLARE line text;
BEGIN
	EXECUTE 'EXPLAIN (COSTS OFF) EXECUTE load' INTO line;
	RAISE NOTICE '%', line;
END $$;
\c
SET search_path = insert_select, public;
INSERT INTO fresh SELECT * FROM first;
SELECT * FROM fresh;
\set ECHO none
\getenv data PGB_DATA
SELECT set_config('test.dir', :'data', false) AS data \gset
\set helpers :data '/insert_helpers.sql'
\i :helpers
\set ECHO all

-- Columns: in any order, only some of them, defaults, ids, generated ones.
CREATE TABLE t (id int, word text, day date, n int);
SELECT either_way('INSERT INTO t SELECT * FROM ft');
SELECT either_way('INSERT INTO t (n, day, id) SELECT n, day, id FROM ft');
SELECT either_way('INSERT INTO t (id, n) SELECT n, id FROM ft');
SELECT either_way('INSERT INTO t SELECT ft.* FROM ft');
SELECT either_way('WITH c AS (SELECT * FROM ft) INSERT INTO t SELECT * FROM c');
SELECT either_way('WITH c AS MATERIALIZED (SELECT * FROM ft) INSERT INTO t SELECT * FROM c');
SELECT either_way('INSERT INTO t TABLE ft');
SELECT either_way('INSERT INTO t SELECT id, word FROM (SELECT * FROM ft) AS f');
CREATE VIEW over AS SELECT word, id FROM ft;
SELECT either_way('INSERT INTO t (word, id) SELECT * FROM over');
CREATE TABLE made (i int GENERATED ALWAYS AS IDENTITY, s serial, id int, twice int GENERATED ALWAYS AS (id * 2) STORED,
	word varchar DEFAULT 'none', five int DEFAULT 2 + 3, who text DEFAULT current_user, b int DEFAULT NULL);
SELECT either_way('INSERT INTO made (id) SELECT id FROM ft', 'made');
SELECT either_way('INSERT INTO made (i, id) OVERRIDING SYSTEM VALUE SELECT n, id FROM ft', 'made');
SELECT either_way('INSERT INTO made (s, id) SELECT n, id FROM ft', 'made');
SELECT either_way('INSERT INTO made (id, five) SELECT id, NULL FROM ft', 'made');
SELECT either_way('INSERT INTO made (id, five) SELECT id, 5 FROM ft', 'made');
SELECT either_way('INSERT INTO made (id, b) SELECT id, NULL FROM ft', 'made');
CREATE TABLE twin (id serial, word text, same int DEFAULT currval('insert_select.twin_id_seq'));
SELECT either_way('INSERT INTO twin (word) SELECT word FROM ft', 'twin');
SELECT either_way('INSERT INTO twin (word, same) SELECT word, n FROM ft', 'twin');
ALTER TABLE made ALTER id SET NOT NULL, DROP b;
SELECT either_way('INSERT INTO made (id) SELECT n FROM ft', 'made');
CREATE TABLE dropped (a int, id int, b int, word text);
ALTER TABLE dropped DROP a, DROP b;
SELECT either_way('INSERT INTO dropped SELECT id, word FROM ft', 'dropped');
ALTER FOREIGN TABLE ft DROP day;
CALL write_file('ft', E'1,one,10\n2,,\n3,three,30\n');
SELECT either_way('INSERT INTO dropped SELECT id, word FROM ft', 'dropped');
SELECT either_way('INSERT INTO dropped (word, id) SELECT word, n FROM ft', 'dropped');
CALL make_table('ft', 'id int, word text, day date, n int', $$format 'csv'$$,
	E'1,one,2001-01-01,10\n2,,2001-02-02,\n3,three,2001-03-03,30\n');

-- Types: values are converted to the foreign table's column type, then to the target's type.
CREATE DOMAIN short AS text CHECK (length(value) < 4);
CREATE TABLE typed (id int, word varchar(3), d short);
CALL make_table('as_is', 'id int, word varchar(3), d short', $$format 'csv'$$, E'1,one,\n2,two,xxx\n');
SELECT either_way('INSERT INTO typed SELECT * FROM as_is', 'typed');
SELECT either_way('INSERT INTO typed (word) SELECT word FROM as_is', 'typed');
CALL make_table('longer', 'id int, word varchar(5), d text', $$format 'csv'$$, E'1,one,one\n2,three,three\n');
SELECT either_way('INSERT INTO typed (id, word) SELECT id, word FROM longer', 'typed');
SELECT either_way('INSERT INTO typed (id, d) SELECT id, d FROM longer', 'typed');
CREATE TABLE loose (id int, word varchar);
SELECT either_way('INSERT INTO loose SELECT id, word FROM longer', 'loose');
SELECT either_way('INSERT INTO loose SELECT id, word FROM as_is', 'loose');
CALL write_file('as_is', E'1,four,\n');
SELECT either_way('INSERT INTO loose SELECT id, word FROM as_is', 'loose');
SELECT either_way('INSERT INTO loose SELECT id FROM as_is', 'loose');
CALL write_file('as_is', E'1,one,four\n');
SELECT either_way('INSERT INTO typed SELECT * FROM as_is', 'typed');
CREATE TABLE big (id bigint, word text);
SELECT either_way('INSERT INTO big SELECT id, word FROM ft', 'big');

-- Errors in the file name the foreign table; errors of the target table do not show the line.
CALL write_file('ft', E'1,one,2001-01-01,10\nx,,2001-02-02,\n');
SELECT either_way('INSERT INTO t SELECT * FROM ft');
SELECT either_way('INSERT INTO t (word) SELECT word FROM ft');
SELECT error_of('INSERT INTO t SELECT * FROM ft');
CALL write_file('ft', E'1,one,2001-01-01,10\n2,,2001-02-02\n');
SELECT either_way('INSERT INTO t SELECT * FROM ft');
SELECT error_of('INSERT INTO t SELECT * FROM ft');
CALL write_file('ft', E'1,one,2001-01-01,10\n2,two,2001-02-02,20\n2,three,2001-03-03,30\n');
ALTER TABLE t ADD CHECK (n < 30);
SELECT either_way('INSERT INTO t SELECT * FROM ft');
SELECT error_of('INSERT INTO t SELECT * FROM ft');
ALTER TABLE t DROP CONSTRAINT t_n_check, ADD PRIMARY KEY (id);
SELECT either_way('INSERT INTO t SELECT * FROM ft');
SELECT error_of('INSERT INTO t SELECT * FROM ft');
ALTER TABLE t DROP CONSTRAINT t_pkey, ALTER id DROP NOT NULL;
CREATE TABLE parent (id int PRIMARY KEY);
INSERT INTO parent VALUES (1), (3);
ALTER TABLE t ADD CONSTRAINT known FOREIGN KEY (id) REFERENCES parent DEFERRABLE;
SELECT either_way('INSERT INTO t SELECT * FROM ft');
ALTER TABLE t ALTER CONSTRAINT known DEFERRABLE INITIALLY DEFERRED;
SELECT either_way('INSERT INTO t SELECT * FROM ft');
INSERT INTO parent VALUES (2);
SELECT either_way('INSERT INTO t SELECT * FROM ft');
ALTER TABLE t DROP CONSTRAINT known;

-- Statements that the server itself runs.
SELECT either_way('INSERT INTO t SELECT * FROM ft ON CONFLICT DO NOTHING');
SELECT either_way('INSERT INTO t SELECT * FROM ft RETURNING id');
SELECT either_way('INSERT INTO t SELECT * FROM ft WHERE false');
SELECT either_way('INSERT INTO t SELECT * FROM ft ORDER BY id DESC LIMIT 1');
SELECT either_way('INSERT INTO t SELECT DISTINCT * FROM ft');
SELECT either_way('INSERT INTO t SELECT id, max(word) FROM ft GROUP BY id');
SELECT either_way('INSERT INTO t SELECT * FROM ft UNION ALL SELECT * FROM ft');
SELECT either_way('INSERT INTO t SELECT ft.* FROM ft, parent');
SELECT either_way('INSERT INTO t SELECT id, generate_series(1, 2)::text FROM ft');
SELECT either_way('INSERT INTO t SELECT id, (SELECT max(id) FROM t)::text FROM ft');
SELECT either_way('INSERT INTO t (n, id) SELECT id, id FROM ft');
SELECT either_way('INSERT INTO t (word) SELECT (ft)::text FROM ft');
SELECT either_way('INSERT INTO t (n) SELECT tableoid::int - tableoid::int FROM ft');
SELECT either_way('INSERT INTO t DEFAULT VALUES');
SELECT either_way('INSERT INTO t SELECT FROM ft');
SELECT either_way('WITH i AS (INSERT INTO t SELECT * FROM ft RETURNING id) INSERT INTO t SELECT id FROM i');
SELECT either_way('WITH i AS (INSERT INTO t SELECT * FROM ft) SELECT 1');
CREATE TEMP TABLE gone (LIKE t);
SELECT either_way('INSERT INTO gone SELECT * FROM ft', 'gone');
CREATE FOREIGN TABLE child () INHERITS (fresh) SERVER bulk_files OPTIONS (filename '/nowhere');
SELECT either_way('INSERT INTO t SELECT * FROM fresh');
SELECT error_of('INSERT INTO child SELECT * FROM ft');
DROP FOREIGN TABLE child;

-- Conditions and expressions.
SELECT plan_of('INSERT INTO t (id, word) SELECT id + 1, upper(word) FROM ft WHERE n > 10 AND id < 3', 'COSTS OFF, VERBOSE');
SELECT plan_of('INSERT INTO t (id, word) SELECT id + 1, upper(word) FROM ft WHERE n > 10', 'ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF');
TRUNCATE t;
SELECT either_way('INSERT INTO t (id, word) SELECT id + 1, upper(word) FROM ft WHERE n > 10 AND id < 3');
SELECT either_way('INSERT INTO t SELECT * FROM ft WHERE word LIKE ''t%'' OR day IS NULL');
SELECT either_way('INSERT INTO t SELECT id, word, day, n FROM ft WHERE id IN (1, 2) ORDER BY id');
SELECT either_way('INSERT INTO t (n, id, word) SELECT id, id, CASE WHEN n > 10 THEN word ELSE ''few'' END FROM ft WHERE n IS NOT NULL');
SELECT either_way('INSERT INTO t (n, day) SELECT coalesce(n, 0) + 1, day - 1 FROM ft');
SELECT either_way('INSERT INTO t SELECT 7, ''x'' FROM ft');
SELECT either_way('INSERT INTO t (id) SELECT n / (id - 2) FROM ft');
SELECT error_of('INSERT INTO t (id) SELECT n / (id - 2) FROM ft');
SELECT error_of('INSERT INTO t (id) SELECT id FROM ft WHERE n / (id - 2) > 0');
SELECT either_way('INSERT INTO t (word) SELECT random()::text FROM ft WHERE random() < -1');
SELECT either_way('INSERT INTO t (id, word) SELECT row_number() OVER (), word FROM ft');
SELECT either_way('INSERT INTO t (id, n) SELECT id, nextval(''made_s_seq'') FROM ft WHERE id > 1');
SELECT either_way('INSERT INTO made (id) SELECT id FROM ft WHERE id > 1', 'made');
SELECT either_way('INSERT INTO t SELECT * FROM ft WHERE current_date < ''2000-01-01''');
SELECT either_way('INSERT INTO t SELECT * FROM ft WHERE EXISTS (SELECT FROM parent WHERE parent.id = ft.id)');
SELECT either_way('INSERT INTO t SELECT * FROM ft WHERE n > (SELECT min(id) FROM parent)');
SELECT either_way('INSERT INTO typed SELECT id, word, NULL FROM ft', 'typed');
SELECT either_way('INSERT INTO big SELECT id, word FROM ft WHERE id > 1', 'big');
CREATE TABLE numbers (a numeric(4, 1), c char(5));
SELECT either_way('INSERT INTO numbers SELECT n, word FROM ft WHERE n < 30', 'numbers');
SELECT either_way('INSERT INTO numbers SELECT n * 100, word FROM ft', 'numbers');
-- A bad value in a column without a condition is an error only in a row that passes. In a column with a condition it always is.
CALL make_table('bad', 'id int, word text, day date, n int', $$format 'csv'$$, E'1,one,2001-01-01,10\n2,,x,\n3,three,2001-03-03,30\n');
SELECT either_way('INSERT INTO t SELECT * FROM bad WHERE id <> 2');
SELECT either_way('INSERT INTO t SELECT * FROM bad WHERE id > 1');
SELECT error_of('INSERT INTO t SELECT * FROM bad WHERE id > 1');
SELECT either_way('INSERT INTO t (id) SELECT id + 1 FROM bad');
CALL write_file('bad', E'1,one,2001-01-01,10\n2,x\n3,three,2001-03-03,30\n');
SELECT either_way('INSERT INTO t SELECT * FROM bad WHERE id <> 2');
CALL make_table('bad', 'id int, word text, n int', $$format 'csv', on_error 'ignore'$$, E'1,one,x\n2,two,2\nx,three,3\n');
SELECT either_way('INSERT INTO t (id) SELECT id FROM bad WHERE id < 3');
SELECT either_way('INSERT INTO t (id, word) SELECT n, word FROM bad WHERE id < 3');
ALTER FOREIGN TABLE bad OPTIONS (DROP on_error, ADD skip '1', ADD limit '1');
SELECT either_way('INSERT INTO t (id, word) SELECT n, word FROM bad WHERE id < 3');
SELECT either_way('INSERT INTO t (id, word) SELECT n + 1, word FROM bad');

-- Views: the row is the base table's, the privileges are those of the view's owner, and core checks a check option.
CREATE VIEW through AS SELECT word, id FROM t;
SELECT either_way('INSERT INTO through SELECT word, id FROM ft');
CREATE VIEW checked AS SELECT * FROM t WHERE id < 3 WITH CHECK OPTION;
SELECT either_way('INSERT INTO checked SELECT * FROM ft');
DROP VIEW through, checked;

-- Functions and domains of the session, what the server does with values, and at which moment.
CREATE TABLE arrays (a int[], CHECK (cardinality(array_append(a, 0)) < 100), n int GENERATED ALWAYS AS (cardinality(array_append(a, 9))) STORED);
SELECT either_way('INSERT INTO arrays SELECT array_append(ARRAY[id], 1) FROM ft', 'arrays');
CREATE TABLE series (id serial, n int);
SELECT line FROM plan_of('INSERT INTO series (n) SELECT id FROM ft WHERE currval(''series_id_seq'') < 3', 'VERBOSE, COSTS OFF') line WHERE line ~ 'Direct';
CREATE TABLE checked (id serial, n int, CHECK (currval('checked_id_seq') >= id));
SELECT either_way('INSERT INTO checked (n) SELECT id FROM ft', 'checked');
SELECT either_way('INSERT INTO t (word) SELECT set_config(''bytea_output'', word, true) FROM ft');
CREATE FUNCTION so_far() RETURNS int VOLATILE LANGUAGE plpgsql AS 'BEGIN RETURN count(*) FROM counts; END';
CREATE DOMAIN nth AS int DEFAULT so_far();
CREATE TABLE counts (id int, n nth);
SELECT either_way('INSERT INTO counts (id) SELECT id FROM ft', 'counts');
CREATE FUNCTION unseen(number int) RETURNS boolean VOLATILE LANGUAGE plpgsql AS 'BEGIN RETURN NOT EXISTS (SELECT FROM plain p WHERE p.id >= number); END';
CREATE DOMAIN unseen AS int CHECK (unseen(value));
CREATE TABLE plain (id int, n int);
SELECT either_way('INSERT INTO plain (id) SELECT (id::unseen)::int FROM ft', 'plain');
CALL make_table('seen', 'id unseen, word text, day date, n int', $$format 'csv'$$, E'1,one,2001-01-01,10\n2,,2001-02-02,\n');
SELECT either_way('INSERT INTO plain (id) SELECT id FROM seen', 'plain');
CREATE FUNCTION turns() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN ALTER FOREIGN TABLE ft OPTIONS (ADD header 'true'); RETURN NULL; END$$;
CREATE TABLE turned (id int, word text);
CREATE TRIGGER turns BEFORE INSERT ON turned EXECUTE FUNCTION turns();
SELECT either_way('INSERT INTO turned SELECT id, word FROM ft', 'turned');
DROP TRIGGER turns ON turned;
CREATE TRIGGER turns AFTER INSERT ON turned EXECUTE FUNCTION turns();
SELECT either_way('INSERT INTO turned SELECT id, word FROM ft', 'turned');

-- Triggers: the load fires AFTER triggers. Core runs tables with other triggers, policies or rules.
CREATE TABLE log (line text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO log SELECT concat_ws(' ', TG_NAME, TG_WHEN, TG_LEVEL, NEW.id, (SELECT count(*) FROM t));
	RETURN NEW;
END $$;
CREATE TRIGGER b BEFORE INSERT ON t EXECUTE FUNCTION note();
CREATE TRIGGER a AFTER INSERT ON t EXECUTE FUNCTION note();
CREATE TRIGGER r AFTER INSERT ON t FOR EACH ROW WHEN (NEW.id > 1) EXECUTE FUNCTION note();
SELECT either_way('INSERT INTO t SELECT * FROM ft', 'log');
CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION note();
SELECT either_way('INSERT INTO t SELECT * FROM ft', 'log');
DROP TRIGGER x ON t;
CREATE TRIGGER x AFTER INSERT ON t REFERENCING NEW TABLE AS news EXECUTE FUNCTION note();
SELECT either_way('INSERT INTO t SELECT * FROM ft', 'log');
DROP TRIGGER x ON t;
DROP TRIGGER a ON t;
DROP TRIGGER b ON t;
DROP TRIGGER r ON t;
CREATE RULE also AS ON INSERT TO t DO ALSO INSERT INTO log VALUES (NEW.id);
SELECT either_way('INSERT INTO t SELECT * FROM ft', 'log');
DROP RULE also ON t;
CREATE RULE other AS ON INSERT TO log DO ALSO INSERT INTO t SELECT * FROM ft;
SELECT either_way('INSERT INTO log VALUES (1)', 't');
DROP RULE other ON log;
CREATE ROLE insert_select_user;
GRANT USAGE ON SCHEMA insert_select TO insert_select_user;
GRANT INSERT ON t TO insert_select_user;
GRANT SELECT (id, word) ON ft TO insert_select_user;
GRANT SELECT ON t TO insert_select_user;
GRANT INSERT ON log TO insert_select_user;
SET ROLE insert_select_user;
SELECT error_of('INSERT INTO t SELECT * FROM ft');
SELECT either_way('INSERT INTO t (id, word) SELECT id, word FROM ft');
RESET ROLE;
REVOKE INSERT ON t FROM insert_select_user;
GRANT INSERT (id) ON t TO insert_select_user;
SET ROLE insert_select_user;
SELECT error_of('INSERT INTO t (id, word) SELECT id, word FROM ft');
SELECT either_way('INSERT INTO t (id) SELECT id FROM ft');
RESET ROLE;
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
CREATE POLICY low ON t USING (true) WITH CHECK (id < 3);
SELECT either_way('INSERT INTO t SELECT * FROM ft');
SET ROLE insert_select_user;
SELECT either_way('INSERT INTO t (id) SELECT id FROM ft');
RESET ROLE;
DROP POLICY low ON t;
ALTER TABLE t DISABLE ROW LEVEL SECURITY;

-- Functions that may query the table during the load.
CREATE FUNCTION so_far() RETURNS int LANGUAGE sql VOLATILE AS 'SELECT count(*)::int FROM insert_select.t';
ALTER TABLE t ALTER n SET DEFAULT so_far();
SELECT either_way('INSERT INTO t (id) SELECT id FROM ft');
ALTER TABLE t ALTER n DROP DEFAULT;

-- Partitions.
CREATE TABLE p (id int, word text, day date, n int) PARTITION BY LIST (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1, 3);
CREATE TABLE p2 (n int, word text, day date, id int);
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES IN (2);
SELECT either_way('INSERT INTO p SELECT * FROM ft', 'p');
SELECT either_way('INSERT INTO p1 SELECT * FROM ft', 'p1');
CREATE TRIGGER x BEFORE INSERT ON p2 FOR EACH ROW EXECUTE FUNCTION note();
SELECT either_way('INSERT INTO p SELECT * FROM ft', 'p');
DROP TRIGGER x ON p2;
DROP TABLE p2;
SELECT either_way('INSERT INTO p SELECT * FROM ft', 'p');

-- Options of the foreign table.
CALL make_table('lax', 'id int, word text', $$format 'csv', on_error 'ignore'$$, E'1,one\nx,two\n3,three\n');
SELECT either_way('INSERT INTO t (id, word) SELECT * FROM lax');
SELECT either_way('INSERT INTO t (word) SELECT word FROM lax');
INSERT INTO t (id, word) SELECT * FROM lax;
ALTER FOREIGN TABLE lax OPTIONS (SET on_error 'stop', ADD skip '1', ADD limit '1', ADD header 'match', ADD force_null 'word');
CALL write_file('lax', E'id,word\n1,one\n2,""\n3,three\n');
SELECT either_way('INSERT INTO t (id, word) SELECT * FROM lax');
SELECT either_way('INSERT INTO t (word) SELECT word FROM lax');
CALL write_file('lax', E'id,words\n1,one\n2,""\n3,three\n');
SELECT either_way('INSERT INTO t (word) SELECT word FROM lax');
ALTER FOREIGN TABLE lax OPTIONS (ADD "default" '\D');
SELECT either_way('INSERT INTO t (word) SELECT word FROM lax');
ALTER FOREIGN TABLE lax OPTIONS (SET filename '/nowhere');
SELECT either_way('INSERT INTO t (word) SELECT word FROM lax');
CALL make_table('computed', 'id int, twice int GENERATED ALWAYS AS (id * 2) STORED', $$format 'csv'$$, E'1\n2\n');
SELECT either_way('INSERT INTO t (id, n) SELECT id, twice FROM computed');
SELECT either_way('INSERT INTO t (id) SELECT id FROM computed');

-- Row count, FOUND, command tag, savepoints, statistics of the table.
TRUNCATE t;
DO $$
DECLARE n int;
BEGIN
	INSERT INTO t SELECT * FROM ft;
	GET DIAGNOSTICS n = ROW_COUNT;
	RAISE NOTICE '% %', n, FOUND;
END $$;
INSERT INTO t SELECT * FROM ft;
BEGIN;
SAVEPOINT s;
INSERT INTO t SELECT * FROM ft;
ROLLBACK TO s;
INSERT INTO t SELECT * FROM ft;
COMMIT;
SELECT count(*) FROM t;
BEGIN READ ONLY;
INSERT INTO t SELECT * FROM ft;
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
INSERT INTO t SELECT * FROM ft;
SELECT count(*) FROM t;
ROLLBACK;

-- Few rows reserve few ids.
CREATE TABLE ids (i serial, id int);
INSERT INTO ids (id) SELECT id FROM ft;
INSERT INTO ids (id) SELECT id FROM ft;
SELECT array_agg(i ORDER BY i) FROM ids;

-- Kept plans: the present setting, table and file options count when a plan runs.
TRUNCATE t;
SET plan_cache_mode = force_generic_plan;
PREPARE load AS INSERT INTO t SELECT * FROM ft;
EXECUTE load;
\set analyze 'ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF'
SELECT plan_of('EXECUTE load', :'analyze');
SET pg_bulk.direct_insert = off;
SELECT plan_of('EXECUTE load', :'analyze');
RESET pg_bulk.direct_insert;
SELECT count(*) FROM t;
ALTER TABLE t ADD more int DEFAULT 7;
EXECUTE load;
SELECT count(more) FROM t;
ALTER TABLE t ALTER n TYPE bigint;
SELECT plan_of('EXECUTE load', 'COSTS OFF, VERBOSE');
EXECUTE load;
ALTER TABLE t ALTER n TYPE int;
CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION note();
EXECUTE load;
DROP TRIGGER x ON t;
CALL write_file('other', E'9,nine,2009-09-09,9\n');
DO $$ BEGIN EXECUTE format('ALTER FOREIGN TABLE ft OPTIONS (SET filename %L)', data_path('other')); END $$;
EXECUTE load;
SELECT * FROM t ORDER BY id DESC LIMIT 1;
PREPARE filtered (int) AS INSERT INTO t SELECT * FROM ft WHERE id > $1;
RESET plan_cache_mode;
SELECT plan_of('EXECUTE filtered(1)', 'COSTS OFF, VERBOSE');
SET plan_cache_mode = force_generic_plan;
SELECT plan_of('EXECUTE filtered(1)', 'COSTS OFF, VERBOSE');
PREPARE with_parameter AS INSERT INTO t (id, n) SELECT id, $1 FROM ft;
SELECT plan_of('EXECUTE with_parameter(1)', 'COSTS OFF, VERBOSE');
RESET plan_cache_mode;
SELECT plan_of('INSERT INTO t SELECT * FROM ft', 'COSTS OFF, FORMAT JSON');

-- Several processes. A file that gets workers by its size is too large for a test, so the test sets their number.
DO $$
DECLARE
	lines text := (SELECT string_agg(format(E'%s,%s,%s,%s\n', i, repeat('w', i % 30), date '2000-01-01' + i % 100, i % 7), '' ORDER BY i) FROM generate_series(1, 20000) i);
BEGIN
	CALL write_file('many', lines);
	EXECUTE format('ALTER FOREIGN TABLE ft OPTIONS (SET filename %L)', data_path('many'));
END $$;
SET pg_bulk.workers = 2;
SET pg_bulk.chunk_size = 4096;
CREATE TABLE l (id int PRIMARY KEY, word text, day date, n bigint, s serial);
ALTER TABLE t RENAME TO few;
CREATE VIEW t AS SELECT count(*), sum(id) ids, sum(length(word)) words, max(day), sum(n) ns, count(DISTINCT s) s FROM l;
SELECT regexp_replace(plan_of('INSERT INTO l (id, word, day, n) SELECT id, word, day, n FROM ft WHERE n = 3', 'ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF'), '(Pages Appended|Workers Launched): [1-9]\d*', '\1');
SELECT count(*), bool_and(s > before) FROM (SELECT s, lag(s) OVER (ORDER BY id) AS before FROM l) ids;
TRUNCATE l;
SELECT either_way('INSERT INTO l (id, word, day, n) SELECT id, word, day, n FROM ft WHERE n = 3', 't');
SELECT either_way('INSERT INTO l (id, word, day, n) SELECT id * 2, word || ''x'', day + n, n FROM ft', 't');
SELECT either_way('INSERT INTO l (id, word, day) SELECT id, word, day FROM ft', 't');
SELECT either_way('INSERT INTO l (id, word) SELECT id % 19999, word FROM ft', 't');
SELECT either_way('INSERT INTO l (id, n) SELECT id, 1 / (id - 19000) FROM ft', 't');
SELECT error_of('INSERT INTO l (id, n) SELECT id, 1 / (id - 19000) FROM ft');
DROP VIEW t;
ALTER TABLE few RENAME TO t;

-- An empty table is loaded exclusively if the statement requests this, and then has a new file.
RESET pg_bulk.chunk_size;
CREATE FUNCTION long_lines() RETURNS text LANGUAGE sql AS $$ SELECT string_agg(format(E'%s,%s,,1\n', i, repeat('w', 1000)), '') FROM generate_series(1, 1100) i $$;
CALL write_file('long', long_lines());
DO $$ BEGIN EXECUTE format('ALTER FOREIGN TABLE ft OPTIONS (SET filename %L)', data_path('long')); END $$;
CREATE TABLE e (id int PRIMARY KEY, word text, day date, n int);
CREATE TABLE before (file oid);
GRANT ALL ON before TO insert_select_user;
-- Whether the table got a new file since the last call.
CREATE FUNCTION is_new() RETURNS text LANGUAGE plpgsql AS $$
<<is_new>>
DECLARE
	file oid := pg_relation_filenode('e');
	answer text;
BEGIN
	SELECT CASE WHEN b.file = is_new.file THEN 'as it was' ELSE 'new' END INTO answer FROM before b;
	DELETE FROM before;
	INSERT INTO before VALUES (is_new.file);
	RETURN answer || ', ' || (SELECT count(*) || ' rows' FROM e) || coalesce((SELECT string_agg(v::text, ' ') FROM public.verify_heapam('e') v), '');
END $$;
CREATE PROCEDURE empty() LANGUAGE sql AS $$ TRUNCATE e; DELETE FROM before; INSERT INTO before VALUES (pg_relation_filenode('e')); $$;
CALL empty();
INSERT INTO e SELECT * FROM ft;
SELECT is_new();
SELECT public.bt_index_parent_check('e_pkey', true, true);
SET pg_bulk.direct_insert = 'maybe';
SET pg_bulk.direct_insert = exclusive;
CALL empty();
INSERT INTO e SELECT * FROM ft;
SELECT is_new();
SELECT public.bt_index_parent_check('e_pkey', true, true);
INSERT INTO e SELECT id + 2000, word FROM ft;
SELECT is_new();
CALL empty();
SELECT line FROM unnest(string_to_array((SELECT string_agg(p, E'\n') FROM plan_of('INSERT INTO e SELECT * FROM ft', 'ANALYZE') p), E'\n')) line WHERE line ~ 'Exclusive';
CALL empty();
BEGIN;
INSERT INTO e SELECT * FROM ft;
SELECT is_new();
ROLLBACK;
CALL empty();
-- A table with an invalid index does not get a new file.
CREATE TABLE divided (id int, word text, day date, n int);
INSERT INTO divided VALUES (1, '', NULL, 0);
CREATE INDEX CONCURRENTLY ON divided ((1 / n));
DELETE FROM divided;
VACUUM divided;
ALTER FOREIGN TABLE ft RENAME TO same;
INSERT INTO divided SELECT id, word, day, 0 FROM same;
SELECT count(*), min(n) FROM divided;
ALTER FOREIGN TABLE same RENAME TO ft;
-- Nor does a table without the TRUNCATE privilege.
GRANT SELECT, INSERT ON e TO insert_select_user;
GRANT SELECT ON ft TO insert_select_user;
GRANT USAGE ON SCHEMA insert_select TO insert_select_user;
SET ROLE insert_select_user;
INSERT INTO e SELECT * FROM ft;
RESET ROLE;
SELECT is_new();
-- A failed load leaves the table unchanged.
CALL empty();
CALL write_file('long', 'x,' || long_lines());
\set VERBOSITY terse
INSERT INTO e SELECT id FROM ft;
SELECT is_new();
CALL write_file('long', long_lines() || E'1,twice,,\n');
INSERT INTO e SELECT * FROM ft;
SELECT is_new();
INSERT INTO e SELECT * FROM ft WHERE id > 1;
SELECT is_new();
SHOW pg_bulk.direct_insert;
SET pg_bulk.direct_insert = yes;
SHOW pg_bulk.direct_insert;
RESET pg_bulk.direct_insert;

-- An accelerated INSERT adds no row to the history.
SELECT count(*) FROM bulk_history WHERE target LIKE 'insert_select.%';
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA insert_select CASCADE;
DROP ROLE insert_select_user;
