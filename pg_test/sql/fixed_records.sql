--
-- Records of fixed length without line ends, and binary numbers in them as other programs store them.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set load_helpers :data '/load_helpers.sql'
\set schema fixed_records
\i :helpers
\i :load_helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
-- No byte between or in records has a special meaning.
CALL make_table('words', $$a text OPTIONS (length '3'), b text OPTIONS (length '2', trim 'none', nullif E'\n\n'), line int OPTIONS (source 'line_number')$$, $$format 'fixed', record_length '6', line_ends 'false'$$,
E'abcde.\nx\n\r\n\r\\.\n\n\n\n"q ,;\t');
SELECT to_json(w) FROM words w;
SELECT count(*) FROM words WHERE line > 2;
CALL write_file('words', E'abcde.fghij');
SELECT error_of('SELECT * FROM words');
SELECT error_of('SELECT count(*) FROM words');
SELECT * FROM words LIMIT 1;
CALL write_file('words', '');
SELECT * FROM words;
-- Only the bytes of columns are verified; zero bytes pad strings.
CALL write_bytes('words', '\x c3a400 6161 ff ff0000 6161 00');
SELECT error_of('SELECT b FROM words');
CALL write_bytes('words', '\x c3a400 6161 ff 610000 c3b6 00');
SELECT * FROM words;
ALTER FOREIGN TABLE words OPTIONS (ADD encoding 'latin1');
CALL write_bytes('words', '\x e40000 6161 ff 61e420 c3b6 00');
SELECT * FROM words;
-- Numbers: of each size, in both byte orders, into columns of any type.
CREATE FUNCTION reversed(bytea) RETURNS bytea LANGUAGE sql AS $$ SELECT string_agg(substring($1 FROM i FOR 1), '' ORDER BY i DESC) FROM generate_series(1, length($1)) i $$;
CALL make_table('ints', $$b1 int OPTIONS (length '1', binary_type 'int_be'), u1 int OPTIONS (length '1', binary_type 'uint_le'), b3 int8 OPTIONS (length '3', binary_type 'int_be'), l3 text OPTIONS (length '3', binary_type 'INT_LE'), n8 numeric OPTIONS (length '8', binary_type 'uint_be'), s8 int8 OPTIONS (length '8', binary_type 'int_le', nullif '-1')$$, $$format 'fixed', record_length '24', line_ends 'false'$$, '');
CALL write_bytes('ints', '\x ff ff fffffe feffff ffffffffffffffff ffffffffffffffff  7f 80 800000 000080 8000000000000000 0000000000000080  0a 0d 0a0d0a 0a0d0a 0a0a0a0a0a0a0a0a 0000000000000000');
SELECT * FROM ints;
SELECT sum(b1), count(s8) FROM ints WHERE u1 > 100;
CALL make_table('floats', $$l4 float4 OPTIONS (length '4', binary_type 'float_le'), b4 float8 OPTIONS (start '1', length '4', binary_type 'float_le'), n4 numeric OPTIONS (start '1', length '4', binary_type 'float_le'), b8 float8 OPTIONS (length '8', binary_type 'float_be', start '5'), t8 text OPTIONS (start '5', length '8', binary_type 'float_be')$$, $$format 'fixed', record_length '12', line_ends 'false'$$, '');
DO $do$ DECLARE floats bytea := (SELECT string_agg(reversed(float4send(a)) || float8send(b), '' ORDER BY n) FROM (VALUES (1, 0.1::float4, 0.1::float8), (2, 1e30, 1e300), (3, '-infinity', 'nan'), (4, '-0', -123456.789), (5, 1e-45, 5e-324)) v (n, a, b)); BEGIN CALL write_bytes('floats', floats); END $do$;
SELECT * FROM floats;
-- A number out of a column's range is an error with the message of its type.
CALL make_table('narrow', $$a int2 OPTIONS (length '4', binary_type 'int_be')$$, $$format 'fixed', record_length '4', line_ends 'false'$$, '');
CALL write_bytes('narrow', '\x 00007fff 00008000');
SELECT error_of('SELECT * FROM narrow');
SELECT count(*) FROM narrow;
ALTER FOREIGN TABLE narrow OPTIONS (ADD on_error 'ignore', ADD log_verbosity 'verbose');
SELECT * FROM narrow;
ALTER FOREIGN TABLE narrow OPTIONS (SET on_error 'set_null');
SELECT * FROM narrow;
-- Loads and scans by one process and by several, of a file that the server's own functions have written.
CREATE TABLE original AS SELECT i AS id, CASE WHEN i % 5 > 0 THEN repeat(chr(97 + i % 26), i % 7) || 'é' END AS word, (i - 1500) * 1000003::bigint AS big, (i / 7.0)::float8 AS ratio, (i % 200 - 100)::int2 AS small FROM generate_series(1, 3000) i;
SELECT (SELECT string_agg(int4send(id) || convert_to(coalesce(word, 'null'), 'UTF8') || decode(repeat('00', 8 - octet_length(convert_to(coalesce(word, 'null'), 'UTF8'))), 'hex') || reversed(int8send(big)) || float8send(ratio) || substring(int2send(small) FROM 2) || '\xff'::bytea, '' ORDER BY id) FROM original) AS content \gset
CALL write_bytes('records.dat', :'content');
\set columns '[{"column": "id", "length": 4, "binary_type": "int_be"}, {"column": "word", "length": 8, "nullif": "null"}, {"column": "big", "length": 8, "binary_type": "int_le"}, {"column": "ratio", "length": 8, "binary_type": "float_be"}, {"column": "small", "length": 1, "binary_type": "int_le"}]'
CREATE TABLE loaded (LIKE original);
CREATE FUNCTION differing(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM ((SELECT t::text FROM original t EXCEPT ALL SELECT t::text FROM (%s) t) UNION ALL (SELECT t::text FROM (%1$s) t EXCEPT ALL SELECT t::text FROM original t)) d', query) INTO n;
	RETURN n;
END $$;
SELECT set_config('pg_bulk.chunk_size', '1kB', false);
SELECT w, o, (SELECT (rows_loaded, writer, workers) FROM bulk_load(data_path('records.dat'), 'loaded', jsonb_build_object('format', 'fixed', 'record_length', 30, 'line_ends', false, 'truncate', true, 'columns', :'columns'::jsonb, 'writer', w) || o)), differing('SELECT * FROM loaded')
FROM unnest('{buffered,direct}'::text[]) w, unnest(ARRAY['{"workers": 0}', '{"workers": 2}']::jsonb[]) o;
CALL make_table('file', $$id int OPTIONS (length '4', binary_type 'int_be'), word text OPTIONS (length '8', nullif 'null'), big int8 OPTIONS (length '8', binary_type 'int_le'), ratio float8 OPTIONS (length '8', binary_type 'float_be'), small int2 OPTIONS (length '1', binary_type 'int_le')$$, $$format 'fixed', record_length '30', line_ends 'false'$$, '');
CALL write_bytes('file', :'content');
SELECT differing('SELECT * FROM file');
TRUNCATE loaded;
SET pg_bulk.workers = 2; SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
INSERT INTO loaded SELECT * FROM file;
SELECT differing('SELECT * FROM loaded');
SELECT count(*), sum(id), count(word), sum(big), sum(small) FROM file;
SELECT count(*), sum(id), count(word), sum(big), sum(small) FROM original;
RESET pg_bulk.workers; RESET min_parallel_table_scan_size; RESET parallel_setup_cost; RESET parallel_tuple_cost;
SELECT rows_expected('SELECT * FROM file');
DO $do$ BEGIN EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'cat >/dev/null; gzip -c "' || data_path('records.dat') || '" >"' || data_path('records.gz') || '"'); END $do$;
SELECT (SELECT (rows_loaded, workers) FROM bulk_load(data_path('records.gz'), 'loaded', jsonb_build_object('format', 'fixed', 'record_length', 30, 'line_ends', false, 'truncate', true, 'columns', :'columns'::jsonb, 'workers', 2))), differing('SELECT * FROM loaded');
SELECT count(*), sum(id) FROM bulk_read(data_path('records.[dg]*'), jsonb_build_object('format', 'fixed', 'record_length', 30, 'line_ends', false, 'columns', '[{"column": "id", "length": 4, "binary_type": "int_be"}]'::jsonb)) AS t (id int);
SELECT rows_loaded, workers FROM bulk_load(data_path('records.[dg]*'), 'loaded', jsonb_build_object('format', 'fixed', 'record_length', 30, 'line_ends', false, 'truncate', true, 'columns', :'columns'::jsonb, 'workers', 2));
SELECT count(*), sum(id) FROM loaded;
RESET pg_bulk.chunk_size;
-- Rejects: bad values, and a last record that is cut off.
SELECT (SELECT string_agg(CASE i % 100 WHEN 3 THEN '\x00010000 6161' WHEN 5 THEN '\x00000005 c361' WHEN 7 THEN '\x00000007 6100' ELSE int4send(i) || '\x6262' END, '' ORDER BY i) FROM generate_series(1, 2000) i) AS content \gset
SELECT alike('a int2, b text', :'content'::bytea || tail, '{"format": "fixed", "record_length": 6, "line_ends": false, "on_error": "table", "columns": [{"column": "a", "length": 4, "binary_type": "int_be"}, {"column": "b", "length": 2}]}') FROM unnest('{"",\\x00,\\x0000000061}'::bytea[]) tail;
SELECT alike('a int2, b text', '\x000000016161'::bytea || tail, '{"format": "fixed", "record_length": 6, "line_ends": false, "workers": 0, "columns": [{"column": "a", "length": 4, "binary_type": "int_be"}, {"column": "b", "length": 2}]}') FROM unnest('{"",\\x00,\\x0000000061}'::bytea[]) tail;
SELECT alike('a int2, b text', :'content'::bytea, '{"format": "fixed", "record_length": 6, "line_ends": false, "on_error": "table", "reject_limit": 30, "columns": [{"column": "a", "length": 4, "binary_type": "int_be"}, {"column": "b", "length": 2}]}');
CREATE TABLE small (a int2, b text);
CALL write_bytes('records.dat', '\x 000000016161 000100006161 00000003c361 00000004');
SELECT * FROM figures('records.dat', 'small', '{"format": "fixed", "record_length": 6, "line_ends": false, "on_error": "table", "columns": [{"column": "a", "length": 4, "binary_type": "int_be"}, {"column": "b", "length": 2}]}');
SELECT line_number, byte_offset, column_name, raw_field, raw_line, raw_bytes, sqlstate, message FROM bulk_rejects WHERE load_id = (SELECT max(load_id) FROM bulk_rejects) ORDER BY line_number;
-- Invalid combinations of options.
SELECT error_of(format($$ALTER FOREIGN TABLE words OPTIONS (%s)$$, o)) FROM unnest(ARRAY['DROP record_length', $$ADD header '1'$$, $$SET record_length '100000000'$$, $$SET line_ends 'perhaps'$$, $$SET format 'text', DROP record_length$$]) o;
SELECT error_of(format($$ALTER FOREIGN TABLE narrow ALTER a OPTIONS (%s)$$, o)) FROM unnest(ARRAY[$$SET binary_type 'int'$$, $$SET binary_type ''$$]) o;
SELECT error_of(format($$ALTER FOREIGN TABLE narrow ALTER a OPTIONS (%s); SELECT * FROM narrow$$, o)) FROM unnest(ARRAY[$$SET length '9'$$, $$SET binary_type 'float_le', SET length '2'$$, $$ADD trim 'left'$$]) o;
SELECT error_of($$ALTER FOREIGN TABLE narrow OPTIONS (SET line_ends 'true'); SELECT * FROM narrow$$);
-- Ids of several files are assigned by the number of their records, for any content.
SELECT string_agg(lpad(i::text, 5, 'x'), '' ORDER BY i) FILTER (WHERE i <= 2000) AS few, string_agg(lpad(i::text, 5, 'y'), '' ORDER BY i) || 'z' AS more FROM generate_series(1, 3000) i \gset
CALL write_bytes('ids.1', convert_to(:'few', 'UTF8'));
CALL write_bytes('ids.2', convert_to(:'more', 'UTF8'));
CREATE TABLE numbered (id serial, word text NOT NULL);
SELECT rows_loaded, rows_rejected FROM bulk_load(data_path('ids.[12]'), 'numbered',
	'{"format": "fixed", "line_ends": false, "record_length": 5, "workers": 2, "on_error": "table", "columns": [{"column": "word", "length": 5}]}');
SELECT count(*), count(DISTINCT id), min(id), bool_and(id > previous) FROM (SELECT id, lag(id, 1, 0) OVER (ORDER BY word ~ '^y', trim(word, 'xy')::int) AS previous FROM numbered) n;
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA IF EXISTS loaded CASCADE;
DROP SCHEMA fixed_records CASCADE;
