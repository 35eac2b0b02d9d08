--
-- Options in SECURITY DEFINER functions: an option that the function's caller wrote must not take effect with the owner's privileges.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_definer
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
SET client_min_messages = warning;
CREATE ROLE definer_owner LOGIN IN ROLE pg_read_server_files, pg_execute_server_program;
CREATE ROLE definer_caller LOGIN;
RESET client_min_messages;
GRANT USAGE, CREATE ON SCHEMA load_definer TO definer_owner;
GRANT USAGE, CREATE ON SCHEMA load_definer TO definer_caller;
CALL write_file('definer.csv', E'1,one\n2,two\n');
CREATE TABLE t (a int, b text);
CREATE TABLE secret (s text);
INSERT INTO secret VALUES ('secret');
ALTER TABLE t OWNER TO definer_owner;
ALTER TABLE secret OWNER TO definer_owner;
SET ROLE definer_owner;
-- Functions that pass on options from their caller: the mistake that pg_bulk guards against.
CREATE FUNCTION loads(path text, options jsonb) RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = load_definer, public AS $$
BEGIN
	RETURN QUERY SELECT rows_loaded FROM bulk_load(path, 't'::regclass, options);
END $$;
CREATE FUNCTION loads_named(options jsonb) RETURNS SETOF bigint LANGUAGE sql SECURITY DEFINER SET search_path = load_definer, public AS $$
	SELECT rows_loaded FROM bulk_load(data_path('definer.csv'), 'load_definer.t', options)
$$;
CREATE FUNCTION loads_bytes(options jsonb) RETURNS SETOF bigint LANGUAGE sql SECURITY DEFINER SET search_path = load_definer, public AS $$
	SELECT rows_loaded FROM bulk_load(convert_to(E'1,one\n2,two\n', 'UTF8'), 't', options)
$$;
CREATE FUNCTION creates(options jsonb) RETURNS SETOF bigint LANGUAGE sql SECURITY DEFINER SET search_path = load_definer, public AS $$
	SELECT rows_loaded FROM bulk_create(data_path('definer.csv'), 'load_definer.made', options)
$$;
CREATE FUNCTION enqueues(path text, options jsonb) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = load_definer, public AS $$
	SELECT bulk_enqueue(path, 't', options)
$$;
CREATE FUNCTION checks(path text, options jsonb) RETURNS SETOF text LANGUAGE sql SECURITY DEFINER SET search_path = load_definer, public AS $$
	SELECT message FROM bulk_check(path, 't', options)
$$;
CREATE FUNCTION reads(path text, options jsonb) RETURNS SETOF text LANGUAGE sql SECURITY DEFINER SET search_path = load_definer, public AS $$
	SELECT b FROM bulk_read(path, options) AS x (a int, b text)
$$;
CREATE FUNCTION sniffs(path text, options jsonb) RETURNS SETOF bigint LANGUAGE sql SECURITY DEFINER SET search_path = load_definer, public AS $$
	SELECT rows FROM bulk_sniff(path, options)
$$;
SET client_min_messages = warning;
SET ROLE definer_caller;
SELECT error_of($$SELECT loads(data_path('definer.csv'), '{"format": "csv", "where": "a::int > 1"}')$$);
SELECT error_of($$SELECT loads(NULL, '{"query": "SELECT 1, s FROM load_definer.secret"}')$$);
SELECT error_of($$SELECT loads(data_path('definer.csv'), '{"format": "csv", "columns": ["b", {"name": "a", "expr": "length(b)"}]}')$$);
-- The option is refused before anything is looked up.
SELECT error_of($$SELECT reads('x', '{"server": "none"}')$$);
-- Every option of each function, as the error for an unknown one lists them: the refused ones
-- and the others. Each gets a value that turns it on: an option is refused for its name.
CREATE FUNCTION turned_on(option text) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object(option, CASE
		WHEN option IN ('force_null', 'force_not_null', 'columns', 'null_if') THEN '["b"]'::jsonb
		WHEN option = 'on_duplicate' THEN '"keep_new"' ELSE 'true' END)
$$;
CREATE FUNCTION said_of(call text, options jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format(call, options);
	RAISE SQLSTATE 'PB000';
EXCEPTION
	WHEN insufficient_privilege THEN
		RETURN CASE WHEN SQLERRM = format('cannot use option "%s" within security-definer function', (SELECT jsonb_object_keys(options))) THEN 'refused' ELSE SQLERRM END;
	WHEN OTHERS THEN
		RETURN 'taken';
END $$;
CREATE FUNCTION options_of(call text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	hint text;
BEGIN
	EXECUTE format(call, '{"": 1}');
EXCEPTION WHEN syntax_error THEN
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
	RETURN QUERY SELECT unnest(string_to_array(regexp_replace(hint, '^Valid options in this context are: ', ''), ', '));
END $$;
SELECT call, said, string_agg(option, ' ' ORDER BY number)
FROM unnest(ARRAY['SELECT loads(NULL, %L)', 'SELECT loads_bytes(%L)', 'SELECT loads_named(%L)', 'SELECT creates(%L)', 'SELECT enqueues(NULL, %L)', 'SELECT checks(''x'', %L)',
		'SELECT reads(''x'', %L)', 'SELECT sniffs(''x'', %L)']) WITH ORDINALITY c (call, nr),
	LATERAL options_of(call) WITH ORDINALITY o (option, number),
	LATERAL said_of(call, turned_on(option)) said
GROUP BY call, nr, said ORDER BY nr, said;
-- Members of objects among the columns.
SELECT said, string_agg(option, ' ' ORDER BY number)
FROM unnest(ARRAY['source', 'start', 'length', 'trim', 'nullif', 'binary_type', 'null_if', 'decimal', 'thousands', 'date_format', 'key', 'rest'])
	WITH ORDINALITY o (option, number),
	LATERAL (SELECT CASE error_of WHEN '42501: cannot use option "expr" within security-definer function' THEN 'refused' ELSE 'taken' END
		FROM error_of(format('SELECT loads_bytes(%L)', jsonb_build_object('columns', jsonb_build_array(jsonb_build_object('column', 'a', option, '1'))))) LIMIT 1) s (said)
GROUP BY said;
SELECT error_of($$SELECT bulk_load('x'::bytea, 't', '{"columns": [{"column": "a", "no such": 1}]}')$$);
-- Values that turn an option off, and options that only describe the data.
SELECT loads_bytes('{"format": "csv", "program": false, "truncate": "off", "where": null, "query": null, "on_duplicate": "error", "skip": 1}');
SELECT loads_named('{"create": false, "format": "csv"}');
-- The caller can lift the refusal neither in the options nor by settings.
SELECT error_of($$SELECT loads(NULL, '{"query": "SELECT 1", "allow": ["query"]}')$$);
SET pg_bulk.definer_options = 'query';
SELECT error_of($$SELECT loads(NULL, '{"query": "SELECT 1"}')$$);
RESET pg_bulk.definer_options;
-- Nor can another function, with any owner.
CREATE FUNCTION calls(options jsonb) RETURNS SETOF bigint LANGUAGE sql SECURITY DEFINER SET search_path = load_definer, public AS 'SELECT loads(NULL, options)';
SELECT error_of($$SELECT calls('{"query": "SELECT 1, s FROM load_definer.secret"}')$$);
SET ROLE definer_owner;
SELECT error_of($$SELECT calls('{"query": "SELECT 1, s FROM load_definer.secret"}')$$);
-- The owner is refused as well. SET ROLE and SET SESSION AUTHORIZATION change the user and are no definer context.
SELECT error_of($$SELECT loads(NULL, '{"query": "SELECT 1"}')$$);
SELECT rows_loaded FROM bulk_load(NULL, 't'::regclass, '{"query": "SELECT 1, ''one''"}');
RESET ROLE;
SET SESSION AUTHORIZATION definer_owner;
SELECT rows_loaded FROM bulk_load(NULL, 't', '{"query": "SELECT 1, ''one''"}');
RESET SESSION AUTHORIZATION;
-- A function without SECURITY DEFINER adds no privileges; called by one that has it, it runs as that one's owner.
CREATE FUNCTION plain(options jsonb) RETURNS SETOF bigint LANGUAGE sql AS $$SELECT rows_loaded FROM bulk_load(NULL, 't'::regclass, options)$$;
CREATE FUNCTION around(options jsonb) RETURNS SETOF bigint LANGUAGE sql SECURITY DEFINER SET search_path = load_definer, public AS 'SELECT plain(options)';
ALTER FUNCTION around OWNER TO definer_owner;
SET ROLE definer_owner;
SELECT plain('{"query": "SELECT 1, ''one''"}');
SET ROLE definer_caller;
SELECT error_of($$SELECT around('{"query": "SELECT 1, ''one''"}')$$);
-- Options that the function itself allows.
SET ROLE definer_owner;
TRUNCATE t;
CREATE FUNCTION safe(a int) RETURNS SETOF bigint LANGUAGE sql SECURITY DEFINER SET search_path = load_definer, public AS $$
	SELECT rows_loaded FROM bulk_load(data_path('definer.csv'), 't'::regclass, jsonb_build_object('format', 'csv', 'where', format('a::int > %s', a), 'truncate', true), '{where,truncate}')
$$;
CREATE FUNCTION allows(options jsonb, allow text[]) RETURNS SETOF text LANGUAGE plpgsql SECURITY DEFINER SET search_path = load_definer, public AS $$
DECLARE
	path CONSTANT text := CASE WHEN NOT options ?| '{query,program}' THEN data_path('definer.csv') WHEN options ? 'program' THEN 'cat ' || data_path('definer.csv') END;
BEGIN
	RETURN QUERY SELECT 'load ' || rows_loaded FROM bulk_load(path, 't'::regclass, options, allow);
	RETURN QUERY SELECT 'named ' || rows_loaded FROM bulk_load(path, 't'::text, options, allow => allow);
	IF NOT options ?| '{query,program}' THEN
		RETURN QUERY SELECT 'bytes ' || rows_loaded FROM bulk_load('7,seven'::bytea, 't', options, allow);
	END IF;
	IF NOT options ? 'query' THEN
		RETURN QUERY SELECT 'check ' || count(*) FROM bulk_check(path, 't', options, allow);
	END IF;
	IF options ? 'program' THEN
		RETURN QUERY SELECT 'read ' || count(*) FROM bulk_read(path, options, allow) AS x (a int, b text);
		RETURN QUERY SELECT 'sniff ' || rows FROM bulk_sniff(path, options, allow);
	END IF;
	PERFORM bulk_enqueue(path, 't', options, allow => allow, priority => 7, run_at => 'infinity', max_attempts => 3);
	RETURN NEXT 'job';
END $$;
SET ROLE definer_caller;
SELECT safe(1);
SELECT allows('{"format": "csv", "where": "a::int > 1"}', '{where}');
SELECT allows('{"format": "csv", "columns": ["a", "x", {"name": "b", "expr": "x || a"}]}', '{format,expr}');
SELECT allows('{"query": "SELECT 5, s FROM load_definer.secret"}', '{query}');
SELECT allows('{"program": true, "format": "csv"}', '{program}');
SELECT error_of($$SELECT allows('{"program": true, "format": "csv"}', '{where,query}')$$);
SELECT error_of($$SELECT allows('{}', NULL)$$);
SELECT error_of($$SELECT allows('{}', '{where,"where "}')$$);
SELECT error_of($$SELECT allows('{"where": "true"}', '{}')$$);
SET ROLE definer_owner;
SELECT a, b FROM t ORDER BY a, b;
SELECT options, priority, max_attempts, bulk_cancel(job_id) FROM bulk_jobs WHERE owner = 'definer_owner' AND status = 'queued' ORDER BY job_id;
-- A job belongs to its owner, and its options are not checked again when it runs.
TRUNCATE t;
CREATE FUNCTION enqueues_some() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = load_definer, public AS $$
	SELECT bulk_enqueue(data_path('definer.csv'), 't', '{"format": "csv", "where": "a::int > 1"}', '{where}'::text[])
$$;
GRANT SELECT ON t TO definer_caller;
SET ROLE definer_caller;
SELECT enqueues_some() AS job \gset
SET ROLE definer_owner;
SELECT bulk_wait(:job);
SELECT * FROM t;
-- A load that creates its table.
CREATE FUNCTION makes(allow text[]) RETURNS SETOF bigint LANGUAGE sql SECURITY DEFINER SET search_path = load_definer, public AS $$
	SELECT rows_loaded FROM bulk_load(data_path('definer.csv'), 'load_definer.made', '{"format": "csv", "create": true, "where": "true"}', allow)
$$;
SET client_min_messages = warning;
SET ROLE definer_caller;
SELECT error_of($$SELECT makes('{where}')$$);
SELECT error_of($$SELECT makes('{create}')$$);
SELECT makes('{create,where}');
SELECT tableowner FROM pg_tables WHERE tablename = 'made';
-- One GRANT covers both functions of a name, with `allow` and without.
RESET ROLE;
DROP TABLE made;
BEGIN;
REVOKE EXECUTE ON FUNCTION bulk_load(text, regclass, jsonb), bulk_create(text, text, jsonb), bulk_read(text, jsonb), bulk_sniff(text, jsonb), bulk_check(text, regclass, jsonb),
	bulk_enqueue(text, regclass, jsonb, integer, timestamptz, integer), bulk_load(bytea, regclass, jsonb), bulk_load(text, text, jsonb) FROM PUBLIC;
SET ROLE definer_owner;
SELECT error_of($$SELECT bulk_load('x', 't'::regclass, '{}', '{}')$$);
SELECT error_of($$SELECT bulk_load('x', 't'::text, '{}', '{}')$$);
SELECT error_of($$SELECT bulk_load('x'::bytea, 't', '{}', '{}')$$);
SELECT error_of($$SELECT bulk_check('x', 't', '{}', '{}')$$);
SELECT error_of($$SELECT * FROM bulk_read('x', '{}', '{}') AS x (a int)$$);
SELECT error_of($$SELECT bulk_sniff('x', '{}', '{}')$$);
SELECT error_of($$SELECT bulk_enqueue('x', 't', '{}', allow => '{}')$$);
SELECT error_of($$SELECT bulk_create('x', 'y', '{}', '{}')$$);
RESET ROLE;
GRANT EXECUTE ON FUNCTION bulk_load(text, text, jsonb) TO PUBLIC;
SET ROLE definer_owner;
SELECT error_of($$SELECT bulk_load('x', 't'::text, '{}', '{}')$$);
SELECT error_of($$SELECT bulk_load('x', 'y'::text, '{"create": true}', '{}')$$);
ROLLBACK;
-- A function of the extension that an administrator has made SECURITY DEFINER passes on options, too.
BEGIN;
ALTER FUNCTION bulk_load(text, regclass, jsonb) SECURITY DEFINER;
SET ROLE definer_caller;
SELECT error_of($$SELECT bulk_load(NULL, 'load_definer.t', '{"query": "SELECT 1, ''one''"}')$$);
ROLLBACK;
RESET ROLE;
SET client_min_messages = warning;
DROP SCHEMA load_definer CASCADE;
DROP ROLE definer_owner, definer_caller;
