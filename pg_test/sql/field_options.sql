--
-- Options that refine the texts of fields before they are converted: trim, null_if, decimal, thousands.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set load_helpers :data '/load_helpers.sql'
\set schema field_options
\i :helpers
\i :load_helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
-- Trimmed blanks count as absent from the file: an empty field is NULL, and quotes behind blanks enclose the field. Blanks in quotes stay.
CALL make_table('blanks', $$l text OPTIONS (trim 'left'), r text OPTIONS (trim 'right'), b text OPTIONS (trim 'both'), n text$$, $$format 'csv'$$,
E' a , a , a , a \n  ,\t, \t , \n" a "," a "," a "," a "\n  " a " , " a "  , \t" a "" " , " a " \n"a,\n b " , "a , b" , " a , b" ,x\n');
SELECT to_json(t) FROM blanks t;
-- For the whole file, except for columns with an option of their own.
ALTER FOREIGN TABLE blanks OPTIONS (ADD trim 'both');
SELECT to_json(t) FROM blanks t;
ALTER FOREIGN TABLE blanks ALTER n OPTIONS (ADD trim 'none'), ALTER b OPTIONS (ADD force_not_null 'true'), ALTER r OPTIONS (SET trim 'both', ADD force_null 'true');
CALL write_file('blanks', E' a , "" ,  , a \n x, a,"",\n');
SELECT to_json(t) FROM blanks t;
-- Text has escapes, and a marker of two characters.
CALL make_table('escapes', $$a text, b text$$, $$trim 'both', delimiter '|'$$, E'  a\\  | \\N \n\\ta\\t |\t\\\\ \n \\\\\\ |\\\\N \n  | \\x20b\\040\n');
SELECT to_json(t) FROM escapes t;
-- The marker for the default, too.
CALL make_table('defaults', $$a int, b text DEFAULT 'none'$$, $$format 'csv', trim 'both', default '?'$$, E'1 , ? \n2,"?"\n3, "?"\n');
SELECT * FROM defaults;
CALL write_file('defaults', E'1,x\n ? ,y\n');
SELECT error_of('SELECT * FROM defaults');
SELECT error_of('SELECT count(*) FROM defaults');
-- Values for NULL, in quotes or not; the option null matches only without quotes. The list is written as lists of names are, but case counts.
CALL make_table('nulls', $$a text, b text OPTIONS (null_if 'x'), c text OPTIONS (null_if '"", "a, b", "c""d" , Nul L'), d int OPTIONS (nullif '-1')$$, $$format 'csv', null '-', null_if 'NA, n/a'$$,
E'NA,NA,NA,7\n"n/a",x,"",-1\n-,"-",,-\nna,"x","a, b","-1"\n N/A,"NA ","c""d",0\n" NA",-,Nul L,-1\nNA ,y,nul l,1\n');
SELECT to_json(t) FROM nulls t;
SELECT count(*), count(a), count(b), count(c), sum(d) FROM nulls;
SELECT count(*) FROM nulls WHERE a IS NULL;
-- Blanks are trimmed first.
ALTER FOREIGN TABLE nulls OPTIONS (ADD trim 'right');
SELECT count(a) FROM nulls;
-- Domains that check NULL, and columns that must not be NULL.
CREATE DOMAIN wanted AS int NOT NULL;
CALL make_table('domains', $$a wanted, b text$$, $$format 'csv', null_if '0'$$, E'1,x\n 0,y\n0,z\n');
SELECT error_of('SELECT * FROM domains');
SELECT b FROM domains;
CREATE TABLE strict (a int NOT NULL, b text);
SELECT error_of('INSERT INTO strict SELECT * FROM domains');
SELECT error_of(format('SELECT * FROM bulk_load(%L, ''strict'', %L)', data_path('domains'), '{"format": "csv", "null_if": ["0"]}'));
SELECT line_number, column_name, raw_field, message FROM bulk_check(data_path('domains'), 'strict', '{"format": "csv", "null_if": "0"}');
-- Numbers: separators of groups of three digits, and another decimal point.
CALL make_table('numbers', $$i int OPTIONS (thousands '.', decimal ','), n numeric OPTIONS (thousands '.', decimal ','), f float8 OPTIONS (decimal ','), s numeric(12,2) OPTIONS (thousands ' '), w text$$, $$format 'csv', delimiter ';'$$,
E'1.234;-1.234.567,891;1,5;1 234.567;1.5\n"12";" 12,5 ";1e3;"1 234 567";\n;NaN;-Infinity;;x\n-5;,5;2,5e-1;12.5;\n');
SELECT * FROM numbers;
SELECT sum(i), sum(n) FILTER (WHERE n <> 'NaN'), sum(f) FILTER (WHERE f > 0), max(s) FROM numbers;
SELECT n FROM numbers WHERE i > 100;
SELECT w FROM numbers;
-- Separators at other positions make the number invalid; the error shows the field as it is in the file.
CALL make_table('odd', $$n numeric OPTIONS (thousands '.', decimal ','), i int OPTIONS (thousands '''')$$, $$format 'csv', delimiter ';'$$, '');
CREATE FUNCTION odd(content text) RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN CALL write_file('odd', content); RETURN QUERY SELECT error_of('SELECT * FROM odd'); END $$;
SELECT odd(line) FROM unnest('{1.5;1,1.23;1,1234.567;1,"1,5,5;1","1,234.567;1","1,5;1''23","1,5;1234''567","1,5;1.5","1,5;x''y","1,5;1''234''567''890","x,5;1"}'::text[]) line;
SELECT error_of('SELECT sum(n) FROM odd');
ALTER FOREIGN TABLE odd OPTIONS (ADD on_error 'ignore', ADD log_verbosity 'verbose');
CALL write_file('odd', E'1,5;1\n1.5;2\n"1.000,5";3''000\n2;3''00\n');
SELECT * FROM odd;
SELECT count(*) FROM odd;
ALTER FOREIGN TABLE odd OPTIONS (SET on_error 'set_null');
SELECT * FROM odd;
-- Domains over numbers.
CREATE DOMAIN price AS numeric CHECK (value > 0);
CALL make_table('prices', $$p price OPTIONS (decimal ',', null_if '-')$$, $$format 'csv', delimiter ';'$$, E'1,5\n-\n');
SELECT * FROM prices;
CALL write_file('prices', E'1,5\n-2,5\n');
SELECT error_of('SELECT * FROM prices');
CALL write_file('prices', E'1,5\n2.5\n');
SELECT error_of('SELECT * FROM prices');
-- Dates and times: equal to the results of core's functions for the same templates, for all that to_char writes.
CREATE FUNCTION templates(kind text, template text, n int DEFAULT 300) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	written text;
	differing bigint;
	zone text;
BEGIN
	FOREACH zone IN ARRAY ARRAY['UTC', 'America/St_Johns'] LOOP
		PERFORM set_config('TimeZone', zone, true), setseed(0.5);
		CREATE TABLE moments AS SELECT i, to_char(timestamp '1970-01-01' + make_interval(secs => random() * 3155000000), template) AS text FROM generate_series(1, n) i;
		SELECT string_agg('"' || text || '",' || i, E'\n' ORDER BY i) INTO written FROM moments;
		CALL make_table('written', format('moment %s OPTIONS (date_format %L), i int', kind, template), $o$format 'csv'$o$, written);
		EXECUTE format('SELECT count(*) FROM (SELECT moment, i FROM written EXCEPT ALL SELECT to_timestamp(text, %L)::%s, i FROM moments) d', template, kind) INTO differing;
		RETURN NEXT format('%s of %s differ', differing, (SELECT count(moment) FROM written));
		DROP TABLE moments;
	END LOOP;
END $$;
SELECT k, t, templates(k, t) FROM (VALUES ('date', 'DD.MM.YYYY'), ('date', 'YYYYMMDD'), ('date', 'DD-Mon-YYYY HH24'), ('timestamp', 'YYYY-MM-DD"T"HH24:MI:SS.US'), ('timestamp', 'YYYYMMDDHH24MISSMS'), ('timestamptz', 'DD Mon YYYY HH12:MI:SS PM'), ('timestamptz(0)', 'MM/DD/YYYY HH:MIAM')) t (k, t);
CALL make_table('days', $$d date OPTIONS (date_format 'DD.MM.YYYY', null_if '00.00.0000'), t time OPTIONS (date_format 'HH24"h"MI'), s timestamptz OPTIONS (date_format 'Month DD, YYYY'), x text$$, $$format 'csv', delimiter ';'$$,
E'1.2.2024;7h05;May 3, 2020;1\n00.00.0000;;"december 31, 1999";2\n"29.02.2000";23h59;;3\n');
SET datestyle = 'German, MDY';
SELECT * FROM days;
RESET datestyle;
SELECT max(d), min(t), count(s) FROM days;
SELECT x FROM days WHERE d < '2010-01-01';
CREATE FUNCTION day(content text, what text DEFAULT '*') RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN CALL write_file('days', content); RETURN QUERY SELECT error_of(format('SELECT %s FROM days', what)); END $$;
SELECT day(line || ';1h00;;') FROM unnest('{29.02.2023,31.12.24,1.2.2024x,2024-02-01,32.1.2024,0.1.2024,01.01.0000,infinity}'::text[]) line;
SELECT day('1.2.2024;24h00;;');
SELECT day('1.2.2024;1h0;Mai 3, 2020;');
SELECT day('1.2.24;1h0;;', 'x');
ALTER FOREIGN TABLE days OPTIONS (ADD on_error 'set_null', ADD log_verbosity 'verbose');
SELECT day(E'1.2.24;1h0;May 3, 2020;1\n1.2.2024;1h60;May 33, 2020;2\n');
SELECT * FROM days;
CREATE DOMAIN recent AS date CHECK (value > '2000-01-01');
CALL make_table('recently', $$d recent OPTIONS (date_format 'YYYYMMDD')$$, '', E'20010101\n');
SELECT * FROM recently;
CALL write_file('recently', E'20010101\n19990101\n');
SELECT error_of('SELECT * FROM recently');
-- Records of fixed length: always trimmed, by the table's option where a column has none.
CALL make_table('places', $$a text OPTIONS (length '4', null_if 'NA, ""'), b text OPTIONS (length '4', trim 'none'), n numeric OPTIONS (length '7', decimal ',', thousands '.', nullif '0')$$, $$format 'fixed', trim 'both', null_if '"-  -"'$$,
E' NA  x  1.234,5\n     y  0      \n ab -  -   12,5\n-  --   1234,5 \n');
SELECT to_json(t) FROM places t;
CALL write_file('places', E'abcdefgh 1.23,5\n');
SELECT error_of('SELECT * FROM places');
-- Loads, by both writers: the result equals that of COPY for the same rows in CSV.
CREATE TABLE original AS SELECT i AS id, CASE WHEN i % 7 > 0 THEN chr(97 + i % 26) || repeat(' ü', i % 3) || '.' END AS word, (i * 3797 % 100000000 / 8.0)::numeric(12,3) AS amount, NULLIF(i * 1001, 7007) AS big, (i % 10)::int2 AS small, date '1999-12-31' + i AS day FROM generate_series(1, 3000) i;
CREATE FUNCTION grouped(n bigint) RETURNS text LANGUAGE sql AS $$ SELECT ltrim(replace(to_char(n, '999,999,999,999'), ',', '.')) $$;
CREATE FUNCTION record(o original) RETURNS text LANGUAGE sql AS $$ SELECT concat_ws(';', repeat(' ', o.id % 3) || o.id || E'\t', CASE WHEN o.word IS NULL THEN CASE o.id % 2 WHEN 0 THEN ' NA' ELSE '"N/A"' END WHEN o.id % 5 = 0 THEN ' "' || o.word || '" ' ELSE o.word || '  ' END, grouped(floor(o.amount)::bigint) || replace(substr((o.amount - floor(o.amount))::text, 2), '.', ','), coalesce(grouped(o.big), ' N/A'), ' ' || o.small, to_char(o.day, 'FMDD.MM.YYYY') || ' ') $$;
SELECT string_agg(record(o), E'\n' ORDER BY id) || E'\n' AS content FROM original o \gset
CALL write_file('texts.csv', :'content');
DO $do$ BEGIN EXECUTE format('COPY original TO %L (FORMAT csv)', data_path('texts.copy')); END $do$;
SELECT record(o) FROM original o WHERE id IN (1, 7, 14, 2999);
\set columns '["id", "word", {"column": "amount", "decimal": ",", "thousands": "."}, {"column": "big", "thousands": "."}, "small", {"column": "day", "date_format": "DD.MM.YYYY"}]'
\set options '{"format": "csv", "delimiter": ";", "trim": "both", "null_if": ["NA", "N/A"]}'
CREATE TABLE copied (LIKE original);
CREATE TABLE loaded (LIKE original);
DO $do$ BEGIN EXECUTE format('COPY copied FROM %L (FORMAT csv)', data_path('texts.copy')); END $do$;
CREATE FUNCTION differing() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM ((SELECT t::text FROM copied t EXCEPT ALL SELECT t::text FROM loaded t) UNION ALL (SELECT t::text FROM loaded t EXCEPT ALL SELECT t::text FROM copied t)) d $$;
SELECT differing();
SELECT set_config('pg_bulk.chunk_size', '1kB', false);
SELECT w, o, (SELECT (rows_loaded, writer, workers) FROM bulk_load(data_path('texts.csv'), 'loaded', :'options'::jsonb || jsonb_build_object('truncate', true, 'columns', :'columns'::jsonb, 'writer', w) || o)), differing()
FROM unnest('{buffered,direct}'::text[]) w, unnest(ARRAY['{"workers": 0}', '{"workers": 2}']::jsonb[]) o;
SELECT count(*) FROM bulk_check(data_path('texts.csv'), 'loaded', :'options'::jsonb || jsonb_build_object('columns', :'columns'::jsonb));
SELECT count(*), sum(id), count(word), sum(amount), sum(big), max(day) FROM bulk_read(data_path('texts.csv'), :'options'::jsonb || '{"columns": [{"column": "big", "thousands": "."}, {"column": "day", "date_format": "DD.MM.YYYY"}, {"column": "amount", "decimal": ",", "thousands": "."}]}') AS t (id int, word text, amount numeric, big bigint, small int2, day date);
SELECT count(*), sum(id), count(word), sum(amount), sum(big), max(day) FROM original;
-- Columns matched by the header's names, and expressions over fields without a column.
CALL write_file('texts.head.csv', E'small;word;big\n 1; NA ;1\n 2;"x ";N/A\n');
SELECT * FROM figures('texts.head.csv', 'loaded', :'options'::jsonb || '{"match_by": "name", "truncate": true}');
SELECT to_json(l) FROM loaded l ORDER BY small;
SELECT * FROM figures('texts.head.csv', 'loaded', :'options'::jsonb || '{"header": 1, "truncate": true, "columns": ["small", {"column": "raw", "trim": "none", "null_if": []}, "big", {"name": "word", "expr": "''<'' || raw || ''>''"}]}');
SELECT to_json(l) FROM loaded l ORDER BY small;
-- A job of the queue gives the same result.
SELECT bulk_enqueue(data_path('texts.csv'), 'loaded', :'options'::jsonb || jsonb_build_object('truncate', true, 'columns', :'columns'::jsonb)) AS job \gset
SELECT bulk_wait(:job);
SELECT differing();
-- INSERT in one process and with workers, with conditions, joined; and by the server itself.
CALL make_table('file', $$id int, word text, amount numeric OPTIONS (decimal ',', thousands '.'), big bigint OPTIONS (thousands '.'), small int2, day date OPTIONS (date_format 'DD.MM.YYYY')$$, $$format 'csv', delimiter ';', trim 'both', null_if 'NA, N/A'$$, :'content');
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
SELECT w, c, inserted(c, w) FROM unnest('{0,2}'::int[]) w, unnest(ARRAY['', 'WHERE f.id % 3 = 1', 'WHERE f.word IS NULL', 'WHERE f.amount > 1000', 'WHERE f.day > ''2001-06-01''', 'JOIN generate_series(5, 900, 5) g ON g = f.id']) c;
-- Aggregates over the file, by one process and by several; over columns of each kind, and over no column.
CREATE FUNCTION totals(what text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	ours text;
	servers text;
BEGIN
	EXECUTE format('SELECT (%s)::text FROM file', what) INTO ours;
	EXECUTE format('SELECT (%s)::text FROM original', what) INTO servers;
	RETURN CASE WHEN ours = servers THEN ours ELSE ours || ' and not ' || servers END;
END $$;
SELECT plan_of('SELECT count(*), sum(id), count(word), max(big) FROM file');
SELECT totals(what) FROM unnest('{count(*),"sum(id), sum(small)","count(word), min(word)","sum(amount), max(amount)","sum(big), count(big)","min(day), count(day)","count(*) FILTER (WHERE word IS NULL)"}'::text[]) what;
SET pg_bulk.workers = 2; SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
SELECT totals(what) FROM unnest('{count(*),"sum(id), sum(small)","count(word), min(word)","sum(amount), max(amount)","sum(big), count(big)","min(day), count(day)"}'::text[]) what;
RESET pg_bulk.workers; RESET min_parallel_table_scan_size; RESET parallel_setup_cost; RESET parallel_tuple_cost;
ANALYZE file;
SELECT null_frac > 0.1, avg_width FROM pg_stats WHERE schemaname = 'field_options' AND tablename = 'file' AND attname IN ('word', 'small') ORDER BY attname;
RESET pg_bulk.chunk_size;
-- Rejects, by one process and by several, with the original fields of the file.
SELECT string_agg(CASE i % 100 WHEN 3 THEN '1.5;x' WHEN 5 THEN ' NA ;x' WHEN 7 THEN '1.23;x;y' WHEN 9 THEN '"70.000";x' ELSE '1.' || lpad(i::text, 3, '0') || '; ' || i END, E'\n') AS content FROM generate_series(1, 999) i \gset
\set reading '{"format": "csv", "delimiter": ";", "trim": "both", "null_if": ["NA"], "columns": [{"column": "a", "thousands": "."}, "b"]}'
SELECT alike('a int2, b text', :'content', :'reading'::jsonb || '{"on_error": "table"}');
SELECT alike('a int2, b text', :'content', :'reading'::jsonb || '{"on_error": "table", "reject_limit": 20}');
SELECT alike('a int2, b text', :'content', :'reading');
SELECT alike('a int2 NOT NULL, b text', :'content', :'reading'::jsonb || '{"on_error": "table"}');
CREATE TABLE short (a int2, b text DEFAULT 'none');
CALL write_file('texts.csv', E'1.000;ab\n 1.5 ;ab\n" 1.5";x\n70.000;ab\nNA ; NA\n');
SELECT * FROM figures('texts.csv', 'short', :'reading'::jsonb || '{"on_error": "table"}');
SELECT line_number, byte_offset, column_name, raw_field, raw_line, sqlstate, message FROM bulk_rejects WHERE load_id = (SELECT max(load_id) FROM bulk_rejects) ORDER BY line_number;
SELECT to_json(s) FROM short s;
SELECT line_number, column_name, raw_field, message FROM bulk_check(data_path('texts.csv'), 'short', :'reading');
SELECT * FROM figures('texts.csv', 'short', :'reading'::jsonb || '{"on_error": "set_null", "truncate": true, "writer": "buffered"}');
SELECT to_json(s) FROM short s;
-- Several files, and compressed ones.
CALL write_file('texts.1.csv', E' 1.001 ;a\n');
CALL write_file('texts.2.csv', E'1.002; NA\n');
SELECT * FROM figures('texts.[12].csv', 'short', :'reading'::jsonb || '{"truncate": true}');
SELECT to_json(s) FROM short s ORDER BY a;
-- Invalid combinations of options.
SELECT error_of(format('ALTER FOREIGN TABLE blanks OPTIONS (%s)', o)) FROM unnest(ARRAY[$$SET trim 'all'$$, $$ADD null_if ''$$, $$ADD null_if 'a,,b'$$, $$ADD null_if '"a'$$, $$ADD decimal ','$$, $$ADD nullif 'x'$$]) o;
SELECT error_of(format('ALTER FOREIGN TABLE numbers ALTER n OPTIONS (%s)', o)) FROM unnest(ARRAY[$$SET decimal ';'$$, $$SET decimal ''$$, $$SET thousands 'ab'$$, $$SET thousands '1'$$, $$SET thousands ''$$, $$SET thousands '-'$$, $$ADD null_iff 'x'$$, $$ADD date_format 'DD.MM.YYYY TT'$$, $$ADD date_format 'DD.DD.YYYY'$$, $$ADD date_format 'HH:MI'$$]) o;
SELECT error_of(format('ALTER FOREIGN TABLE days ALTER %s OPTIONS (SET date_format %L); SELECT * FROM days', c, o)) FROM (VALUES ('d', 'HH24:MI'), ('d', 'MM.YYYY'), ('t', 'YYYY-MM-DD HH24'), ('t', 'MI:SS')) o (c, o);
SELECT error_of($$ALTER FOREIGN TABLE days ALTER x OPTIONS (ADD date_format 'YYYYMMDD'); SELECT x FROM days$$);
SELECT error_of($$ALTER FOREIGN TABLE numbers ALTER n OPTIONS (SET thousands ','); SELECT * FROM numbers$$);
SELECT error_of($$ALTER FOREIGN TABLE numbers ALTER w OPTIONS (ADD decimal ','); SELECT i FROM numbers$$);
SELECT error_of($$ALTER FOREIGN TABLE numbers ALTER w OPTIONS (ADD source 'filename', ADD trim 'both')$$);
SELECT error_of($$CREATE FOREIGN TABLE bits (a float4 OPTIONS (length '4', binary_type 'float_le', decimal ',')) SERVER bulk_files OPTIONS (filename '/', format 'fixed', record_length '4', line_ends 'false'); SELECT * FROM bits$$);
SELECT error_of(format('SELECT * FROM bulk_load(%L, ''short'', %L)', data_path('texts.1.csv'), o)) FROM unnest(ARRAY['{"trim": "all"}', '{"null_if": [1]}', '{"null_if": {}}', '{"decimal": ","}', '{"columns": [{"column": "a", "null_if": [1]}]}', '{"columns": [{"column": "a", "trim": ["left"]}]}', '{"columns": [{"column": "a", "decimal": "x"}]}', '{"columns": [{"column": "a", "thousands": ",", "decimal": ","}]}', '{"columns": [{"column": "b", "thousands": "."}]}', '{"columns": [{"column": "a", "source": "filename", "trim": "left"}]}']) o;
SELECT error_of(format('SELECT * FROM bulk_read(%L, %L) AS t (a int, b text)', data_path('texts.1.csv'), o)) FROM unnest(ARRAY['{"columns": [{"column": "c", "trim": "left"}]}', '{"columns": [{"column": "a", "trim": "left"}, {"column": "a", "trim": "left"}]}', '{"columns": ["a", {"column": "b", "trim": "left"}]}']) o;
-- COPY does not accept these options, whether the server or pg_bulk runs it.
LOAD 'pg_bulk';
SET pg_bulk.copy = on;
SET pg_bulk.copy_min_size = 0;
SELECT error_of(format('COPY short FROM %L (FORMAT csv, TRIM both)', data_path('texts.1.csv')));
SELECT error_of(format('COPY short FROM %L (FORMAT csv, ENCODING_ERRORS replace)', data_path('texts.1.csv')));
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA field_options CASCADE;
DROP SCHEMA IF EXISTS copied, loaded CASCADE;
