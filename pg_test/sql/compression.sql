--
-- Compressed files: results equal those of the decompressed bytes.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema compression
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CREATE TABLE kinds (ending text, name text);
INSERT INTO kinds VALUES ('gz', 'gzip'), ('zst', 'zstd'), ('lz4', 'lz4'), ('bz2', 'bzip2'), ('xz', 'xz');
CREATE FUNCTION path_of(file text) RETURNS text LANGUAGE sql AS $$ SELECT data_path('compressed/' || file) $$;
DO $$
DECLARE
	kind kinds;
BEGIN
	FOR kind IN TABLE kinds LOOP
		EXECUTE format('CREATE FOREIGN TABLE few_%s (id int, word text) SERVER bulk_files OPTIONS (filename %L, format ''csv'')', kind.ending, path_of('few.' || kind.ending));
		EXECUTE format('CREATE FOREIGN TABLE many_%s (id int, word text) SERVER bulk_files OPTIONS (filename %L, format ''csv'')', kind.ending, path_of('many.' || kind.ending));
	END LOOP;
END $$;

-- Two members each, then many; in scans, with one process and with several wanted, twice in a query.
CREATE FUNCTION of_each(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	kind kinds;
	line text;
BEGIN
	FOR kind IN TABLE kinds LOOP
		BEGIN
			FOR line IN EXECUTE replace(replace(query, 'KIND', kind.ending), 'NAME', kind.name) LOOP
				RETURN NEXT kind.name || ': ' || coalesce(line, 'NULL');
			END LOOP;
		EXCEPTION WHEN OTHERS THEN
			RETURN NEXT kind.name || ': ' || SQLSTATE || ' ' || without_path(SQLERRM);
		END;
	END LOOP;
END $$;
SELECT of_each('SELECT string_agg(t::text, '' '' ORDER BY id) FROM few_KIND t');
SELECT of_each('SELECT (count(*), sum(id), min(word), max(word))::text FROM many_KIND');
SELECT of_each('SELECT (SELECT count(*) FROM few_KIND) + (SELECT count(*) FROM few_KIND)');
SELECT of_each('SELECT (SELECT count(*) FROM few_KIND f WHERE f.id <= n)::text FROM generate_series(1, 3) n');
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT plan FROM of_each('EXPLAIN (COSTS OFF) SELECT count(*) FROM many_KIND WHERE id > 0') plan WHERE plan ~ 'Parallel';
SELECT of_each('SELECT count(*) FROM many_KIND WHERE id > 0');
-- A plan with workers is kept, and then the file is replaced.
CALL make_table('swapped', 'id int, word text', $$format 'csv', encoding 'UTF8'$$, repeat(E'1,word\n', 100000));
SET plan_cache_mode = force_generic_plan;
PREPARE kept AS SELECT count(*), sum(id), sum(length(word)) FROM swapped;
EXPLAIN (COSTS OFF) EXECUTE kept
\g |grep -o 'Parallel Foreign Scan.*'
EXECUTE kept;
CALL write_bytes('swapped', pg_read_binary_file(path_of('many.gz')));
EXECUTE kept;
EXECUTE kept;
RESET plan_cache_mode;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
SELECT of_each('SELECT id::text FROM many_KIND LIMIT 1');

-- Loads, INSERTs, ANALYZE, estimates.
CREATE TABLE t (id int, word text);
SELECT of_each($$SELECT (rows_loaded, writer, workers, bytes_read = (pg_stat_file(path_of('few.KIND'))).size, notes)::text FROM bulk_load(path_of('few.KIND'), 't', '{"format": "csv"}')$$);
SELECT of_each($$SELECT (rows_loaded, writer, workers, bytes_read = (pg_stat_file(path_of('many.KIND'))).size, notes)::text FROM bulk_load(path_of('many.KIND'), 't', '{"format": "csv", "compression": "NAME"}')$$);
SELECT id, word, count(*) FROM t GROUP BY id, word ORDER BY id;
SELECT verify_heapam('t');
TRUNCATE t;
INSERT INTO t SELECT * FROM many_zst;
INSERT INTO t SELECT id, word FROM few_gz WHERE id > 2;
SELECT id, word, count(*) FROM t GROUP BY id, word ORDER BY id;
SELECT verify_heapam('t');
ANALYZE few_xz, many_lz4;
SELECT relname, reltuples FROM pg_class WHERE relname IN ('few_xz', 'many_lz4') ORDER BY 1;
CREATE FUNCTION estimate(query text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	RETURN (plan->0->'Plan'->>'Plan Rows')::numeric;
END $$;
SELECT of_each($$SELECT estimate('SELECT * FROM many_KIND') BETWEEN 10000 AND 1000000$$);
SELECT of_each($$SELECT string_agg(line_number || ' ' || message, ', ') FROM bulk_check(path_of('few.KIND'), 't', '{"format": "csv", "null": "x", "columns": ["word", "id"]}')$$);

-- Programs, and files whose compression the option states wrongly.
CREATE FOREIGN TABLE program (id int, word text) SERVER bulk_files OPTIONS (program 'cat', format 'csv');
CREATE FUNCTION cat(file text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
	EXECUTE format('ALTER FOREIGN TABLE program OPTIONS (SET program %L)', 'cat ' || path_of(file));
END $$;
CREATE FUNCTION of_program(query text, OUT result text) LANGUAGE plpgsql AS $$ BEGIN EXECUTE query INTO result; END $$;
SELECT k.name, cat('few.' || ending), of_program($$SELECT string_agg(t::text, ' ' ORDER BY id) FROM program t$$) FROM kinds k;
SELECT k.name, cat('many.' || ending), of_program('SELECT (count(*), sum(id))::text FROM program t') FROM kinds k;
SELECT cat('few.gz');
ALTER FOREIGN TABLE program OPTIONS (ADD compression 'gzip');
SELECT count(*) FROM program;
ALTER FOREIGN TABLE program OPTIONS (SET compression 'none');
SELECT error_of('SELECT count(*) FROM program');
ALTER FOREIGN TABLE program OPTIONS (SET compression 'zstd');
SELECT error_of('SELECT count(*) FROM program');
ALTER FOREIGN TABLE program OPTIONS (SET compression 'brotli');
SELECT bulk_load(path_of('few.gz'), 't', '{"compression": "brotli"}');
SELECT bulk_load(path_of('few.gz'), 't', '{"compression": 1}');
CALL make_table('plain', 'id int, word text', $$format 'csv'$$, E'1,one\n');
TABLE plain;
ALTER FOREIGN TABLE plain OPTIONS (ADD compression 'xz');
SELECT error_of('TABLE plain');
CALL write_file('plain', '');
SELECT error_of('TABLE plain');
ALTER FOREIGN TABLE plain OPTIONS (SET compression 'auto');
TABLE plain;
-- A plain file that begins with the same letters as bzip2 files is not decompressed.
CALL write_file('plain', E'1,one\n');
ALTER FOREIGN TABLE plain ALTER id TYPE text;
CALL write_file('plain', E'BZh9,one\n');
TABLE plain;
CALL write_bytes('plain', '\x1f');
SELECT error_of('TABLE plain');

-- A file that is cut off anywhere but between members is an error, and the rows before
-- the end are not loaded. So is a file with a wrong byte, unless this byte has no effect.
CALL make_table('broken', 'id int, word text', $$format 'csv'$$, '');
CREATE FUNCTION outcome() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	SELECT string_agg(t::text, ' ') INTO result FROM broken t;
	RETURN coalesce(result, 'nothing');
EXCEPTION WHEN OTHERS THEN
	RETURN regexp_replace(SQLERRM, '".*"', '...');
END $$;
ALTER FOREIGN TABLE broken OPTIONS (ADD compression 'auto');
CREATE FUNCTION cut(kind kinds) RETURNS TABLE (outcome text, cuts text) LANGUAGE plpgsql AS $$
DECLARE
	content bytea := pg_read_binary_file(path_of('few.' || kind.ending));
	outcomes text[];
BEGIN
	EXECUTE format('ALTER FOREIGN TABLE broken OPTIONS (SET compression %L)', kind.name);
	FOR n IN 1 .. length(content) - 1 LOOP
		CALL write_bytes('broken', substr(content, 1, n));
		outcomes[n] := outcome();
	END LOOP;
	RETURN QUERY SELECT o, CASE WHEN count(*) < 3 THEN string_agg(n::text, ', ') ELSE 'many' END FROM unnest(outcomes) WITH ORDINALITY x (o, n) GROUP BY o ORDER BY 1;
END $$;
SELECT k.name, c.* FROM kinds k, cut(k) c ORDER BY k.name, outcome;
-- An empty file is an error, too.
CALL write_file('broken', '');
CREATE FUNCTION outcome_of_load(kind text, workers int) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
	RETURN (SELECT rows_loaded FROM bulk_load(data_path('broken'), 't', jsonb_build_object('format', 'csv', 'compression', kind, 'workers', workers)));
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || regexp_replace(SQLERRM, '".*"', '...');
END $$;
SELECT name, outcome_of_load(name, 0), outcome_of_load(name, 0) = outcome_of_load(name, 2) AS by_workers FROM kinds ORDER BY name;
CREATE FUNCTION flip(kind kinds) RETURNS TABLE (outcome text, flips text) LANGUAGE plpgsql AS $$
DECLARE
	content bytea := pg_read_binary_file(path_of('few.' || kind.ending));
	outcomes text[];
BEGIN
	EXECUTE format('ALTER FOREIGN TABLE broken OPTIONS (SET compression %L)', kind.name);
	FOR n IN 0 .. length(content) - 1 LOOP
		CALL write_bytes('broken', set_byte(content, n, get_byte(content, n) # 85));
		outcomes[n + 1] := outcome();
	END LOOP;
	RETURN QUERY SELECT DISTINCT o, CASE WHEN o ~ 'one' THEN 'rows' ELSE 'error' END FROM unnest(outcomes) o ORDER BY 1;
END $$;
SELECT k.name, c.outcome FROM kinds k, flip(k) c WHERE flips = 'rows' ORDER BY 1, 2;
SELECT DISTINCT regexp_replace(c.outcome, k.name, 'KIND') FROM kinds k, flip(k) c WHERE flips = 'error' ORDER BY 1;
-- Skippable zstd frames of any length.
CREATE FUNCTION skipped(n int) RETURNS bytea LANGUAGE sql AS $$ SELECT '\x512a4d18'::bytea || set_byte('\x00000000', 0, n) || decode(repeat('aa', n), 'hex') $$;
CREATE FUNCTION with_skipped(kind text, n int) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
	CALL write_bytes('broken', pg_read_binary_file(path_of('few.' || kind)) || skipped(n) || pg_read_binary_file(path_of('few.' || kind)));
	RETURN n || ' ' || outcome();
END $$;
ALTER FOREIGN TABLE broken OPTIONS (SET compression 'auto');
SELECT with_skipped('lz4', n) FROM generate_series(0, 4) n;
SELECT with_skipped('zst', n) FROM generate_series(0, 4) n;
CALL write_bytes('broken', pg_read_binary_file(path_of('few.lz4')) || skipped(0) || substr(pg_read_binary_file(path_of('few.lz4')), 1, 2));
SELECT outcome();
-- When the reader stops, the decompressing thread ends.
CREATE FUNCTION threads() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	FOR i IN 1 .. 200 LOOP
		SELECT count(*) INTO n FROM pg_ls_dir('/proc/self/task');
		EXIT WHEN n = 1;
		PERFORM pg_sleep(0.05);
	END LOOP;
	RETURN n;
END $$;
SELECT string_agg(pg_read_binary_file(path_of('many.gz')), '') AS large FROM generate_series(1, 100) \gset
CALL write_bytes('broken', :'large');
SELECT id FROM broken LIMIT 1;
SELECT threads();
SET statement_timeout = '100ms';
DO $$ BEGIN PERFORM count(word) FROM broken b, generate_series(1, 1000); EXCEPTION WHEN query_canceled THEN NULL; END $$;
RESET statement_timeout;
SELECT threads();
-- The error names the position at which the file breaks off, behind several complete members.
SELECT count(*) FROM t;
CALL write_bytes('broken', substr(pg_read_binary_file(path_of('many.gz')), 1, 2000));
SELECT error_of($$SELECT bulk_load(data_path('broken'), 't', '{"format": "csv"}')$$);
CALL write_bytes('broken', set_byte(pg_read_binary_file(path_of('many.xz')), 300, 0));
SELECT error_of($$SELECT bulk_load(data_path('broken'), 't', '{"format": "csv"}')$$);
SELECT error_of($$INSERT INTO t SELECT * FROM broken$$);
CALL write_bytes('broken', pg_read_binary_file(path_of('few.zst')) || 'garbage');
SELECT error_of($$SELECT bulk_load(data_path('broken'), 't', '{"format": "csv"}')$$);
SELECT count(*) FROM t;
-- Line numbers count lines of the decompressed bytes.
CALL write_bytes('broken', pg_read_binary_file(path_of('few.gz')));
ALTER FOREIGN TABLE broken OPTIONS (SET compression 'auto');
ALTER FOREIGN TABLE broken ALTER word TYPE int;
SELECT error_of('TABLE broken');
ALTER FOREIGN TABLE broken ALTER word TYPE text;
-- Other encodings.
ALTER FOREIGN TABLE broken OPTIONS (ADD encoding 'LATIN1');
TABLE broken;
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA compression CASCADE;
