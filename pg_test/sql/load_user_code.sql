--
-- Errors in other users' functions that check a load's rows: they are not attributed to a row, and the session keeps its user.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_user_code
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
SET client_min_messages = warning;
CREATE ROLE code_owner;
CREATE ROLE code_user IN ROLE pg_read_server_files;
GRANT ALL ON SCHEMA load_user_code TO code_owner, code_user;
RESET client_min_messages;

-- An error leaves a user's function before rows are read again to find the one that exceeded reject_limit: the leader waits
-- within the function in a late chunk of the file. The worker is in an earlier chunk, which has more bad rows than allowed.
SET ROLE code_owner;
CREATE FUNCTION tests(a int, leader text) RETURNS boolean LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = load_user_code AS $$
BEGIN
	IF pg_backend_pid()::text <> leader THEN
		PERFORM pg_sleep(0.01) WHERE a % 10 = 0;
	ELSIF a % 25 = 0 AND NOT a BETWEEN 250 AND 1800 THEN
		PERFORM pg_sleep(CASE WHEN a < 300 THEN 0.01 ELSE 1 END);
	END IF;
	RETURN true;
END $$;
SET ROLE code_user;
CREATE FUNCTION tells(a int) RETURNS boolean LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
	IF current_user <> 'code_user' OR current_setting('search_path') = 'load_user_code' THEN
		RAISE WARNING '% with %', current_user, current_setting('search_path');
	END IF;
	RETURN true;
END $$;
CREATE TABLE many (a int, b text, CHECK (tells(a)), CHECK (tests(a, current_setting('test.leader'))));
SELECT set_config('test.leader', pg_backend_pid()::text, false) \gset
RESET ROLE;
SELECT string_agg(CASE WHEN i % 50 = 7 THEN 'x' ELSE '' END || i || ',' || repeat('y', 50), E'\n') || E'\n' AS content
FROM generate_series(1, 3000) i \gset
CALL write_file('many.csv', :'content');
SET ROLE code_user;
SET pg_bulk.chunk_size = '16kB';
SELECT DISTINCT error_of(format('SELECT bulk_load(%L, ''many'', ''{"format": "csv", "on_error": "ignore", "reject_limit": 28, "workers": 1}'')',
	data_path('many.csv'))) FROM generate_series(1, 5);
RESET ROLE;
-- An interrupted SQL function must not continue with another row: it starts with its first statement and the new arguments.
CREATE FUNCTION echo(a int, leader text) RETURNS int LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT load_user_code.tests(a, leader); SELECT a $$;
CREATE TABLE many_checked (a int, b text, CHECK (echo(a, current_setting('test.leader')) = a));
CREATE TABLE many_conditional (a int, b text);
CREATE TABLE many_parted (a int, b text) PARTITION BY LIST ((a % 2));
CREATE TABLE many_even PARTITION OF many_parted (CHECK (echo(a, current_setting('test.leader')) = a)) FOR VALUES IN (0);
CREATE TABLE many_odd PARTITION OF many_parted (CHECK (echo(a, current_setting('test.leader')) = a)) FOR VALUES IN (1);
SELECT target, error_of(format('SELECT bulk_load(%L, %L, %L)', data_path('many.csv'), target,
	'{"format": "csv", "on_error": "ignore", "reject_limit": 28, "workers": 1' || more || '}'))
FROM (VALUES ('many_checked', ''), ('many_conditional', ', "where": "1 / (echo(a, current_setting(''test.leader'')) = a)::int > 0"'), ('many_parted', '')) AS v (target, more);
DO $$ BEGIN EXECUTE format('CREATE FOREIGN TABLE many_lines (a int, b text) SERVER bulk_files OPTIONS (filename %L, format ''csv'', on_error ''ignore'', reject_limit ''28'')', data_path('many.csv')); END $$;
CREATE TABLE few (b text);
INSERT INTO few VALUES (repeat('y', 50));
SET pg_bulk.workers = 1;
SELECT error_of($$INSERT INTO many_conditional SELECT a / (echo(a, current_setting('test.leader')) = a)::int, b FROM many_lines$$);
SELECT error_of($$INSERT INTO many_conditional SELECT a, b FROM many_lines WHERE 1 / (echo(a, current_setting('test.leader')) = a)::int > 0$$);
SELECT error_of($$INSERT INTO many_conditional SELECT a / (echo(a, current_setting('test.leader')) = a)::int, b FROM many_lines JOIN few USING (b)$$);
-- Serial ids that were reserved for other rows are not used.
CREATE FUNCTION slows(a int, leader text) RETURNS boolean LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
	PERFORM pg_sleep(0.01) WHERE a % 10 = 0 AND (pg_backend_pid()::text <> leader OR a < 200);
	RETURN true;
END $$;
CREATE TABLE many_numbered (id serial NOT NULL CHECK (id > 0), a int, b text, CHECK (slows(a, current_setting('test.leader'))));
SELECT DISTINCT error_of(format('SELECT bulk_load(%L, ''many_numbered'', ''{"format": "csv", "columns": ["a", "b"], "on_error": "ignore", "reject_limit": 28, "workers": 1}'')',
	data_path('many.csv'))) FROM generate_series(1, 3);
SELECT DISTINCT error_of('INSERT INTO many_numbered (a, b) SELECT a, b FROM many_lines') FROM generate_series(1, 3);
RESET pg_bulk.workers;

-- A row that a function writes violates a constraint, and the function's exception handler raises the error again.
SET ROLE code_owner;
CREATE TABLE log (x int NOT NULL CHECK (x < 100));
CREATE FUNCTION noted(i int) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = load_user_code AS $$
BEGIN
	BEGIN
		INSERT INTO log VALUES (i);
	EXCEPTION WHEN unique_violation THEN
		NULL;
	END;
END $$;
CREATE FUNCTION noted_again(i int) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = load_user_code AS $$
BEGIN
	INSERT INTO log VALUES (i);
EXCEPTION WHEN not_null_violation OR check_violation THEN
	RAISE;
END $$;
SET ROLE code_user;
CREATE FUNCTION looks(i int) RETURNS boolean LANGUAGE plpgsql STABLE PARALLEL RESTRICTED AS $$
BEGIN
	PERFORM CASE WHEN i % 10 = 3 THEN noted_again(CASE WHEN i < 10 THEN NULL ELSE i END) ELSE noted(nullif(i, 1)) END;
	RETURN i <> 5;
END $$;
CREATE TABLE judged (a int CHECK (looks(a)));
CREATE FUNCTION loaded(content text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT error_of(format('SELECT bulk_load(%L::bytea, ''judged'', ''{"on_error": "table"}'')', convert_to(content, 'UTF8')))
$$;
SELECT loaded(E'2\n1\n4\n');
SELECT loaded(E'2\n3\n4\n');
SELECT loaded(E'2\n113\n4\n');
SELECT bulk_load(convert_to(E'2\n1\n4\n', 'UTF8'), 'judged', '{"on_error": "table"}');
SELECT current_user, current_setting('search_path');
-- A violation of the table's own constraint is a reject, even after such errors were handled.
SELECT rows_loaded, rows_rejected FROM bulk_load(convert_to(E'2\n5\n4\nx\n', 'UTF8'), 'judged', '{"on_error": "table"}');
SELECT line_number, message FROM bulk_rejects ORDER BY line_number;
SELECT current_user, current_setting('search_path');
TABLE judged ORDER BY a;
-- Partitions, rows without a partition, and NULL are rejects, too.
CREATE TABLE parted (a int NOT NULL, b int CHECK (looks(b))) PARTITION BY LIST (a);
CREATE TABLE part PARTITION OF parted FOR VALUES IN (1);
SELECT rows_loaded, rows_rejected FROM bulk_load(convert_to(E'1,2\n2,2\n1,5\n,7\n1,4\n', 'UTF8'), 'parted', '{"format": "csv", "on_error": "table"}');
SELECT error_of($$SELECT bulk_load(convert_to(E'1,2\n2,2\n1,1\n1,4\n', 'UTF8'), 'parted', '{"format": "csv", "on_error": "table"}')$$);
SELECT current_user, current_setting('search_path');
RESET ROLE;
TABLE log ORDER BY x;

-- The same inside one of pg_bulk's guarded calls: in a default that a field requests, and in an index.
SET ROLE code_owner;
CREATE FUNCTION handled() RETURNS int LANGUAGE plpgsql STABLE PARALLEL RESTRICTED AS $$
BEGIN
	RETURN (SELECT 1 FROM noted(NULL));
EXCEPTION WHEN not_null_violation THEN
	RAISE;
END $$;
CREATE FUNCTION key(a int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	IF a = 1 THEN
		PERFORM load_user_code.noted(1000);
	END IF;
	RETURN a;
EXCEPTION WHEN check_violation THEN
	RAISE;
END $$;
CREATE TABLE defaulted (a int, b int DEFAULT handled());
SELECT error_of($$SELECT bulk_load(convert_to(E'1\tD\n2\t3\n', 'UTF8'), 'defaulted', '{"default": "D", "on_error": "table"}')$$);
CREATE TABLE keyed (a int);
CREATE INDEX ON keyed (key(a));
SELECT error_of($$SELECT bulk_load((SELECT convert_to(string_agg(i::text, E'\n'), 'UTF8') FROM generate_series(1, 200000) i), 'keyed',
	'{"on_error": "table", "truncate": true, "workers": 0}')$$);
-- A default that a field requests may query the table if it is volatile.
CREATE TABLE counted (a int, b bigint);
CREATE FUNCTION rows_of_counted() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$ BEGIN RETURN (SELECT count(*) FROM counted); END $$;
ALTER TABLE counted ALTER b SET DEFAULT rows_of_counted();
SELECT writer FROM bulk_load(convert_to(E'1\tD\n2\tD\n3\t7\n', 'UTF8'), 'counted', '{"default": "D"}');
TABLE counted ORDER BY a;

-- Names that change their meaning before pg_bulk's own statement runs. A table's trigger renames it: the new table has another type.
SET client_min_messages = warning;
CREATE TABLE renamed (a bigint);
CREATE FUNCTION swaps() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	ALTER TABLE renamed RENAME TO renamed_before;
	CREATE TABLE renamed (a text);
	RETURN NULL;
END $$;
CREATE TRIGGER swaps BEFORE TRUNCATE ON renamed EXECUTE FUNCTION swaps();
SELECT error_of($$SELECT bulk_load('\x34303936'::bytea, 'renamed'::regclass, '{"truncate": true, "writer": "buffered"}')$$);
-- A user's function that fits the call better than pg_bulk's own.
RESET ROLE;
GRANT CREATE ON SCHEMA public TO code_user;
CREATE TABLE orders (a int);
GRANT SELECT ON orders TO code_user;
SET ROLE code_user;
CREATE FUNCTION public.bulk_rows(load_user_code.orders, bigint) RETURNS SETOF load_user_code.orders LANGUAGE sql STABLE PARALLEL RESTRICTED
	AS $$ SELECT (NULL::load_user_code.orders).* WHERE load_user_code.tells(0) $$;
RESET ROLE;
SELECT error_of($$SELECT bulk_load('\x34303936'::bytea, 'orders'::regclass, '{"writer": "buffered"}')$$);
DROP FUNCTION public.bulk_rows(load_user_code.orders, bigint);
SELECT rows_loaded FROM bulk_load('\x34303936'::bytea, 'orders'::regclass, '{"writer": "buffered"}');
REVOKE CREATE ON SCHEMA public FROM code_user;
-- The schema's owner replaces a referenced table by a view while keys of an index are computed.
CREATE SCHEMA code_schema AUTHORIZATION code_user;
CREATE TABLE code_schema.parent (id int PRIMARY KEY);
INSERT INTO code_schema.parent SELECT generate_series(1, 3000);
GRANT REFERENCES ON code_schema.parent TO code_user;
SET ROLE code_user;
CREATE FUNCTION code_schema.evil(i int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF i = 1 THEN
		RAISE WARNING 'as %', current_user;
	END IF;
	RETURN true;
END $$;
CREATE FUNCTION code_schema.swap() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF (SELECT relkind = 'r' FROM pg_class WHERE oid = to_regclass('code_schema.parent')) THEN
		DROP TABLE code_schema.parent CASCADE;
		CREATE VIEW code_schema.parent AS SELECT g AS id FROM generate_series(1, 3000) g WHERE code_schema.evil(g);
	END IF;
END $$;
CREATE FUNCTION code_schema.key(i int) RETURNS int IMMUTABLE PARALLEL RESTRICTED LANGUAGE plpgsql AS $$
BEGIN
	IF i = 1500 AND current_setting('test.go', true) = 'on' THEN
		PERFORM code_schema.swap();
	END IF;
	RETURN i;
END $$;
CREATE TABLE code_schema.child (id int REFERENCES code_schema.parent);
CREATE INDEX ON code_schema.child (code_schema.key(id));
INSERT INTO code_schema.child VALUES (1);
SET test.go = on;
SELECT regexp_replace(e, '\d+', 'n', 'g') FROM error_of($$SELECT bulk_load((SELECT convert_to(string_agg(i::text, E'\n'), 'UTF8') FROM generate_series(1, 2000) i),
	'code_schema.child'::regclass, '{}')$$) e;
RESET ROLE;
DROP SCHEMA code_schema CASCADE;
DROP OWNED BY code_user, code_owner;
DROP ROLE code_user, code_owner;
