--
-- Rows that a load leaves out.
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
-- A row takes its time, so that all processes get some.
CREATE FUNCTION slowly(a int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	PERFORM pg_sleep(CASE WHEN a % 50 = 0 THEN 0.01 ELSE 0.0002 END);
	RETURN true;
END $$;
-- Several processes leave out what one does, and name the same line when it is too much.
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
-- Another error that comes first, or not.
SELECT alike('a int CHECK (slowly(a) AND a <> 501), b text', :'content', '{"format": "csv", "on_error": "ignore", "reject_limit": 72}');
SELECT alike('a int CHECK (slowly(a) AND a <> 501), b text', :'content', '{"format": "csv", "on_error": "ignore", "reject_limit": 71}');
SELECT alike('a int CHECK (slowly(a) AND a <> 501), b text', :'content', '{"format": "csv", "on_error": "ignore", "reject_limit": 70}');
-- Each process knows the settings that values depend on.
SET DateStyle = 'ISO, DMY';
SELECT alike('a date, b int', string_agg(format('%s.%s.2024,%s', i % 28 + 1, i % 14, i), E'\n'), '{"format": "csv", "on_error": "ignore"}')
FROM generate_series(1, 600) i;
RESET DateStyle;
-- One process where values are converted in subtransactions, and where each is spoken of.
CREATE DOMAIN small AS int CHECK (VALUE < 100);
CALL write_bytes('t', convert_to(E'1\n200\n3\n', 'UTF8'));
CREATE TABLE smalls (a small);
SELECT loaded, rejected FROM figures('t', 'smalls', '{"on_error": "ignore", "log_verbosity": "verbose"}');
SELECT loaded, rejected FROM figures('t', 'smalls', '{"on_error": "set_null", "workers": 2}');
SELECT array_agg(a), count(*) FROM smalls;
SELECT * FROM verify_heapam('smalls');
