--
-- Code of a table's owner that runs with the owner's rights while somebody else loads, or analyzes: whoever does that does not choose
-- what names in it mean. Else the functions that he puts on his search path would run with those rights.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_owner_path
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set helpers :data '/index_helpers.sql'
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
SET client_min_messages = warning;
CREATE ROLE path_owner IN ROLE pg_read_server_files;
CREATE ROLE path_loader IN ROLE pg_read_server_files;
RESET client_min_messages;
CREATE SCHEMA path_evil AUTHORIZATION path_loader;
GRANT ALL ON SCHEMA load_owner_path TO path_owner, path_loader;
SELECT string_agg(concat_ws(E'\t', a, 'W' || a), E'\n') || E'\n' AS rows FROM generate_series(1, 3000) a \gset
CALL write_file('owner_path', :'rows');
SELECT string_agg(concat_ws(E'\t', a, 'W' || a || repeat(' ', 400)), E'\n') || E'\n' AS rows FROM generate_series(1, 3000) a \gset
CALL write_file('owner_path_big', :'rows');

SET ROLE path_owner;
CREATE FUNCTION norm(word text) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN RETURN lower(word); END $$;
CREATE FUNCTION norm_sql(word text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT lower(word) $$;
CREATE TABLE t (id int, word text);
CREATE INDEX t_btree ON t (load_owner_path.norm(word));
CREATE INDEX t_partial ON t (id) WHERE load_owner_path.norm(word) > 'w2';
CREATE INDEX t_hash ON t USING hash (load_owner_path.norm(word));
-- A call that the planner puts the function's body in the place of, whenever somebody asks first.
CREATE INDEX t_sql ON t (load_owner_path.norm_sql(word));
CREATE INDEX t_sql_partial ON t (id) WHERE load_owner_path.norm_sql(word) > 'w2';
CREATE INDEX t_sql_hash ON t USING hash (load_owner_path.norm_sql(word));
CREATE INDEX t_gin ON t USING gin (string_to_array(load_owner_path.norm(word), '1'));
CREATE TABLE fresh (id int, word text);
CREATE INDEX fresh_constant ON fresh ((load_owner_path.norm_sql('W5') || id));
GRANT INSERT, SELECT, TRUNCATE ON t, fresh TO path_loader;
SET ROLE path_loader;
GRANT USAGE ON SCHEMA path_evil TO PUBLIC;
CREATE FUNCTION path_evil.tell() RETURNS void LANGUAGE plpgsql PARALLEL SAFE AS $$
BEGIN
	IF current_user = 'path_owner' THEN
		RAISE EXCEPTION 'the rights of % are lent', current_user;
	END IF;
END $$;
CREATE FUNCTION path_evil.lower(text) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	IF $1 IN ('W5', 'W2999') THEN
		PERFORM path_evil.tell();
	END IF;
	RETURN pg_catalog.lower($1);
END $$;
SET search_path = path_evil, pg_catalog, load_owner_path, public;
SET pg_bulk.chunk_size = '8kB';
-- Whoever loads, and which way the indexes take.
SELECT count(*) FROM t WHERE load_owner_path.norm_sql(word) = 'w7';
SELECT rows_loaded, (SELECT string_agg(i ->> 'from', ' ' ORDER BY i ->> 'index') FROM jsonb_array_elements(indexes) i)
	FROM bulk_load(data_path('owner_path'), 't', '{"truncate": true, "workers": 0}');
SELECT rows_loaded, (SELECT string_agg(i ->> 'from', ' ' ORDER BY i ->> 'index') FROM jsonb_array_elements(indexes) i)
	FROM bulk_load(data_path('owner_path'), 't', '{"truncate": true, "workers": 2}');
SELECT rows_loaded, (SELECT string_agg(i ->> 'from', ' ' ORDER BY i ->> 'index') FROM jsonb_array_elements(indexes) i)
	FROM bulk_load(data_path('owner_path'), 't', '{"truncate": true, "workers": 0, "indexes": "rebuild"}');
SELECT rows_loaded, (SELECT string_agg(i ->> 'from', ' ' ORDER BY i ->> 'index') FROM jsonb_array_elements(indexes) i)
	FROM bulk_load(data_path('owner_path'), 't', '{"truncate": true, "workers": 2, "indexes": "rebuild"}');
-- An empty table that nobody looks at: its file is new, and its indexes are built anew, before the first row.
SELECT rows_loaded FROM bulk_load(data_path('owner_path_big'), 'fresh', '{"workers": 0}');
-- The path is the loader's again.
SHOW search_path;
RESET ROLE;
SET search_path = load_owner_path, public;
SELECT * FROM faults('t');
SELECT * FROM faults('fresh');

-- ANALYZE of a parent, whose owner has a child that is somebody else's.
SET ROLE path_owner;
CREATE FUNCTION filtered(id int, word text, OUT id_ int, OUT word_ text) LANGUAGE plpgsql AS $$ BEGIN id_ := id; word_ := lower(word); END $$;
SELECT data_path('owner_path') AS path \gset
CREATE FOREIGN TABLE child (id int, word text) SERVER bulk_files OPTIONS (filename :'path', filter 'load_owner_path.filtered(int, text)');
RESET ROLE;
SET ROLE path_loader;
CREATE TABLE parent (id int, word text);
INSERT INTO parent SELECT i, 'W' || i FROM generate_series(1, 10) i;
RESET ROLE;
ALTER FOREIGN TABLE child INHERIT parent;
SET ROLE path_loader;
SET search_path = path_evil, pg_catalog, load_owner_path, public;
-- From 18 on also of the child by itself, which is not the loader's.
SET client_min_messages = error;
ANALYZE parent;
RESET client_min_messages;
RESET ROLE;
SET search_path = load_owner_path, public;
SELECT n_distinct FROM pg_stats WHERE schemaname = 'load_owner_path' AND tablename = 'parent' AND inherited AND attname = 'id';
RESET pg_bulk.chunk_size;
SET client_min_messages = warning;
DROP SCHEMA load_owner_path, path_evil CASCADE;
DROP ROLE path_owner, path_loader;
