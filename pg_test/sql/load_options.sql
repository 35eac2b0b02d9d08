--
-- The options of bulk_load: accepted values, and the errors for others.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_options
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CREATE TABLE t (a int, b text, g int GENERATED ALWAYS AS (a * 2) STORED);
CALL write_file('f.csv', E'a,b\n1,one\n2,two\n3,three\n');
CREATE FUNCTION says(options jsonb) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT error_of(format('SELECT * FROM bulk_load(%L, ''t'', %L)', data_path('f.csv'), options))
$$;
CREATE FUNCTION rows_of(options jsonb) RETURNS SETOF t LANGUAGE plpgsql AS $$
BEGIN
	TRUNCATE t;
	PERFORM bulk_load(data_path('f.csv'), 't', options);
	RETURN QUERY SELECT * FROM t ORDER BY a;
END $$;

-- The object itself.
SELECT says('[]');
SELECT says('"csv"');
SELECT says('null');

-- Unknown names; the hint names a similar option. null is a value like any other.
SELECT says('{"fromat": "csv"}');
SELECT says('{"Format": "csv"}');
SELECT says('{"xyz": 1}');
SELECT says('{"xyz": null}');
SELECT says('{"": 1}');
SELECT says('{"filename": "f"}');

-- Values of the wrong type.
SELECT says('{"format": {"csv": true}}');
SELECT says('{"format": ["csv"]}');
SELECT says('{"columns": "a"}');
SELECT says('{"columns": []}');
SELECT says('{"columns": [1]}');
SELECT says('{"columns": ["a", ["b"]]}');
SELECT says('{"force_null": "a", "format": "csv"}');
SELECT says('{"force_null": [], "format": "csv"}');

-- Values out of range, and unknown ones.
SELECT says('{"format": "xml"}');
SELECT says('{"format": "binary"}');
SELECT says('{"header": "maybe"}');
SELECT says('{"header": -1}');
SELECT says('{"header": 1.5}');
SELECT says('{"encoding": "klingon"}');
SELECT says('{"on_error": "shrug"}');
SELECT says('{"log_verbosity": "shout"}');
SELECT says('{"reject_limit": 0}');
SELECT says('{"reject_limit": 3}');
SELECT says('{"skip": -1}');
SELECT says('{"limit": "many"}');
SELECT says('{"truncate": "perhaps"}');
SELECT says('{"analyze": 2}');
SELECT says('{"program": "psql"}');
SELECT says('{"workers": -1}');
SELECT says('{"workers": 1025}');
SELECT says('{"writer": "fast"}');
SELECT says('{"lock": "none"}');
SELECT says('{"indexes": "drop"}');
SELECT says('{"match_by": "type"}');
SELECT says('{"delimiter": "12345678901234567"}');
SELECT says('{"format": "csv", "quote": ""}');
SELECT says('{"format": "csv", "escape": "ab"}');

-- Invalid combinations, with COPY's messages.
SELECT says('{"quote": "x"}');
SELECT says('{"escape": "x"}');
SELECT says('{"force_null": ["a"]}');
SELECT says('{"force_not_null": "*"}');
SELECT says('{"format": "csv", "delimiter": "\""}');
SELECT says('{"format": "csv", "null": "a,b"}');
SELECT says('{"format": "csv", "default": ""}');
SELECT says('{"match_by": "name", "header": false}');
SELECT says('{"match_by": "name", "header": 2}');
SELECT says('{"match_by": "name", "header": "match"}');
SELECT says('{"match_by": "name", "columns": ["a"]}');
SELECT says('{"freeze": true, "writer": "buffered"}');

-- Columns.
SELECT says('{"columns": ["a", "c"]}');
SELECT says('{"columns": ["a", "b", "a"]}');
SELECT says('{"columns": ["a", "g"]}');
SELECT says('{"columns": ["ctid"]}');
SELECT says('{"format": "csv", "force_null": ["c"]}');
SELECT says('{"format": "csv", "columns": ["a"], "force_null": ["b"]}');
SELECT says('{"format": "csv", "columns": ["a"], "force_not_null": ["b"]}');
SELECT says('{"format": "csv", "force_null": ["g"]}');

-- The where clause: one expression, COPY's rules, error positions within it.
SELECT says('{"where": ""}');
SELECT says('{"where": "a >"}');
SELECT says('{"where": "a > 1; SELECT 1"}');
SELECT says('{"where": "a > 1) OR (true"}');
SELECT says('{"where": "a"}');
SELECT says('{"where": "c > 1"}');
SELECT says('{"where": "g > 1"}');
SELECT says('{"where": "t IS NOT NULL"}');
SELECT says('{"where": "a = (SELECT 1)"}');
SELECT says('{"where": "count(*) > 1"}');
SELECT says('{"where": "a > generate_series(1, 2)"}');
SELECT says('{"where": "1 / 0 > a"}');
SELECT says('{"where": 5}');
SELECT says(('{"where": ' || repeat('[', 14000) || repeat(']', 14000) || '}')::jsonb);
\set VERBOSITY default
SELECT bulk_load(data_path('f.csv'), 't', '{"where": "a > 1 AND no_such(b)"}');
SELECT bulk_load(data_path('f.csv'), 't', '{"where": "a > 1 AND AND b"}');

-- JSON's spellings of values.
SELECT rows_of('{"format": "csv", "header": true}');
SELECT rows_of('{"format": "csv", "header": 1}');
SELECT rows_of('{"format": "csv", "header": "on"}');
SELECT rows_of('{"format": "csv", "header": "match"}');
SELECT rows_of('{"format": "csv", "header": 2, "limit": 1}');
SELECT rows_of('{"format": "csv", "header": true, "limit": 1e0, "skip": "1"}');
SELECT rows_of('{"format": "csv", "header": true, "columns": null, "where": null, "limit": null, "writer": null}');
SELECT rows_of('{"format": "csv", "header": true, "truncate": 1, "analyze": "off", "writer": "BUFFERED", "workers": 0}');
SELECT rows_of('{"format": "csv", "match_by": "position", "header": true}');
SELECT rows_of('{"format": "csv", "header": true, "force_null": ["b"], "force_not_null": "*", "null": "two"}');
SELECT rows_of('{"format": "csv", "header": true, "where": "a > 1 -- and no more"}');
SELECT rows_of('{"format": "csv", "header": true, "where": true}');
SELECT rows_of('{"format": "csv", "header": true, "where": "NULL"}');
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA load_options CASCADE;
