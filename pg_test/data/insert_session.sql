-- Statements around an INSERT … SELECT: their output is equal with direct_insert on and off.
SELECT plan_of('INSERT INTO t SELECT id, word FROM ft') AS line LIMIT 1;
INSERT INTO t SELECT id, word FROM ft;
INSERT INTO t SELECT id, word FROM ft WHERE id > 3;
TABLE t;
TRUNCATE t;

-- Row count and FOUND, static and dynamic, in functions and procedures.
DO $$
DECLARE
	n bigint;
	least int := 1;
BEGIN
	INSERT INTO t SELECT id, word FROM ft;
	GET DIAGNOSTICS n = ROW_COUNT;
	RAISE NOTICE '% % %', n, FOUND, (SELECT count(*) FROM t);
	INSERT INTO t SELECT id, word FROM ft WHERE id > 3;
	GET DIAGNOSTICS n = ROW_COUNT;
	RAISE NOTICE '% % %', n, FOUND, (SELECT count(*) FROM t);
	EXECUTE 'INSERT INTO t SELECT id, word FROM ft WHERE id > $1' USING 1;
	GET DIAGNOSTICS n = ROW_COUNT;
	RAISE NOTICE '% %', n, (SELECT count(*) FROM t);
	FOR i IN 1 .. 8 LOOP
		INSERT INTO t SELECT ft.id + i, word FROM ft WHERE ft.id > least;
		least := 1 + i % 2;
	END LOOP;
	RAISE NOTICE '% %', (SELECT count(*) FROM t), (SELECT sum(id) FROM t);
	BEGIN
		INSERT INTO t SELECT id, word FROM ft;
		INSERT INTO t SELECT 1 / (id - 2), word FROM ft;
	EXCEPTION WHEN division_by_zero THEN
		RAISE NOTICE '% %', SQLERRM, (SELECT count(*) FROM t);
	END;
	DELETE FROM t WHERE id > 3;
	INSERT INTO t SELECT id + 3, word FROM ft;
	RAISE NOTICE '%', (SELECT count(*) FROM t);
END $$;
SELECT fill(), fill();
SELECT fill_and_count(2);
CALL fill_and_commit();
SELECT count(*), sum(id) FROM t;
TRUNCATE t;

-- Transactions: visibility of rows, the state after savepoints, and the command ids of rows.
BEGIN;
INSERT INTO t SELECT id, word FROM ft;
DECLARE earlier CURSOR FOR SELECT id FROM t ORDER BY id;
SAVEPOINT a;
INSERT INTO t SELECT id + 10, word FROM ft;
SELECT array_agg(id) FROM t;
SAVEPOINT b;
INSERT INTO t SELECT id + 20, word FROM ft;
ROLLBACK TO b;
INSERT INTO t SELECT id / (id - 1), word FROM ft;
ROLLBACK TO b;
INSERT INTO t SELECT id + 30, word FROM ft;
RELEASE a;
FETCH ALL FROM earlier;
SELECT array_agg(id ORDER BY id), count(DISTINCT cmin::text) AS commands FROM t;
UPDATE t SET word = 'changed' WHERE id = 11;
DELETE FROM t WHERE id > 30;
INSERT INTO t SELECT id + 40, word FROM ft;
COMMIT;
SELECT id, word, xmax <> 0 AS deleted FROM t ORDER BY id;
TRUNCATE t;
BEGIN;
INSERT INTO t SELECT id, word FROM ft;
ROLLBACK;
BEGIN READ ONLY;
INSERT INTO t SELECT id, word FROM ft WHERE id > 3;
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM t;
INSERT INTO t SELECT id, word FROM ft;
SELECT count(*) FROM t;
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
INSERT INTO t SELECT id, word FROM ft;
SELECT count(*) FROM t;
COMMIT;
SELECT count(*) FROM t;
TRUNCATE t;

-- Deferred constraints.
BEGIN;
INSERT INTO late SELECT id, id / 2 FROM ft;
INSERT INTO above VALUES (2);
COMMIT;
BEGIN;
INSERT INTO late SELECT id, id FROM ft;
INSERT INTO above SELECT id FROM ft WHERE id <> 2;
COMMIT;
BEGIN;
INSERT INTO late SELECT id, id FROM ft;
INSERT INTO above SELECT id FROM ft WHERE id <> 2;
SET CONSTRAINTS ALL IMMEDIATE;
ROLLBACK;
TRUNCATE late, above;

-- Kept plans, with parameters.
PREPARE insertion (int, text) AS INSERT INTO t SELECT id + $1, coalesce(word, $2) FROM ft WHERE id >= $1;
EXECUTE insertion (1, 'none');
SET plan_cache_mode = force_generic_plan;
EXECUTE insertion (2, 'nothing');
SET plan_cache_mode = force_custom_plan;
EXECUTE insertion (3, 'nobody');
EXECUTE insertion (NULL, NULL);
RESET plan_cache_mode;
TABLE t;
ALTER TABLE t ADD more int DEFAULT 5;
EXECUTE insertion (3, 'nobody');
SELECT * FROM t ORDER BY id, more, word;
ALTER TABLE t DROP more;
DEALLOCATE insertion;
TRUNCATE t;

-- Ids: as many as there are rows.
CREATE TABLE tight (i smallint GENERATED ALWAYS AS IDENTITY (MAXVALUE 20), s serial, n int);
INSERT INTO tight (n) SELECT id FROM twelve WHERE id > 7;
SELECT last_value FROM tight_i_seq;
INSERT INTO tight (n) SELECT id FROM twelve WHERE id > 12;
INSERT INTO tight (n) SELECT id FROM twelve WHERE id > 9;
SELECT array_agg(ROW(i, s) ORDER BY i), (SELECT last_value FROM tight_i_seq), (SELECT last_value FROM tight_s_seq) FROM tight;
INSERT INTO tight (n) SELECT id FROM twelve WHERE id < 11;
INSERT INTO tight (n) SELECT id FROM twelve;
SELECT count(*), max(s), (SELECT last_value FROM tight_i_seq) FROM tight;
DROP TABLE tight;

-- Statistics of rows that were inserted, rolled back, or lost by an error.
CREATE TABLE counted (id int, word text CHECK (word <> 'three'));
INSERT INTO counted SELECT id, word FROM ft WHERE id < 3;
BEGIN;
INSERT INTO counted SELECT id, NULL FROM ft;
SELECT n_tup_ins FROM pg_stat_xact_user_tables WHERE relid = 'counted'::regclass;
ROLLBACK;
BEGIN;
SAVEPOINT s;
INSERT INTO counted SELECT id, NULL FROM ft;
ROLLBACK TO s;
INSERT INTO counted SELECT id, NULL FROM ft;
COMMIT;
SELECT pg_stat_force_next_flush();
SELECT n_tup_ins, n_live_tup, n_dead_tup, n_mod_since_analyze, n_ins_since_vacuum FROM pg_stat_user_tables WHERE relid = 'counted'::regclass;
DROP TABLE counted;
