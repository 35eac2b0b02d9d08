--
-- Indexes built from keys that the load collected: the same items on the same pages as core's own build of
-- the same rows. Afterwards amcheck finds no error, and index scans find the rows of sequential scans.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
CREATE EXTENSION IF NOT EXISTS pageinspect;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_index_build
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set helpers :data '/index_helpers.sql'
\i :helpers
\set helpers :data '/build_helpers.sql'
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CREATE PROCEDURE make(name text, kind text DEFAULT '') LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE %s TABLE %I (id int NOT NULL, t text, n int, s smallint, b bigint, u uuid, d date, ts timestamptz, o oid,
		f8 float8, f4 float4, z boolean, c "char", m money, k1 int NOT NULL, k2 smallint NOT NULL, k3 int NOT NULL)', kind, name);
	EXECUTE format('ALTER TABLE %I ADD PRIMARY KEY (id)', name);
	EXECUTE format('CREATE UNIQUE INDEX ON %I (b)', name);
	EXECUTE format('CREATE UNIQUE INDEX ON %I (u DESC)', name);
	EXECUTE format('CREATE UNIQUE INDEX ON %I (k1, k2 DESC, k3)', name);
	EXECUTE format('CREATE INDEX ON %I (n) WITH (fillfactor = 50)', name);
	EXECUTE format('CREATE INDEX ON %I (n) WITH (deduplicate_items = off)', name);
	EXECUTE format('CREATE INDEX ON %I (n DESC, s)', name);
	EXECUTE format('CREATE INDEX ON %I (s NULLS FIRST) WITH (fillfactor = 100)', name);
	EXECUTE format('CREATE INDEX ON %I (d, ts DESC NULLS LAST)', name);
	EXECUTE format('CREATE INDEX ON %I (o)', name);
	EXECUTE format('CREATE INDEX ON %I (f8)', name);
	EXECUTE format('CREATE INDEX ON %I (f4 DESC)', name);
	EXECUTE format('CREATE INDEX ON %I (z, c)', name);
	EXECUTE format('CREATE INDEX ON %I (m, id)', name);
	EXECUTE format('CREATE INDEX ON %I (k1, k2, k3, id)', name);
	EXECUTE format('CREATE INDEX ON %I (u)', name);
	EXECUTE format('CREATE INDEX ON %I (n, t COLLATE "C" DESC NULLS LAST, s) WITH (fillfactor = 60)', name);
	EXECUTE format('CREATE UNIQUE INDEX ON %I (t COLLATE "C", id)', name);
END $$;
CREATE FUNCTION lines(ids text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE 'SELECT string_agg(concat_ws(E''\t'', a, repeat(''x'', a % 50), CASE WHEN a % 3 = 0 THEN ''\N'' ELSE (a % 200)::text END,
		CASE WHEN a % 5 = 0 THEN ''\N'' ELSE (a % 3 - 1)::text END, CASE WHEN a % 11 = 0 THEN ''\N'' ELSE (a::bigint * 1000003 % 10000019)::text END,
		md5(a::text)::uuid, date ''2000-01-01'' + a % 1000, CASE WHEN a % 2 = 0 THEN ''\N'' ELSE (timestamptz ''epoch'' + a * interval ''7 min'')::text END,
		4294967295 - a, CASE WHEN a % 4 = 0 THEN ''NaN'' WHEN a % 4 = 1 THEN ''-Infinity'' ELSE (a - 6000)::text || ''.5'' END, (6000 - a)::float4, a % 2 = 0, chr(97 + a % 26),
		a % 100, a % 10, a % 7, a), E''\n'' ORDER BY n) || E''\n'' FROM ' || ids || ' AS ids(a, n)' INTO result;
	RETURN result;
END $$;
CALL write_file('ascending', lines('generate_series(1, 15000) WITH ORDINALITY'));
CALL write_file('descending', lines('(SELECT 15001 - n, n FROM generate_series(1, 15000) n)'));
CALL write_file('random', lines('(SELECT n, md5(n::text) FROM generate_series(1, 30000) n)'));

CALL make('t');
SELECT built('ascending', 't');
SELECT built('descending', 't', '{"workers": 0}');
SELECT built('random', 't');
-- Several processes, with minimal memory: sorted runs are merged from files.
SET pg_bulk.chunk_size = '16kB';
SET maintenance_work_mem = '1MB';
SELECT pg_stat_force_next_flush();
SELECT temp_files AS before FROM pg_stat_database WHERE datname = current_database() \gset
SELECT built('random', 't', '{"workers": 3}');
SELECT pg_stat_force_next_flush();
SELECT spilled(:before, 16);
SELECT built('ascending', 't', '{"workers": 2}');
RESET maintenance_work_mem;
RESET pg_bulk.chunk_size;

-- Unlogged and temporary tables, a table that the transaction created, frozen rows.
CALL make('unlogged', 'UNLOGGED');
SELECT built('random', 'unlogged');
SELECT count(*) FILTER (WHERE pg_relation_size(indexrelid, 'init') = current_setting('block_size')::int), count(*) FROM pg_index WHERE indrelid = 'unlogged'::regclass;
CALL make('temporary', 'TEMPORARY');
SELECT built('random', 'temporary');
BEGIN;
CALL make('own');
SELECT rows_loaded, indexes @> '[{"from": "load"}]' FROM bulk_load(data_path('random'), 'own', '{"freeze": true}');
SELECT faults('own');
SAVEPOINT s;
TRUNCATE own;
SELECT built('ascending', 'own');
ROLLBACK TO s;
SELECT faults('own');
COMMIT;
SELECT faults('own');

-- Partitions, each with its own indexes; rows that need TOAST.
CREATE TABLE parts (id int PRIMARY KEY, t text) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (20000);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (20000) TO (50000);
CREATE TABLE parts_3 PARTITION OF parts FOR VALUES FROM (50000) TO (60000);
ALTER TABLE parts_2 ALTER t SET STORAGE EXTERNAL;
CREATE INDEX ON parts_2 (id DESC) WITH (fillfactor = 70);
CALL write_file('parts', series($$concat_ws(E'\t', a, repeat('x', CASE WHEN a % 1000 = 0 THEN 3000 ELSE 5 END))$$, 45000));
SET pg_bulk.chunk_size = '64kB';
SELECT indexed('parts', 'parts', '{"truncate": true, "workers": 2}');
SELECT sources('parts', 'parts', '{"truncate": true, "workers": 2}');
SELECT faults('parts_1'), faults('parts_2');
RESET pg_bulk.chunk_size;

-- Keys of other types, and keys that are not collected: few rows, deferrable constraints, keys that no packed integer represents.
CREATE TABLE others (a int, b numeric, t text);
CREATE INDEX ON others (b);
CREATE INDEX ON others (t);
CREATE INDEX ON others (a) INCLUDE (t);
CREATE INDEX ON others ((a + 1));
CREATE INDEX ON others (a) WHERE a > 100;
ALTER TABLE others ADD UNIQUE (a) DEFERRABLE;
CREATE INDEX ON others (a);
CALL write_file('others', series($$concat_ws(E'\t', a, a, a)$$, 20000));
SELECT built('others', 'others');
SELECT sources('others', 'others', '{"truncate": true, "limit": 9999}');
SELECT sources('others', 'others', '{"truncate": true, "indexes": "insert"}');
SELECT faults('others');
CREATE TABLE zeros (f float8);
CREATE INDEX ON zeros (f);
CALL write_file('zeros', series($$CASE WHEN a = 15000 THEN '-0' ELSE (a % 100)::text END$$, 20000));
SELECT built('zeros', 'zeros');
SELECT faults('zeros');

-- Strings in byte order. The server compresses long ones, and rejects too long ones.
CREATE TABLE strings (a text COLLATE "C" UNIQUE, b bytea, c varchar(40) COLLATE "POSIX", d int);
CREATE INDEX ON strings (b DESC, d);
CREATE INDEX ON strings (c);
CREATE INDEX ON strings (c COLLATE "C", a);
CALL write_file('strings', series($$concat_ws(E'\t', CASE WHEN a % 10 = 0 THEN '\N' ELSE md5(a::text) END, '\\x00' || repeat('00ff', a % 7),
	repeat('c', a % 41), a % 5)$$, 20000));
SELECT built('strings', 'strings');
CALL write_file('more_strings', series($$concat_ws(E'\t', md5((a + 20000)::text), '\\x', a, a)$$, 20000));
CALL write_file('same_strings', series($$concat_ws(E'\t', md5((CASE a WHEN 9 THEN 19 ELSE a + 50000 END)::text), '\\x', a, a)$$, 20000));
CALL write_file('long_strings', series($$concat_ws(E'\t', repeat(md5((a + 50000)::text), CASE a WHEN 9 THEN 30 ELSE 1 END), '\\x', a, a)$$, 20000));
CALL write_file('too_long_strings', series($$concat_ws(E'\t', CASE a WHEN 9 THEN (SELECT string_agg(md5(b::text), '') FROM generate_series(1, 200) b) ELSE a::text END, '\\x', a, a)$$, 20000));
-- Indexes with entries are merged with the new ones: entries of live rows and of dead ones, posting lists, NULLs.
CREATE FUNCTION merged(file text, target regclass, options jsonb DEFAULT '{}') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	result record;
BEGIN
	SELECT * INTO result FROM bulk_load(data_path(file), target, '{"lock": "share", "indexes": "merge"}' || options);
	RETURN NEXT format('%s rows, %s workers', result.rows_loaded, result.workers);
	RETURN QUERY SELECT (i ->> 'method') || ': ' || count(*) FROM jsonb_array_elements(result.indexes) i GROUP BY i ->> 'method' ORDER BY 1;
	RETURN QUERY SELECT 'note: ' || note FROM unnest(result.notes) note;
	RETURN QUERY SELECT faults(target);
END $$;
-- The last leaf of each process's range is not full.
CREATE FUNCTION too_large(target regclass, more int DEFAULT 0) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	index regclass;
	size bigint;
BEGIN
	FOR index IN SELECT indexrelid FROM pg_index WHERE indrelid = target ORDER BY indexrelid::regclass::text LOOP
		size := pg_relation_size(index);
		EXECUTE format('REINDEX INDEX %s', index);
		IF size > pg_relation_size(index) * 1.02 + more * current_setting('block_size')::int THEN
			RETURN NEXT format('%s: %s bytes instead of %s', index, size, pg_relation_size(index));
		END IF;
	END LOOP;
END $$;
CALL write_file('second', lines('(SELECT n, md5(n::text) FROM generate_series(60001, 75000) n)'));
CALL write_file('third', lines('generate_series(75001, 80000) WITH ORDINALITY'));
CALL make('m');
SELECT merged('random', 'm');
SELECT merged('second', 'm');
SELECT too_large('m');
SET pg_bulk.chunk_size = '16kB';
SELECT merged('third', 'm', '{"workers": 3}');
SELECT too_large('m', 3);
-- A key that occurs twice is checked by one process: entries of dead rows, and an error.
CALL write_file('fourth', lines('generate_series(80001, 90000) WITH ORDINALITY'));
CALL write_file('fifth', lines('(SELECT CASE n WHEN 9000 THEN 42 ELSE n + 90000 END, n FROM generate_series(1, 10000) n)'));
SELECT count(*) FROM (SELECT 1 FROM m WHERE id = 42) x;
UPDATE m SET t = t || 'x' WHERE id BETWEEN 100 AND 200;
SELECT rows_loaded, (SELECT array_agg(i ->> 'index' ORDER BY 1) FROM jsonb_array_elements(indexes) i WHERE NOT i ? 'workers')
FROM bulk_load(data_path('fourth'), 'm', '{"workers": 3, "lock": "share", "indexes": "merge"}');
SELECT faults('m');
SELECT error_of($$SELECT bulk_load(data_path('fifth'), 'm', '{"workers": 3, "lock": "share", "indexes": "merge"}')$$);
SELECT error_of($$SELECT bulk_load(data_path('fifth'), 'm', '{"workers": 0, "lock": "share", "indexes": "merge"}')$$);
SELECT faults('m');
RESET pg_bulk.chunk_size;
SELECT merged('more_strings', 'strings');
SELECT error_of($$SELECT bulk_load(data_path('same_strings'), 'strings', '{"lock": "share", "indexes": "merge"}')$$);
SELECT merged('long_strings', 'strings');
SELECT too_large('strings');
-- Compressed strings are not used as packed keys.
SELECT merged('too_long_strings', 'strings', '{"limit": 8}');
SELECT built('long_strings', 'strings');
SELECT error_of($$SELECT bulk_load(data_path('too_long_strings'), 'strings', '{"truncate": true}')$$);
-- Long strings are, as long as the table stores them inline and the index does not compress them.
ALTER TABLE strings ALTER a SET STORAGE EXTERNAL, SET (toast_tuple_target = 8160);
CALL write_file('inline_strings', series($$concat_ws(E'\t', repeat(md5(a::text), CASE a % 1000 WHEN 9 THEN 83 ELSE 1 END), '\\x', a, a)$$, 12000));
SELECT built('inline_strings', 'strings');
CALL write_file('row_strings', series($$concat_ws(E'\t', repeat(md5(a::text), CASE a WHEN 9009 THEN 85 ELSE 1 END), '\\x', a, a)$$, 12000));
SELECT error_of($$SELECT bulk_load(data_path('row_strings'), 'strings', '{"truncate": true}')$$);
-- The strategy is chosen by cost, and never merge without a lock against writers.
CREATE TABLE costs (a int PRIMARY KEY, b int);
INSERT INTO costs SELECT a, a FROM generate_series(-100000, -1) a;
INSERT INTO costs VALUES (1000000, 0);
CALL write_file('few', series($$concat_ws(E'\t', a, a)$$, 1000));
CALL write_file('more', series($$concat_ws(E'\t', a + 1000, a)$$, 20000));
CALL write_file('other', series($$concat_ws(E'\t', a + 30000, a)$$, 20000));
CALL write_file('last', series($$concat_ws(E'\t', a + 60000, a)$$, 20000));
SELECT merged('few', 'costs', '{"indexes": "auto"}');
SELECT merged('more', 'costs', '{"indexes": "auto"}');
SELECT merged('other', 'costs', '{"indexes": "auto", "lock": "online"}');
SELECT merged('last', 'costs', '{"lock": "online"}');
-- Dead rows do not conflict: deleted, updated, of a transaction that rolled back. Live ones do.
CREATE TABLE keys (a int, b int DEFAULT 1, c int);
INSERT INTO keys SELECT a, 1, a % 4 FROM generate_series(1, 1000) a;
CREATE UNIQUE INDEX keys_a ON keys (a);
CREATE INDEX keys_c ON keys (c);
DELETE FROM keys WHERE a BETWEEN 101 AND 200;
UPDATE keys SET a = -a WHERE a BETWEEN 201 AND 300;
UPDATE keys SET b = 2 WHERE a BETWEEN 301 AND 400;
BEGIN;
INSERT INTO keys SELECT a FROM generate_series(1001, 1500) a;
ROLLBACK;
INSERT INTO keys (a) VALUES (NULL), (NULL);
CALL write_file('free', series($$concat_ws(E'\t', CASE WHEN a <= 200 THEN (a + 100)::text WHEN a <= 1000 THEN (a + 800)::text ELSE '\N' END, a, a % 4)$$, 1010));
CALL write_file('live', series($$concat_ws(E'\t', CASE a WHEN 50 THEN 350 ELSE a + 10000 END, a, 0)$$, 100));
CALL write_file('own', series($$concat_ws(E'\t', CASE a WHEN 50 THEN 10077 ELSE a + 10000 END, a, 0)$$, 100));
SELECT error_of($$SELECT bulk_load(data_path('live'), 'keys', '{"lock": "share", "indexes": "merge"}')$$);
SELECT error_of($$SELECT bulk_load(data_path('own'), 'keys', '{"lock": "share", "indexes": "merge"}')$$);
SELECT faults('keys');
SELECT merged('free', 'keys');
SELECT count(*), count(a), count(DISTINCT a), sum(a) FROM keys;
-- Keys without a packed form: the server builds the index.
CREATE TABLE signed (f float8);
INSERT INTO signed VALUES (0), ('-0'), (1);
CREATE INDEX ON signed (f);
CALL write_file('unsigned', series($$a::text$$, 100));
SELECT merged('unsigned', 'signed');
-- A table that the same transaction has filled, and a savepoint.
BEGIN;
CREATE TABLE filled (a int PRIMARY KEY, b int);
SELECT merged('more', 'filled');
SAVEPOINT s;
SELECT merged('few', 'filled');
ROLLBACK TO s;
SELECT faults('filled');
SELECT merged('few', 'filled');
COMMIT;
SELECT faults('filled');
SELECT count(*) FROM filled;

-- Duplicate keys: COPY's message, and no row is left.
CALL write_file('twice', lines('(SELECT CASE n WHEN 29999 THEN 17 ELSE n END, n FROM generate_series(1, 30000) n)'));
SELECT error_of($$SELECT bulk_load(data_path('twice'), 't', '{"truncate": true}')$$);
TRUNCATE t;
SELECT error_of(format('COPY t FROM %L', data_path('twice')));
CALL write_file('twice_strings', series($$concat_ws(E'\t', md5((a % 19999)::text), '\\x', a, a)$$, 20000));
SELECT error_of($$SELECT bulk_load(data_path('twice_strings'), 'strings', '{"truncate": true}')$$);
CREATE TABLE pairs (a int, b uuid, UNIQUE NULLS NOT DISTINCT (a));
CALL write_file('pairs', series($$CASE WHEN a > 19998 THEN '\N' ELSE a::text END || E'\t' || md5(a::text)$$, 20000));
SELECT error_of($$SELECT bulk_load(data_path('pairs'), 'pairs')$$);
ALTER TABLE pairs DROP CONSTRAINT pairs_a_key, ADD UNIQUE (a);
SELECT built('pairs', 'pairs');
DO $$
DECLARE
	t text; c text; s text;
BEGIN
	PERFORM bulk_load(data_path('twice'), 't', '{"truncate": true}');
EXCEPTION WHEN unique_violation THEN
	GET STACKED DIAGNOSTICS t = TABLE_NAME, c = CONSTRAINT_NAME, s = SCHEMA_NAME;
	RAISE NOTICE 'table %, constraint %, schema %', t, c, s;
END $$;

\set ECHO none
-- Spilled keys that are not used after all: they include -0, or the index is in use.
CREATE TABLE spilled (a float8, b int);
CREATE INDEX ON spilled (a);
CREATE INDEX ON spilled (b);
CALL write_file('spilled', series($$concat_ws(E'\t', CASE a WHEN 90000 THEN '-0' ELSE (a::bigint * 7919 % 100000)::text END, a::bigint * 104729 % 100000)$$, 100000));
SET maintenance_work_mem = '1MB';
SELECT rows_loaded, indexes -> 0 ->> 'from', indexes -> 1 ->> 'from' FROM bulk_load(data_path('spilled'), 'spilled', '{"truncate": true, "workers": 0}');
SELECT rows_loaded, indexes -> 0 ->> 'from', indexes -> 1 ->> 'from' FROM bulk_load(data_path('spilled'), 'spilled', '{"truncate": true, "workers": 2}');
BEGIN;
DECLARE reading CURSOR FOR SELECT b FROM spilled WHERE b < 1000 ORDER BY b;
FETCH reading;
SELECT rows_loaded, notes[1] FROM bulk_load(data_path('spilled'), 'spilled', '{"lock": "share", "indexes": "merge", "workers": 0}');
COMMIT;
RESET maintenance_work_mem;
SELECT faults('spilled');
-- A function that is declared STABLE, but writes to the table.
CREATE TABLE liar (a int PRIMARY KEY, b text);
CREATE FUNCTION writes(a int) RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS
	$$ BEGIN IF a = 15000 THEN INSERT INTO liar VALUES (-1, 'written'); END IF; RETURN true; END $$;
CREATE FUNCTION lies(a int) RETURNS boolean LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$ BEGIN RETURN writes(a); END $$;
ALTER TABLE liar ADD CHECK (lies(a));
CALL write_file('liar', series($$concat_ws(E'\t', a, 'x')$$, 20000));
SELECT rows_loaded FROM bulk_load(data_path('liar'), 'liar', '{"workers": 0, "truncate": true}');
SELECT faults('liar');
SELECT error_of('INSERT INTO liar VALUES (-1, $$twice$$)');
-- A function that updates rows of the load: the collected keys are not all that the index needs.
CREATE TABLE liar_updates (a int PRIMARY KEY, b text);
CREATE INDEX ON liar_updates (b);
CREATE FUNCTION updates(a int) RETURNS int LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS
	$$ DECLARE n int; BEGIN UPDATE liar_updates u SET a = -u.a, b = 'updated' WHERE u.a + 0 <= 10; GET DIAGNOSTICS n = ROW_COUNT; RETURN n; END $$;
CREATE FUNCTION lies_updating(a int) RETURNS boolean LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
	IF a = 18000 AND updates(a) <> 10 THEN RAISE 'the rows are not there yet'; END IF;
	RETURN true;
END $$;
ALTER TABLE liar_updates ADD CHECK (lies_updating(a));
-- More pages than one batch lie before row 18000, so the function finds those rows.
CALL write_file('liar', series($$concat_ws(E'\t', a, repeat('x', 700))$$, 20000));
SELECT rows_loaded, (SELECT array_agg(i->>'from') FROM jsonb_array_elements(indexes) i) AS built_from FROM bulk_load(data_path('liar'), 'liar_updates', '{"workers": 0, "truncate": true}');
SELECT faults('liar_updates');
SELECT count(*) FROM liar_updates WHERE b = 'updated';
-- Without track_counts, pg_bulk cannot see changes, and assumes them.
SET track_counts = off;
SELECT rows_loaded, (SELECT array_agg(i->>'from') FROM jsonb_array_elements(indexes) i) AS built_from FROM bulk_load(data_path('liar'), 'liar_updates', '{"workers": 0, "truncate": true}');
RESET track_counts;
SELECT faults('liar_updates');
-- Frozen rows do not show which command inserted them. If one is deleted, the load fails, even if the deletion was rolled back.
CREATE FUNCTION deletes() RETURNS void LANGUAGE plpgsql VOLATILE AS
	$$ BEGIN DELETE FROM frozen; RAISE 'undo'; EXCEPTION WHEN raise_exception THEN NULL; END $$;
CREATE FUNCTION lies_deleting(a int) RETURNS boolean LANGUAGE plpgsql STABLE PARALLEL RESTRICTED AS $$ BEGIN IF a = 18000 THEN PERFORM deletes(); END IF; RETURN true; END $$;
BEGIN;
CREATE TABLE frozen (a int, b text);
CREATE INDEX ON frozen (a);
\set SHOW_CONTEXT never
SELECT rows_loaded FROM bulk_load(data_path('liar'), 'frozen', '{"freeze": true, "where": "lies_deleting(a)"}');
ROLLBACK;
SET client_min_messages = warning;
DROP SCHEMA load_index_build CASCADE;
