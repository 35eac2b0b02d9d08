--
-- Foreign tables among the executor's nodes: rescans, cursors, prepared statements, functions and savepoints.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema fdw_query
\i :helpers
\set ECHO all
CALL make_table('ft', 'id int, word text', $$format 'csv', header 'true'$$, E'id,word\n1,one\n2,two\n3,three\n4,four\n');
CREATE TABLE t (id int, note text);
INSERT INTO t VALUES (2, 'zwei'), (4, 'vier'), (5, 'fünf');

-- System columns: only tableoid has a meaning; a virtual tuple has no ctid.
SELECT tableoid::regclass, id FROM ft WHERE id = 1;
SELECT id FROM ft WHERE tableoid = 'ft'::regclass ORDER BY id;
SELECT id FROM ft WHERE tableoid = 't'::regclass;
SELECT count(*) FROM ft WHERE tableoid = 'ft'::regclass;
SELECT DISTINCT ctid FROM ft;
SELECT xmin FROM ft;											-- ERROR

-- Whole rows.
SELECT ft FROM ft WHERE id = 2;
SELECT id FROM ft WHERE ft = ROW(3, 'three')::ft;
SELECT (ft).word FROM ft WHERE ft IS NOT NULL ORDER BY 1 LIMIT 1;
SELECT to_jsonb(ft) FROM ft WHERE id > 3;

-- Rescans: the inner side of a nested loop, LATERAL, correlated subqueries, with skip, limit and header each time.
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SELECT plan_of('SELECT t.note, ft.word FROM t LEFT JOIN ft USING (id)');
SELECT t.note, ft.word FROM t LEFT JOIN ft USING (id) ORDER BY t.id;
SELECT t.note, (SELECT count(*) FROM ft WHERE ft.id <= t.id) AS upto, (SELECT word FROM ft WHERE ft.id = t.id) FROM t ORDER BY t.id;
SELECT t.id, l.* FROM t, LATERAL (SELECT word, t.id - ft.id AS more FROM ft WHERE ft.id < t.id ORDER BY ft.id DESC LIMIT 2) l
ORDER BY t.id, more;
SELECT a.id, b.id FROM ft a, ft b WHERE a.id + b.id = 5 ORDER BY 1;
ALTER FOREIGN TABLE ft OPTIONS (ADD skip '1', ADD "limit" '2');
SELECT t.note, (SELECT string_agg(word, ',') FROM ft WHERE ft.id <= t.id) FROM t ORDER BY t.id;
ALTER FOREIGN TABLE ft OPTIONS (DROP skip, DROP "limit");
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_material;
-- A rescan stops in the middle of the file; a scan that is never started.
SELECT t.id, (SELECT word FROM ft WHERE ft.id < t.id LIMIT 1) FROM t ORDER BY t.id;
SELECT word FROM ft WHERE (SELECT count(*) > 5 FROM t);
SELECT word FROM ft WHERE id < ALL (SELECT id FROM t) AND word IN (SELECT word FROM ft);
SELECT count(*) FROM (SELECT 1 FROM ft UNION ALL SELECT 2 FROM ft) u;
WITH RECURSIVE steps(id) AS (SELECT 1 UNION ALL SELECT ft.id FROM ft JOIN steps ON ft.id = steps.id + 1) SELECT max(id) FROM steps;
WITH w AS MATERIALIZED (SELECT * FROM ft) SELECT a.word FROM w a JOIN w b ON a.id = b.id + 3;

-- Cursors.
BEGIN;
DECLARE c CURSOR FOR SELECT id, word FROM ft;
FETCH 2 FROM c;
-- An open scan continues with the file that it opened, even if the name now means another file. New scans open that one.
SELECT count(*) FROM ft;
FETCH ALL FROM c;
FETCH NEXT FROM c;
DECLARE s SCROLL CURSOR FOR SELECT id, word FROM ft;
FETCH LAST FROM s;
FETCH PRIOR FROM s;
FETCH ABSOLUTE 1 FROM s;
FETCH RELATIVE 2 FROM s;
MOVE BACKWARD ALL FROM s;
FETCH 1 FROM s;
DECLARE h CURSOR WITH HOLD FOR SELECT word FROM ft WHERE id > 1;
FETCH 1 FROM h;
COMMIT;
FETCH ALL FROM h;
CLOSE h;

-- Prepared statements: custom and generic plans, options changed in between.
PREPARE p(int) AS SELECT word FROM ft WHERE id = $1;
EXECUTE p(1);
EXECUTE p(1);
SET plan_cache_mode = force_generic_plan;
EXECUTE p(2);
SELECT plan_of('EXECUTE p(2)');
CALL write_file('other', E'2;deux\n');
SELECT data_path('other') AS other \gset
ALTER FOREIGN TABLE ft OPTIONS (SET filename :'other', SET header 'false', ADD delimiter ';');
EXECUTE p(2);
ALTER FOREIGN TABLE ft OPTIONS (DROP delimiter);
SELECT error_of('EXECUTE p(2)');
SELECT data_path('ft') AS file \gset
ALTER FOREIGN TABLE ft OPTIONS (SET filename :'file', SET header 'match');
EXECUTE p(3);
ALTER FOREIGN TABLE ft ADD COLUMN more int;
SELECT error_of('EXECUTE p(3)');
ALTER FOREIGN TABLE ft DROP COLUMN more;
EXECUTE p(4);
RESET plan_cache_mode;
DEALLOCATE p;

-- In functions: a loop that ends early, an error caught, a savepoint rolled back; the next scan works.
CREATE FUNCTION first_words(n int) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE r record;
BEGIN
	FOR r IN SELECT * FROM ft LOOP
		EXIT WHEN r.id > n;
		RETURN NEXT r.word;
	END LOOP;
END $$;
SELECT first_words(2);
CALL make_table('bad', 'id int', '', E'1\n2\nx\n4\n');
DO $$
DECLARE
	r record;
	seen int := 0;
BEGIN
	BEGIN
		FOR r IN SELECT id FROM bad LOOP seen := seen + 1; END LOOP;
	EXCEPTION WHEN invalid_text_representation THEN
		RAISE NOTICE 'seen %, ft still has %', seen, (SELECT count(*) FROM ft);
	END;
	RAISE NOTICE 'and bad has % lines', (SELECT count(*) FROM bad);
END $$;
BEGIN;
DECLARE kept CURSOR FOR SELECT id FROM ft;
FETCH 1 FROM kept;
SAVEPOINT s;
SELECT error_of('SELECT id FROM bad');
DECLARE gone CURSOR FOR SELECT id FROM ft;
FETCH 1 FROM gone;
ROLLBACK TO s;
FETCH 1 FROM kept;
FETCH 1 FROM gone;											-- ERROR
ROLLBACK;
SELECT count(*) FROM ft;
-- Many scans that are left open: their file descriptors are released.
SELECT sum((SELECT id FROM ft WHERE id > g % 4 LIMIT 1)) FROM generate_series(1, 3000) g;
DO $$ BEGIN FOR i IN 1..1500 LOOP BEGIN PERFORM id FROM bad; EXCEPTION WHEN data_exception THEN NULL; END; END LOOP; END $$;

SET client_min_messages = warning;
DROP SCHEMA fdw_query CASCADE;
