--
-- Rejects: records and rows that a load leaves out.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_rejects
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
-- A slow function, so that all processes get rows.
CREATE FUNCTION slowly(a int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	IF a % 5 = 0 THEN
		PERFORM pg_sleep(CASE WHEN a % 50 = 0 THEN 0.005 ELSE 0.001 END);
	END IF;
	RETURN true;
END $$;
-- Several processes reject the rows that one process rejects, and report the same line when reject_limit is exceeded.
SELECT string_agg(CASE WHEN i % 7 = 3 THEN 'x' ELSE '' END || i || ',' || repeat('y', i % 13), E'\n') || E'\n' AS content
FROM generate_series(1, 1000) i \gset
SELECT alike('a int CHECK (slowly(a)), b text', :'content', '{"format": "csv", "on_error": "ignore"}');
SELECT alike('a int CHECK (slowly(a)), b text', :'content', '{"format": "csv", "on_error": "set_null"}');
SELECT alike('a int CHECK (slowly(a)), b text', :'content', '{"format": "csv", "on_error": "stop"}');
SELECT alike('a int CHECK (slowly(a)), b text', :'content', '{"format": "csv", "on_error": "ignore", "reject_limit": 143}');
SELECT alike('a int CHECK (slowly(a)), b text', :'content', '{"format": "csv", "on_error": "ignore", "reject_limit": 142}');
SELECT alike('a int CHECK (slowly(a)), b text', :'content', '{"format": "csv", "on_error": "ignore", "reject_limit": 70}');
SELECT alike('a int CHECK (slowly(a)), b text', :'content', '{"format": "csv", "on_error": "ignore", "reject_limit": 1}');
SELECT alike('a int CHECK (slowly(a)), b text', 'z' || :'content', '{"format": "csv", "on_error": "ignore", "reject_limit": 2}');
-- With another error that comes before or after this line.
SELECT alike('a int CHECK (slowly(a) AND a <> 501), b text', :'content', '{"format": "csv", "on_error": "ignore", "reject_limit": 72}');
SELECT alike('a int CHECK (slowly(a) AND a <> 501), b text', :'content', '{"format": "csv", "on_error": "ignore", "reject_limit": 71}');
SELECT alike('a int CHECK (slowly(a) AND a <> 501), b text', :'content', '{"format": "csv", "on_error": "ignore", "reject_limit": 70}');
-- Workers use the settings that values depend on.
SET DateStyle = 'ISO, DMY';
SELECT alike('a date, b int', string_agg(format('%s.%s.2024,%s', i % 28 + 1, i % 14, i), E'\n'), '{"format": "csv", "on_error": "ignore"}')
FROM generate_series(1, 600) i;
RESET DateStyle;
-- One process: values that are converted in subtransactions, and a message for each reject.
CREATE DOMAIN small AS int CHECK (VALUE < 100);
CALL write_bytes('t', convert_to(E'1\n200\n3\n', 'UTF8'));
CREATE TABLE smalls (a small);
SELECT loaded, rejected FROM figures('t', 'smalls', '{"on_error": "ignore", "log_verbosity": "verbose"}');
SELECT loaded, rejected FROM figures('t', 'smalls', '{"on_error": "set_null", "workers": 2}');
SELECT array_agg(a), count(*) FROM smalls;
SELECT * FROM verify_heapam('smalls');
-- on_error table: rows with every kind of error.
CREATE TABLE kinds (a int NOT NULL CHECK (a <> 7), b text, c date);
CALL write_bytes('t', convert_to(E'1,one,2024-01-01\n2\n3,x,y,z\n,null,2024-01-01\n7,seven,2024-01-01\nx1,bad,2024-01-01\n8,', 'UTF8')
	|| '\xff'::bytea || convert_to(E',2024-01-01\n9,nine,2024-99-01\n12,y,2024-01-01\n9,"a\nb",2024-01-02\n4,cr\rx,2024-01-01\n'
	'5,five,2024-01-01\n6,"unterminated\n7,x,2024-01-01\n', 'UTF8'));
SELECT loaded, rejected, writer FROM figures('t', 'kinds', '{"format": "csv", "on_error": "table"}');
SELECT * FROM kinds ORDER BY a;
SELECT line_number, byte_offset, column_name, raw_field, raw_line, raw_bytes, sqlstate, message, constraint_name
FROM bulk_rejects WHERE target = 'load_rejects.kinds' ORDER BY line_number;
SELECT attempt, count(*), bool_and(path = data_path('t')), bool_and(rejected_at > now() - interval '1 minute') FROM bulk_rejects
WHERE target = 'load_rejects.kinds' GROUP BY attempt;
-- Text: other line ends, escapes, markers.
CREATE TABLE texts (a int, b text);
CALL write_bytes('t', convert_to(E'1\tone\n2\ttwo\rx\n3\t\\xff\n4\t\\.x\n5\t\\\n6\n6\tsix\t\n7\tseven\\.\n8\t?\n9\tnine\n', 'UTF8'));
SELECT loaded, rejected FROM figures('t', 'texts', '{"on_error": "table", "default": "?"}');
SELECT * FROM texts ORDER BY a;
SELECT line_number, raw_line, sqlstate, message FROM bulk_rejects WHERE target LIKE '%texts' ORDER BY line_number;
-- Partitions.
CREATE TABLE parts (a int CHECK (a <> 7), b text) PARTITION BY RANGE (a);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (10) TO (20) PARTITION BY LIST (b);
CREATE TABLE parts_1_x (b text NOT NULL CHECK (b <> 'y'), gone int, a int CONSTRAINT parts_a_check CHECK (a <> 7));
ALTER TABLE parts_1_x DROP gone;
ALTER TABLE parts_1 ATTACH PARTITION parts_1_x FOR VALUES IN ('x', 'y', NULL);
CALL write_bytes('t', convert_to(E'1,one\n7,seven\n10,x\n11,y\n12,z\n13,\n99,x\n14,x\n', 'UTF8'));
SELECT loaded, rejected FROM figures('t', 'parts', '{"format": "csv", "on_error": "table"}');
SELECT loaded, rejected FROM figures('t', 'parts_0', '{"format": "csv", "on_error": "table"}');
SELECT tableoid::regclass, * FROM parts ORDER BY tableoid, a;
SELECT line_number, raw_line, sqlstate, message, column_name, constraint_name FROM bulk_rejects WHERE target LIKE '%parts%' ORDER BY load_id, line_number;
-- Several processes reject the same rows.
SELECT string_agg(CASE i % 40 WHEN 1 THEN i || ',x,y,z' WHEN 6 THEN i::text WHEN 11 THEN ',null' WHEN 16 THEN 'x' || i || ',x' WHEN 21 THEN i || E',a\rb'
	WHEN 26 THEN '-' || i || ',x' WHEN 31 THEN i || E',"a\n\nb"' WHEN 36 THEN i || ',<byte>' ELSE i || ',' || repeat('y', i % 13) END, E'\n') AS content
FROM generate_series(1, 1000) i \gset
SELECT decode(replace(encode(convert_to(:'content', 'UTF8'), 'hex'), encode('<byte>', 'hex'), 'c3'), 'hex') AS bytes \gset
SELECT alike('a int NOT NULL CHECK (slowly(a) AND a > 0), b text', :'bytes'::bytea, '{"format": "csv", "on_error": "table"}');
SELECT alike('a int NOT NULL CHECK (slowly(a) AND a > 0), b text', :'bytes'::bytea, '{"format": "csv", "on_error": "table", "reject_limit": 100}');
SELECT alike('a int NOT NULL CHECK (slowly(a) AND a > 0), b text', :'bytes'::bytea, '{"format": "csv", "on_error": "table", "reject_limit": 3}');
SELECT alike('a int NOT NULL CHECK (slowly(a) AND a > 0), b text', :'bytes'::bytea, '{"format": "csv", "on_error": "table", "reject_limit": "17.5%"}');
SELECT alike('a int NOT NULL CHECK (slowly(a) AND a > 0), b text', :'bytes'::bytea, '{"format": "csv", "on_error": "table", "reject_limit": "17.4%"}');
SELECT alike('a int, b text', repeat(E'1,x\r\n2,a\nb\r\n3,c\rd\r\n4,"x\r\ny"\r\n5\r\n6,z\r\n', 30), '{"format": "csv", "on_error": "table"}');
SELECT alike('a int, b text', repeat(E'1,x\r2,a\nb\r3,c\r4,"x\ry"\r5\r6,z\r', 30), '{"format": "csv", "on_error": "table"}');
SELECT alike('a int, b text', repeat(E'1\tx\n', 30) || repeat(E'2\ta\rb\\\nc\n3\\\\\tx\n', 30), '{"on_error": "table"}');
-- At most reject_cap rejects are kept.
SET pg_bulk.reject_cap = 5;
SELECT count(*) FROM alike('a int NOT NULL CHECK (slowly(a) AND a > 0), b text', :'bytes'::bytea, '{"format": "csv", "on_error": "table"}') said
WHERE said ~ ' 175 rejected, 5 kept$';
SELECT loaded, rejected, notes FROM figures('t', 'kinds', '{"format": "csv", "on_error": "table", "columns": ["a", "b"]}');
RESET pg_bulk.reject_cap;
-- A spool of rejects that exceeds memory.
SELECT string_agg(CASE WHEN i % 2 = 0 THEN i::text ELSE 'x' || repeat('y', i) END, E'\n') AS content FROM generate_series(1, 3000) i \gset
CALL write_file('t', :'content');
CREATE TABLE numbers (a int);
SELECT loaded, rejected FROM figures('t', 'numbers', '{"on_error": "table"}');
SELECT count(*), sum(length(raw_line)), bool_and(raw_line = raw_field AND length(raw_line) = line_number + 1) FROM bulk_rejects WHERE target LIKE '%numbers';
-- The buffered writer: an error in a record is survived, an error that the INSERT raises for a row is not. A failing load shows
-- its first rejects.
CREATE VIEW kinds_view AS SELECT * FROM kinds;
CALL write_file('t', E'11,one,2024-01-01\n2\n13,x,y,z\nx1,bad,2024-01-01\n14,"a\nb",2024-01-02\n');
SELECT loaded, rejected, writer FROM figures('t', 'kinds_view', '{"format": "csv", "on_error": "table", "skip": 1}');
SELECT line_number, raw_line, message FROM bulk_rejects WHERE target LIKE '%kinds_view' ORDER BY line_number;
SELECT error_of($$SELECT bulk_load(data_path('t'), 'kinds_view', '{"format": "csv", "on_error": "table", "reject_limit": 2}')$$);
SELECT error_of($$SELECT bulk_load(data_path('t'), 'kinds_view', '{"format": "csv", "on_error": "table", "reject_limit": "50%"}')$$);
CALL write_file('t', E'2\n7,seven,2024-01-01\n');
SELECT error_of($$SELECT bulk_load(data_path('t'), 'kinds_view', '{"format": "csv", "on_error": "table"}')$$);
-- Errors that are not rejects: those of expressions, and all that do not concern a record.
CREATE TABLE generated (a int, b int GENERATED ALWAYS AS (10 / a) STORED);
CALL write_file('t', E'x\n5\n0\n');
SELECT error_of($$SELECT bulk_load(data_path('t'), 'generated', '{"on_error": "table"}')$$);
SELECT error_of($$SELECT bulk_load(data_path('t'), 'generated', '{"on_error": "table", "where": "1 / a > 0"}')$$);
SELECT error_of($$SELECT bulk_load(data_path('t'), 'generated', '{"on_error": "table", "header": "match"}')$$);
-- Rejects are rows of the loading transaction.
BEGIN;
SELECT loaded, rejected FROM figures('t', 'numbers', '{"on_error": "table"}');
SELECT count(*) FROM bulk_rejects WHERE path = data_path('t') AND target LIKE '%numbers' AND message LIKE '%: "x"';
ROLLBACK;
SELECT count(*) FROM bulk_rejects WHERE path = data_path('t') AND target LIKE '%numbers' AND message LIKE '%: "x"';
-- Rejects of a failed job stay.
SET client_min_messages = warning;
SELECT string_agg('x' || repeat('y', i), E'\n') AS content FROM generate_series(1, 3000) i \gset
CALL write_file('job', :'content');
SELECT bulk_enqueue(data_path('job'), 'numbers', '{"on_error": "table", "workers": 0, "reject_limit": 2500}') AS job \gset
SELECT bulk_wait(:job);
SELECT error_sqlstate, error_message, rows_loaded FROM bulk_jobs WHERE job_id = :job;
SELECT attempt, count(*), bool_and(target = 'load_rejects.numbers'), sum(length(raw_line)) FROM bulk_rejects WHERE load_id = :job GROUP BY attempt;
SELECT bulk_enqueue(data_path('t'), 'numbers', '{"on_error": "table"}') AS job \gset
SELECT bulk_wait(:job);
SELECT rows_loaded, rows_rejected FROM bulk_jobs WHERE job_id = :job;
SELECT attempt, line_number, message FROM bulk_rejects WHERE load_id = :job;
SELECT bulk_enqueue(data_path('nowhere'), 'numbers', '{"on_error": "table"}') AS job \gset
SELECT bulk_wait(:job);
SELECT count(*) FROM bulk_rejects WHERE load_id = :job;
RESET client_min_messages;
-- Values of the options.
SELECT error_of($$SELECT bulk_load(data_path('t'), 'numbers', '{"reject_limit": 5}')$$);
SELECT error_of($$SELECT bulk_load(data_path('t'), 'numbers', '{"on_error": "set_null", "reject_limit": "5%"}')$$);
SELECT error_of($$SELECT bulk_load(data_path('t'), 'numbers', '{"on_error": "ignore", "reject_limit": "101%"}')$$);
SELECT error_of($$SELECT bulk_load(data_path('t'), 'numbers', '{"on_error": "ignore", "reject_limit": "some%"}')$$);
SELECT loaded, rejected FROM figures('t', 'numbers', '{"on_error": "ignore", "reject_limit": "34%"}');
SELECT error_of($$SELECT bulk_load(data_path('t'), 'numbers', '{"on_error": "ignore", "reject_limit": "33%"}')$$);
SELECT error_of($$SELECT bulk_load(data_path('t'), 'numbers', '{"on_error": "ignore", "reject_limit": "0%"}')$$);
-- bulk_check returns the records that a load would reject, and writes nothing: no row, no reject, no transaction ID.
CREATE TABLE checked (LIKE kinds INCLUDING ALL, d bigint GENERATED ALWAYS AS (a * 2) STORED, e int DEFAULT 5 CHECK (e = 5));
CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'fired';
END $$;
CREATE TRIGGER never BEFORE INSERT ON checked EXECUTE FUNCTION never();
CREATE TRIGGER not_at_all AFTER INSERT ON checked FOR EACH ROW EXECUTE FUNCTION never();
CALL write_file('t', E'1,one,2024-01-01\n2\n3,x,y,z\n,null,2024-01-01\n7,seven,2024-01-01\nx1,bad,2024-01-01\n8,eight,\n');
SELECT count(*) AS rejects FROM bulk_rejects \gset
BEGIN;
SELECT line_number, byte_offset, column_name, raw_field, raw_line, raw_bytes, sqlstate, message, constraint_name
FROM bulk_check(data_path('t'), 'checked', '{"format": "csv", "columns": ["a", "b", "c"], "truncate": true, "reject_limit": 1, "on_error": "ignore", "where": "a <> 7 OR a IS NULL"}');
SELECT pg_current_xact_id_if_assigned() IS NULL;
COMMIT;
SELECT count(*) FROM bulk_check(data_path('t'), 'parts', '{"format": "csv"}');
SELECT count(*) = :rejects FROM bulk_rejects;
SELECT count(*) FROM checked;
-- With several processes.
CALL write_bytes('t', :'bytes'::bytea);
SET pg_bulk.chunk_size = 64;
SELECT count(*), sum(line_number), count(DISTINCT line_number) FROM bulk_check(data_path('t'), 'texts', '{"format": "csv", "workers": 3, "where": "slowly(a)"}');
SELECT count(*), sum(line_number), count(DISTINCT line_number) FROM bulk_check(data_path('t'), 'texts', '{"format": "csv", "workers": 0}');
RESET pg_bulk.chunk_size;
SET pg_bulk.reject_cap = 3;
SELECT count(*) FROM bulk_check(data_path('t'), 'texts', '{"format": "csv", "workers": 0}');
RESET pg_bulk.reject_cap;
CALL write_file('t', E'x\n5\n0\n');
-- Errors of bulk_check: those that a load raises as well, and targets that cannot be checked.
SELECT error_of($$SELECT bulk_check(data_path('t'), 'generated')$$);
SELECT error_of($$SELECT bulk_check(data_path('nowhere'), 'generated')$$);
SELECT error_of($$SELECT bulk_check(NULL, 'generated')$$);
SELECT error_of($$SELECT bulk_check(data_path('t'), 'kinds_view')$$);
SELECT error_of($$SELECT bulk_check(data_path('t'), 'generated', '{"on_eror": "table"}')$$);
-- Each role sees the rejects of its own loads. No role can write any.
SET client_min_messages = warning;
CREATE ROLE reject_loader IN ROLE pg_read_server_files;
CREATE ROLE reject_other;
RESET client_min_messages;
GRANT USAGE ON SCHEMA load_rejects TO reject_loader, reject_other;
GRANT ALL ON numbers TO reject_loader, reject_other;
CREATE FUNCTION leak(message text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$
BEGIN
	RAISE NOTICE 'leak: %', message;
	RETURN true;
END $$;
SET ROLE reject_loader;
SELECT loaded, rejected FROM figures('t', 'numbers', '{"on_error": "table"}');
SELECT line_number, message FROM bulk_rejects WHERE leak(message);
SET ROLE reject_other;
SELECT line_number, message FROM bulk_rejects WHERE leak(message);
SELECT error_of($$SELECT bulk_check(data_path('t'), 'numbers')$$);
SELECT error_of($$SELECT bulk_check('seq 3', 'numbers', '{"program": true}')$$);
SELECT count(*) FROM bulk_reject;
SET ROLE reject_loader;
SELECT error_of($$SELECT bulk_check(data_path('t'), 'kinds')$$);
SELECT count(*) FROM bulk_reject;
INSERT INTO bulk_reject (load_id) VALUES (1);
DELETE FROM bulk_rejects;
UPDATE bulk_rejects SET message = '';
SET pg_bulk.reject_cap = 7;
RESET ROLE;
-- If the table of rejects has an index with an expression or a condition, the load fails: nothing may be evaluated there.
BEGIN;
CREATE INDEX ON bulk_reject (lower(message));
SELECT error_of($$SELECT bulk_load(data_path('t'), 'numbers', '{"on_error": "table"}')$$);
ROLLBACK;
BEGIN;
CREATE INDEX ON bulk_reject (load_id) WHERE line_number > 1;
SELECT error_of($$SELECT bulk_load(data_path('t'), 'numbers', '{"on_error": "table"}')$$);
ROLLBACK;
DROP OWNED BY reject_loader, reject_other;
DROP ROLE reject_loader, reject_other;
SELECT count(*) > 0 FROM bulk_rejects;
SELECT v.* FROM unnest(ARRAY['kinds', 'texts', 'parts_0', 'parts_1_x', 'numbers']::regclass[]) t, verify_heapam(t) v;
