--
-- Option filter of foreign tables: a function creates the rows from the records. The
-- oracle is the server's own call of the function, for each row of a table of the fields.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema fdw_filter
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
-- The function may return the table's row type, so it need not exist when the table is created; its name is resolved then.
CREATE FUNCTION created(options text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT error_of(format('CALL make_table(''t'', ''id int, name text, twice bigint'', %L, E''1\ta\t10\n2\tb\t20\n3\t\\N\t30\n4\td\n'')', options))
$$;
SELECT f, created(format('filter %L', f)) FROM unnest('{"",f,f(int),fdw_filter.f,fdw_filter.f(int,fdw_filter.f(int) x,"\"a.b\"(int)","\"a(b\".f"}'::text[]) f;
SELECT created($$filter 'fdw_filter.made(int, text, numeric)', format 'fixed'$$);
SELECT created($$filter 'fdw_filter.made(int, text, numeric)', match_by 'name', header 'true'$$);
SELECT error_of($$ALTER SERVER bulk_files OPTIONS (ADD filter 'a.b()')$$);
SELECT created($$filter 'fdw_filter.made(int, text, numeric)'$$);
SELECT error_of('SELECT * FROM t');
SELECT plan_of('SELECT * FROM t');
CREATE FUNCTION made(id int, name text, n numeric DEFAULT 7) RETURNS t LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	IF id = 2 THEN RETURN NULL; END IF;
	RETURN (id, upper(name), (n * 2)::bigint);
END $$;
SELECT * FROM t;
SELECT twice FROM t;
SELECT count(*), sum(id), min(name), count(name) FROM t;
SELECT count(*) FROM t WHERE twice > 14;
SELECT t, tableoid::regclass FROM t WHERE name IS NULL;
SELECT 1 FROM t;
SELECT plan_of('SELECT name FROM t WHERE id > 1', 'COSTS OFF, VERBOSE');
SELECT plan_of('SELECT count(*) FROM t');
SELECT plan_of('SELECT name FROM t', 'ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, VERBOSE');
-- An SQL function, whose body is inlined; with a condition.
CREATE FUNCTION made_sql(id int, name text, n numeric DEFAULT 7) RETURNS t LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT id, upper(name), n * 2 WHERE id <> 2 $$;
CREATE FUNCTION strict_columns(id int, name text, n numeric DEFAULT 7, OUT int, OUT text, OUT bigint) LANGUAGE sql STRICT IMMUTABLE AS $$ SELECT id, name, n $$;
ALTER FOREIGN TABLE t OPTIONS (SET filter 'fdw_filter.made_sql(int, text, numeric)');
SELECT * FROM t;
ALTER FOREIGN TABLE t OPTIONS (SET filter 'fdw_filter.strict_columns(int, text, numeric)');
SELECT * FROM t;
-- A rescan; a cursor; skip and limit, which counts rows.
SELECT a, (SELECT string_agg(id::text, ',') FROM t WHERE id > a) FROM generate_series(0, 3) a;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM t;
FETCH 2 FROM c;
FETCH 2 FROM c;
COMMIT;
ALTER FOREIGN TABLE t OPTIONS (SET filter 'fdw_filter.made(int, text, numeric)', ADD limit '2');
SELECT id FROM t;
SELECT count(*) FROM t;
ALTER FOREIGN TABLE t OPTIONS (ADD skip '1');
SELECT id FROM t;
ALTER FOREIGN TABLE t OPTIONS (DROP skip, DROP limit, ADD sorted_by 'id');
SELECT plan_of('SELECT id FROM t ORDER BY id');
SELECT id FROM t ORDER BY id;
ALTER FOREIGN TABLE t OPTIONS (DROP sorted_by);
-- INSERT … SELECT and CREATE TABLE AS, which the server itself runs.
CREATE TABLE target (id int, name text, twice bigint);
SELECT plan_of('INSERT INTO target SELECT * FROM t', 'COSTS OFF, VERBOSE');
INSERT INTO target SELECT * FROM t;
TABLE target;
CREATE TABLE copied AS SELECT * FROM t;
TABLE copied;
-- If the table's row type is the only argument, its columns are the fields.
CALL make_table('own', 'id int, gone int, name text, twice bigint', 'filter ''fdw_filter.own_row(fdw_filter.own)''', E'1\ta\t10\n2\tb\t20\n3\t\\N\t30\n');
ALTER FOREIGN TABLE own DROP gone;
CREATE FUNCTION own_row(r own) RETURNS own LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	IF r.id = 2 THEN RETURN NULL; END IF;
	r.name := upper(r.name);
	r.twice := r.twice * 2;
	RETURN r;
END $$;
CREATE FUNCTION own_sql(r own) RETURNS own LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT r.id, upper(r.name), r.twice * 2 WHERE r.id <> 2 $$;
CREATE FUNCTION own_whole(r own) RETURNS own LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT r WHERE r.id <> 2 $$;
SELECT * FROM own;
SELECT count(*), sum(twice), count(name) FROM own WHERE id < 3;
ALTER FOREIGN TABLE own OPTIONS (SET filter 'fdw_filter.own_sql(fdw_filter.own)');
SELECT own FROM own;
ALTER FOREIGN TABLE own OPTIONS (SET filter 'fdw_filter.own_whole(fdw_filter.own)');
SELECT name, twice FROM own;
INSERT INTO target SELECT * FROM own;
SELECT count(*) FROM target;
-- Beside other arguments it is an ordinary argument, whose field is a text.
CREATE FUNCTION own_and_more(r own, n int DEFAULT 1) RETURNS own LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT r WHERE n > 0 $$;
ALTER FOREIGN TABLE own OPTIONS (SET filter 'fdw_filter.own_and_more(fdw_filter.own, int)');
CALL write_file('own', E'(1,x,2)\n(2,y,)\t0\n(3,,4)\t1\n');
SELECT * FROM own;
ALTER FOREIGN TABLE own OPTIONS (SET filter 'fdw_filter.own_whole(fdw_filter.own)');
CALL write_file('own', E'1\ta\n');
SELECT error_of('SELECT * FROM own');
-- The table's columns have no fields.
ALTER FOREIGN TABLE t ALTER name OPTIONS (force_null 'true');
SELECT error_of('SELECT * FROM t');
ALTER FOREIGN TABLE t ALTER name OPTIONS (DROP force_null);
-- Errors in a field, and in the row that the function returns.
CREATE FUNCTION picky(id int, name text, n numeric DEFAULT 0, OUT id_ int, OUT name_ varchar, OUT twice_ int) LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF id = 3 THEN RAISE EXCEPTION 'not 3' USING HINT = 'Try 4.'; END IF;
	id_ := id; name_ := name; twice_ := n;
END $$;
ALTER FOREIGN TABLE t OPTIONS (SET filter 'fdw_filter.picky(int, text, numeric)');
SELECT error_of('SELECT * FROM t');
SELECT error_of('SELECT count(*) FROM t');
ALTER FOREIGN TABLE t OPTIONS (ADD on_error 'ignore', ADD log_verbosity 'verbose');
SELECT * FROM t;
SELECT count(*) FROM t;
ALTER FOREIGN TABLE t OPTIONS (ADD reject_limit '1');
SELECT count(*) FROM t;
CALL write_file('t', E'1\ta\tx\n2\tb\t20\n3\tc\t30\n');
SELECT error_of('SELECT * FROM t');
ALTER FOREIGN TABLE t OPTIONS (DROP reject_limit, SET on_error 'set_null');
SELECT error_of('SELECT * FROM t');
ALTER FOREIGN TABLE t OPTIONS (DROP on_error);
SELECT error_of('SELECT name FROM t');
CALL write_file('t', E'1\n');
SELECT error_of('SELECT name FROM t');
CALL write_file('t', E'1\ta\t1\t2\n');
SELECT error_of('SELECT name FROM t');
-- Functions that cannot be a table's filter.
CREATE FUNCTION one(id int) RETURNS int LANGUAGE sql AS $$ SELECT id $$;
CREATE FUNCTION two(id int, OUT int, OUT int) LANGUAGE sql AS $$ SELECT id, id $$;
CREATE FUNCTION others(id int, OUT int, OUT text, OUT bool) LANGUAGE sql AS $$ SELECT id, ''::text, true $$;
CREATE FUNCTION set_of(id int) RETURNS SETOF t LANGUAGE sql AS $$ SELECT 1, 'a', 1 $$;
CREATE FUNCTION filtered_by(name text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('ALTER FOREIGN TABLE t OPTIONS (SET filter %L)', name);
	RETURN QUERY SELECT error_of('SELECT * FROM t');
END $$;
SELECT f, filtered_by(f) FROM unnest('{fdw_filter.one(int),fdw_filter.two(int),fdw_filter.others(int),fdw_filter.set_of(int),fdw_filter.nobody(),fdw_filter.made(nothing),pg_catalog.max(int)}'::text[]) f;
SELECT line ~ 'nowhere.* does not exist' FROM filtered_by('nowhere.made(int)') line;
-- Kept plans are invalidated when the function is replaced or dropped. The search path of the session has no effect.
CALL write_file('t', E'1\ta\t10\n2\tb\t20\n');
ALTER FOREIGN TABLE t OPTIONS (SET filter 'fdw_filter.made(int, text, numeric)');
SET plan_cache_mode = force_generic_plan;
PREPARE kept AS SELECT * FROM t;
EXECUTE kept;
CREATE OR REPLACE FUNCTION made(id int, name text, n numeric DEFAULT 7) RETURNS t LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN RETURN (id, lower('AGAIN'), n::bigint); END $$;
EXECUTE kept;
CREATE SCHEMA elsewhere;
CREATE DOMAIN elsewhere.text AS int;
SET search_path = elsewhere, fdw_filter, pg_catalog;
EXECUTE kept;
SET search_path = fdw_filter, public;
BEGIN;
DROP FUNCTION made;
SELECT error_of('EXECUTE kept');
ROLLBACK;
EXECUTE kept;
DEALLOCATE kept;
RESET plan_cache_mode;
-- Privileges: as in a view, the current user calls the function and needs EXECUTE
-- on it, but no privilege on its schema. The owner's privileges do not count.
SET client_min_messages = warning;
CREATE ROLE filter_reader;
CREATE ROLE filter_viewer;
RESET client_min_messages;
GRANT USAGE ON SCHEMA fdw_filter TO filter_reader, filter_viewer;
CREATE SCHEMA hidden;
CREATE FUNCTION hidden.whoami(id int, name text, n numeric, OUT int, OUT text, OUT bigint) LANGUAGE plpgsql STABLE AS $$ BEGIN $4 := id; $5 := lower(current_user); END $$;
REVOKE EXECUTE ON FUNCTION hidden.whoami FROM PUBLIC;
ALTER FOREIGN TABLE t OPTIONS (SET filter 'hidden.whoami(int, text, numeric)');
GRANT SELECT ON t TO filter_viewer, filter_reader;
CREATE VIEW v AS SELECT *, current_user AS outside FROM t;
ALTER VIEW v OWNER TO filter_viewer;
GRANT SELECT ON v TO filter_reader;
CREATE FUNCTION definer() RETURNS text LANGUAGE sql SECURITY DEFINER AS $$ SELECT string_agg(name, ',') FROM fdw_filter.t $$;
ALTER FUNCTION definer OWNER TO filter_viewer;
GRANT EXECUTE ON FUNCTION hidden.whoami TO filter_viewer;
SET ROLE filter_reader;
SELECT error_of('SELECT name FROM t');
SELECT error_of('SELECT name FROM v');
SELECT definer();
RESET ROLE;
GRANT EXECUTE ON FUNCTION hidden.whoami TO filter_reader;
SET ROLE filter_reader;
SELECT name, outside FROM v;
SELECT definer();
SELECT current_user;
-- Names in its body are resolved in the reader's session, and run as the reader.
CREATE FUNCTION pg_temp.whom(text) RETURNS text LANGUAGE sql AS $$ SELECT 'by ' || current_user $$;
RESET ROLE;
CREATE OR REPLACE FUNCTION hidden.whoami(id int, name text, n numeric, OUT int, OUT text, OUT bigint) LANGUAGE plpgsql STABLE AS $$ BEGIN $4 := id; $5 := pg_temp.whom(name); END $$;
SET ROLE filter_reader;
SELECT name FROM v;
RESET ROLE;
-- A session's own function in pg_temp cannot be a table's filter.
CREATE FUNCTION pg_temp.own(id int, OUT int, OUT text, OUT bigint) LANGUAGE sql AS $$ SELECT 1, 'a', 2::bigint $$;
ALTER FOREIGN TABLE t OPTIONS (SET filter 'pg_temp.own(int)');
SELECT regexp_replace(line, 'pg_temp_\d+', 'pg_temp_N') FROM error_of('SELECT * FROM t') line;
SELECT plan_of('SELECT * FROM t');
-- ANALYZE calls it, and the defaults of its arguments, as the table's owner, also when another role analyzes the parent table.
CREATE TABLE seen (who text, owner text);
GRANT INSERT ON seen TO PUBLIC;
CREATE FUNCTION telling() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO fdw_filter.seen VALUES ('default: ' || current_user, session_user); RETURN 1; END $$;
CREATE FUNCTION told(id int, name text, n numeric, also int DEFAULT fdw_filter.telling(), OUT id_ int, OUT name_ text, OUT twice bigint) LANGUAGE plpgsql AS $$ BEGIN INSERT INTO fdw_filter.seen VALUES (current_user, session_user); id_ := id; END $$;
ALTER FOREIGN TABLE t OPTIONS (SET filter 'fdw_filter.told(int, text, numeric, int)');
CREATE TABLE parent (id int, name text, twice bigint);
ALTER FOREIGN TABLE t INHERIT parent;
INSERT INTO parent SELECT i FROM generate_series(1, 10) i;
GRANT pg_read_server_files TO filter_viewer;
ALTER FOREIGN TABLE t OWNER TO filter_viewer;
ANALYZE parent;
SELECT DISTINCT who FROM seen ORDER BY 1;
ALTER FOREIGN TABLE t NO INHERIT parent;
RESET ROLE;
ALTER FOREIGN TABLE t OWNER TO CURRENT_USER;
GRANT SELECT ON t TO filter_viewer, filter_reader;
-- A query that calls a parallel-unsafe filter has no workers.
CREATE TABLE big AS SELECT i AS id FROM generate_series(1, 1000) i;
ANALYZE big;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT plan_of('SELECT count(*) FROM big');
SELECT plan_of('SELECT count(*) FROM t JOIN big USING (id)');
SELECT count(*) FROM t JOIN big USING (id);
ALTER FUNCTION told PARALLEL RESTRICTED;
SELECT plan_of('SELECT count(*) FROM t JOIN big USING (id)');
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
-- One scan uses one function, even if this function's body meanwhile gives the name to another one.
CREATE DOMAIN ty AS text;
CREATE FUNCTION swap() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	IF to_regtype('fdw_filter.ty0') IS NULL THEN
		ALTER FUNCTION swapped(ty) RENAME TO swapped_before;
		ALTER DOMAIN ty RENAME TO ty0;
		CREATE DOMAIN ty AS bigint;
		EXECUTE 'CREATE FUNCTION swapped(ty) RETURNS t LANGUAGE sql AS $f$ SELECT 1, ''other''::text, 1::bigint $f$';
	END IF;
	RETURN 1;
END $$;
CREATE FUNCTION calls() RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN swap(); END $$;
CREATE FUNCTION swapped(ty) RETURNS t LANGUAGE sql AS $$ SELECT calls(), $1::text, 1::bigint $$;
CALL write_file('t', E'4096
');
ALTER FOREIGN TABLE t OPTIONS (SET filter 'fdw_filter.swapped(fdw_filter.ty)');
SELECT error_of('SELECT max(name) FROM t');
SELECT name FROM t;
SELECT name FROM t;
CALL write_file('t', E'1\ta\t10\n2\tb\t20\n');
-- An error, whether survived or not, leaves no state behind.
CREATE FUNCTION fails(id int, name text, n numeric, OUT int, OUT text, OUT bigint) LANGUAGE plpgsql STABLE AS $$ BEGIN $5 := current_user; $4 := 1 / (id - 1); END $$;
ALTER FOREIGN TABLE t OPTIONS (SET filter 'fdw_filter.fails(int, text, numeric)', ADD on_error 'ignore', SET log_verbosity 'silent');
SET ROLE filter_reader;
SELECT name, outside FROM v;
RESET ROLE;
ALTER FOREIGN TABLE t OPTIONS (DROP on_error);
SET ROLE filter_reader;
SELECT error_of('SELECT name FROM v');
SELECT current_user;
RESET ROLE;
-- Many rows, by several processes if the function is parallel safe; samples and estimates.
COPY (SELECT i, i % 97 FROM generate_series(1, 30000) i) TO PROGRAM 'cat >filter_many.csv' (FORMAT csv);
CREATE FOREIGN TABLE many (id int, word text) SERVER bulk_files OPTIONS (filename 'filter_many.csv', format 'csv', encoding 'UTF8', filter 'fdw_filter.odd(int, int)');
CREATE FUNCTION odd(id int, n int) RETURNS many LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN IF id % 2 = 0 THEN RETURN NULL; END IF; RETURN (id, 'w' || n); END $$;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET pg_bulk.chunk_size = '16kB';
SELECT plan_of('SELECT count(*), sum(id), count(word) FROM many');
SELECT count(*), sum(id), count(DISTINCT word) FROM many;
SELECT count(*) FROM many WHERE word = 'w13';
SET plan_cache_mode = force_generic_plan;
PREPARE counted AS SELECT count(*), sum(id) FROM many;
SELECT plan_of('EXECUTE counted');
ALTER FUNCTION odd PARALLEL RESTRICTED;
SELECT plan_of('EXECUTE counted');
EXECUTE counted;
RESET plan_cache_mode;
SELECT count(*), sum(id) FROM many;
RESET parallel_setup_cost;
ANALYZE many;
SELECT rows_expected('SELECT * FROM many') BETWEEN 14900 AND 15100, rows_expected('SELECT * FROM many WHERE id < 3000') BETWEEN 1200 AND 1800;
SELECT reltuples FROM pg_class WHERE oid = 'many'::regclass;
SELECT attname, n_distinct FROM pg_stats WHERE tablename = 'many' AND attname = 'word';
CREATE OR REPLACE FUNCTION odd(id int, n int) RETURNS many LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN RETURN (1 / (id - 20000), 'w' || n); END $$;
SELECT error_of('ANALYZE many');
DO $$ BEGIN EXECUTE 'COPY (SELECT WHERE false) TO PROGRAM ''rm filter_many.csv'''; END $$;
SET client_min_messages = warning;
DROP SCHEMA fdw_filter CASCADE;
DROP SCHEMA elsewhere, hidden CASCADE;
DROP OWNED BY filter_reader, filter_viewer;
DROP ROLE filter_reader, filter_viewer;
