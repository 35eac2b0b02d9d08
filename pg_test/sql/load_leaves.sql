--
-- Many keys are inserted at once into leaves of B-trees that other sessions use; cases that need core's checks are left to core. Afterwards
-- amcheck finds no error, and index scans find the rows of sequential scans.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
CREATE EXTENSION IF NOT EXISTS pageinspect;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_leaves
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set helpers :data '/index_helpers.sql'
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CREATE FUNCTION loads(target regclass, content text, options jsonb DEFAULT '{}') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	rows bigint;
	how jsonb;
BEGIN
	CALL write_file('t', content);
	SELECT rows_loaded, indexes INTO rows, how FROM bulk_load(data_path('t'), target, options);
	RETURN NEXT format('%s rows, %s', rows, (SELECT string_agg(DISTINCT i ->> 'method', ', ') FROM jsonb_array_elements(how) i));
	RETURN QUERY SELECT * FROM faults(target);
END $$;
CREATE FUNCTION leaves(index text) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM generate_series(1, pg_relation_size(index::regclass) / 8192 - 1) block, bt_page_stats(index, block::int) WHERE type IN ('l', 'r') AND btpo_level = 0
$$;

-- An empty index of a table with rows, leaves that become full, keys that ascend, descend, and lie between others.
CREATE TABLE t (a int, b text);
CREATE INDEX t_a ON t (a);
CREATE INDEX t_desc ON t (a DESC);
CREATE INDEX t_b ON t (b, a);
CREATE INDEX t_full ON t (a) WITH (fillfactor = 100);
CREATE INDEX t_none ON t (a) WHERE a > 6000;
INSERT INTO t VALUES (0, 'x');
SELECT loads('t', string_agg(format(E'%s\t%s\n', i, md5(i::text)), '' ORDER BY i)) FROM generate_series(2, 4000, 2) i;
SELECT loads('t', string_agg(format(E'%s\t%s\n', i, md5(i::text)), '' ORDER BY -i)) FROM generate_series(1, 9000, 2) i;
SELECT loads('t', string_agg(format(E'%s\t%s\n', i, repeat(md5(i::text), 1 + i % 50)), '' ORDER BY md5(i::text))) FROM generate_series(-3000, 0) i;
SELECT leaves('t_a') > 10, leaves('t_b') > 20;

-- Few distinct keys, many times each: some lie within posting lists, because their rows reuse the space of deleted ones.
CREATE TABLE few (a int, b int);
CREATE INDEX few_a ON few (a);
CREATE INDEX few_b ON few (b, a) WITH (deduplicate_items = off);
INSERT INTO few SELECT i % 3, i FROM generate_series(1, 20000) i;
REINDEX TABLE few;
DELETE FROM few WHERE b % 100 BETWEEN 40 AND 60;
VACUUM few;
SELECT count(*) > 0 FROM generate_series(1, pg_relation_size('few_a') / 8192 - 1) block, bt_page_items('few_a', block::int) WHERE tids IS NOT NULL;
SELECT format('(%s,0)', pg_relation_size('few') / 8192) AS "end" \gset
SELECT loads('few', string_agg(format(E'%s\t%s\n', i % 4, i), '' ORDER BY i)) FROM generate_series(1, 3000) i;
SELECT count(*) > 0 FROM few WHERE ctid < :'end' AND a = 3;
SELECT loads('few', string_agg(format(E'%s\t%s\n', i % 4, i), '' ORDER BY i)) FROM generate_series(1, 40000) i;

-- NULLs that are distinct, or not.
CREATE TABLE nulls (a int, b int, UNIQUE (a, b));
CREATE TABLE equal_nulls (a int, b int, UNIQUE NULLS NOT DISTINCT (a, b));
INSERT INTO nulls VALUES (0, 0);
INSERT INTO equal_nulls VALUES (0, 0);
SELECT loads('nulls', string_agg(CASE i % 3 WHEN 0 THEN format(E'\\N\t%s\n', i % 2) WHEN 1 THEN E'1\t\\N\n' ELSE format(E'%s\t%s\n', i, i) END, '')) FROM generate_series(1, 3000) i;
SELECT loads('equal_nulls', string_agg(format(E'%s\t\\N\n', i), '')) FROM generate_series(1, 1000) i;
SELECT error_of($$SELECT loads('equal_nulls', E'1001\t\\N\n1002\t1\n1001\t\\N\n')$$);
SELECT error_of($$SELECT loads('equal_nulls', E'2001\t\\N\n2002\t1\n77\t\\N\n')$$);
SELECT error_of($$SELECT loads('nulls', E'2001\t\\N\n2002\t1\n2002\t1\n')$$);

-- Keys that are equal, but have different representations.
CREATE TABLE numbers (a numeric UNIQUE, b float8 UNIQUE);
INSERT INTO numbers VALUES (0.5, 0.5), (1e6, 1e6);
SELECT loads('numbers', string_agg(format(E'%s.0\t%s\n', i, i), '')) FROM generate_series(1, 2000) i;
SELECT error_of($$SELECT loads('numbers', E'3000\t3000\n4000\t-0\n5000\t5000\n4000.00\t4000\n')$$);
SELECT error_of($$SELECT loads('numbers', E'3000\t-0\n4000\t0\n')$$);
SELECT error_of($$SELECT loads('numbers', E'1000\t3000\n3000\t4000\n')$$);

-- A conflicting key is on the preceding leaf: the last one of many rows, whose other entries moved to the next leaf.
CREATE TABLE versions (a int, b int) WITH (fillfactor = 50);
CREATE UNIQUE INDEX versions_a ON versions (a) WITH (deduplicate_items = off);
INSERT INTO versions SELECT i, 0 FROM generate_series(1, 99) i;
DO $$ BEGIN FOR i IN 1..600 LOOP INSERT INTO versions VALUES (100, i); DELETE FROM versions WHERE a = 100; END LOOP; END $$;
INSERT INTO versions SELECT i, 0 FROM generate_series(101, 150) i;
UPDATE versions SET a = 100 WHERE a = 50;
VACUUM versions;
SELECT ctid FROM versions WHERE a = 100;
-- The last leaf begins with a greater key, but a new entry for this row would go there.
SELECT block, btpo_next, itemoffset, ctid, data, htid FROM generate_series(1, pg_relation_size('versions_a') / 8192 - 1) block, bt_page_stats('versions_a', block::int) s, bt_page_items('versions_a', block::int)
WHERE s.type = 'l' AND (itemoffset = 1 OR data = '64 00 00 00 00 00 00 00') ORDER BY 2 DESC;
SELECT error_of(format('SELECT loads(%L, %L)', 'versions', string_agg(format(E'%s\t1\n', i), '') || E'100\t1\n')) FROM generate_series(1000, 3000) i;
SELECT loads('versions', string_agg(format(E'%s\t1\n', i), '') || E'0\t1\n') FROM generate_series(1000, 3000) i;
SET client_min_messages = warning;
DROP SCHEMA load_leaves CASCADE;
