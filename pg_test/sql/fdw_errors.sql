--
-- Errors in files. Each file is given to COPY, too. If SQLSTATE, MESSAGE, DETAIL, HINT and CONTEXT agree,
-- the error is shown once, with the line that names the file; else both are.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema fdw_errors
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CREATE SCHEMA foreigners;
CREATE TABLE t (a int, b text);
CREATE FUNCTION errors(options text, content bytea) RETURNS SETOF text LANGUAGE plpgsql
SET client_min_messages = warning AS $$
DECLARE
	ours text[];
	copys text[];
BEGIN
	CALL write_bytes('t', content);
	DROP FOREIGN TABLE IF EXISTS foreigners.t;
	EXECUTE format('CREATE FOREIGN TABLE foreigners.t (a int, b text) SERVER bulk_files OPTIONS (filename %L%s)',
		data_path('t'), ', ' || nullif(options, ''));
	ours := ARRAY(SELECT error_of('SELECT * FROM foreigners.t'));
	copys := ARRAY(SELECT error_of(format('COPY t FROM %L (%s)', data_path('t'), coalesce(nullif(options, ''), 'format text'))));
	RETURN QUERY SELECT unnest(ours);
	IF array_remove(ours, 'CONTEXT: file "PGB_DATA/t"') <> copys THEN
		RETURN QUERY SELECT 'COPY''s: ' || unnest(copys);
	END IF;
END $$;
CREATE FUNCTION errors(options text, content text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT errors(options, convert_to(content, 'UTF8'))
$$;

-- Line ends, and bytes that a line must not contain.
SELECT errors('', E'1\tone\n2\ttwo\rthree\n');
SELECT errors('', E'1\tone\r2\ttwo\nthree\r');
SELECT errors('', E'1\tone\r\n2\ttwo\n');
SELECT errors('', E'1\tone\r\n2\ttwo\r3\tthree\r\n');
SELECT errors($$format 'csv'$$, E'1,one\n2,two\r\n');
SELECT errors($$format 'csv'$$, E'1,one\r2,two\n3,three\r');
SELECT errors($$format 'csv'$$, E'1,one\r\n2,two\n');
SELECT errors($$format 'csv'$$, E'1,one\r\n2,"two\n"\r\n3,three\n');

-- The end-of-data marker.
SELECT errors('', E'1\tone\n\\.x\n');
SELECT errors('', E'1\tone\n\\.\r\n');
SELECT errors('', E'1\tone\r\n\\.\n');
SELECT errors('', E'1\tone\r\n\\.\r3\tthree\r\n');
SELECT errors($$format 'csv'$$, E'1,one\n\\.\r\n');

-- Quotes.
SELECT errors($$format 'csv'$$, E'1,one\n2,"two\n3,three\n');
SELECT errors($$format 'csv'$$, E'1,one\n2,tw"o');
SELECT errors($$format 'csv', quote '''', escape '\'$$, E'1,''it\\''s\n');

-- Wrong numbers of fields; also in the text format, and where the last line has no line end.
SELECT errors('', E'1\n');
SELECT errors('', E'1\tone\n\n');
SELECT errors('', E'1\tone\tand more');
SELECT errors($$format 'csv'$$, E'1,one\n\n2,two\n');
SELECT errors($$format 'csv'$$, E'x');
SELECT errors($$format 'csv', delimiter ';'$$, E'1,one\n');

-- Values, at the line at which their record begins or ends as COPY counts.
SELECT errors($$format 'csv'$$, E'1,one\nzwei,two\n');
SELECT errors($$format 'csv'$$, E'1,"one\nand\n"\nzwei,two\n');
SELECT errors($$format 'csv'$$, E'1,one\n"zw\nei",two\n');
SELECT errors($$format 'csv', header 'true'$$, E'"a\nb",b\n1,one\nzwei,two\n');
SELECT errors($$format 'csv'$$, E'99999999999,one\n');
SELECT errors($$format 'csv'$$, E'" ",one\n');
SELECT errors('', E'\\x\t\n');
SELECT errors('', E'\\\t\t\n');
-- Long values and lines are cut in the message, between characters.
SELECT errors('', rpad('x', 99, 'y') || E'z\tone\n');
SELECT errors('', rpad('x', 99, 'y') || E'é\tone\n');
SELECT errors('', rpad('x', 98, 'y') || E'éü\tone\n');
SELECT errors('', '1' || repeat(E'\tone and more', 12) || E'\n');

-- Invalid bytes: in lines, in values that the query does not need, after an escape; NUL.
SELECT errors('', decode('3109ff0a', 'hex'));
SELECT errors($$format 'csv'$$, decode('312c6f6e650a322ce9740a', 'hex'));
SELECT errors($$format 'csv'$$, decode('312c6f6e650a322cc3', 'hex'));
SELECT errors($$format 'csv'$$, decode('312ceda0800a', 'hex'));
SELECT errors($$format 'csv'$$, decode('312cf48fbfc00a', 'hex'));
SELECT errors($$format 'csv'$$, decode('312c61006200620a', 'hex'));
SELECT errors('', E'1\t\\xe9\n');
SELECT errors('', E'1\t\\000\n');
CALL write_bytes('t', decode('312ce90a', 'hex'));
SELECT error_of('SELECT a FROM foreigners.t');
SELECT error_of('SELECT count(*) FROM foreigners.t WHERE a > 5');
-- Other encodings: characters that cannot be converted, and an encoding without a conversion.
SELECT errors($$format 'csv', encoding 'sjis'$$, decode('312c8140eb0a', 'hex'));
SELECT errors($$format 'csv', encoding 'euc_jp'$$, decode('312ca1a10a322c8fff0a', 'hex'));
SELECT errors($$format 'csv', encoding 'win1252'$$, decode('312c810a', 'hex'));
SELECT errors($$format 'csv', encoding 'mule_internal'$$, E'1,one\n');
-- The client's encoding is the default, as with COPY.
SET client_encoding = 'latin1';
SELECT errors($$format 'csv'$$, decode('312ce90a', 'hex'));
RESET client_encoding;

-- Files that do not exist, and paths that are not files.
SELECT error_of($$CREATE FOREIGN TABLE foreigners.none (a int) SERVER bulk_files OPTIONS (filename '/no/such/file')$$);
SELECT error_of('SELECT * FROM foreigners.none');
SELECT error_of($$COPY t FROM '/no/such/file'$$);
SELECT plan_of('SELECT * FROM foreigners.none');
ALTER FOREIGN TABLE foreigners.none OPTIONS (SET filename '/proc/sys');
SELECT error_of('SELECT * FROM foreigners.none');
SELECT error_of($$COPY t FROM '/proc/sys'$$);
ALTER FOREIGN TABLE foreigners.none OPTIONS (SET filename '/dev/null/file');
SELECT error_of('SELECT * FROM foreigners.none');
SELECT error_of($$COPY t FROM '/dev/null/file'$$);
ALTER FOREIGN TABLE foreigners.none OPTIONS (SET filename '/dev/null');
SELECT count(*) FROM foreigners.none;
SELECT data_path('a "name" with %s') AS strange \gset
CALL write_file('a "name" with %s', 'x');
ALTER FOREIGN TABLE foreigners.none OPTIONS (SET filename :'strange');
SELECT error_of('SELECT * FROM foreigners.none');

-- Programs that fail: at once, after some rows, by a signal. A program that ends because the scan has stopped reading has not failed.
SELECT error_of($$CREATE FOREIGN TABLE foreigners.p (a int) SERVER bulk_files OPTIONS (program 'echo 1; exit 3')$$);
SELECT error_of('SELECT * FROM foreigners.p');
SELECT error_of($$COPY t (a) FROM PROGRAM 'echo 1; exit 3'$$);
SELECT error_of('SELECT a FROM foreigners.p LIMIT 1');
ALTER FOREIGN TABLE foreigners.p OPTIONS (SET program 'kill -9 $$');
SELECT error_of('SELECT * FROM foreigners.p');
SELECT error_of($c$COPY t (a) FROM PROGRAM 'kill -9 $$'$c$);
ALTER FOREIGN TABLE foreigners.p OPTIONS (SET program 'echo 1; echo x; echo 3');
SELECT error_of('SELECT * FROM foreigners.p');
ALTER FOREIGN TABLE foreigners.p OPTIONS (SET program 'yes 1');
SELECT a FROM foreigners.p LIMIT 2;

-- The next statement works, in the same transaction.
BEGIN;
SELECT errors($$format 'csv'$$, E'x,one\n');
SELECT errors($$format 'csv'$$, E'1,one\n');
SELECT * FROM foreigners.t;
COMMIT;

SET client_min_messages = warning;
DROP SCHEMA foreigners, fdw_errors CASCADE;
