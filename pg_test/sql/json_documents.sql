--
-- JSON in arrays and over several lines: rows and errors are those of the same objects on lines of their own.
--
\set ECHO none
-- The HINT of rejected rows has the number of the load, which depends on earlier tests.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema json_documents
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CALL make_table('doc', 'id int, name text, tags text[], others jsonb OPTIONS (rest ''true'')', $$format 'json'$$, '');
CREATE FUNCTION rows_of(content text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	CALL write_file('doc', content);
	RETURN QUERY SELECT row_to_json(d)::text FROM doc d;
EXCEPTION WHEN OTHERS THEN
	RETURN QUERY SELECT error_of('SELECT row_to_json(d) FROM doc d');
END $$;
SELECT rows_of('[{"id": 1, "name": "a"}, {"id": 2, "tags": ["x", "}]"]}]');
SELECT rows_of('[{"id":1},{"id":2}]' || E'\n');
SELECT rows_of(E'\uFEFF [\n  {\n    "id": 1,\n    "name": "[{\\"",\n    "u": {\n      "v": [1, {"w": null}]\n    }\n  },\n  {\n    "id": 2\n  }\n]\n');
SELECT rows_of(E'[\r\n{"id": 1},\r\n{"id": 2}\r\n]\r\n');
SELECT rows_of(E'{\n  "id": 1,\n  "name": "one object"\n}\n');
SELECT rows_of(E'{\n  "id": 1\n}\n{\n  "id": 2\n}\n');
SELECT rows_of('{"id": 1}{"id": 2} {"id": 3}');
SELECT rows_of(E'[{"id": 1}]\n[{"id": 2}]\n');
SELECT rows_of('[]');
SELECT rows_of(E' \n [ \n ] \n');
SELECT rows_of(E'{"id": 1}\n{"id": 2}\n');
-- Errors have the line of their record. A file that is cut off is an error.
SELECT rows_of(E'[\n  {\n    "id": 1\n  },\n  {\n    "id": "x"\n  }\n]\n');
SELECT rows_of(E'[\n  {\n    "id": 1\n  },\n  {\n    "id": 2,\n  },\n  {"id": 3}\n]\n');
SELECT rows_of('[{"id": 1}, {"id": 2}');
SELECT rows_of(E'[\n{"id": 1},\n{"id": 2');
SELECT rows_of(E'[\n{"id": 1},\n7\n]\n');
SELECT rows_of(E'[\n{"id": 1},\n[{"id": 2}]\n]\n');
SELECT rows_of(E'[\n{"id": 1, "name": "two\nlines"}\n]\n');
SELECT rows_of(E'{"id": 1} x\n');
SELECT rows_of(E'{"id": 1}\n[{"id": 2}]\n');
-- Rejects: those of the same records on lines; the records behind them are read.
CREATE TABLE loaded (id int, name text);
CREATE FUNCTION rejects_of(content text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	CALL write_file('doc', content);
	TRUNCATE loaded;
	RETURN QUERY SELECT (rows_loaded, rows_rejected)::text FROM bulk_load(data_path('doc'), 'loaded', '{"format": "json", "on_error": "table"}');
	RETURN QUERY SELECT (line_number, sqlstate, message, raw_line)::text FROM bulk_rejects
		WHERE load_id = (SELECT max(load_id) FROM bulk_rejects) ORDER BY line_number;
	RETURN QUERY SELECT 'loaded: ' || string_agg(id::text, ' ' ORDER BY id) FROM loaded;
END $$;
SET client_min_messages = warning;
SELECT rejects_of(E'[\n  {"id": 1,\n   "name": "a"},\n  {"id": 2\n  ,\n  {"id": 3},\n  {"id": "4x"},\n  {"id": 5, "name": "x\n  },\n  {"id": 6}\n]\n');
SELECT rejects_of(E'{\n"id": [1\n}\n{\n"id": 2\n}\n,,\n{"id": 3}}\n{"id": 4}');
SELECT rejects_of('[{"id": 1}, {"id": null}, {"id": "x"}, {"id": 3}]');
SELECT rejects_of(E'{"id": 1\n{"id": 2}\n{"id": 3}\n');
-- A record that is cut off in an array, in a string or before a value, in all forms: only it is a reject.
SELECT rejects_of(E'{"id": 1, "name": "a", "t": [1,\n{"id": 2, "t": [{"id": 7}]}\n{"id": 3}\n');
SELECT rejects_of(E'{"id": 0}\n{"id": 1, "name": "a\n{"id": 2}\n{"id": 3}\n');
SELECT rejects_of(E'[\n{"id": 1, "t": ["x", \n{"id": 2, "t": []},\n{"id": 3, "t":\n{"id": 4},\n{"id": 5}\n]\n');
SELECT rejects_of(E'[\n  {\n    "id": 1,\n    "t": [\n      {\n        "id": 7\n      },\n  {\n    "id": 2,\n    "t": []\n  },\n  {\n    "id": 3,\n    "name": "x\n  {\n    "id": 4\n  }\n]\n');
SELECT rejects_of('[' || string_agg(CASE i WHEN 5000 THEN '{"id": 5000, "t": [' ELSE format('{"id": %s, "t": [], "name": "%s"},', i, repeat('x', 20)) END, E'\n') || E'\n{"id": 0}]\n') ~ '^\(10000,1\)|^\(5000|loaded: ' FROM generate_series(1, 10000) i;
RESET client_min_messages;
-- Equal keys, and objects without a key of a column.
CALL write_file('doc', E'{"id": 1, "id": 2}\n{"id": 3, "x": 1, "x": 2}\n{"ID": 4}\n{}\n{"id": 5, "name": 1, "\\u0069d": 6}\n');
SELECT id, name FROM doc;
SELECT * FROM bulk_read(data_path('doc'), '{"format": "json"}') AS t (id int);
SELECT rows_loaded, notes FROM bulk_load(data_path('doc'), 'loaded', '{"format": "json"}');
SELECT rows_loaded, notes FROM bulk_load(data_path('doc'), 'loaded', '{"format": "json", "writer": "buffered"}');
CALL write_file('doc', E'j\n"{""a"": 1, ""b"": {""a"": 1.0}}"\n"{}"\n');
SELECT details -> 'columns' -> 0 ->> 'type' FROM bulk_sniff(data_path('doc'));
CALL write_file('doc', E'j\n"{""a"": 1, ""b"": {""c"": 1, ""c"": 2}}"\n"{}"\n');
SELECT details -> 'columns' -> 0 ->> 'type' FROM bulk_sniff(data_path('doc'));

-- Programs, compressed files, UTF-16, jobs of one process and of several.
SELECT sum(id) FROM bulk_read($$printf '[{"id": 1},\n{"id": 2}]'$$, '{"program": true, "format": "json"}') AS t (id int);
SELECT sum(id) FROM bulk_read($$printf '{"id": 1}\n{"id": 2}\n'$$, '{"program": true, "format": "json"}') AS t (id int);
SELECT sum(id) FROM bulk_read($$printf '{\n"id": 1}\n{"id": 2}\n' | iconv -f UTF-8 -t UTF-16 | gzip$$, '{"program": true, "format": "json"}') AS t (id int);
CREATE TABLE plain (id int, name text, j jsonb);
CREATE TABLE many (LIKE plain);
SELECT data_path('lines.json') AS lines, data_path('array.json') AS array, data_path('indented.json') AS indented \gset
CREATE TABLE source AS SELECT i AS id, 'name "' || i || E'" \\ é' AS name, jsonb_build_object('a', array_agg(x), 'b', jsonb_build_array(jsonb_build_object('c', i), '[{')) AS j FROM generate_series(1, 5000) i, generate_series(1, i % 7) x GROUP BY i;
COPY (SELECT to_jsonb(s)::text FROM source s) TO :'lines' (FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02');
COPY (SELECT '[' || string_agg(to_jsonb(s)::text, ',') || ']' FROM source s) TO :'array' (FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02');
COPY (SELECT '[' || E'\n' || string_agg(jsonb_pretty(to_jsonb(s)), E',\n') || E'\n]' FROM source s) TO :'indented' (FORMAT csv, QUOTE E'\x01', ESCAPE E'\x03', DELIMITER E'\x02');
CREATE FUNCTION load_of(name text, command text DEFAULT 'true') RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', format('cat > /dev/null; cd %s && %s', current_setting('test.dir'), command));
	TRUNCATE many;
	RETURN QUERY SELECT (rows_loaded, workers, writer, notes)::text FROM bulk_load(data_path(name), 'many', '{"format": "json", "workers": 2}');
	RETURN QUERY SELECT 'differ: ' || count(*) FROM (TABLE many EXCEPT ALL TABLE source) x;
	RETURN QUERY SELECT (line_number, message)::text FROM bulk_check(data_path(name), 'many', '{"format": "json"}');
END $$;
SELECT load_of('lines.json');
SELECT load_of('array.json');
SELECT load_of('indented.json', $$sed -i 's/\x01//g' indented.json$$);
SELECT load_of('indented.json.zst', 'zstd -q -f indented.json');
SELECT load_of('lines.json.zst', 'zstd -q -f lines.json');
SELECT load_of('indented.json.gz', 'gzip -k -f indented.json');
SELECT verify_heapam('many');
-- bulk_sniff finds that a file is JSON, and its keys become columns.
CREATE FUNCTION found(options jsonb DEFAULT '{}') RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY SELECT concat_ws(' ', format, columns, rows, details -> 'complete', details -> 'options', details -> 'notes') FROM bulk_sniff(data_path('doc'), options);
	RETURN QUERY SELECT replace(details ->> 'create_table', E'\n', '') FROM bulk_sniff(data_path('doc'), options);
END $$;
CALL write_file('doc', E'{"id": 1, "at": "2024-01-31", "zip": "01234", "ok": true, "tags": ["a", "b"]}\n\n{"id": 2.5, "at": null, "zip": "99999", "o": {"x": [1]}, "\\u00e9": "\\ud83e\\udd80"}\n');
SELECT found();
SELECT found('{"format": "json", "sample": 90}');
SELECT found('{"format": "csv"}');
SELECT rows_loaded FROM bulk_create(data_path('doc'), 'made');
SELECT to_jsonb(m) FROM made m;
DROP TABLE made;
-- Names that are no keys, and NULL words; records that are no objects.
CALL write_file('doc', format(E'[\n{"id": 1, "": 2, "%1$s": 3, "n": 5},\n{"Id": 1,\n "%1$sx": 4, " id": "x", "n": "NA"},\n7, {"n": "NA"}, {"n": 6}]', repeat('long', 16)));
SELECT found();
SELECT rows_loaded, rows_rejected, notes FROM bulk_create(data_path('doc'), 'made', '{"on_error": "table"}');
SELECT to_jsonb(m) FROM made m;
SELECT replace(details ->> 'create_foreign_table', 'TABLE doc', 'TABLE made_foreign') AS statement FROM bulk_sniff(data_path('doc')) \gset
:statement;
SELECT error_of('SELECT * FROM made_foreign');
DROP TABLE made;
SELECT details -> 'notes' FROM bulk_sniff($$printf '[{"id": 1},\n{"id": 2}]'$$, '{"program": true}');
SELECT name, rows_loaded FROM unnest('{lines.json,array.json,indented.json,indented.json.zst,lines.json.zst}'::text[]) name, bulk_create(data_path(name), 'made_' || translate(name, '.', '_'));
SELECT pg_typeof(id), pg_typeof(name), pg_typeof(j) FROM made_indented_json LIMIT 1;
SELECT count(*) FROM (SELECT id, name, j FROM made_indented_json_zst EXCEPT ALL TABLE source) x;
CALL write_file('doc', E'{"a": 1},5\n{"a": 2},6\n');
SELECT found();
-- In an encoding whose characters contain bytes of ASCII, records are lines.
CALL write_file('doc', E'[{"id": 1},\n{"id": 2}]\n');
SELECT sum(id) FROM bulk_read(data_path('doc'), '{"format": "json", "encoding": "EUC_JP"}') AS t (id int);
SELECT error_of(format($$SELECT id FROM bulk_read(%L, '{"format": "json", "encoding": "SJIS"}') AS t (id int)$$, data_path('doc')));

\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA json_documents CASCADE;
