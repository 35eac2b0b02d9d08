--
-- Indexes built from index tuples, which the server's functions form, sort and compare in all processes of a load: the same
-- items on the same pages as core's own build of the same rows.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
CREATE EXTENSION IF NOT EXISTS pageinspect;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_index_tuples
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set helpers :data '/index_helpers.sql'
\i :helpers
\set helpers :data '/build_helpers.sql'
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE DOMAIN share AS numeric CHECK (VALUE < 1000000);
CREATE FUNCTION cmp_down(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN RETURN btint4cmp($2, $1); END $$;
CREATE OPERATOR CLASS down FOR TYPE int4 USING btree AS OPERATOR 1 >, OPERATOR 2 >=, OPERATOR 3 =, OPERATOR 4 <=, OPERATOR 5 <, FUNCTION 1 cmp_down(int, int);
CREATE FUNCTION tag(text) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN RETURN current_user || $1; END $$;
CREATE TABLE tuples (id int, word text COLLATE "und-x-icu", l text, b char(12), name text COLLATE nocase, n numeric, d share, a int[],
	r int4range, iv interval, net inet, f float8, wide text COLLATE nocase);
CREATE UNIQUE INDEX ON tuples (word);
CREATE INDEX ON tuples (word DESC) WITH (fillfactor = 50);
CREATE INDEX ON tuples (l);
CREATE INDEX ON tuples (l) WITH (deduplicate_items = off);
CREATE INDEX ON tuples (b NULLS FIRST);
CREATE INDEX ON tuples (name);
CREATE INDEX ON tuples (n DESC NULLS LAST, b);
CREATE UNIQUE INDEX ON tuples (n, id);
CREATE INDEX ON tuples (d);
CREATE INDEX ON tuples (a);
CREATE INDEX ON tuples (r) WITH (fillfactor = 100);
CREATE INDEX ON tuples (iv, net);
CREATE INDEX ON tuples (wide);
CREATE UNIQUE INDEX ON tuples (id) INCLUDE (word, f, a);
CREATE INDEX ON tuples (l) INCLUDE (n) WHERE id % 3 = 0;
CREATE INDEX ON tuples (f) WHERE l > 'k';
CREATE INDEX ON tuples (id) WHERE id < 0;
CREATE INDEX ON tuples (lower(word), (id % 10), d);
CREATE UNIQUE INDEX ON tuples ((id || l)) INCLUDE (b) WHERE n IS NOT NULL;
CALL write_file('tuples', series($$concat_ws(E'\t', a, chr(97 + a % 26) || md5(a::text), 'l' || a % 40, CASE WHEN a % 9 > 0 THEN a % 500 || ' ' ELSE '\N' END,
	CASE WHEN a % 2 = 0 THEN 'Name' ELSE 'nAME' END || a % 300, CASE WHEN a % 4 > 0 THEN round((a % 1000) / 7.0, a % 5)::text ELSE '\N' END, a % 1000,
	'{' || a % 9 || CASE WHEN a % 2 = 0 THEN '' ELSE ',' || a % 3 END || '}', '[' || a % 100 || ',' || a % 100 + 5 || ')', a % 77 || ' hours',
	'10.0.' || a % 50 || '.1', a, repeat(md5((a % 100)::text), CASE WHEN a % 500 = 0 THEN 200 ELSE a % 9 END))$$, 12000));
SELECT built('tuples', 'tuples', '{"workers": 0}');
SET pg_bulk.chunk_size = '16kB';
SET maintenance_work_mem = '1MB';
SELECT built('tuples', 'tuples', '{"workers": 3}');
SELECT indexed('tuples', 'tuples', '{"truncate": true, "workers": 0}');
RESET maintenance_work_mem;
-- Expressions are evaluated once, even for few rows. Loads without conflicts, and without rows.
SELECT sources('tuples', 'tuples', '{"truncate": true, "limit": 2}');
SELECT faults('tuples');
SELECT rows_loaded, jsonb_array_length(indexes) FROM bulk_load(data_path('tuples'), 'tuples', '{"truncate": true, "where": "id < 0", "workers": 2}');
SELECT faults('tuples');
SELECT rows_loaded, (SELECT count(*) FROM jsonb_array_elements(indexes) i WHERE i @> '{"from": "load"}') AS built
FROM bulk_load(data_path('tuples'), 'tuples', '{"truncate": true, "on_error": "table", "workers": 2}');
SELECT faults('tuples');
CREATE UNLOGGED TABLE tuples_unlogged (LIKE tuples INCLUDING ALL);
SELECT rows_loaded FROM bulk_load(data_path('tuples'), 'tuples_unlogged', '{"truncate": true, "workers": 2}');
SELECT faults('tuples_unlogged');
SELECT count(*) FILTER (WHERE pg_relation_size(indexrelid, 'init') = current_setting('block_size')::int), count(*) FROM pg_index WHERE indrelid = 'tuples_unlogged'::regclass;
CREATE TEMPORARY TABLE tuples_temporary (LIKE tuples INCLUDING ALL);
SELECT rows_loaded, workers FROM bulk_load(data_path('tuples'), 'tuples_temporary', '{"truncate": true}');
SELECT faults('tuples_temporary');
-- A user-defined operator class.
CREATE TABLE downs (id int);
CREATE INDEX ON downs (id down);
CALL write_file('downs', series($$(a % 5000)::text$$, 12000));
SELECT sources('downs', 'downs', '{"truncate": true, "workers": 2}');
SELECT public.bt_index_parent_check('downs_id_idx', true, true);
-- Partitions, and rows with out-of-line values, some of which arrive after the leader has sorted.
CREATE TABLE tuple_parts (id int, word text COLLATE "und-x-icu", value text) PARTITION BY RANGE (id);
CREATE TABLE tuple_parts_1 PARTITION OF tuple_parts FOR VALUES FROM (0) TO (15000);
CREATE TABLE tuple_parts_2 PARTITION OF tuple_parts FOR VALUES FROM (15000) TO (50000);
CREATE TABLE tuple_parts_3 PARTITION OF tuple_parts FOR VALUES FROM (50000) TO (60000);
CREATE INDEX ON tuple_parts (word);
CREATE INDEX ON tuple_parts (length(value), left(value, 3));
ALTER TABLE tuple_parts_2 ALTER value SET STORAGE EXTERNAL;
CALL write_file('tuple_parts', series($$concat_ws(E'\t', a, md5(a::text), repeat('x', CASE WHEN a % 100 = 0 THEN 3000 ELSE 5 END))$$, 30000));
SELECT sources('tuple_parts', 'tuple_parts', '{"truncate": true, "workers": 2}');
SELECT faults('tuple_parts_1'), faults('tuple_parts_2');
-- Equal keys: two representations of one value, and NULLs that are not distinct.
CREATE TABLE equals (id int, name text COLLATE nocase, n numeric);
CALL write_file('equals', series($$concat_ws(E'\t', a, CASE a WHEN 11000 THEN 'NAME10999' ELSE 'name' || a END, CASE WHEN a > 12000 THEN '\N' WHEN a = 9000 THEN '8999.0' ELSE a::text END)$$, 12004));
CREATE UNIQUE INDEX equals_name ON equals (name);
SELECT error_of($$SELECT bulk_load(data_path('equals'), 'equals', '{"truncate": true, "workers": 2}')$$);
SELECT error_of(format('COPY equals FROM %L', data_path('equals')));
SELECT error_of($$SELECT bulk_load(data_path('equals'), 'equals', '{"truncate": true, "workers": 0}')$$);
DROP INDEX equals_name;
CREATE UNIQUE INDEX equals_n ON equals (n);
SELECT error_of($$SELECT bulk_load(data_path('equals'), 'equals', '{"truncate": true, "workers": 2}')$$);
DROP INDEX equals_n;
CREATE UNIQUE INDEX equals_n ON equals (n, (id = 9000)) INCLUDE (name);
SELECT built('equals', 'equals', '{"workers": 2}');
DROP INDEX equals_n;
TRUNCATE equals;
CREATE UNIQUE INDEX equals_n ON equals (n) NULLS NOT DISTINCT WHERE id <> 8999;
SELECT error_of($$SELECT bulk_load(data_path('equals'), 'equals', '{"truncate": true, "workers": 2}')$$);
DO $$
DECLARE
	t text; c text; s text;
BEGIN
	PERFORM bulk_load(data_path('equals'), 'equals', '{"truncate": true}');
EXCEPTION WHEN unique_violation THEN
	GET STACKED DIAGNOSTICS t = TABLE_NAME, c = CONSTRAINT_NAME, s = SCHEMA_NAME;
	RAISE NOTICE 'table %, constraint %, schema %', t, c, s;
END $$;
-- A key that is too long, with the server's message.
CREATE TABLE too_long (t text COLLATE nocase);
CREATE INDEX ON too_long (t);
CALL write_file('too_long', series($$CASE a WHEN 9000 THEN (SELECT string_agg(md5(b::text), '') FROM generate_series(1, 200) b) ELSE a::text END$$, 12000));
SELECT error_of($$SELECT bulk_load(data_path('too_long'), 'too_long', '{"truncate": true, "workers": 0}')$$);
SELECT line FROM error_of($$SELECT bulk_load(data_path('too_long'), 'too_long', '{"truncate": true, "workers": 2}')$$) line WHERE line NOT LIKE 'DETAIL%';
-- Expressions run as the table's owner, and cannot make changes that stay. Afterwards the current user is the loader again, also after an error.
SELECT current_user AS caller, data_path('owned') AS owned_file \gset
CREATE ROLE load_index_owner;
CREATE TABLE owned (id int, t text);
GRANT ALL ON SCHEMA load_index_tuples TO load_index_owner;
ALTER TABLE owned OWNER TO load_index_owner;
CREATE FUNCTION leave(int) RETURNS void LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN CREATE TEMPORARY TABLE left_behind (); END $$;
CREATE FUNCTION spy(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	IF $1 = 7777 THEN
		PERFORM load_index_tuples.leave($1);
	END IF;
	IF $1 = 6000 THEN
		PERFORM set_config('pg_bulk.note', 'left behind', false);
	END IF;
	RETURN true;
END $$;
CREATE FUNCTION inverse(int) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 1000000 / ($1 - 9999) $$;
CREATE INDEX owned_tag ON owned (tag(t));
CALL write_file('owned', series($$concat_ws(E'\t', a, a)$$, 12000));
SELECT rows_loaded, workers, indexes @> '[{"from": "load"}]' FROM bulk_load(data_path('owned'), 'owned', '{"truncate": true, "workers": 2}');
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET ROLE load_index_owner;
SELECT count(*) FROM owned WHERE tag(t) BETWEEN 'load_index_owner' AND 'load_index_owner:';
RESET ROLE;
RESET enable_seqscan;
RESET enable_bitmapscan;
TRUNCATE owned;
CREATE INDEX owned_inverse ON owned (inverse(id));
SELECT error_of($$SELECT bulk_load(data_path('owned'), 'owned', '{"truncate": true, "workers": 0}')$$);
SELECT error_of($$SELECT bulk_load(data_path('owned'), 'owned', '{"truncate": true, "workers": 2}')$$);
SELECT current_user = :'caller', count(*) FROM owned;
-- Later errors name lines again.
CREATE FOREIGN TABLE read_later (id date, t text) SERVER bulk_files OPTIONS (filename :'owned_file');
SELECT error_of('SELECT * FROM read_later');
DROP INDEX owned_inverse;
TRUNCATE owned;
CREATE INDEX owned_spy ON owned (spy(id)) WHERE spy(id);
SELECT error_of($$SELECT bulk_load(data_path('owned'), 'owned', '{"truncate": true, "workers": 0}')$$);
SELECT rows_loaded FROM bulk_load(data_path('owned'), 'owned', '{"truncate": true, "workers": 0, "limit": 7000}');
SELECT coalesce(current_setting('pg_bulk.note', true), '') AS note;
-- Temporary files are removed after an error.
SET maintenance_work_mem = '1MB';
DROP INDEX owned_spy;
TRUNCATE owned;
CREATE UNIQUE INDEX owned_twice ON owned ((CASE id WHEN 11999 THEN 1 ELSE id END), (repeat('long', 50)));
SELECT error_of($$SELECT bulk_load(data_path('owned'), 'owned', '{"truncate": true, "workers": 2}')$$);
SELECT count(*) FROM pg_ls_tmpdir();
RESET maintenance_work_mem;
RESET pg_bulk.chunk_size;
SET client_min_messages = warning;
DROP SCHEMA load_index_tuples CASCADE;
DROP ROLE load_index_owner;
