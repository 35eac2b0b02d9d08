--
-- bulk_load_files: the counts and errors of each file of a load over several, for each writer and each number of workers.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_files
\i :helpers
\! rm -rf "$PGB_DATA/load_files"*; mkdir "$PGB_DATA/load_files" "$PGB_DATA/load_files_odd" "$PGB_DATA/load_files_large" "$PGB_DATA/load_files_many"
\set ECHO all
\pset tuples_only
\pset format unaligned
CALL write_file('load_files/a.csv', E'id,word\n1,a\n2,b\n');
CALL write_file('load_files/b.csv', E'id,word\n');
CALL write_file('load_files/c.csv', '');
CALL write_file('load_files/d.csv', E'id,word\n3,c\nx,d\n1,again\n4,e\n9,i\n');
CALL write_file('load_files/e.csv', E'id,word\n5,f\n6,g,h\n7\n4,again\n');
CALL write_file('load_files/f.csv', E'word,id\r\ni,8');
CALL write_file('load_files/g.csv', E'id,word\n');
\! gzip "$PGB_DATA/load_files/a.csv"

CREATE TABLE parent (id int PRIMARY KEY);
INSERT INTO parent SELECT generate_series(1, 8);
CREATE TABLE t (id int, word text);
CREATE FUNCTION size_of(path text) RETURNS bigint LANGUAGE sql AS 'SELECT (pg_stat_file(path)).size';
-- Path, rows read, loaded, rejected, duplicate, filtered. Shown once if all options give the same counts, which add up to the load's figures.
CREATE FUNCTION ways(options text, ways text[] DEFAULT '{"{\"workers\": 0}", "{\"workers\": 2}", "{\"writer\": \"buffered\"}"}', pattern text DEFAULT '*')
RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	result record;
	way text;
	told text;
	earlier text;
BEGIN
	FOREACH way IN ARRAY ways LOOP
		TRUNCATE t;
		SELECT * INTO result FROM bulk_load(data_path('load_files/' || pattern), 't',
			'{"format": "csv", "match_by": "name", "log_verbosity": "silent"}'::jsonb || options::jsonb || way::jsonb);
		SELECT string_agg(format('%s: %s = %s + %s + %s + %s', right(path, -length(data_path('load_files/'))), rows_read, rows_loaded,
			rows_rejected, rows_duplicate, rows_filtered), E'\n' ORDER BY path COLLATE "C")
			|| (SELECT coalesce(string_agg(E'\nbytes of ' || right(path, -length(data_path('load_files/'))) || ': ' || coalesce(bytes_read::text, 'unknown'), ''), '')
				FROM bulk_load_files WHERE load_id = result.load_id AND NOT (options LIKE '%limit%' OR bytes_read IS NOT DISTINCT FROM size_of(path)))
			|| (SELECT CASE WHEN (sum(rows_loaded), sum(rows_rejected), sum(rows_duplicate), sum(rows_filtered), sum(bytes_read))
					IS DISTINCT FROM (result.rows_loaded, result.rows_rejected, result.rows_duplicate, result.rows_filtered, result.bytes_read)
				THEN E'\nnot the sum' ELSE '' END FROM bulk_load_files WHERE load_id = result.load_id)
			INTO told FROM bulk_load_files WHERE load_id = result.load_id;
		IF told IS DISTINCT FROM earlier THEN
			RETURN NEXT format(E'%s\n%s', way, told);
		END IF;
		earlier := told;
	END LOOP;
END $$;
-- Nothing is rejected except bad records.
SELECT ways('{"on_error": "table"}');
SELECT ways('{"on_error": "ignore"}', pattern => '[a-d]*');
SELECT ways('{"on_error": "set_null"}', pattern => '[a-d]*');
SELECT ways('{"on_error": "table", "where": "id <> 4"}');
SELECT ways('{"on_error": "table", "skip": 1, "limit": 4}');
SELECT ways('{"on_error": "table", "skip": 1, "limit": 3, "where": "id <> 4"}');
-- With duplicate keys.
ALTER TABLE t ADD PRIMARY KEY (id);
SELECT ways('{"on_error": "table", "on_duplicate": "keep_old"}');
SELECT ways('{"on_error": "table", "on_duplicate": "keep_old", "indexes": "insert"}');
SELECT ways('{"on_error": "table", "on_duplicate": "keep_new"}', '{"{\"workers\": 0}", "{\"workers\": 2}"}');
SELECT ways('{"on_error": "table", "on_duplicate": "keep_new", "indexes": "insert"}', '{"{\"workers\": 0}", "{\"workers\": 2}"}');
SELECT ways('{"on_error": "table"}', '{"{\"workers\": 0}", "{\"workers\": 2}"}');
-- The rejects of the last load name their file.
SELECT ways('{"on_error": "table", "on_duplicate": "keep_new"}', '{"{\"workers\": 2}"}');
SELECT regexp_replace(path, '.*/', ''), line_number, raw_line, sqlstate FROM bulk_rejects
WHERE load_id = (SELECT max(load_id) FROM bulk_rejects) ORDER BY path COLLATE "C", line_number;
-- No reject is kept, but rejects are counted; also with another unique index.
SET pg_bulk.reject_cap = 0;
SELECT ways('{"on_error": "table", "on_duplicate": "keep_new"}', '{"{\"workers\": 0}", "{\"workers\": 2}"}');
CREATE UNIQUE INDEX another ON t (id, word);
SELECT ways('{"on_error": "table", "on_duplicate": "keep_new", "conflict_index": "t_pkey"}', '{"{\"workers\": 0}", "{\"workers\": 2}"}');
DROP INDEX another;
RESET pg_bulk.reject_cap;
TRUNCATE t;
ALTER TABLE t ADD FOREIGN KEY (id) REFERENCES parent;
SELECT ways('{"on_error": "table", "on_duplicate": "keep_old"}', '{"{\"workers\": 0}", "{\"workers\": 2}"}');
ALTER TABLE t DROP CONSTRAINT t_id_fkey;
-- Rows that a trigger leaves out. A load through INSERT then reads one file at a time.
ALTER TABLE t DROP CONSTRAINT t_pkey, ALTER id DROP NOT NULL;
CREATE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN CASE WHEN NEW.id % 2 = 1 THEN NEW END; END $$;
CREATE TRIGGER odd BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION odd();
SELECT ways('{"on_error": "table"}', '{"{}"}');
DROP TRIGGER odd ON t;
-- A rule turns the INSERT into two statements, and each of them reads the file.
CREATE TABLE log (id int);
CREATE RULE also AS ON INSERT TO t DO ALSO INSERT INTO log VALUES (NEW.id);
SELECT ways('{"on_error": "ignore"}', '{"{}"}', '[a-d]*');
SELECT count(*) FROM log;
DROP RULE also ON t;

-- Large files, whose chunks several processes read: rows and bytes of each.
DO $$
DECLARE
	content text;
BEGIN
	FOR file IN 1..12 LOOP
		SELECT string_agg(format(E'%s,"%s\n"\n', i, repeat('x', i % 70)), '') INTO content
			FROM generate_series(1, CASE file WHEN 7 THEN 6000 ELSE file * 5 END) i;
		CALL write_file(format('load_files_large/%s.csv', file), content);
	END LOOP;
END $$;
CREATE FUNCTION large(options text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	id bigint;
BEGIN
	SELECT load_id INTO id FROM bulk_load(data_path('load_files_large'), 't', '{"format": "csv"}'::jsonb || options::jsonb);
	RETURN QUERY SELECT format('%s: %s rows, %s of %s bytes', path, rows_read, bytes_read, size_of(path)) FROM (
		SELECT *, regexp_replace(path, '.*/', '') AS name FROM bulk_load_files WHERE load_id = id) f
	WHERE (rows_read, rows_loaded, bytes_read) IS DISTINCT FROM (CASE name WHEN '7.csv' THEN 6000 ELSE replace(name, '.csv', '')::int * 5 END, rows_read, size_of(path));
	RETURN QUERY SELECT count(*) || ' files' FROM bulk_load_files WHERE load_id = id;
END $$;
SET pg_bulk.chunk_size = 16384;
SELECT large('{"workers": 3}');
SELECT large('{"workers": 0}');
SELECT large('{"writer": "buffered"}');
RESET pg_bulk.chunk_size;

-- Jobs. A load of a single file has no entries.
SELECT bulk_enqueue(data_path('load_files_large'), 't', '{"format": "csv"}') AS job \gset
SELECT bulk_wait(:job);
SELECT count(*), sum(rows_loaded), min(target) FROM bulk_load_files WHERE load_id = :job;
SELECT count(*) FROM bulk_load_files WHERE load_id = (SELECT load_id FROM bulk_load(data_path('load_files/f.csv'), 't', '{"format": "csv", "header": true, "columns": ["word", "id"]}'));
-- A failed job: the files that were read, the one that failed and its error, and the files that were not read; for each number of workers.
CREATE FUNCTION told(job bigint) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT concat_ws(' ', regexp_replace(coalesce(path, files::text), '.*/', ''), status, without_path(error_message), rows_read, rows_loaded, bytes_read)
	FROM bulk_load_files WHERE load_id = job ORDER BY attempt, path COLLATE "C", status DESC
$$;
CREATE FUNCTION fails(options text, pattern text DEFAULT 'load_files') RETURNS bigint LANGUAGE sql AS $$
	SELECT bulk_enqueue(data_path(pattern), 't', '{"format": "csv", "match_by": "name"}'::jsonb || options::jsonb)
$$;
SET client_min_messages = warning;
SELECT fails('{"workers": 0}') AS alone, fails('{"workers": 2}') AS workers, fails('{"writer": "buffered"}') AS buffered,
	fails('{"workers": 2}', 'load_files/[d-g]*') AS first,
	fails('{}', 'load_files/n*') AS nothing \gset
SELECT bulk_wait(job) FROM unnest(ARRAY[:alone, :workers, :buffered, :first, :nothing]) job;
SELECT told(:alone);
SELECT told(:workers) EXCEPT SELECT told(:alone);
SELECT told(:buffered) EXCEPT SELECT told(:alone);
SELECT told(:first);
SELECT told(:nothing);
-- Errors that concern no file.
CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'never'; END $$;
CREATE TRIGGER never AFTER INSERT ON t EXECUTE FUNCTION never();
SELECT fails('{"workers": 2}', 'load_files/[abc]*') AS direct, fails('{"writer": "buffered"}', 'load_files/[abc]*') AS buffered \gset
SELECT bulk_wait(job) FROM unnest(ARRAY[:direct, :buffered]) job;
SELECT told(:direct);
SELECT told(:buffered);
DROP TRIGGER never ON t;
RESET client_min_messages;
-- Large files, whose chunks several processes read.
CALL write_file('load_files_large/8.csv', E'1,x\ny,x\n');
SET pg_bulk.chunk_size = 16384;
SELECT bulk_enqueue(data_path('load_files_large'), 't', '{"format": "csv", "workers": 3}') AS job \gset
RESET pg_bulk.chunk_size;
SET client_min_messages = warning;
SELECT bulk_wait(:job);
RESET client_min_messages;
SELECT told(:job);
-- The first two files together exceed reject_limit. A worker may have finished the second one when this becomes known. The later files are
-- long: no process has reached the end of one by then.
\! mkdir "$PGB_DATA/load_files_limit"; cd "$PGB_DATA/load_files_limit"; { seq 1 140000; echo x; echo x; } >1; { echo x; echo x; echo 1; } >2; seq 1 400000 >3; for i in 4 5 6 7 8 9; do cp 3 $i; done
CREATE TABLE one (id int);
CREATE TEMP TABLE limited AS
SELECT bulk_enqueue(data_path('load_files_limit'), 'one', jsonb_build_object('format', 'csv', 'workers', workers, 'on_error', 'ignore', 'reject_limit', 3)) AS job
FROM generate_series(0, 3) workers;
SET client_min_messages = warning;
SELECT bulk_wait(job) FROM limited ORDER BY job;
RESET client_min_messages;
SELECT DISTINCT told FROM limited, told(job) WHERE told ~ '^[129]' ORDER BY told;
\! rm -r "$PGB_DATA/load_files_limit"
-- The same with a header and other line ends, which a process that starts a file again must use, too.
\! mkdir "$PGB_DATA/load_files_limit"; cd "$PGB_DATA/load_files_limit"; dos() { sed 's/$/\r/'; }; { echo id; seq 1 140000; echo x; echo x; } | dos >1; { echo id; echo x; echo x; echo 1; } | dos >2; { echo id; seq 1 400000; } | dos >3; for i in 4 5 6 7 8 9; do cp 3 $i; done
SELECT DISTINCT error_of(format('SELECT bulk_load(%L, ''one'', %L)', data_path('load_files_limit'),
	jsonb_build_object('format', 'csv', 'header', true, 'workers', workers % 4, 'on_error', 'ignore', 'reject_limit', 3))) FROM generate_series(0, 7) workers ORDER BY 1;
\! rm -r "$PGB_DATA/load_files_limit"
-- Data may look like an error's CONTEXT.
CALL write_file('load_files_odd/1', E'1\n2\n');
CALL write_file('load_files_odd/2', format(E'3\n"x\nfile ""%s""\n"\n', data_path('load_files_odd/1')));
SELECT bulk_enqueue(data_path('load_files_odd'), 'one', '{"format": "csv", "workers": 0}') AS alone,
	bulk_enqueue(data_path('load_files_odd'), 'one', '{"format": "csv", "workers": 2}') AS workers \gset
SET client_min_messages = warning;
SELECT bulk_wait(job) FROM unnest(ARRAY[:alone, :workers]) job;
SELECT told(:alone);
SELECT told(:workers) EXCEPT SELECT told(:alone);
-- An error that ends a load at an arbitrary position is not attributed to a file.
CREATE FUNCTION end_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'ended' USING ERRCODE = TG_ARGV[0]; END $$;
CREATE TRIGGER end_it BEFORE INSERT ON one FOR EACH ROW WHEN (NEW.id = 3) EXECUTE FUNCTION end_it('57014');
SELECT bulk_enqueue(data_path('load_files_odd'), 'one', '{"format": "csv"}') AS job \gset
SELECT bulk_wait(:job);
SELECT told(:job);
DROP TRIGGER end_it ON one;
CREATE TRIGGER end_it BEFORE INSERT ON one FOR EACH ROW WHEN (NEW.id = 3) EXECUTE FUNCTION end_it('22000');
SELECT bulk_enqueue(data_path('load_files_odd'), 'one', '{"format": "csv"}') AS job \gset
SELECT bulk_wait(:job);
SELECT told(:job);
RESET client_min_messages;
\! rm "$PGB_DATA/load_files_odd"/*
-- Privileges.
SET client_min_messages = warning;
CREATE ROLE load_files_other;
RESET client_min_messages;
SELECT count(*) > 0 FROM bulk_load_files;
SET ROLE load_files_other;
SELECT count(*) FROM bulk_load_files;
RESET ROLE;
DROP ROLE load_files_other;

-- File names are bytes, not text.
\! cd "$PGB_DATA/load_files_odd"; for name in 'q"\134\011\047' '\344' '\303\244'; do echo 1,a >"$(printf "$name")".csv; done
SELECT load_id FROM bulk_load(data_path('load_files_odd'), 't', '{"format": "csv"}') \gset
SELECT regexp_replace(path, '.*/', ''), rows_loaded FROM bulk_load_files WHERE load_id = :load_id ORDER BY path COLLATE "C";

-- With very many files not all are listed: first those with rejects.
\! cd "$PGB_DATA/load_files_many"; for i in $(seq 10001 20050); do echo "$i,x" >$i; done; echo y,y >20045
SELECT load_id FROM bulk_load(data_path('load_files_many'), 't', '{"format": "csv", "on_error": "table"}') \gset
SELECT count(*), count(path), sum(files), sum(rows_read), sum(rows_loaded), sum(rows_rejected), max(right(path, 5)), min(rows_rejected) FILTER (WHERE path LIKE '%20045')
FROM bulk_load_files WHERE load_id = :load_id;
SELECT path, files, rows_read, rows_loaded, bytes_read FROM bulk_load_files WHERE load_id = :load_id AND files > 1;
SELECT bulk_enqueue(data_path('load_files_many'), 't', '{"format": "csv"}') AS job \gset
SET client_min_messages = warning;
SELECT bulk_wait(:job);
RESET client_min_messages;
SELECT status, count(*), sum(files), count(path), min(error_message) FROM bulk_load_files WHERE load_id = :job GROUP BY status ORDER BY status;
\! rm -r "$PGB_DATA/load_files_many"
SET client_min_messages = warning;
DROP SCHEMA load_files CASCADE;
