--
-- bulk_check. The tests load_rejects, load_late_rejects and load_duplicates compare its result with the rejects of a load.
-- Here: rows that are wrong only because of other rows, by options and by the table's content; and that bulk_check writes nothing.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS dblink;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_check
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
-- The result of bulk_check for the content of file t; and the differences from the rejects of a load that is rolled back.
CREATE FUNCTION said(target regclass, options jsonb DEFAULT '{}', program boolean DEFAULT false) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	path text := CASE WHEN program THEN 'cat ' ELSE '' END || data_path('t');
	given jsonb := jsonb_build_object('format', 'csv', 'program', program) || options;
	checked text[];
	loaded text[];
	line text;
BEGIN
	checked := ARRAY(SELECT concat_ws(' ', line_number, byte_offset, column_name, raw_field, quote_nullable(raw_line), sqlstate, message, constraint_name) FROM bulk_check(path, target, given)
		ORDER BY line_number);
	BEGIN
		PERFORM bulk_load(path, target, given || '{"on_error": "table"}');
		loaded := ARRAY(SELECT concat_ws(' ', line_number, byte_offset, column_name, raw_field, quote_nullable(raw_line), sqlstate, message, constraint_name) FROM bulk_rejects
			WHERE load_id = (SELECT max(load_id) FROM bulk_history) ORDER BY line_number);
		RAISE EXCEPTION USING ERRCODE = 'PB000';
	EXCEPTION WHEN SQLSTATE 'PB000' THEN
		NULL;
	END;
	IF checked IS DISTINCT FROM loaded THEN
		RETURN QUERY SELECT 'check: ' || unnest(checked);
		RETURN QUERY SELECT 'load: ' || unnest(loaded);
		RETURN;
	END IF;
	RETURN NEXT format('%s rows', cardinality(checked));
	RETURN QUERY SELECT unnest(checked[1:9]);
END $$;
-- Rejects of all kinds are found together: a row that is rejected for one reason causes no conflict for another row.
CREATE TABLE mixed (n int, a int PRIMARY KEY CHECK (a <> 13), b int NOT NULL UNIQUE, c date);
INSERT INTO mixed VALUES (-1, 50, 50, NULL);
CALL write_file('t', E'1,1,1,\n2,1,2,\n3,x,2,\n4,3,2,\n5,13,7,\n6,14,7,\n7,15,\n8,50,8,\n9,9,8,2024-02-30\n10,51,50,\n11,51,51,\n12,12,1,\n');
SELECT said('mixed');
SELECT said('mixed', program => true);
SELECT said('mixed', '{"where": "n <> 1 AND n <> 11"}');
SELECT said('mixed', '{"skip": 1, "limit": 3}');
SELECT said('mixed', '{"columns": ["a", "n", "b", "c"], "workers": 3}');
SELECT said('mixed', '{"truncate": true}');
SELECT said('mixed', '{"on_duplicate": "keep_old", "conflict_index": "mixed_b_key"}');
SELECT said('mixed', '{"on_duplicate": "keep_new"}');
SELECT error_of($$SELECT bulk_check(data_path('t'), 'mixed', '{"on_duplicate": "keep_new", "conflict_index": "mixed"}')$$);
SET pg_bulk.reject_cap = 2;
SELECT count(*) FROM bulk_check(data_path('t'), 'mixed', '{"format": "csv"}');
RESET pg_bulk.reject_cap;
-- Earlier changes of the transaction count.
BEGIN;
DELETE FROM mixed;
INSERT INTO mixed VALUES (-2, 12, 99, NULL);
SELECT said('mixed', '{"where": "a = ''12'' OR a = ''50''"}');
ROLLBACK;
-- bulk_check ignores deferrable constraints, and triggers that the load would fire.
CREATE TABLE later (n int, a int UNIQUE DEFERRABLE, b int UNIQUE);
CALL write_file('t', E'1,1,1\n2,1,1\n3,3,3\n');
SELECT said('later');
CREATE TABLE parent (a int PRIMARY KEY, b text, UNIQUE (a, b));
INSERT INTO parent SELECT i, i FROM generate_series(1, 100) i;
CREATE TABLE child (n int PRIMARY KEY, a bigint REFERENCES parent, b text, FOREIGN KEY (a, b) REFERENCES parent (a, b) MATCH FULL);
CREATE TABLE child_later (n int, a int REFERENCES parent DEFERRABLE);
CALL write_file('t', E'1,1,1\n2,101,101\n3,2,x\n4,,\n5,3,\n6,,6\n1,999,7\n7,7,7\n');
SELECT said('child');
SELECT count(*) FROM bulk_check('cut -d, -f1,2 ' || data_path('t'), 'child_later', '{"format": "csv", "program": true}');
SET session_replication_role = replica;
SELECT said('child');
RESET session_replication_role;
-- Rows that refer to rows of the file, in any partition: a reference to a row that is rejected in the end is an orphan.
CREATE TABLE tree (n int, a int, b int, up_a int, up_b int, PRIMARY KEY (a, b), FOREIGN KEY (up_a, up_b) REFERENCES tree);
INSERT INTO tree VALUES (-1, 100, 100);
CALL write_file('t', E'1,1,1,1,1\n2,2,2,1,1\n3,3,3,9,9\n4,4,4,3,3\n5,5,5,4,4\n6,6,6,7,7\n7,7,7,8,8\n8,8,8,100,100\n9,6,6,1,1\n10,10,10,,99\n11,11,11,10,10\n12,x,12,,\n13,13,13,12,12\n14,14,14,15,15\n15,15,15,14,14\n');
SELECT said('tree');
SELECT said('tree', '{"truncate": true}');
CREATE TABLE rows (n int, part int, a int, up int) PARTITION BY LIST (part);
CREATE TABLE rows_1 (number int, up int, a int UNIQUE, part int, n int);
ALTER TABLE rows_1 DROP number;
ALTER TABLE rows ATTACH PARTITION rows_1 FOR VALUES IN (1);
CREATE TABLE rows_2 PARTITION OF rows (UNIQUE (a), FOREIGN KEY (up) REFERENCES rows_1 (a)) FOR VALUES IN (2);
ALTER TABLE rows_1 ADD FOREIGN KEY (up) REFERENCES rows_2 (a);
CALL write_file('t', E'1,1,1,2\n2,2,2,1\n3,1,3,4\n4,2,4,5\n5,2,6,3\n6,1,1,\n7,3,7,\n8,2,8,1\n9,1,9,7\n10,2,10,9\n11,1,11,10\n');
SELECT said('rows');
SELECT said('rows_2', '{"where": "part = ''2''"}');
-- Exclusion constraints with and without equality columns, expressions, conditions, NULLs; the first row stays.
CREATE TABLE rooms (n int PRIMARY KEY, room text, during int4range, EXCLUDE USING gist (during WITH &&) WHERE (room = 'a'),
	EXCLUDE (upper(room) WITH =, lower(during) WITH =) WHERE (room <> 'a'));
INSERT INTO rooms VALUES (-1, 'a', '[100,110)'), (-2, 'B', '[1,2)');
CALL write_file('t', E'1,a,"[1,5)"\n2,a,"[4,8)"\n3,a,"[7,9)"\n4,a,"[109,120)"\n5,b,"[1,5)"\n6,c,"[1,5)"\n7,C,"[1,9)"\n8,,"[1,9)"\n9,a,\n1,a,"[20,30)"\n11,a,"[25,26)"\n12,a,empty\n');
SELECT said('rooms');
SELECT said('rooms', '{"truncate": true}');
CREATE TABLE boxes (n int, place box, EXCLUDE USING gist (place WITH &&));
INSERT INTO boxes VALUES (-1, '(0,0),(1,1)');
SELECT string_agg(format(E'%s,"(%s,%s),(%s,%s)"\n', i, i * 7 % 40, i * 3 % 31, i * 7 % 40 + 2, i * 3 % 31 + 2), '' ORDER BY i) AS content FROM generate_series(1, 200) i \gset
CALL write_file('t', :'content');
SELECT line FROM said('boxes') line LIMIT 2;
SELECT line FROM said('boxes', '{"truncate": true}') line LIMIT 2;
-- An index finds rows that do not conflict after all: circles whose bounding boxes overlap.
CREATE TABLE circles (n int, place circle, EXCLUDE USING gist (place WITH &&));
INSERT INTO circles VALUES (-1, '<(0,0),1>');
CALL write_file('t', E'1,"<(1.9,1.9),1>"\n2,"<(1,1),1>"\n3,"<(3.8,3.8),1>"\n4,"<(3.8,3),1>"\n');
SELECT said('circles');
-- The keys of a replaced row are free again, whether it came from the file or the table.
CREATE TABLE freed (n int, a int PRIMARY KEY, b int, EXCLUDE (b WITH =));
INSERT INTO freed VALUES (-1, 50, 50), (-2, 60, 60);
CALL write_file('t', E'1,1,5\n2,1,6\n3,2,5\n4,50,51\n5,3,50\n6,60,50\n7,4,60\n8,2,6\n');
SELECT said('freed', '{"on_duplicate": "keep_new"}');
SELECT said('freed', '{"on_duplicate": "keep_old"}');
-- Keys of generated columns, defaults, domains, enums, arrays and composite types; dropped columns.
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN short AS varchar(5) CHECK (VALUE <> 'no');
CREATE TABLE kinds (gone int, n int, a int, m mood, p pair, s short, l int[], d int DEFAULT 7, g int GENERATED ALWAYS AS (a % 10) STORED UNIQUE,
	UNIQUE (m, s), UNIQUE (p), UNIQUE NULLS NOT DISTINCT (l, d), EXCLUDE (s WITH =, m WITH =) WHERE (n > 2), EXCLUDE (l WITH =) WHERE (n > 5));
ALTER TABLE kinds DROP gone;
ALTER TABLE kinds ADD late int DEFAULT 3, ADD UNIQUE (n, late);
INSERT INTO kinds (n, a, m, p, s, l) VALUES (-1, 9, 'sad', '(0,x)', 'old', '{0}');
CALL write_file('t', E'1,1,sad,"(1,a)",s,{1}\n2,11,happy,"(2,a)",s,{2}\n3,3,sad,"(1,a)",t,{3}\n4,4,sad,"(4,)",t,{4}\n5,5,happy,"(5,a)",t,{4}\n6,6,happy,"(6,a)",no,\n7,7,,"(7,a)",x,\n8,8,,"(8,a)",x,\n,9,,,y,{9}\n10,10,happy,,"long one",{10}\n1,12,,,,{12}\n12,29,,,,{13}\n13,13,,"(0,x)",,{14}\n14,14,sad,,old,{15}\n');
SELECT said('kinds', '{"columns": ["n", "a", "m", "p", "s", "l"]}');
SELECT said('kinds', '{"columns": ["n", "a", "m", "p", "s", "l"], "truncate": true, "on_duplicate": "keep_new", "conflict_index": "kinds_g_key"}');
-- Many rows, some of which are rejected in between.
CREATE TABLE many (n int, a int UNIQUE, b int REFERENCES many (a));
SELECT string_agg(format(E'%s,%s,%s\n', i, CASE WHEN i % 9000 = 0 THEN i - 8000 WHEN i % 11000 <> 0 THEN i END, CASE WHEN i % 7000 = 0 THEN i - 6999 ELSE 70001 - i END), '' ORDER BY i) AS content FROM generate_series(1, 70000) i \gset
CALL write_file('t', :'content');
SELECT said('many');
SELECT said('many', '{"where": "n % 3 > 0"}', true) LIMIT 3;
-- Sorts that spill to disk, and keys of very different lengths.
CREATE TABLE wide (n int, a text PRIMARY KEY, b text REFERENCES wide);
SELECT string_agg(format(E'%s,%s,%s\n', i, repeat(md5((i % 4900)::text), i % 4900 % 30), repeat(md5((i % 4901)::text), i % 4901 % 30)), '' ORDER BY i) AS content FROM generate_series(1, 5000) i \gset
CALL write_file('t', :'content');
SET maintenance_work_mem = '1MB';
SELECT left(line, 80) FROM said('wide') line LIMIT 1;
SELECT left(line, 80) FROM said('wide', '{"on_duplicate": "keep_new"}') line LIMIT 1;
RESET maintenance_work_mem;
-- bulk_check writes nothing and waits for no transaction: uncommitted rows do not count, and rows whose deletion is uncommitted do.
CREATE TABLE busy (n int, a int PRIMARY KEY, b int REFERENCES parent, EXCLUDE (n WITH =));
INSERT INTO busy VALUES (-1, 1, 1), (-2, 2, 1);
CALL write_file('t', E'1,1,1\n2,2,1\n3,3,101\n4,4,100\n-9,9,1\n6,6,6\n');
SELECT dblink_connect('other', format('dbname=%s host=%s port=%s user=%s', current_database(), split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_user));
SELECT dblink_exec('other', 'BEGIN; SET LOCAL search_path = load_check; INSERT INTO busy VALUES (-9, 3, 1); DELETE FROM busy WHERE a = 2; INSERT INTO parent VALUES (101); DELETE FROM parent WHERE a = 100');
SET statement_timeout = '20s';
CREATE TEMP TABLE before AS SELECT relid, pg_relation_size(relid) AS size FROM (VALUES ('busy'::regclass), ('busy_pkey'), ('busy_n_excl'), ('bulk_reject')) v (relid);
BEGIN;
SELECT line_number, sqlstate, constraint_name FROM bulk_check(data_path('t'), 'busy', '{"format": "csv"}') ORDER BY 1;
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid, count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype IN ('tuple', 'transactionid');
COMMIT;
EXPLAIN (ANALYZE, WAL, COSTS off, TIMING off, SUMMARY off, BUFFERS off) SELECT FROM bulk_check(data_path('t'), 'busy', '{"format": "csv"}')
\g |sed 's/\(rows=[0-9]*\)\.[0-9]*/\1/'
SELECT * FROM before WHERE size <> pg_relation_size(relid);
SELECT dblink_exec('other', 'COMMIT');
SELECT line_number, sqlstate, constraint_name FROM bulk_check(data_path('t'), 'busy', '{"format": "csv"}') ORDER BY 1;
SELECT dblink_disconnect('other');
RESET statement_timeout;
SELECT n, a FROM busy ORDER BY n;
-- A role without SELECT learns no more about the table's rows than from an INSERT. It does not see the keys of its own rows either.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_load_check;
CREATE ROLE regress_load_check;
GRANT pg_read_server_files TO regress_load_check;
GRANT USAGE ON SCHEMA load_check TO regress_load_check;
RESET client_min_messages;
SET ROLE regress_load_check;
SELECT error_of($$SELECT bulk_check(data_path('t'), 'busy', '{"format": "csv"}')$$);
RESET ROLE;
GRANT INSERT ON busy TO regress_load_check;
SET ROLE regress_load_check;
SELECT line_number, sqlstate, message FROM bulk_check(data_path('t'), 'busy', '{"format": "csv"}') ORDER BY 1;
SELECT error_of($$SELECT count(*) FROM busy$$);
SELECT error_of($$SELECT bulk_check(data_path('t'), 'busy', '{"format": "csv", "on_duplicate": "keep_new"}')$$);
RESET ROLE;
DROP OWNED BY regress_load_check;
DROP ROLE regress_load_check;
-- More rows with one key than fit into memory: the last one replaces the others, and a row of the table.
CREATE TABLE repeated (a int PRIMARY KEY, b text);
INSERT INTO repeated SELECT i, 'old' FROM generate_series(1, 3000, 7) i;
DO $$
DECLARE
	content text := (SELECT string_agg(format(E'%s,%s\n', i % 4000, i), '' ORDER BY i) FROM generate_series(1, 12000) i);
BEGIN
	CALL write_file('t', content);
END $$;
SET maintenance_work_mem = '1MB';
SELECT said('repeated', '{"on_duplicate": "keep_new"}');
SELECT said('repeated', '{"on_duplicate": "keep_old"}');
RESET maintenance_work_mem;
-- Volatile functions are called where a load calls them: in the session's own process, even if they are PARALLEL SAFE.
CREATE FUNCTION is_here() RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$
BEGIN
	IF pg_backend_pid() <> current_setting('test.process')::int THEN
		RAISE 'called by another process';
	END IF;
	RETURN true;
END $$;
CREATE TABLE here (a int, b int);
CREATE TABLE here_checked (a int, b int CHECK (is_here()));
CREATE TABLE here_parts (a int, b int) PARTITION BY LIST (b);
CREATE TABLE here_part PARTITION OF here_parts (CHECK (is_here())) DEFAULT;
SELECT string_agg(format(E'%s,%s\n', i, i), '' ORDER BY i) AS content FROM generate_series(1, 50000) i \gset
CALL write_file('t', :'content');
SET pg_bulk.chunk_size = '4kB';
SELECT count(*) FROM (SELECT set_config('test.process', pg_backend_pid()::text, false)) s;
SELECT count(*) FROM bulk_check(data_path('t'), 'here', '{"format": "csv", "workers": 3, "where": "is_here()"}');
SELECT count(*) FROM bulk_check(data_path('t'), 'here', '{"format": "csv", "workers": 3, "columns": ["a", "c", {"name": "b", "expr": "length(c) + is_here()::int"}]}');
SELECT count(*) FROM bulk_check(data_path('t'), 'here_checked', '{"format": "csv", "workers": 3}');
SELECT count(*) FROM bulk_check(data_path('t'), 'here_parts', '{"format": "csv", "workers": 3}');
RESET pg_bulk.chunk_size;
SET client_min_messages = warning;
DROP SCHEMA load_check CASCADE;
