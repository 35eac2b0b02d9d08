--
-- Options of bulk_fdw: which object takes which, and COPY's rules about their values. No file is opened.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema fdw_options
\i :helpers
\pset format unaligned
\pset tuples_only
\set ECHO all
CREATE FUNCTION refused(options text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT error_of('CREATE FOREIGN TABLE refused (a int, "B" text) SERVER bulk_files OPTIONS (' || options || ')')
$$;

-- Only foreign tables, their columns and servers (directory) take options.
CREATE FOREIGN DATA WRAPPER w VALIDATOR bulk_fdw_validator OPTIONS (filename 'f');			-- ERROR
ALTER FOREIGN DATA WRAPPER bulk_fdw OPTIONS (format 'csv');				-- ERROR
CREATE SERVER s FOREIGN DATA WRAPPER bulk_fdw OPTIONS (format 'csv');	-- ERROR
CREATE SERVER s FOREIGN DATA WRAPPER bulk_fdw;
ALTER SERVER s OPTIONS (ADD filename 'f');								-- ERROR
CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (user 'u');		-- ERROR
CREATE USER MAPPING FOR CURRENT_USER SERVER s;
ALTER USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (ADD force_null 'true');	-- ERROR
CREATE FOREIGN TABLE t (a int OPTIONS (filename 'f')) SERVER s OPTIONS (filename 'f');		-- ERROR
CREATE FOREIGN TABLE t (a int OPTIONS (null 'NA')) SERVER s OPTIONS (filename 'f');			-- ERROR
DROP SERVER s CASCADE;
SELECT * FROM bulk_fdw_validator('{}', 'pg_foreign_table'::regclass);	-- ERROR
SELECT * FROM bulk_fdw_validator('{filename=f,"null=a=b"}', 'pg_foreign_table'::regclass);

-- Exactly one of filename and program.
CREATE FOREIGN TABLE t (a int) SERVER bulk_files;						-- ERROR
CREATE FOREIGN TABLE t (a int) SERVER bulk_files OPTIONS (format 'csv');	-- ERROR
CREATE FOREIGN TABLE t (a int) SERVER bulk_files OPTIONS (filename 'f', program 'p');	-- ERROR
CREATE FOREIGN TABLE t (a int) SERVER bulk_files OPTIONS (program 'p', filename 'f');	-- ERROR
CREATE FOREIGN TABLE t (a int) SERVER bulk_files OPTIONS (filename 'f', filename 'f');	-- ERROR

-- The hint names the option that is most similar.
SELECT refused($$filename 'f', delimeter ','$$);
SELECT refused($$filenam 'f'$$);
SELECT refused($$filename 'f', on_eror 'ignore'$$);
SELECT refused($$filename 'f', "Header" 'true'$$);
SELECT refused($$filename 'f', freeze 'true'$$);
SELECT refused($$filename 'f', force_quote '*'$$);
CREATE FOREIGN TABLE t (a int OPTIONS (force_nul 'true')) SERVER bulk_files OPTIONS (filename 'f');	-- ERROR

-- format
SELECT refused($$filename 'f', format 'binary', delimiter ','$$);
SELECT refused($$filename 'f', format 'xml'$$);
SELECT refused($$filename 'f', format 'CSV'$$);
SELECT refused($$filename 'f', format ''$$);

-- header
SELECT refused($$filename 'f', header '-1'$$);
SELECT refused($$filename 'f', header '1.5'$$);
SELECT refused($$filename 'f', header 'yes'$$);
SELECT refused($$filename 'f', header ''$$);
SELECT refused($$filename 'f', header '99999999999999999999'$$);

-- delimiter
SELECT refused($$filename 'f', delimiter ''$$);
SELECT refused($$filename 'f', delimiter '|-------éé-----|'$$);
SELECT refused($$filename 'f', delimiter E'\n'$$);
SELECT refused($$filename 'f', format 'csv', delimiter E'\r'$$);
SELECT refused($$filename 'f', format 'csv', delimiter '"'$$);
SELECT refused($$filename 'f', format 'csv', delimiter '''', quote ''''$$);
SELECT refused($$filename 'f', delimiter '\'$$);
SELECT refused($$filename 'f', delimiter '.'$$);
SELECT string_agg(c, '' ORDER BY ascii(c)) AS refused_in_text
FROM (SELECT chr(n) AS c FROM generate_series(32, 126) n) printable,
	error_of(format($$SELECT bulk_fdw_validator(ARRAY['filename=f', 'null=', 'delimiter=' || %L], 'pg_foreign_table'::regclass)$$,
		c)) message
WHERE message = format('22023: COPY delimiter cannot be "%s"', c);

-- quote, escape
SELECT refused($$filename 'f', quote '"'$$);
SELECT refused($$filename 'f', escape '\'$$);
SELECT refused($$filename 'f', format 'csv', quote ''$$);
SELECT refused($$filename 'f', format 'csv', quote '""'$$);
SELECT refused($$filename 'f', format 'csv', quote 'é'$$);
SELECT refused($$filename 'f', format 'csv', escape ''$$);
SELECT refused($$filename 'f', format 'csv', escape '\\'$$);

-- null, default
SELECT refused($$filename 'f', null E'a\nb'$$);
SELECT refused($$filename 'f', null E'a\rb'$$);
SELECT refused($$filename 'f', null E'a\tb'$$);
SELECT refused($$filename 'f', format 'csv', null 'a,b'$$);
SELECT refused($$filename 'f', format 'csv', null '"'$$);
SELECT refused($$filename 'f', default E'a\nb'$$);
SELECT refused($$filename 'f', default E'a\rb'$$);
SELECT refused($$filename 'f', default E'a\tb'$$);
SELECT refused($$filename 'f', format 'csv', default 'a,b'$$);
SELECT refused($$filename 'f', format 'csv', default '"'$$);
SELECT refused($$filename 'f', format 'csv', default ''$$);
SELECT refused($$filename 'f', default '\N'$$);
SELECT refused($$filename 'f', null 'x', default 'x'$$);

-- encoding
SELECT refused($$filename 'f', encoding 'klingon'$$);
SELECT refused($$filename 'f', encoding ''$$);

-- force_not_null, force_null: a Boolean for a column, names or * for a table
SELECT refused($$filename 'f', force_not_null '*'$$);
SELECT refused($$filename 'f', force_null 'a'$$);
SELECT refused($$filename 'f', format 'csv', force_not_null ''$$);
SELECT refused($$filename 'f', format 'csv', force_null 'a,,b'$$);
SELECT refused($$filename 'f', format 'csv', force_null '"a'$$);
CREATE FOREIGN TABLE t (a int OPTIONS (force_not_null '*')) SERVER bulk_files OPTIONS (filename 'f', format 'csv');	-- ERROR
CREATE FOREIGN TABLE t (a int OPTIONS (force_null 'maybe')) SERVER bulk_files OPTIONS (filename 'f', format 'csv');	-- ERROR
CREATE FOREIGN TABLE t (a int OPTIONS (force_null 'true', force_null 'true')) SERVER bulk_files OPTIONS (filename 'f');	-- ERROR

-- The columns' options, and names in lists, are checked when the table is read.
CALL make_table('late', 'a int, "B" text OPTIONS (force_not_null ''true'')', '', '');
SELECT error_of('SELECT * FROM late');
ALTER FOREIGN TABLE late ALTER "B" OPTIONS (DROP force_not_null, ADD force_null 'on');
SELECT error_of('SELECT * FROM late');
ALTER FOREIGN TABLE late ALTER "B" OPTIONS (SET force_null 'off');
SELECT error_of('SELECT * FROM late');
ALTER FOREIGN TABLE late OPTIONS (ADD format 'csv', ADD force_null 'a, B');
SELECT error_of('SELECT * FROM late');
ALTER FOREIGN TABLE late OPTIONS (SET force_null 'a,"B"', ADD force_not_null 'c');
SELECT error_of('SELECT * FROM late');

-- on_error, reject_limit, log_verbosity
SELECT refused($$filename 'f', on_error 'skip'$$);
SELECT refused($$filename 'f', log_verbosity 'loud'$$);
SELECT refused($$filename 'f', reject_limit '1'$$);
SELECT refused($$filename 'f', on_error 'set_null', reject_limit '1'$$);
SELECT refused($$filename 'f', on_error 'ignore', reject_limit '0'$$);
SELECT refused($$filename 'f', on_error 'ignore', reject_limit '-1'$$);
SELECT refused($$filename 'f', on_error 'ignore', reject_limit 'many'$$);

-- skip, limit
SELECT refused($$filename 'f', skip '-1'$$);
SELECT refused($$filename 'f', skip 'all'$$);
SELECT refused($$filename 'f', "limit" '-1'$$);
SELECT refused($$filename 'f', "limit" '1.5'$$);
SELECT refused($$filename 'f', "limit" ''$$);

-- All that is accepted. Values of enumerations are read without regard to case, as COPY does.
CREATE FOREIGN TABLE accepted (a int OPTIONS (force_not_null '1', force_null '0'), b text OPTIONS (force_null 'FALSE'))
SERVER bulk_files OPTIONS (filename '/no/such', format 'csv', header 'Match', delimiter '|', quote '''', escape '\',
	null 'NULL', default '\D', encoding 'latin1', force_not_null 'a', force_null '*', on_error 'IGNORE',
	reject_limit '9223372036854775807', log_verbosity 'Silent', skip '0', "limit" '0');
SELECT a.attname, unnest(a.attfdwoptions) FROM pg_attribute a WHERE attrelid = 'accepted'::regclass AND attfdwoptions <> '{}';
SELECT option_name, option_value FROM information_schema.foreign_table_options
WHERE foreign_table_name = 'accepted' ORDER BY option_name COLLATE "C";
ALTER FOREIGN TABLE accepted OPTIONS (SET header 'ON', SET on_error 'Set_Null', DROP reject_limit, SET log_verbosity 'Verbose');
ALTER FOREIGN TABLE accepted OPTIONS (SET header '0', SET on_error 'stop', SET log_verbosity 'default');
ALTER FOREIGN TABLE accepted OPTIONS (ADD reject_limit '3');			-- ERROR
ALTER FOREIGN TABLE accepted OPTIONS (DROP filename);					-- ERROR
ALTER FOREIGN TABLE accepted OPTIONS (DROP filename, ADD program 'false');
ALTER FOREIGN TABLE accepted OPTIONS (ADD filename 'f');				-- ERROR

SET client_min_messages = warning;
DROP SCHEMA fdw_options CASCADE;
