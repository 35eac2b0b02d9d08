--
-- Bytes that are invalid in the file's encoding: an error, a reject, or a replacement character.
--
\set ECHO none
-- The HINT of rejected rows has the number of the load, which depends on earlier tests.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set load_helpers :data '/load_helpers.sql'
\set schema encoding_errors
\i :helpers
\i :load_helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
-- Invalid bytes within quotes, alone, cut off by a delimiter or a line end, a zero byte, at the end of the file.
CALL make_table('bytes', 'a int, b text, c text', $$format 'csv'$$, '');
\set bytes '\\x 312c 61e462 2c78 0a 322c 22 e282 2c 0a 7a22 2c c3 0a 332c c3a4 2c 79 0a 342c ff00 2c e282 0a 352c 6f6b 2c f09f98'
CALL write_bytes('bytes', :'bytes');
SELECT error_of('SELECT * FROM bytes');
SELECT error_of('SELECT count(*) FROM bytes');
ALTER FOREIGN TABLE bytes OPTIONS (ADD encoding_errors 'replace');
SELECT to_json(t) FROM bytes t;
SELECT a FROM bytes;
SELECT count(*), sum(a), count(b), max(length(c)) FROM bytes;
SELECT count(*) FROM bytes;
SELECT a FROM bytes WHERE b LIKE E'%\uFFFD%';
SELECT error_of('SELECT c::int FROM bytes WHERE a = 4');
ALTER FOREIGN TABLE bytes OPTIONS (ADD on_error 'ignore', SET encoding_errors 'reject');
SELECT to_json(t) FROM bytes t;
SELECT count(*) FROM bytes;
ALTER FOREIGN TABLE bytes OPTIONS (ADD log_verbosity 'verbose', ADD reject_limit '3', ADD skip '1');
SELECT to_json(t) FROM bytes t;
ALTER FOREIGN TABLE bytes OPTIONS (SET reject_limit '2');
SELECT error_of('SELECT a FROM bytes');
ANALYZE bytes;
ALTER FOREIGN TABLE bytes OPTIONS (SET encoding_errors 'stop');
SELECT error_of('SELECT a FROM bytes');
-- Other errors still end the scan.
CALL write_bytes('bytes', '\x 312c 61 2c 62 0a 322c ff 2c 63 0a 332c 64 0a');
ALTER FOREIGN TABLE bytes OPTIONS (SET encoding_errors 'reject', DROP skip);
SELECT error_of('SELECT a FROM bytes');
CALL write_bytes('bytes', '\x 312c 61 2c 62 2c 63 0a 322c 64 2c 65 0a');
SELECT error_of('SELECT a FROM bytes');
-- Text: escapes that make such bytes, in fields that the query needs or not.
CALL make_table('escapes', 'a text, b text', $$encoding_errors 'replace'$$, '');
CALL write_bytes('escapes', convert_to(E'a\\xe4\tb\n\\xc3\\xa4\\0\tx\n\\\\N\t\\N\n', 'UTF8') || '\xff09fe0a');
SELECT to_json(t) FROM escapes t;
SELECT b FROM escapes;
ALTER FOREIGN TABLE escapes OPTIONS (ADD on_error 'ignore', SET encoding_errors 'reject');
SELECT to_json(t) FROM escapes t;
SELECT b FROM escapes;
-- A message shows the line only if it is valid.
CALL make_table('shown', 'a int, b int', $$format 'csv', encoding_errors 'replace'$$, '');
CALL write_bytes('shown', '\x 312c ff 0a');
SELECT error_of('SELECT * FROM shown');
CALL write_bytes('shown', '\x 31 ff 0a');
SELECT error_of('SELECT * FROM shown');
-- Files that are converted, and characters that the server's encoding lacks.
CALL make_table('converted', 'a int, b text', $$format 'csv', encoding 'sjis', encoding_errors 'replace'$$, '');
CALL write_bytes('converted', '\x 312c 8abf 80 0a 322c 81 0a 332c 8540 8abf 00 0a 342c 83');
SELECT to_json(t) FROM converted t;
ALTER FOREIGN TABLE converted OPTIONS (SET encoding 'win1252');
SELECT string_agg(CASE WHEN i % 50 = 0 THEN '\x2c8161810a'::bytea WHEN i % 7 = 0 THEN '\x2ce420800a' ELSE '\x2c61620a' END, '') AS content FROM generate_series(1, 5000) i \gset
CALL write_bytes('converted', :'content');
SELECT b, count(*) FROM converted GROUP BY b ORDER BY 2;
-- Bytes that cannot be converted are errors of their records, in a database in UTF8. Rejects keep the bytes that cannot be converted.
ALTER FOREIGN TABLE converted OPTIONS (SET encoding_errors 'reject', ADD on_error 'ignore');
SELECT b, count(*) FROM converted GROUP BY b ORDER BY 2;
SET pg_bulk.chunk_size = '64';
SELECT b, count(*) FROM converted GROUP BY b ORDER BY 2;
RESET pg_bulk.chunk_size;
CREATE TABLE kept (a int, b text);
CALL write_bytes('converted', '\x 312c 8abf 0a 322c 81 0a 332c 8540 5c 0a 342c 2263 00 0a 2c 22 0a 352c ffff 0a 782c 83 7c 0a 372c 8abf 81');
SELECT * FROM figures('converted', 'kept', '{"format": "csv", "encoding": "sjis", "on_error": "table"}');
SELECT line_number, column_name, raw_line, raw_bytes, sqlstate, message FROM bulk_rejects WHERE load_id = (SELECT max(load_id) FROM bulk_rejects) ORDER BY line_number;
TABLE kept;
TRUNCATE kept;
SELECT * FROM figures('converted', 'kept', '{"format": "text", "delimiter": ",", "encoding": "win1252", "on_error": "table"}');
SELECT line_number, raw_bytes, sqlstate, message FROM bulk_rejects WHERE load_id = (SELECT max(load_id) FROM bulk_rejects) ORDER BY line_number;
TABLE kept;
-- Records of fixed length: each column is verified separately, in any encoding.
CALL make_table('places', $$a text OPTIONS (length '3'), b text OPTIONS (length '3')$$, $$format 'fixed', encoding_errors 'replace'$$, '');
CALL write_bytes('places', '\x 616263 646566 0a 61c3a4 ff6480 0a c3a4c3 a46420 0a 610062 646566 0a');
SELECT to_json(t) FROM places t;
ALTER FOREIGN TABLE places OPTIONS (SET encoding_errors 'reject', ADD on_error 'ignore');
SELECT to_json(t) FROM places t;
ALTER FOREIGN TABLE places OPTIONS (SET encoding_errors 'replace', ADD encoding 'sjis');
CALL write_bytes('places', '\x 8abf20 208abf 0a 61628a bf2020 0a');
SELECT to_json(t) FROM places t;
ALTER FOREIGN TABLE places OPTIONS (SET encoding_errors 'reject');
SELECT to_json(t) FROM places t;
-- Loads by one process and by several: each record has its invalid bytes at another position of a chunk.
SELECT string_agg(convert_to(i || ',', 'UTF8') || CASE i % 50 WHEN 3 THEN '\x61ff62' WHEN 5 THEN '\x22 e282 0a 78ff22' WHEN 7 THEN '\xc3' WHEN 9 THEN '\x61 00' ELSE convert_to(repeat('ä', i % 5), 'UTF8') END, '\x0a') AS content FROM generate_series(1, 999) i \gset
CREATE FUNCTION replaced(options jsonb) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	ours text;
	wanted text;
BEGIN
	CREATE TABLE t (a int, b text);
	PERFORM * FROM bulk_load(data_path('invalid.csv'), 't', options || '{"format": "csv", "encoding_errors": "replace"}');
	SELECT md5(string_agg(t::text, E'\n' ORDER BY a)) INTO ours FROM t;
	SELECT md5(string_agg(r::text, E'\n' ORDER BY i)) INTO wanted FROM (SELECT i, CASE i % 50 WHEN 3 THEN E'a\uFFFDb' WHEN 5 THEN E'\uFFFD\nx\uFFFD' WHEN 7 THEN E'\uFFFD' WHEN 9 THEN E'a\uFFFD' WHEN 0 THEN NULL ELSE nullif(repeat('ä', i % 5), '') END FROM generate_series(1, 999) i) r (i, b);
	RETURN NEXT ours = wanted;
	DROP TABLE t;
END $$;
CALL write_bytes('invalid.csv', :'content');
SELECT set_config('pg_bulk.chunk_size', '1kB', false);
SELECT o, replaced(o) FROM unnest(ARRAY['{"writer": "direct", "workers": 0}', '{"writer": "direct", "workers": 2}', '{"writer": "buffered"}']::jsonb[]) o;
SELECT alike('a int, b text', :'content'::bytea, '{"format": "csv", "encoding_errors": "replace"}');
SELECT alike('a int, b text', :'content'::bytea, '{"format": "csv", "on_error": "table"}');
SELECT alike('a int, b text', :'content'::bytea, '{"format": "csv", "on_error": "table", "encoding_errors": "reject"}');
SELECT alike('a int, b text', :'content'::bytea, '{"format": "csv", "on_error": "table", "encoding_errors": "reject", "reject_limit": 30}');
SELECT alike('a int, b text', :'content'::bytea, '{"format": "csv", "on_error": "table", "encoding_errors": "stop"}');
SELECT alike('a int, b text', :'content'::bytea, '{"format": "csv", "on_error": "ignore", "encoding_errors": "reject"}');
SELECT alike('a int, b text', :'content'::bytea, '{"format": "csv", "on_error": "ignore", "encoding_errors": "reject", "reject_limit": 50}');
SELECT alike('a int, b text', :'content'::bytea, '{"format": "csv", "on_error": "ignore"}');
-- The server's own INSERT, and a load of it; aggregates; by several processes.
CALL make_table('invalid', 'a int, b text', $$format 'csv', encoding_errors 'replace'$$, '');
CALL write_bytes('invalid', :'content');
CREATE TABLE loaded (a int, b text);
CREATE TABLE own (LIKE loaded);
SET pg_bulk.direct_insert = off;
INSERT INTO own SELECT * FROM invalid;
RESET pg_bulk.direct_insert;
SELECT count(*), count(b), count(*) FILTER (WHERE b LIKE E'%\uFFFD%') FROM own;
SET pg_bulk.workers = 0;
INSERT INTO loaded SELECT * FROM invalid;
SET pg_bulk.workers = 2;
INSERT INTO loaded SELECT * FROM invalid WHERE a > 0;
SELECT count(*) FROM (SELECT a, b, count(*) FROM (SELECT * FROM loaded UNION ALL SELECT * FROM own) u GROUP BY a, b HAVING count(*) <> 3) d;
SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
SELECT count(*), count(b), sum(a), count(*) FILTER (WHERE b LIKE E'%\uFFFD%') FROM invalid;
SELECT count(*) FROM invalid;
RESET pg_bulk.workers; RESET min_parallel_table_scan_size; RESET parallel_setup_cost; RESET parallel_tuple_cost;
RESET pg_bulk.chunk_size;
-- Rejects keep the bytes. A rejected value shows replacement characters, its record does not.
CREATE TABLE small (a int2, b text);
CALL write_bytes('small.csv', '\x 312c 61 0a 322c ff 0a 78ff2c 62 0a 79 2c c3a4 0a');
SELECT * FROM figures('small.csv', 'small', '{"format": "csv", "on_error": "table"}');
SELECT line_number, byte_offset, column_name, raw_field, raw_line, raw_bytes, sqlstate, message FROM bulk_rejects WHERE load_id = (SELECT max(load_id) FROM bulk_rejects) ORDER BY line_number;
SELECT * FROM figures('small.csv', 'small', '{"format": "csv", "on_error": "table", "encoding_errors": "replace"}');
SELECT line_number, byte_offset, column_name, raw_field, raw_line, raw_bytes, sqlstate, message FROM bulk_rejects WHERE load_id = (SELECT max(load_id) FROM bulk_rejects) ORDER BY line_number;
SELECT to_json(s) FROM small s;
SELECT * FROM figures('small.csv', 'small', '{"format": "csv", "on_error": "ignore", "encoding_errors": "reject", "log_verbosity": "verbose", "writer": "buffered"}');
SELECT * FROM figures('small.csv', 'small', '{"format": "csv", "on_error": "ignore", "encoding_errors": "reject", "log_verbosity": "verbose", "writer": "direct", "workers": 0}');
SELECT line_number, raw_field, raw_bytes, message FROM bulk_check(data_path('small.csv'), 'small', '{"format": "csv"}');
SELECT line_number, raw_field, raw_bytes, message FROM bulk_check(data_path('small.csv'), 'small', '{"format": "csv", "encoding_errors": "stop"}');
SELECT line_number, raw_field, raw_bytes, message FROM bulk_check(data_path('small.csv'), 'small', '{"format": "csv", "encoding_errors": "replace"}');
SELECT to_json(t) FROM bulk_read(data_path('small.csv'), '{"format": "csv", "encoding_errors": "replace"}') AS t (a text, b text);
SELECT to_json(t) FROM bulk_read(data_path('small.csv'), '{"format": "csv", "encoding_errors": "reject", "on_error": "ignore", "reject_limit": "50%"}') AS t (a text, b text);
SELECT error_of(format('SELECT * FROM bulk_read(%L, %L) AS t (a text, b text)', data_path('small.csv'), '{"format": "csv", "encoding_errors": "reject", "on_error": "ignore", "reject_limit": "49%"}'));
-- Invalid combinations of options.
SELECT error_of(format('ALTER FOREIGN TABLE shown OPTIONS (%s)', o)) FROM unnest(ARRAY[$$SET encoding_errors 'skip'$$, $$SET encoding_errors 'reject'$$, $$SET encoding_errors 'reject', ADD on_error 'set_null'$$]) o;
SELECT error_of(format('SELECT * FROM bulk_load(%L, ''small'', %L)', data_path('small.csv'), '{"encoding_errors": "reject"}'));
-- SQL_ASCII in a UTF8 database: no process verifies the bytes, and characters are counted as COPY's input functions count them.
CREATE FUNCTION outcome(definition text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('CREATE TABLE unverified (b %s)', definition);
	EXECUTE statement;
	SELECT string_agg(encode(textsend(b::text), 'hex'), ' ') INTO result FROM unverified;
	DROP TABLE unverified;
	RETURN result;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
CREATE FUNCTION as_copy(definition text, content bytea) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	copys text;
	ours text;
	way text;
BEGIN
	CALL write_bytes('unverified', content);
	copys := outcome(definition, format('COPY unverified FROM %L (ENCODING ''sql_ascii'')', data_path('unverified')));
	FOREACH way IN ARRAY ARRAY[
		format('INSERT INTO unverified SELECT * FROM bulk_read(%L, ''{"encoding": "sql_ascii"}'') AS t (b %s)', data_path('unverified'), definition),
		format('SELECT bulk_load(%L, ''unverified'', ''{"encoding": "sql_ascii", "writer": "buffered"}'')', data_path('unverified')),
		format('SELECT bulk_load(%L, ''unverified'', ''{"encoding": "sql_ascii"}'')', data_path('unverified'))] LOOP
		ours := outcome(definition, way);
		IF ours IS DISTINCT FROM copys THEN
			RETURN NEXT format('%s %s: %s, and COPY %s, %s', definition, content, ours, copys, way);
		END IF;
	END LOOP;
	RETURN NEXT 'equal';
END $$;
SELECT said, count(*) FROM unnest('{varchar(1),varchar(3),char(1),char(3),char(5),varchar(2)[],char(3)[],text,json,jsonb}'::text[]) definition,
	unnest('{808080,e9,e94142,636166e9,c3a9,c3a9c3a9,c3a9c3a920,e282,f09f,616263,6162632020,22e922,22c3a922,7b8080807d,7be941427d,7bc3a97d}'::text[]) content,
	as_copy(definition, decode(repeat(content || '0a', 40), 'hex')) said GROUP BY 1;
-- Where the server verifies, a question mark replaces each invalid byte, also in chunks and for bytes that escapes make.
SELECT string_agg(convert_to(i::text, 'UTF8') || CASE i % 4 WHEN 0 THEN '\x09b4c1ff5c7866660a'::bytea WHEN 1 THEN '\x09b40a' WHEN 2 THEN '\x09b4c1008f0a' ELSE '\x09ffb4c1c1' || CASE WHEN i < 999 THEN '\x0a'::bytea ELSE '' END END, '') AS content FROM generate_series(1, 999) i \gset
CALL write_bytes('kanji', :'content');
CREATE DATABASE encoding_errors TEMPLATE template0 ENCODING 'EUC_JP' LC_COLLATE 'C' LC_CTYPE 'C';
SELECT data_path('kanji') AS kanji, current_database() AS back \gset
\connect encoding_errors
CREATE EXTENSION pg_bulk;
CREATE TABLE kanji (a int, b text);
SELECT set_config('pg_bulk.chunk_size', '64', false);
SELECT rows_loaded, workers FROM bulk_load(:'kanji', 'kanji', '{"encoding": "euc_jp", "encoding_errors": "replace", "workers": 2}');
SELECT a % 4, encode(convert_to(b, 'EUC_JP'), 'hex'), count(*) FROM kanji GROUP BY 1, 2 ORDER BY 1;
SELECT count(*) FROM kanji k FULL JOIN bulk_read(:'kanji', '{"encoding": "euc_jp", "encoding_errors": "replace"}') AS t (a int, b text) USING (a, b) WHERE k.a IS NULL OR t.a IS NULL;
\connect :back
DROP DATABASE encoding_errors;
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA encoding_errors CASCADE;
DROP SCHEMA IF EXISTS loaded CASCADE;
