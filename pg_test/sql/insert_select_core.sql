--
-- INSERT … SELECT from a foreign table, for the topics of core's own tests of INSERT: columns, types, constraints,
-- triggers, rules, views, statements around it. Each runs as a load and by core, with equal results.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set insert_helpers :data '/insert_helpers.sql'
\set schema insert_select_core
\i :helpers
\i :insert_helpers
\pset tuples_only
\pset format unaligned
\set ECHO all

-- Defaults and lists of columns.
CREATE TABLE t (id int, word text DEFAULT 'testing', day date NOT NULL DEFAULT '1999-09-09', n int);
SELECT any_way('INSERT INTO t (id) SELECT id FROM twelve');
SELECT either_way('INSERT INTO t (id, day) SELECT id, day FROM twelve');
SELECT either_way('INSERT INTO t (n, id, word) SELECT n, id, NULL FROM ft');
SELECT either_way('INSERT INTO t (n, id, word) SELECT n, id, ''testing'' FROM ft');
SELECT either_way('INSERT INTO t (id, word) SELECT id FROM ft');
SELECT either_way('INSERT INTO t (id) SELECT id, word FROM ft');
SELECT either_way('INSERT INTO t (id, id) SELECT id, n FROM ft');
SELECT either_way('INSERT INTO t (id, nothing) SELECT id, n FROM ft');
SELECT either_way('INSERT INTO t (id) SELECT word FROM ft');
SELECT either_way('INSERT INTO t (id) SELECT day FROM ft');
SELECT either_way('INSERT INTO t SELECT');
ALTER TABLE t ALTER day DROP DEFAULT, ALTER day DROP NOT NULL, ADD later int DEFAULT 8, DROP word;
SELECT either_way('INSERT INTO t SELECT id, day, n FROM ft');
ALTER TABLE t ALTER later SET DEFAULT 9, ADD word varchar(4), ADD CHECK (n < 100);
SELECT either_way('INSERT INTO t (id, word) SELECT id, word FROM ft');
SELECT either_way('INSERT INTO t (id, word) SELECT id, word::varchar(4) FROM ft');
SELECT any_way('INSERT INTO t (id, n) SELECT id, n FROM twelve');
SELECT either_way('INSERT INTO t (id, n) SELECT id, n FROM twelve WHERE n < 100');
ALTER TABLE t DROP later;
SELECT either_way('INSERT INTO t TABLE ft');
SELECT either_way('INSERT INTO t (n, day, id) SELECT n, day, id FROM ft');

-- A default that is NULL by the column or by the domain, and the default of a domain.
CREATE DOMAIN seven AS int DEFAULT 7 CHECK (value > 5);
CREATE DOMAIN never_null AS text NOT NULL;
CREATE DOMAIN short AS varchar(3);
CREATE TABLE domains (id int, a seven, b seven DEFAULT 6, c seven DEFAULT NULL);
SELECT either_way('INSERT INTO domains (id) SELECT id FROM ft', 'domains');
SELECT either_way('INSERT INTO domains (id, a, b) SELECT id, n, 9 FROM ft', 'domains');
SELECT either_way('INSERT INTO domains (id, a) SELECT id, id FROM ft', 'domains');
SELECT any_way('INSERT INTO domains (a) SELECT id FROM twelve WHERE id > 5', 'domains');
SELECT any_way('INSERT INTO domains (a) SELECT 11 - id FROM twelve', 'domains');
ALTER TABLE domains ADD d never_null DEFAULT 'd', ADD e short;
SELECT either_way('INSERT INTO domains (id, d) SELECT id, word FROM ft', 'domains');
SELECT either_way('INSERT INTO domains (id, d) SELECT id, word FROM ft WHERE word IS NOT NULL', 'domains');
SELECT either_way('INSERT INTO domains (id, e) SELECT id, word FROM ft', 'domains');
SELECT either_way('INSERT INTO domains (id, e) SELECT id, word::varchar(3) FROM ft', 'domains');
ALTER TABLE domains ALTER d DROP DEFAULT;
SELECT either_way('INSERT INTO domains (id) SELECT id FROM ft', 'domains');
SELECT either_way('INSERT INTO domains (id) SELECT id FROM ft WHERE id > 3', 'domains');

-- Subscripts and fields, and domains over them, which are checked when the value is built.
CREATE TYPE pair AS (a int, b text[]);
CREATE DOMAIN positive AS int[] CHECK (value[1] > 1);
CREATE DOMAIN proper AS pair CHECK ((value).b[1] IS NOT NULL);
CREATE TABLE parts (f1 int, f2 int[], f3 pair, f4 pair[], f5 positive);
CREATE TABLE proper_parts (f6 proper, f7 proper[]);
SELECT either_way('INSERT INTO parts (f2[1], f2[2]) SELECT id, n FROM ft', 'parts');
SELECT any_way('INSERT INTO parts (f3.a, f3.b) SELECT id, ARRAY[word, ''x''] FROM twelve', 'parts');
SELECT either_way('INSERT INTO parts (f1, f3.b[1], f3.b[2]) SELECT id, word, day FROM ft', 'parts');
SELECT either_way('INSERT INTO parts (f4[1].b[1], f4[1].b[2], f4[2].a) SELECT word, id, n FROM ft', 'parts');
SELECT either_way('INSERT INTO parts (f5[1], f5[2]) SELECT n, id FROM ft', 'parts');
SELECT either_way('INSERT INTO parts (f5[1], f5[2]) SELECT id, n FROM ft', 'parts');
SELECT either_way('INSERT INTO proper_parts (f6.a, f6.b) SELECT id, ARRAY[word] FROM ft', 'proper_parts');
SELECT either_way('INSERT INTO proper_parts (f6, f7[1].b[1]) SELECT ROW(1, ARRAY[day::text])::proper, word FROM ft', 'proper_parts');
SELECT either_way('INSERT INTO proper_parts (f6, f7[1].b[1]) SELECT ROW(1, ARRAY[day::text])::proper, id FROM ft', 'proper_parts');
CALL make_table('pieces', 'f1 int, f2 int[], f3 pair, f5 positive, f6 proper', $$delimiter '|'$$,
	E'1|{1,2}|(1,"{a,b}")|{2,3}|(1,{x})\n2|{}|(,)|\\N|(2,{y})\n3|\\N|\\N|{4}|(3,{z})\n');
SELECT either_way('INSERT INTO parts (f1, f2, f3, f5) SELECT f1, f2, f3, f5 FROM pieces', 'parts');
SELECT either_way('INSERT INTO parts (f1, f2, f3) SELECT (f3).a, f2[1:1] || f1, f6::pair FROM pieces', 'parts');
SELECT either_way('INSERT INTO proper_parts (f6) SELECT f6 FROM pieces', 'proper_parts');
SELECT either_way('INSERT INTO parts (f5) SELECT f2 FROM pieces', 'parts');
CALL write_file('pieces', E'1|{1,2}|(1,"{a,b}")|{2,3}|(1,{x})\n2|{}|(,)|{1}|(2,{y})\n');
SELECT either_way('INSERT INTO parts (f1, f2) SELECT f1, f2 FROM pieces', 'parts');
SELECT either_way('INSERT INTO parts (f1, f5) SELECT f1, f5 FROM pieces', 'parts');

-- A function that inspects a value's storage gets the same answer.
CREATE TABLE looks (word text, size int, kind text, same bool);
SELECT either_way('INSERT INTO looks SELECT word, pg_column_size(word), pg_typeof(day), word IS NOT DISTINCT FROM ft.word FROM ft', 'looks');
SELECT either_way('INSERT INTO looks SELECT rpad(word, 3000, ''x''), pg_column_size(rpad(word, 3000, ''x'')) FROM ft WHERE id = 1', '(SELECT length(word), size FROM looks)');

-- Large rows, and a fillfactor of 10.
CREATE TABLE large (a int, b text) WITH (fillfactor = 10);
ALTER TABLE large ALTER b SET STORAGE plain;
SELECT either_way('INSERT INTO large SELECT id, CASE id WHEN 2 THEN repeat(''a'', 8126) WHEN 3 THEN repeat(''b'', 1000) END FROM ft', '(SELECT a, length(b), (ctid::text::point)[0] - min((ctid::text::point)[0]) OVER () AS page FROM large)');
SELECT either_way('INSERT INTO large SELECT id, repeat(''a'', 8000 + 100 * id) FROM ft', '(SELECT a FROM large)');
CREATE TABLE toasted (a int, b text);
ALTER TABLE toasted ALTER b SET STORAGE external;
SELECT any_way('INSERT INTO toasted SELECT id, repeat(word, 1000) FROM twelve', '(SELECT a, md5(b), pg_column_size(b) FROM toasted)');

-- Identity columns.
CREATE TABLE identities (a int GENERATED BY DEFAULT AS IDENTITY, b text);
CREATE TABLE always (a bigint GENERATED ALWAYS AS IDENTITY (START 7 INCREMENT 5), b text);
CREATE TABLE down (a smallint GENERATED BY DEFAULT AS IDENTITY (INCREMENT -1 START 1 MINVALUE -1 MAXVALUE 1), b text);
SELECT either_way('INSERT INTO identities (b) SELECT word FROM ft', 'identities');
SELECT either_way('INSERT INTO identities SELECT id, word FROM ft', 'identities');
SELECT either_way('INSERT INTO identities OVERRIDING USER VALUE SELECT n, word FROM ft', 'identities');
SELECT either_way('INSERT INTO identities OVERRIDING SYSTEM VALUE SELECT n, word FROM ft WHERE n > 0', 'identities');
SELECT either_way('INSERT INTO identities SELECT n, word FROM ft', 'identities');
SELECT either_way('INSERT INTO always (b) SELECT word FROM ft', 'always');
SELECT either_way('INSERT INTO always SELECT id, word FROM ft', 'always');
SELECT either_way('INSERT INTO always OVERRIDING USER VALUE SELECT id, word FROM ft', 'always');
SELECT either_way('INSERT INTO always OVERRIDING SYSTEM VALUE SELECT id, word FROM ft', 'always');
SELECT either_way('INSERT INTO down (b) SELECT word FROM ft WHERE id < 2', 'down');
SELECT either_way('INSERT INTO down (b) SELECT word FROM ft', 'down');
SELECT either_way('INSERT INTO down (b) SELECT word FROM twelve', 'down');
SELECT setval('down_a_seq', 1, false);
CREATE TABLE serials (a smallserial, b serial, c bigserial, d text);
SELECT either_way('INSERT INTO serials (d) SELECT word FROM ft', 'serials');
SELECT either_way('INSERT INTO serials (b, d) SELECT n, word FROM ft WHERE id = 3', 'serials');
SELECT either_way('INSERT INTO serials (b, d) SELECT n, word FROM ft', 'serials');
CREATE TABLE tight (id int GENERATED ALWAYS AS IDENTITY (MAXVALUE 7), n int);
SELECT any_way('INSERT INTO tight (n) SELECT id FROM twelve WHERE id > 6', 'tight');
SELECT any_way('INSERT INTO tight (n) SELECT id FROM twelve WHERE id > 4', 'tight');
ALTER SEQUENCE serials_a_seq CACHE 10;
SELECT either_way('INSERT INTO serials (d) SELECT word FROM ft WHERE id = 3', 'serials');
DROP TABLE serials;
-- Columns that share one sequence, and expressions that use it, too.
CREATE SEQUENCE turns;
CREATE TABLE alternating (a int DEFAULT nextval('turns'), b int DEFAULT nextval('turns'), c text);
SELECT either_way('INSERT INTO alternating (c) SELECT word FROM ft', 'alternating');
SELECT either_way('INSERT INTO alternating (b, c) SELECT nextval(''turns''), word FROM ft', 'alternating');
SELECT either_way('INSERT INTO alternating (b, c) SELECT id, word FROM ft WHERE nextval(''turns'') <> 2', 'alternating');
SELECT either_way('INSERT INTO alternating (b, c) SELECT id, nextval(word::regclass) FROM ft', 'alternating');
SELECT either_way('INSERT INTO alternating (a, b, c) SELECT nextval(''turns''), nextval(''turns''), word FROM ft', 'alternating');
SELECT either_way('INSERT INTO alternating (a, c) SELECT id, word FROM ft', 'alternating');
ALTER TABLE alternating ALTER b SET DEFAULT nextval('turns') * 10;
SELECT either_way('INSERT INTO alternating (c) SELECT word FROM ft', 'alternating');
CREATE VIEW taking_turns AS SELECT a, b, c FROM alternating;
ALTER VIEW taking_turns ALTER a SET DEFAULT nextval('turns'), ALTER b SET DEFAULT 7;
SELECT either_way('INSERT INTO taking_turns (c) SELECT word FROM ft', 'alternating');
ALTER VIEW taking_turns ALTER a SET DEFAULT nextval('turns') + 0;
SELECT either_way('INSERT INTO taking_turns (c) SELECT word FROM ft', 'alternating');
-- random() gives its numbers in core's order.
CREATE TABLE chance (a float8 DEFAULT random(), b float8, c float8 DEFAULT random());
CREATE FUNCTION seeded(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM setseed(0.5);
	PERFORM set_config('pg_bulk.direct_insert', 'on', true);
	EXECUTE statement;
	PERFORM setseed(0.5);
	PERFORM set_config('pg_bulk.direct_insert', 'off', true);
	EXECUTE statement;
	RETURN QUERY SELECT CASE WHEN count(*) = 2 THEN 'same' ELSE 'differs' END FROM chance GROUP BY a, b, c;
	TRUNCATE chance;
END $$;
SELECT seeded('INSERT INTO chance (b) SELECT id FROM ft');
SELECT seeded('INSERT INTO chance (b) SELECT id FROM twelve WHERE random() < 0.5');
SELECT seeded('INSERT INTO chance (b) SELECT random() FROM ft');
SELECT seeded('INSERT INTO chance (b, a) SELECT random(), random() FROM ft WHERE random() < 0.9');
SELECT seeded('INSERT INTO chance (a, b, c) SELECT random(), id, random() FROM ft');
SELECT seeded('INSERT INTO chance (a, b, c) SELECT id, n, n FROM ft WHERE random() < 0.5');

-- Generated columns.
CREATE TABLE generated (a int, b int GENERATED ALWAYS AS (a * 2) STORED, c text DEFAULT 'c', d text GENERATED ALWAYS AS (c || a) STORED NOT NULL);
SELECT any_way('INSERT INTO generated SELECT id FROM twelve', 'generated');
SELECT either_way('INSERT INTO generated (a, c) SELECT id, word FROM ft', 'generated');
SELECT either_way('INSERT INTO generated (a, b) SELECT id, n FROM ft', 'generated');
SELECT either_way('INSERT INTO generated (a, c) SELECT 1000000000 * id, word FROM twelve WHERE word IS NOT NULL', 'generated');
ALTER TABLE generated ADD CHECK (b <> 6), ALTER d DROP NOT NULL;
SELECT any_way('INSERT INTO generated (c, a) SELECT word, id FROM twelve', 'generated');
CREATE DOMAIN little AS int CHECK (value < 20);
CREATE TABLE generated_domain (a int, b little GENERATED ALWAYS AS (a * 2) STORED);
SELECT any_way('INSERT INTO generated_domain SELECT id FROM twelve', 'generated_domain');

-- Constraints: the error names the same row and constraint.
CREATE TABLE checks (id int NOT NULL, word text, n int CONSTRAINT n_small CHECK (n < 100), CONSTRAINT both_set CHECK (word IS NOT NULL OR n IS NOT NULL),
	CONSTRAINT a_first CHECK (id <> 11));
SELECT any_way('INSERT INTO checks SELECT id, word, n FROM twelve', 'checks');
SELECT any_way('INSERT INTO checks SELECT id, word, n FROM twelve WHERE id <> 2', 'checks');
SELECT any_way('INSERT INTO checks SELECT n, word, id FROM twelve WHERE id > 2', 'checks');
SELECT any_way('INSERT INTO checks SELECT id, word, n FROM twelve WHERE id <> 2 AND id < 11', 'checks');
ALTER TABLE checks ADD CONSTRAINT whole CHECK (checks IS NOT NULL OR id > 1) NO INHERIT NOT VALID;
SELECT either_way('INSERT INTO checks SELECT id, NULL, n FROM ft', 'checks');
CREATE TABLE heir (more int CHECK (more <> 1)) INHERITS (checks);
SELECT either_way('INSERT INTO heir SELECT id, ''w'', n, id FROM ft', 'heir');
SELECT either_way('INSERT INTO heir SELECT id, ''w'', n, 2 FROM ft', 'checks');
SELECT either_way('INSERT INTO checks SELECT id, ''w'', n FROM ft', '(SELECT * FROM checks)');

-- Keys: unique, exclusion, deferred, expressions, partial, included columns.
CREATE TABLE keys (id int PRIMARY KEY, word text, n int);
CREATE UNIQUE INDEX keys_word ON keys (lower(word)) WHERE n > 50;
CREATE INDEX keys_n ON keys (n DESC) INCLUDE (word);
SELECT any_way('INSERT INTO keys SELECT id, word, n FROM twelve', 'keys');
SELECT any_way('INSERT INTO keys SELECT id % 9, word, n FROM twelve', 'keys');
SELECT either_way('INSERT INTO keys SELECT id, ''Six'', n FROM twelve', 'keys');
SELECT either_way('INSERT INTO keys SELECT id, ''Six'', n FROM twelve WHERE n < 60', 'keys');
SELECT either_way('INSERT INTO keys SELECT n, word, id FROM ft', 'keys');
INSERT INTO keys VALUES (3, 'there', 3);
SELECT any_way('INSERT INTO keys SELECT id, word, n FROM twelve', 'keys');
SELECT either_way('INSERT INTO keys SELECT id, word, n FROM twelve WHERE id <> 3', 'keys');
CREATE TABLE deferred (id int UNIQUE DEFERRABLE INITIALLY DEFERRED, n int UNIQUE DEFERRABLE);
SELECT either_way('INSERT INTO deferred SELECT id, n FROM twelve', 'deferred');
SELECT either_way('INSERT INTO deferred SELECT id / 2, n FROM ft', 'deferred');
SELECT either_way('INSERT INTO deferred SELECT n, id / 2 FROM ft', 'deferred');
CREATE TABLE excluding (id int, span int4range, EXCLUDE USING gist (span WITH &&) WHERE (id > 1));
SELECT either_way('INSERT INTO excluding SELECT id, int4range(id, id + 1) FROM twelve', 'excluding');
SELECT either_way('INSERT INTO excluding SELECT id, int4range(id, id + 2) FROM twelve', 'excluding');
CREATE TABLE by_others (id int, words text[], day date);
CREATE INDEX ON by_others USING gin (words);
CREATE INDEX ON by_others USING brin (day);
CREATE INDEX ON by_others USING hash (id);
SELECT either_way('INSERT INTO by_others SELECT id, ARRAY[word, id::text], day FROM twelve', 'by_others');

-- Foreign keys: missing, present, self-referencing, deferred, not enforced, of several columns.
CREATE TABLE parent (id int PRIMARY KEY, word text, UNIQUE (id, word));
INSERT INTO parent VALUES (1, 'one'), (3, 'three'), (4, 'for');
CREATE TABLE referring (id int REFERENCES parent, word text, n int);
SELECT any_way('INSERT INTO referring SELECT id, word, n FROM twelve WHERE id IN (1, 3, 4)', 'referring');
SELECT any_way('INSERT INTO referring SELECT id, word, n FROM twelve', 'referring');
SELECT either_way('INSERT INTO referring (word) SELECT word FROM ft', 'referring');
CREATE TABLE full_match (id int, word text, FOREIGN KEY (id, word) REFERENCES parent (id, word) MATCH FULL);
SELECT either_way('INSERT INTO full_match SELECT id, word FROM ft', 'full_match');
SELECT either_way('INSERT INTO full_match SELECT id, word FROM ft WHERE id <> 2', 'full_match');
CREATE TABLE simple_match (id int, word text, FOREIGN KEY (id, word) REFERENCES parent (id, word));
SELECT either_way('INSERT INTO simple_match SELECT id, word FROM ft', 'simple_match');
SELECT either_way('INSERT INTO simple_match SELECT id, word FROM twelve', 'simple_match');
CREATE TABLE own (id int PRIMARY KEY, above int REFERENCES own, CHECK (above < 12));
SELECT any_way('INSERT INTO own SELECT id, id % 12 + 1 FROM twelve WHERE id < 11', 'own');
SELECT any_way('INSERT INTO own SELECT id, NULLIF(id, 1) - 1 FROM twelve', 'own');
CREATE TABLE late (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
SELECT either_way('INSERT INTO late SELECT id FROM ft', 'late');
SELECT either_way('INSERT INTO late SELECT id FROM ft WHERE id <> 2', 'late');
SET session_replication_role = replica;
SELECT either_way('INSERT INTO referring SELECT id, word, n FROM ft', 'referring');
RESET session_replication_role;
ALTER TABLE referring DISABLE TRIGGER ALL;
SELECT either_way('INSERT INTO referring SELECT id, word, n FROM ft', 'referring');
ALTER TABLE referring ENABLE TRIGGER ALL;

-- Triggers.
CREATE TABLE log (line text);
CREATE TABLE seen (id int, word text, n int);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_LEVEL = 'ROW' THEN
		INSERT INTO log SELECT concat_ws(' ', TG_NAME, TG_WHEN, TG_OP, TG_TABLE_NAME, TG_ARGV[0], OLD, NEW, pg_trigger_depth());
		RETURN NEW;
	END IF;
	INSERT INTO log SELECT concat_ws(' ', TG_NAME, TG_WHEN, TG_OP, TG_TABLE_NAME, (SELECT count(*) FROM seen));
	RETURN NULL;
END $$;
CREATE TRIGGER after_statement AFTER INSERT ON seen EXECUTE FUNCTION note();
CREATE TRIGGER after_row AFTER INSERT ON seen FOR EACH ROW EXECUTE FUNCTION note('argument');
CREATE TRIGGER after_some AFTER INSERT OR UPDATE ON seen FOR EACH ROW WHEN (NEW.n > 10) EXECUTE FUNCTION note();
CREATE TRIGGER after_update AFTER UPDATE OR DELETE ON seen FOR EACH ROW EXECUTE FUNCTION note();
SELECT any_way('INSERT INTO seen SELECT id, word, n FROM twelve', 'log');
SELECT either_way('INSERT INTO seen SELECT id, word, n FROM ft WHERE id > 3', 'log');
CREATE CONSTRAINT TRIGGER at_the_end AFTER INSERT ON seen DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
SELECT either_way('INSERT INTO seen SELECT id, word, n FROM ft', 'log');
CREATE FUNCTION before_it() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN NEW.id = 2 THEN NULL ELSE (NEW.id * 10, NEW.word, NEW.n)::seen END;
END $$;
CREATE TRIGGER before_row BEFORE INSERT ON seen FOR EACH ROW EXECUTE FUNCTION before_it();
SELECT either_way('INSERT INTO seen SELECT id, word, n FROM ft', 'seen');
ALTER TABLE seen DISABLE TRIGGER before_row;
SELECT either_way('INSERT INTO seen SELECT id, word, n FROM ft', 'seen');
ALTER TABLE seen ENABLE REPLICA TRIGGER before_row;
SELECT either_way('INSERT INTO seen SELECT id, word, n FROM ft', 'seen');
DROP TRIGGER before_row ON seen;
-- An AFTER trigger that changes the table, and one that fails.
CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.id = 3 THEN
		DELETE FROM seen WHERE id = 1;
		UPDATE seen SET word = 'changed' WHERE id = 2;
	ELSIF NEW.id = 5 THEN
		RAISE EXCEPTION 'not five' USING ERRCODE = 'P0005', DETAIL = NEW.word;
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER meddle AFTER INSERT ON seen FOR EACH ROW EXECUTE FUNCTION meddle();
SELECT either_way('INSERT INTO seen SELECT id, word, n FROM ft', 'seen');
SELECT either_way('INSERT INTO seen SELECT id, word, n FROM twelve', 'seen');
DROP TRIGGER meddle ON seen;
-- A condition that queries the table sees the rows from before the statement.
CREATE FUNCTION few() RETURNS bool VOLATILE LANGUAGE plpgsql AS 'BEGIN RETURN count(*) < 3 FROM seen; END';
CREATE TRIGGER when_few AFTER INSERT ON seen FOR EACH ROW WHEN (few()) EXECUTE FUNCTION note();
SELECT either_way('INSERT INTO seen SELECT id, word, n FROM twelve WHERE id < 5', 'log');
DROP TRIGGER when_few ON seen;
CREATE FUNCTION total() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO log SELECT format('%s rows of %s', count(*), sum(id)) FROM rows;
	RETURN NULL;
END $$;
CREATE TRIGGER total AFTER INSERT ON seen REFERENCING NEW TABLE AS rows EXECUTE FUNCTION total();
SELECT either_way('INSERT INTO seen SELECT id, word, n FROM ft', 'log');
DROP TRIGGER total ON seen;
CREATE TRIGGER first BEFORE INSERT ON seen EXECUTE FUNCTION note();
SELECT either_way('INSERT INTO seen SELECT id, word, n FROM ft', 'log');
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no inserts''; END';
CREATE TRIGGER refuse AFTER INSERT ON seen EXECUTE FUNCTION refuse();
SELECT either_way('INSERT INTO seen SELECT id, word, n FROM ft', 'seen');
DROP TABLE seen;

-- Rules.
CREATE TABLE ruled (id int, word text);
CREATE TABLE aside (id int, word text, n serial);
CREATE RULE instead AS ON INSERT TO ruled DO INSTEAD INSERT INTO aside VALUES (NEW.id, NEW.word);
SELECT either_way('INSERT INTO ruled SELECT id, word FROM ft', 'aside');
DROP RULE instead ON ruled;
CREATE RULE instead AS ON INSERT TO ruled WHERE NEW.id > 1 DO INSTEAD INSERT INTO aside SELECT NEW.id, NEW.word;
SELECT either_way('INSERT INTO ruled SELECT id, word FROM ft', 'aside');
SELECT either_way('INSERT INTO ruled SELECT id, word FROM ft', 'ruled');
DROP RULE instead ON ruled;
CREATE RULE also AS ON INSERT TO ruled DO ALSO INSERT INTO aside SELECT ft.id, NEW.word FROM ft WHERE ft.id = NEW.id;
SELECT either_way('INSERT INTO ruled SELECT id, word FROM ft', 'aside');
DROP RULE also ON ruled;
CREATE RULE also AS ON INSERT TO ruled DO ALSO INSERT INTO aside SELECT id, word FROM ft;
SELECT either_way('INSERT INTO ruled VALUES (1, ''one'')', 'aside');
CREATE RULE nothing AS ON INSERT TO aside DO INSTEAD NOTHING;
SELECT either_way('INSERT INTO aside SELECT id, word FROM ft', 'aside');
DROP TABLE ruled, aside;

-- Views.
CREATE TABLE base (a int PRIMARY KEY, b text DEFAULT 'unspecified', c int);
CREATE VIEW plain AS SELECT * FROM base;
SELECT any_way('INSERT INTO plain SELECT id, word FROM twelve', 'base');
CREATE VIEW turned AS SELECT b AS word, a AS id FROM base WHERE a > 1;
SELECT either_way('INSERT INTO turned SELECT word, id FROM ft', 'base');
SELECT either_way('INSERT INTO turned (id) SELECT id FROM ft', 'base');
ALTER VIEW turned ALTER word SET DEFAULT 'of the view';
SELECT either_way('INSERT INTO turned (id) SELECT id FROM ft', 'base');
CREATE VIEW twice AS SELECT id, upper(word) AS up, word FROM turned;
SELECT either_way('INSERT INTO twice (id, word) SELECT id, word FROM ft', 'base');
SELECT either_way('INSERT INTO twice (id, up) SELECT id, word FROM ft', 'base');
CREATE VIEW checked AS SELECT * FROM turned WHERE id < 3 WITH CASCADED CHECK OPTION;
SELECT either_way('INSERT INTO checked (id) SELECT id FROM ft', 'base');
CREATE VIEW checked_here AS SELECT * FROM turned WHERE id < 9 WITH LOCAL CHECK OPTION;
SELECT either_way('INSERT INTO checked_here (id) SELECT id FROM ft', 'base');
CREATE VIEW barrier WITH (security_barrier) AS SELECT * FROM base WHERE a < 2;
SELECT either_way('INSERT INTO barrier SELECT id, word FROM ft', 'base');
CREATE VIEW source WITH (security_barrier) AS SELECT id, word, n FROM ft WHERE id > 1;
SELECT either_way('INSERT INTO base SELECT id, word FROM source WHERE n > 1', 'base');
CREATE VIEW grouped AS SELECT a, count(*) FROM base GROUP BY a;
SELECT either_way('INSERT INTO grouped SELECT id, n FROM ft', 'base');
CREATE FUNCTION through() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO base VALUES (NEW.a, ''through''); RETURN NEW; END';
CREATE TRIGGER through INSTEAD OF INSERT ON grouped FOR EACH ROW EXECUTE FUNCTION through();
SELECT either_way('INSERT INTO grouped SELECT id, n FROM ft', 'base');

-- ON CONFLICT, RETURNING, WITH.
INSERT INTO base VALUES (2, 'two');
SELECT either_way('INSERT INTO base SELECT id, word FROM ft', 'base');
SELECT either_way('INSERT INTO base SELECT id, word FROM ft ON CONFLICT DO NOTHING', 'base');
SELECT either_way('INSERT INTO base SELECT id, word, n FROM ft ON CONFLICT (a) DO UPDATE SET c = EXCLUDED.c, b = base.b || ''!''', 'base');
SELECT either_way('INSERT INTO base AS x SELECT id, word FROM ft WHERE id <> 2', 'base');
SELECT either_way('INSERT INTO base SELECT id, word FROM ft WHERE id <> 2 RETURNING a', 'base');
SELECT either_way('WITH x AS (DELETE FROM base RETURNING a) INSERT INTO base SELECT n, word FROM ft WHERE n > 10', 'base');
SELECT either_way('WITH x AS (DELETE FROM base RETURNING a) INSERT INTO base SELECT id, word FROM ft', 'base');
SELECT either_way('WITH x AS (INSERT INTO base SELECT id, word FROM ft WHERE id <> 2) SELECT count(*) FROM ft', 'base');
SELECT either_way('WITH x AS (INSERT INTO base SELECT id, word FROM ft WHERE id <> 2), y AS (INSERT INTO t (id) SELECT id FROM ft) INSERT INTO t (id) SELECT n FROM ft', 't');
SELECT either_way('WITH x AS (SELECT id, word FROM ft) INSERT INTO base SELECT * FROM x WHERE id <> 2', 'base');
SELECT either_way('WITH x AS (SELECT id, word FROM ft WHERE id <> 2) INSERT INTO base SELECT a.id, b.word FROM x a JOIN x b USING (id)', 'base');
SELECT either_way('WITH RECURSIVE x AS (SELECT 10 AS i UNION ALL SELECT i + 1 FROM x WHERE i < 12) INSERT INTO base SELECT i, word FROM x JOIN ft ON id = i - 9', 'base');
SELECT either_way('WITH unused AS (SELECT 1 / 0) INSERT INTO base SELECT id, word FROM ft WHERE id <> 2', 'base');

-- Forms of the SELECT.
SELECT either_way('INSERT INTO t (id) SELECT id FROM twelve ORDER BY word LIMIT 3');
SELECT either_way('INSERT INTO t (id) SELECT id FROM twelve LIMIT 2 OFFSET 3');
SELECT either_way('INSERT INTO t (n) SELECT DISTINCT n / 40 FROM twelve');
SELECT either_way('INSERT INTO t (n) SELECT DISTINCT ON (n / 40) n FROM twelve ORDER BY n / 40, n');
SELECT either_way('INSERT INTO t (n, id) SELECT sum(id), count(*) FROM twelve GROUP BY id % 3 HAVING count(*) > 1');
SELECT either_way('INSERT INTO t (n, id) SELECT id, sum(id) OVER (ORDER BY id) FROM ft');
SELECT either_way('INSERT INTO t (id) SELECT id FROM ft UNION SELECT n FROM ft');
SELECT either_way('INSERT INTO t (id) SELECT id FROM ft EXCEPT SELECT 2');
SELECT either_way('INSERT INTO t (id, n) SELECT id, generate_series(1, id) FROM ft');
SELECT either_way('INSERT INTO t (id, n) SELECT id, i FROM ft, generate_series(1, 2) i');
SELECT either_way('INSERT INTO t (id, n) SELECT f.id, v.n FROM ft f, (VALUES (17)) v (n)');
SELECT either_way('INSERT INTO t (id) SELECT f.id FROM ft f LEFT JOIN parent p ON p.id = f.id');
SELECT either_way('INSERT INTO t (id) SELECT f.id FROM ft f WHERE f.id = ANY (ARRAY(SELECT id FROM parent))');
SELECT either_way('INSERT INTO t (id) SELECT id FROM ft WHERE false');
SELECT either_way('INSERT INTO t (id) SELECT id FROM ft WHERE NULL');
SELECT either_way('INSERT INTO t (id) SELECT id FROM ONLY ft WHERE ft IS NOT NULL');
SELECT either_way('INSERT INTO t (id, n) SELECT id, (ft).n FROM ft');
SELECT either_way('INSERT INTO t (id) SELECT id FROM ft WHERE tableoid = ''ft''::regclass');
SELECT either_way('INSERT INTO t (id, n) SELECT id, CASE WHEN id = 2 THEN 1 / (id - 2) END FROM ft');
SELECT either_way('INSERT INTO t (id) SELECT id FROM (SELECT DISTINCT id FROM ft) x');
SELECT either_way('INSERT INTO t (id) SELECT id FROM (SELECT id, random() r FROM ft) x WHERE r < 2');
-- Statements that also read the target, or its state.
INSERT INTO t (id) VALUES (1), (2);
-- (Without a hash join, in which newer versions would begin with the other table.)
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SELECT either_way('INSERT INTO t (id) SELECT f.id FROM ft f LEFT JOIN t USING (id) WHERE t.id IS NULL');
RESET enable_hashjoin;
RESET enable_mergejoin;
SELECT either_way('INSERT INTO t (id) SELECT id FROM ft WHERE id NOT IN (SELECT id FROM t)');
SELECT either_way('INSERT INTO t (id, n) SELECT id, (SELECT count(*) FROM t) FROM ft');
SELECT either_way('INSERT INTO t (id, n) SELECT t.id, ft.id FROM t, ft');
CREATE FUNCTION now_there() RETURNS int STABLE PARALLEL RESTRICTED LANGUAGE sql AS 'SELECT count(*)::int FROM t';
CREATE FUNCTION there_by_now() RETURNS int VOLATILE LANGUAGE plpgsql AS 'BEGIN RETURN count(*) FROM t; END';
SELECT any_way('INSERT INTO t (id, n) SELECT id, now_there() FROM twelve');
SELECT either_way('INSERT INTO t (id, n) SELECT id, there_by_now() FROM ft');
SELECT either_way('INSERT INTO t (id) SELECT id FROM ft WHERE there_by_now() < 4');
CREATE TABLE sizes (id int, n bigint DEFAULT pg_relation_size('sizes'));
SELECT line FROM plan_of('INSERT INTO sizes (id) SELECT id FROM ft', 'VERBOSE, COSTS OFF') line WHERE line ~ 'Direct';
SELECT line FROM plan_of('INSERT INTO sizes SELECT id FROM ft WHERE pg_relation_size(''sizes'') = 0', 'VERBOSE, COSTS OFF') line WHERE line ~ 'Direct';
SELECT line FROM plan_of('INSERT INTO sizes SELECT id FROM ft WHERE query_to_xml(''TABLE sizes'', true, true, '''') IS NOT NULL', 'VERBOSE, COSTS OFF') line WHERE line ~ 'Direct';
SELECT line FROM plan_of('INSERT INTO sizes SELECT id FROM ft WHERE pg_try_advisory_xact_lock(id)', 'VERBOSE, COSTS OFF') line WHERE line ~ 'Direct';
SELECT line FROM plan_of('INSERT INTO sizes SELECT id, id FROM ft WHERE random() < 0.5 AND clock_timestamp() > ''2000-01-01'' AND gen_random_uuid() IS NOT NULL', 'VERBOSE, COSTS OFF') line WHERE line ~ 'Direct';
CREATE DOMAIN fresh AS int CHECK (there_by_now() < 4);
CREATE TYPE fresh_pair AS (a fresh);
CALL make_table('fresh_ones', 'a fresh[], b fresh_pair', $$delimiter '|'$$, E'{1}|(1)\n{2}|(2)\n{3}|(3)\n{4}|(4)\n');
SELECT either_way('INSERT INTO t (id) SELECT a[1] FROM fresh_ones');
SELECT either_way('INSERT INTO t (id) SELECT (b).a FROM fresh_ones');
TRUNCATE t;

-- Types of targets.
CREATE UNLOGGED TABLE unlogged (LIKE numbered);
SELECT any_way('INSERT INTO unlogged TABLE twelve', 'unlogged');
CREATE TEMP TABLE temporary (LIKE numbered);
SELECT either_way('INSERT INTO temporary TABLE ft', 'temporary');
SELECT either_way('INSERT INTO ft TABLE ft', 'ft');
CREATE MATERIALIZED VIEW materialized AS SELECT 1 AS id;
SELECT either_way('INSERT INTO materialized SELECT id FROM ft', 'materialized');
SELECT either_way('INSERT INTO turns SELECT id FROM ft', 'turns');
CREATE TYPE row_type AS (id int, word text);
CREATE TABLE typed OF row_type (word NOT NULL);
SELECT either_way('INSERT INTO typed SELECT id, word FROM ft', 'typed');
CREATE TABLE nothing ();
SELECT either_way('INSERT INTO nothing SELECT FROM ft', 'nothing');

-- Malformed files.
CALL make_table('broken', 'id int, word text, day date, n int', $$format 'csv'$$, E'1,one,2001-01-01,10\n2,,2001-02-02,x\n3,three,2001-03-03\n');
SELECT either_way('INSERT INTO base (a, b, c) SELECT id, word, n FROM broken', 'base');
SELECT either_way('INSERT INTO t (id) SELECT id FROM broken');
SELECT either_way('INSERT INTO t (id) SELECT id FROM broken WHERE n = 10');
CALL write_file('broken', '');
SELECT either_way('INSERT INTO base (a, b, c) SELECT id, word, n FROM broken', 'base');
SELECT either_way('INSERT INTO identities (b) SELECT word FROM broken', 'identities');
ALTER FOREIGN TABLE broken OPTIONS (SET filename '/nowhere');
SELECT either_way('INSERT INTO base (a, b, c) SELECT id, word, n FROM broken', 'base');

-- EXPLAIN shows triggers as without a load: number of calls, and name.
CREATE FUNCTION calls(statement text, mode text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	PERFORM set_config('pg_bulk.direct_insert', mode, true);
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || statement LOOP
		CONTINUE WHEN line !~ 'Trigger';
		RETURN NEXT mode || ' ' || line;
	END LOOP;
END $$;
CREATE TABLE watched (id int PRIMARY KEY, n int REFERENCES parent, m int REFERENCES watched DEFERRABLE) PARTITION BY RANGE (id);
CREATE TABLE watched_1 PARTITION OF watched FOR VALUES FROM (0) TO (10);
CREATE TABLE watched_2 PARTITION OF watched FOR VALUES FROM (10) TO (10000);
CREATE TABLE alone (id int, n int REFERENCES parent, word text UNIQUE DEFERRABLE);
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER statement AFTER INSERT ON alone EXECUTE FUNCTION nothing();
CREATE TRIGGER some_rows AFTER INSERT ON alone FOR EACH ROW WHEN (NEW.id > 1) EXECUTE FUNCTION nothing();
CREATE TRIGGER no_rows AFTER INSERT ON alone FOR EACH ROW WHEN (NEW.id > 100) EXECUTE FUNCTION nothing();
CREATE TRIGGER updates AFTER UPDATE ON alone FOR EACH ROW EXECUTE FUNCTION nothing();
SELECT calls('INSERT INTO alone SELECT id, NULLIF(id, 2) FROM ft', 'on');
SELECT calls('INSERT INTO alone SELECT id, NULLIF(id, 2) FROM ft', 'off');
SELECT calls('INSERT INTO alone SELECT id, NULLIF(id, 2) FROM ft WHERE id > 3', 'on');
SELECT calls('INSERT INTO alone SELECT id, NULLIF(id, 2) FROM ft WHERE id > 3', 'off');
CREATE TRIGGER statement AFTER INSERT ON watched EXECUTE FUNCTION nothing();
CREATE TRIGGER only_second AFTER INSERT ON watched_2 FOR EACH ROW EXECUTE FUNCTION nothing();
SELECT calls('INSERT INTO watched SELECT id, NULLIF(id % 4, 2) + CASE WHEN id % 4 = 0 THEN 1 ELSE 0 END FROM twelve', 'on');
TRUNCATE watched;
SELECT calls('INSERT INTO watched SELECT id, NULLIF(id % 4, 2) + CASE WHEN id % 4 = 0 THEN 1 ELSE 0 END FROM twelve', 'off');
-- Foreign keys of many rows are checked together.
CREATE TABLE many (id int REFERENCES parent, n int);
DO $$ BEGIN CALL make_table('thousand', 'id int', '', repeat(E'1\n3\n', 750)); END $$;
SELECT calls('INSERT INTO many SELECT id FROM thousand', 'on');
SELECT calls('INSERT INTO many SELECT id FROM thousand', 'off');
SELECT plan_of('INSERT INTO alone SELECT id, NULLIF(id, 2) FROM ft', 'ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF');
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA insert_select_core CASCADE;
