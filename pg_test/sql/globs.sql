--
-- Patterns and directories: several files in one load. The oracle is a loop of COPY in the order of their names.
--
\set ECHO none
-- The HINT of rejected rows has the number of the load, which depends on earlier tests.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema globs
\i :helpers
\! rm -rf "$PGB_DATA/globs"; mkdir -p "$PGB_DATA/globs/inner.csv" "$PGB_DATA/globs_empty"
\set ECHO all
\pset tuples_only
\pset format unaligned

-- Line ends of all kinds, a byte order mark, a last line without a line end, empty files, quoted line ends.
CALL write_file('globs/a-1.csv', E'1,one\n2,"two\nlines"\n3,three');
CALL write_file('globs/a-10.csv', E'4,four\r\n5,five\r\n');
CALL write_file('globs/a-2.csv', '');
CALL write_file('globs/b [1].csv', E'\uFEFF6,six\r7,seven');
CALL write_file('globs/B.csv', E'8,eight\n');
CALL write_file('globs/.hidden.csv', E'9,hidden\n');
CALL write_file('globs/c.txt', E'10,ten\n');
\! gzip -c "$PGB_DATA/globs/B.csv" > "$PGB_DATA/globs/b-packed.csv.gz"

CREATE TABLE t (id int, word text);
CREATE TABLE copied (LIKE t);
CREATE FUNCTION loaded(pattern text, options text DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
	SELECT (rows_loaded, bytes_read, writer, workers, notes)::text
	FROM bulk_load(data_path(pattern), 't', '{"format": "csv"}'::jsonb || options::jsonb)
$$;
SELECT loaded('globs/*.csv*', '{"encoding": "UTF8"}');
SELECT * FROM t;
SELECT verify_heapam('t');
TRUNCATE t;
-- A directory: all files in it, except directories and hidden files.
SELECT loaded('globs', '{"workers": 0}');
SELECT loaded('globs/', '{"writer": "buffered"}');
SELECT id, count(*) FROM t GROUP BY id ORDER BY id;
TRUNCATE t;
-- A path that exists names this file, even if it contains pattern characters.
SELECT loaded('globs/b [1].csv');
SELECT loaded('globs/b [[]1].csv');
SELECT loaded('globs/[!c]-?.csv');
SELECT id, count(*) FROM t GROUP BY id ORDER BY id;
TRUNCATE t;
SELECT loaded('globs/*', '{"skip": 1, "limit": 4, "where": "id <> 4"}');
SELECT id FROM t;
TRUNCATE t;
-- Nothing matches.
SELECT error_of($$SELECT loaded('globs/none*')$$);
SELECT error_of($$SELECT loaded('globs/inner*')$$);
SELECT error_of($$SELECT loaded('globs_none/*.csv')$$);
SELECT error_of($$SELECT loaded('globs_empty')$$);

-- A long search can be canceled; backslashes, and path components without a pattern.
\! for i in 1 2 3 4 5 6 7 8; do mkdir -p "$PGB_DATA/globs_walk/$i"; done; echo 1,x >"$PGB_DATA/globs_walk/7/a*b"; echo 2,y >"$PGB_DATA/globs_walk/7/ab"
SELECT loaded('globs_walk/*/a*');
SELECT loaded('globs_walk/[6]/../7/a\*b');
SELECT loaded('globs_walk/?/a\*[b]');
SELECT loaded('globs_wal\k/7/a?b');
SELECT error_of($$SELECT loaded('globs_walk/7/a*/')$$);
TABLE t;
TRUNCATE t;
SET statement_timeout = '100ms';
DO $$ BEGIN PERFORM loaded('globs_walk' || repeat('/*/..', 30) || '/*/a'); EXCEPTION WHEN query_canceled THEN RAISE NOTICE 'canceled'; END $$;
RESET statement_timeout;
-- A search that finds too many files fails early, also in links that form a loop.
\! mkdir -p "$PGB_DATA/globs_loop"; cd "$PGB_DATA/globs_loop"; seq 1000 | xargs touch; for i in $(seq 33); do ln -sfn . l$i; done
SET statement_timeout = '30s';
SELECT error_of($$SELECT loaded('globs_loop' || repeat('/l*', 20) || '/*')$$);
RESET statement_timeout;
-- A name in a directory that is exactly a component of the pattern is the only match, whatever characters it has.
\! mkdir -p "$PGB_DATA/globs_named/in [old]" "$PGB_DATA/globs_named/in o"; cd "$PGB_DATA/globs_named"; echo 1,x >"in [old]/x[1].csv"; echo 2,y >"in [old]/x1.csv"; echo 3,z >"in o/x1.csv"
SELECT loaded('globs_named/in [old]/*.csv');
SELECT loaded('globs_named/in [old]/x[1].csv');
SELECT loaded('globs_named/in \[old]/x\[1].csv');
SELECT loaded('globs_named/in [[]old]/x[1].cs?');
SELECT loaded('globs_named/in [nop]/x[1].csv');
TABLE t;
TRUNCATE t;
CREATE FUNCTION sniffed_as(pattern text) RETURNS text LANGUAGE sql AS $$ SELECT substring(s::text FROM 'CREATE TABLE [\\"]*([^\\"(]*)') FROM bulk_sniff(data_path(pattern)) s $$;
SELECT sniffed_as('globs_named/in [old]/x[1].csv'), sniffed_as('globs_named/in [old]'), sniffed_as('globs_named/in [old]/x\[1].csv'), sniffed_as('globs_named/in o/**/x[12].csv');
-- Two asterisks: directories at any depth, each file once, without links to directories and hidden directories.
\! mkdir -p "$PGB_DATA/globs_deep/a/a/b" "$PGB_DATA/globs_deep/c/.hidden"; cd "$PGB_DATA/globs_deep"; for i in . a a/a a/a/b c c/.hidden; do echo "1,$i" >$i/x.csv; done; echo 2,y >a/y.txt; ln -sfn .. a/loop; ln -sfn a l
CREATE FUNCTION deep(pattern text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	TRUNCATE t;
	PERFORM loaded('globs_deep/' || pattern);
	RETURN QUERY SELECT word FROM t ORDER BY word COLLATE "C";
END $$;
SELECT string_agg(x, ' ') FROM deep('**/x.csv') x;
SELECT string_agg(x, ' ') FROM deep('**/*.csv') x;
SELECT string_agg(x, ' ') FROM deep('**') x;
SELECT string_agg(x, ' ') FROM deep('**/a/**/x.csv') x;
SELECT string_agg(x, ' ') FROM deep('**/a/**/**/b/*') x;
SELECT string_agg(x, ' ') FROM deep('l/**/x*') x;
SELECT string_agg(x, ' ') FROM deep('c**/x.csv') x;
SELECT error_of($$SELECT deep('**/z*')$$);
SELECT error_of($$SELECT deep('x.csv/**')$$);
\! chmod 0 "$PGB_DATA/globs_deep/a/a/b"
SELECT error_of($$SELECT deep('**/x.csv')$$);
\! chmod 700 "$PGB_DATA/globs_deep/a/a/b"
TRUNCATE t;
-- A file that was removed, or a link to a missing file, is skipped; a file that cannot be examined is an error.
\! mkdir -p "$PGB_DATA/globs_stat/open" "$PGB_DATA/globs_stat/closed"; cd "$PGB_DATA/globs_stat"; echo 1,x | tee open/1 >closed/1; ln -sfn nothing open/2; ln -sfn 3 open/3
SELECT loaded('globs_stat/open/*');
SELECT loaded('globs_stat/*/1');
\! chmod 0 "$PGB_DATA/globs_stat/closed"
SELECT error_of($$SELECT loaded('globs_stat/*/1')$$);
\! chmod 700 "$PGB_DATA/globs_stat/closed"
TRUNCATE t;

-- The error for a bad line names its file, and its line in this file. No file is loaded.
CALL write_file('globs/m1.bad', E'id,word\n1,a\n2,b\n');
CALL write_file('globs/m2.bad', E'id,word\n');
CALL write_file('globs/m3.bad', E'id,word\n3,c\nx,d\n5,e\n');
CALL write_file('globs/m4.bad', E'id,word\ny,f\n');
SELECT error_of($$SELECT loaded('globs/*.bad', '{"header": true, "workers": 0}')$$);
SELECT error_of($$SELECT loaded('globs/*.bad', '{"header": true, "workers": 2}')$$);
SELECT error_of($$SELECT loaded('globs/*.bad', '{"header": true, "writer": "buffered"}')$$);
SELECT error_of($$SELECT loaded('globs/*.bad', '{"header": "match", "workers": 2, "columns": ["word", "id"]}')$$);
SELECT count(*) FROM t;
SELECT loaded('globs/*.bad', '{"header": true, "on_error": "table", "workers": 2}');
SELECT loaded('globs/*.bad', '{"header": true, "on_error": "table", "writer": "buffered"}');
SELECT error_of($$SELECT loaded('globs/*.bad', '{"header": true, "on_error": "table", "reject_limit": 1, "workers": 2}')$$);
SELECT without_path(path), line_number, byte_offset, column_name, raw_line FROM bulk_rejects WHERE target = 'globs.t' ORDER BY load_id, 1, 2;
SELECT without_path(path), line_number, column_name, raw_line FROM bulk_check(data_path('globs/*.bad'), 't', '{"format": "csv", "header": true}');
TRUNCATE t;

-- The end-of-data marker ends its file, even if another process reads the bytes behind it.
\! mkdir -p "$PGB_DATA/globs_marker"
CALL write_file('globs_marker/1', E'1\ta\n');
CALL write_file('globs_marker/2', E'2\tb\n\\.\n3\tc\n');
CALL write_file('globs_marker/3', E'4\td\n');
CALL write_file('globs_marker/4', repeat(E'5\te\n', 3000) || E'\\.\n' || repeat(E'6\tf\n', 3000));
CALL write_file('globs_marker/5', E'7\tg');
CREATE FUNCTION marked(options text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	TRUNCATE t;
	PERFORM bulk_load(data_path('globs_marker'), 't', options::jsonb);
	RETURN (SELECT string_agg(id || ' ' || count, ', ' ORDER BY id) FROM (SELECT id, count(*) FROM t GROUP BY id) x);
END $$;
SELECT marked('{"workers": 0}');
SELECT marked('{"writer": "buffered"}');
SET pg_bulk.chunk_size = 4000;
SELECT marked('{"workers": 2}');
SELECT marked('{"workers": 3, "on_error": "table"}');
RESET pg_bulk.chunk_size;
TRUNCATE t;

-- Duplicates: the order of the files decides which row is first.
CALL write_file('globs/1.dup', E'1,a\n2,b\n');
CALL write_file('globs/2.dup', E'2,c\n3,d\n3,e\n');
CALL write_file('globs/3.dup', E'4,f\n1,g\n');
ALTER TABLE t ADD PRIMARY KEY (id);
SELECT error_of($$SELECT loaded('globs/*.dup', '{"workers": 0}')$$);
SELECT error_of($$SELECT loaded('globs/*.dup', '{"workers": 2}')$$);
SELECT loaded('globs/*.dup', '{"on_duplicate": "keep_old", "on_error": "table", "workers": 2}');
SELECT * FROM t ORDER BY id;
SELECT without_path(path), line_number, raw_line FROM bulk_rejects WHERE target = 'globs.t' AND message ~ 'dupl' ORDER BY load_id, 1, 2;
TRUNCATE t;
SELECT loaded('globs/*.dup', '{"on_duplicate": "keep_new", "workers": 2}');
SELECT * FROM t ORDER BY id;
SELECT verify_heapam('t');
SELECT bt_index_parent_check('t_pkey', true, true);

-- Jobs: one for all files, or one for each file that exists now.
CREATE TABLE queued (id int, word text);
SELECT bulk_enqueue(data_path('globs/*.dup'), 'queued', '{"format": "csv"}') AS job \gset
SELECT bulk_wait(:job);
SELECT bulk_enqueue(data_path('globs/*.dup'), 'queued', '{"format": "csv", "each_file": true}') AS job \gset
SELECT bulk_wait(job_id) FROM bulk_jobs WHERE target LIKE '%queued' ORDER BY job_id;
SELECT without_path(path), rows_loaded, bytes_read FROM bulk_jobs WHERE target LIKE '%queued' ORDER BY job_id;
SELECT bulk_enqueue(data_path('globs/b [1].csv'), 'queued', '{"format": "csv", "each_file": true}') AS job \gset
SELECT bulk_wait(:job);
SELECT count(*), count(DISTINCT id) FROM queued;
SELECT error_of($$SELECT loaded('globs/*.dup', '{"each_file": true}')$$);
SELECT error_of($$SELECT bulk_enqueue('x*', 'queued', '{"each_file": true, "truncate": true}')$$);
-- Only the hint of bulk_enqueue names this option.
SELECT error_of($$SELECT bulk_enqueue('x*', 'queued', '{"each_fil": true}')$$);
SELECT error_of($$SELECT loaded('globs/*.dup', '{"each_fil": true}')$$);
SELECT error_of($$SELECT bulk_enqueue(data_path('globs/none*'), 'queued', '{"each_file": true}')$$);
DROP TABLE t;

-- Foreign tables.
CREATE FUNCTION make_foreign(name text, pattern text, columns text, options text DEFAULT '') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE FOREIGN TABLE %I (%s) SERVER bulk_files OPTIONS (filename %L, format ''csv'', encoding ''UTF8''%s)', name, columns, data_path(pattern), options);
END $$;
SELECT make_foreign('ft', 'globs/*.csv*', 'id int, word text');
SELECT * FROM ft;
SELECT plan_of('SELECT * FROM ft');
SELECT plan_of('SELECT * FROM ft WHERE id > 2', 'COSTS OFF, ANALYZE, TIMING OFF, SUMMARY OFF');
SELECT id, (SELECT count(*) FROM ft f WHERE f.id <= ft.id) FROM ft;
SELECT count(*), sum(id), max(word) FROM ft;
ANALYZE ft;
SELECT reltuples FROM pg_class WHERE relname = 'ft';
CREATE TABLE t (id int, word text);
SELECT plan_of('INSERT INTO t SELECT * FROM ft');
INSERT INTO t SELECT * FROM ft;
INSERT INTO t SELECT id + 10, upper(word) FROM ft WHERE id > 5;
SELECT * FROM t;
TRUNCATE t;
SELECT make_foreign('bad', 'globs/*.bad', 'id int, word text', $$, header 'true'$$);
SELECT error_of('SELECT * FROM bad');
SELECT error_of('INSERT INTO t SELECT * FROM bad');
SELECT make_foreign('matched', 'globs/*.bad', 'id int, wort text', $$, header 'match'$$);
SELECT error_of('SELECT * FROM matched');
SELECT make_foreign('none', 'globs/*.none', 'id int');
EXPLAIN (COSTS OFF) SELECT count(*) FROM none
\g |grep -v File
SELECT error_of('SELECT * FROM none');
-- A cursor continues when the subtransaction in which it opened the next file is rolled back.
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM ft;
FETCH 1 FROM c;
SAVEPOINT s;
FETCH 4 FROM c;
ROLLBACK TO s;
FETCH ALL FROM c;
COMMIT;
-- Files that appear later are not read; files that disappear are an error.
\! mkdir -p "$PGB_DATA/globs_moving"; rm -f "$PGB_DATA"/globs_moving/*; cd "$PGB_DATA/globs_moving"; echo 1 >1; echo 2 >2; echo 3 >3
SELECT make_foreign('moving', 'globs_moving', 'id int');
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM moving;
DECLARE d CURSOR FOR SELECT id FROM moving;
FETCH 1 FROM c;
FETCH 1 FROM d;
\! cd "$PGB_DATA/globs_moving"; echo 4 >4
FETCH ALL FROM c;
\! cd "$PGB_DATA/globs_moving"; mv 4 2
\set VERBOSITY sqlstate
FETCH ALL FROM d;
ROLLBACK;
TABLE moving;
BEGIN;
DECLARE d CURSOR FOR SELECT id FROM moving;
FETCH 1 FROM d;
\! rm "$PGB_DATA/globs_moving/3"
FETCH ALL FROM d;
ROLLBACK;
\set VERBOSITY terse
-- The inner side of a join reads its rows again, in a subtransaction.
SELECT string_agg(a.id || '-' || b.id, ' ') FROM ft a JOIN ft b ON a.id = b.id + 1;

-- Only paths below allowed directories may be opened, or shown in messages.
\! mkdir -p "$PGB_DATA/globs_allowed"; cp "$PGB_DATA/globs/a-1.csv" "$PGB_DATA/globs_allowed/1.csv"; ln -sf ../globs/B.csv "$PGB_DATA/globs_allowed/2.csv"
\set allowed :data '/globs_allowed'
ALTER SYSTEM SET pg_bulk.allowed_directories = :'allowed';
SELECT pg_reload_conf(), pg_sleep(0.2);
SELECT error_of($$SELECT loaded('globs/*.csv')$$);
SELECT error_of($$SELECT loaded('globs')$$);
SELECT error_of($$SELECT loaded('globs_allowed/*.csv')$$);
SELECT loaded('globs_allowed/1*');
-- Errors do not reveal anything outside: whether a file matches or exists, or the names of directories that a pattern reaches.
\! cd "$PGB_DATA"; mkdir -p globs_closed globs_allowed/with/part globs_allowed/without; cp globs/a-1.csv globs_allowed/with/part/1.csv; ln -sfn ../globs_closed globs_allowed/closed; chmod 0 globs_closed
SELECT error_of($$SELECT loaded('globs/a-*')$$);
SELECT error_of($$SELECT loaded('globs/none*')$$);
SELECT error_of($$SELECT loaded('globs_none/none*')$$);
SELECT error_of($$SELECT loaded('glob*/none*')$$);
SELECT error_of($$SELECT loaded('globs_closed/*')$$);
SELECT error_of($$SELECT loaded('globs_closed')$$);
SELECT error_of($$SELECT loaded('globs_allowed/c*/*')$$);
SELECT error_of($$SELECT loaded('globs_allowed/c*/../globs/none')$$);
SELECT loaded('globs_allowed/with*/part/1.csv');
SELECT error_of($$SELECT loaded('globs_allowed/none*')$$);
SELECT error_of($$SELECT loaded('globs_allowed/none/none*')$$);
\! chmod 700 "$PGB_DATA/globs_closed"
ALTER SYSTEM RESET pg_bulk.allowed_directories;
SELECT pg_reload_conf(), pg_sleep(0.2);

-- Serial ids are reserved by counting lines, with each kind of line end.
\! mkdir -p "$PGB_DATA/globs_ids"
CALL write_file('globs_ids/1', repeat(E'x\r\n', 1000));
CALL write_file('globs_ids/2', repeat(E'x\r', 1000));
CALL write_file('globs_ids/3', repeat(E'x\n', 1000));
CREATE TABLE ids (id serial, word text);
SELECT rows_loaded, workers FROM bulk_load(data_path('globs_ids'), 'ids', '{"workers": 1, "columns": ["word"]}');
SELECT last_value FROM ids_id_seq;

-- Many files, of several sizes: contents and the order of ids are COPY's.
\! rm -rf "$PGB_DATA/globs_many"; mkdir "$PGB_DATA/globs_many"
CREATE TABLE many (id bigserial, n int, word text, PRIMARY KEY (id));
CREATE TABLE many_copied (LIKE many INCLUDING ALL);
CREATE SEQUENCE copied_id;
ALTER TABLE many_copied ALTER id SET DEFAULT nextval('copied_id');
DO $$
DECLARE
	content text;
	name text;
BEGIN
	FOR file IN 1..60 LOOP
		SELECT coalesce(string_agg(format('%s,"%s%s"', file * 100000 + i, repeat(chr(97 + i % 26), i % 90), CASE WHEN i % 7 = 0 THEN E'\n' ELSE '' END), CASE file % 3 WHEN 0 THEN E'\r\n' ELSE E'\n' END), '')
			INTO content FROM generate_series(1, CASE WHEN file % 20 = 0 THEN 8000 WHEN file % 9 = 0 THEN 0 ELSE file * 10 END) i;
		CALL write_file(format('globs_many/%s.csv', file), content || CASE WHEN file % 4 > 0 AND content <> '' THEN CASE file % 3 WHEN 0 THEN E'\r\n' ELSE E'\n' END ELSE '' END);
	END LOOP;
	FOR name IN SELECT f FROM pg_ls_dir(data_path('globs_many')) f ORDER BY f COLLATE "C" LOOP
		EXECUTE format('COPY many_copied (n, word) FROM %L (FORMAT csv)', data_path('globs_many/' || name));
	END LOOP;
END $$;
SELECT count(*) FROM many_copied;
CREATE FUNCTION differ() RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM (
		(SELECT row_number() OVER (ORDER BY id), n, word FROM many EXCEPT ALL SELECT row_number() OVER (ORDER BY id), n, word FROM many_copied)
		UNION ALL
		(SELECT row_number() OVER (ORDER BY id), n, word FROM many_copied EXCEPT ALL SELECT row_number() OVER (ORDER BY id), n, word FROM many)) x
$$;
CREATE FUNCTION many(options text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result record;
BEGIN
	TRUNCATE many;
	SELECT * INTO result FROM bulk_load(data_path('globs_many'), 'many', '{"format": "csv", "columns": ["n", "word"]}'::jsonb || options::jsonb);
	PERFORM verify_heapam('many');
	PERFORM bt_index_parent_check('many_pkey', true, true);
	RETURN format('%s rows, %s different, %s bytes more', result.rows_loaded, differ(), result.bytes_read - (SELECT sum((pg_stat_file(data_path('globs_many/' || f))).size) FROM pg_ls_dir(data_path('globs_many')) f));
END $$;
SET pg_bulk.chunk_size = 16384;
SELECT many('{"workers": 0}');
SELECT many('{"workers": 1}');
SELECT many('{"workers": 2}');
SELECT many('{"workers": 4}');
SELECT many('{"writer": "buffered"}');
SET pg_bulk.chunk_size = 1000;
SELECT many('{"workers": 2}');
RESET pg_bulk.chunk_size;
-- A large compressed file: with serial ids, the ids of later files wait for its rows; without, one process reads it whole.
\! gzip "$PGB_DATA/globs_many/20.csv"
SELECT many('{"workers": 2}');
SELECT rows_loaded, workers FROM bulk_load(data_path('globs_many'), 'many', '{"format": "csv", "columns": ["n", "word"], "truncate": true, "workers": 2}');
CREATE TABLE without_id (n int, word text);
SELECT rows_loaded, workers FROM bulk_load(data_path('globs_many'), 'without_id', '{"format": "csv", "workers": 2}');
SELECT count(*) FROM (SELECT n, word FROM many_copied EXCEPT ALL TABLE without_id) x;
SELECT verify_heapam('without_id');
\! gunzip "$PGB_DATA/globs_many/20.csv.gz"

-- Scans by several processes, with and without the leader.
SELECT make_foreign('scanned', 'globs_many', 'n int, word text');
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET pg_bulk.chunk_size = 16384;
SELECT plan_of('SELECT n, word FROM scanned WHERE n > 0', 'COSTS OFF');
CREATE FUNCTION scanned() RETURNS text LANGUAGE sql AS $$
	SELECT (count(*), sum(hashtext(x::text)::bigint))::text FROM (SELECT n, word FROM scanned WHERE n > 0) x
$$;
SELECT (count(*), sum(hashtext(x::text)::bigint))::text AS expected FROM (SELECT n, word FROM many_copied) x \gset
SELECT scanned() = :'expected';
SET parallel_leader_participation = off;
SELECT scanned() = :'expected';
RESET parallel_leader_participation;
SET max_parallel_workers = 0;
SELECT scanned() = :'expected';
RESET max_parallel_workers;
SELECT count(*), count(word), min(n), max(n) FROM scanned;
SELECT i, (SELECT count(*) FROM scanned WHERE n > i * 1000000) FROM generate_series(1, 3) i;
-- In a parallel plan, no process reads all files by itself.
SET enable_parallel_hash = off;
SET enable_material = off;
SELECT plan_of('SELECT count(*) FROM scanned a JOIN scanned b USING (n)');
SELECT count(*) FROM scanned a JOIN scanned b USING (n);
RESET enable_parallel_hash;
RESET enable_material;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
RESET pg_bulk.chunk_size;
-- An error in the third large file and one in a later file: the first one is reported, from any process.
CALL write_file('globs_many/45.csv', E'1,x\n2,y,z\n');
CALL write_file('globs_many/46.csv', E'x,x\n');
SELECT error_of($$SELECT many('{"workers": 2}')$$);
SELECT many('{"workers": 2, "on_error": "table"}');
SELECT without_path(path), line_number, message FROM bulk_rejects WHERE target = 'globs.many' ORDER BY 1, 2;
SELECT error_of($$SELECT many('{"workers": 2, "on_error": "table", "reject_limit": 1}')$$);
SET client_min_messages = warning;
DROP SCHEMA globs CASCADE;
