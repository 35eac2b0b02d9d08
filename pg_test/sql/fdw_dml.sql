--
-- Foreign tables in statements that change data: reading from them works, writing to them is
-- refused; inheritance trees and partitioned tables with foreign members.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema fdw_dml
\i :helpers
\set ECHO all
CALL make_table('ft', 'id int, word text', $$format 'csv'$$, E'1,one\n2,two\n3,three\n');

-- As a target.
INSERT INTO ft VALUES (4, 'four');								-- ERROR
UPDATE ft SET word = 'x';										-- ERROR
DELETE FROM ft WHERE id = 1;									-- ERROR
TRUNCATE ft;													-- ERROR
MERGE INTO ft USING ft s ON ft.id = s.id WHEN MATCHED THEN DELETE;	-- ERROR
COPY ft FROM STDIN;												-- ERROR
4,four
\.
COPY ft TO STDOUT;												-- ERROR
COPY (SELECT * FROM ft) TO STDOUT;
CREATE INDEX ON ft (id);										-- ERROR
ALTER FOREIGN TABLE ft ADD PRIMARY KEY (id);					-- ERROR
BEGIN;
LOCK TABLE ft;													-- ERROR
ROLLBACK;
VACUUM ft;

-- As a source.
CREATE TABLE t AS SELECT * FROM ft;
WITH new AS (INSERT INTO t SELECT id + 10, upper(word) FROM ft WHERE id > 1 RETURNING *) SELECT * FROM new ORDER BY id;
WITH new AS (UPDATE t SET word = ft.word || '!' FROM ft WHERE ft.id = t.id AND ft.id < 3 RETURNING t.*, ft)
SELECT * FROM new ORDER BY id;
WITH old AS (DELETE FROM t USING ft WHERE ft.id + 10 = t.id RETURNING t.id, ft.word) SELECT * FROM old ORDER BY id;
MERGE INTO t USING ft ON t.id = ft.id
WHEN MATCHED AND ft.id = 3 THEN DELETE
WHEN MATCHED THEN UPDATE SET word = ft.word
WHEN NOT MATCHED THEN INSERT VALUES (ft.id, 'new');
SELECT * FROM t ORDER BY id;
CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM ft;
CALL write_file('ft', E'1,one\n2,two\n3,three\n4,four\n');
REFRESH MATERIALIZED VIEW m;
SELECT * FROM m;

-- Row locks have no effect, and are accepted.
SELECT * FROM ft WHERE id = 2 FOR UPDATE;
SELECT t.word, ft.word FROM t JOIN ft USING (id) ORDER BY 1 FOR SHARE;
SELECT * FROM ft WHERE id = 2 FOR UPDATE OF ft NOWAIT;

-- Triggers: statements that fail do not fire them.
CREATE FUNCTION noticed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '% on %', TG_OP, TG_TABLE_NAME; RETURN NEW; END $$;
CREATE TRIGGER noticed BEFORE INSERT ON ft FOR EACH STATEMENT EXECUTE FUNCTION noticed();
INSERT INTO ft VALUES (4, 'four');								-- ERROR

-- Constraint exclusion relies on a foreign table's CHECK.
ALTER FOREIGN TABLE ft ADD CHECK (id > 0);
SELECT plan_of('SELECT * FROM ft WHERE id < 0');
SET constraint_exclusion = on;
SELECT plan_of('SELECT * FROM ft WHERE id < 0');
RESET constraint_exclusion;

-- Inheritance: columns may come in another order, and with more of them.
CREATE TABLE parent (word text, id int);
INSERT INTO parent VALUES ('zero', 0);
ALTER FOREIGN TABLE ft INHERIT parent;
CALL make_table('child', 'extra date', $$format 'csv', header 'match'$$, E'word,id,extra\nnine,9,1999-09-09\n');
ALTER FOREIGN TABLE child RENAME TO orphan;
CREATE FOREIGN TABLE child (extra date) INHERITS (parent) SERVER bulk_files OPTIONS (filename '/no/such', format 'csv', header 'match');
SELECT data_path('child') AS file \gset
ALTER FOREIGN TABLE child OPTIONS (SET filename :'file');
SELECT tableoid::regclass, * FROM parent ORDER BY id;
SELECT parent FROM parent WHERE id > 3 ORDER BY id;
SELECT id FROM parent WHERE tableoid = 'child'::regclass;
SELECT count(*) FROM ONLY parent;
SELECT p.id FROM parent p JOIN t ON p.id = t.id ORDER BY 1;
UPDATE parent SET word = 'null' WHERE id = 0;					-- ERROR
UPDATE ONLY parent SET word = 'null' WHERE id = 0;
DELETE FROM parent WHERE id = 0;								-- ERROR
SELECT id FROM parent WHERE id = 0 FOR UPDATE;
ALTER TABLE parent ADD COLUMN late text;
SELECT error_of('SELECT id FROM parent');
ALTER TABLE parent DROP COLUMN late;
ALTER FOREIGN TABLE ft NO INHERIT parent;
ALTER FOREIGN TABLE child NO INHERIT parent;

-- Partitions: pruned before they are opened; rows routed to them are refused.
CREATE TABLE parts (word text, id int) PARTITION BY RANGE (id);
CREATE TABLE low PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (1);
ALTER TABLE parts ATTACH PARTITION ft FOR VALUES FROM (1) TO (5);
CREATE FOREIGN TABLE missing PARTITION OF parts FOR VALUES FROM (100) TO (200)
SERVER bulk_files OPTIONS (filename '/no/such/file');
INSERT INTO parts VALUES ('minus', -1);
SELECT tableoid::regclass, * FROM parts WHERE id < 100 ORDER BY id;
SELECT plan_of('SELECT * FROM parts WHERE id = 3');
SELECT error_of('SELECT * FROM parts');
PREPARE p(int) AS SELECT word FROM parts WHERE id = $1;
SET plan_cache_mode = force_generic_plan;
EXECUTE p(3);
EXECUTE p(-1);
SELECT error_of('EXECUTE p(150)');
INSERT INTO parts VALUES ('two', 2);							-- ERROR
UPDATE parts SET id = 2 WHERE id = -1;							-- ERROR
UPDATE parts SET word = 'x' WHERE id = 1;						-- ERROR
UPDATE parts SET word = 'x' WHERE id = -1 RETURNING *;
COPY parts FROM STDIN;
two	2
\.
-- The planner relies on a partition's bounds, too: no process checks the file against them.
CALL write_file('ft', E'7,seven\n');
SELECT * FROM parts WHERE id BETWEEN 1 AND 9;
SELECT error_of('SELECT * FROM parts WHERE id = 7');
ALTER TABLE parts DETACH PARTITION ft;
SELECT count(*) FROM parts WHERE id < 100;

SET client_min_messages = warning;
DROP SCHEMA fdw_dml CASCADE;
