--
-- Triggers and foreign keys of loaded tables. The triggers that fire, their order, the rows they see, and errors of foreign keys are
-- those of COPY, whether keys are checked row by row or together.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_triggers
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CALL write_file('three', E'3\tthree\n1\tone\n2\ttwo\n');
CREATE TABLE log (n serial, line text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	rows bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM %I', TG_ARGV[0]) INTO rows;
	INSERT INTO log (line) VALUES (concat_ws(' ', TG_NAME, TG_WHEN, TG_LEVEL, TG_TABLE_NAME, CASE TG_LEVEL WHEN 'ROW' THEN NEW::text END, rows));
	RETURN NULL;
END $$;
-- The log of a load, shown once if it equals that of COPY; else both. A deferred trigger's lines come last.
CREATE FUNCTION fired(target text, file text DEFAULT 'three', options jsonb DEFAULT '{"writer": "direct"}') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	copys text[];
	ours text[];
BEGIN
	TRUNCATE log RESTART IDENTITY;
	BEGIN
		copys := ARRAY(SELECT error_of(format('COPY %s FROM %L', target, data_path(file))));
		SET CONSTRAINTS ALL IMMEDIATE;
		copys := copys || ARRAY(SELECT line FROM log ORDER BY n);
		RAISE SQLSTATE 'UNDO0';
	EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
	END;
	BEGIN
		ours := ARRAY(SELECT error_of(format('SELECT bulk_load(%L, %L, %L)', data_path(file), target, options)));
		SET CONSTRAINTS ALL IMMEDIATE;
		ours := ours || ARRAY(SELECT line FROM log ORDER BY n);
		RAISE SQLSTATE 'UNDO0';
	EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
	END;
	RETURN QUERY SELECT unnest(ours);
	IF copys <> ours THEN
		RETURN QUERY SELECT 'COPY: ' || unnest(copys);
	END IF;
END $$;

-- Order, visible rows, conditions, triggers disabled in each way.
CREATE TABLE t (a int PRIMARY KEY, b text, c int GENERATED ALWAYS AS (a * 2) STORED);
CREATE TRIGGER z_after AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION note('t');
CREATE TRIGGER after AFTER INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION note('t');
CREATE TRIGGER statement_before BEFORE INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION note('t');
CREATE TRIGGER statement_after AFTER INSERT ON t EXECUTE FUNCTION note('t');
SELECT fired('t');
CREATE TRIGGER middle AFTER INSERT ON t FOR EACH ROW WHEN (NEW.a > 1 AND NEW.c < 6) EXECUTE FUNCTION note('t');
CREATE TRIGGER whole AFTER INSERT ON t FOR EACH ROW WHEN (NEW = ROW (1, 'one', 2)::t AND NEW.tableoid = 't'::regclass) EXECUTE FUNCTION note('t');
CREATE TRIGGER no AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION note('t');
ALTER TABLE t DISABLE TRIGGER no, DISABLE TRIGGER after, DISABLE TRIGGER z_after;
SELECT fired('t');
ALTER TABLE t ENABLE ALWAYS TRIGGER whole, ENABLE REPLICA TRIGGER no;
SET session_replication_role = replica;
SELECT fired('t');
SET session_replication_role = local;
SELECT fired('t');
RESET session_replication_role;
-- Constraint triggers, immediate and deferred.
CREATE TABLE deferred (a int, b text);
CREATE CONSTRAINT TRIGGER later AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note('deferred');
CREATE CONSTRAINT TRIGGER now AFTER INSERT ON deferred DEFERRABLE FOR EACH ROW WHEN (NEW.a <> 1) EXECUTE FUNCTION note('deferred');
CREATE TRIGGER statement AFTER INSERT ON deferred EXECUTE FUNCTION note('deferred');
SELECT fired('deferred');
-- Partitions: each one has the parent's trigger, and may have its own; rows are in the partition's column order.
CREATE TABLE parts (a int, b text) PARTITION BY RANGE (a);
CREATE TABLE part_low (b text, gone int, a int);
ALTER TABLE part_low DROP gone;
ALTER TABLE parts ATTACH PARTITION part_low FOR VALUES FROM (0) TO (3);
CREATE TABLE part_high PARTITION OF parts FOR VALUES FROM (3) TO (9);
CREATE TRIGGER everywhere AFTER INSERT ON parts FOR EACH ROW WHEN (NEW.b <> 'one') EXECUTE FUNCTION note('parts');
CREATE TRIGGER only_low AFTER INSERT ON part_low FOR EACH ROW EXECUTE FUNCTION note('parts');
CREATE TRIGGER statement AFTER INSERT ON parts EXECUTE FUNCTION note('parts');
CREATE TRIGGER not_fired AFTER INSERT ON part_low EXECUTE FUNCTION note('parts');
SELECT array_agg(fired ORDER BY fired) FROM (SELECT fired('parts')) s WHERE fired NOT LIKE 'COPY: %';
SELECT count(*) FROM (SELECT fired('parts')) s WHERE fired LIKE 'COPY: %' AND substr(fired, 7) NOT IN (SELECT fired('parts'));
-- Errors keep their fields.
CREATE FUNCTION complain() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.a = 1 THEN
		RAISE 'one' USING ERRCODE = '23514', DETAIL = 'a detail', HINT = 'a hint', CONSTRAINT = 'a constraint', TABLE = 'a table';
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER complain AFTER INSERT ON deferred FOR EACH ROW EXECUTE FUNCTION complain();
SELECT fired('deferred');
CREATE FUNCTION fields(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	t text; k text; s text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS s = SCHEMA_NAME, t = TABLE_NAME, k = CONSTRAINT_NAME;
	RETURN concat_ws(' | ', SQLSTATE, SQLERRM, s, t, k);
END $$;
SELECT fields($$SELECT bulk_load(data_path('three'), 'deferred')$$);
DROP TRIGGER complain ON deferred;
CREATE FUNCTION divide(a int) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN 1 / (a - 1) > 0; END';
CREATE TRIGGER divide AFTER INSERT ON deferred FOR EACH ROW WHEN (divide(NEW.a)) EXECUTE FUNCTION note('deferred');
-- A condition that calls anything but built-in immutable functions: the executor evaluates it with each row.
SELECT fired('deferred');
SELECT fired('deferred', options => '{}');
DROP TRIGGER divide ON deferred;
CREATE FUNCTION lies(a int) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT a > 0';
CREATE TRIGGER lies AFTER INSERT ON deferred FOR EACH ROW WHEN (lies(NEW.a)) EXECUTE FUNCTION note('deferred');
SELECT fired('deferred');
DROP TRIGGER lies ON deferred;
CREATE TRIGGER computes AFTER INSERT ON deferred FOR EACH ROW WHEN (abs(NEW.a) > 0) EXECUTE FUNCTION note('deferred');
SELECT fired('deferred');
DROP TRIGGER computes ON deferred;
-- Triggers that run a load, and triggers that change loaded rows.
CREATE TABLE copies (LIKE deferred);
CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM bulk_load(data_path('three'), 'copies', '{"where": "a > 1"}');
	UPDATE t SET b = b || ' changed' WHERE a = NEW.a;
	DELETE FROM t WHERE a = 2;
	RETURN NULL;
END $$;
ALTER TABLE t DISABLE TRIGGER USER;
CREATE TRIGGER again AFTER INSERT ON t FOR EACH ROW WHEN (NEW.a <= 2) EXECUTE FUNCTION again();
SELECT loaded, writer FROM figures('three', 't');
SELECT a, b, c FROM t ORDER BY a;
SELECT a, count(*) FROM copies GROUP BY a ORDER BY a;
SELECT public.verify_heapam('t');
SELECT public.bt_index_parent_check('t_pkey', true, true);

-- Foreign keys. Few rows are checked one by one, many rows in one query if all are valid. Errors equal COPY's in both cases.
CREATE DOMAIN code AS varchar(20);
CREATE TABLE parent (id int PRIMARY KEY, code text UNIQUE, n numeric UNIQUE, x int, "Y z" text, UNIQUE (x, "Y z"));
INSERT INTO parent SELECT i, 'c' || i, i, i % 10, 'y' || i / 10 FROM generate_series(1, 200) i;
-- `rows` valid lines, and a last one.
CREATE FUNCTION lines(rows int, last text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(CASE WHEN i % 50 = 0 THEN E'\\N\t\\N\t\\N\t\\N\t\\N\t\\N'
		ELSE concat_ws(E'\t', k, 'c' || k, k || '.' || repeat('0', i % 3), k, k % 10, 'y' || k / 10) END, E'\n') || E'\n' || last || E'\n'
	FROM generate_series(1, rows) i, LATERAL (SELECT 1 + i * 7 % 199 AS k) k
$$;
CREATE FUNCTION good() RETURNS text LANGUAGE sql AS $$SELECT E'5\tc5\t5\t5\t5\ty0'$$;
-- The lookups of rows of `parent`: at most one for each of its rows, or about one for each loaded row.
CREATE FUNCTION keyed(columns text) RETURNS SETOF text LANGUAGE plpgsql SET client_min_messages = warning AS $$
DECLARE
	rows int;
	last text;
	copys text[];
	ours text[];
	lookups bigint;
	how text;
BEGIN
	FOREACH rows IN ARRAY ARRAY[10, 1400] LOOP
		how := '';
		FOREACH last IN ARRAY ARRAY[good(), E'999\tc999\t999\t999\t9\ty99', E'\\N\t\\N\t\\N\t\\N\t5\t\\N'] LOOP
			CALL write_file('keys', lines(rows, last));
			DROP TABLE IF EXISTS child;
			EXECUTE format('CREATE TABLE child (%s)', columns);
			copys := ARRAY(SELECT error_of(format('COPY child FROM %L', data_path('keys'))));
			TRUNCATE child;
			SELECT coalesce(sum(idx_scan + seq_scan), 0) INTO lookups FROM pg_stat_xact_user_tables WHERE relid = 'parent'::regclass;
			ours := ARRAY(SELECT error_of(format('SELECT bulk_load(%L, ''child'', ''{"writer": "direct"}'')', data_path('keys'))));
			SELECT coalesce(sum(idx_scan + seq_scan), 0) - lookups INTO lookups FROM pg_stat_xact_user_tables WHERE relid = 'parent'::regclass;
			IF last = good() THEN
				how := CASE WHEN lookups < 400 THEN 'few' ELSE 'many' END || ' lookups for ' || rows || ' rows';
			END IF;
			IF ours <> copys THEN
				RETURN QUERY SELECT 'COPY: ' || unnest(copys);
			END IF;
			RETURN QUERY SELECT unnest(ours);
		END LOOP;
		RETURN NEXT how;
	END LOOP;
END $$;
SELECT keyed('a int REFERENCES parent, b text, c numeric, d bigint, x int, y text');
SELECT keyed('a int, b code REFERENCES parent (code), c numeric, d bigint, x int, y text');
SELECT keyed('a int, b text, c numeric REFERENCES parent (n), d bigint REFERENCES parent, x int, y text');
SELECT keyed('a int, b text, c numeric, d bigint, x smallint, y varchar, FOREIGN KEY (y, x) REFERENCES parent ("Y z", x)');
SELECT keyed('a int, b text, c numeric, d bigint, x int, y text, CONSTRAINT "Full" FOREIGN KEY (x, y) REFERENCES parent (x, "Y z") MATCH FULL');
-- Cases that are always checked row by row.
SELECT keyed('a int REFERENCES parent DEFERRABLE, b text, c numeric, d bigint, x int, y text');
SET session_replication_role = replica;
SELECT keyed('a int REFERENCES parent, b text, c numeric, d bigint, x int, y text');
RESET session_replication_role;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT keyed('a int REFERENCES parent, b text, c numeric, d bigint, x int, y text');
COMMIT;

CALL write_file('keys', lines(1400, good()));
-- A self-referencing table, where rows refer to later ones and to themselves.
CREATE FUNCTION tree(rows int, last text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(i || E'\t' || CASE WHEN i % 100 = 0 THEN i ELSE 1 + i * 31 % rows END, E'\n') || E'\n' || last || E'\n' FROM generate_series(1, rows) i
$$;
CALL write_file('tree', tree(3000, E'3001\t2999'));
CALL write_file('broken', tree(3000, E'3001\t4000'));
CREATE TABLE tree (a int PRIMARY KEY, up int REFERENCES tree);
INSERT INTO tree VALUES (0, NULL);
SELECT loaded, writer FROM figures('tree', 'tree');
SELECT count(*), count(up) FROM tree;
SELECT error_of($$SELECT bulk_load(data_path('broken'), 'tree', '{"truncate": true}')$$);
SELECT loaded FROM figures('tree', 'tree', '{"truncate": true, "indexes": "rebuild"}');
SELECT public.verify_heapam('tree'), public.bt_index_parent_check('tree_pkey', true, true);
-- Referencing partitions, and referenced partitions.
CREATE TABLE many (a int REFERENCES parent, b text, c numeric, d bigint, x int, y text) PARTITION BY LIST (x);
CREATE TABLE many_0 PARTITION OF many FOR VALUES IN (0, 1, 2, 3, 4, NULL);
CREATE TABLE many_5 PARTITION OF many DEFAULT;
SELECT loaded, writer FROM figures('keys', 'many');
CALL write_file('bad', lines(1400, E'999\tc999\t999\t999\t7\ty99'));
SELECT error_of($$SELECT bulk_load(data_path('bad'), 'many')$$);
CREATE TABLE kinds (a int PRIMARY KEY) PARTITION BY RANGE (a);
CREATE TABLE kinds_low PARTITION OF kinds FOR VALUES FROM (0) TO (100);
CREATE TABLE kinds_high PARTITION OF kinds FOR VALUES FROM (100) TO (300);
INSERT INTO kinds SELECT id FROM parent;
CREATE TABLE of_kind (a int REFERENCES kinds, b text, c numeric, d bigint, x int, y text);
SELECT loaded, writer FROM figures('keys', 'of_kind');
SELECT error_of($$SELECT bulk_load(data_path('bad'), 'of_kind')$$);
-- Rows of child tables cannot be referenced.
CREATE TABLE child_of_parent () INHERITS (parent);
INSERT INTO child_of_parent (id) VALUES (999);
CREATE TABLE referring (a int REFERENCES parent, b text, c numeric, d bigint, x int, y text);
SELECT error_of($$SELECT bulk_load(data_path('bad'), 'referring')$$);
-- A key with two rows, so that the planner must not assume uniqueness, does not count for another key that is missing.
CREATE TABLE twice (id int PRIMARY KEY);
INSERT INTO twice SELECT id FROM ONLY parent;
CREATE TABLE of_twice (a int REFERENCES twice, b text, c numeric, d bigint, x int, y text);
UPDATE pg_index SET indisready = false, indisvalid = false WHERE indexrelid = 'twice_pkey'::regclass;
INSERT INTO twice VALUES (5);
SELECT error_of($$SELECT bulk_load(data_path('bad'), 'of_twice')$$);
SELECT loaded, writer FROM figures('keys', 'of_twice');
-- A trigger that inserts the missing row before the check.
CREATE FUNCTION supply() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO parent (id) VALUES (NEW.a) ON CONFLICT DO NOTHING;
	RETURN NULL;
END $$;
CREATE TRIGGER "A first" AFTER INSERT ON referring FOR EACH ROW WHEN (NEW.a > 900) EXECUTE FUNCTION supply();
SELECT loaded, writer FROM figures('bad', 'referring');
SELECT count(*) FROM referring WHERE a NOT IN (SELECT id FROM ONLY parent);
-- A trigger that would raise an error after the check.
DROP TRIGGER "A first" ON referring;
CREATE FUNCTION too_late() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''too late''; END';
CREATE TRIGGER "Z last" AFTER INSERT ON referring FOR EACH ROW WHEN (NEW.a > 900) EXECUTE FUNCTION too_late();
DELETE FROM referring;
DELETE FROM ONLY parent WHERE id > 900;
SELECT error_of($$SELECT bulk_load(data_path('bad'), 'referring')$$);
-- A deferred key: checked at the end, for rows that still exist.
CREATE TABLE patient (a int REFERENCES parent DEFERRABLE INITIALLY DEFERRED, b text, c numeric REFERENCES parent (n), d bigint, x int, y text);
CALL write_file('worse', lines(1400, E'998\tc998\t8\t998\t7\ty99'));
BEGIN;
SELECT loaded FROM figures('worse', 'patient');
DELETE FROM patient WHERE a = 998;
COMMIT;
BEGIN;
SELECT loaded FROM figures('worse', 'patient');
COMMIT;
SELECT count(*) FROM patient;
-- The check runs as the owner of the referenced table, not as the loader; policies do not hide rows from it.
CREATE ROLE load_triggers_owner;
CREATE ROLE load_triggers_user;
GRANT USAGE ON SCHEMA load_triggers TO load_triggers_owner, load_triggers_user;
GRANT pg_read_server_files TO load_triggers_user;
CREATE TABLE hidden (LIKE parent INCLUDING ALL);
INSERT INTO hidden SELECT * FROM ONLY parent;
ALTER TABLE hidden OWNER TO load_triggers_owner;
ALTER TABLE hidden ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE TABLE seeking (a int REFERENCES hidden, b text, c numeric, d bigint, x int, y text);
GRANT INSERT ON seeking TO load_triggers_user;
CALL write_file('bad', lines(1400, E'997\tc997\t997\t997\t7\ty99'));
SET ROLE load_triggers_user;
SELECT loaded, writer FROM figures('keys', 'seeking');
SELECT error_of($$SELECT bulk_load(data_path('bad'), 'seeking')$$);
SELECT current_user, current_setting('work_mem'), current_setting('jit');
RESET ROLE;
REVOKE SELECT ON hidden FROM load_triggers_owner;
SELECT error_of($$SELECT bulk_load(data_path('keys'), 'seeking')$$);
SELECT current_user, current_setting('jit');
-- A trigger replaces an error by one with the same message: the load raises the latter, with its DETAIL and HINT.
CREATE TABLE replaced (n int, word text);
CREATE FUNCTION replace_error() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM 1 / 0;
	RETURN NULL;
EXCEPTION WHEN division_by_zero THEN
	RAISE EXCEPTION '%', SQLERRM USING ERRCODE = SQLSTATE, DETAIL = 'Batch 7.', HINT = 'Mend it.';
END $$;
CREATE TRIGGER replaced AFTER INSERT ON replaced FOR EACH ROW EXECUTE FUNCTION replace_error();
\set SHOW_CONTEXT never
SELECT bulk_load(data_path('three'), 'replaced', '{"writer": "direct"}');
SELECT bulk_load(data_path('three'), 'replaced', '{"writer": "buffered"}');
-- A trigger swallows an error, and the same one is raised again elsewhere: the load shows the latter's CONTEXT, as COPY does.
CREATE TABLE swallowed (n int, word text);
CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM 1 / (NEW.n - NEW.n);
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
	RETURN NULL;
END $$;
CREATE FUNCTION divide() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM 1 / (NEW.n - NEW.n);
	RETURN NULL;
END $$;
CREATE TRIGGER a AFTER INSERT ON swallowed FOR EACH ROW EXECUTE FUNCTION swallow();
CREATE TRIGGER b AFTER INSERT ON swallowed FOR EACH ROW EXECUTE FUNCTION divide();
\set SHOW_CONTEXT always
SELECT bulk_load(data_path('three'), 'swallowed', '{"writer": "direct"}');
COPY swallowed FROM PROGRAM 'echo 1,one' WITH (FORMAT csv);
\set SHOW_CONTEXT errors
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA load_triggers CASCADE;
DROP ROLE load_triggers_owner, load_triggers_user;
