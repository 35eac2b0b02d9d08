--
-- A scan by several processes: when the planner chooses one, that its rows are those of COPY for every chunk size, and its errors.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema fdw_parallel
\i :helpers
\set ECHO all
SET min_parallel_table_scan_size = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET max_parallel_workers_per_gather = 4;
\pset tuples_only
\pset format unaligned

-- Line ends in quotes, carriage returns, a last line without a line end; 30 pages, a size for four workers.
CREATE PROCEDURE make_lines(name text, options text, content text) LANGUAGE sql AS $$
	CALL make_table(name, 'id int, words text, at timestamptz, n numeric', options, content)
$$;
SELECT 'id,words,at,n' || string_agg(format(E'\r\n%s,"%s ""of"" \r\n%s,\\",2001-02-03 04:05:%s,%s', i, repeat('word ', i % 7),
		CASE WHEN i % 3 = 0 THEN E'\r\n' END, i % 60, CASE WHEN i % 5 > 0 THEN i / 7.0 END), '') AS content
	FROM generate_series(1, 3000) i \gset
CALL make_lines('lines', $$format 'csv', header 'match'$$, :'content');
SELECT data_path('lines') AS path \gset
CREATE TABLE loaded (LIKE lines);
COPY loaded FROM :'path' (FORMAT csv, HEADER match);

CREATE FUNCTION plans_workers(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY SELECT l FROM plan_of(statement) l WHERE l ~ 'Workers|Gather|Foreign Scan';
END $$;
-- The plans must not depend on the number of processors.
SET pg_bulk.aggregate_processes = 8;
SELECT plan_of('SELECT count(*) FROM lines');
-- The rows in which a scan and a table differ. An empty difference is one row.
CREATE FUNCTION differences(expected text DEFAULT 'loaded', scan text DEFAULT 'SELECT * FROM lines') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	found bigint;
BEGIN
	EXECUTE 'CREATE TEMPORARY TABLE scanned AS ' || scan;
	EXECUTE format('SELECT count(*) FROM ((SELECT * FROM scanned EXCEPT ALL SELECT * FROM %1$s)
		UNION ALL (SELECT * FROM %1$s EXCEPT ALL SELECT * FROM scanned)) d', expected) INTO found;
	EXECUTE format('SELECT CASE WHEN %s = 0 THEN count(*) || '' alike'' ELSE ''%1$s differ'' END FROM scanned', found) INTO scan;
	DROP TABLE scanned;
	RETURN scan;
END $$;
CREATE FUNCTION all_ways(expected text DEFAULT 'loaded', scan text DEFAULT 'SELECT * FROM lines') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	outcomes text[] := '{}';
BEGIN
	FOR workers IN 0 .. 4 LOOP
		PERFORM set_config('max_parallel_workers_per_gather', workers::text, true);
		FOR i IN 1 .. 2 LOOP
			PERFORM set_config('pg_bulk.chunk_size', ('{1,100,1000,262144,1,65536}'::text[])[workers + i], true);
			PERFORM set_config('parallel_leader_participation', (i - 1)::text, true);
			outcomes := outcomes || differences(expected, scan);
		END LOOP;
	END LOOP;
	RETURN QUERY SELECT DISTINCT o FROM unnest(outcomes) o;
END $$;
SELECT all_ways();
SELECT all_ways('(SELECT id, n FROM loaded WHERE id % 3 = 1) s', 'SELECT id, n FROM lines WHERE id % 3 = 1');
-- No process but the leader.
SET max_parallel_workers = 0;
SELECT all_ways();
RESET max_parallel_workers;
-- No worker can start, and leader participation is off: the leader reads nevertheless.
SET parallel_leader_participation = off;
SET max_parallel_workers = 0;
SELECT differences();
RESET max_parallel_workers;
RESET parallel_leader_participation;
-- The counts of all processes are added up, and so are the bytes that they read.
SELECT sum(id), count(n), count(*) FROM lines;
CREATE FUNCTION bytes_read(statement text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, FORMAT JSON) ' || statement INTO plan;
	RETURN substring(plan::text FROM '"Bytes Read": (\d+)');
END $$;
SELECT bytes_read('SELECT count(*) FROM lines') >= (pg_stat_file(:'path')).size;
SET parallel_leader_participation = off;
SELECT bytes_read('SELECT count(*) FROM lines') >= (pg_stat_file(:'path')).size;
RESET parallel_leader_participation;

-- Tiny chunks from here on.
SET pg_bulk.chunk_size = 1;
-- Rescans; and scans that stop early.
SET enable_material = off;
SELECT plans_workers('SELECT g, c FROM generate_series(1, 3) g LEFT JOIN (SELECT count(*) c, sum(id) FROM lines) s ON true');
SELECT g, s.* FROM generate_series(1, 3) g LEFT JOIN (SELECT count(*), sum(id) FROM lines) s ON true;
SELECT bytes_read('SELECT g, c FROM generate_series(1, 3) g LEFT JOIN (SELECT count(*) c FROM lines) s ON true') >= 3 * (pg_stat_file(:'path')).size;
RESET enable_material;
SELECT plans_workers('SELECT id FROM lines LIMIT 10');
SELECT count(*) FROM (SELECT id FROM lines LIMIT 10) l;
SELECT count(*) FROM generate_series(1, 3) g, LATERAL (SELECT g, id FROM (SELECT id FROM lines LIMIT 2) l OFFSET 0) l;
SELECT exists(SELECT FROM lines WHERE id = 2999), exists(SELECT FROM lines WHERE id = 0);
-- Joins.
SET enable_mergejoin = off;
SELECT plans_workers('SELECT count(*) FROM lines a JOIN lines b USING (id)');
SELECT count(*), sum(a.n - b.n) FROM lines a JOIN lines b USING (id);
CREATE INDEX ON loaded (id);
SET enable_hashjoin = off;
SELECT count(*), sum(a.n - b.n) FROM lines a JOIN loaded b USING (id) WHERE a.id < 500;
RESET enable_hashjoin;
RESET enable_mergejoin;
-- Sorted in the workers.
SELECT plans_workers('SELECT id FROM lines ORDER BY words, id');
SELECT array_agg(id) FROM (SELECT id FROM lines ORDER BY words DESC, id LIMIT 5) s;
-- Partitions.
CREATE TABLE parts (id int, words text, at timestamptz, n numeric) PARTITION BY LIST (n);
CREATE TABLE part_1 PARTITION OF parts FOR VALUES IN (-1);
ALTER TABLE parts ATTACH PARTITION lines DEFAULT;
INSERT INTO parts (id, n) SELECT -i, -1 FROM generate_series(1, 1000) i;
SELECT count(*), sum(id) FROM parts;
ALTER TABLE parts DETACH PARTITION lines;
-- A kept plan; a cursor, for which core uses no workers.
PREPARE kept AS SELECT count(*), sum(n) FROM lines;
EXECUTE kept;
EXECUTE kept;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM lines;
FETCH 3 FROM c;
COMMIT;
-- A role that may read the table may read the file, in workers, too.
GRANT USAGE ON SCHEMA fdw_parallel TO pg_monitor;
GRANT SELECT ON lines TO pg_monitor;
SET ROLE pg_monitor;
SELECT plans_workers('SELECT count(*) FROM lines');
SELECT count(*), sum(id) FROM lines;
RESET ROLE;
-- Workers use the session's settings.
SET timezone = 'Asia/Tokyo';
SELECT min(at), max(at) FROM lines WHERE id % 7 < 6;
RESET timezone;

-- Header lines and skipped rows come once. Text, with an end-of-data marker anywhere.
SELECT E'1\n2\n' || string_agg(format(E'%s\ta\\\nb\t\\N\t%s\n', i, i), '') AS content FROM generate_series(1, 900) i \gset
CALL make_lines('skipped', $$header '2', skip '3'$$, :'content');
SELECT count(*), sum(id), sum(n), min(words) FROM skipped;
RESET pg_bulk.chunk_size;
SELECT count(*), sum(id), sum(n), min(words) FROM skipped;
SELECT count(*) FROM skipped;
SET pg_bulk.chunk_size = 1;
SELECT string_agg(CASE i WHEN 700 THEN E'\\.\n' ELSE format(E'%s\t%s\t\\N\t%s\n', i, repeat('\', i % 4 * 2), i) END, '') AS content
	FROM generate_series(1, 900) i \gset
CALL make_lines('ends', '', :'content');
SELECT count(*), sum(id), count(DISTINCT words) FROM ends;
-- Empty files, and files of a few bytes.
CALL make_lines('little', $$format 'csv', header '1'$$, '');
SELECT plans_workers('SELECT count(*) FROM little');
SELECT count(*) FROM little;
CALL write_file('little', E'id\n');
SELECT count(*) FROM little;
CALL write_file('little', E'id\n1,,,');
SELECT count(*) FROM little;
CALL write_file('little', E'id\n1,,,\n2,,,');
SELECT count(*), sum(id) FROM little;

-- Errors name the right line, in the leader and in a worker.
CREATE FUNCTION lines_with(line int, bad text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(CASE WHEN i = line THEN bad ELSE format(E'%s,"two\nlines",,', i) END, E'\n') || E'\n' FROM generate_series(1, 2000) i
$$;
CREATE FUNCTION errors_of(line int, bad text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	said text;
	outcomes text[] := '{}';
BEGIN
	CALL write_file('wrong', lines_with(line, bad));
	FOR workers IN 0 .. 4 LOOP
		PERFORM set_config('max_parallel_workers_per_gather', workers::text, true);
		PERFORM set_config('parallel_leader_participation', (workers % 2)::text, true);
		PERFORM set_config('pg_bulk.chunk_size', ('{1,262144}'::text[])[workers % 2 + 1], true);
		said := string_agg(e, E'\n') FROM error_of('SELECT count(id) FROM wrong') e WHERE e <> 'CONTEXT: parallel worker';
		outcomes := outcomes || said;
	END LOOP;
	RETURN QUERY SELECT DISTINCT o FROM unnest(outcomes) o;
END $$;
CALL make_lines('wrong', $$format 'csv'$$, '');
SELECT errors_of(1, 'x,,,');
SELECT errors_of(1900, 'x,,,');
SELECT errors_of(1900, '1900,,');
SELECT errors_of(1900, '1900,,,,');
SELECT errors_of(2000, '"2000,,,');
-- Columns that the query does not need are checked as far as COPY would check before it converts anything.
CREATE FUNCTION text_with(bad text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(CASE i WHEN 600 THEN bad ELSE format(E'%s\t\\x41\t\\N\t\\N', i) END, E'\n') || E'\n' FROM generate_series(1, 900) i
$$;
CALL make_lines('wrong', '', text_with(E'600\t\\xff\t\\N\t\\N'));
SET max_parallel_workers_per_gather = 0;
RESET pg_bulk.chunk_size;
SELECT e FROM error_of('SELECT count(*) FROM wrong') e WHERE e <> 'CONTEXT: parallel worker';
CALL write_file('wrong', text_with(E'600\t\\N\t\\N'));
SELECT e FROM error_of('SELECT count(*) FROM wrong') e WHERE e <> 'CONTEXT: parallel worker';
CALL write_file('wrong', text_with(E'x\ty\tz\t\\N'));
SELECT count(*) FROM wrong;
SELECT e FROM error_of('SELECT id FROM wrong') e WHERE e <> 'CONTEXT: parallel worker';
SELECT count(*), sum(n), min(words) FROM wrong WHERE words = 'A';
SELECT e FROM error_of('SELECT id FROM wrong WHERE words = $$y$$') e WHERE e <> 'CONTEXT: parallel worker';
SET max_parallel_workers_per_gather = 4;
SET pg_bulk.chunk_size = 1;
ALTER FOREIGN TABLE wrong OPTIONS (ADD format 'csv');
SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker';
-- Errors that are caught, in one transaction; later scans are not affected.
CALL write_file('wrong', lines_with(1000, '1000,,'));
BEGIN;
SELECT count(*) FROM error_of('SELECT count(id) FROM wrong') e WHERE e <> 'CONTEXT: parallel worker';
SELECT count(*) FROM lines;
COMMIT;
SELECT differences();
-- Any scan of the query may be the one that is canceled.
\set SHOW_CONTEXT never
SET statement_timeout = '20ms';
SELECT count(*) FROM lines a JOIN lines b ON a.words <> b.words;
RESET statement_timeout;
\set SHOW_CONTEXT errors
SELECT count(*) FROM lines;

-- Read by one process: input that is not a regular file, options that count or skip rows, converted encodings, functions that workers may not call.
SET client_min_messages = warning;
SELECT format('cat %s', :'path') AS command \gset
CREATE FOREIGN TABLE program (id int, words text, at timestamptz, n numeric) SERVER bulk_files OPTIONS (program :'command', format 'csv', header 'true');
SELECT plans_workers('SELECT count(*) FROM program');
ALTER FOREIGN TABLE lines OPTIONS (ADD "limit" '2000');
SELECT plans_workers('SELECT count(*) FROM lines');
ALTER FOREIGN TABLE lines OPTIONS (DROP "limit", ADD on_error 'ignore');
SELECT plans_workers('SELECT count(*) FROM lines');
ALTER FOREIGN TABLE lines OPTIONS (DROP on_error, ADD encoding 'latin1');
SELECT plans_workers('SELECT count(*) FROM lines');
ALTER FOREIGN TABLE lines OPTIONS (DROP encoding);
SET client_encoding = latin1;
SELECT plans_workers('SELECT count(*) FROM lines');
-- Another encoding than at planning: the first process reads all.
SELECT differences();
SET client_encoding = utf8;
SET plan_cache_mode = force_generic_plan;
PREPARE kept_on AS SELECT count(*), sum(id), min(words COLLATE "C") FROM lines;
EXECUTE kept_on;
SET client_encoding = latin1;
EXECUTE kept_on;
RESET client_encoding;
RESET plan_cache_mode;
CREATE FUNCTION is_fine(int) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN $1 > 0; END';
CREATE DOMAIN fine AS int CHECK (is_fine(VALUE));
ALTER FOREIGN TABLE lines ALTER id TYPE fine;
SELECT plans_workers('SELECT count(*) FROM lines');
ALTER FUNCTION is_fine PARALLEL SAFE;
SELECT plans_workers('SELECT count(*) FROM lines');
SELECT count(*), sum(id) FROM lines;
RESET min_parallel_table_scan_size;
SELECT plans_workers('SELECT count(*) FROM lines');

\set ECHO none
SET client_min_messages = warning;
REVOKE USAGE ON SCHEMA fdw_parallel FROM pg_monitor;
DROP SCHEMA fdw_parallel CASCADE;
