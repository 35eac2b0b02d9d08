--
-- Index strategy append: keys greater than all keys of an index are added as whole leaves. Which keys are, and which are inserted. Afterwards
-- amcheck finds no error, index scans find the rows of sequential scans, and the index is about as large as a new one.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
CREATE EXTENSION IF NOT EXISTS pageinspect;
CREATE EXTENSION IF NOT EXISTS pg_walinspect;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_growth
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set helpers :data '/index_helpers.sql'
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
SET pg_bulk.chunk_size = '16kB';
CREATE TABLE since (lsn pg_lsn);
INSERT INTO since VALUES (NULL);

-- The result of a load, for the indexes in the order of their names.
CREATE FUNCTION loads(target regclass, content text, options jsonb DEFAULT '{}') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	rows bigint;
	how jsonb;
BEGIN
	UPDATE since SET lsn = pg_current_wal_insert_lsn();
	CALL write_file('t', content);
	SELECT rows_loaded, indexes INTO rows, how FROM bulk_load(data_path('t'), target, '{"workers": 2}' || options);
	RETURN QUERY SELECT format('%s rows', rows);
	RETURN QUERY SELECT format('%s: %s (%s)', i ->> 'index', i ->> 'method', i ->> 'why') FROM jsonb_array_elements(how) i ORDER BY 1;
	RETURN QUERY SELECT * FROM faults(target);
END $$;
-- The indexes that grew by whole leaves in the last load: such a WAL record has many blocks, and the last one links to the others.
CREATE FUNCTION grown(target regclass) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT format('%s has grown', index) FROM (
		SELECT i.indexrelid::regclass AS index FROM pg_index i WHERE i.indrelid = target AND EXISTS (
			SELECT FROM pg_get_wal_records_info((SELECT lsn FROM since), pg_current_wal_flush_lsn()) w
			WHERE w.resource_manager = 'XLOG' AND w.record_type = 'FPI' AND w.block_ref ~ ('blkref #5: rel \d+/\d+/' || pg_relation_filenode(i.indexrelid) || ' '))) i
	ORDER BY 1
$$;
-- Indexes that have over 10 % more leaves than a new one.
CREATE FUNCTION too_large(target regclass) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	index regclass;
	before bigint;
BEGIN
	FOR index IN SELECT indexrelid FROM pg_index WHERE indrelid = target LOOP
		before := pg_relation_size(index);
		EXECUTE format('REINDEX INDEX %s', index);
		IF before > pg_relation_size(index) * 1.1 THEN
			RETURN NEXT format('%s: %s pages, then %s', index, before / 8192, pg_relation_size(index) / 8192);
		END IF;
	END LOOP;
END $$;
CREATE FUNCTION numbers(first int, last int, form text DEFAULT E'%1$s\n') RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(format(form, i), '' ORDER BY i) FROM generate_series(first, last) i
$$;

-- Types of keys and indexes. A tree of a single leaf cannot be appended to.
CREATE TABLE kinds (a int PRIMARY KEY, b bigint, c timestamp, d smallint);
CREATE INDEX kinds_b ON kinds (b) WITH (fillfactor = 50);
CREATE INDEX kinds_c ON kinds (c, a) WITH (fillfactor = 100);
CREATE INDEX kinds_desc ON kinds (b DESC);
CREATE INDEX kinds_few ON kinds (d);
CREATE INDEX kinds_few_plain ON kinds (d) WITH (deduplicate_items = off);
CREATE INDEX kinds_full ON kinds (a) WITH (fillfactor = 100);
CREATE FUNCTION kinds(first int, last int) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(format(E'%s\t%s\t%s\t%s\n', i, i * 10, '2000-01-01'::timestamp + i * interval '1 s', i / 700), '' ORDER BY i) FROM generate_series(first, last) i
$$;
SELECT loads('kinds', kinds(1, 100));
SELECT * FROM grown('kinds');
SELECT loads('kinds', kinds(101, 12000));
SELECT * FROM grown('kinds');
SELECT too_large('kinds');
SELECT loads('kinds', kinds(12001, 30000), '{"workers": 0}');
SELECT * FROM grown('kinds');
SELECT loads('kinds', kinds(30001, 45000), '{"lock": "share"}');
SELECT * FROM grown('kinds');
-- Too few keys.
SELECT loads('kinds', kinds(45001, 45500));
SELECT * FROM grown('kinds');
-- Parents become full: there are more leaves than one parent can link to.
SELECT loads('kinds', kinds(45501, 160000));
SELECT * FROM grown('kinds');
SELECT too_large('kinds');

-- In the order of the index, which differs from that of the file.
CREATE TABLE falling (a int, b int);
CREATE INDEX falling_a ON falling (a DESC, b);
CREATE INDEX falling_nulls ON falling (b NULLS FIRST);
INSERT INTO falling SELECT -i, i FROM generate_series(1, 1000) i;
SELECT loads('falling', string_agg(format(E'%s\t%s\n', -i, i), '' ORDER BY md5(i::text))) FROM generate_series(2000, 12000) i;
SELECT * FROM grown('falling');

-- Keys in mixed order: keys of the file lie before and behind the last keys of the index.
CREATE TABLE mixed (a int PRIMARY KEY);
INSERT INTO mixed SELECT i * 2 FROM generate_series(1, 5000) i;
SELECT loads('mixed', (SELECT string_agg(format(E'%s\n', i * 2 - 1), '') FROM generate_series(1, 5000) i) || numbers(10001, 20000));
SELECT * FROM grown('mixed');
-- Dead rows have greater keys; and then the greatest keys of the index have none.
BEGIN;
INSERT INTO mixed SELECT generate_series(20001, 25000);
ROLLBACK;
SELECT loads('mixed', numbers(20001, 24000));
SELECT * FROM grown('mixed');
DELETE FROM mixed WHERE a > 12000;
VACUUM mixed;
SELECT loads('mixed', numbers(12001, 22000));
SELECT loads('mixed', numbers(22001, 32000));
SELECT * FROM grown('mixed');
DELETE FROM mixed WHERE a > 15000;
VACUUM mixed;
SELECT loads('mixed', numbers(15001, 30000), '{"lock": "share"}');

-- A duplicate key: in the file, at each position of it, or in the index.
SELECT error_of($$SELECT loads('mixed', numbers(30001, 36000) || E'30001\n')$$);
SELECT error_of($$SELECT loads('mixed', numbers(30001, 36000) || E'36000\n')$$);
SELECT error_of($$SELECT loads('mixed', numbers(30001, 36000) || E'33000\n')$$);
SELECT error_of($$SELECT loads('mixed', numbers(30000, 36000))$$);
SELECT error_of($$SELECT loads('mixed', E'17\n' || numbers(30001, 36000))$$);
SELECT * FROM faults('mixed');
SELECT loads('mixed', numbers(30001, 36000) || numbers(29000, 42000), '{"on_duplicate": "keep_old"}');
SELECT count(*), count(DISTINCT a) FROM mixed;
SELECT loads('mixed', numbers(42001, 46000) || numbers(41000, 48000), '{"on_duplicate": "keep_new"}');
SELECT count(*), count(DISTINCT a) FROM mixed;
SELECT loads('mixed', numbers(48001, 52000) || numbers(47000, 56000), '{"on_error": "table"}');
SELECT count(*), count(DISTINCT a) FROM mixed;

-- NULLs: last, first, distinct, or not distinct.
CREATE TABLE nulls (a int UNIQUE, b int, UNIQUE NULLS NOT DISTINCT (b));
CREATE INDEX nulls_b ON nulls (b);
CREATE INDEX nulls_first ON nulls (a NULLS FIRST);
INSERT INTO nulls SELECT i, i FROM generate_series(1, 1000) i;
SELECT loads('nulls', numbers(1001, 9000, E'%1$s\t%1$s\n') || repeat(E'\\N\t-1\n', 1));
SELECT * FROM grown('nulls');
SELECT loads('nulls', (SELECT string_agg(format(E'\\N\t%s\n', i), '') FROM generate_series(9001, 15000) i));
SELECT * FROM grown('nulls');
SELECT loads('nulls', numbers(20001, 26000, E'%1$s\t%1$s\n'));
SELECT * FROM grown('nulls');
SELECT error_of($$SELECT loads('nulls', numbers(30001, 35000, E'%1$s\t%1$s\n') || E'35001\t\\N\n35002\t\\N\n')$$);

-- Many equal keys, where the boundary between leaves is one of them.
CREATE TABLE often (a int, b float8);
CREATE INDEX often_a ON often (a);
CREATE INDEX often_b ON often (b);
CREATE INDEX often_plain ON often (a, b) WITH (deduplicate_items = off);
INSERT INTO often SELECT 1, 'NaN' FROM generate_series(1, 2000) i;
SELECT loads('often', repeat(E'1\tNaN\n', 5000) || repeat(E'2\tNaN\n', 5000));
SELECT * FROM grown('often');
SELECT loads('often', repeat(E'2\tNaN\n', 5000));
SELECT * FROM grown('often');
SELECT too_large('often');

-- Temporary and unlogged tables; a subtransaction that is rolled back.
CREATE TEMP TABLE own (a int PRIMARY KEY);
INSERT INTO own SELECT generate_series(1, 1000);
SELECT loads('own', numbers(1001, 9000));
CREATE UNLOGGED TABLE unlogged (a int PRIMARY KEY);
INSERT INTO unlogged SELECT generate_series(1, 1000);
SELECT loads('unlogged', numbers(1001, 9000));
BEGIN;
SAVEPOINT before;
SELECT loads('mixed', numbers(60001, 70000));
ROLLBACK TO before;
SELECT * FROM faults('mixed');
SELECT loads('mixed', numbers(60001, 70000));
COMMIT;
SELECT loads('mixed', numbers(70001, 75000));
SELECT count(*), count(DISTINCT a) FROM mixed;
DELETE FROM bulk_reject;
