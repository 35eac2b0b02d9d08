--
-- Delimiters of more than one byte, files without quoting, and a trailing delimiter on each line.
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
\set schema delimiters
\i :helpers
\i :load_helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
-- More than one byte, in CSV: the first match counts, and quoted text has no match. Markers, and NULL where columns say so.
CALL make_table('bars', $$a int, b text, c text$$, $$format 'csv', delimiter '||'$$, E'1||one|two||"x||y"\n2||"||"||"a ""b""|"\n3||||""\n4|||x||y"||"z\n');
SELECT to_json(t) FROM bars t;
CALL make_table('forced', $$a text, b text OPTIONS (force_not_null 'true'), c text OPTIONS (force_null 'true')$$, $$format 'csv', delimiter '~|~', null '-', default '*', header 'match'$$, E'a~|~b~|~c\n-~|~-~|~"-"\n"-"~|~~~|~|~\n');
SELECT to_json(t) FROM forced t;
CALL make_table('named', $$c text DEFAULT 'none', a int$$, $$format 'csv', delimiter E'\x01\x02', match_by 'name'$$, E'x\x01\x02"a"\x01\x02b\n5\x01\x026\x01\x027\n');
SELECT to_json(t) FROM named t;
CALL make_table('shorter', $$a int, b text$$, $$format 'csv', delimiter '€', quote '''', escape '\'$$, E'1€''t€wo\\''''\r\n2€\u20AD\r\n');
SELECT to_json(t) FROM shorter t;
SELECT count(*) FROM shorter;
-- In text: an escaped byte does not start a delimiter.
CALL make_table('escaped', $$a int, b text, c text$$, $$delimiter '||'$$, E'1||a\\||b||\\N\n2||\\||||\\x7c\\x7c|\n\\.\n');
SELECT to_json(t) FROM escaped t;
-- Files in other encodings, where the delimiter has other bytes than in the server's encoding.
CALL make_table('latin', $$a int, b text$$, $$format 'csv', delimiter '§€§', encoding 'latin9'$$, '');
CALL write_bytes('latin', '\x 31 a7a4a7 e4a4 0a 32 a7a4a7 22a7a4a722 0a');
SELECT to_json(t) FROM latin t;
ALTER FOREIGN TABLE latin OPTIONS (SET encoding 'sjis', SET delimiter '|能');
CALL write_bytes('latin', '\x 31 7c945c 837c945c 0a 32 7c945c 0a');
SELECT to_json(t) FROM latin t;
-- Without quotes, every byte is data except delimiters and line ends. Markers are compared with the whole field.
CALL make_table('bare', $$a int, b text, c text, line int OPTIONS (source 'line_number')$$, $$format 'csv', quote 'none', delimiter E'\t', null 'NULL'$$, E'1\t"a\tb"\n2\t\\.\t\\\n3\tNULL\t"NULL"\n4\t\t"\n');
SELECT to_json(t) FROM bare t;
SELECT count(*), max(a) FROM bare;
CALL write_file('bare', E'\\.\t"\t"\n');
SELECT error_of('SELECT * FROM bare');
CALL write_file('bare', E'1\t"\ta\r\n2\t\\\t"\r\n');
SELECT to_json(t) FROM bare t;
CALL write_file('bare', E'1\t"\ta\n2\t\\\t"\r\n');
SELECT error_of('SELECT * FROM bare');
CALL write_file('bare', E'1\t"a\n');
SELECT error_of('SELECT a, b, c FROM bare');
CALL make_table('bare', $$a int, b text OPTIONS (force_not_null 'true'), c text OPTIONS (force_null 'true')$$, $$format 'csv', quote 'None', delimiter '"', default '\D', header '1', on_error 'ignore'$$, E'"\n1""\\N\nx"b"c\n2"\\D"c\n3\\D"d"\n');
ALTER FOREIGN TABLE bare ALTER b SET DEFAULT 'none';
SELECT to_json(t) FROM bare t;
CALL make_table('bare', $$a text, "b""" text$$, $$format 'csv', quote 'none', delimiter '€"€', match_by 'name'$$, E'b"€"€a\n1€"€"2\n');
SELECT to_json(t) FROM bare t;
-- A trailing delimiter on each line, on some lines, or in the header.
CALL make_table('ended', $$a int, b text$$, $$format 'csv', delimiter '|', trailing_delimiter 'true', header 'match'$$, E'a|b|\n1|one|\n2|two\n3||\n4|""\n5|"|"|\n');
SELECT to_json(t) FROM ended t;
SELECT count(*) FROM ended;
CALL write_file('ended', E'a|b\r\n1|one|\r\n2||');
SELECT to_json(t) FROM ended t;
CALL write_file('ended', E'a|b\n1|one|\n2|\n');
SELECT error_of('SELECT * FROM ended');
CALL write_file('ended', E'a|b\n1|one|\n2|two||\n');
SELECT error_of('SELECT count(*) FROM ended');
ALTER FOREIGN TABLE ended OPTIONS (SET trailing_delimiter 'off');
CALL write_file('ended', E'a|b\n1|one\n2|two|\n');
SELECT error_of('SELECT * FROM ended');
CALL make_table('ended', $$a int, b text$$, $$delimiter '||', trailing_delimiter 'on', null ''$$, E'1||one||\n2||\\|||\n3||||\n4||\\|\\|\n');
SELECT to_json(t) FROM ended t;
CALL make_table('ended', $$a text$$, $$format 'csv', quote 'none', trailing_delimiter '1', match_by 'name'$$, E'a,\n1,\n,\n\n"\n');
SELECT to_json(t) FROM ended t;
-- Loads by both writers and with workers, with chunks that end at any byte.
CREATE TABLE original AS SELECT i AS id, CASE i % 7 WHEN 0 THEN NULL WHEN 1 THEN repeat('|', i % 5) || 'ü' WHEN 2 THEN 'a"b' || repeat('"', i % 3) WHEN 3 THEN '\' || i WHEN 4 THEN '|~' ELSE 'word' || i END AS word, (i * 37 % 1000 / 8.0)::numeric(8,3) AS amount, date '2000-01-01' + i AS day FROM generate_series(1, 3000) i;
CREATE TABLE loaded (LIKE original);
CREATE FUNCTION differing() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM ((SELECT t::text FROM original t EXCEPT ALL SELECT t::text FROM loaded t) UNION ALL (SELECT t::text FROM loaded t EXCEPT ALL SELECT t::text FROM original t)) d $$;
CREATE TABLE kinds (kind text, delimiter text, options jsonb);
INSERT INTO kinds VALUES ('csv', '~|~', '{"format": "csv"}'), ('csv', '€', '{"format": "csv", "escape": "\\"}'), ('bare', E'\t', '{"format": "csv", "quote": "none", "null": "-"}'),
	('bare', '~|~', '{"format": "csv", "quote": "none", "null": "-", "trailing_delimiter": true}'), ('csv', ',', '{"format": "csv", "trailing_delimiter": true}'),
	('text', '~|~', '{"trailing_delimiter": true}');
-- A row as this kind of file writes it.
CREATE FUNCTION line(o original, k kinds) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(CASE k.kind WHEN 'csv' THEN coalesce('"' || replace(replace(f, CASE WHEN k.options ? 'escape' THEN '\' ELSE '"' END, CASE WHEN k.options ? 'escape' THEN '\\' ELSE '""' END),
			CASE WHEN k.options ? 'escape' THEN '"' ELSE '\' END, CASE WHEN k.options ? 'escape' THEN '\"' ELSE '\' END) || '"', '')
		WHEN 'bare' THEN coalesce(f, '-') ELSE coalesce(replace(replace(f, '\', '\\'), '~', '\~'), '\N') END, k.delimiter ORDER BY n) || CASE WHEN k.options ? 'trailing_delimiter' THEN k.delimiter ELSE '' END
	FROM unnest(ARRAY[o.id::text, o.word, o.amount::text, o.day::text]) WITH ORDINALITY v (f, n)
$$;
CREATE PROCEDURE write_kind(k kinds) LANGUAGE plpgsql AS $$
DECLARE
	content text := (SELECT string_agg(line(o, k), E'\n' ORDER BY id) || E'\n' FROM original o);
BEGIN
	CALL write_file('delimiters.dat', content);
END $$;
CREATE FUNCTION options_of(k kinds) RETURNS jsonb LANGUAGE sql AS $$ SELECT k.options || jsonb_build_object('delimiter', k.delimiter) $$;
CREATE PROCEDURE try(OUT result text) LANGUAGE plpgsql AS $$
DECLARE
	k kinds;
	w text;
	n int;
	said text;
BEGIN
	FOR k IN SELECT * FROM kinds LOOP
		CALL write_kind(k);
		FOREACH w IN ARRAY '{buffered,direct}'::text[] LOOP
			FOREACH n IN ARRAY '{0,1,2}'::int[] LOOP
				SELECT format('%s %s %s', rows_loaded, writer, workers) INTO said FROM bulk_load(data_path('delimiters.dat'), 'loaded', options_of(k) || jsonb_build_object('truncate', true, 'writer', w, 'workers', n));
				result := concat(result, CASE WHEN result IS NULL THEN '' ELSE E'\n' END, format('%s %s %s: %s, %s', k.kind, k.delimiter, n, said, differing()));
			END LOOP;
		END LOOP;
		result := concat(result, E'\nread: ', (SELECT count(*) || ' ' || count(DISTINCT word) FROM bulk_read(data_path('delimiters.dat'), options_of(k)) AS t (id int, word text, amount numeric, day date)));
		result := concat(result, E'\nchecked: ', (SELECT count(*) FROM bulk_check(data_path('delimiters.dat'), 'loaded', options_of(k))));
	END LOOP;
END $$;
SELECT set_config('pg_bulk.chunk_size', '1kB', false);
CALL try(NULL);
SELECT count(DISTINCT word) FROM original;
SELECT bulk_enqueue(data_path('delimiters.dat'), 'loaded', options_of(k) || '{"truncate": true}') AS job FROM kinds k WHERE kind = 'text' \gset
SELECT bulk_wait(:job);
SELECT differing();
-- INSERT in one process, with workers, and by the server itself; parallel scans.
CREATE FUNCTION inserted(condition text, workers int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	direct text;
	said text;
BEGIN
	PERFORM set_config('pg_bulk.workers', workers::text, true);
	FOREACH direct IN ARRAY '{on,off}'::text[] LOOP
		PERFORM set_config('pg_bulk.direct_insert', direct, true);
		TRUNCATE loaded;
		EXECUTE 'INSERT INTO loaded SELECT * FROM file ' || condition;
		EXECUTE 'INSERT INTO loaded SELECT * FROM original WHERE NOT ' || replace(condition, 'WHERE', '');
		said := concat(said, differing());
	END LOOP;
	RETURN said;
END $$;
CREATE PROCEDURE try_inserts(OUT result text) LANGUAGE plpgsql AS $$
DECLARE
	k kinds;
	n int;
BEGIN
	FOR k IN SELECT * FROM kinds LOOP
		CALL write_kind(k);
		EXECUTE 'DROP FOREIGN TABLE IF EXISTS file';
		EXECUTE format('CREATE FOREIGN TABLE file (id int, word text, amount numeric, day date) SERVER bulk_files OPTIONS (filename %L%s)', data_path('delimiters.dat'),
			(SELECT string_agg(format(', %s %L', key, value), '') FROM jsonb_each_text(options_of(k))));
		FOREACH n IN ARRAY '{0,2}'::int[] LOOP
			result := concat(result, format(E'\n%s %s %s: ', k.kind, k.delimiter, n), inserted('WHERE true', n), inserted('WHERE id % 3 = 1', n));
			PERFORM set_config('max_parallel_workers_per_gather', n::text, true);
			result := concat(result, ' ', (SELECT format('%s %s %s', count(*), sum(id), max(day)) FROM file), ' ', (SELECT count(*) FROM file), ' ', (SELECT count(word) FROM file));
		END LOOP;
	END LOOP;
END $$;
SET client_min_messages = warning; SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
CALL try_inserts(NULL);
SELECT count(*), sum(id), max(day), count(word) FROM original;
RESET client_min_messages; RESET min_parallel_table_scan_size; RESET parallel_setup_cost; RESET parallel_tuple_cost;
RESET pg_bulk.chunk_size;
-- Rejects, by one process and by several. Chunks have 64 bytes, so that their ends cut delimiters at each byte.
SELECT string_agg(CASE i % 50 WHEN 3 THEN 'x||' || i WHEN 5 THEN '' WHEN 7 THEN i || '||' WHEN 9 THEN i || '||a||b' WHEN 11 THEN '70000||a' WHEN 13 THEN i || '|a' ELSE i || '||"' || repeat('|', i % 9) || '"' END, E'\n') AS content FROM generate_series(1, 1500) i \gset
SELECT alike('a int2, b text', :'content', '{"format": "csv", "delimiter": "||", "on_error": "table"}');
SELECT alike('a int2, b text', :'content', '{"format": "csv", "delimiter": "||", "on_error": "table", "trailing_delimiter": true}');
SELECT alike('a int2, b text', :'content', '{"format": "csv", "delimiter": "||", "on_error": "table", "quote": "none"}');
SELECT alike('a int2, b text', :'content', '{"format": "csv", "delimiter": "||", "on_error": "table", "quote": "none", "trailing_delimiter": true}');
SELECT alike('a int2, b text', :'content', '{"delimiter": "||", "on_error": "table"}');
SELECT alike('a int2, b text', :'content', '{"format": "csv", "delimiter": "||", "on_error": "table", "reject_limit": 20}');
SELECT alike('a int2, b text', :'content', '{"format": "csv", "delimiter": "||"}');
SELECT alike('a int2, b text', convert_to(:'content', 'UTF8') || '\x0a317c7c61ff0a327c7c22', '{"format": "csv", "delimiter": "||", "on_error": "table", "quote": "none"}');
CREATE TABLE small (a int2, b text DEFAULT 'none');
CALL write_file('small.dat', E'1||a||\nx||b||\n3||c||d||\n4\n5||"||\n');
SELECT figures('small.dat', 'small', '{"format": "csv", "delimiter": "||", "trailing_delimiter": true, "quote": "none", "on_error": "table"}');
SELECT line_number, byte_offset, column_name, raw_field, raw_line, sqlstate, message FROM bulk_rejects WHERE load_id = (SELECT max(load_id) FROM bulk_rejects) ORDER BY line_number;
SELECT line_number, byte_offset, column_name, raw_field, raw_line, sqlstate, message FROM bulk_check(data_path('small.dat'), 'small', '{"format": "csv", "delimiter": "||", "trailing_delimiter": true, "quote": "none"}');
TABLE small;
-- Valid and invalid combinations of options.
CREATE FUNCTION refused(options text) RETURNS SETOF text LANGUAGE sql AS $$ SELECT error_of(format('CREATE FOREIGN TABLE f (a int) SERVER bulk_files OPTIONS (filename ''f'', %s)', options)) $$;
SELECT refused($$delimiter '12345678901234567', format 'csv'$$);
SELECT refused($$delimiter E'a\nb', format 'csv'$$);
SELECT refused($$delimiter 'a"', format 'csv'$$);
SELECT refused($$delimiter '||', null 'a||', format 'csv'$$);
SELECT refused($$delimiter '||', default '||', format 'csv'$$);
SELECT refused($$delimiter 'n|'$$);
SELECT refused($$delimiter '|\'$$);
SELECT refused($$quote 'none'$$);
SELECT refused($$quote 'none', escape '\', format 'csv'$$);
SELECT refused($$quote 'no', format 'csv'$$);
SELECT refused($$trailing_delimiter 'perhaps'$$);
SELECT refused($$trailing_delimiter 'true', format 'fixed'$$);
SELECT refused($$quote 'none', format 'fixed'$$);
SELECT error_of($$SELECT bulk_load('f', 'small', '{"delimiter": "", "format": "csv"}')$$);
SELECT error_of($$SELECT bulk_load('f', 'small', '{"quote": "none", "escape": "x", "format": "csv"}')$$);
SELECT details -> 'options' FROM bulk_sniff(data_path('small.dat'), '{"quote": "none"}');
SELECT details -> 'options' FROM bulk_sniff(data_path('small.dat'), '{"delimiter": "||", "trailing_delimiter": true}');
-- COPY accepts none of these options, whether the server or pg_bulk runs it.
LOAD 'pg_bulk';
SET pg_bulk.copy = on; SET pg_bulk.copy_min_size = 0;
SELECT error_of(format('COPY small FROM %L (FORMAT csv, DELIMITER ''||'')', data_path('small.dat')));
SELECT error_of(format('COPY small FROM %L (FORMAT csv, QUOTE ''none'')', data_path('small.dat')));
SELECT error_of(format('COPY small FROM %L (FORMAT csv, TRAILING_DELIMITER true)', data_path('small.dat')));
SELECT error_of(format('COPY small FROM %L (DELIMITER ''||'')', data_path('small.dat')));
RESET pg_bulk.copy; RESET pg_bulk.copy_min_size;
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA IF EXISTS loaded CASCADE;
DROP SCHEMA delimiters CASCADE;
