--
-- Types without a native decoder use their input functions: domains, enums, arrays, composites, jsonb, types
-- with typmods. COPY reads the same file into an ordinary table with these columns, and the two must agree.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema fdw_types
\i :helpers
\set ECHO all
\pset null '(null)'
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (n int, t text);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN required AS text NOT NULL CHECK (VALUE <> 'bad');
CREATE DOMAIN small AS positive CONSTRAINT less_than_ten CHECK (VALUE < 10);
CREATE DOMAIN not_null_by_check AS int CHECK (VALUE IS NOT NULL);
CREATE FUNCTION is_even(n int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF n > 1000 THEN RAISE 'too large to say' USING ERRCODE = 'numeric_value_out_of_range'; END IF;
	RETURN n % 2 = 0;
END $$;
CREATE DOMAIN even AS int CHECK (is_even(VALUE));

CALL make_table('t', 'm mood, a int[], c pair, j jsonb, p positive, r required, s small, e even, v varchar(3), n numeric(4, 1), r2 int4range',
	$$format 'csv', null '\N'$$,
	E'happy,"{1,2,NULL}","(7,""seven, 7"")","{""k"": [1, null]}",1,,9,2,abc,12.34,"[1,5)"\n'
	'\\N,\\N,\\N,\\N,\\N,x,\\N,\\N,\\N,\\N,\\N\n'
	'sad,{},"(,)",null,2147483647,y y,1,1000,"ab     ",999.94,empty\n');
SELECT m, a, c, j, p, r FROM t;
SELECT s, e, v, n, r2 FROM t;
CREATE TABLE copied (LIKE t);
SELECT data_path('t') AS file \gset
COPY copied FROM :'file' (FORMAT csv, NULL '\N');
(TABLE t EXCEPT ALL TABLE copied) UNION ALL (TABLE copied EXCEPT ALL TABLE t);
SELECT max(m), (array_agg(c ORDER BY m))[1] AS saddest FROM t WHERE a IS DISTINCT FROM '{}';

-- Equal mistakes give equal errors. Errors that differ from COPY's are shown.
CREATE FUNCTION complaints(wrong text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	ours text[];
	copys text[];
BEGIN
	CALL write_file('t', wrong || E'\n');
	ours := ARRAY(SELECT replace(e, 'COPY t,', 'COPY copied,') FROM error_of('SELECT * FROM t') e WHERE e !~ '^CONTEXT: file ');
	copys := ARRAY(SELECT error_of(format($c$COPY copied FROM %L (FORMAT csv, NULL '\N')$c$, data_path('t'))));
	IF ours = copys THEN
		RETURN QUERY SELECT unnest(ours);
	ELSE
		RETURN QUERY SELECT 'ours: ' || unnest(ours) UNION ALL SELECT 'COPY''s: ' || unnest(copys);
	END IF;
END $$;
\pset tuples_only
\pset format unaligned
SELECT complaints('angry,\N,\N,\N,\N,x,\N,\N,\N,\N,\N');
SELECT complaints('ok,"{1,",\N,\N,\N,x,\N,\N,\N,\N,\N');
SELECT complaints('ok,"{1,x}",\N,\N,\N,x,\N,\N,\N,\N,\N');
SELECT complaints('ok,\N,"(1)",\N,\N,x,\N,\N,\N,\N,\N');
SELECT complaints('ok,\N,"(x,1)",\N,\N,x,\N,\N,\N,\N,\N');
SELECT complaints('ok,\N,\N,{,\N,x,\N,\N,\N,\N,\N');
SELECT complaints('ok,\N,\N,\N,0,x,\N,\N,\N,\N,\N');
SELECT complaints('ok,\N,\N,\N,zero,x,\N,\N,\N,\N,\N');
SELECT complaints('ok,\N,\N,\N,1,\N,\N,\N,\N,\N,\N');
SELECT complaints('ok,\N,\N,\N,1,bad,\N,\N,\N,\N,\N');
SELECT complaints('ok,\N,\N,\N,1,x,10,\N,\N,\N,\N');
SELECT complaints('ok,\N,\N,\N,1,x,-1,\N,\N,\N,\N');
SELECT complaints('ok,\N,\N,\N,1,x,1,3,\N,\N,\N');
SELECT complaints('ok,\N,\N,\N,1,x,1,1002,\N,\N,\N');
SELECT complaints('ok,\N,\N,\N,1,x,1,2,abcd,\N,\N');
SELECT complaints('ok,\N,\N,\N,1,x,1,2,abc,1000,\N');
SELECT complaints('ok,\N,\N,\N,1,x,1,2,abc,1,"[5,1)"');
-- The error names the first bad value in the order of the file, whether it has a native decoder or not.
SELECT complaints('ok,\N,\N,\N,1,x,1,zwei,abc,x,"[5,1)"');
SELECT complaints('angry,\N,\N,\N,x,\N,1,2,abc,x,"[5,1)"');
SELECT complaints('ok,\N,\N,\N,1,x,1,2,abc,x');
SELECT complaints('ok,\N,\N,\N,1,x,1,2,abc,1');

-- The constraint and the type in an error are kept.
CREATE FUNCTION culprit(wrong text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	c text; s text; d text; t text;
BEGIN
	CALL write_file('t', wrong || E'\n');
	PERFORM * FROM t;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS c = CONSTRAINT_NAME, s = SCHEMA_NAME, d = PG_DATATYPE_NAME, t = TABLE_NAME;
	RETURN format('%s: constraint "%s", schema "%s", type "%s", table "%s"', SQLSTATE, c, s, d, t);
END $$;
SELECT culprit('ok,\N,\N,\N,1,x,10,\N,\N,\N,\N');
SELECT culprit('ok,\N,\N,\N,1,x,-1,\N,\N,\N,\N');
SELECT culprit('ok,\N,\N,\N,1,\N,1,\N,\N,\N,\N');

-- NULL fields are checked by the domain as well, if the query needs the column.
CALL make_table('n', 'a not_null_by_check, b required, c int NOT NULL', $$format 'csv'$$, E'1,x,\n,,3\n');
SELECT c FROM n;
SELECT error_of('SELECT a FROM n');
SELECT error_of('SELECT b FROM n');
SELECT error_of('SELECT c FROM n WHERE a = 1');
-- The planner relies on a column's NOT NULL, as with every foreign table; the scan does not check it.
SELECT a, c FROM n LIMIT 1;
-- A kept plan applies the domain's present checks.
PREPARE p AS SELECT p FROM t;
CALL write_file('t', E'ok,\\N,\\N,\\N,5,x,1,2,abc,1,empty\n');
EXECUTE p;
ALTER DOMAIN positive ADD CONSTRAINT not_five CHECK (VALUE <> 5) NOT VALID;
SELECT error_of('EXECUTE p');

-- A zero before other digits of an oid means that they are octal, from 16 on.
CALL make_table('o', 'o oid', $$format 'csv'$$, E'0071\n71\n0\n');
SELECT array_agg(o) = ARRAY['0071', '71', '0']::oid[] FROM o;
SET client_min_messages = warning;
DROP SCHEMA fdw_types CASCADE;
