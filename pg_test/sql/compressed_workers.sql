--
-- Compressed files that several processes load: the result equals that of one process, and of the uncompressed file.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema compressed_workers
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
SET pg_bulk.chunk_size = '4kB';
CREATE TABLE t (id int, word text);
-- Each compression format.
CREATE FUNCTION of_kind(ending text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	TRUNCATE t;
	SELECT (rows_loaded, workers, bytes_read = (pg_stat_file(data_path('compressed/many.' || ending))).size, notes)::text INTO result
		FROM bulk_load(data_path('compressed/many.' || ending), 't', '{"format": "csv", "workers": 2}');
	RETURN ending || ' ' || result || ' ' || (SELECT (count(*), sum(id), min(word), max(word))::text FROM t);
END $$;
SELECT of_kind(ending) FROM unnest('{gz,zst,lz4,bz2,xz}'::text[]) ending;
-- A file and the same file compressed: equal rows or equal errors, with each chunk size.
CREATE TABLE plain (id int, word text);
CREATE PROCEDURE write_both(content text) LANGUAGE plpgsql AS $$ BEGIN
	CALL write_file('cw_file', content);
	EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'cat >/dev/null; gzip -c "' || data_path('cw_file') || '" >"' || data_path('cw_file.gz') || '"');
END $$;
CREATE FUNCTION differences(options jsonb DEFAULT '{}', chunks text[] DEFAULT '{1kB,256kB}') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	expected text;
	result text;
	size text;
BEGIN
	TRUNCATE plain;
	SELECT string_agg(e, E'\n') INTO expected FROM error_of(format('SELECT bulk_load(%L, ''plain'', %L)', data_path('cw_file'), '{"format": "csv", "workers": 0}' || options)) e;
	RETURN NEXT expected;
	RETURN NEXT (SELECT count(*) FROM plain);
	FOREACH size IN ARRAY chunks LOOP
		PERFORM set_config('pg_bulk.chunk_size', size, true);
		TRUNCATE t;
		SELECT string_agg(replace(e, 'cw_file.gz', 'cw_file'), E'\n') INTO result FROM error_of(format('SELECT bulk_load(%L, ''t'', %L)', data_path('cw_file.gz'), '{"format": "csv", "workers": 2}' || options)) e;
		IF replace(result, 'COPY t', 'COPY plain') IS DISTINCT FROM replace(expected, 'relation "plain"', 'relation "t"') THEN
			RETURN NEXT size || ': ' || result;
		END IF;
		IF EXISTS (TABLE plain EXCEPT ALL TABLE t) OR EXISTS (TABLE t EXCEPT ALL TABLE plain) THEN
			RETURN NEXT size || ': other rows';
		END IF;
	END LOOP;
END $$;
SELECT string_agg(n || ',' || CASE n % 5 WHEN 0 THEN '"two' || E'\n' || 'lines"' WHEN 1 THEN '' ELSE repeat('w', n % 300) END, E'\n') || E'\n' AS content FROM generate_series(1, 5000) n \gset
CALL write_both(:'content');
SELECT differences(chunks => '{64,333,64kB,256kB}');
SELECT differences('{"format": "text"}');
-- The last line has no line end; the file ends within quotes; a row has an error, and another one follows.
CALL write_both(:'content' || '5001,last');
SELECT differences();
CALL write_both(:'content' || '5001,"last');
SELECT differences();
CALL write_both(:'content' || E'5001,one\n5002,x,y\n' || :'content' || E'z,z\n');
SELECT differences();
CALL write_both(:'content' || E'5001,one\nx,y\n' || :'content' || E'1\n');
SELECT differences();
-- The end-of-data marker within the file.
CALL write_both(E'1\tone\n' || repeat(E'2\ttwo\n', 50000) || E'\\.\n' || repeat(E'3\tthree\n', 50000));
SELECT differences('{"format": "text"}');
-- A record that is longer than the data decompressed ahead.
CALL write_both(E'1,one\n2,' || repeat('long', 6000000) || E'\n3,three\n');
SELECT differences(chunks => '{256kB}');
SELECT id, length(word) FROM t ORDER BY id;
-- More rows behind it are read in order: no figure becomes negative.
CALL write_both(:'content' || E'2,' || repeat('long', 6000000) || E'\n' || :'content');
SELECT differences(chunks => '{4kB}');
-- The data decompressed ahead is bounded for every setting.
CREATE FUNCTION ring_size() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$
	SELECT sum(('x' || lpad(m[2], 16, '0'))::bit(64)::bigint - ('x' || lpad(m[1], 16, '0'))::bit(64)::bigint)
	FROM regexp_matches(pg_read_file('/proc/self/maps'), '([0-9a-f]+)-([0-9a-f]+) [^\n]*memfd:pg_bulk', 'g') m
$$;
CREATE TABLE with_size (id int, word text, size bigint DEFAULT ring_size());
CALL write_both(:'content');
SET pg_bulk.memory_limit = '1GB';
SET pg_bulk.chunk_size = '16MB';
SELECT workers > 0 FROM bulk_load(data_path('cw_file.gz'), 'with_size', '{"format": "csv", "workers": 100, "columns": ["id", "word"]}');
SELECT min(size) > 0, max(size) BETWEEN 16 << 20 AND 81 << 20, count(*) FROM with_size;
TRUNCATE with_size;
SET pg_bulk.chunk_size = '1MB';
SELECT workers FROM bulk_load(data_path('cw_file.gz'), 'with_size', '{"format": "csv", "workers": 1, "columns": ["id", "word"]}');
SELECT min(size) > 0, max(size) BETWEEN 16 << 20 AND 17 << 20, count(*) FROM with_size;
RESET pg_bulk.memory_limit;
SET pg_bulk.chunk_size = '4kB';
-- Bad values are skipped or kept as rejects. When the file breaks off, the rows before it are reported first.
CALL write_both(replace(:'content', E'\n3', E'\nx3'));
SELECT differences('{"on_error": "ignore"}');
SELECT load_id AS load FROM bulk_load(data_path('cw_file.gz'), 't', '{"format": "csv", "workers": 2, "on_error": "table"}') \gset
SELECT count(*), min(line_number), max(line_number), min(byte_offset), max(byte_offset) FROM bulk_rejects WHERE load_id = :load;
SELECT load_id AS load FROM bulk_load(data_path('cw_file'), 't', '{"format": "csv", "workers": 0, "on_error": "table"}') \gset
SELECT count(*), min(line_number), max(line_number), min(byte_offset), max(byte_offset) FROM bulk_rejects WHERE load_id = :load;
SELECT differences('{"on_error": "ignore", "reject_limit": 100}');
CALL write_both(:'content' || E'5001,one\n');
CREATE PROCEDURE break_off(n int) LANGUAGE sql AS $$ CALL write_bytes('cw_file.gz', substr(pg_read_binary_file(data_path('cw_file.gz')), 1, length(pg_read_binary_file(data_path('cw_file.gz'))) - n)) $$;
CALL break_off(100);
SELECT regexp_replace(e, 'byte \d+', 'byte N') FROM error_of($$SELECT bulk_load(data_path('cw_file.gz'), 't', '{"format": "csv", "workers": 2}')$$) e WHERE e !~ '^CONTEXT: COPY';
CALL write_both(:'content' || E'x,one\n');
CALL break_off(8);
SELECT error_of($$SELECT bulk_load(data_path('cw_file.gz'), 't', '{"format": "csv", "workers": 2}')$$);
-- A duplicate key is reported with its line.
CREATE TABLE keyed (id int PRIMARY KEY, word text);
CALL write_both(:'content' || E'17,again\n5001,new\n18,again\n');
SELECT error_of($$SELECT bulk_load(data_path('cw_file'), 'keyed', '{"format": "csv", "workers": 0}')$$);
SELECT error_of($$SELECT bulk_load(data_path('cw_file.gz'), 'keyed', '{"format": "csv", "workers": 2}')$$);
SELECT load_id, rows_loaded, rows_duplicate, workers FROM bulk_load(data_path('cw_file.gz'), 'keyed', '{"format": "csv", "workers": 2, "on_duplicate": "keep_old", "on_error": "table"}') \gset
SELECT :rows_loaded, :rows_duplicate, :workers;
SELECT line_number, byte_offset, raw_line FROM bulk_rejects WHERE load_id = :load_id ORDER BY line_number;
SELECT count(*), max(id), max(word) FILTER (WHERE id = 17) FROM keyed;
SELECT bt_index_parent_check('keyed_pkey', true, true);
SELECT verify_heapam('keyed');
TRUNCATE keyed;
SELECT rows_loaded, rows_duplicate FROM bulk_load(data_path('cw_file.gz'), 'keyed', '{"format": "csv", "workers": 2, "on_duplicate": "keep_new"}');
SELECT id, word FROM keyed WHERE id IN (17, 18) ORDER BY id;
SELECT count(*), min(line_number) FROM bulk_check(data_path('cw_file.gz'), 'keyed', '{"format": "csv", "workers": 2}');
-- Serial numbers follow the order of the file; an INSERT.
CREATE TABLE numbered (n serial, id int, word text);
SELECT rows_loaded, workers FROM bulk_load(data_path('cw_file.gz'), 'numbered', '{"format": "csv", "workers": 2, "columns": ["id", "word"]}');
SELECT count(*) FROM (SELECT id, lag(id) OVER (ORDER BY n) AS before FROM numbered) x WHERE id < before;
CREATE FOREIGN TABLE ft (id int, word text) SERVER bulk_files OPTIONS (filename 'x', format 'csv');
DO $$ BEGIN EXECUTE format('ALTER FOREIGN TABLE ft OPTIONS (SET filename %L)', data_path('cw_file.gz')); END $$;
SET pg_bulk.workers = 2;
TRUNCATE t;
INSERT INTO t SELECT id + 1, word FROM ft WHERE id > 10;
SELECT count(*), min(id), max(id) FROM t;
INSERT INTO numbered (id, word) SELECT * FROM ft;
SELECT count(*), count(DISTINCT n) FROM numbered;
RESET pg_bulk.workers;
-- Several processes create rows of one file; a slow function gives each of them time to start.
CREATE FUNCTION slow_pid() RETURNS int LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$ BEGIN PERFORM pg_sleep(0.001); RETURN pg_backend_pid(); END $$;
CREATE TABLE by_process (id int, word text, pid int DEFAULT slow_pid(), CHECK (id % 8 > 0 OR slow_pid() > 0));
SET pg_bulk.chunk_size = '1kB';
SELECT rows_loaded, workers, notes FROM bulk_load(data_path('cw_file.gz'), 'by_process', '{"format": "csv", "workers": 2, "columns": ["id", "word"]}');
SELECT count(DISTINCT pid) > 1 FROM by_process;
-- A file that decompresses to 3 GB can be canceled.
SELECT string_agg(pg_read_binary_file(data_path('compressed/many.zst')), '') AS bomb FROM generate_series(1, 1250) \gset
CALL write_bytes('cw_bomb', :'bomb');
SET statement_timeout = '300ms';
DO $$ BEGIN PERFORM bulk_load(data_path('cw_bomb'), 't', '{"format": "csv", "workers": 2}'); EXCEPTION WHEN query_canceled THEN RAISE NOTICE 'canceled'; END $$;
RESET statement_timeout;
-- No thread and no file descriptor is left.
DO $$ BEGIN
	FOR i IN 1 .. 200 LOOP
		EXIT WHEN (SELECT count(*) FROM pg_ls_dir('/proc/self/task')) = 1;
		PERFORM pg_sleep(0.05);
	END LOOP;
END $$;
SELECT count(*) FROM pg_ls_dir('/proc/self/task');
SELECT count(*) FROM bulk_read('ls -l /proc/' || pg_backend_pid() || '/fd', '{"program": true}') AS t (line text) WHERE line ~ 'memfd';
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA compressed_workers CASCADE;
