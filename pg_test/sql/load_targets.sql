--
-- Targets of a load: partitions, views, foreign tables, rules, triggers,
-- constraints; and the notes, or the error of the direct writer, for each.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_targets
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CALL write_file('f', E'1\tone\n2\ttwo\n3\tthree\n');
CREATE FUNCTION says(target text, options jsonb DEFAULT '{}', file text DEFAULT 'f') RETURNS SETOF text LANGUAGE sql AS $$
	SELECT error_of(format('SELECT * FROM bulk_load(%L, %L, %L)', data_path(file), target, options))
$$;
-- The error of the direct writer.
CREATE FUNCTION directly(target text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT says(target, '{"writer": "direct"}')
$$;

-- Temporary, unlogged, inherited, typed tables.
CREATE TEMPORARY TABLE temp_t (a int, b text);
CREATE UNLOGGED TABLE unlogged_t (a int, b text);
CREATE TABLE parent (a int, b text);
CREATE TABLE child (c int DEFAULT 5) INHERITS (parent);
CREATE TYPE row_type AS (a int, b text);
CREATE TABLE typed OF row_type (a PRIMARY KEY);
SELECT loaded FROM figures('f', 'temp_t');
SELECT loaded FROM figures('f', 'unlogged_t');
SELECT loaded FROM figures('f', 'parent');
SELECT loaded FROM figures('f', 'child', '{"columns": ["a", "b"]}');
SELECT loaded FROM figures('f', 'typed');
SELECT tableoid::regclass, * FROM parent ORDER BY 1, 2;
SELECT (SELECT count(*) FROM temp_t), (SELECT count(*) FROM unlogged_t), (SELECT count(*) FROM typed);

-- Partitions: the server routes the rows, with any order of columns in the partitions.
CREATE TABLE parts (a int, b text, g int GENERATED ALWAYS AS (a * 10) STORED) PARTITION BY RANGE (a);
CREATE TABLE part_low PARTITION OF parts FOR VALUES FROM (0) TO (2);
CREATE TABLE part_high (b text, gone int, g int GENERATED ALWAYS AS (a * 10) STORED, a int);
ALTER TABLE part_high DROP gone;
ALTER TABLE parts ATTACH PARTITION part_high FOR VALUES FROM (2) TO (100);
SELECT loaded FROM figures('f', 'parts', '{"writer": "buffered"}');
SELECT tableoid::regclass, * FROM parts ORDER BY a;
SELECT says('parts', '{"columns": ["a", "b"], "where": "a < 3", "truncate": true}');
SELECT tableoid::regclass, * FROM parts ORDER BY a;
CALL write_file('g', E'1\tone\n100\thundred\n');
SELECT says('parts', '{"writer": "buffered"}', 'g');
SELECT says('part_low', '{"writer": "buffered"}');
SELECT says('parts', '{"freeze": true, "writer": "buffered"}');

-- Views.
CREATE TABLE base (id serial, a int, b text DEFAULT 'base default');
CREATE VIEW simple AS SELECT a, b FROM base WHERE a < 3;
CREATE VIEW checked AS SELECT a, b FROM base WHERE a < 3 WITH CHECK OPTION;
CREATE VIEW joined AS SELECT x.a, y.b FROM base x JOIN base y USING (id);
SELECT * FROM figures('f', 'simple');
SELECT * FROM figures('f', 'simple', '{"columns": ["a", "b"], "where": "a > 1"}');
SELECT says('checked');
SELECT says('joined');
CALL write_file('g', E'7\n8\n');
SELECT loaded FROM figures('g', 'simple', '{"columns": ["a"]}');
SELECT loaded FROM figures('g', 'simple', '{"columns": ["a"], "where": "a > 7 AND b IS NULL"}');
TABLE base ORDER BY id;
CREATE FUNCTION instead() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.a = 2 THEN
		RETURN NULL;
	END IF;
	INSERT INTO base (a, b) VALUES (NEW.a, 'instead: ' || NEW.b);
	RETURN NEW;
END $$;
CREATE TRIGGER instead INSTEAD OF INSERT ON joined FOR EACH ROW EXECUTE FUNCTION instead();
TRUNCATE base;
SELECT * FROM figures('f', 'joined');
SELECT a, b FROM base ORDER BY id;
SELECT says('simple', '{"truncate": true}');
SELECT directly('simple');
SELECT directly('joined');

-- Foreign tables.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS postgres_fdw SCHEMA public;
RESET client_min_messages;
DO $$
BEGIN
	EXECUTE format('CREATE SERVER load_loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (dbname %L, host %L, port %L, batch_size ''2'')',
		current_database(), current_setting('unix_socket_directories'), current_setting('port'));
	EXECUTE format('CREATE USER MAPPING FOR CURRENT_USER SERVER load_loop OPTIONS (user %L)', current_user);
END $$;
CREATE TABLE remote (a int, b text CHECK (b <> 'three'));
CREATE FOREIGN TABLE foreign_t (a int, b text DEFAULT 'local') SERVER load_loop OPTIONS (schema_name 'load_targets', table_name 'remote');
SELECT * FROM figures('f', 'foreign_t', '{"limit": 2}');
SELECT * FROM remote ORDER BY a;
SELECT split_part(says, E'\n', 1) FROM says('foreign_t') WHERE says NOT LIKE 'CONTEXT: remote%';
SELECT directly('foreign_t');
-- The foreign table takes batches of two rows, and a trigger leaves one row out: the file of this row cannot be determined.
\! mkdir -p "$PGB_DATA/load_targets_files"
CALL write_file('load_targets_files/1', E'11\tx\n12\tx\n13\tx\n');
CALL write_file('load_targets_files/2', E'14\tx\n15\tx\n16\tx\n');
CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER leave_out BEFORE INSERT ON remote FOR EACH ROW WHEN (NEW.a = 15) EXECUTE FUNCTION leave_out();
SELECT load_id, rows_loaded, rows_filtered FROM bulk_load(data_path('load_targets_files'), 'foreign_t') \gset
SELECT right(path, 1), rows_read, rows_loaded, rows_filtered FROM bulk_load_files WHERE load_id = :load_id ORDER BY path;
SELECT :rows_loaded, :rows_filtered;
CREATE FOREIGN TABLE read_only (a int, b text) SERVER bulk_files OPTIONS (filename 'f');
SELECT says('read_only');

-- Targets that take no rows.
CREATE MATERIALIZED VIEW materialized AS SELECT 1 AS a, 'x' AS b;
CREATE SEQUENCE seq;
CREATE INDEX idx ON base (a);
SELECT says('materialized');
SELECT says('seq');
SELECT says('idx');
SELECT says('row_type');

-- Rules. COPY would ignore them.
CREATE TABLE ruled (a int, b text);
CREATE TABLE log (a int, b text, what text);
CREATE RULE also AS ON INSERT TO ruled DO ALSO INSERT INTO log VALUES (NEW.a, NEW.b, 'also');
SELECT * FROM figures('f', 'ruled');
SELECT says('ruled', '{"columns": ["a", "b"], "where": "a <> 2", "limit": 1, "skip": 1}');
TABLE ruled ORDER BY a, b;
TABLE log ORDER BY a, what;
-- The rule results in two statements, each of which reads the file.
SELECT * FROM error_of($$SELECT bulk_load('printf "4\\tfour\\n"', 'ruled', '{"program": true}')$$);
SELECT directly('ruled');
DROP RULE also ON ruled;
TRUNCATE ruled, log;
CREATE RULE instead AS ON INSERT TO ruled WHERE NEW.a = 2 DO INSTEAD INSERT INTO log VALUES (NEW.a, NEW.b, 'instead');
SELECT * FROM figures('f', 'ruled');
TABLE ruled ORDER BY a;
TABLE log ORDER BY a;
DROP RULE instead ON ruled;
-- A rule whose statement reads the rows once for each row of a set.
CREATE RULE crossing AS ON INSERT TO ruled DO INSTEAD INSERT INTO log SELECT NEW.a, NEW.b, 'n ' || n FROM generate_series(1, 2) n;
TRUNCATE ruled, log;
SELECT * FROM figures('f', 'ruled');
TABLE log ORDER BY a, what;
-- The same with a plan that rescans the rows.
TRUNCATE ruled, log;
SET enable_material = off;
SELECT * FROM figures('f', 'ruled');
RESET enable_material;
SELECT count(*), count(DISTINCT (a, what)) FROM log;
ALTER TABLE ruled DISABLE RULE crossing;
SELECT loaded, notes FROM figures('f', 'ruled', '{"writer": "buffered"}');
SELECT public.verify_heapam('ruled');

-- BEFORE triggers change rows and skip some.
CREATE TABLE triggered (a int, b text);
CREATE FUNCTION before_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.a = 2 THEN
		RETURN NULL;
	END IF;
	NEW.b := upper(NEW.b);
	RETURN NEW;
END $$;
CREATE TRIGGER before_row BEFORE INSERT ON triggered FOR EACH ROW EXECUTE FUNCTION before_row();
SELECT * FROM figures('f', 'triggered');
TABLE triggered ORDER BY a;
SELECT directly('triggered');
ALTER TABLE triggered DISABLE TRIGGER before_row;
SELECT loaded, notes FROM figures('f', 'triggered', '{"writer": "buffered"}');
DROP TRIGGER before_row ON triggered;
-- Errors in row triggers name a line, those in statement triggers do not: COPY's CONTEXT, and pg_bulk's.
CREATE FUNCTION complain() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_LEVEL = 'STATEMENT' OR NEW.a = 2 THEN
		RAISE 'no % %', TG_WHEN, TG_LEVEL;
	END IF;
	RETURN NEW;
END $$;
CREATE FUNCTION complaints(kind text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	copys text[];
	ours text[];
	writer text;
BEGIN
	EXECUTE format('CREATE TRIGGER complain %s EXECUTE FUNCTION complain()', kind);
	copys := ARRAY(SELECT error_of(format('COPY triggered FROM %L', data_path('f'))));
	FOREACH writer IN ARRAY ARRAY['buffered', 'auto'] LOOP
		ours := ARRAY(SELECT error_of(format('SELECT bulk_load(%L, ''triggered'', ''{"writer": "%s"}'')', data_path('f'), writer)));
		IF array_remove(ours, 'CONTEXT: file "PGB_DATA/f"') <> copys THEN
			RETURN QUERY SELECT writer || ': ' || unnest(ours);
			RETURN QUERY SELECT 'COPY: ' || unnest(copys);
		END IF;
	END LOOP;
	RETURN QUERY SELECT unnest(ours);
	DROP TRIGGER complain ON triggered;
END $$;
SELECT complaints('BEFORE INSERT ON triggered FOR EACH STATEMENT');
SELECT complaints('BEFORE INSERT ON triggered FOR EACH ROW');
SELECT complaints('AFTER INSERT ON triggered FOR EACH ROW');
SELECT complaints('AFTER INSERT ON triggered FOR EACH STATEMENT');
-- Transition tables.
CREATE FUNCTION summary() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO log SELECT count(*), string_agg(b, ' ' ORDER BY a), TG_WHEN FROM fresh;
	RETURN NULL;
END $$;
CREATE TRIGGER summary AFTER INSERT ON triggered REFERENCING NEW TABLE AS fresh EXECUTE FUNCTION summary();
TRUNCATE log;
SELECT * FROM figures('f', 'triggered');
TABLE log;
SELECT directly('triggered');
-- A trigger of one partition.
CREATE TRIGGER before_row BEFORE INSERT ON part_high FOR EACH ROW EXECUTE FUNCTION before_row();
TRUNCATE parts;
SELECT * FROM figures('f', 'parts');
TABLE parts ORDER BY a;
SELECT directly('parts');

-- Keys. Each load reports a violation when COPY does.
CREATE TABLE keyed (a int PRIMARY KEY, b text);
SELECT says('keyed', '{"writer": "buffered"}');
SELECT says('keyed', '{"writer": "buffered"}');
CREATE TABLE deferrable_t (a int UNIQUE DEFERRABLE INITIALLY DEFERRED, b text);
CALL write_file('g', E'1\tone\n1\tanother\n');
BEGIN;
SELECT * FROM figures('g', 'deferrable_t');
SAVEPOINT s;
SET CONSTRAINTS ALL IMMEDIATE;
ROLLBACK TO s;
DELETE FROM deferrable_t WHERE b = 'another';
COMMIT;
CREATE TABLE excluding (a int, b text, EXCLUDE USING btree (a WITH =));
SELECT says('excluding', '{}', 'g');
CREATE TABLE referring (a int REFERENCES keyed, b text);
SELECT says('referring', '{}', 'f');
CALL write_file('g', E'1\tone\n9\tnine\n');
SELECT says('referring', '{}', 'g');
SELECT count(*) FROM referring;

-- Other reasons against the direct writer.
CREATE ACCESS METHOD load_heap TYPE TABLE HANDLER heap_tableam_handler;
CREATE TABLE other_method (a int, b text) USING load_heap;
SELECT * FROM figures('f', 'other_method');
SELECT directly('other_method');
CREATE TABLE user_catalog (a int, b text) WITH (user_catalog_table);
SELECT * FROM figures('f', 'user_catalog');
SELECT directly('user_catalog');
SELECT directly('pg_catalog.pg_am');
SELECT pg_replication_origin_create('load_targets') > 0;
SELECT pg_replication_origin_session_setup('load_targets');
SELECT notes FROM figures('f', 'keyed', '{"limit": 0}');
SELECT directly('keyed');
SELECT pg_replication_origin_session_reset();
SELECT pg_replication_origin_drop('load_targets');
-- An index access method that is not one of core's.
SET client_min_messages = error;
CREATE EXTENSION bloom;
RESET client_min_messages;
CREATE TABLE other_index (r int, t text);
CREATE INDEX ON other_index USING bloom (r);
SELECT loaded, writer, notes FROM figures('f', 'other_index');
SELECT directly('other_index');
SET enable_seqscan = off;
SELECT count(*) FROM other_index WHERE r = 1;
RESET enable_seqscan;
DROP TABLE other_index;
DROP EXTENSION bloom;
-- A replaced row is an UPDATE, which a publication without a replica identity cannot publish.
CREATE TABLE published (r int UNIQUE, t text);
SET client_min_messages = error;
CREATE PUBLICATION load_targets FOR TABLE published WITH (publish = 'update');
RESET client_min_messages;
INSERT INTO published VALUES (1, 'there');
SELECT says('published', '{"on_duplicate": "keep_new"}');
ALTER TABLE published REPLICA IDENTITY FULL;
SELECT loaded FROM figures('f', 'published', '{"on_duplicate": "keep_new"}');
SELECT * FROM published WHERE r = 1;
DROP TABLE published;
DROP PUBLICATION load_targets;

-- A table that Citus distributes. Here another extension is renamed to citus.
BEGIN;
SET LOCAL allow_system_table_mods = on;
CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass, partmethod "char");
INSERT INTO pg_dist_partition VALUES ('keyed', 'h');
ALTER EXTENSION amcheck ADD TABLE pg_catalog.pg_dist_partition;
UPDATE pg_extension SET extname = 'citus' WHERE extname = 'amcheck';
SELECT says('keyed');
SELECT says('keyed', '{"writer": "buffered"}');
SELECT loaded FROM figures('f', 'other_method');
ROLLBACK;

-- Names that need quotes, and a column with the name of the row in pg_bulk's own statement.
CREATE SCHEMA "Load ""Targets""";
CREATE TABLE "Load ""Targets"""."The table" (r int, "Col ""x""" text, f text);
CALL write_file('g', E'1\tone\tx\n');
SELECT loaded FROM figures('g', '"Load ""Targets"""."The table"', '{"writer": "buffered", "where": "r = 1", "truncate": true, "analyze": true}');
SELECT * FROM "Load ""Targets"""."The table";
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA load_targets, "Load ""Targets""" CASCADE;
DROP SERVER load_loop CASCADE;
DROP ACCESS METHOD load_heap;
