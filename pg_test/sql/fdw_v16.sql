--
-- Options that came to COPY after PostgreSQL 15, side by side and combined: header with a number of lines, default,
-- force_null and force_not_null '*', on_error, reject_limit, log_verbosity. They work on every server.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema fdw_v16
\i :helpers
\set ECHO all
\pset null '(null)'

-- header with a number of lines: physical lines of the format, with any content.
CALL make_table('t', 'a int, b text', $$format 'csv', header '0'$$, E'1,zero\n2,one\n3,two\n');
SELECT * FROM t;
ALTER FOREIGN TABLE t OPTIONS (SET header '1');
SELECT * FROM t;
ALTER FOREIGN TABLE t OPTIONS (SET header '2');
SELECT * FROM t;
ALTER FOREIGN TABLE t OPTIONS (SET header '3');
SELECT * FROM t;
ALTER FOREIGN TABLE t OPTIONS (SET header '18446744073709551615');
SELECT * FROM t;
ALTER FOREIGN TABLE t OPTIONS (SET header '3');
CALL write_file('t', E'# three, "lines\n\nwith, lines"\n1,one\n');
SELECT * FROM t;
CALL write_file('t', E'# a title\n\na,b\n1,one\nx,two\n');
SELECT error_of('SELECT * FROM t');
CALL write_file('t', E'# a title\r\n# and more\r\na,b\r\n1,one\r\n');
SELECT * FROM t;
ALTER FOREIGN TABLE t OPTIONS (DROP format, SET header '2');
CALL write_file('t', E'a title\nwith\\\nan escaped line end\n1\tone\n');
SELECT * FROM t;
CALL write_file('t', E'a title\n\\.\n1\tone\n');
SELECT * FROM t;
ALTER FOREIGN TABLE t OPTIONS (ADD skip '1');
CALL write_file('t', E'a\nb\nx\ty\n1\tone\n');
SELECT * FROM t;

-- default, in both formats: a raw field that equals the marker, not a quoted or an escaped one.
CREATE TABLE counted (n serial);
CALL make_table('d', $$a int DEFAULT 42, b text DEFAULT upper('b'), c timestamp DEFAULT 'epoch'$$, $$format 'csv', default '-'$$,
	E'1,-,-\n-,"-",-\n-,--,2001-01-01\n,,\n');
SELECT * FROM d;
ALTER FOREIGN TABLE d OPTIONS (DROP format, ADD null '');
CALL write_file('d', E'1\t-\t-\n-\t\\-\t-\n\t\\x2d\t\n');
SELECT * FROM d;
SELECT a FROM d WHERE b = 'B';
-- The default of the column, or of its type if the column has none.
CREATE DOMAIN seven AS int DEFAULT 7 CHECK (VALUE > 5);
CALL make_table('e', 'a seven, b seven DEFAULT 8, c seven DEFAULT 5', $$default 'D'$$, E'D\tD\t9\n');
SELECT * FROM e;
CALL write_file('e', E'9\t9\tD\n');
SELECT error_of('SELECT c FROM e');
SELECT a FROM e;
-- Stable and volatile ones: a volatile one for each row.
CALL make_table('v', $$a int DEFAULT nextval('counted_n_seq'), t timestamptz DEFAULT now(), r float8 DEFAULT random()$$,
	$$default 'D'$$, E'D\tD\tD\nD\tD\tD\n');
SELECT a, t = now() AS now FROM v;
SELECT count(DISTINCT r) FROM v;
SELECT max(a), count(DISTINCT t) FROM v;
-- A default that cannot be planned is an error at the start, whether the query needs the column or not, as in COPY.
ALTER FOREIGN TABLE v ALTER a SET DEFAULT (1 / 0);
SELECT error_of('SELECT t FROM v');

-- force_not_null and force_null with '*', with names, and both at once.
CALL make_table('f', 'a text, b text, c text',
	$$format 'csv', null 'null', force_not_null '*'$$, E'null,"null",\n"null",null,x\n');
SELECT * FROM f;
ALTER FOREIGN TABLE f OPTIONS (ADD force_null ' * ');
SELECT * FROM f;
ALTER FOREIGN TABLE f OPTIONS (SET force_not_null 'c, "b"');
SELECT * FROM f;
ALTER FOREIGN TABLE f OPTIONS (SET force_null '*', DROP force_not_null, ADD default 'D');
ALTER FOREIGN TABLE f ALTER b SET DEFAULT 'deflt';
CALL write_file('f', E'null,D,"D"\n"null","D","null"\n');
SELECT * FROM f;
ALTER FOREIGN TABLE f ADD g text GENERATED ALWAYS AS (a) STORED;
SELECT error_of('SELECT a FROM f');
ALTER FOREIGN TABLE f OPTIONS (SET force_null 'g');
SELECT error_of('SELECT a FROM f');

-- All together: neither a default that fails nor a marker without a default is a bad value.
CALL make_table('g', 'a int DEFAULT 1, b int, c int DEFAULT 0', $$format 'csv', header '2', default 'D', force_null '*', null 'N',
	on_error 'ignore', reject_limit '2', log_verbosity 'verbose'$$,
	E'title\na,b,c\nD,2,D\nx,3,D\n4,"N",D\n5,y,D\n');
SELECT * FROM g;
ALTER FOREIGN TABLE g OPTIONS (DROP reject_limit, SET on_error 'set_null');
SELECT * FROM g;
ALTER FOREIGN TABLE g ALTER c SET DEFAULT 1 / (random() * 0)::int;
SELECT error_of('SELECT a FROM g LIMIT 1');
ALTER FOREIGN TABLE g ALTER c DROP DEFAULT;
SELECT error_of('SELECT a FROM g LIMIT 1');

-- Fields are read from left to right: the marker of a field is found before a bad escape in the next one.
CALL make_table('h', 'a int, b text', $$default '\D', delimiter ','$$, E'\\D,\\377\n');
SELECT error_of('SELECT * FROM h');
CALL make_table('h', 'a text, b int', $$default '\D', delimiter ','$$, E'\\377,\\D\n');
SELECT error_of('SELECT * FROM h');
-- An extra field is an error, also if its position is that of a virtual column.
CALL make_table('h', $$a int, n bigint OPTIONS (source 'line_number')$$, $$default '\D', delimiter ','$$, E'1,\\D\n');
SELECT error_of('SELECT * FROM h');
SET client_min_messages = warning;
DROP SCHEMA fdw_v16 CASCADE;
