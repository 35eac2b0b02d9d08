--
-- Rows that turn out to be wrong after they are in: duplicate keys, within the file or with rows of the table, and orphans.
-- The error names their line. With on_error table they are rejected, as if each row had been inserted with
-- ON CONFLICT DO NOTHING, and deleted again if it is an orphan in the end.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_late_rejects
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
-- COPY's error for a duplicate key: of two lines, it names the later one.
CREATE FUNCTION as_copy(definition text, content text, copy text, options jsonb) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	copys text[];
	ours text[];
BEGIN
	CALL write_file('t', content);
	EXECUTE format('CREATE TABLE t (%s)', definition);
	copys := ARRAY(SELECT error_of(format('COPY t FROM %L %s', data_path('t'), copy)));
	ours := ARRAY(SELECT error_of(format('SELECT bulk_load(%L, ''t'', %L)', data_path('t'), options || '{"writer": "direct"}')));
	DROP TABLE t;
	IF array_remove(ours, 'CONTEXT: file "PGB_DATA/t"') = copys THEN
		RETURN QUERY SELECT unnest(ours);
	ELSE
		RETURN QUERY SELECT 'ours: ' || unnest(ours);
		RETURN QUERY SELECT 'COPY: ' || unnest(copys);
	END IF;
END $$;
SELECT as_copy('a int PRIMARY KEY, b text', E'1,x\n2,y\n1,z\n', '(FORMAT csv)', '{"format": "csv"}');
SELECT as_copy('a int, b text UNIQUE', E'1,"x\n\n"\n2,y\n1,"z\n"\n3,"x\n\n"\n4,z\n', '(FORMAT csv)', '{"format": "csv"}');
SELECT as_copy('a int, b text UNIQUE', E'1\tx\\\ny\n2\ty\n1\tx\\ny\n', '', '{}');
SELECT as_copy('a int, b text, EXCLUDE (a WITH =)', E'1,"x\n"\n2,y\n1,z\n', '(FORMAT csv)', '{"format": "csv"}');
SELECT as_copy('a numeric PRIMARY KEY, b text', E'b\n1,x\n2,y\n1.0,z\n', '(FORMAT csv, HEADER)', '{"format": "csv", "header": true}');
-- Several processes name the same line, wherever rows are stored: in partitions, by the leader, on small pages.
CREATE FUNCTION lines(count int, fault text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(format('%s,"%s%s"', i, repeat(md5(i::text), 1 + i % 7), CASE WHEN i % 10 = 0 THEN E'\n\n' END), E'\n' ORDER BY i)
		|| E'\n' || fault || E'\n' || string_agg(format('%s,x', i + count), E'\n' ORDER BY i) || E'\n'
	FROM generate_series(1, count) i
$$;
SELECT alike('a int PRIMARY KEY, b text', lines(2000, '77,again'), '{"format": "csv"}');
SELECT alike('a int PRIMARY KEY, b text', lines(2000, '3000,again'), '{"format": "csv"}');
SELECT alike('a int PRIMARY KEY, b text', lines(2000, '3000,again'), '{"format": "csv", "where": "a % 3 = 0"}');
SELECT alike('a int PRIMARY KEY, b text', lines(2000, '77,again'), '{"format": "csv", "indexes": "rebuild"}');
SELECT alike('a int PRIMARY KEY, b text) WITH (fillfactor = 10', lines(2000, '77,again'), '{"format": "csv"}');
CREATE TABLE parts (a int PRIMARY KEY, b text) PARTITION BY HASH (a);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 3, REMAINDER 0);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 3, REMAINDER 1);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES WITH (MODULUS 3, REMAINDER 2);
CALL write_file('t', lines(2000, '77,again'));
SET pg_bulk.chunk_size = 64;
SELECT error_of($$SELECT bulk_load(data_path('t'), 'parts', '{"format": "csv", "workers": 3}')$$);
SELECT error_of(format($$SELECT bulk_load('cat %s', 'parts', '{"format": "csv", "program": true}')$$, data_path('t')));
CREATE TABLE wide (a int PRIMARY KEY, b text);
ALTER TABLE wide ALTER b SET STORAGE EXTERNAL;
SELECT string_agg(i || ',' || repeat('w', CASE WHEN i % 3 = 0 THEN 3000 ELSE 3 END), E'\n' ORDER BY i) || E'\n600,' || repeat('w', 3000) || E'\n' AS content
FROM generate_series(1, 900) i \gset
CALL write_file('wide', :'content');
SELECT error_of($$SELECT bulk_load(data_path('wide'), 'wide', '{"format": "csv", "workers": 3}')$$);
RESET pg_bulk.chunk_size;

-- on_error table: `definition` has a column n, the number of the line. The table gets the rows of `before`, then the file: by one process,
-- by several, and from a program, whose lines are not kept. Returns the number of rows and of rejects if all agree
-- with a table into which the rows were inserted one after the other.
-- The table of the load also has `keys`; in the other one, rows that satisfy `orphan` are deleted until there are none.
CREATE FUNCTION rejected_late(definition text, content text, before text DEFAULT '', options jsonb DEFAULT '{}', after text DEFAULT '',
	keys text DEFAULT '', orphan text DEFAULT 'false')
RETURNS SETOF text LANGUAGE plpgsql SET client_min_messages = warning AS $$
DECLARE
	way text;
	index regclass;
	differing bigint;
	ours record;
	staged bigint;
	left_in bigint;
	found bigint;
	given jsonb;
	path text;
	checked text[];
BEGIN
	CALL write_file('t', content);
	DROP SCHEMA IF EXISTS model, loaded CASCADE;
	CREATE SCHEMA model;
	EXECUTE format('CREATE TABLE model.t (%s); CREATE TABLE model.stage (place serial, LIKE model.t)', definition);
	EXECUTE replace(after, 'SCHEMA', 'model');
	EXECUTE 'INSERT INTO model.t ' || coalesce(nullif(before, ''), 'SELECT * FROM model.t');
	EXECUTE format('COPY model.stage (%s) FROM %L (FORMAT csv)', (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = 'model.t'::regclass AND attnum > 0), data_path('t'));
	GET DIAGNOSTICS staged = ROW_COUNT;
	EXECUTE format('INSERT INTO model.t SELECT %s FROM model.stage ORDER BY place ON CONFLICT DO NOTHING', (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum)
		FROM pg_attribute WHERE attrelid = 'model.t'::regclass AND attnum > 0));
	GET DIAGNOSTICS left_in = ROW_COUNT;
	LOOP
		EXECUTE 'DELETE FROM model.t WHERE ' || orphan;
		GET DIAGNOSTICS found = ROW_COUNT;
		EXIT WHEN found = 0;
		left_in := left_in - found;
	END LOOP;
	FOREACH way IN ARRAY ARRAY['0', '3', 'program'] LOOP
		DROP SCHEMA IF EXISTS loaded CASCADE;
		CREATE SCHEMA loaded;
		EXECUTE format('CREATE TABLE loaded.t (%s)', definition);
		EXECUTE replace(after, 'SCHEMA', 'loaded');
		EXECUTE replace(keys, 'SCHEMA', 'loaded');
		EXECUTE 'INSERT INTO loaded.t ' || coalesce(nullif(replace(before, 'model.', 'loaded.'), ''), 'SELECT * FROM loaded.t');
		PERFORM set_config('pg_bulk.chunk_size', CASE way WHEN '3' THEN '64' ELSE '256kB' END, true);
		path := CASE way WHEN 'program' THEN 'cat ' ELSE '' END || data_path('t');
		given := '{"format": "csv", "on_error": "table"}' || CASE way WHEN 'program' THEN '{"program": true}' ELSE jsonb_build_object('workers', way::int) END || options;
		checked := ARRAY(SELECT ROW(line_number, byte_offset, column_name, raw_field, raw_line, raw_bytes, sqlstate, message, constraint_name)::text
			FROM bulk_check(path, 'loaded.t', given - 'on_error'));
		SELECT l.*, attempt FROM bulk_load(path, 'loaded.t', given) l, (VALUES (1)) v (attempt) INTO ours;
		IF ours.writer <> 'direct' OR (ours.rows_loaded, ours.rows_rejected) <> (left_in, staged - left_in) THEN
			RETURN NEXT format('%s: %s loaded, %s rejected by the %s writer', way, ours.rows_loaded, ours.rows_rejected, ours.writer);
		END IF;
		IF way = '3' AND ours.workers <> 3 AND staged > 100 THEN
			RETURN NEXT format('%s workers', ours.workers);
		END IF;
		IF options ->> 'indexes' = 'merge' AND NOT ours.indexes @> '[{"method": "merge"}]' THEN
			RETURN NEXT ours.indexes;
		END IF;
		SELECT count(*) INTO differing FROM (
			(SELECT t::text FROM model.t EXCEPT ALL SELECT t::text FROM loaded.t) UNION ALL
			(SELECT t::text FROM loaded.t EXCEPT ALL SELECT t::text FROM model.t)) d;
		IF differing > 0 THEN
			RETURN NEXT way || ': ' || differing || ' rows differ';
			RETURN QUERY (SELECT 'model: ' || t::text FROM model.t EXCEPT ALL SELECT 'model: ' || t::text FROM loaded.t) LIMIT 10;
			RETURN QUERY (SELECT 'loaded: ' || t::text FROM loaded.t EXCEPT ALL SELECT 'loaded: ' || t::text FROM model.t) LIMIT 10;
		END IF;
		-- The rejects equal those that bulk_check announced.
		CREATE TEMP VIEW kept AS SELECT ROW(line_number, byte_offset, column_name, raw_field, raw_line, raw_bytes, sqlstate, message, constraint_name)::text AS reject, load_id
			FROM bulk_rejects;
		RETURN QUERY (SELECT way || ' only load: ' || reject FROM kept WHERE load_id = ours.load_id EXCEPT ALL SELECT way || ' only load: ' || unnest(checked)) LIMIT 3;
		RETURN QUERY (SELECT way || ' only check: ' || unnest(checked) EXCEPT ALL SELECT way || ' only check: ' || reject FROM kept WHERE load_id = ours.load_id) LIMIT 3;
		DROP VIEW kept;
		-- Every line is either in the table or a reject with its own line number.
		SELECT count(*) INTO found FROM (SELECT n FROM loaded.t WHERE n > 0 UNION SELECT line_number FROM bulk_rejects WHERE load_id = ours.load_id) l;
		IF found <> staged THEN
			RETURN NEXT format('%s: %s lines', way, found);
		END IF;
		SELECT count(*) INTO found FROM bulk_rejects WHERE load_id = ours.load_id AND constraint_name IS NOT NULL AND
			CASE way WHEN 'program' THEN raw_line IS NULL AND byte_offset IS NULL ELSE split_part(raw_line, ',', 1)::int = line_number
				AND raw_line = (string_to_array(content, E'\n'))[line_number] AND byte_offset = octet_length(array_to_string((string_to_array(content, E'\n'))[1:line_number - 1], E'\n') || left(E'\n', line_number::int - 1)) END;
		IF found <> staged - left_in THEN
			RETURN NEXT format('%s: %s rejects', way, found);
			RETURN QUERY SELECT r::text FROM bulk_rejects r WHERE load_id = ours.load_id LIMIT 3;
		END IF;
		FOR index IN SELECT indexrelid FROM pg_index JOIN pg_class i ON i.oid = indexrelid WHERE indrelid IN (SELECT relid FROM pg_partition_tree('loaded.t'))
			AND i.relam = (SELECT oid FROM pg_am WHERE amname = 'btree') AND i.relkind = 'i' LOOP
			PERFORM public.bt_index_parent_check(index, true, true);
		END LOOP;
		RETURN QUERY SELECT way || ' corrupt: ' || v::text FROM pg_partition_tree('loaded.t'), public.verify_heapam(relid) v WHERE isleaf;
	END LOOP;
	RETURN QUERY SELECT format('%s left, %s rejected: ', left_in, staged - left_in) || coalesce(string_agg(format('%s %s of %s', count, sqlstate, constraint_name), ', ' ORDER BY constraint_name), 'none')
		FROM (SELECT count(*), sqlstate, constraint_name FROM bulk_rejects WHERE load_id = ours.load_id GROUP BY 2, 3) r;
END $$;
SELECT setseed(0.5);
-- Lines with a number, two numbers that occur several times, and sometimes NULL.
CREATE FUNCTION pairs(count int, most int) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(format('%s,%s,%s', i, CASE WHEN random() < 0.9 THEN floor(random() * most)::int END, floor(random() * most)::int), E'\n' ORDER BY i) || E'\n'
	FROM generate_series(1, count) i
$$;
SELECT rejected_late('n int, a int UNIQUE, b int', pairs(2000, 100000));
SELECT rejected_late('n int, a int UNIQUE, b int', pairs(2000, 2000));
SELECT rejected_late('n int, a int UNIQUE, b int', pairs(2000, 3));
SELECT rejected_late('n int, a int UNIQUE NULLS NOT DISTINCT, b int', pairs(2000, 1000));
SELECT rejected_late('n int, a numeric, b int PRIMARY KEY', pairs(2000, 500), 'SELECT -i, i, i * 2 FROM generate_series(1, 300) i');
-- Several indexes: a row that is rejected because of one index does not occupy a key of the other.
SELECT rejected_late('n int, a int UNIQUE, b int UNIQUE', pairs(2000, 2000));
SELECT rejected_late('n int, a int UNIQUE, b int UNIQUE', pairs(2000, 300), 'SELECT -i, i * 3, i * 2 FROM generate_series(1, 100) i');
SELECT rejected_late('n int, a int, b int, UNIQUE (a, b), UNIQUE (b, a) INCLUDE (n)', pairs(3000, 40));
SELECT rejected_late('n int, a int UNIQUE NULLS NOT DISTINCT, b int', pairs(2000, 500), 'SELECT -1, NULL, 5',
	after => 'CREATE UNIQUE INDEX ON SCHEMA.t ((b % 700)) WHERE b > 50; CREATE INDEX ON SCHEMA.t (b, a); CREATE INDEX ON SCHEMA.t USING hash (a)');
-- Indexes built from collected keys, and other indexes beside them.
SELECT rejected_late('n int, a int UNIQUE, b int', pairs(2000, 2000), options => '{"indexes": "rebuild"}');
SELECT rejected_late('n int, a int UNIQUE NULLS NOT DISTINCT, b int UNIQUE', pairs(2000, 800), options => '{"indexes": "rebuild"}');
SELECT rejected_late('n int, a int UNIQUE, b int', pairs(2000, 3), options => '{"indexes": "rebuild"}');
SELECT rejected_late('n int, a numeric UNIQUE, b int UNIQUE', pairs(2000, 1500), options => '{"indexes": "rebuild"}', after => 'CREATE INDEX ON SCHEMA.t (a, b)');
SELECT rejected_late('n int, a int UNIQUE, b int UNIQUE', pairs(2000, 1000), 'SELECT -i, i * 3, i * 2 FROM generate_series(1, 100) i', '{"indexes": "rebuild"}');
-- Merged with the table's entries, some of them of dead rows.
SELECT rejected_late('n int, a int UNIQUE, b int UNIQUE', pairs(2000, 1000), 'SELECT -i, i * 3, i * 2 FROM generate_series(1, 600) i', '{"indexes": "merge", "lock": "share"}');
SELECT rejected_late('n int, a int UNIQUE NULLS NOT DISTINCT, b int', pairs(2000, 500), 'SELECT -i, nullif(i, 9), i FROM generate_series(1, 400) i;
	DELETE FROM model.t WHERE a % 3 = 0; UPDATE model.t SET a = -a WHERE a % 5 = 0; UPDATE model.t SET n = n - 1 WHERE a % 7 = 0', '{"indexes": "merge", "lock": "share"}');
SELECT rejected_late('n int, a int UNIQUE, b int', pairs(2000, 3), 'SELECT -1, 2, 5', '{"indexes": "merge", "lock": "share"}',
	'CREATE UNIQUE INDEX ON SCHEMA.t (b) WHERE b > 1; CREATE INDEX ON SCHEMA.t (b)');
SELECT rejected_late('n int, a float8 UNIQUE, b int UNIQUE', E'1,-0,1\n2,0,2\n3,NaN,3\n4,nan,4\n5,7,5\n6,8,5\n' || more, 'SELECT -1, 7, 7', '{"indexes": "merge", "lock": "share"}')
FROM (SELECT string_agg(format(E'%s,%s,%s\n', i, i * 10, i * 10), '' ORDER BY i) FROM generate_series(7, 99) i) s (more);
SELECT rejected_late('n int, a float8 UNIQUE, b int UNIQUE', E'1,-0,1\n2,0,2\n3,NaN,3\n4,nan,4\n5,7,5\n6,8,5\n' || more, options => '{"indexes": "rebuild"}')
FROM (SELECT string_agg(format(E'%s,%s,%s\n', i, i * 10, i * 10), '' ORDER BY i) FROM generate_series(7, 99) i) s (more);
-- Keys that are equal, but have different bytes.
SELECT rejected_late('n int, a numeric UNIQUE, b text', string_agg(format('%s,%s,x', i, (floor(random() * 300) / 10)::numeric(6, 1) || repeat('0', i % 4)), E'\n' ORDER BY i) || E'\n')
FROM generate_series(1, 1000) i;
CREATE COLLATION IF NOT EXISTS whatever_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
SELECT rejected_late('n int, a text COLLATE load_late_rejects.whatever_case UNIQUE, b text', string_agg(format('%s,%s,x', i, CASE i % 3 WHEN 0 THEN upper(chr(97 + i % 26)) ELSE chr(97 + i % 26) END || i % 60), E'\n' ORDER BY i) || E'\n')
FROM generate_series(1, 1000) i;
-- Exclusion constraints, beside unique ones.
SELECT rejected_late('n int, a int UNIQUE, b int, EXCLUDE (b WITH =)', pairs(1000, 500), 'SELECT -i, i * 3, i * 2 FROM generate_series(1, 100) i');
SELECT rejected_late('n int, a int PRIMARY KEY, p point, EXCLUDE USING gist (p WITH ~=)', string_agg(format('%s,%s,"(%s,%s)"', i, i % 300, i * 37 % 20, i % 7), E'\n' ORDER BY i) || E'\n')
FROM generate_series(1, 600) i;
-- Partitions, and wide rows.
SELECT rejected_late('n int, a int, b int, PRIMARY KEY (b)) PARTITION BY HASH (b', pairs(2000, 1500), '', '{}',
	'CREATE TABLE SCHEMA.t0 PARTITION OF SCHEMA.t FOR VALUES WITH (MODULUS 2, REMAINDER 0); CREATE TABLE SCHEMA.t1 PARTITION OF SCHEMA.t FOR VALUES WITH (MODULUS 2, REMAINDER 1)');
SELECT rejected_late('n int, a int UNIQUE, b text', string_agg(format('%s,%s,%s', i, i * 7 % 300, repeat(md5(i::text), CASE WHEN i % 5 = 0 THEN 200 ELSE 1 END)), E'\n' ORDER BY i) || E'\n',
	after => 'ALTER TABLE SCHEMA.t ALTER b SET STORAGE EXTERNAL')
FROM generate_series(1, 700) i;
-- Foreign keys: many rows and few, several keys, other types, NULLs; with duplicates, too.
CREATE TABLE parent (a int PRIMARY KEY, b numeric UNIQUE, c text UNIQUE, UNIQUE (a, b));
INSERT INTO parent SELECT i, i / 10.0, 'key ' || i FROM generate_series(0, 999) i;
SELECT rejected_late('n int, a int, b int', pairs(2000, 1100), keys => 'ALTER TABLE SCHEMA.t ADD FOREIGN KEY (a) REFERENCES load_late_rejects.parent',
	orphan => 'a NOT IN (SELECT a FROM load_late_rejects.parent)');
SELECT rejected_late('n int, a int, b int', pairs(2000, 900), keys => 'ALTER TABLE SCHEMA.t ADD FOREIGN KEY (a) REFERENCES load_late_rejects.parent');
SELECT rejected_late('n int, a int, b int', E'1,1,1\n2,-2,2\n3,,3\n4,999,4\n5,1000,5\n', keys => 'ALTER TABLE SCHEMA.t ADD FOREIGN KEY (a) REFERENCES load_late_rejects.parent',
	orphan => 'a NOT IN (SELECT a FROM load_late_rejects.parent)');
SELECT rejected_late('n int, a bigint, b numeric(8, 2)', pairs(3000, 1050), keys => 'ALTER TABLE SCHEMA.t ADD FOREIGN KEY (b) REFERENCES load_late_rejects.parent (b),
	ADD FOREIGN KEY (a) REFERENCES load_late_rejects.parent', orphan => 'a NOT IN (SELECT a FROM load_late_rejects.parent) OR b NOT IN (SELECT b FROM load_late_rejects.parent)');
SELECT rejected_late('n int, a int, b numeric', string_agg(format('%s,%s,%s', i, CASE WHEN i % 7 > 1 THEN i % 1003 END, CASE WHEN i % 7 <> 1 THEN (i % 1003 + (i % 50 = 0)::int) / 10.0 END), E'\n') || E'\n',
	keys => 'ALTER TABLE SCHEMA.t ADD FOREIGN KEY (a, b) REFERENCES load_late_rejects.parent (a, b) MATCH FULL',
	orphan => '(a IS NULL) <> (b IS NULL) OR a IS NOT NULL AND NOT EXISTS (SELECT FROM load_late_rejects.parent p WHERE (p.a, p.b) = (t.a, t.b))') FROM generate_series(1, 2000) i;
SELECT rejected_late('n int, a int, b text', string_agg(format('%s,%s,%s', i, i, 'key ' || i % 1100), E'\n') || E'\n', after => 'CREATE INDEX ON SCHEMA.t (b)',
	keys => 'ALTER TABLE SCHEMA.t ADD FOREIGN KEY (b) REFERENCES load_late_rejects.parent (c)', orphan => 'b NOT IN (SELECT c FROM load_late_rejects.parent)') FROM generate_series(1, 3000) i;
SELECT rejected_late('n int, a int, b int UNIQUE', pairs(2000, 1100), keys => 'ALTER TABLE SCHEMA.t ADD FOREIGN KEY (a) REFERENCES load_late_rejects.parent',
	orphan => 'a NOT IN (SELECT a FROM load_late_rejects.parent)');
SELECT rejected_late('n int, a int, b int UNIQUE', pairs(2000, 1100), options => '{"indexes": "rebuild"}', keys => 'ALTER TABLE SCHEMA.t ADD FOREIGN KEY (a) REFERENCES load_late_rejects.parent',
	orphan => 'a NOT IN (SELECT a FROM load_late_rejects.parent)');
SELECT rejected_late('n int, a int, b int, EXCLUDE (b WITH =)', pairs(1000, 1100), keys => 'ALTER TABLE SCHEMA.t ADD FOREIGN KEY (a) REFERENCES load_late_rejects.parent',
	orphan => 'a NOT IN (SELECT a FROM load_late_rejects.parent)');
SELECT rejected_late('n int, a int, b int) PARTITION BY HASH (b', pairs(2000, 1100), '', '{}',
	'CREATE TABLE SCHEMA.t0 PARTITION OF SCHEMA.t FOR VALUES WITH (MODULUS 2, REMAINDER 0); CREATE TABLE SCHEMA.t1 PARTITION OF SCHEMA.t FOR VALUES WITH (MODULUS 2, REMAINDER 1)',
	'ALTER TABLE SCHEMA.t ADD FOREIGN KEY (a) REFERENCES load_late_rejects.parent', 'a NOT IN (SELECT a FROM load_late_rejects.parent)');
-- Rows that refer to each other: to earlier rows, to later ones, to themselves, in a cycle; and to rejected rows.
SELECT rejected_late('n int, a int PRIMARY KEY, b int', string_agg(format('%s,%s,%s', i, i, CASE WHEN i % 17 = 1 THEN CASE WHEN i % 3 = 0 THEN i + 5000 END
	WHEN i % 40 = 0 THEN i WHEN i % 2 = 0 THEN i - 1 ELSE (i + 6) % 2000 + 1 END), E'\n') || E'\n', keys => 'ALTER TABLE SCHEMA.t ADD FOREIGN KEY (b) REFERENCES SCHEMA.t',
	orphan => 'b NOT IN (SELECT a FROM model.t)') FROM generate_series(1, 2000) i;
SELECT rejected_late('n int, a int UNIQUE, b int', pairs(2000, 2000), keys => 'ALTER TABLE SCHEMA.t ADD FOREIGN KEY (b) REFERENCES SCHEMA.t (a)',
	orphan => 'b NOT IN (SELECT a FROM model.t WHERE a IS NOT NULL)', options => '{"indexes": "rebuild"}');
-- Messages equal COPY's; triggers see only the rows that stay; reject_limit counts all rejects.
CREATE TABLE child (n int, a int REFERENCES parent, b numeric, FOREIGN KEY (a, b) REFERENCES parent (a, b) MATCH FULL);
CREATE TABLE told (n int);
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO told VALUES (NEW.n); RETURN NULL; END $$;
CREATE TRIGGER tell AFTER INSERT ON child FOR EACH ROW EXECUTE FUNCTION tell();
CALL write_file('t', E'1,1,0.1\n2,1000,0.1\n3,5,0.50\n4,7,\n5,,\n');
SELECT loaded, rejected FROM figures('t', 'child', '{"format": "csv", "on_error": "table"}');
SELECT line_number, raw_line, sqlstate, message, constraint_name FROM bulk_rejects WHERE target LIKE '%child' ORDER BY line_number;
SELECT (SELECT array_agg(n ORDER BY n) FROM child), (SELECT array_agg(n ORDER BY n) FROM told);
SELECT error_of(format($$COPY child FROM %L (FORMAT csv)$$, data_path('t')));
SELECT error_of($$SELECT bulk_load(data_path('t'), 'child', '{"format": "csv"}')$$);
SELECT error_of($$SELECT bulk_load(data_path('t'), 'child', '{"format": "csv", "on_error": "table", "reject_limit": 1}')$$);
-- In a transaction whose snapshot is older; with a deferred foreign key.
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO parent VALUES (1000, 0.1 + 100);
SELECT loaded, rejected FROM figures('t', 'child', '{"format": "csv", "on_error": "table", "where": "n <> 2 OR b > 0"}');
ROLLBACK;
ALTER TABLE child ALTER CONSTRAINT child_a_fkey DEFERRABLE INITIALLY DEFERRED;
BEGIN;
SELECT loaded, rejected FROM figures('t', 'child', '{"format": "csv", "on_error": "table", "where": "n = 2"}');
ROLLBACK;
CREATE TABLE child_later (n int, a int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
CALL write_file('t', E'1,1000\n');
BEGIN;
SELECT loaded, rejected FROM figures('t', 'child_later', '{"format": "csv", "on_error": "table"}');
SELECT error_of('SET CONSTRAINTS ALL IMMEDIATE');
ROLLBACK;
-- Combined with other rejects; reject_limit counts all; AFTER triggers see only the rows that stay.
CREATE TABLE mixed (n int, a int PRIMARY KEY CHECK (a <> 13), b int NOT NULL);
CREATE TABLE seen (n int);
CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES (NEW.n); RETURN NULL; END $$;
CREATE TRIGGER see AFTER INSERT ON mixed FOR EACH ROW EXECUTE FUNCTION see();
CALL write_file('t', E'1,1,1\n2,2,\n3,x,3\n4,1,4\n5,13,5\n6,6,6\n7\n8,6,8\n9,9,9\n');
SELECT loaded, rejected FROM figures('t', 'mixed', '{"format": "csv", "on_error": "table", "reject_limit": 6}');
SELECT array_agg(n ORDER BY n) FROM mixed;
SELECT array_agg(n ORDER BY n) FROM seen;
SELECT line_number, raw_line, sqlstate, message, constraint_name FROM bulk_rejects WHERE target LIKE '%mixed' ORDER BY line_number;
TRUNCATE mixed;
SELECT error_of($$SELECT bulk_load(data_path('t'), 'mixed', '{"format": "csv", "on_error": "table", "reject_limit": 5}')$$);
SELECT error_of($$SELECT bulk_load(data_path('t'), 'mixed', '{"format": "csv", "on_error": "table", "reject_limit": "60%"}')$$);
SELECT loaded, rejected FROM figures('t', 'mixed', '{"format": "csv", "on_error": "table", "reject_limit": "70%"}');
CREATE TABLE counted (n int, a int PRIMARY KEY, b int);
BEGIN;
SELECT loaded, rejected FROM figures('t', 'counted', '{"format": "csv", "on_error": "table"}');
SELECT pg_stat_get_xact_tuples_inserted('counted'::regclass), pg_stat_get_xact_tuples_deleted('counted'::regclass);
COMMIT;
-- Deferred constraints are checked later, as errors.
CREATE TABLE later (n int, a int UNIQUE DEFERRABLE INITIALLY DEFERRED, b int UNIQUE);
CALL write_file('t', E'1,1,1\n2,1,1\n3,3,3\n');
SELECT loaded, rejected FROM figures('t', 'later', '{"format": "csv", "on_error": "table"}');
CALL write_file('t', E'4,4,4\n5,4,5\n');
SELECT error_of($$SELECT bulk_load(data_path('t'), 'later', '{"format": "csv", "on_error": "table"}'); SET CONSTRAINTS ALL IMMEDIATE$$);
-- If the table's file is new, rows are removed directly in its pages on disk, without reading these into shared buffers.
-- heap_delete removes the rows of pages in shared buffers, of all-visible pages, and rows with out-of-line values.
CREATE FUNCTION rivals(count int, long text DEFAULT '') RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(format('%s,%s,%s', CASE WHEN i % 50 = 0 THEN i - 40 ELSE i END, i, CASE WHEN i % 3 = 0 THEN long END || repeat(md5(i::text), 4)), E'\n' ORDER BY i) || E'\n'
	FROM generate_series(1, count) i
$$;
-- The differences from the expected content of a table loaded with `count` such rows, replaced or skipped.
CREATE FUNCTION wrong(target text, count int, replaced bool, long text DEFAULT '') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	found text;
BEGIN
	SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = off;
	EXECUTE format($q$
		WITH should AS (
			SELECT DISTINCT ON (a) a, n, CASE WHEN n %% 3 = 0 THEN %2$L END || repeat(md5(n::text), 4) AS t
			FROM (SELECT CASE WHEN i %% 50 = 0 THEN i - 40 ELSE i END AS a, i AS n FROM generate_series(1, %3$s) i) i
			ORDER BY a, CASE WHEN %4$L THEN -n ELSE n END),
		differ AS ((SELECT * FROM should EXCEPT ALL SELECT * FROM %1$s) UNION ALL (SELECT * FROM %1$s EXCEPT ALL SELECT * FROM should))
		SELECT count(*) FROM differ$q$, target, long, count, replaced) INTO found;
	IF found <> '0' THEN RETURN NEXT found || ' rows are wrong'; END IF;
	RETURN QUERY SELECT v::text FROM public.verify_heapam(target) v;
	PERFORM public.bt_index_parent_check(indexrelid, true, true) FROM pg_index WHERE indrelid = target::regclass;
	SET LOCAL enable_seqscan = off; RESET enable_indexscan; RESET enable_indexonlyscan;
	EXECUTE format('SELECT count(*) FROM %s WHERE a = ANY (SELECT i FROM generate_series(0, %s) i)', target, count) INTO found;
	IF found <> (count - count / 50)::text THEN RETURN NEXT found || ' rows by the index'; END IF;
	RESET enable_seqscan; RESET enable_bitmapscan;
END $$;
CREATE TABLE fresh (a int PRIMARY KEY, n int, t text);
CALL write_file('t', rivals(20000));
BEGIN;
SELECT loaded FROM figures('t', 'fresh', '{"format": "csv", "on_duplicate": "keep_old", "workers": 2}');
SELECT pg_stat_get_xact_tuples_deleted('fresh'::regclass), pg_stat_get_xact_blocks_fetched('fresh'::regclass) < 10 AS in_place;
SELECT count(*) FROM fresh;
COMMIT;
SELECT wrong('fresh', 20000, false);
TRUNCATE fresh;
BEGIN;
SELECT loaded FROM figures('t', 'fresh', '{"format": "csv", "on_duplicate": "keep_new", "workers": 2}');
COMMIT;
SELECT wrong('fresh', 20000, true);
-- Rejects: duplicates and orphans.
CREATE TABLE fresh_parent (n int PRIMARY KEY);
INSERT INTO fresh_parent SELECT i FROM generate_series(1, 20000) i WHERE i % 70 <> 7;
CREATE TABLE fresh_child (a int PRIMARY KEY, n int REFERENCES fresh_parent, t text);
SELECT loaded, rejected FROM figures('t', 'fresh_child', '{"format": "csv", "on_error": "table", "workers": 2}');
SELECT count(*), count(DISTINCT a), count(*) FILTER (WHERE n % 50 = 0 OR n % 70 = 7) FROM fresh_child;
-- Rolled back to a savepoint, then loaded again.
TRUNCATE fresh;
BEGIN;
TRUNCATE fresh;
SAVEPOINT s;
SELECT loaded FROM figures('t', 'fresh', '{"format": "csv", "on_duplicate": "keep_old"}');
ROLLBACK TO s;
SELECT count(*) FROM fresh;
SAVEPOINT s;
SELECT loaded FROM figures('t', 'fresh', '{"format": "csv", "on_duplicate": "keep_new"}');
RELEASE s;
COMMIT;
SELECT wrong('fresh', 20000, true);
-- Frozen.
BEGIN;
TRUNCATE fresh;
SELECT rows_loaded FROM bulk_load(data_path('t'), 'fresh', '{"format": "csv", "on_duplicate": "keep_old", "freeze": true}');
COMMIT;
SELECT wrong('fresh', 20000, false);
VACUUM fresh;
SELECT wrong('fresh', 20000, false);
-- Some pages are in shared buffers, since a constraint queries the table during the load.
CREATE FUNCTION looks(row_number int) RETURNS bool LANGUAGE plpgsql PARALLEL SAFE AS $$
BEGIN
	IF row_number % 2000 = 1 THEN PERFORM count(t) FROM fresh_seen; END IF;
	RETURN true;
END $$;
CREATE TABLE fresh_seen (a int PRIMARY KEY, n int CHECK (looks(n)), t text);
SET pg_bulk.chunk_size = 8192;
BEGIN;
TRUNCATE fresh_seen;
SELECT loaded FROM figures('t', 'fresh_seen', '{"format": "csv", "on_duplicate": "keep_old", "workers": 1}');
SELECT pg_stat_get_xact_blocks_fetched('fresh_seen'::regclass) > 10 AS in_buffers;
COMMIT;
SELECT wrong('fresh_seen', 20000, false);
RESET pg_bulk.chunk_size;
-- Out-of-line values of removed rows are removed, too.
CREATE TABLE fresh_long (a int PRIMARY KEY, n int, t text);
ALTER TABLE fresh_long ALTER t SET STORAGE EXTERNAL;
CALL write_file('t', rivals(2000, repeat('long', 1000)));
SELECT loaded FROM figures('t', 'fresh_long', '{"format": "csv", "on_duplicate": "keep_new"}');
SELECT wrong('fresh_long', 2000, true, repeat('long', 1000));
SELECT reltoastrelid::regclass AS toast FROM pg_class WHERE relname = 'fresh_long' \gset
SELECT count(*) FILTER (WHERE n % 3 = 0), (SELECT count(DISTINCT chunk_id) FROM :toast) AS stored FROM fresh_long;
-- ... and none is stored twice if there are few rows.
TRUNCATE fresh_long;
SELECT loaded FROM figures('t', 'fresh_long', '{"format": "csv", "limit": 30}');
SELECT count(*) FILTER (WHERE n % 3 = 0), (SELECT count(DISTINCT chunk_id) FROM :toast) AS stored FROM fresh_long;
-- Unlogged and temporary tables; a table that other sessions can see.
CALL write_file('t', rivals(20000));
CREATE UNLOGGED TABLE fresh_unlogged (a int PRIMARY KEY, n int, t text);
SELECT loaded FROM figures('t', 'fresh_unlogged', '{"format": "csv", "on_duplicate": "keep_new"}');
SELECT wrong('fresh_unlogged', 20000, true);
CREATE TEMPORARY TABLE fresh_temporary (a int PRIMARY KEY, n int, t text);
SELECT loaded FROM figures('t', 'fresh_temporary', '{"format": "csv", "on_duplicate": "keep_new"}');
SELECT wrong('pg_temp.fresh_temporary', 20000, true);
CREATE TABLE known (a int PRIMARY KEY, n int, t text);
INSERT INTO known VALUES (1, 1, repeat(md5('1'), 4));
SELECT loaded FROM figures('t', 'known', '{"format": "csv", "on_duplicate": "keep_new"}');
SELECT wrong('known', 20000, true);
SET client_min_messages = warning;
DROP SCHEMA load_late_rejects CASCADE;
DROP SCHEMA IF EXISTS model, loaded CASCADE;
