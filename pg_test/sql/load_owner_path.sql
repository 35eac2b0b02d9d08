--
-- A table owner's code that runs with the owner's privileges while another role loads or analyzes: this role's search path must not decide
-- what names in the code mean. Otherwise functions on its search path would run with the owner's privileges.
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
CREATE ROLE path_deputy IN ROLE path_owner;
RESET client_min_messages;
CREATE SCHEMA path_evil AUTHORIZATION path_loader;
GRANT ALL ON SCHEMA load_owner_path TO path_owner, path_loader;
SELECT string_agg(concat_ws(E'\t', a, 'W' || a), E'\n') || E'\n' AS rows FROM generate_series(1, 3000) a \gset
CALL write_file('owner_path', :'rows');
SELECT string_agg(concat_ws(E'\t', a, 'W' || a || repeat(' ', 400)), E'\n') || E'\n' AS rows FROM generate_series(1, 3000) a \gset
CALL write_file('owner_path_big', :'rows');
SELECT string_agg(concat_ws(E'\t', a, 'W' || a, format('[%s,%s)', a, a + a % 7)), E'\n') || E'\n' AS rows FROM generate_series(1, 3000) a \gset
CALL write_file('owner_path_spans', :'rows');

SET ROLE path_owner;
CREATE FUNCTION norm(word text) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN RETURN lower(word); END $$;
CREATE FUNCTION norm_sql(word text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT lower(word) $$;
CREATE TABLE t (id int, word text);
CREATE INDEX t_btree ON t (load_owner_path.norm(word));
CREATE INDEX t_partial ON t (id) WHERE load_owner_path.norm(word) > 'w2';
CREATE INDEX t_hash ON t USING hash (load_owner_path.norm(word));
-- An SQL function that the planner inlines, whenever an expression is planned first.
CREATE INDEX t_sql ON t (load_owner_path.norm_sql(word));
CREATE INDEX t_sql_partial ON t (id) WHERE load_owner_path.norm_sql(word) > 'w2';
CREATE INDEX t_sql_hash ON t USING hash (load_owner_path.norm_sql(word));
CREATE INDEX t_gin ON t USING gin (string_to_array(load_owner_path.norm(word), '1'));
CREATE TABLE fresh (id int, word text);
CREATE INDEX fresh_constant ON fresh ((load_owner_path.norm_sql('W5') || id));
CREATE FUNCTION ways(options jsonb) RETURNS TABLE (rows_loaded bigint, how text, notes text[]) LANGUAGE sql AS $$
	SELECT rows_loaded, (SELECT string_agg(concat_ws(' ', i ->> 'method', i ->> 'from'), ', ' ORDER BY i ->> 'index') FROM jsonb_array_elements(indexes) i), notes
	FROM bulk_load(load_owner_path.data_path('owner_path'), 'load_owner_path.t', '{"truncate": true}' || options);
$$;
-- Things that a session caches, independent of later search paths: types of variables, conditions of domains, and within a transaction the
-- functions that the type cache holds for a range.
CREATE FUNCTION norm_typed(word pg_catalog.text) RETURNS pg_catalog.text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE typed text := word; BEGIN RETURN pg_catalog.lower(typed); END $$;
CREATE DOMAIN normal AS text CHECK (load_owner_path.norm_sql(VALUE) <> '');
CREATE FUNCTION far(a float8, b float8) RETURNS float8 LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT abs(a - b) $$;
CREATE TYPE span AS RANGE (subtype = float8, subtype_diff = load_owner_path.far);
CREATE TABLE typed (id int, word text);
CREATE INDEX typed_btree ON typed (load_owner_path.norm_typed(word));
CREATE TABLE checked (id int, word text);
CREATE INDEX checked_btree ON checked ((word::load_owner_path.normal));
CREATE TABLE spans (id int, word text, span load_owner_path.span);
CREATE INDEX spans_gist ON spans USING gist (span);
CREATE TABLE counted (id int, word text);
CREATE INDEX counted_brin ON counted USING brin (id);
CREATE INDEX counted_btree ON counted (id, (word IS NULL));
CREATE STATISTICS counted_words ON (load_owner_path.norm_typed('x') || word) FROM counted;
GRANT INSERT, SELECT, TRUNCATE ON t, fresh, typed, checked, spans TO path_loader;
GRANT INSERT, SELECT, UPDATE ON counted TO path_loader;
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
CREATE FUNCTION path_evil.abs(float8) RETURNS float8 LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	PERFORM path_evil.tell();
	RETURN pg_catalog.abs($1);
END $$;
CREATE FUNCTION path_evil.told(pg_catalog.text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	PERFORM path_evil.tell();
	RETURN true;
END $$;
CREATE DOMAIN path_evil.text AS pg_catalog.text CHECK (path_evil.told(VALUE));
SET search_path = path_evil, pg_catalog, load_owner_path, public;
SET pg_bulk.chunk_size = '8kB';
-- A loader without the owner's privileges runs nothing with them: keys are inserted, as the loader.
SELECT count(*) FROM t WHERE load_owner_path.norm_sql(word) = 'w7';
SELECT rows_loaded, how, notes[1] FROM ways('{"workers": 0}');
SELECT rows_loaded, how, notes[1] FROM ways('{"workers": 2}');
SELECT rows_loaded, how, notes[1] FROM ways('{"workers": 0, "indexes": "rebuild"}');
SELECT rows_loaded, how, notes[1] FROM ways('{"workers": 2, "indexes": "rebuild"}');
-- An empty table that no other session uses: its file would be new, and its indexes built, before the first row.
SELECT rows_loaded, indexes -> 0 ->> 'why' FROM bulk_load(data_path('owner_path_big'), 'fresh', '{"workers": 0}');
-- Code that the session has run before and keeps cached.
CREATE FUNCTION load_kept(target regclass, options jsonb DEFAULT '{}', file text DEFAULT 'owner_path') RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT rows_loaded || ' ' || (SELECT string_agg((i ->> 'method') || ': ' || (i ->> 'why'), ', ') FROM jsonb_array_elements(indexes) i)
		FROM bulk_load(data_path(file), target, '{"truncate": true}' || options));
EXCEPTION WHEN raise_exception THEN
	RETURN SQLERRM;
END $$;
SELECT norm_typed('w7'), 'w7'::normal;
SELECT load_kept('typed', '{"workers": 0}'), load_kept('typed', '{"workers": 2}'), load_kept('typed', '{"indexes": "rebuild"}');
SELECT load_kept('checked', '{"workers": 0}'), load_kept('checked', '{"workers": 2}'), load_kept('checked', '{"indexes": "rebuild"}');
BEGIN;
INSERT INTO spans SELECT i, 'w', format('[%s,%s)', i, i + i % 5)::span FROM generate_series(1, 3000) i;
SELECT load_kept('spans', '{"workers": 0}', 'owner_path_spans'), load_kept('spans', '{"indexes": "rebuild"}', 'owner_path_spans');
COMMIT;
-- Extended statistics, which the server evaluates when it plans an index build.
INSERT INTO counted SELECT i, 'w' FROM generate_series(1, 3000) i;
BEGIN;
LOCK TABLE counted IN SHARE ROW EXCLUSIVE MODE;
SELECT load_kept('counted', '{"truncate": false, "indexes": "rebuild", "workers": 0}');
COMMIT;
-- Afterwards the search path is the loader's again.
SHOW search_path;
-- A loader with the owner's privileges builds the indexes, as the owner.
RESET ROLE;
SET search_path = load_owner_path, public;
TRUNCATE fresh;
SET ROLE path_deputy;
SELECT rows_loaded, how, notes[1] FROM ways('{"workers": 0}');
SELECT rows_loaded, how, notes[1] FROM ways('{"workers": 2}');
SELECT rows_loaded, how, notes[1] FROM ways('{"workers": 0, "indexes": "rebuild"}');
SELECT rows_loaded, how, notes[1] FROM ways('{"workers": 2, "indexes": "rebuild"}');
SELECT rows_loaded, indexes -> 0 ->> 'why' FROM bulk_load(data_path('owner_path_big'), 'fresh', '{"workers": 0}');
-- The checks run functions as the owner, too, and the session caches them.
\c -
SET search_path = load_owner_path, public;
SET test.dir TO :'data';
SET pg_bulk.chunk_size = '8kB';
SELECT * FROM faults('t');
SELECT * FROM faults('fresh');
SELECT * FROM faults('typed');
SELECT * FROM faults('checked');
SELECT * FROM faults('spans');
SELECT * FROM faults('counted');

-- Built-in functions and functions in C cannot be hijacked: such indexes are built as the owner, by any loader. All others are inserted into.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS btree_gist;
RESET client_min_messages;
CREATE FUNCTION compare_sql(a text, b text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT bttextcmp(a, b) $$;
CREATE OPERATOR CLASS sql_ops FOR TYPE text USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 compare_sql(text, text);
CREATE FUNCTION compare_json(a json, b json) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN RETURN bttextcmp(a::text, b::text); END $$;
CREATE FUNCTION less(a json, b json) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN RETURN a::text < b::text; END $$;
CREATE FUNCTION same(a json, b json) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN RETURN a::text = b::text; END $$;
CREATE OPERATOR < (FUNCTION = less, LEFTARG = json, RIGHTARG = json);
CREATE OPERATOR = (FUNCTION = same, LEFTARG = json, RIGHTARG = json);
-- Rows are compared by the sort functions of the operators' family.
CREATE OPERATOR <<< (FUNCTION = text_lt, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR CLASS row_ops FOR TYPE text USING btree AS
	OPERATOR 1 <<<, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 compare_sql(text, text);
-- An argument's default is evaluated with the call.
CREATE FUNCTION distance(a int, b int DEFAULT length(load_owner_path.norm_sql('x'))) RETURNS int LANGUAGE c IMMUTABLE PARALLEL RESTRICTED STRICT AS '$libdir/btree_gist', 'int4_dist';
CREATE FUNCTION distance_of(a int, b int) RETURNS int LANGUAGE c IMMUTABLE PARALLEL RESTRICTED STRICT AS '$libdir/btree_gist', 'int4_dist';
CREATE OPERATOR CLASS json_ops DEFAULT FOR TYPE json USING btree AS OPERATOR 1 <, OPERATOR 3 =, FUNCTION 1 compare_json(json, json);
SET ROLE path_owner;
CREATE TYPE mood AS ENUM ('good', 'bad');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN many AS int[] CHECK (load_owner_path.norm_sql(VALUE::text) <> '');
CREATE FUNCTION same(a text, b text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN RETURN a = b; END $$;
CREATE OPERATOR === (FUNCTION = same, LEFTARG = text, RIGHTARG = text);
CREATE FUNCTION moody(mood) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT 1 $$;
CREATE CAST (mood AS int) WITH FUNCTION moody(mood);
CREATE FUNCTION moody_text(mood) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN RETURN 'm'; END $$;
CREATE CAST (mood AS text) WITH FUNCTION moody_text(mood);
CREATE FUNCTION moody_json(mood) RETURNS json LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN RETURN '1'; END $$;
CREATE CAST (mood AS json) WITH FUNCTION moody_json(mood);
CREATE TABLE kinds (id int, word text, feeling mood DEFAULT 'good', checked normal DEFAULT 'x', couple pair DEFAULT '(1,x)', list int[] DEFAULT '{1,2}',
	feelings mood[] DEFAULT '{good}', checks normal[] DEFAULT '{x}', lists many DEFAULT '{1}', part int4range DEFAULT '[1,2)', spanned span DEFAULT '[1,2)', jsons json[] DEFAULT '{1}', at timestamp DEFAULT '2026-01-01');
CREATE INDEX plain_lower ON kinds (lower(word));
CREATE INDEX plain_sum ON kinds ((id + 1), word COLLATE "C" DESC);
CREATE INDEX plain_condition ON kinds (id) WHERE word LIKE 'W1%' AND id IS NOT NULL AND (id, word) < (100, 'W') AND id IN (1, 2, 3);
CREATE INDEX plain_cases ON kinds ((CASE id WHEN 1 THEN 'x' ELSE COALESCE(NULLIF(word, 'W2'), 'y') END), GREATEST(id, 7), (word IS DISTINCT FROM 'x'));
CREATE INDEX plain_texts ON kinds ((id::text), (ARRAY[id, 3]), (list[1]), ((feeling = 'bad')));
CREATE INDEX plain_day ON kinds (date_trunc('day', at));
CREATE INDEX plain_enum ON kinds (feeling, word);
CREATE INDEX plain_enums ON kinds USING gin (feelings);
CREATE INDEX plain_domain ON kinds (checked, (lower(checked)));
CREATE INDEX plain_domain_array ON kinds USING gin (lists);
CREATE INDEX plain_array ON kinds USING gin (list);
CREATE INDEX plain_range ON kinds USING gist (part);
CREATE INDEX plain_hash ON kinds USING hash (lower(word));
CREATE INDEX plain_brin ON kinds USING brin (id);
CREATE INDEX plain_c ON kinds USING gist (id gist_int4_ops, word);
CREATE INDEX plain_arguments ON kinds (distance_of(id, 1));
CREATE INDEX other_sql ON kinds (norm_sql(word));
CREATE INDEX other_language ON kinds (lower(norm(word)));
CREATE INDEX other_condition ON kinds (id) WHERE norm_sql(word) <> '';
CREATE INDEX other_case ON kinds ((CASE WHEN id > 1 THEN COALESCE(NULLIF(load_owner_path.norm(word), ''), 'x') END));
CREATE INDEX other_operator ON kinds ((word === 'x'));
CREATE INDEX other_any ON kinds ((word OPERATOR(load_owner_path.===) ANY ('{x,y}')));
CREATE INDEX other_cast ON kinds ((feeling::int));
CREATE INDEX other_stable ON kinds ((word || id));
CREATE INDEX other_elements ON kinds (jsons);
CREATE INDEX other_domain ON kinds ((word::normal));
CREATE INDEX other_domains ON kinds ((ARRAY[word]::normal[]));
CREATE INDEX other_domain_array ON kinds (checks);
CREATE INDEX other_composite ON kinds (couple);
CREATE INDEX other_row ON kinds ((ROW(id, word)::pair));
CREATE INDEX other_rows ON kinds (((word, word) <<< ('W5', 'W6')));
CREATE INDEX other_arguments ON kinds (distance(id));
CREATE INDEX other_range ON kinds USING gist (spanned);
CREATE INDEX other_range_made ON kinds USING gist (span(id, id + 1));
CREATE INDEX other_class ON kinds (word sql_ops);
CREATE INDEX other_class_hash ON kinds USING hash ((norm(word)));
GRANT INSERT, TRUNCATE ON kinds TO path_loader;
SET ROLE path_loader;
SELECT split_part(i ->> 'index', '_', 1) AS code, i ->> 'method' AS method, i ->> 'why' AS why, count(*), string_agg(DISTINCT i ->> 'from', ' ')
	FROM bulk_load(data_path('owner_path'), 'kinds', '{"truncate": true, "columns": ["id", "word"], "indexes": "rebuild"}'), jsonb_array_elements(indexes) i GROUP BY 1, 2, 3 ORDER BY 1;
RESET ROLE;
-- (No query uses this cast or this class.)
SELECT f FROM faults('kinds') f WHERE f !~ '^other_(cast|class|elements): not used';

-- ANALYZE of a parent table, one of whose children belongs to another role.
SET ROLE path_owner;
CREATE FUNCTION filtered(id int, word text, OUT id_ int, OUT word_ text) LANGUAGE plpgsql AS $$ BEGIN id_ := id; word_ := lower(word); END $$;
SELECT data_path('owner_path') AS path \gset
CREATE FOREIGN TABLE child (id int, word text) SERVER bulk_files OPTIONS (filename :'path', filter 'load_owner_path.filtered(int, text)');
CREATE FOREIGN TABLE child_checked (id int, word normal) SERVER bulk_files OPTIONS (filename :'path');
CREATE FOREIGN TABLE child_default (id int, word text DEFAULT norm_sql('x')) SERVER bulk_files OPTIONS (filename :'path');
CREATE FOREIGN TABLE child_plain (id int, word text DEFAULT lower('x')) SERVER bulk_files OPTIONS (filename :'path');
CREATE FOREIGN TABLE child_json (id int, word text DEFAULT to_json('good'::mood)) SERVER bulk_files OPTIONS (filename :'path');
CREATE FOREIGN TABLE child_text (id int, word text DEFAULT query_to_xml('SELECT load_owner_path.norm(''x'')', true, true, '')) SERVER bulk_files OPTIONS (filename :'path');
CREATE TABLE family (id int, word text);
INSERT INTO family SELECT i, 'W' || i FROM generate_series(1, 10) i;
ALTER FOREIGN TABLE child INHERIT family;
RESET ROLE;
SET ROLE path_loader;
CREATE TABLE parent (id int, word text);
INSERT INTO parent SELECT i, 'W' || i FROM generate_series(1, 10) i;
CREATE TABLE plain_parent (id int, word text);
RESET ROLE;
ALTER FOREIGN TABLE child INHERIT parent;
ALTER FOREIGN TABLE child_plain INHERIT plain_parent;
-- From 18 on, ANALYZE of the parent also analyzes the child by itself, which does not belong to the loader.
SET client_min_messages = error;
SET ROLE path_loader;
SET search_path = path_evil, pg_catalog, load_owner_path, public;
ANALYZE parent;
ANALYZE plain_parent;
RESET ROLE;
RESET client_min_messages;
SET search_path = load_owner_path, public;
SELECT tablename, n_distinct FROM pg_stats WHERE schemaname = 'load_owner_path' AND inherited AND attname = 'id' ORDER BY 1;
-- A role that may only maintain the table, as the owner of the database may.
SELECT current_user AS me, current_database() AS database \gset
ALTER DATABASE :"database" OWNER TO path_loader;
SET ROLE path_loader;
ANALYZE child;
ANALYZE child_checked;
ANALYZE child_default;
ANALYZE child_json;
ANALYZE child_text;
ANALYZE child_plain;
-- The role that runs ANALYZE is not the parent's owner.
SET search_path = path_evil, pg_catalog, load_owner_path, public;
SET client_min_messages = error;
ANALYZE family;
RESET client_min_messages;
SET search_path = load_owner_path, public;
RESET ROLE;
SELECT n_distinct FROM pg_stats WHERE schemaname = 'load_owner_path' AND tablename = 'family' AND inherited AND attname = 'id';
ALTER DATABASE :"database" OWNER TO :"me";
SET ROLE path_deputy;
ANALYZE child_checked;
RESET ROLE;
-- A superuser.
ANALYZE child;
ANALYZE family;
SELECT n_distinct FROM pg_stats WHERE schemaname = 'load_owner_path' AND tablename = 'family' AND inherited AND attname = 'id';
SELECT tablename, count(*) FROM pg_stats WHERE schemaname = 'load_owner_path' AND tablename LIKE 'child%' GROUP BY 1 ORDER BY 1;
RESET pg_bulk.chunk_size;
SET client_min_messages = warning;
DROP SCHEMA load_owner_path, path_evil CASCADE;
DROP ROLE path_deputy, path_owner, path_loader;
