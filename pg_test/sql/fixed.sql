--
-- Records of fixed length: start and length of each column.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set load_helpers :data '/load_helpers.sql'
\set schema fixed
\i :helpers
\i :load_helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CALL make_table('people', $$id int OPTIONS (length '4'), name text OPTIONS (length '8'), born date OPTIONS (length '10'), code text OPTIONS (start '1', length '2', trim 'none')$$, $$format 'fixed'$$,
E'0001Ada     1815-12-10\n  2 Blaise  1623-06-19\n-3   Carl   1777-04-30\n');
SELECT id, '<' || name || '>', born, code FROM people;
SELECT count(*) FROM people;
SELECT name FROM people WHERE code = '00';
SELECT sum(id), max(born) FROM people;
-- Trimmed at either end, both, or not at all; NULL by the table's option or the column's.
CALL make_table('trimmed', $$l text OPTIONS (start '1', length '5', trim 'left'), r text OPTIONS (start '1', length '5'), b text OPTIONS (start '1', length '5', trim 'both'), n text OPTIONS (start '1', length '5', trim 'none'), z text OPTIONS (start '1', length '5', trim 'both', nullif '-')$$, $$format 'fixed', null ''$$,
E'  a  \n     \n  -  \nabcde\n');
SELECT to_json(t) FROM trimmed t;
-- Line ends of each kind, a header, a last line without an end, a byte order mark, records that are longer than their columns.
CALL make_table('ends', $$a int OPTIONS (length '2'), b text OPTIONS (length '3')$$, $$format 'fixed', header '1'$$, E'a b \r\n11one\r\n22two');
SELECT * FROM ends;
CALL make_table('ends', $$a int OPTIONS (length '2'), b text OPTIONS (length '3')$$, $$format 'fixed', record_length '7', skip '1'$$, E'\uFEFF11one..\r22two..\r33\\.\\..\r');
SELECT * FROM ends;
-- No byte has a meaning: quotes, backslashes, tabs, the end marker.
CALL make_table('bytes', $$a text OPTIONS (length '4', trim 'none')$$, $$format 'fixed'$$, E'"a\\"\n\\.\t,\n\\\\\\\\\n\\N  \n');
SELECT a FROM bytes;
-- Virtual columns, generated and dropped ones, domains, types without a decoder.
CREATE DOMAIN wanted AS text NOT NULL CHECK (value <> 'x');
CALL make_table('mixed', $$file text OPTIONS (source 'filename'), gone text, p point OPTIONS (length '6'), line int OPTIONS (source 'line_number'), w wanted OPTIONS (length '2', nullif ''), twice int GENERATED ALWAYS AS (n * 2) STORED, n int2 OPTIONS (length '3')$$, $$format 'fixed', header '1'$$, E'header\n(1,2) a 1  \n(3,-4)b -17\n');
ALTER FOREIGN TABLE mixed DROP COLUMN gone;
SELECT without_path(file), p, line, w, twice, n FROM mixed;
CALL write_file('mixed', E'header\n(1,2) a 1  \n(3,4) x 1  \n');
SELECT error_of('SELECT * FROM mixed');
CALL write_file('mixed', E'header\n(1,2)   1  \n');
SELECT error_of('SELECT * FROM mixed');
SELECT error_of('SELECT n FROM mixed');
-- Records of another length are errors, for each list of columns. Bad values are reported after that.
CALL make_table('bad', $$a int OPTIONS (length '2'), b text OPTIONS (length '3')$$, $$format 'fixed'$$, E'11one\n2two\n');
SELECT error_of('SELECT * FROM bad');
SELECT error_of('SELECT count(*) FROM bad');
SELECT error_of('SELECT a FROM bad WHERE a > 20');
CALL write_file('bad', E'11one\n\n');
SELECT error_of('SELECT a FROM bad');
CALL write_file('bad', E'11one\n22three\n');
SELECT error_of('SELECT count(*) FROM bad');
CALL write_file('bad', E'11one\nx2twoo\n');
SELECT error_of('SELECT a FROM bad');
CALL write_file('bad', E'11one\nx2two\n');
SELECT error_of('SELECT a FROM bad');
ALTER FOREIGN TABLE bad OPTIONS (ADD record_length '8');
CALL write_file('bad', E'11one..\n');
SELECT error_of('SELECT b FROM bad');
CALL write_file('bad', E'11one...\n22two\r..\n');
SELECT error_of('SELECT b FROM bad');
CALL write_file('bad', E'');
SELECT * FROM bad;
-- Characters: positions count bytes of the file, and bytes between the columns may have any value.
CALL make_table('chars', $$a text OPTIONS (start '1', length '2'), b text OPTIONS (start '4', length '3'), c text OPTIONS (start '7', length '1')$$, $$format 'fixed'$$, '');
CALL write_bytes('chars', '\x c3a4 ff e282ac 2e 0a 6262 00 616161 2e 0a c3a4 c3 61c3a4 7a 0a');
SELECT * FROM chars;
CALL write_bytes('chars', '\x 6162 20 e282ac 2e 0a 61 c3a4 20 e282 ac 0a');
SELECT error_of('SELECT b FROM chars');
CALL write_bytes('chars', '\x 6162 20 610062 2e 0a');
SELECT error_of('SELECT count(*) FROM chars');
CALL write_bytes('chars', '\x 6162 20 610000 2e 0a');
SELECT a, b, c FROM chars;
-- Files in other encodings are converted column by column.
CALL make_table('latin', $$a text OPTIONS (length '3'), b int OPTIONS (length '2'), c text OPTIONS (length '2')$$, $$format 'fixed', encoding 'latin1', null '-'$$, '');
CALL write_bytes('latin', '\x e4f6fc 3132 a7a7 0a 616220 3133 2d20 0a 2d2020 3134 ff2e 0a');
SELECT * FROM latin;
ALTER FOREIGN TABLE latin OPTIONS (SET encoding 'sjis');
CALL write_bytes('latin', '\x 8abf20 3132 835c 0a');
SELECT * FROM latin;
CALL write_bytes('latin', '\x 616220 3132 835c 0a 20208a bf32 835c 0a');
SELECT error_of('SELECT b FROM latin');
ALTER FOREIGN TABLE latin OPTIONS (SET encoding 'latin1');
-- Bad values.
CALL make_table('values_bad', $$a int2 OPTIONS (length '6'), b date OPTIONS (length '10')$$, $$format 'fixed', on_error 'ignore'$$, E'1     2020-01-01\nx     2020-01-02\n70000 2020-01-03\n4     2020-13-01\n-5    infinity  \n');
SELECT * FROM values_bad;
SELECT count(*) FROM values_bad;
ALTER FOREIGN TABLE values_bad OPTIONS (SET on_error 'set_null', ADD log_verbosity 'silent');
SELECT * FROM values_bad;
-- Loads, by both writers: the result equals that of COPY for the same rows in CSV.
CREATE TABLE original AS SELECT i AS id, CASE WHEN i % 7 > 0 THEN chr(97 + i % 26) || repeat(' ü', i % 3) || '.' END AS word, (i * 37 % 1000 / 8.0)::numeric(8,3) AS amount, date '2000-01-01' + i AS day FROM generate_series(1, 3000) i;
CREATE FUNCTION record(original) RETURNS text LANGUAGE sql AS $$ SELECT lpad($1.id::text, 6) || coalesce($1.word, '-') || repeat(' ', 9 - octet_length(convert_to(coalesce($1.word, '-'), 'UTF8'))) || rpad($1.amount::text, 9) || $1.day $$;
SELECT string_agg(record(o), E'\n' ORDER BY id) || E'\n' AS content FROM original o \gset
CALL write_file('fixed.dat', :'content');
DO $do$ BEGIN EXECUTE format('COPY original TO %L (FORMAT csv)', data_path('fixed.csv')); END $do$;
\set columns '[{"column": "id", "length": 6, "trim": "both"}, {"column": "word", "length": 9, "nullif": "-"}, {"column": "amount", "length": 9}, {"column": "day", "start": "25", "length": 10}]'
CREATE TABLE copied (LIKE original);
CREATE TABLE loaded (LIKE original);
DO $do$ BEGIN EXECUTE format('COPY copied FROM %L (FORMAT csv)', data_path('fixed.csv')); END $do$;
CREATE FUNCTION differing() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM ((SELECT t::text FROM copied t EXCEPT ALL SELECT t::text FROM loaded t) UNION ALL (SELECT t::text FROM loaded t EXCEPT ALL SELECT t::text FROM copied t)) d $$;
SELECT set_config('pg_bulk.chunk_size', '1kB', false);
SELECT w, o, (SELECT (rows_loaded, writer, workers) FROM bulk_load(data_path('fixed.dat'), 'loaded', jsonb_build_object('format', 'fixed', 'truncate', true, 'columns', :'columns'::jsonb, 'writer', w) || o)), differing()
FROM unnest('{buffered,direct}'::text[]) w, unnest(ARRAY['{"workers": 0}', '{"workers": 2}']::jsonb[]) o;
SELECT count(*), sum(id) FROM bulk_read(data_path('fixed.dat'), jsonb_build_object('format', 'fixed', 'columns', :'columns'::jsonb)) AS t (day date, id int, amount numeric, word text);
SELECT count(*) FROM bulk_check(data_path('fixed.dat'), 'loaded', jsonb_build_object('format', 'fixed', 'columns', :'columns'::jsonb));
-- INSERT in one process and with workers, with conditions, joined; and by the server itself.
CALL make_table('file', $$id int OPTIONS (length '6', trim 'both'), word text OPTIONS (length '9', nullif '-'), amount numeric OPTIONS (length '9'), day date OPTIONS (start '25', length '10')$$, $$format 'fixed'$$, :'content');
CREATE FUNCTION inserted(condition text, workers int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	direct text;
	n bigint;
BEGIN
	PERFORM set_config('pg_bulk.workers', workers::text, true);
	FOREACH direct IN ARRAY '{on,off}'::text[] LOOP
		PERFORM set_config('pg_bulk.direct_insert', direct, true);
		TRUNCATE loaded;
		EXECUTE 'INSERT INTO loaded SELECT f.* FROM file f ' || condition;
		DELETE FROM copied;
		EXECUTE 'INSERT INTO copied SELECT f.* FROM original f ' || condition;
		n := coalesce(n, 0) + differing();
	END LOOP;
	RETURN n;
END $$;
SELECT plan_of('INSERT INTO loaded SELECT * FROM file', 'COSTS OFF') AS plan;
SELECT w, c, inserted(c, w) FROM unnest('{0,2}'::int[]) w, unnest(ARRAY['', 'WHERE f.id % 3 = 1', 'WHERE f.word IS NULL', 'JOIN generate_series(5, 900, 5) g ON g = f.id']) c;
SET pg_bulk.workers = 2; SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
SELECT count(*), sum(id), count(word), sum(amount), max(day) FROM file;
SELECT count(*), sum(id), count(word), sum(amount), max(day) FROM original;
RESET pg_bulk.workers; RESET min_parallel_table_scan_size; RESET parallel_setup_cost; RESET parallel_tuple_cost;
ANALYZE file;
SELECT rows_expected('SELECT * FROM file');
RESET pg_bulk.chunk_size;
-- Rejects, by one process and by several.
SELECT string_agg(CASE i % 100 WHEN 3 THEN 'x' WHEN 5 THEN '' WHEN 7 THEN rpad(i::text, 9) WHEN 9 THEN '  9 ' || E'\u00e4' || 'b' WHEN 11 THEN '70000 a' ELSE rpad(i::text, 5) || 'ab' END, E'\n') AS content FROM generate_series(1, 1500) i \gset
SELECT alike('a int2, b text', :'content', '{"format": "fixed", "on_error": "table", "columns": [{"column": "a", "length": 5}, {"column": "b", "length": 2}]}');
SELECT alike('a int2, b text', convert_to(:'content', 'UTF8') || '\x0a20203920e36120', '{"format": "fixed", "on_error": "table", "columns": [{"column": "a", "length": 5}, {"column": "b", "length": 2}]}');
SELECT alike('a int2, b text', :'content', '{"format": "fixed", "on_error": "table", "reject_limit": 20, "columns": [{"column": "a", "length": 5}, {"column": "b", "length": 2}]}');
SELECT alike('a int2, b text', :'content', '{"format": "fixed", "columns": [{"column": "a", "length": 5}, {"column": "b", "length": 2}]}');
CREATE TABLE small (a int2, b text DEFAULT 'none');
CALL write_file('fixed.dat', E'1    ab\nx    ab\n3    abc\n4    a\n70000ab\n');
SELECT * FROM figures('fixed.dat', 'small', '{"format": "fixed", "on_error": "table", "columns": [{"column": "a", "length": 5}, {"column": "b", "length": 2}]}');
SELECT line_number, byte_offset, column_name, raw_field, raw_line, sqlstate, message FROM bulk_rejects WHERE load_id = (SELECT max(load_id) FROM bulk_rejects) ORDER BY line_number;
SELECT line_number, message FROM bulk_check(data_path('fixed.dat'), 'small', '{"format": "fixed", "columns": [{"column": "a", "length": 5}, {"column": "b", "length": 2}]}');
-- Columns that are left out get their defaults; where; several files; compressed ones.
CALL write_file('fixed.1.dat', E'1 ab\n2 cd\n');
CALL write_file('fixed.2.dat', E'3 ef\n');
SELECT * FROM figures('fixed.[12].dat', 'small', '{"format": "fixed", "truncate": true, "record_length": 4, "columns": [{"column": "a", "length": 2}], "where": "a <> 2"}');
SELECT * FROM small ORDER BY a;
SELECT * FROM figures('fixed.[12].dat', 'small', '{"format": "fixed", "truncate": true, "header": 1, "columns": [{"column": "a", "length": 2}, {"column": "b", "length": 2}]}');
SELECT * FROM small ORDER BY a;
CREATE TABLE gone (word text, line int, path text);
DO $do$ BEGIN EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'cat >/dev/null; gzip -c "' || data_path('fixed.1.dat') || '" >"' || data_path('fixed.1.gz') || '"'); END $do$;
SELECT * FROM figures('fixed.1.gz', 'gone', '{"format": "fixed", "columns": [{"column": "path", "source": "filename"}, {"column": "word", "start": 3, "length": 2}, {"column": "line", "source": "line_number"}], "record_length": 4}');
SELECT word, line, without_path(path) FROM gone;
-- A job of the queue gives the same result.
SELECT bulk_enqueue(data_path('fixed.1.dat'), 'small', '{"format": "fixed", "truncate": true, "columns": [{"column": "a", "length": 2}, {"column": "b", "length": 2}]}') AS job \gset
SELECT bulk_wait(:job);
SELECT * FROM small ORDER BY a;
-- Invalid combinations of options.
SELECT error_of($$ALTER FOREIGN TABLE people ALTER id OPTIONS (SET length '0')$$);
SELECT error_of($$ALTER FOREIGN TABLE people ALTER id OPTIONS (ADD start '-1')$$);
SELECT error_of($$ALTER FOREIGN TABLE people ALTER id OPTIONS (ADD trim 'front')$$);
SELECT error_of($$ALTER FOREIGN TABLE people ALTER id OPTIONS (ADD lenght '3')$$);
SELECT error_of($$ALTER FOREIGN TABLE people ALTER id OPTIONS (ADD source 'filename')$$);
SELECT error_of(format($$ALTER FOREIGN TABLE people OPTIONS (ADD %s %L)$$, name, value)) FROM (VALUES ('delimiter', ','), ('quote', '"'), ('escape', '"'), ('default', 'x'), ('force_null', '*'), ('force_not_null', 'id'), ('header', 'match'), ('match_by', 'name'), ('match_by', 'position'), ('record_length', '0'), ('record_length', 'x')) o (name, value);
SELECT error_of($$ALTER FOREIGN TABLE people OPTIONS (SET format 'csv', ADD record_length '30')$$);
SELECT error_of($$ALTER FOREIGN TABLE people OPTIONS (SET format 'csv'); SELECT * FROM people$$);
SELECT error_of($$ALTER FOREIGN TABLE people ALTER name OPTIONS (DROP length); SELECT * FROM people$$);
SELECT error_of($$ALTER FOREIGN TABLE people OPTIONS (ADD record_length '21'); SELECT * FROM people$$);
SELECT error_of(format('SELECT * FROM bulk_load(%L, ''small'', %L)', data_path('fixed.1.dat'), o)) FROM unnest(ARRAY['{"format": "fixed"}', '{"format": "fixed", "columns": ["a"]}', '{"format": "fixed", "columns": [{"column": "a"}]}', '{"format": "fixed", "columns": [{"column": "a", "lenght": 2}]}', '{"format": "fixed", "columns": [{"column": "a", "length": true}]}', '{"format": "fixed", "columns": [{"column": "a", "length": [2]}]}', '{"format": "fixed", "columns": [{"column": "a", "length": 2, "source": "filename"}]}', '{"columns": [{"column": "a", "length": 2}]}', '{"format": "fixed", "columns": [{"column": "a", "length": 2}, {"column": "a", "length": 2}]}', '{"format": "fixed", "columns": [{"column": "c", "length": 2}]}', '{"format": "fixed", "columns": [{"start": 1, "length": 2}]}', '{"format": "fixed", "delimiter": "x", "columns": [{"column": "a", "length": 2}]}']) o;
SELECT error_of(format('SELECT * FROM bulk_read(%L, %L) AS t (a int, b text)', data_path('fixed.1.dat'), o)) FROM unnest(ARRAY['{"format": "fixed"}', '{"format": "fixed", "columns": [{"column": "a", "length": 2}]}', '{"format": "fixed", "columns": [{"column": "c", "length": 2}]}', '{"format": "fixed", "columns": [{"column": "a", "length": 2}, {"column": "a", "length": 2}]}', '{"columns": ["a"]}', '{"format": "fixed", "columns": [{"column": "a", "source": "filename"}]}']) o;
-- COPY does not accept this format, whether the server or pg_bulk runs it.
LOAD 'pg_bulk';
SET pg_bulk.copy = on;
SET pg_bulk.copy_min_size = 0;
SELECT error_of(format('COPY small FROM %L (FORMAT fixed)', data_path('fixed.1.dat')));
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA IF EXISTS loaded CASCADE;
DROP SCHEMA fixed CASCADE;
