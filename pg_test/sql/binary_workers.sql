--
-- COPY's binary format, read by several processes: rows and errors equal those of one process and of COPY.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema binary_workers
\i :helpers
CREATE FUNCTION header() RETURNS bytea LANGUAGE sql AS $$
	SELECT '\x5047434f50590aff0d0a00'::bytea || int4send(0) || int4send(0)
$$;
CREATE FUNCTION row_of(VARIADIC fields bytea[]) RETURNS bytea LANGUAGE sql AS $$
	SELECT int2send(cardinality(fields)::int2) || string_agg(coalesce(int4send(length(f)) || f, int4send(-1)), '' ORDER BY i)
	FROM unnest(fields) WITH ORDINALITY u (f, i)
$$;
-- Rows of an int and a text of all lengths, some NULL.
CREATE FUNCTION rows_of(first int, last int) RETURNS bytea LANGUAGE sql AS $$
	SELECT string_agg(row_of(int4send(i), CASE WHEN i % 7 > 0 THEN convert_to(repeat('ü', i % 31) || i, 'UTF8') END), '' ORDER BY i) FROM generate_series(first, last) i
$$;
-- Loads a file by COPY and by each number of workers in counts, in small chunks, also
-- compressed. Returns the number of rows or the error, and the differences from COPY.
CREATE FUNCTION by_processes(content bytea, definition text DEFAULT 'a int, b text', counts int[] DEFAULT '{0,2}') RETURNS SETOF text LANGUAGE plpgsql SET client_min_messages = warning AS $$
DECLARE
	copys text[];
	ours text[];
	expected text;
	found text;
	name text;
	count int;
	result record;
BEGIN
	CALL write_bytes('bw.bin', content);
	EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'cat >/dev/null; gzip -c "' || data_path('bw.bin') || '" >"' || data_path('bw.bin.gz') || '"');
	DROP SCHEMA IF EXISTS copied, loaded CASCADE;
	CREATE SCHEMA copied;
	CREATE SCHEMA loaded;
	EXECUTE format('CREATE TABLE copied.t (%s)', definition);
	EXECUTE format('CREATE TABLE loaded.t (%s)', definition);
	copys := ARRAY(SELECT error_of(format('COPY copied.t FROM %L (FORMAT binary)', data_path('bw.bin'))));
	SELECT md5(string_agg(t::text, E'\n' ORDER BY t::text)) INTO expected FROM copied.t;
	FOR name, count IN SELECT 'bw.bin', c FROM unnest(counts) c UNION ALL SELECT 'bw.bin.gz', 2 LOOP
		PERFORM set_config('pg_bulk.chunk_size', CASE name WHEN 'bw.bin' THEN '64' ELSE '1kB' END, true);
		TRUNCATE loaded.t;
		BEGIN
			SELECT rows_loaded, workers, bytes_read, notes INTO result FROM bulk_load(data_path(name), 'loaded.t', jsonb_build_object('format', 'binary', 'workers', count, 'writer', 'direct'));
			ours := '{"no error"}';
			IF (result.workers, result.bytes_read) <> (count, (pg_stat_file(data_path(name))).size) OR result.notes <> '{}' THEN
				RETURN NEXT format('%s, %s processes: %s', name, count, result);
			END IF;
		EXCEPTION WHEN OTHERS THEN
			ours := array_remove(ARRAY(SELECT error_of(format('SELECT * FROM bulk_load(%L, ''loaded.t'', ''{"format": "binary", "workers": %s, "writer": "direct"}'')', data_path(name), count))), format('CONTEXT: file "PGB_DATA/%s"', name));
		END;
		SELECT md5(string_agg(t::text, E'\n' ORDER BY t::text)) INTO found FROM loaded.t;
		IF ours <> copys OR found IS DISTINCT FROM expected THEN
			RETURN NEXT format('%s, %s processes: %s, %s', name, count, ours, found IS NOT DISTINCT FROM expected);
		END IF;
		RETURN QUERY SELECT 'corrupt: ' || v::text FROM public.verify_heapam('loaded.t') v;
	END LOOP;
	IF copys = '{"no error"}' THEN
		RETURN QUERY EXECUTE 'SELECT count(*) || '' rows'' FROM copied.t';
	ELSE
		RETURN QUERY SELECT unnest(copys);
	END IF;
END $$;
\set ECHO all
\pset tuples_only
\pset format unaligned
SELECT header() || rows_of(1, 600) AS good, header() || rows_of(1, 599) AS fewer \gset
SELECT by_processes(:'good'::bytea || '\xffff', counts => '{0,1,2,4}');
SELECT by_processes(:'good');
-- The end marker, or a cut part of it, lies at any position of a chunk.
SELECT by_processes(header() || rows_of(1, 200) || row_of('\x00000001', repeat('x', n)::bytea) || '\xffff', counts => '{2}') FROM generate_series(0, 64, 7) n GROUP BY 1;
-- Records that are longer than chunks, and records whose fields are empty.
SELECT by_processes(header() || string_agg(row_of(int4send(i), repeat('long', i * i % 977)::bytea), '' ORDER BY i) || '\xffff') FROM generate_series(1, 100) i;
SELECT by_processes(header() || string_agg(row_of(NULL, ''), '') || '\xffff') FROM generate_series(1, 300) i;
-- Errors behind good records and before more of them: a field count, sizes, values, the marker. The first one is reported.
SELECT by_processes(:'good'::bytea || row_of('\x00000001') || rows_of(602, 900) || '\xffff', counts => '{0,1,2,4}');
SELECT by_processes(:'good'::bytea || '\xfffe' || rows_of(602, 900) || '\xffff');
SELECT by_processes(:'good'::bytea || '\x0002' || '\x00000004' || int4send(601) || '\xfffffffe' || rows_of(602, 900) || '\xffff');
SELECT replace(s, 'string buffer exceeds maximum allowed length (1073741823 bytes)', 'out of memory') FROM by_processes(:'good'::bytea || '\x0002' || '\x00000004' || int4send(601) || '\x3fffffff' || rows_of(602, 900) || '\xffff') s;
SELECT by_processes(:'good'::bytea || '\x0002' || '\x00000004' || int4send(601) || '\x3ffffffe' || rows_of(602, 900) || '\xffff');
SELECT by_processes(:'good'::bytea || row_of('\x000001', 'x') || rows_of(602, 900) || row_of('\x00000001') || '\xffff');
SELECT by_processes(:'good'::bytea || row_of(int4send(601), '\xff') || row_of('\x00000001') || rows_of(603, 900) || '\xffff', counts => '{0,1,2,4}');
SELECT by_processes(:'good'::bytea || row_of('\x00000001') || rows_of(602, 900) || row_of(int4send(601), '\xff') || '\xffff');
SELECT by_processes(:'good'::bytea || '\x0002' || '\x00000003' || '\x000001' || '\xfffffffe' || rows_of(602, 900) || '\xffff');
SELECT by_processes(:'good'::bytea || '\xffff' || rows_of(602, 900) || '\xffff');
SELECT by_processes(:'good'::bytea || '\xffff' || '\x00');
-- An error in the first record, which one process reads before workers start.
SELECT by_processes(header() || row_of('\x00000001') || rows_of(2, 600) || '\xffff', counts => '{0,1,2,4}');
SELECT by_processes(header() || '\x0002' || '\x00000004' || '\x00000001' || '\xfffffffe' || rows_of(2, 600) || '\xffff');
SELECT by_processes(header() || row_of('\x000001', 'x') || rows_of(2, 600) || '\xffff');
-- Files that are cut off at any byte.
SELECT DISTINCT by_processes(:'fewer'::bytea || substring(rows_of(600, 600) FOR n), counts => '{2}') FROM generate_series(0, length(rows_of(600, 600)), 5) n ORDER BY 1;
-- Serial ids ascend in the order of records, in one file and in several. A large file among several is divided.
CREATE TABLE numbered (id serial, a int, b text, line int, path text);
CREATE FUNCTION numbered(pattern text, workers int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	TRUNCATE numbered RESTART IDENTITY;
	SELECT (l.rows_loaded, l.workers)::text INTO result FROM bulk_load(data_path(pattern), 'numbered', jsonb_build_object('format', 'binary', 'workers', workers,
		'columns', '["a", "b", {"column": "path", "source": "filename"}, {"column": "line", "source": "line_number"}]'::jsonb)) l;
	RETURN result || (SELECT (count(*), count(DISTINCT id), sum(a), sum(length(b)), sum(line), min(id), count(*) FILTER (WHERE a = line))::text FROM numbered)
		|| (SELECT count(*) FROM (SELECT path, line, lag(path) OVER w AS path_before, lag(line) OVER w AS line_before FROM numbered WINDOW w AS (ORDER BY id)) o
			WHERE (path, line) < (path_before, line_before));
END $$;
SET pg_bulk.chunk_size = '1kB';
CALL write_bytes('bw.1.bin', header() || rows_of(1, 700) || '\xffff');
CALL write_bytes('bw.2.bin', header() || '\xffff');
CALL write_bytes('bw.3.bin', header() || rows_of(1, 20) || '\xffff');
CALL write_bytes('bw.4.bin', header() || rows_of(1, 1500));
SELECT n, numbered('bw.1.bin', n) FROM unnest('{0,1,2,4}'::int[]) n;
SELECT n, numbered('bw.[1234].bin', n) FROM unnest('{0,1,2,4}'::int[]) n;
CALL write_bytes('bw.3.bin', header() || rows_of(1, 20) || row_of('\x00000001') || '\xffff');
SELECT n, error_of(format('SELECT numbered(''bw.[1234].bin'', %s)', n)) FROM unnest('{0,1,2,4}'::int[]) n;
CALL write_bytes('bw.3.bin', substring(header() FOR 12));
SELECT n, error_of(format('SELECT numbered(''bw.[1234].bin'', %s)', n)) FROM unnest('{0,1,2,4}'::int[]) n;
CALL write_bytes('bw.3.bin', header() || rows_of(1, 1000) || '\x0002' || '\x00000004' || int4send(601) || '\xfffffffe' || rows_of(602, 900) || '\xffff');
SELECT n, error_of(format('SELECT numbered(''bw.[1234].bin'', %s)', n)) FROM unnest('{0,1,2,4}'::int[]) n;
-- Duplicate keys.
CREATE TABLE keyed (a int PRIMARY KEY, b text);
CALL write_bytes('bw.5.bin', header() || rows_of(1, 700) || rows_of(300, 900) || '\xffff');
SELECT n, d, (SELECT (rows_loaded, rows_duplicate) FROM bulk_load(data_path('bw.5.bin'), 'keyed', jsonb_build_object('format', 'binary', 'truncate', true, 'workers', n, 'on_duplicate', d)))
FROM unnest('{0,2}'::int[]) n, unnest('{keep_old,keep_new}'::text[]) d;
SELECT n, error_of(format('SELECT bulk_load(%L, ''keyed'', ''{"format": "binary", "truncate": true, "workers": %s}'')', data_path('bw.5.bin'), n)) FROM unnest('{0,2}'::int[]) n;
-- A load with a limit runs in one process, which counts the rows.
SELECT (rows_loaded, workers) FROM bulk_load(data_path('bw.1.bin'), 'keyed', '{"format": "binary", "truncate": true, "workers": 2, "limit": 5}');
-- Scans.
CREATE FOREIGN TABLE file (a int, b text, line int OPTIONS (source 'line_number')) SERVER bulk_files OPTIONS (filename '?', format 'binary');
DO $do$ BEGIN EXECUTE format('ALTER FOREIGN TABLE file OPTIONS (SET filename %L)', data_path('bw.1.bin')); END $do$;
-- The plans must not depend on the number of processors.
SET pg_bulk.aggregate_processes = 3;
SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
SELECT plan_of('SELECT a, b FROM file WHERE a % 10 = 3') AS plan;
SELECT count(*), sum(a), sum(length(b)) FROM (SELECT a, b FROM file WHERE a % 10 = 3 OFFSET 0) s;
SELECT count(*), sum(a), sum(line), count(b) FROM file WHERE random() < 2;
SELECT plan_of('SELECT count(*), sum(a), count(b) FROM file') AS plan;
SELECT count(*), sum(a), count(b) FROM file;
SET parallel_leader_participation = off;
SELECT count(*), sum(a), count(b) FROM file;
-- One process runs a plan that was made under another client_encoding.
SET plan_cache_mode = force_generic_plan;
PREPARE all_of_it AS SELECT count(*), sum(a), sum(length(b)) FROM file;
EXECUTE all_of_it;
-- A plan that scans the file twice and uses the result of another plan.
PREPARE twice AS SELECT g, (SELECT count(*) FROM file WHERE a > (SELECT min(a) FROM keyed) OFFSET g * 0) FROM generate_series(1, 2) g;
SELECT trim(line) FROM plan_of('EXECUTE twice') line WHERE line ~ 'InitPlan 1|Gather|Parallel';
EXECUTE twice;
SET client_encoding = latin1;
EXECUTE all_of_it;
EXECUTE twice;
SELECT plan_of('SELECT count(*), sum(a), count(b) FROM file') AS plan;
SELECT (rows_loaded, workers) FROM bulk_load(data_path('bw.1.bin'), 'keyed', '{"format": "binary", "truncate": true, "workers": 2}');
SELECT sum(length(b)) FROM keyed;
RESET client_encoding;
EXECUTE all_of_it;
RESET plan_cache_mode;
RESET parallel_leader_participation;
DO $do$ BEGIN EXECUTE format('ALTER FOREIGN TABLE file OPTIONS (SET filename %L)', data_path('bw.3.bin')); END $do$;
SELECT error_of('SELECT count(*), sum(a), count(b) FROM file');
DO $do$ BEGIN EXECUTE format('ALTER FOREIGN TABLE file OPTIONS (SET filename %L)', data_path('bw.[14].bin')); END $do$;
SELECT plan_of('SELECT count(*), sum(a), count(b) FROM file') AS plan;
SELECT count(*), sum(a), count(b) FROM file;
-- Receive functions that workers may not call.
SET client_min_messages = warning;
CREATE TYPE odd;
CREATE FUNCTION odd_in(cstring) RETURNS odd LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int4in';
CREATE FUNCTION odd_out(odd) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int4out';
CREATE FUNCTION odd_recv(internal) RETURNS odd LANGUAGE internal IMMUTABLE STRICT AS 'int4recv';
CREATE FUNCTION odd_send(odd) RETURNS bytea LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE AS 'int4send';
CREATE TYPE odd (INPUT = odd_in, OUTPUT = odd_out, RECEIVE = odd_recv, SEND = odd_send, LIKE = int4);
RESET client_min_messages;
CREATE TABLE odds (a odd, b odd[]);
SELECT header() || string_agg(row_of(int4send(i), int4send(1) || int4send(0) || int4send('odd'::regtype::oid::int) || int4send(1) || int4send(1) || int4send(4) || int4send(i)), '') || '\xffff' AS content FROM generate_series(1, 500) i \gset
CALL write_bytes('bw.6.bin', :'content');
CREATE FUNCTION odd_load() RETURNS text LANGUAGE sql AS $$
	SELECT (rows_loaded, workers)::text FROM bulk_load(data_path('bw.6.bin'), 'odds', '{"format": "binary", "workers": 2, "truncate": true}')
$$;
SELECT odd_load();
DROP TABLE odds;
CREATE TABLE odds (a int, b odd[]);
SELECT odd_load();
ALTER FUNCTION odd_recv PARALLEL SAFE;
SELECT odd_load();
SELECT count(*), sum(a), min(b::text), max(b::text) FROM odds;
CREATE FOREIGN TABLE odd_file (a odd, b odd[]) SERVER bulk_files OPTIONS (filename '?', format 'binary');
DO $do$ BEGIN EXECUTE format('ALTER FOREIGN TABLE odd_file OPTIONS (SET filename %L)', data_path('bw.6.bin')); END $do$;
SELECT plan_of('SELECT count(a), count(b) FROM odd_file') AS plan;
ALTER FUNCTION odd_recv PARALLEL RESTRICTED;
SELECT plan_of('SELECT count(a), count(b) FROM odd_file') AS plan;
SELECT count(a), count(b) FROM odd_file;
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA IF EXISTS copied, loaded CASCADE;
DROP SCHEMA binary_workers CASCADE;
