--
-- After a load that built the table's pages and indexes, pg_class has the values that it has after COPY and REINDEX: pages,
-- rows, all-visible pages and, from 18 on, all-frozen ones. If autovacuum is off for the table, 18 does not update
-- them. The test runs in transactions, so autovacuum cannot run in between.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_statistics
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
SELECT string_agg(n || E'\tsome words of row ' || n || E'\n', '') AS content FROM generate_series(1, 15000) n \gset
CALL write_file('statistics', :'content');
\set path :data '/statistics'
-- From 16 on core's table may end in empty pages, so the page count is only compared with the size of its file.
CREATE FUNCTION statistics(name text) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_agg(jsonb_build_object('pages', CASE relkind WHEN 'i' THEN to_jsonb(relpages) ELSE to_jsonb(relpages * current_setting('block_size')::bigint = pg_relation_size(c.oid)) END, 'rows', reltuples, 'visible', relallvisible, 'frozen', to_jsonb(c) -> 'relallfrozen', 'index', relhasindex)
		ORDER BY relkind DESC, relname) FROM pg_class c WHERE relname LIKE name || '%' AND relnamespace = current_schema::regnamespace
$$;
-- The figures of the table, where all versions agree; and whether all figures of the table and its indexes equal core's.
CREATE FUNCTION says() RETURNS SETOF text LANGUAGE sql AS $$
	SELECT format('%s rows%s', s -> 'rows', CASE WHEN (s -> 'visible')::int > 0 THEN ', visible' END)
		|| CASE WHEN (s -> 'visible')::int > 0 AND s -> 'frozen' = '0' THEN ', not frozen' ELSE '' END FROM (SELECT statistics('ours') -> 0 AS s) t
	UNION ALL
	SELECT CASE WHEN statistics('ours') = statistics('core') THEN 'as core' ELSE format('ours %s, core''s %s', statistics('ours'), statistics('core')) END
$$;
CREATE PROCEDURE make(options text DEFAULT '') LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'CREATE TABLE core (id int PRIMARY KEY, word text) ' || options;
	CREATE INDEX core_word ON core (word COLLATE "C");
	EXECUTE 'CREATE TABLE ours (id int PRIMARY KEY, word text) ' || options;
	CREATE INDEX ours_word ON ours (word COLLATE "C");
END $$;
SET pg_bulk.copy = off;
BEGIN;
CALL make();
COPY core FROM :'path';
REINDEX TABLE core;
SELECT rows_loaded, writer FROM bulk_load(:'path', 'ours', '{"truncate": true}');
SELECT says();
ROLLBACK;
BEGIN;
CALL make();
COPY core FROM :'path' (FREEZE);
REINDEX TABLE core;
SELECT rows_loaded, writer FROM bulk_load(:'path', 'ours', '{"truncate": true, "freeze": true}');
SELECT says();
ROLLBACK;
-- Autovacuum is off, for the table or for the server.
BEGIN;
CALL make('WITH (autovacuum_enabled = off)');
COPY core FROM :'path';
REINDEX TABLE core;
SELECT rows_loaded FROM bulk_load(:'path', 'ours', '{"truncate": true}');
SELECT says() OFFSET 1;
ROLLBACK;
BEGIN;
SET LOCAL track_counts = off;
CALL make();
COPY core FROM :'path';
REINDEX TABLE core;
SELECT rows_loaded FROM bulk_load(:'path', 'ours', '{"truncate": true}');
SELECT says() OFFSET 1;
ROLLBACK;
SET client_min_messages = warning;
DROP SCHEMA load_statistics CASCADE;
