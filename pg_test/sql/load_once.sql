--
-- Option once: a file is loaded only once.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_once
\i :helpers
\! rm -rf "$PGB_DATA/once"; mkdir -p "$PGB_DATA/once/many"
DELETE FROM bulk_loaded;
\set ECHO all
\pset tuples_only
\pset format unaligned
CALL write_file('once/a.csv', E'1,one\n2,two\n3,three\n');
CREATE TABLE t (id int, word text);
-- load_id differs from run to run.
CREATE FUNCTION once(file text, options jsonb DEFAULT '{}', target regclass DEFAULT 't') RETURNS text LANGUAGE sql SET client_min_messages = warning AS $$
	SELECT rows_loaded || ' ' || writer || regexp_replace(notes::text, 'by load \d+', 'by load N')
	FROM bulk_load(data_path(file), target, '{"format": "csv", "once": true}' || options)
$$;
CREATE FUNCTION known(what regclass DEFAULT 't') RETURNS SETOF text LANGUAGE sql AS $$
	SELECT regexp_replace(path, '.*/', '') || ' ' || size FROM bulk_once WHERE target ~ ('\.' || what || '$') ORDER BY load_id, path COLLATE "C"
$$;
SELECT once('once/a.csv');
SELECT once('once/a.csv');
SELECT once('once/a.csv', '{"writer": "buffered"}');
-- A file is identified by its content: renamed or touched, it is the same; with one more line, it is not. Each table has its own list.
\! cp "$PGB_DATA/once/a.csv" "$PGB_DATA/once/copy.csv"; touch "$PGB_DATA/once/a.csv"
SELECT once('once/a.csv'), once('once/copy.csv');
CREATE TABLE other (LIKE t);
SELECT once('once/a.csv', '{}', 'other');
\! echo 4,four >>"$PGB_DATA/once/copy.csv"
SELECT once('once/copy.csv'), once('once/copy.csv', '{"writer": "buffered"}');
-- Same size, other content.
\! sed -i s/four/five/ "$PGB_DATA/once/copy.csv"
SELECT once('once/copy.csv');
SELECT known();
-- The content is that of the stored bytes, also of a compressed file.
\! gzip -nc "$PGB_DATA/once/a.csv" >"$PGB_DATA/once/a.csv.gz"
SELECT once('once/a.csv.gz'), once('once/a.csv.gz');
SELECT id, count(*) FROM t GROUP BY id ORDER BY id;
-- The hash equals the output of xxh128sum.
CALL write_file('once/empty.csv', '');
SELECT once('once/empty.csv'), once('once/empty.csv');
SELECT hash, size FROM bulk_once WHERE path LIKE '%empty.csv';
SELECT hash, size FROM bulk_once WHERE path LIKE '%/a.csv' AND target LIKE '%.t';
SELECT owner = current_user, loaded_at > now() - interval '1 hour', modified_at > now() - interval '1 hour', h.rows_loaded
FROM bulk_once o JOIN bulk_history h USING (load_id, target, owner) WHERE o.path LIKE '%.gz';
-- Skipped files are in the history, too.
SELECT rows_loaded, bytes_read, writer, status, regexp_replace(notes::text, '\d+', 'N') FROM bulk_history ORDER BY load_id DESC LIMIT 1;

-- The notices; with a relative path, since they contain it.
COPY (SELECT 7, 'seven') TO PROGRAM 'cat >once_said.csv' (FORMAT csv);
\set VERBOSITY terse
SELECT rows_loaded FROM bulk_load('once_said.csv', 't', '{"format": "csv", "once": true}');
SELECT rows_loaded FROM bulk_load('once_said.csv', 't', '{"format": "csv", "once": true}');
SELECT rows_loaded FROM bulk_load('once_said.csv', 't', '{"format": "csv", "once": true, "force": true}');
\set VERBOSITY default
DO $$ BEGIN EXECUTE 'COPY (SELECT WHERE false) TO PROGRAM ''rm once_said.csv'''; END $$;
SELECT count(*) FROM t WHERE id = 7;
SELECT known() ORDER BY 1;

-- Neither a load that was rolled back nor one without the option is remembered.
TRUNCATE t;
SELECT bulk_forget('t'), bulk_forget('t');
BEGIN;
SELECT once('once/a.csv');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT once('once/a.csv');
ROLLBACK TO s;
SELECT once('once/a.csv');
SELECT once('once/a.csv');
COMMIT;
SELECT count(*) FROM t;
CALL write_file('once/bad.csv', E'1,one\nx,two\n');
SELECT error_of($$SELECT once('once/bad.csv')$$);
CALL write_file('once/good.csv', E'1,one\n');
SELECT rows_loaded FROM bulk_load(data_path('once/good.csv'), 't', '{"format": "csv"}');
SELECT once('once/good.csv');
SELECT known();

-- Several files: each is remembered.
CALL write_file('once/many/1.csv', E'11,a\n');
CALL write_file('once/many/2.csv', E'12,b\n12,c\n');
CALL write_file('once/many/3.csv', E'13,d\n');
SELECT once('once/many/*.csv', '{"workers": 0}');
SELECT once('once/many/*.csv');
CALL write_file('once/many/4.csv', E'14,e\n');
\! cp "$PGB_DATA/once/many/4.csv" "$PGB_DATA/once/many/5.csv"; rm "$PGB_DATA/once/many/1.csv"
SELECT once('once/many/*.csv', '{"writer": "buffered"}');
SELECT regexp_replace(path, '.*/', ''), rows_loaded, status FROM bulk_load_files WHERE load_id = (SELECT max(load_id) FROM bulk_history);
SELECT once('once/many'), once('once/many/4.csv'), once('once/many/5.csv');
SELECT once('once/many/[45].csv', '{"force": true, "workers": 2}');
SELECT id, count(*) FROM t WHERE id > 10 GROUP BY id ORDER BY id;
SELECT known();
-- More files than are locked one by one, or listed.
\! cd "$PGB_DATA/once/many"; for i in $(seq 100); do echo $i,x >n$i.csv; done
SELECT once('once/many/n*.csv');
SELECT once('once/many');
\! rm "$PGB_DATA"/once/many/n*.csv

-- Headers that name the columns, and servers with a directory.
CALL write_file('once/many/h1.txt', E'word,id\nq,21\n');
CALL write_file('once/many/h2.txt', E'id,word\n22,r\n');
SELECT once('once/many/h1.txt', '{"match_by": "name"}');
SELECT once('once/many/h*.txt', '{"match_by": "name"}'), once('once/many/h*.txt', '{"match_by": "name"}');
SELECT * FROM t WHERE id > 20 AND word <> 'x' ORDER BY id;
CREATE SERVER once_files FOREIGN DATA WRAPPER bulk_fdw OPTIONS (directory '/');
SELECT bulk_forget('t') > 0;
DO $$ BEGIN EXECUTE format('ALTER SERVER once_files OPTIONS (SET directory %L)', data_path('once')); END $$;
SELECT rows_loaded FROM bulk_load('many/h1.txt', 't', '{"format": "csv", "once": true, "header": true, "server": "once_files", "columns": ["word", "id"]}');
SET client_min_messages = warning;
SELECT rows_loaded, notes FROM bulk_load('many/h*.txt', 't', '{"format": "csv", "once": true, "server": "once_files", "match_by": "name"}');
SELECT rows_loaded, notes FROM bulk_load('many/h*.txt', 't', '{"format": "csv", "once": true, "server": "once_files", "match_by": "name"}');
RESET client_min_messages;

-- Jobs.
TRUNCATE t;
SELECT bulk_forget('t') > 0;
SELECT bulk_enqueue(data_path('once/many/*.csv'), 't', '{"format": "csv", "once": true, "each_file": true}') AS job \gset
SELECT bulk_wait(:job, '1 min');
SELECT count(bulk_wait(job_id, '1 min')) FROM bulk_jobs WHERE options ? 'once';
-- Of two files with the same content, either may be loaded first.
SELECT status, regexp_replace(regexp_replace(path, '.*/', ''), '[45]', 'twin'), rows_loaded FROM bulk_jobs WHERE options ? 'once' ORDER BY 2, 3;
SELECT bulk_enqueue(data_path('once/many/*.csv'), 't', '{"format": "csv", "once": true}') AS job \gset
SELECT bulk_wait(:job, '1 min');
SELECT rows_loaded, writer, notes FROM bulk_history WHERE load_id = :job;
SELECT id, count(*) FROM t GROUP BY id ORDER BY id;
SELECT error_of($$SELECT bulk_enqueue('x', 't', '{"force": true}')$$);

-- A load with truncate forgets the earlier files: the list describes the table's present content.
SELECT once('once/a.csv', '{"truncate": true}'), once('once/a.csv', '{"truncate": true}');
SELECT once('once/a.csv'), once('once/many/2.csv');
SELECT known();
SELECT rows_loaded FROM bulk_load(data_path('once/good.csv'), 't', '{"format": "csv", "truncate": true}');
SELECT known();
CREATE TABLE parted (LIKE t) PARTITION BY RANGE (id);
CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (100);
SELECT once('once/a.csv', '{}', 'part'), once('once/a.csv', '{}', 'parted'), once('once/a.csv', '{}', 'parted');
SELECT once('once/good.csv', '{"truncate": true}', 'parted'), once('once/a.csv', '{}', 'part');
SELECT count(*) FROM parted;

-- A table is identified by its OID; a new table with the same name is another one. In a database restored from a dump, the name counts.
ALTER TABLE other RENAME TO renamed;
CREATE TABLE other (LIKE t);
SELECT once('once/a.csv', '{}', 'renamed'), once('once/a.csv', '{}', 'other');
DROP TABLE other;
CREATE TABLE other (LIKE t);
SELECT once('once/a.csv', '{}', 'other');
DELETE FROM bulk_loaded;
SELECT once('once/a.csv', '{}', 'other'), once('once/good.csv', '{}', 'other'), once('once/a.csv', '{}', 'renamed');
UPDATE bulk_loaded SET target = 0, cluster = cluster + 1, database = 0, home = 0;
SELECT once('once/a.csv', '{}', 'other');
-- The name counts only once: then the entries have the table's new OID. Entries of another table keep their name.
SELECT target = 'other'::regclass, count(*) FROM bulk_loaded GROUP BY 1 ORDER BY 1;
ALTER TABLE other RENAME TO another;
CREATE TABLE other (LIKE t);
SELECT once('once/a.csv', '{}', 'another'), once('once/good.csv', '{}', 'another'), once('once/a.csv', '{}', 'other');
SELECT bulk_forget('other'), bulk_forget('another'), bulk_forget('renamed');
-- A dump that is restored into its own database: the tables have other OIDs then, and the name counts again.
SELECT once('once/a.csv', '{}', 'other');
CREATE TEMP TABLE dumped AS SELECT * FROM bulk_loaded;
DELETE FROM bulk_loaded;
DROP TABLE other;
CREATE TABLE other (LIKE t);
INSERT INTO bulk_loaded SELECT * FROM dumped;
SELECT once('once/a.csv', '{}', 'other');
DROP TABLE other, dumped;
CREATE TABLE other (LIKE t);
SELECT once('once/a.csv', '{}', 'other');
-- After pg_upgrade: rows and tables keep their OIDs.
UPDATE bulk_loaded SET cluster = cluster + 1, made_by = pg_current_xact_id()::xid;
ALTER TABLE another RENAME TO anothers;
ALTER TABLE other RENAME TO another;
SELECT once('once/a.csv', '{}', 'another'), once('once/a.csv', '{}', 'anothers');
VACUUM (FREEZE) bulk_loaded;
VACUUM FULL bulk_loaded;
ALTER TABLE another RENAME TO other;
SELECT once('once/a.csv', '{}', 'other');
-- A file that is loaded and forgotten in one statement is forgotten.
SELECT bulk_forget('t') IS NOT NULL;
SELECT once('once/a.csv') || ', ' || bulk_forget('t');
SELECT known();

-- Errors.
SELECT error_of($$SELECT once('once/a.csv', '{"limit": 1}')$$);
SELECT error_of($$SELECT once('once/a.csv', '{"program": true}')$$);
SELECT error_of($$SELECT once('once/a.csv', '{"once": false, "force": true}')$$);
SELECT error_of($$SELECT once('once/a.csv', '{"once": "twice"}')$$);
SELECT error_of($$SELECT once('once/none.csv')$$);
SELECT error_of($$SELECT once('once/many/*.none')$$);
\! mkfifo -m 666 "$PGB_DATA/once/fifo"
SELECT error_of($$SELECT once('once/fifo')$$);
SELECT error_of($$SELECT bulk_load('/dev/null', 't', '{"once": true}')$$);
CREATE TEMP TABLE fleeting (LIKE t);
SELECT error_of($$SELECT once('once/a.csv', '{}', 'fleeting')$$);
SELECT error_of('SELECT bulk_forget(NULL)');
SELECT error_of('SELECT bulk_forget(1)');
-- Hashing a large file can be canceled.
\! truncate -s 50G "$PGB_DATA/once/large"
SET statement_timeout = '100ms';
\set VERBOSITY terse
SELECT once('once/large');
\set VERBOSITY default
RESET statement_timeout;
-- A table with the right name that is not a member of the extension is refused.
BEGIN;
ALTER EXTENSION pg_bulk DROP TABLE bulk_loaded;
SELECT error_of($$SELECT once('once/a.csv')$$);
SELECT rows_loaded FROM bulk_load(data_path('once/good.csv'), 't', '{"format": "csv", "truncate": true}');
ROLLBACK;
-- bulk_check reads the rows even if the file was loaded.
SELECT once('once/good.csv');
SELECT count(*) FROM bulk_check(data_path('once/bad.csv'), 't', '{"format": "csv", "once": true}');

-- Privileges.
SET client_min_messages = warning;
CREATE ROLE once_loader IN ROLE pg_read_server_files;
CREATE ROLE once_other IN ROLE pg_read_server_files;
CREATE ROLE once_stats IN ROLE pg_read_all_stats;
RESET client_min_messages;
GRANT USAGE ON SCHEMA load_once TO PUBLIC;
GRANT INSERT ON t TO once_loader, once_other;
DELETE FROM bulk_loaded;
SET ROLE once_loader;
SELECT once('once/a.csv'), once('once/a.csv');
SELECT known(), owner FROM bulk_once;
SELECT error_of($$SELECT bulk_forget('t')$$);
SELECT error_of('SELECT count(*) FROM bulk_loaded');
SELECT error_of('DELETE FROM bulk_once');
SET ROLE once_other;
SELECT known();
SELECT once('once/a.csv');
SELECT error_of($$SELECT once('once/none.csv', '{}', 'renamed')$$);
SET ROLE once_stats;
SELECT known();
RESET ROLE;
-- A role that may see all loads is told the load_id; other roles are not.
GRANT pg_read_all_stats TO once_other;
SET ROLE once_other;
SELECT once('once/a.csv');
RESET ROLE;
REVOKE pg_read_all_stats FROM once_other;
-- A role that may see a load is told its path.
\! cp "$PGB_DATA/once/a.csv" "$PGB_DATA/once/as.csv"
\setenv PGDATABASE :DBNAME
\! for role in loader other; do psql -XAtq -c "SET ROLE once_$role; SELECT rows_loaded FROM bulk_load('$PGB_DATA/once/as.csv', 'load_once.t', '{\"format\": \"csv\", \"once\": true}')" 2>&1 | sed -E 's#"[^"]*/#"#g; s/Load [0-9]+/Load N/; s/ at .*/ at some time./'; done
-- Any loader can mark a file as loaded, and other loaders get a notice; force loads it.
CALL write_file('once/never.csv', E'8,eight\n');
SET ROLE once_other;
SELECT once('once/never.csv', '{"where": "false"}');
SET ROLE once_loader;
SELECT once('once/never.csv'), once('once/never.csv', '{"force": true}');
RESET ROLE;
SELECT bulk_forget('t', data_path('once/never.csv'));
SELECT bulk_forget('t', data_path('once/none.csv')), bulk_forget('t', data_path('once/a.csv'));
SELECT known();
BEGIN READ ONLY;
SELECT bulk_forget('t');
ROLLBACK;
\! rm -rf "$PGB_DATA/once"
SET client_min_messages = warning;
DROP SERVER once_files;
DROP SCHEMA load_once CASCADE;
DROP ROLE once_loader, once_other, once_stats;
