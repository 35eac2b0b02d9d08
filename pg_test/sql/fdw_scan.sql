--
-- From a file to rows: header lines, skip and limit, which columns have fields, markers, and which values a query
-- converts. fdw_errors.sql has the errors.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema fdw_scan
\i :helpers
\set ECHO all
\pset null '(null)'

-- header
CALL make_table('h', 'a text, "B c" text', 'format ''csv''', E'a,"B c"\n1,one\n2,two\n');
SELECT * FROM h;
ALTER FOREIGN TABLE h OPTIONS (ADD header 'true');
SELECT * FROM h;
ALTER FOREIGN TABLE h OPTIONS (SET header 'off');
SELECT count(*) FROM h;
ALTER FOREIGN TABLE h OPTIONS (SET header 'match');
SELECT * FROM h;
-- The header is not data: neither skip nor limit counts it.
ALTER FOREIGN TABLE h OPTIONS (ADD skip '1', ADD "limit" '1');
SELECT * FROM h;
ALTER FOREIGN TABLE h OPTIONS (SET skip '0', SET "limit" '0');
SELECT count(*) FROM h;
ALTER FOREIGN TABLE h OPTIONS (SET skip '5', DROP "limit");
SELECT count(*) FROM h;
-- A file that ends with its header, and an empty file.
CALL write_file('h', 'a,"B c"');
SELECT * FROM h;
CALL write_file('h', '');
SELECT error_of('SELECT * FROM h');

-- Headers that do not match: the number of names, their order, case, spaces, NULL.
CREATE FUNCTION header(line text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	CALL write_file('h', line || E'\n1,one\n');
	RETURN QUERY SELECT error_of('SELECT count(*) FROM h');
END $$;
\pset tuples_only
\pset format unaligned
SELECT header('a');
SELECT header('a,B c,d');
SELECT header('"B c",a');
SELECT header('A,B c');
SELECT header(' a,B c');
SELECT header('a,');
SELECT header('"",B c');
SELECT header('');
ALTER FOREIGN TABLE h OPTIONS (DROP format);
SELECT header(E'a\tB c');
SELECT header(E'\\N\tB c');
SELECT header(E'\\x61\tB c');
\pset tuples_only
\pset format aligned

-- The table's present columns: dropped columns have no field, added ones have.
CALL make_table('changed', 'a int, b text, c date', 'format ''csv'', header ''match''', E'a,c,d\n1,2001-02-03,x\n2,,y\n');
ALTER FOREIGN TABLE changed DROP b, ADD d text;
SELECT * FROM changed;
SELECT changed, d FROM changed;
SELECT d, a + 1 AS next FROM changed WHERE c IS NULL;
ALTER FOREIGN TABLE changed RENAME d TO e;
SELECT error_of('SELECT a FROM changed');
ALTER FOREIGN TABLE changed OPTIONS (SET header 'true');
ALTER FOREIGN TABLE changed ALTER a TYPE numeric(5, 2);
SELECT * FROM changed ORDER BY a DESC;

-- No columns at all: an empty line is a row.
CALL make_table('nothing', '', 'format ''csv''', E'\n\n');
SELECT count(*) FROM nothing;
SELECT * FROM nothing;
CALL write_file('nothing', E'\n1\n');
SELECT error_of('SELECT count(*) FROM nothing');

-- Generated columns have no field and are NULL, as in file_fdw.
CALL make_table('made', 'a int, g int GENERATED ALWAYS AS (a * 2) STORED, b text', 'format ''csv'', header ''match''', E'a,b\n1,x\n');
SELECT * FROM made;
SELECT made FROM made WHERE g IS NULL;

-- Defaults: not for missing fields, only for the marker.
CREATE SEQUENCE numbers;
CREATE FUNCTION a_number() RETURNS int VOLATILE LANGUAGE plpgsql AS $$ BEGIN RETURN nextval('numbers') * 100; END $$;
CALL make_table('defaults', $$a int DEFAULT nextval('numbers'), b text DEFAULT 'one, two', c int DEFAULT a_number(), d text$$,
	$$format 'csv', default '\D', null '\N'$$, E'\\D,\\D,\\D,x\n7,"\\D",\\D,\\N\n\\D,,8,"\\N"\n\\N,\\d,\\N,y\n');
SELECT * FROM defaults;
SELECT currval('numbers');
-- A default is evaluated only if the query needs its column. Quals use defaults, too.
SELECT b FROM defaults;
SELECT currval('numbers');
SELECT b, d FROM defaults WHERE c >= 100;
SELECT currval('numbers');
-- A column without a default, whether the query needs it or not. DEFAULT NULL is no default.
CALL write_file('defaults', E'1,x,2,y\n1,x,2,\\D\n');
SELECT error_of('SELECT a FROM defaults');
SELECT a FROM defaults LIMIT 1;
ALTER FOREIGN TABLE defaults ALTER d SET DEFAULT NULL;
SELECT error_of('SELECT d FROM defaults');
-- In the text format; COPY compares the marker with the raw field there, too.
ALTER FOREIGN TABLE defaults OPTIONS (DROP format, SET default 'D');
CALL write_file('defaults', E'1\tD\t2\t\\N\n1\t\\D\t2\t\\x44\n');
SELECT b, c, d FROM defaults;
-- A default that fails has COPY's context.
ALTER FOREIGN TABLE defaults ALTER b SET DEFAULT 1 / (random() * 0)::int;
SELECT error_of('SELECT b FROM defaults');

-- force_not_null and force_null: a column's options, a table's list, and all columns.
CALL make_table('forced', 'a text, b text, "C" text', $$format 'csv', null 'NA'$$, E'NA,"NA",\n"NA",NA,""\nNA,"NA",NA\n');
SELECT * FROM forced;
ALTER FOREIGN TABLE forced ALTER a OPTIONS (force_not_null 'true'), ALTER b OPTIONS (force_null 'true');
SELECT * FROM forced;
ALTER FOREIGN TABLE forced ALTER a OPTIONS (SET force_not_null 'false'), ALTER b OPTIONS (DROP force_null);
ALTER FOREIGN TABLE forced OPTIONS (ADD force_not_null 'a, "C"', ADD force_null 'b');
SELECT * FROM forced;
ALTER FOREIGN TABLE forced OPTIONS (SET force_not_null '*', DROP force_null);
SELECT * FROM forced;
ALTER FOREIGN TABLE forced OPTIONS (ADD force_null '*');
SELECT * FROM forced;
ALTER FOREIGN TABLE forced OPTIONS (DROP force_not_null);
SELECT * FROM forced;

-- Only columns that the query needs are converted: bad values elsewhere are no errors ...
CALL make_table('bad', 'id int, n int, d date', 'format ''csv''', E'1,x,2001-01-01\n2,20,2001-13-01\n3,30,2001-03-03\n');
SELECT count(*) FROM bad;
SELECT id FROM bad;
SELECT n FROM bad WHERE id > 1;
SELECT error_of($$SELECT id, n FROM bad WHERE d = '2001-03-03' AND id = 3$$);
SELECT * FROM bad WHERE id = 3;
SELECT id FROM bad ORDER BY id DESC LIMIT 1;
SELECT error_of('SELECT * FROM bad');
SELECT error_of('SELECT bad FROM bad WHERE id = 2');
SELECT error_of('SELECT id FROM bad WHERE n > 0');
-- ... but a row must have its fields.
CALL write_file('bad', E'1,10,2001-01-01\n2,20\n3\n');
SELECT error_of('SELECT count(*) FROM bad');
SELECT error_of('SELECT id FROM bad WHERE id = 1');
SELECT id FROM bad LIMIT 1;
CALL write_file('bad', E'1,10,2001-01-01\n2,20,2001-02-02,\n');
SELECT error_of('SELECT count(*) FROM bad');
SELECT error_of('SELECT id FROM bad WHERE id = 1');

SET client_min_messages = warning;
DROP SCHEMA fdw_scan CASCADE;
