--
-- INSERT … SELECT from a foreign table into partitioned tables and into partitions: rows are routed, and errors for
-- rows without a partition are worded, as without a load.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set insert_helpers :data '/insert_helpers.sql'
\set schema insert_select_routing
\i :helpers
\i :insert_helpers
\pset tuples_only
\pset format unaligned
\set ECHO all

-- Ranges, with an expression in the key.
CREATE TABLE ranges (a text, b int) PARTITION BY RANGE (a, (b + 0));
CALL make_table('pairs', 'a text, b int', $$format 'csv'$$, E'a,1\na,10\nb,1\nb,10\na,9\nb,19\n');
SELECT either_way('INSERT INTO ranges SELECT * FROM pairs', '(SELECT tableoid::regclass, * FROM ranges)');
CREATE TABLE r1 PARTITION OF ranges FOR VALUES FROM ('a', 1) TO ('a', 10);
CREATE TABLE r2 PARTITION OF ranges FOR VALUES FROM ('a', 10) TO ('a', 20);
CREATE TABLE r3 PARTITION OF ranges FOR VALUES FROM ('b', 1) TO ('b', 10);
CREATE TABLE r4 PARTITION OF ranges FOR VALUES FROM ('b', 10) TO ('b', 20);
SELECT any_way('INSERT INTO ranges SELECT * FROM pairs', '(SELECT tableoid::regclass, * FROM ranges)');
SELECT either_way('INSERT INTO ranges (b, a) SELECT b, a FROM pairs WHERE b > 1', '(SELECT tableoid::regclass, * FROM ranges)');
SELECT any_way('INSERT INTO r1 SELECT * FROM pairs', 'r1');
SELECT either_way('INSERT INTO r1 SELECT * FROM pairs WHERE b < 10 AND a = ''a''', 'r1');
SELECT either_way('INSERT INTO r1 (b) SELECT b FROM pairs', 'r1');
SELECT either_way('INSERT INTO r4 SELECT a, b + 10 FROM pairs WHERE b = 10', 'r4');
SELECT any_way('INSERT INTO ranges SELECT a, b + 10 FROM pairs', 'ranges');
SELECT either_way('INSERT INTO ranges (a) SELECT a FROM pairs', 'ranges');
SELECT either_way('INSERT INTO ranges (b) SELECT b FROM pairs', 'ranges');
CREATE TABLE r_default PARTITION OF ranges DEFAULT;
SELECT any_way('INSERT INTO ranges SELECT a, b + 10 FROM pairs', '(SELECT tableoid::regclass, * FROM ranges)');
SELECT either_way('INSERT INTO ranges (a) SELECT a FROM pairs', '(SELECT tableoid::regclass, * FROM ranges)');
SELECT either_way('INSERT INTO r_default SELECT * FROM pairs', 'r_default');
SELECT either_way('INSERT INTO r_default SELECT a, b + 10 FROM pairs WHERE b > 9', 'r_default');

-- Lists, of an expression, with NULL, several levels, a default that is partitioned itself.
CREATE TABLE lists (a text, b int) PARTITION BY LIST (lower(a));
CREATE TABLE l_aa_bb PARTITION OF lists FOR VALUES IN ('aa', 'bb');
CREATE TABLE l_cc PARTITION OF lists FOR VALUES IN ('cc');
CREATE TABLE l_null PARTITION OF lists FOR VALUES IN (NULL);
CREATE TABLE l_ee PARTITION OF lists FOR VALUES IN ('ee', 'ff') PARTITION BY RANGE (b);
CREATE TABLE l_ee_1 PARTITION OF l_ee FOR VALUES FROM (1) TO (10);
CREATE TABLE l_ee_2 PARTITION OF l_ee FOR VALUES FROM (10) TO (20);
CREATE TABLE l_xx PARTITION OF lists FOR VALUES IN ('xx', 'yy') PARTITION BY LIST (a);
CREATE TABLE l_xx_1 PARTITION OF l_xx FOR VALUES IN ('xx');
CREATE TABLE l_xx_default PARTITION OF l_xx DEFAULT;
CREATE TABLE l_default PARTITION OF lists DEFAULT PARTITION BY RANGE (b);
CREATE TABLE l_default_1 PARTITION OF l_default FOR VALUES FROM (20) TO (30);
CREATE TABLE l_default_2 PARTITION OF l_default FOR VALUES FROM (30) TO (40);
CALL make_table('names', 'a text, b int', $$format 'csv'$$, E'aa,\ncC,1\n,0\nff,1\nEE,11\nxx,1\nyY,2\nab,21\nzz,35\nBB,\n');
SELECT any_way('INSERT INTO lists SELECT * FROM names', '(SELECT tableoid::regclass, * FROM lists)');
SELECT any_way('INSERT INTO lists SELECT a, b + 10 FROM names', 'lists');
SELECT either_way('INSERT INTO lists SELECT a, 40 - b FROM names WHERE b > 20', 'lists');
SELECT either_way('INSERT INTO l_aa_bb SELECT * FROM names', 'l_aa_bb');
SELECT either_way('INSERT INTO l_null SELECT * FROM names WHERE a IS NULL', 'l_null');
SELECT either_way('INSERT INTO l_ee SELECT * FROM names WHERE b IN (1, 11)', 'l_ee');
SELECT either_way('INSERT INTO l_ee SELECT * FROM names WHERE a IN (''ff'', ''EE'')', '(SELECT tableoid::regclass, * FROM l_ee)');
SELECT either_way('INSERT INTO l_ee_1 SELECT * FROM names WHERE a IN (''ff'', ''EE'')', 'l_ee_1');
SELECT either_way('INSERT INTO l_ee_1 SELECT * FROM names WHERE b = 1', 'l_ee_1');
SELECT either_way('INSERT INTO l_default SELECT * FROM names', 'l_default');
SELECT either_way('INSERT INTO l_default_1 SELECT a, b FROM names WHERE b = 21', 'l_default_1');
SELECT either_way('INSERT INTO l_default_2 SELECT a, 21 FROM names WHERE b > 20', 'l_default_2');

-- By hash.
CREATE TABLE hashed (id int, word text) PARTITION BY HASH (id, word);
CREATE TABLE h0 PARTITION OF hashed FOR VALUES WITH (MODULUS 3, REMAINDER 0);
CREATE TABLE h1 PARTITION OF hashed FOR VALUES WITH (MODULUS 3, REMAINDER 1);
SELECT any_way('INSERT INTO hashed SELECT id, word FROM twelve', 'hashed');
CREATE TABLE h2 (word text, gone int, id int);
ALTER TABLE h2 DROP gone;
ALTER TABLE hashed ATTACH PARTITION h2 FOR VALUES WITH (MODULUS 3, REMAINDER 2);
SELECT any_way('INSERT INTO hashed SELECT id, word FROM twelve', '(SELECT tableoid::regclass, * FROM hashed)');
SELECT either_way('INSERT INTO h2 (id, word) SELECT id, word FROM twelve', 'h2');
SELECT either_way('INSERT INTO h2 (id, word) SELECT id, word FROM twelve WHERE satisfies_hash_partition(''hashed''::regclass, 3, 2, id, word)', 'h2');

-- Columns in another order at each level, some of them dropped.
CREATE TABLE levels (a int, b int, word text DEFAULT 'root', made int GENERATED ALWAYS AS (a + b) STORED) PARTITION BY RANGE (a, b);
CREATE TABLE level1 (word text DEFAULT 'inner', b int NOT NULL, made int GENERATED ALWAYS AS (a + b) STORED, a int NOT NULL) PARTITION BY RANGE ((b + 0));
CREATE TABLE level11 (LIKE level1 INCLUDING GENERATED);
ALTER TABLE level11 DROP word, ADD word text DEFAULT 'leaf', ADD CHECK (word <> 'bad');
ALTER TABLE level1 ATTACH PARTITION level11 FOR VALUES FROM (2) TO (5);
ALTER TABLE levels ATTACH PARTITION level1 FOR VALUES FROM (1, 2) TO (1, 10);
CREATE TABLE level2 PARTITION OF levels FOR VALUES FROM (2, 0) TO (3, 0);
SELECT attrelid::regclass, attname, attnum FROM pg_attribute WHERE attname IN ('a', 'word') AND attrelid::regclass::text LIKE 'level%' ORDER BY 1, 2;
CALL make_table('numbers', 'a int, b int, word text', $$format 'csv'$$, E'1,2,\n1,4,four\n2,7,seven\n');
SELECT any_way('INSERT INTO levels (a, b, word) SELECT a, b, word FROM numbers', '(SELECT tableoid::regclass, * FROM levels)');
SELECT either_way('INSERT INTO levels (b, a) SELECT b, a FROM numbers', '(SELECT tableoid::regclass, * FROM levels)');
SELECT either_way('INSERT INTO level1 (b, a) SELECT b, a FROM numbers WHERE a = 1', '(SELECT tableoid::regclass, * FROM level1)');
SELECT either_way('INSERT INTO level11 (b, a) SELECT b, a FROM numbers WHERE a = 1', 'level11');
SELECT either_way('INSERT INTO level11 (b, a) SELECT b, a FROM numbers', 'level11');
SELECT either_way('INSERT INTO levels (a, b) SELECT a, b + 1 FROM numbers', 'levels');
SELECT either_way('INSERT INTO levels (a, b, word) SELECT a, b, ''bad'' FROM numbers', 'levels');
SELECT either_way('INSERT INTO level1 (a, b) SELECT b, a FROM numbers', 'level1');
ALTER TABLE levels ADD CONSTRAINT not_four CHECK (b <> 4);
SELECT any_way('INSERT INTO levels (a, b, word) SELECT a, b, word FROM numbers', 'levels');
ALTER TABLE levels DROP CONSTRAINT not_four, ALTER word SET NOT NULL;
SELECT any_way('INSERT INTO levels (word, b, a) SELECT word, b, a FROM numbers', 'levels');
ALTER TABLE levels ALTER word DROP NOT NULL;

-- Keys of partitions, and foreign keys from and to partitioned tables.
CREATE TABLE keyed (id int PRIMARY KEY, word text) PARTITION BY RANGE (id);
CREATE TABLE k1 PARTITION OF keyed FOR VALUES FROM (0) TO (6);
CREATE TABLE k2 PARTITION OF keyed (UNIQUE (word)) FOR VALUES FROM (6) TO (100);
SELECT any_way('INSERT INTO keyed SELECT id, word FROM twelve', '(SELECT tableoid::regclass, * FROM keyed)');
SELECT any_way('INSERT INTO keyed SELECT NULLIF(id, 2) % 12 + id / 12, word FROM twelve WHERE id <> 2', 'keyed');
SELECT either_way('INSERT INTO keyed SELECT id, CASE WHEN id > 10 THEN ''w'' ELSE word END FROM twelve', 'keyed');
SELECT any_way('INSERT INTO keyed SELECT n, word FROM twelve', 'keyed');
CREATE TABLE refers (id int REFERENCES keyed, n int) PARTITION BY LIST (n);
CREATE TABLE refers_1 PARTITION OF refers FOR VALUES IN (1);
CREATE TABLE refers_0 PARTITION OF refers FOR VALUES IN (0);
INSERT INTO keyed SELECT i, i FROM generate_series(0, 10) i;
SELECT any_way('INSERT INTO refers SELECT id - 2, id % 2 FROM twelve WHERE id > 2', '(SELECT tableoid::regclass, * FROM refers)');
SELECT any_way('INSERT INTO refers SELECT id, id % 2 FROM twelve', 'refers');
SELECT either_way('INSERT INTO refers_1 SELECT id, 1 FROM twelve', 'refers_1');

-- Triggers: of the root for the statement, of the leaves for rows.
CREATE TABLE log (line text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO log SELECT concat_ws(' ', TG_NAME, TG_WHEN, TG_LEVEL, TG_TABLE_NAME, CASE TG_LEVEL WHEN 'ROW' THEN NEW::text END);
	RETURN NULL;
END $$;
CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.word := 'changed';
	RETURN NEW;
END $$;
CREATE TRIGGER rows AFTER INSERT ON levels FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER statement AFTER INSERT ON levels EXECUTE FUNCTION note();
CREATE TRIGGER not_this AFTER INSERT ON level2 EXECUTE FUNCTION note();
CREATE TRIGGER only_here AFTER INSERT ON level2 FOR EACH ROW WHEN (NEW.a = 2) EXECUTE FUNCTION note();
SELECT any_way('INSERT INTO levels (a, b, word) SELECT a, b, word FROM numbers', '(SELECT line FROM log)');
SELECT either_way('INSERT INTO level2 (a, b, word) SELECT a, b, word FROM numbers WHERE a = 2', '(SELECT line FROM log)');
CREATE TRIGGER before_leaf BEFORE INSERT ON level11 FOR EACH ROW EXECUTE FUNCTION change();
SELECT either_way('INSERT INTO levels (a, b, word) SELECT a, b, word FROM numbers', '(SELECT tableoid::regclass, * FROM levels)');
DROP TRIGGER before_leaf ON level11;
CREATE TRIGGER before_all BEFORE INSERT ON levels FOR EACH ROW EXECUTE FUNCTION change();
SELECT either_way('INSERT INTO levels (a, b, word) SELECT a, b, word FROM numbers', '(SELECT tableoid::regclass, * FROM levels)');
DROP TRIGGER before_all ON levels;
CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO log SELECT count(*) || '' rows'' FROM news; RETURN NULL; END';
CREATE TRIGGER of_leaf AFTER INSERT ON level2 REFERENCING NEW TABLE AS news EXECUTE FUNCTION counted();
SELECT either_way('INSERT INTO levels (a, b, word) SELECT a, b, word FROM numbers', '(SELECT line FROM log)');
SELECT either_way('INSERT INTO level2 (a, b, word) SELECT a, b, word FROM numbers WHERE a = 2', '(SELECT line FROM log)');
CREATE TRIGGER of_root AFTER INSERT ON levels REFERENCING NEW TABLE AS news EXECUTE FUNCTION counted();
SELECT either_way('INSERT INTO levels (a, b, word) SELECT a, b, word FROM numbers', '(SELECT line FROM log)');
DROP TABLE levels;
-- A volatile condition of a leaf's trigger.
CREATE FUNCTION few() RETURNS bool VOLATILE LANGUAGE plpgsql AS 'BEGIN RETURN count(*) < 3 FROM hashed; END';
CREATE TRIGGER few AFTER INSERT ON hashed FOR EACH ROW WHEN (few()) EXECUTE FUNCTION note();
SELECT either_way('INSERT INTO hashed SELECT id, word FROM twelve', '(SELECT count(*) FROM log)');
DROP TRIGGER few ON hashed;

-- Ids and defaults are the root's.
CREATE TABLE numbered_parts (id serial, place text DEFAULT 'root', n int) PARTITION BY LIST (n);
CREATE TABLE n0 PARTITION OF numbered_parts (place DEFAULT 'n0') FOR VALUES IN (0);
CREATE TABLE n1 PARTITION OF numbered_parts (id DEFAULT 100) FOR VALUES IN (1);
SELECT either_way('INSERT INTO numbered_parts (n) SELECT id % 2 FROM twelve', '(SELECT tableoid::regclass, * FROM numbered_parts)');
SELECT either_way('INSERT INTO n0 (n) SELECT 0 FROM ft WHERE id > 0', 'n0');
SELECT either_way('INSERT INTO n1 (n) SELECT id FROM ft WHERE id = 1', 'n1');

-- Partitions that are foreign tables, that have another access method, or other privileges and policies.
CREATE FOREIGN TABLE far PARTITION OF numbered_parts FOR VALUES IN (2) SERVER bulk_files OPTIONS (filename '/nowhere');
SELECT either_way('INSERT INTO numbered_parts (n) SELECT id % 2 FROM twelve', 'n0');
SELECT either_way('INSERT INTO numbered_parts (n) SELECT id FROM ft', 'n0');
DROP FOREIGN TABLE far;
CREATE UNLOGGED TABLE n2 PARTITION OF numbered_parts FOR VALUES IN (2);
SELECT any_way('INSERT INTO numbered_parts (id, n) SELECT id, id % 3 FROM twelve', '(SELECT tableoid::regclass, * FROM numbered_parts)');
ALTER TABLE n1 ENABLE ROW LEVEL SECURITY;
CREATE RULE aside AS ON INSERT TO n1 DO INSTEAD NOTHING;
SELECT either_way('INSERT INTO numbered_parts (id, n) SELECT id, id % 2 FROM ft', 'numbered_parts');
SELECT either_way('INSERT INTO n1 (id, n) SELECT id, 1 FROM ft', 'n1');

-- The source is a partition, or has children.
CREATE TABLE sources (id int, word text, day date, n int) PARTITION BY LIST (id);
CREATE TABLE source_rest PARTITION OF sources DEFAULT;
INSERT INTO source_rest VALUES (17);
DO $$ BEGIN EXECUTE format('CREATE FOREIGN TABLE source_123 PARTITION OF sources FOR VALUES IN (1, 2, 3) SERVER bulk_files OPTIONS (filename %L, format ''csv'')', data_path('ft')); END $$;
CREATE TABLE all_of_them (LIKE sources);
SELECT either_way('INSERT INTO all_of_them SELECT * FROM sources', 'all_of_them');
SELECT either_way('INSERT INTO all_of_them SELECT * FROM sources WHERE id = 1', 'all_of_them');
SELECT either_way('INSERT INTO all_of_them SELECT * FROM source_123', 'all_of_them');
DROP TABLE source_rest;
SELECT either_way('INSERT INTO all_of_them SELECT * FROM sources', 'all_of_them');
CREATE TABLE child () INHERITS (ft);
INSERT INTO child VALUES (18);
SELECT either_way('INSERT INTO all_of_them SELECT * FROM ft', 'all_of_them');
SELECT either_way('INSERT INTO all_of_them SELECT * FROM ONLY ft', 'all_of_them');
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA insert_select_routing CASCADE;
