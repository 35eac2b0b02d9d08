--
-- on_error, reject_limit, log_verbosity: the errors that COPY of 17 to 19 survives, and its messages.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema fdw_on_error
\i :helpers
\set ECHO all
\pset null '(null)'
CALL make_table('t', 'id int, n int, d date', $$format 'csv', on_error 'stop'$$,
	E'1,10,2001-01-01\n2,zwanzig,2001-02-02\ndrei,30,2001-03-03\n4,40,2001-13-04\n5,,\nsix,seven,eight\n');
SELECT error_of('SELECT * FROM t');

-- ignore: the same rows for each list of columns.
ALTER FOREIGN TABLE t OPTIONS (SET on_error 'ignore');
SELECT * FROM t;
SELECT id FROM t;
SELECT count(*) FROM t;
SELECT id FROM t WHERE d IS NULL;
SELECT sum(n) FROM t WHERE id < 3;
SELECT t FROM t LIMIT 1;
SELECT id FROM t LIMIT 0;

-- Messages by log_verbosity.
ALTER FOREIGN TABLE t OPTIONS (ADD log_verbosity 'verbose');
SELECT id FROM t;
ALTER FOREIGN TABLE t OPTIONS (SET log_verbosity 'silent');
SELECT id FROM t;
ALTER FOREIGN TABLE t OPTIONS (SET log_verbosity 'default');
CALL write_file('t', E'1,x,\n');
SELECT * FROM t;
CALL write_file('t', E'1,1,2001-01-01\n');
SELECT * FROM t;
ALTER FOREIGN TABLE t OPTIONS (SET log_verbosity 'verbose');
CALL write_file('t', E'1,"' || repeat('too long ', 20) || E'",\n2,"two\nlines",\n');
SELECT * FROM t;

-- reject_limit
CALL write_file('t', E'1,x,\n2,20,\n3,y,\n4,40,\n5,z,\n6,60,\n');
ALTER FOREIGN TABLE t OPTIONS (ADD reject_limit '3');
SELECT id FROM t;
ALTER FOREIGN TABLE t OPTIONS (SET reject_limit '2');
SELECT error_of('SELECT id FROM t');
SELECT id FROM t LIMIT 2;
ALTER FOREIGN TABLE t OPTIONS (SET reject_limit '1', SET log_verbosity 'silent');
SELECT error_of('SELECT count(*) FROM t');

-- set_null: the row stays. Only the bad value is NULL.
ALTER FOREIGN TABLE t OPTIONS (DROP reject_limit, SET on_error 'set_null', SET log_verbosity 'verbose');
CALL write_file('t', E'1,10,2001-01-01\n2,zwanzig,2001-02-02\ndrei,30,2001-03-03\n4,40,2001-13-04\n5,,\nsix,seven,eight\n');
SELECT * FROM t;
ALTER FOREIGN TABLE t OPTIONS (SET log_verbosity 'default');
SELECT id FROM t;
SELECT count(*), count(id), count(n), count(d) FROM t;
SELECT n, d FROM t WHERE id IS NULL;
CALL write_file('t', E'1,x,\n');
SELECT * FROM t;
ALTER FOREIGN TABLE t OPTIONS (SET log_verbosity 'silent');
SELECT * FROM t;

-- skip counts records, good or bad; limit counts rows.
ALTER FOREIGN TABLE t OPTIONS (SET on_error 'ignore', SET log_verbosity 'default', ADD "limit" '2', ADD skip '1');
CALL write_file('t', E'x,,\n1,x,\n2,20,\n3,y,\n4,40,\n5,z,\n6,60,\n');
SELECT id FROM t;
ALTER FOREIGN TABLE t OPTIONS (DROP "limit", DROP skip);

-- Other errors than bad values stop the scan.
CREATE FUNCTION stops(content text) RETURNS SETOF text LANGUAGE plpgsql SET client_min_messages = warning AS $$
DECLARE
	policy text;
	message text;
	messages text[];
BEGIN
	CALL write_file('t', content);
	FOREACH policy IN ARRAY ARRAY['ignore', 'set_null'] LOOP
		EXECUTE format('ALTER FOREIGN TABLE t OPTIONS (SET on_error %L)', policy);
		messages := ARRAY(SELECT error_of('SELECT id FROM t'));
		RETURN QUERY SELECT policy || ': ' || unnest(messages);
	END LOOP;
END $$;
\pset tuples_only
\pset format unaligned
SELECT stops(E'1,1,,\n');
SELECT stops(E'1,1\n');
SELECT stops(E'1,"1,\n');
SELECT stops(E'1,1,\r1\n');
SELECT error_of($$ALTER FOREIGN TABLE t OPTIONS (ADD reject_limit '1')$$);
-- In a row with both kinds of error, the first one in the file decides.
SELECT stops(E'x,1\n');
SELECT stops(E'x,1,2001-01-01,4\n');
CALL write_bytes('t', decode('312c782c0a322ce92c0a', 'hex'));
SELECT error_of('SELECT id FROM t');

-- Types with user-defined code: it runs in a subtransaction on servers without soft errors.
CREATE TABLE side_effects (n int);
CREATE FUNCTION small(n int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO side_effects VALUES (n);
	RETURN n < 10;
END $$;
CREATE DOMAIN small_int AS int CHECK (small(VALUE));
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TYPE pair AS (a int, b small_int);
CALL make_table('u', 'id int, s small_int, m mood, a int[], p pair, j jsonb', $$format 'csv', on_error 'ignore', log_verbosity 'verbose'$$,
	E'1,1,happy,"{1,2}","(1,2)","{}"\n2,11,sad,,,\n3,3,bad,,,\n4,4,sad,"{x}",,\n5,5,sad,,"(1,x)",\n6,6,sad,,"(1,12)",\n7,7,sad,,,{\n8,,,,,\n');
SELECT * FROM u;
SELECT n FROM side_effects WHERE n < 4 ORDER BY n;
ALTER FOREIGN TABLE u OPTIONS (SET on_error 'set_null');
SELECT * FROM u;
-- Errors that are not about the value stop the scan.
CREATE OR REPLACE FUNCTION small(n int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'never mind'; END $$;
SELECT e FROM error_of('SELECT id FROM u') e WHERE e !~ 'PL/pgSQL';

-- A domain that rejects NULL rejects a value that was set to NULL, and NULL itself.
CREATE DOMAIN required AS int NOT NULL CHECK (VALUE > 0);
CREATE DOMAIN required_by_check AS int CHECK (VALUE IS NOT NULL AND VALUE > 0);
CALL make_table('v', 'id int, r required', $$format 'csv', on_error 'set_null'$$, E'1,1\n2,x\n');
SELECT error_of('SELECT id FROM v');
CALL write_file('v', E'1,1\n2,-1\n');
SELECT error_of('SELECT id FROM v');
CALL write_file('v', E'1,1\n2,\n');
SELECT error_of('SELECT id FROM v');
ALTER FOREIGN TABLE v ALTER r TYPE required_by_check;
CALL write_file('v', E'1,1\n2,x\n');
SELECT error_of('SELECT id FROM v');
ALTER FOREIGN TABLE v OPTIONS (SET on_error 'ignore', ADD log_verbosity 'verbose');
CALL write_file('v', E'1,1\n2,\n3,x\n4,-1\n5,5\n');
SELECT id FROM v;

-- A rescan starts the counts at zero; many bad rows in one transaction; ANALYZE reports nothing.
CALL make_table('w', 'id int', $$on_error 'ignore'$$, E'1\nx\n2\ny\n');
SELECT g, (SELECT count(*) FROM w WHERE id <= g) FROM generate_series(1, 2) g;
DO $$
DECLARE
	many text := string_agg(CASE WHEN g % 2 = 0 THEN 'x' ELSE g::text END, E'\n' ORDER BY g) FROM generate_series(1, 20000) g;
BEGIN
	CALL write_file('w', many);
END $$;
SELECT count(*), sum(id) FROM w;
ALTER FOREIGN TABLE w ALTER id TYPE required;
SELECT count(*), sum(id) FROM w;
ANALYZE w;
SELECT reltuples FROM pg_class WHERE oid = 'w'::regclass;
CALL write_file('w', E'1\nx\n2\t3\n');
SELECT error_of('ANALYZE w');
ALTER FOREIGN TABLE w ADD COLUMN more int;
CALL write_file('w', E'1\t1\nx\t2\n2\n');
SELECT error_of('SELECT id FROM w');
SELECT error_of('ANALYZE w');

SET client_min_messages = warning;
DROP SCHEMA fdw_on_error CASCADE;
