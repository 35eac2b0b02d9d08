--
-- Files in UTF-16: rows and errors are those of the same text in UTF-8.
--
\set ECHO none
-- The HINT of rejected rows has the number of the load, which depends on earlier tests.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema utf16
\i :helpers
-- The bytes of a text in UTF-16, from its code points.
CREATE FUNCTION utf16(content text, little boolean DEFAULT true) RETURNS bytea LANGUAGE sql AS $$
	WITH points AS (SELECT n, ascii(c) AS p FROM string_to_table(content, NULL) WITH ORDINALITY AS t (c, n)),
	units AS (
		SELECT n, 1 AS half, CASE WHEN p < 65536 THEN p ELSE 55296 + ((p - 65536) >> 10) END AS u FROM points
		UNION ALL SELECT n, 2, 56320 + ((p - 65536) & 1023) FROM points WHERE p >= 65536)
	SELECT coalesce(string_agg(decode(CASE WHEN little THEN substr(h, 3) || left(h, 2) ELSE h END, 'hex'), NULL ORDER BY n, half), '')
	FROM units, LATERAL lpad(to_hex(u), 4, '0') AS h
$$;
\set ECHO all
\pset tuples_only
\pset format unaligned
\set text 'id,name\n1,Zürich\n2,"日本\n😀"\n3,\n'
CALL make_table('cities', 'id int, name text', $$format 'csv', header 'true'$$, '');
-- A byte order mark is enough, in both orders; with an encoding its order counts, too.
CALL write_bytes('cities', '\xfffe' || utf16(E:'text'));
SELECT to_json(c) FROM cities c;
SELECT count(*), max(length(name)) FROM cities;
SELECT id FROM cities WHERE name LIKE 'Z%';
ALTER FOREIGN TABLE cities OPTIONS (ADD encoding 'UTF16BE');
SELECT to_json(c) FROM cities c;
CALL write_bytes('cities', '\xfeff' || utf16(E:'text', false));
ALTER FOREIGN TABLE cities OPTIONS (SET encoding 'utf-16le');
SELECT to_json(c) FROM cities c;
ALTER FOREIGN TABLE cities OPTIONS (DROP encoding);
SELECT to_json(c) FROM cities c;
-- Without a byte order mark: UTF16 is UTF16LE.
CALL write_bytes('cities', utf16(E:'text'));
SELECT error_of('SELECT * FROM cities');
ALTER FOREIGN TABLE cities OPTIONS (ADD encoding 'UTF16');
SELECT to_json(c) FROM cities c;
ALTER FOREIGN TABLE cities OPTIONS (SET encoding 'UTF16LE');
SELECT count(*) FROM cities;
CALL write_bytes('cities', utf16(E:'text', false));
ALTER FOREIGN TABLE cities OPTIONS (SET encoding 'UTF16BE');
SELECT to_json(c) FROM cities c;
-- In another encoding the mark is text, or COPY's error; COPY itself reads it so.
CALL write_bytes('cities', '\xfffe' || utf16(E:'text'));
ALTER FOREIGN TABLE cities OPTIONS (SET encoding 'UTF8');
SELECT error_of('SELECT * FROM cities');
CREATE TABLE lines (line text);
CALL write_bytes('one', '\xfffe0a');
SELECT rows_loaded FROM bulk_load(data_path('one'), 'lines', '{"encoding": "LATIN1"}');
SET client_encoding = latin1;
SELECT rows_loaded FROM bulk_load(data_path('one'), 'lines');
RESET client_encoding;
SELECT DISTINCT line, convert_to(line, 'LATIN1') FROM lines;
SELECT error_of(format('COPY lines FROM %L', data_path('one')));
SET pg_bulk.copy = on;
SET pg_bulk.copy_min_size = 0;
SELECT error_of(format('COPY lines FROM %L', data_path('one')));
RESET pg_bulk.copy;
RESET pg_bulk.copy_min_size;
SELECT error_of($$SELECT * FROM bulk_read('x', '{"format": "binary", "encoding": "UTF16"}') AS t (a int)$$);
SELECT error_of($$SELECT * FROM bulk_read('x', '{"format": "fixed", "encoding": "utf16be", "columns": [{"column": "a", "length": 1}]}') AS t (a int)$$);
SELECT error_of($$SELECT * FROM bulk_read('x', '{"encoding": "UTF-32"}') AS t (a int)$$);

-- Errors have their line; a unit is shown with its higher byte first.
CREATE PROCEDURE write_bad(bad bytea) LANGUAGE sql AS $$
	CALL write_bytes('bad', '\xfffe' || utf16(E'1,a\n2,') || bad || utf16(E'b\n3,c\n'))
$$;
CALL make_table('bad', 'id int, name text', $$format 'csv'$$, '');
CREATE FUNCTION outcomes() RETURNS SETOF text LANGUAGE sql AS $$
	SELECT error_of('SELECT count(name) FROM bad')
	UNION ALL SELECT to_json(t)::text FROM bulk_read(data_path('bad'), '{"format": "csv", "encoding_errors": "replace"}') AS t (id int, name text);
$$;
CREATE TABLE good (id int, name text);
CALL write_bad('\x00d8');
SELECT outcomes();
SELECT rows_loaded, rows_rejected FROM bulk_load(data_path('bad'), 'good', '{"format": "csv", "on_error": "table"}');
SELECT line_number, sqlstate, message FROM bulk_rejects ORDER BY load_id DESC LIMIT 1;
CALL write_bad('\x00dc');
SELECT outcomes();
CALL write_bad('\x0000');
SELECT outcomes();
CALL write_bytes('bad', '\xfffe' || utf16(E'1,a\n2,b') || '\x63');
SELECT outcomes();
CALL write_bytes('bad', '\xfffe' || utf16(E'1,a\n2,b') || '\x3dd8');
SELECT outcomes();
CALL write_bytes('bad', '\xfffe' || utf16(E'1,a\nx,b\n'));
SELECT error_of('SELECT * FROM bad');
-- UTF-32 begins like UTF-16; the HINT names it.
CALL write_bytes('bad', '\xfffe0000310000002c00000061000000');
SELECT error_of('SELECT * FROM bad');
CALL write_bytes('bad', '\xff');
SELECT error_of('SELECT * FROM bad');
CALL write_bytes('bad', '\xfffe');
SELECT * FROM bad;

-- Programs, values, compressed files, lists, jobs of one process and of several.
SELECT sum(id), max(name) FROM bulk_read($$printf '1,a\n2,\303\251\n' | iconv -f UTF-8 -t UTF-16$$, '{"program": true, "format": "csv"}') AS t (id int, name text);
SELECT sum(id), max(name) FROM bulk_read($$printf '1,a\n2,\303\251\n' | iconv -f UTF-8 -t UTF-16BE$$, '{"program": true, "format": "csv", "encoding": "UTF16BE"}') AS t (id int, name text);
SELECT sum(id), max(name) FROM bulk_read($$printf '1,a\n2,\303\251\n' | iconv -f UTF-8 -t UTF-16 | gzip$$, '{"program": true, "format": "csv"}') AS t (id int, name text);
SELECT sum(id), max(name) FROM bulk_read($$printf '1,a\n2,\303\251\n'$$, '{"program": true, "format": "csv"}') AS t (id int, name text);
CREATE TABLE wide (id int, name text);
CREATE TABLE plain (id int, name text);
SELECT data_path('wide.csv') AS wide \gset
COPY (SELECT i, CASE i % 3 WHEN 0 THEN 'plain' WHEN 1 THEN 'größe "' || i ELSE '日本 😀' END FROM generate_series(1, 30000) i) TO :'wide' (FORMAT csv);
SELECT rows_loaded, workers FROM bulk_load(data_path('wide.csv'), 'plain', '{"format": "csv", "workers": 2}');
CREATE FUNCTION load_of(command text, name text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', format('cat > /dev/null; cd %s && %s', current_setting('test.dir'), command));
	TRUNCATE wide;
	RETURN QUERY SELECT (rows_loaded, workers, writer, notes)::text FROM bulk_load(data_path(name), 'wide', '{"format": "csv", "workers": 2}');
	RETURN QUERY SELECT 'other: ' || count(*) FROM (TABLE wide EXCEPT TABLE plain) x;
	RETURN QUERY SELECT 'others: ' || count(*) FROM (TABLE plain EXCEPT TABLE wide) x;
	RETURN QUERY SELECT (line_number, message)::text FROM bulk_check(data_path(name), 'wide', '{"format": "csv"}');
END $$;
SELECT load_of('iconv -f UTF-8 -t UTF-16 wide.csv > wide', 'wide');
SELECT load_of('gzip -k -f wide', 'wide.gz');
SELECT load_of('zstd -q -f wide', 'wide.zst');
SELECT load_of('zstd -q -f wide.csv', 'wide.csv.zst');
SELECT load_of('bzip2 -k -f wide', 'wide.bz2');
SELECT verify_heapam('wide');
CALL write_bytes('utf16_part_1', '\xfffe' || utf16(E'1,a\n'));
CALL write_file('utf16_part_2', E'2,ä\n');
SELECT to_json(t) FROM bulk_read(data_path('utf16_part_*'), '{"format": "csv"}') AS t (id int, name text);

SELECT details -> 'options', details -> 'notes' FROM bulk_sniff(data_path('utf16_part_*'));
-- bulk_sniff finds UTF-16 with and without a byte order mark, and what it proposes loads.
CREATE FUNCTION sniffed(content bytea) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	CALL write_bytes('any', content);
	RETURN QUERY SELECT (encoding, details -> 'options', rows, details -> 'notes')::text FROM bulk_sniff(data_path('any'));
	RETURN QUERY SELECT (rows_loaded, rows_rejected)::text FROM bulk_load(data_path('any'), 'sniffed', '{"create": true}');
	RETURN QUERY SELECT to_json(s)::text FROM sniffed s;
	DROP TABLE IF EXISTS sniffed;
END $$;
SELECT sniffed('\xfffe' || utf16(E:'text'));
SELECT sniffed('\xfeff' || utf16(E:'text', false));
SELECT sniffed(utf16(E:'text'));
SELECT sniffed(utf16(E:'text', false));
-- It says what another file is.
CALL write_file('any', E'%PDF-1.4\n1 0 obj\n');
SELECT details -> 'notes' FROM bulk_sniff(data_path('any'));
CALL write_file('any', E'[\n  {\n    "a": 1\n  }\n]\n');
SELECT details -> 'notes' FROM bulk_sniff(data_path('any'));

\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA utf16 CASCADE;
