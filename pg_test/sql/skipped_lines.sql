--
-- Lines that are no records: skip_blank_lines and comment.
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
\set schema skipped_lines
\i :helpers
\i :load_helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
-- Before, in and behind the records of a foreign table. Skipped lines count in line numbers, and not as header lines.
CALL make_table('lines', $$a int, b text, line int OPTIONS (source 'line_number')$$, $$format 'csv', header 'match', skip_blank_lines 'true', comment '#'$$, E'# "title\n\na,b\n \t\n1,one\n#\n#,"\n2,"#\n\n"\n\n3, # x\n  ');
SELECT to_json(t) FROM lines t;
SELECT count(*), max(a) FROM lines;
ALTER FOREIGN TABLE lines OPTIONS (ADD skip '1', ADD "limit" '1');
SELECT to_json(t) FROM lines t;
ALTER FOREIGN TABLE lines OPTIONS (DROP skip, DROP "limit", SET comment '//', SET skip_blank_lines 'off');
CALL write_file('lines', E'//\r\na,b\r\n////"\r\n1,\r\n\r\n2,/\r\n');
SELECT error_of('SELECT * FROM lines');
ALTER FOREIGN TABLE lines OPTIONS (SET skip_blank_lines '1');
SELECT to_json(t) FROM lines t;
CALL write_file('lines', E'\ra,b\r//\r x,1\r');
SELECT error_of('SELECT * FROM lines');
-- In text a backslash has no meaning in a comment. A line of the delimiter is a record.
CALL make_table('texts', $$a text, b text, line int OPTIONS (source 'line_number')$$, $$skip_blank_lines 'on', comment '--'$$, E'--\\\n\n1\t2\n \n\t\n--\\.\n-\\-\tx\\\n--\n\\--\t3\n\\.\n--\n9\t9\n');
SELECT to_json(t) FROM texts t;
ALTER FOREIGN TABLE texts OPTIONS (SET skip_blank_lines 'off');
SELECT error_of('SELECT * FROM texts');
-- Without quotes, and in another encoding.
CALL make_table('bare', $$a int, b text$$, $$format 'csv', quote 'none', comment '§', skip_blank_lines 'true', encoding 'latin1'$$, '');
CALL write_bytes('bare', '\x a7220a 312c220a 090a 322ca70a');
SELECT to_json(t) FROM bare t;
-- Comments may have invalid bytes where lines with them are rejected.
CALL write_bytes('bytes', '\x 23ff0a 310a 320a 23ff');
SELECT error_of($$SELECT * FROM bulk_read(data_path('bytes'), '{"format": "csv", "comment": "#"}') AS t (a int)$$);
SELECT * FROM bulk_read(data_path('bytes'), '{"format": "csv", "comment": "#", "encoding_errors": "replace"}') AS t (a int);
-- Loads, checks, rejects and once.
CREATE TABLE small (a int2, b text DEFAULT 'none');
CALL write_file('small.dat', E'#\na,b\n\n1,x\n#2\nbad,x\n\n4\n# "\n5,y\n\n');
SELECT figures('small.dat', 'small', '{"format": "csv", "header": true, "skip_blank_lines": true, "comment": "#", "on_error": "table", "once": true}');
SELECT line_number, byte_offset, column_name, raw_field, raw_line, sqlstate, message FROM bulk_rejects WHERE load_id = (SELECT max(load_id) FROM bulk_rejects) ORDER BY line_number;
SET client_min_messages = warning;
SELECT (figures('small.dat', 'small', '{"format": "csv", "header": true, "skip_blank_lines": true, "comment": "#", "on_error": "table", "once": true}')).loaded;
RESET client_min_messages;
SELECT line_number, byte_offset, raw_line, message FROM bulk_check(data_path('small.dat'), 'small', '{"format": "csv", "header": true, "skip_blank_lines": true, "comment": "#"}');
SELECT error_of($$SELECT bulk_load(data_path('small.dat'), 'small', '{"format": "csv", "header": true, "skip_blank_lines": true, "comment": "#"}')$$);
SELECT figures('small.dat', 'small', '{"format": "csv", "header": true, "skip_blank_lines": true, "comment": "#", "skip": 3, "limit": 1}');
TABLE small;
-- Rejects and rows, by one process and by several. Chunks have 64 bytes, so that their ends are in comments, and before and behind them.
SELECT string_agg(CASE i % 23 WHEN 3 THEN '# "' || repeat('x', i % 90) WHEN 5 THEN repeat(' ', i % 11) WHEN 7 THEN '#' || repeat('"', i % 5) || E'\n#\n\n' WHEN 9 THEN 'x,1' WHEN 11 THEN i || ',"' || repeat(E'\n#"" \n', i % 4) || '"' ELSE i || ',' || repeat('y', i % 30) END, E'\n') AS content FROM generate_series(1, 1500) i \gset
SELECT alike('a int2, b text', :'content', '{"format": "csv", "skip_blank_lines": true, "comment": "#", "on_error": "table"}');
SELECT alike('a int2, b text', replace(:'content', E'\n', E'\r\n'), '{"format": "csv", "skip_blank_lines": true, "comment": "#", "on_error": "table"}');
SELECT alike('a int2, b text', replace(:'content', E'\n', E'\r'), '{"format": "csv", "skip_blank_lines": true, "comment": "#", "on_error": "table"}');
SELECT alike('a int2, b text', replace(:'content', '#', '--'), '{"format": "csv", "escape": "\\", "skip_blank_lines": true, "comment": "--", "on_error": "table"}');
SELECT alike('a text, b text', replace(replace(:'content', '"', '\'), ',', E'\t'), '{"skip_blank_lines": true, "comment": "#", "on_error": "table"}');
SELECT alike('a int2, b text', :'content', '{"format": "csv", "skip_blank_lines": true, "comment": "#"}');
-- Compressed files, programs, and several files.
CALL write_file('skipped1.csv', E'#\n1,a\n\n');
CALL write_file('skipped2.csv', E'\n\n#\n');
CALL write_file('skipped3.csv', E'2,b\n#');
SELECT figures('skipped?.csv', 'small', '{"format": "csv", "skip_blank_lines": true, "comment": "#"}');
SELECT * FROM bulk_read('gzip -c ' || data_path('small.dat'), '{"program": true, "format": "csv", "header": true, "skip_blank_lines": true, "comment": "#", "short_rows": "null"}') AS t (a text, b text);
SELECT rows_loaded FROM bulk_load(convert_to(E'#\n\n7,z', 'UTF8'), 'small', '{"format": "csv", "skip_blank_lines": true, "comment": "#"}');
-- Values of the options, and formats that cannot have them.
CREATE FUNCTION refused(options text) RETURNS SETOF text LANGUAGE sql AS $$ SELECT error_of(format('CREATE FOREIGN TABLE f (a int) SERVER bulk_files OPTIONS (filename ''f'', %s)', options)) $$;
SELECT refused($$comment ''$$);
SELECT refused($$comment E'#\n'$$);
SELECT refused($$comment '12345678901234567'$$);
SELECT refused($$skip_blank_lines 'perhaps'$$);
SELECT refused($$comment '#', format 'json'$$);
SELECT refused($$skip_blank_lines 'true', format 'fixed'$$);
SELECT refused($$comment '#', format 'binary'$$);
SELECT error_of($$COPY small FROM '/dev/null' WITH (skip_blank_lines true)$$);
-- The line end is given: others are data. Or any ends a line.
CALL make_table('ends', $$a int, b text, line int OPTIONS (source 'line_number')$$, $$format 'csv', line_end 'crlf'$$, E'1,a\r\n2,b\nc\rd\r\n3,"x\r\ny"\r\n');
SELECT to_json(t) FROM ends t;
ALTER FOREIGN TABLE ends OPTIONS (SET line_end 'ANY');
CALL write_file('ends', E'1,a\n2,"b\n"\r\n3,c\r4,d');
SELECT to_json(t) FROM ends t;
ALTER FOREIGN TABLE ends OPTIONS (SET line_end 'lf');
SELECT to_json(t) FROM ends t;
ALTER FOREIGN TABLE ends OPTIONS (DROP line_end);
SELECT error_of('SELECT * FROM ends');
SELECT to_json(t) FROM bulk_read(data_path('ends'), '{"format": "text", "delimiter": ",", "line_end": "cr"}') t (a text, b text);
SELECT rows_loaded, rows_rejected FROM bulk_load(data_path('ends'), 'small', '{"format": "csv", "line_end": "any", "on_error": "table"}');
SELECT line_number, raw_line, message FROM bulk_check(data_path('ends'), 'small', '{"format": "csv", "line_end": "lf"}');
SELECT string_agg(i || CASE i % 99 WHEN 7 THEN E',\r' ELSE ',"x' || repeat(E'\n', i % 3) || '"' END || repeat('y', i % 13), CASE WHEN i % 500 = 3 THEN E'\n' ELSE E'\r\n' END) AS content FROM generate_series(1, 1500) i \gset
SELECT alike('a int2, b text', :'content', '{"format": "csv", "line_end": "any", "on_error": "table"}');
SELECT alike('a int2, b text', :'content', '{"format": "csv", "line_end": "crlf", "on_error": "table"}');
SELECT alike('a text, b text', :'content', '{"delimiter": ",", "line_end": "crlf", "on_error": "table"}');
SELECT alike('a text, b text', :'content', '{"delimiter": ",", "line_end": "lf", "on_error": "table"}');
SELECT alike('a int2, b text', replace(:'content', E'\r\n', E'\n'), '{"format": "csv", "line_end": "any", "on_error": "table"}');
-- In text, a chunk ends between the CR of a line and lines with escaped line ends.
SELECT alike('a int, b int, c text', repeat(E'1\t1\t' || repeat('x', 59) || E'\r' || repeat(E'l\t2\ta\\\nb\r\n', 10), 16), '{"line_end": "any", "on_error": "table"}');
-- Files whose lines end with CR are not cut into chunks.
CALL write_file('cr_ends_1', repeat(E'1,x\r', 2000));
CALL write_file('cr_ends_2', repeat(E'2,y\r', 2000));
SET pg_bulk.chunk_size = '64';
SELECT rows_loaded FROM bulk_load(data_path('cr_ends_?'), 'small', '{"format": "csv", "line_end": "any", "workers": 2}');
RESET pg_bulk.chunk_size;
SELECT refused($$line_end 'nl'$$);
SELECT refused($$line_end 'lf', format 'json'$$);
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA skipped_lines CASCADE;
DROP SCHEMA IF EXISTS loaded CASCADE;
