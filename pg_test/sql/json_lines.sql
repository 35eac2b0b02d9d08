--
-- JSON lines: the members of each object are the columns.
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
\set schema json_lines
\i :helpers
\i :load_helpers
SET TimeZone = 'UTC';
-- A line as a row of the foreign table, and as json_populate_record returns it: the row or the error, if both are the same.
CREATE FUNCTION compared(line text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	queries text[] := ARRAY['SELECT to_jsonb(whole)::text FROM item whole',
		format('SELECT to_jsonb(whole)::text FROM json_populate_record(NULL::item_type, %L) whole', line)];
	said text[];
	result text;
	query text;
BEGIN
	CALL write_file('item', line || E'\n');
	FOREACH query IN ARRAY queries LOOP
		BEGIN
			EXECUTE query INTO result;
			said := said || jsonb_strip_nulls(result::jsonb)::text;
		EXCEPTION WHEN OTHERS THEN
			said := said || array_to_string(ARRAY(SELECT e FROM error_of(query) e WHERE e NOT LIKE 'CONTEXT:%'), E'\n');
		END;
	END LOOP;
	IF said[1] = said[2] THEN
		RETURN NEXT said[1];
	ELSE
		RETURN NEXT format('%s: %s'|| E'\n' || 'the server: %s', line, said[1], said[2]);
	END IF;
END $$;
\set ECHO all
\pset tuples_only
\pset format unaligned
CREATE DOMAIN short AS varchar(3);
CREATE DOMAIN document AS jsonb;
CREATE DOMAIN numbers AS int[] CHECK (cardinality(value) < 4);
\set columns 'i int, n numeric(6,2), f float8, b bool, t text, v varchar(5), s short, d date, z timestamptz, u uuid, y bytea, p point, r int4range, j jsonb, o json, q document, ia int[], ta text[], ba bool[], ja jsonb[], bx box[], na numbers, "Key ä" text'
CREATE TYPE item_type AS (i int, n numeric(6,2), f float8, b bool, t text, v varchar(5), s short, d date, z timestamptz, u uuid, y bytea, p point, r int4range, j jsonb, o json, q document, ia int[], ta text[], ba bool[], ja jsonb[], bx box[], na numbers, "Key ä" text);
CALL make_table('item', :'columns', $$format 'json'$$, '');
-- Rows equal those of json_populate_record.
SELECT compared(line) FROM unnest(ARRAY[
	'{"i": 1, "n": 12.345, "f": -1.5e3, "b": true, "t": "a b", "v": "abcde", "s": "xyz"}',
	'{"d": "2024-02-29", "z": "2024-02-29T12:00:00+02:00", "u": "01234567-89ab-cdef-0123-456789abcdef", "y": "\\x00ff", "p": "(1,2)", "r": "[1,5)"}',
	' { "i":2 , "t" :	"" }  ', '{}', '{"i": null, "t": null, "j": null, "o": null, "ia": null, "b": null}',
	'{"i": "7", "f": "1e3", "b": "yes", "t": 1.50, "v": true, "n": "3"}', '{"t": {"a": [1, 2]}, "v": [1,2]}', '{"I": 3, "T": "no", "Key ä": "yes", "key ä": "no"}',
	'{"t": "\"\\\/\b\f\n\r\t\u00e9\ud83e\udd80\u20AC", "\u0069": 4, "Key \u00e4": "\u0041"}', '{"i": 1, "t": "x", "i": 2, "t": null}',
	'{"j": {"a": [1, {"b": null}], "a": 2}, "o": [1, {"a": "x"}], "q": "text"}', '{"j": "text", "o": 1.50, "q": [true]}', '{"j": "a\u00e9\n", "q": false}', '{"j": [], "o": {}, "q": {}}',
	'{"ia": [1, 2, null], "ta": ["a", "", "NULL", "a,b", "\"\\ {}", null], "ba": [true, false]}', '{"ia": [[1, 2], [3, 4]], "ta": [["a"], [null]], "ja": [[1, 2], [3, {"a": "x"}]]}',
	'{"ia": [], "ta": [[], []], "ja": []}', '{"ja": [1, "a\"b", [2, ["c"]], {"d": "\u0041"}, null, true]}', '{"ta": [{"a": 1}, "\ud83e\udd80\\", 1.50, true, {}]}', '{"bx": ["(1,2),(3,4)", "(0,0),(1,1)"], "na": [1, 2]}',
	'{"ia": "{5,6}", "ta": "{a,\"b c\"}", "r": "empty"}', '{"x": [[[{"y": 1}]]], "i": 5, "z z": "\u20ac", "x": {}}'
]) line;
-- Errors are the server's, including DETAIL and HINT.
SELECT split_part(compared(line), E'\n', 1) FROM unnest(ARRAY[
	'{"i": "x"}', '{"i": 1.5}', '{"i": true}', '{"i": {}}', '{"n": 12345.6}', '{"v": "abcdef"}', '{"d": "2024-02-30"}', '{"b": 2}', '{"u": ""}', '{"na": [1, 2, 3, 4]}', '{"ia": [1, "x"]}', '{"ia": [1, [2]]}',
	'{"t": "\u0000"}', '{"x": ["\u0000"]}', '{"\u0000": 1}', '{"t": "\ud83e"}', '{"x": "\ud83e\ud83e"}', '{"x": "\udd80"}', '{"x": "\ud83ex"}', '{"x": "\ud83e\n"}', '{"x": "\u00g0"}', '{"x": "\x"}', '{"x": "\u12"}', '{"x": "a	b"}',
	'{"i": 1', '{"i": 1,}', '{"i" 1}', '{"i": }', '{i: 1}', '{"i": 01}', '{"i": 1.}', '{"i": -}', '{"i": tru}', '{"i": truex}', '{"x": [1, 2}', '{"x": [1 2]}', '{"x": {"y"}}', '{"i": 1} {"i": 2}', '{"i": 1}}', '{''i'': 1}', '{"t": "', '{"t": "\', '{,}', '}', ']', 'x', '"', '{"x": nan}', '{"t": "a" "b"}', '{"i": 1}, '
]) line;
-- Lines on which the messages differ, or only one side fails: an array of another shape, elements and values of other types.
SELECT regexp_replace(compared(line), E'\n(DETAIL|HINT): [^\n]*', '', 'g') FROM unnest(ARRAY['{"ia": [[1, 2], [3]]}', '{"ia": [[1], 2]}', '{"ia": 5}', '{"ia": {"a": 1}}', '{"ia": { }}', '{"ia": [[[[[[[1]]]]]]]}', '{"ta": [[1], []]}']) line;
SELECT split_part(compared(line), E'\n', 1) FROM unnest(ARRAY['[{"i": 1}]', '"i"', '1', 'true', 'null', ' []']) line;
-- Nested deeply: well below the server's limit, and beyond it.
SELECT md5(compared('{"t": ' || repeat('[', 500) || repeat(']', 500) || ', "x": ' || repeat('{"a": ', 90) || '"\u00e9"' || repeat('}', 90) || ', "j": ' || repeat('[', 70) || '"\ud83e\udd80"' || repeat(']', 70) || '}'));
CALL write_file('item', '{"i": 1, "t": ' || repeat('[', 1000000) || E'}\n');
SELECT e FROM error_of('SELECT i FROM item') e WHERE e NOT LIKE 'HINT:%';
-- Whether a line is good depends neither on the columns that are needed nor on earlier lines.
CALL make_table('bad', 'a int, b text', $$format 'json'$$, E'{"a": 1, "b": "x"}\n{"a": 2, "b": "\\ud800"}\n');
SELECT error_of(q) FROM unnest(ARRAY['SELECT * FROM bad', 'SELECT a FROM bad', 'SELECT count(*) FROM bad', 'SELECT sum(a) FROM bad', 'SELECT a FROM bad WHERE a > 5']) q;
CALL write_file('bad', E'{"a": 1}\n\n  \t\n[1]\n');
SELECT error_of(q) FROM unnest(ARRAY['SELECT * FROM bad', 'SELECT count(*) FROM bad']) q;
SELECT * FROM bad LIMIT 1;
CALL write_file('bad', E'{"a": 1}\n{"a": "x"}\n');
SELECT error_of('SELECT * FROM bad');
SELECT count(*) FROM bad;
-- Empty lines, other line ends, a byte order mark, a last line without a line end, an empty file.
CALL make_table('ends', $$a int, line int OPTIONS (source 'line_number'), file text OPTIONS (source 'filename')$$, $$format 'json'$$, E'\uFEFF\r\n{"a": 1}\r\n\r\n  \r\n{"a": 2, "line": 9}\r\n{"a": 3}');
SELECT a, line, without_path(file) FROM ends;
SELECT count(*) FROM ends;
ALTER FOREIGN TABLE ends OPTIONS (ADD skip '1', ADD limit '1');
SELECT a, line FROM ends;
CALL write_file('ends', E'\n\n');
SELECT a FROM ends;
CALL write_file('ends', '');
SELECT a FROM ends;
CALL write_file('ends', E'{"a": 1}\n{"a": 2}\r\n');
ALTER FOREIGN TABLE ends OPTIONS (DROP skip, DROP limit);
SELECT error_of('SELECT a FROM ends');
-- Keys with other names, the remaining members, generated columns and dropped ones, domains that check NULL.
CREATE DOMAIN wanted AS text CHECK (value IS NOT NULL);
CALL make_table('keys', $$gone int, a int OPTIONS (key 'The "A"'), b text OPTIONS (key ''), twice int GENERATED ALWAYS AS (a * 2) STORED, again text OPTIONS (key 'The "A"'), rest jsonb OPTIONS (rest 'true'), c text OPTIONS (rest 'false', key 'c.d')$$, $$format 'json'$$,
E'{"The \\"A\\"": 1, "": "empty", "c": {"d": 1}, "c.d": 2, "twice": 7, "x": 1, "x": [2, "\\u00e9"]}\n{"The \\u0022A\\u0022": 2}\n{"a": 5, "rest": 6, "gone": "\\n", "b": null}\n');
ALTER FOREIGN TABLE keys DROP COLUMN gone;
SELECT * FROM keys;
SELECT a FROM keys WHERE rest = '{}';
SELECT rest FROM keys WHERE a IS NULL;
ALTER FOREIGN TABLE keys ALTER rest TYPE json;
SELECT rest FROM keys;
ALTER FOREIGN TABLE keys ALTER rest TYPE text;
SELECT error_of('SELECT a FROM keys');
CALL make_table('wants', 'a int, w wanted', $$format 'json'$$, E'{"a": 1, "w": "x"}\n{"a": 2, "w": null}\n');
SELECT error_of('SELECT * FROM wants');
CALL write_file('wants', E'{"a": 2}\n');
SELECT error_of('SELECT * FROM wants');
-- Other encodings: a file is converted before its lines are parsed.
CALL make_table('latin', $$a text, k text OPTIONS (key 'ä')$$, $$format 'json', encoding 'latin1'$$, '');
CALL write_bytes('latin', convert_to(E'{"a": "\u00fc\\u00e9", "\u00e4": "\u00df"}\n', 'LATIN1'));
SELECT * FROM latin;
ALTER FOREIGN TABLE latin OPTIONS (SET encoding 'sjis');
CALL write_bytes('latin', '\x 7b2261223a22835c 8abf 227d 0a');
SELECT * FROM latin;
CALL write_bytes('latin', '\x 7b2261223a22 835c 227d 0a 7b2261223a22 ff 227d 0a');
SELECT error_of('SELECT count(*) FROM latin');
ALTER FOREIGN TABLE latin OPTIONS (SET encoding 'utf8');
SELECT error_of('SELECT count(*) FROM latin');
-- on_error skips bad values, but not lines that are no objects.
CALL make_table('survived', 'a int, b date', $$format 'json', on_error 'ignore'$$, E'{"a": 1, "b": "2024-01-01"}\n{"a": "x"}\n{"a": 3, "b": {}}\n{"b": "2024-01-04"}\n');
SELECT * FROM survived;
ALTER FOREIGN TABLE survived OPTIONS (SET on_error 'set_null', ADD log_verbosity 'silent');
SELECT * FROM survived;
CALL write_file('survived', E'{"a": "x"}\n{"a"}\n');
SELECT error_of('SELECT * FROM survived');
-- Loads by both writers, and INSERT: the result equals the table from which the JSON was written.
CREATE TABLE original (id int PRIMARY KEY, word text, amount numeric(10,2), day date, tags text[], more jsonb);
INSERT INTO original SELECT i, CASE WHEN i % 7 > 0 THEN chr(97 + i % 26) || E'"\\\n\u00fc' || repeat('x', i % 40) END, i / 8.0, date '2000-01-01' + i, CASE WHEN i % 3 > 0 THEN ARRAY['a,b', i::text, NULL, '"'] END, jsonb_build_object('n', i, 'in', ARRAY[i, i + 1]) FROM generate_series(1, 3000) i;
-- Some keys come last, some first, some are missing if they are null.
SELECT string_agg((CASE WHEN id % 5 = 0 THEN json_strip_nulls(row_to_json(o)) WHEN id % 5 = 1 THEN jsonb_pretty(to_jsonb(o) || '{"other": [1, {"a": "}"}]}')::json ELSE row_to_json(o) END)::text, '#' ORDER BY id) AS content FROM original o \gset
SELECT replace(regexp_replace(:'content', '\n *', ' ', 'g'), '#', E'\n') AS content \gset
CALL write_file('lines.json', :'content');
CREATE TABLE loaded (LIKE original INCLUDING INDEXES);
CREATE FUNCTION differing(query text DEFAULT 'SELECT * FROM loaded') RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM ((SELECT t::text FROM original t EXCEPT ALL SELECT t::text FROM (%s) t) UNION ALL (SELECT t::text FROM (%1$s) t EXCEPT ALL SELECT t::text FROM original t)) d', query) INTO n;
	RETURN n;
END $$;
CREATE FUNCTION corrupt() RETURNS SETOF text LANGUAGE sql AS $$ SELECT bt_index_parent_check('loaded_pkey', true, true)::text UNION ALL SELECT v::text FROM verify_heapam('loaded') v $$;
SELECT set_config('pg_bulk.chunk_size', '1kB', false);
SELECT w, o, (SELECT (rows_loaded, writer, workers) FROM bulk_load(data_path('lines.json'), 'loaded', jsonb_build_object('format', 'json', 'truncate', true, 'writer', w) || o)), differing(), (SELECT string_agg(c, ' ') FROM corrupt() c)
FROM unnest('{buffered,direct}'::text[]) w, unnest(ARRAY['{"workers": 0}', '{"workers": 2}']::jsonb[]) o;
SELECT differing(format($$SELECT * FROM bulk_read(%L, '{"format": "json"}') AS t (id int, word text, amount numeric(10,2), day date, tags text[], more jsonb)$$, data_path('lines.json')));
SELECT count(*), sum(n) FROM bulk_read(data_path('lines.json'), '{"format": "json", "columns": ["x", {"column": "n", "key": "id"}, {"column": "r", "rest": true}]}') AS t (r jsonb, n int, x text, day date) WHERE r ? 'word' AND NOT r ? 'day';
CALL make_table('file', 'id int, word text, amount numeric(10,2), day date, tags text[], more jsonb', $$format 'json'$$, :'content');
SELECT differing('SELECT * FROM file');
CREATE FUNCTION inserted(condition text, workers int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	direct text;
	n bigint := 0;
BEGIN
	PERFORM set_config('pg_bulk.workers', workers::text, true);
	FOREACH direct IN ARRAY '{on,off}'::text[] LOOP
		PERFORM set_config('pg_bulk.direct_insert', direct, true);
		TRUNCATE loaded;
		EXECUTE 'INSERT INTO loaded SELECT f.* FROM file f ' || condition;
		n := n + (SELECT count(*) FROM corrupt() c WHERE c <> '');
		EXECUTE 'INSERT INTO loaded SELECT f.* FROM original f WHERE NOT EXISTS (SELECT FROM loaded l WHERE l.id = f.id)';
		n := n + differing();
	END LOOP;
	RETURN n;
END $$;
SELECT plan_of('INSERT INTO loaded SELECT * FROM file', 'COSTS OFF') AS plan;
SELECT w, c, inserted(c, w) FROM unnest('{0,2}'::int[]) w, unnest(ARRAY['', 'WHERE f.id % 3 = 1', 'WHERE f.word IS NULL', 'JOIN generate_series(5, 900, 5) g ON g = f.id']) c;
SET pg_bulk.workers = 2; SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
SELECT plan_of('SELECT count(*), sum(id) FROM file', 'COSTS OFF') AS plan;
SELECT count(*), sum(id), count(word), sum(amount), max(day) FROM file;
SELECT count(*), sum(id), count(word), sum(amount), max(day) FROM original;
SELECT differing('SELECT * FROM file WHERE id > 0');
RESET pg_bulk.workers; RESET min_parallel_table_scan_size; RESET parallel_setup_cost; RESET parallel_tuple_cost;
ANALYZE file;
SELECT rows_expected('SELECT * FROM file');
RESET pg_bulk.chunk_size;
-- A missing key: the column's default in loads, NULL in foreign tables. null is NULL.
CREATE TABLE defaults (a int DEFAULT 5, b text DEFAULT 'none' || 'such', id serial, c int GENERATED BY DEFAULT AS IDENTITY, d text DEFAULT upper('x') NOT NULL, e text DEFAULT 'e', rest jsonb DEFAULT '1');
CALL write_file('defaults.json', E'{"a": 1, "id": 7}\n{"b": "x", "c": 8, "d": "y"}\n{"a": null, "b": null, "e": "e2", "z": [1]}\n{}\n');
\set columns '["a", "b", "id", "c", "d", {"column": "rest", "rest": true}]'
SELECT loaded, writer FROM figures('defaults.json', 'defaults', jsonb_build_object('format', 'json', 'writer', 'buffered', 'columns', :'columns'::jsonb));
SELECT * FROM defaults;
TRUNCATE defaults RESTART IDENTITY;
SELECT loaded, writer FROM figures('defaults.json', 'defaults', jsonb_build_object('format', 'json', 'writer', 'direct', 'columns', :'columns'::jsonb));
SELECT * FROM defaults;
SELECT count(*) FROM verify_heapam('defaults');
CREATE FUNCTION lot() RETURNS text LANGUAGE plpgsql VOLATILE AS $$ BEGIN RETURN 'volatile'; END $$;
ALTER TABLE defaults ALTER b SET DEFAULT lot();
SELECT * FROM figures('defaults.json', 'defaults', '{"format": "json", "truncate": true}');
SELECT b, count(*) FROM defaults GROUP BY b ORDER BY b;
SELECT error_of(format($$SELECT * FROM bulk_load(%L, 'defaults', '{"format": "json", "columns": ["a", "d"]}')$$, data_path('wants')));
CALL make_table('no_defaults', $$a int DEFAULT 5, b text DEFAULT 'x'$$, $$format 'json'$$, E'{"a": 1}\n{}\n');
SELECT * FROM no_defaults;
CALL write_file('defaults.json', E'{"d": null}\n');
SELECT error_of(format($$SELECT * FROM bulk_load(%L, 'defaults', '{"format": "json"}')$$, data_path('defaults.json')));
-- Rejects, by one process and by several.
SELECT string_agg(CASE i % 100 WHEN 3 THEN '{"a": "x", "b": "y"}' WHEN 5 THEN '' WHEN 7 THEN '{"a": 7' WHEN 9 THEN '[9]' WHEN 11 THEN '{"a": 70000}' WHEN 13 THEN '{"b": "\u0000", "a": 13}' WHEN 15 THEN 'null' WHEN 17 THEN '{"c": "\ud800"}' ELSE format('{"a": %s, "b": "%s\u00e9"}', i, repeat('x', i % 30)) END, E'\n') AS content FROM generate_series(1, 1500) i \gset
SELECT alike('a int2, b text', :'content', '{"format": "json", "on_error": "table"}');
SELECT alike('a int2, b text', convert_to(:'content', 'UTF8') || '\x0a7b2261223a22ff227d0a7b2261223a317d', '{"format": "json", "on_error": "table"}');
SELECT alike('a int2, b text', :'content', '{"format": "json", "on_error": "table", "reject_limit": 20}');
SELECT alike('a int2, b text', :'content', '{"format": "json"}');
SELECT alike('a int2, b text', replace(:'content', '{"a": "x"', '{"a": "1"'), '{"format": "json"}');
CREATE TABLE small (a int2, b text DEFAULT 'none');
CALL write_file('lines.json', E'{"a": 1}\n{"a": "x"}\n{"a" 3}\n\n[4]\n{"a": 5, "b": "\\u0000"}\n{"a": 6, "x": ' || repeat('[', 70) || repeat(']', 70) || E'}\n{"a": 70000}\n');
SELECT * FROM figures('lines.json', 'small', '{"format": "json", "on_error": "table"}');
SELECT line_number, byte_offset, column_name, raw_field, raw_line, sqlstate, message FROM bulk_rejects WHERE load_id = (SELECT max(load_id) FROM bulk_rejects) ORDER BY line_number;
SELECT * FROM small;
SELECT line_number, message FROM bulk_check(data_path('lines.json'), 'small', '{"format": "json"}');
-- Computed columns, where; several files; compressed ones; a program; a job of the queue.
CALL write_file('lines.1.json', E'{"a": 1, "b": "ab"}\n{"b": "cd", "a": 2}\n');
CALL write_file('lines.2.json', E'{"a": 3, "x": {"y": "ef"}}\n');
SELECT * FROM figures('lines.[12].json', 'small', $${"format": "json", "truncate": true, "columns": ["a", {"column": "doc", "key": "x"}, {"name": "b", "expr": "coalesce(doc::jsonb ->> 'y', 'nothing')"}], "where": "a <> 2"}$$);
SELECT * FROM small ORDER BY a;
DO $do$ BEGIN EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'cat >/dev/null; gzip -c "' || data_path('lines.1.json') || '" >"' || data_path('lines.3.json') || '"'); END $do$;
SELECT * FROM figures('lines.[23].json', 'small', '{"format": "json", "truncate": true, "workers": 2}');
SELECT * FROM small ORDER BY a;
SELECT bulk_enqueue(data_path('lines.1.json'), 'small', '{"format": "json", "truncate": true, "columns": [{"column": "a", "key": "a"}, {"column": "b", "key": "b"}]}') AS job \gset
SELECT bulk_wait(:job);
SELECT * FROM small ORDER BY a;
SELECT * FROM bulk_read($$printf '{"a": %d}\n' 1 2$$, '{"format": "json", "program": true}') AS t (a int);
-- Invalid combinations of options.
SELECT error_of(format($$ALTER FOREIGN TABLE item OPTIONS (ADD %s %L)$$, name, value)) FROM (VALUES ('delimiter', ','), ('quote', '"'), ('escape', '"'), ('null', ''), ('default', 'x'), ('force_null', '*'), ('force_not_null', 'i'), ('header', 'true'), ('header', '2'), ('header', 'match'), ('match_by', 'name'), ('match_by', 'position'), ('record_length', '5'), ('line_ends', 'true')) o (name, value);
SELECT error_of($$ALTER FOREIGN TABLE item OPTIONS (ADD header 'false')$$);
SELECT error_of(format($$ALTER FOREIGN TABLE item ALTER i OPTIONS (ADD %s)$$, o)) FROM unnest(ARRAY[$$rest 'x'$$, $$kee 'x'$$, $$key 'x', ADD source 'filename'$$]) o;
SELECT error_of(format($$ALTER FOREIGN TABLE item ALTER %s); SELECT i FROM item$$, o)) FROM unnest(ARRAY[$$i OPTIONS (ADD key 'x', rest '1'$$, $$i OPTIONS (ADD rest '1'$$, $$j OPTIONS (ADD rest '1'), ALTER o OPTIONS (ADD rest '1'$$, $$i OPTIONS (ADD length '3'$$, $$i OPTIONS (ADD force_null 'true'$$]) o;
SELECT error_of($$ALTER FOREIGN TABLE keys OPTIONS (SET format 'csv'); SELECT a FROM keys$$);
SELECT error_of(format('SELECT * FROM bulk_load(%L, ''small'', %L)', data_path('lines.1.json'), o)) FROM unnest(ARRAY['{"format": "json", "delimiter": "x"}', '{"format": "json", "columns": [{"column": "a", "length": 2}]}', '{"format": "json", "columns": [{"column": "a", "kee": "x"}]}', '{"format": "json", "columns": [{"column": "a", "key": ["x"]}]}', '{"format": "json", "columns": [{"column": "a", "rest": true}]}', '{"format": "json", "columns": [{"column": "b", "rest": "perhaps"}]}', '{"columns": [{"column": "a", "key": "x"}]}', '{"format": "json", "columns": ["a", "a"]}', '{"format": "json", "columns": [{"column": "c", "key": "x"}]}', '{"format": "json", "columns": [{"column": "a", "key": "x", "source": "filename"}]}']) o;
SELECT error_of(format('SELECT * FROM bulk_read(%L, %L) AS t (a int, b text)', data_path('lines.1.json'), o)) FROM unnest(ARRAY['{"format": "json", "columns": [{"column": "b", "rest": true}]}', '{"format": "json", "columns": ["c"]}', '{"format": "json", "columns": ["a", "a"]}', '{"format": "json", "columns": [{"column": "a", "source": "filename"}]}']) o;
SELECT format, delimiter, quote, header, columns, rows FROM bulk_sniff(data_path('lines.1.json'), '{"format": "json"}');
-- COPY does not accept this format, whether the server or pg_bulk runs it.
LOAD 'pg_bulk';
SET pg_bulk.copy = on;
SET pg_bulk.copy_min_size = 0;
SELECT error_of(format('COPY small FROM %L (FORMAT json)', data_path('lines.1.json')));
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA IF EXISTS loaded CASCADE;
DROP SCHEMA json_lines CASCADE;
