--
-- Virtual generated columns, which PostgreSQL has from 18 on: computed when they are read, and NULL in stored rows. The
-- results must equal those of core's COPY and INSERT into tables with such columns. On older versions the test
-- ends here (virtual_columns_1.out).
--
\set ECHO none
SELECT current_setting('server_version_num')::int < 180000 AS older \gset
\if :older
\echo This version has no virtual columns.
\quit
\endif
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
CREATE EXTENSION IF NOT EXISTS pageinspect;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema virtual_columns
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set helpers :data '/insert_helpers.sql'
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
-- Loads, with the column at each position.
SELECT same('a int, g int GENERATED ALWAYS AS (a * 2), b text', E'10\tten\n20\ttwenty\n');
SELECT same('g int GENERATED ALWAYS AS (a * 2) VIRTUAL, a int, b text', E'10\tten\n20\ttwenty\n');
SELECT same('a int, b text, g text GENERATED ALWAYS AS (b || a) VIRTUAL', E'10\tten\n20\t\\N\n');
SELECT same('a int, g int GENERATED ALWAYS AS (a) VIRTUAL, h text GENERATED ALWAYS AS (b) VIRTUAL, s int GENERATED ALWAYS AS (a + 1) STORED, b text, d int DEFAULT 7',
	E'10\tten\n20\ttwenty\n', '', '{"columns": ["a", "b"]}', '(a, b)');
SELECT same('a int, g int GENERATED ALWAYS AS (a * 2), b text', E'a,b\n10,ten\n', '(FORMAT csv, HEADER match)', '{"format": "csv", "header": "match"}');
SELECT same('a int, g int GENERATED ALWAYS AS (a * 2), b text', E'10\tten\ttoo many\n');
-- The file cannot have a field for it, and the where clause cannot use it.
SELECT same('a int, g int GENERATED ALWAYS AS (a * 2), b text', E'1\t2\n', '', '{"columns": ["a", "g"]}', '(a, g)');
SELECT same('a int, g int GENERATED ALWAYS AS (a * 2), b text', E'1\t2\n', '(FORMAT csv, FORCE_NULL (g))', '{"format": "csv", "force_null": ["g"]}');
SELECT same('a int, g int GENERATED ALWAYS AS (a * 2), b text', E'1\t2\n', 'WHERE g > 1', '{"where": "g > 1"}');
-- Constraints on it are checked, with the same row and message.
SELECT same('a int, g int GENERATED ALWAYS AS (a * 2) NOT NULL, b text', E'10\tten\n20\ttwenty\n');
SELECT same('a int, g int GENERATED ALWAYS AS (a * 2) NOT NULL, b text', E'10\tten\n\\N\ttwenty\n30\tthirty\n');
SELECT same('a int, g int GENERATED ALWAYS AS (nullif(a, 20)) CHECK (g < 100) NOT NULL, b text NOT NULL', E'10\tten\n20\ttwenty\n');
SELECT same('a int, g int GENERATED ALWAYS AS (a * 2) CHECK (g < 50), b text', E'10\tten\n20\ttwenty\n');
SELECT same('a int, g int GENERATED ALWAYS AS (a * 2) CHECK (g < 50), b text', E'10\tten\n30\tthirty\n');
SELECT same('a int, g int GENERATED ALWAYS AS (100 / a) CHECK (g < 50), b text', E'10\tten\n0\tzero\n');
SELECT alike('a int, g int GENERATED ALWAYS AS (a * 2) CHECK (g <> 40) NOT NULL, b text',
	(SELECT string_agg(CASE n % 10 WHEN 7 THEN '\N' ELSE n::text END || E'\tsome words\n', '') FROM generate_series(1, 100) n), '{"on_error": "table"}');
-- An error in its expression is raised when it is read.
CREATE TABLE quotient (a int, g int GENERATED ALWAYS AS (100 / a));
CALL write_file('virtual', E'10\n0\n');
SELECT loaded, writer FROM figures('virtual', 'quotient');
SELECT a FROM quotient ORDER BY 1;
SELECT error_of('SELECT g FROM quotient');

-- Stored bytes equal core's: by COPY, by each kind of load, by a COPY that is a load, by INSERT.
CREATE TABLE core (g int GENERATED ALWAYS AS (a * 2) NOT NULL, a int, h text GENERATED ALWAYS AS (b || '!'), b text, d int DEFAULT 7, k text GENERATED ALWAYS AS ('last'));
CREATE TABLE ours (LIKE core INCLUDING ALL);
CREATE FUNCTION stored(name regclass) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT concat_ws(' ', t_attrs::text, t_infomask2, t_bits) FROM public.heap_page_item_attrs(public.get_raw_page(name::text, 0), name)
$$;
CREATE FUNCTION same_rows() RETURNS text LANGUAGE sql AS $$
	SELECT (SELECT count(*) FROM ours) || CASE WHEN ARRAY(SELECT c::text FROM core c ORDER BY a) IS DISTINCT FROM ARRAY(SELECT o::text FROM ours o ORDER BY a) THEN ' other rows'
		WHEN ARRAY(SELECT stored('core')) IS DISTINCT FROM ARRAY(SELECT stored('ours')) THEN ' rows stored otherwise' ELSE ' rows' END
$$;
CALL make_table('file', 'a int, b text', $$format 'csv'$$, E'1,one\n2,\n3,three\n');
\set path :data '/file'
SET pg_bulk.copy = off;
COPY core (a, b) FROM :'path' (FORMAT csv);
SELECT (stored('core'));
SELECT loaded, writer FROM figures('file', 'ours', '{"format": "csv", "columns": ["a", "b"]}');
SELECT same_rows();
SELECT loaded, writer FROM figures('file', 'ours', '{"format": "csv", "columns": ["a", "b"], "truncate": true, "writer": "buffered"}');
SELECT same_rows();
SELECT loaded, writer FROM figures('file', 'ours', '{"format": "csv", "columns": ["a", "b"], "truncate": true, "workers": 2}');
SELECT same_rows();
TRUNCATE ours;
SET pg_bulk.copy = on;
SET pg_bulk.copy_min_size = 0;
COPY ours (a, b) FROM :'path' (FORMAT csv);
RESET pg_bulk.copy;
RESET pg_bulk.copy_min_size;
SELECT same_rows();
TRUNCATE ours;
SELECT plan_of('INSERT INTO ours (a, b) SELECT a, b FROM file');
INSERT INTO ours (a, b) SELECT a, b FROM file;
SELECT same_rows();

-- INSERT … SELECT.
CREATE TABLE made (twice int GENERATED ALWAYS AS (id * 2), id int, word text, loud text GENERATED ALWAYS AS (upper(word)));
SELECT any_way('INSERT INTO made (id, word) SELECT id, word FROM ft', 'made');
SELECT any_way('INSERT INTO made SELECT DEFAULT, id, word FROM ft', 'made');
SELECT any_way('INSERT INTO made (twice) SELECT id FROM ft', 'made');
ALTER TABLE made ALTER loud SET NOT NULL;
SELECT any_way('INSERT INTO made (word, id) SELECT word, id FROM twelve', 'made');
ALTER TABLE made ALTER loud DROP NOT NULL, ADD CHECK (twice <> 10);
SELECT any_way('INSERT INTO made (word, id) SELECT word, id FROM twelve', 'made');
SELECT any_way('INSERT INTO made (word, id) SELECT word, id FROM twelve WHERE n > 50', 'made');
-- From foreign tables with such columns, which have no field.
CALL make_table('virtual_ft', 'id int, twice int GENERATED ALWAYS AS (id * 2), word text, loud text GENERATED ALWAYS AS (upper(word))', $$format 'csv'$$,
	as_file('SELECT id, word FROM numbered'));
SELECT any_way('INSERT INTO made (id, word) SELECT twice, loud FROM virtual_ft WHERE twice > 10 AND loud <> ''TEN''', 'made');
SELECT any_way('INSERT INTO made (id, word) SELECT id, loud FROM virtual_ft JOIN ft USING (id) WHERE twice < 10', 'made');
SELECT plan_of('CREATE TABLE new AS SELECT id, twice, loud FROM virtual_ft');
CREATE TABLE new AS SELECT id, twice, loud FROM virtual_ft;
SELECT count(*), sum(twice), max(loud) FROM new;

-- Partitions, which may have another expression and another order of columns.
CREATE TABLE parts (a int, g int GENERATED ALWAYS AS (a * 10) NOT NULL, b text) PARTITION BY RANGE (a);
CREATE TABLE part_low PARTITION OF parts FOR VALUES FROM (0) TO (2);
CREATE TABLE part_high (b text, gone int, g int GENERATED ALWAYS AS (a * 1000) NOT NULL, a int);
ALTER TABLE part_high DROP gone;
ALTER TABLE parts ATTACH PARTITION part_high FOR VALUES FROM (2) TO (100);
SELECT loaded, writer FROM figures('file', 'parts', '{"format": "csv"}');
SELECT tableoid::regclass, * FROM parts ORDER BY a;
SELECT any_way('INSERT INTO parts (a, b) SELECT id, word FROM twelve', 'parts');
ALTER TABLE part_high ADD CHECK (g <> 5000);
SELECT any_way('INSERT INTO parts (a, b) SELECT id, word FROM twelve', 'parts');

-- Triggers see the same rows as under core. The index is on a stored column, since the server has no indexes on virtual ones.
CREATE TABLE seen (who text, what text);
CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO seen VALUES (TG_TABLE_NAME, concat_ws(' ', TG_WHEN, NEW.id, NEW.twice, NEW.word));
	RETURN NEW;
END $$;
CREATE TABLE by_core (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2), word text);
CREATE TABLE by_us (LIKE by_core INCLUDING ALL);
CREATE TRIGGER after_row AFTER INSERT ON by_core FOR EACH ROW EXECUTE FUNCTION see();
CREATE TRIGGER after_row AFTER INSERT ON by_us FOR EACH ROW WHEN (NEW.word <> 'x') EXECUTE FUNCTION see();
SET pg_bulk.copy = off;
COPY by_core (id, word) FROM :'path' (FORMAT csv, FORCE_NOT_NULL (word));
RESET pg_bulk.copy;
SELECT loaded, writer FROM figures('file', 'by_us', '{"format": "csv", "force_not_null": ["word"]}');
SELECT what FROM seen WHERE who = 'by_core' ORDER BY what;
SELECT (SELECT array_agg(what ORDER BY what) FROM seen WHERE who = 'by_core') = (SELECT array_agg(what ORDER BY what) FROM seen WHERE who = 'by_us') AS same;
CALL write_file('virtual', E'2,two anew\n4,four\n');
SELECT loaded, rejected FROM figures('virtual', 'by_us', '{"format": "csv", "on_duplicate": "keep_new", "columns": ["id", "word"]}');
TABLE by_us ORDER BY id;
SELECT error_of(format('SELECT bulk_load(%L, ''by_us'', ''{"format": "csv"}'')', data_path('virtual')));

-- Scans: the same rows as a table with the same columns.
CREATE TABLE plain (id int, twice int GENERATED ALWAYS AS (id * 2), word text, loud text GENERATED ALWAYS AS (upper(word)));
INSERT INTO plain (id, word) SELECT id, word FROM numbered;
CREATE FUNCTION scans(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	core text[];
	ours text[];
BEGIN
	EXECUTE format('SELECT array_agg(q::text ORDER BY q::text) FROM (%s) q', format(query, 'plain')) INTO core;
	EXECUTE format('SELECT array_agg(q::text ORDER BY q::text) FROM (%s) q', format(query, 'virtual_ft')) INTO ours;
	RETURN NEXT CASE WHEN core IS DISTINCT FROM ours THEN 'differs: ' || ours::text ELSE coalesce(cardinality(core), 0) || ' rows, the last is ' || core[cardinality(core)] END;
END $$;
SELECT scans('SELECT * FROM %s');
SELECT scans('SELECT twice FROM %s');
SELECT scans('SELECT loud, id FROM %s WHERE twice BETWEEN 6 AND 14 AND loud IS NOT NULL');
SELECT scans('SELECT count(*), count(loud), sum(twice), max(loud), avg(twice) FROM %s');
SELECT scans('SELECT count(*) FROM %s WHERE twice > 8');
SELECT scans('SELECT x AS whole FROM %s x');
SELECT scans('SELECT twice > 10 AS big, count(*), min(loud) FROM %s GROUP BY 1');
SELECT scans('SELECT v.twice, n.word FROM %s v LEFT JOIN numbered n ON n.id = v.twice');
SELECT plan_of('SELECT sum(twice) FROM virtual_ft WHERE twice > 8', 'VERBOSE, COSTS OFF');
ANALYZE virtual_ft;
SELECT attname FROM pg_stats WHERE tablename = 'virtual_ft' ORDER BY 1;
ALTER FOREIGN TABLE virtual_ft OPTIONS (ADD force_null 'twice');
SELECT error_of('SELECT * FROM virtual_ft');
ALTER FOREIGN TABLE virtual_ft OPTIONS (DROP force_null, ADD header 'match');
CALL write_file('virtual_ft', E'id,word\n1,one\n');
TABLE virtual_ft;
SET client_min_messages = warning;
DROP SCHEMA virtual_columns, copied, loaded CASCADE;
