--
-- Quotes that count only at both ends of a field: lenient_quotes.
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
\set schema lenient_quotes
\i :helpers
\i :load_helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
-- A quote counts at a field's start if its partner stands before a delimiter or line end. Otherwise all quotes of the field are data, but for one at both ends.
CALL make_table('q', $$a int, b text, c text$$, $$format 'csv', lenient_quotes 'true'$$,
E'1,"bla"x,5\' 6"\n2,"a "b" c","a, ""b"""\n3,"CC-9,"Throw"\n4,"x\ny",""\n5,a"b,c"d\n"6","""",\n7,"no end,z\n8,"x",y"\n');
SELECT to_json(t) FROM q t;
SELECT count(*) FROM q;
-- COPY's meaning without the option.
ALTER FOREIGN TABLE q OPTIONS (SET lenient_quotes 'false');
SELECT error_of('SELECT * FROM q');
-- Another escape, refined texts, an invalid combination.
CALL make_table('e', $$a text, b text OPTIONS (trim 'both', null_if '"x"""')$$, $$format 'csv', lenient_quotes 'true', escape '\'$$, E'"a\\"b", "c" \n"a""b",x"\n"\\","y\\"\n');
SELECT to_json(t) FROM e t;
SELECT * FROM bulk_read(data_path('e'), '{"format": "csv", "lenient_quotes": true}') AS t (a text, b text);
SELECT error_of($$SELECT * FROM bulk_read('f', '{"format": "text", "lenient_quotes": true}') AS t (a text)$$);
SELECT error_of($$SELECT * FROM bulk_read('f', '{"format": "csv", "quote": "none", "lenient_quotes": true}') AS t (a text)$$);
-- One process and several, in chunks: without such a quote, with one, with many; at the end of the file, and compressed.
CREATE FUNCTION lines(a int, b int) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(format(E'%s,"two\n %s",three\n', i, i), '') FROM generate_series(a, b) i $$;
SELECT n, alike('a int, b text, c text', convert_to(lines(1, 100) || bytes || lines(101, 200), 'UTF8'), '{"format": "csv", "lenient_quotes": true}')
FROM (VALUES (1, ''), (2, E'0,"bla"x,y\n'), (3, E'0,"no end,y\n'), (4, E'0,a"b,y\n0,x,"\n'), (5, repeat(E'0,a"b,"c"d\n', 100))) v (n, bytes);
SELECT alike('a int, b text, c text', convert_to(lines(1, 100) || E'0,"no end,y\n0,1,2\n', 'UTF8'), '{"format": "csv", "lenient_quotes": true}');
SELECT alike('a int, b text, c text', convert_to(lines(1, 100) || E'0,"no end,y\nx,1,2\n7\n' || lines(1, 100), 'UTF8'), '{"format": "csv", "lenient_quotes": true, "on_error": "table"}');
-- COPY does not accept the option.
LOAD 'pg_bulk';
SET pg_bulk.copy = on;
SET pg_bulk.copy_min_size = 0;
CREATE TABLE t (a int, b text, c text);
SELECT error_of(format('COPY t FROM %L (FORMAT csv, LENIENT_QUOTES true)', data_path('q')));
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA lenient_quotes CASCADE;
DROP SCHEMA IF EXISTS loaded CASCADE;
