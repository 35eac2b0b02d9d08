--
-- on_duplicate: rows whose keys exist already, in the table or on another line of the file. The oracle is INSERT … ON
-- CONFLICT, row by row in the order of the file.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_duplicates
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned

-- `definition` has a column n, the number of the line. The table gets the rows of `before`, then the file: by one process, by several, and
-- from a program; with duplicates kept as rejects, and without. `conflict` is the target of the model's ON CONFLICT. Returns how many
-- lines are in the table in the end, and the counts of the others, if all agree with the model.
CREATE FUNCTION kept(keep text, definition text, conflict text, content text, before text DEFAULT '', options jsonb DEFAULT '{}', after text DEFAULT '')
RETURNS SETOF text LANGUAGE plpgsql SET client_min_messages = warning AS $$
DECLARE
	way text;
	on_error text;
	index regclass;
	names text;
	line record;
	ours record;
	staged bigint;
	left_in bigint;
	old_left bigint;
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
	SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) INTO names FROM pg_attribute WHERE attrelid = 'model.t'::regclass AND attnum > 0;
	EXECUTE format('COPY model.stage (%s) FROM %L (FORMAT csv)', names, data_path('t'));
	GET DIAGNOSTICS staged = ROW_COUNT;
	FOR line IN SELECT place FROM model.stage ORDER BY place LOOP
		EXECUTE format('INSERT INTO model.t SELECT %s FROM model.stage WHERE place = $1 ON CONFLICT %s DO %s', names, conflict,
			CASE keep WHEN 'keep_old' THEN 'NOTHING' ELSE (SELECT 'UPDATE SET ' || string_agg(format('%1$s = EXCLUDED.%1$s', trim(name)), ', ') FROM string_to_table(names, ',') name) END)
			USING line.place;
	END LOOP;
	SELECT count(*) FILTER (WHERE n > 0), count(*) FILTER (WHERE n <= 0) FROM model.t INTO left_in, old_left;
	FOREACH way IN ARRAY ARRAY['0', '3', 'program'] LOOP
		FOREACH on_error IN ARRAY ARRAY['stop', 'table'] LOOP
			DROP SCHEMA IF EXISTS loaded CASCADE;
			CREATE SCHEMA loaded;
			EXECUTE format('CREATE TABLE loaded.t (%s)', definition);
			EXECUTE replace(after, 'SCHEMA', 'loaded');
			EXECUTE 'INSERT INTO loaded.t ' || coalesce(nullif(replace(before, 'model.', 'loaded.'), ''), 'SELECT * FROM loaded.t');
			PERFORM set_config('pg_bulk.chunk_size', CASE way WHEN '3' THEN '64' ELSE '256kB' END, true);
			path := CASE way WHEN 'program' THEN 'cat ' ELSE '' END || data_path('t');
			given := jsonb_build_object('format', 'csv', 'on_error', on_error, 'on_duplicate', keep)
				|| CASE way WHEN 'program' THEN '{"program": true}' ELSE jsonb_build_object('workers', way::int) END || options;
			checked := ARRAY(SELECT ROW(line_number, byte_offset, column_name, raw_field, raw_line, raw_bytes, sqlstate, message, constraint_name)::text
				FROM bulk_check(path, 'loaded.t', given));
			SELECT * FROM bulk_load(path, 'loaded.t', given) INTO ours;
			IF ours.writer <> 'direct' OR (ours.rows_loaded, ours.rows_rejected, ours.rows_duplicate) <> (left_in, 0, staged - left_in) THEN
				RETURN NEXT format('%s, %s: %s loaded, %s rejected, %s duplicates by the %s writer', way, on_error, ours.rows_loaded, ours.rows_rejected, ours.rows_duplicate, ours.writer);
			END IF;
			IF way = '3' AND ours.workers <> 3 THEN
				RETURN NEXT format('%s workers', ours.workers);
			END IF;
			IF options ->> 'indexes' = 'merge' AND NOT ours.indexes @> '[{"method": "merge"}]' THEN
				RETURN NEXT ours.indexes;
			END IF;
			SELECT count(*) INTO found FROM (
				(SELECT t::text FROM model.t EXCEPT ALL SELECT t::text FROM loaded.t) UNION ALL
				(SELECT t::text FROM loaded.t EXCEPT ALL SELECT t::text FROM model.t)) d;
			IF found > 0 THEN
				RETURN NEXT format('%s, %s: %s rows differ', way, on_error, found);
				RETURN QUERY (SELECT 'model: ' || t::text FROM model.t EXCEPT ALL SELECT 'model: ' || t::text FROM loaded.t) LIMIT 10;
				RETURN QUERY (SELECT 'loaded: ' || t::text FROM loaded.t EXCEPT ALL SELECT 'loaded: ' || t::text FROM model.t) LIMIT 10;
			END IF;
			-- The rejects equal those that bulk_check announced.
			CREATE TEMP VIEW rejected AS SELECT ROW(line_number, byte_offset, column_name, raw_field, raw_line, raw_bytes, sqlstate, message, constraint_name)::text AS reject, load_id
				FROM bulk_rejects;
			IF on_error = 'table' THEN
				RETURN QUERY (SELECT way || ' only load: ' || reject FROM rejected WHERE load_id = ours.load_id EXCEPT ALL SELECT way || ' only load: ' || unnest(checked)) LIMIT 3;
				RETURN QUERY (SELECT way || ' only check: ' || unnest(checked) EXCEPT ALL SELECT way || ' only check: ' || reject FROM rejected WHERE load_id = ours.load_id) LIMIT 3;
			END IF;
			DROP VIEW rejected;
			-- Every line is either in the table or a duplicate with its own line number.
			SELECT count(*) INTO found FROM (SELECT n FROM loaded.t WHERE n > 0 UNION SELECT line_number FROM bulk_rejects WHERE load_id = ours.load_id) l;
			IF on_error = 'table' AND found <> staged THEN
				RETURN NEXT format('%s: %s lines', way, found);
			END IF;
			SELECT count(*) INTO found FROM bulk_rejects WHERE load_id = ours.load_id AND sqlstate = '23505' AND constraint_name IS NOT NULL AND
				CASE way WHEN 'program' THEN raw_line IS NULL ELSE split_part(raw_line, ',', 1)::int = line_number END;
			IF found <> (CASE on_error WHEN 'table' THEN staged - left_in ELSE 0 END) THEN
				RETURN NEXT format('%s: %s rejects', way, found);
				RETURN QUERY SELECT r::text FROM bulk_rejects r WHERE load_id = ours.load_id LIMIT 3;
			END IF;
			FOR index IN SELECT indexrelid FROM pg_index JOIN pg_class i ON i.oid = indexrelid WHERE indrelid IN (SELECT relid FROM pg_partition_tree('loaded.t'))
				AND i.relam = (SELECT oid FROM pg_am WHERE amname = 'btree') AND i.relkind = 'i' LOOP
				PERFORM public.bt_index_parent_check(index, true, true);
			END LOOP;
			RETURN QUERY SELECT way || ' corrupt: ' || v::text FROM pg_partition_tree('loaded.t'), public.verify_heapam(relid) v WHERE isleaf;
		END LOOP;
	END LOOP;
	RETURN NEXT format('%s of %s lines left, %s old rows', left_in, staged, old_left)
		|| coalesce((SELECT ', ' || note FROM unnest(ours.notes) note WHERE note LIKE '%replaced%'), '');
END $$;
SELECT setseed(0.25);
-- Lines with a number, two numbers that occur several times, and sometimes NULL.
CREATE FUNCTION pairs(count int, most int) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(format('%s,%s,%s', i, CASE WHEN random() < 0.9 THEN floor(random() * most)::int END, floor(random() * most)::int), E'\n' ORDER BY i) || E'\n'
	FROM generate_series(1, count) i
$$;
CREATE VIEW ways AS SELECT * FROM (VALUES ('keep_old'), ('keep_new')) k (keep);
-- Empty tables, and tables that have some of the keys. Index strategies insert, rebuild and merge.
SELECT kept(keep, 'n int, a int UNIQUE, b int', '(a)', pairs(700, 100000)) FROM ways;
SELECT kept(keep, 'n int, a int UNIQUE, b int', '(a)', pairs(700, 300)) FROM ways;
SELECT kept(keep, 'n int, a int UNIQUE, b int', '(a)', pairs(700, 2), 'SELECT -i, i, i FROM generate_series(1, 3) i') FROM ways;
SELECT kept(keep, 'n int, a int, b int PRIMARY KEY', '(b)', pairs(700, 500), 'SELECT -i, i, i * 2 FROM generate_series(1, 300) i') FROM ways;
SELECT kept(keep, 'n int, a int UNIQUE NULLS NOT DISTINCT, b int', '(a)', pairs(700, 500), 'SELECT -i, nullif(i, 4), i * 2 FROM generate_series(1, 300) i', after => 'CREATE INDEX ON SCHEMA.t (b)') FROM ways;
SELECT kept(keep, 'n int, a int UNIQUE, b int', '(a)', pairs(700, 300), options => '{"indexes": "rebuild"}', after => 'CREATE INDEX ON SCHEMA.t (b)') FROM ways;
SELECT kept(keep, 'n int, a int UNIQUE, b int', '(a)', pairs(700, 500), 'SELECT -i, i, i * 2 FROM generate_series(1, 300) i;
	DELETE FROM model.t WHERE a % 3 = 0; UPDATE model.t SET a = -a WHERE a % 5 = 0; UPDATE model.t SET n = n - 1 WHERE a % 7 = 0',
	'{"indexes": "merge", "lock": "share"}', 'CREATE INDEX ON SCHEMA.t (b)') FROM ways;
-- Keys that require a comparator.
SELECT kept(keep, 'n int, a numeric UNIQUE, b text', '(a)', content, 'SELECT -i, i::numeric(6, 2), i FROM generate_series(1, 20) i')
FROM ways, (SELECT string_agg(format('%s,%s,x', i, (floor(random() * 300) / 10)::numeric(6, 1) || repeat('0', i % 4)), E'\n' ORDER BY i) || E'\n' FROM generate_series(1, 500) i) s (content);
-- Keys that are ordered by their bytes; one is too long for pg_bulk's own index build.
SELECT kept(keep, 'n int, a text COLLATE "C" PRIMARY KEY, b int', '(a)', content, options => '{"indexes": "rebuild"}')
FROM ways, (SELECT string_agg(format('%s,%s,1', i, CASE i WHEN 77 THEN repeat(md5(i::text), 20) ELSE 'k' || i % 190 END), E'\n' ORDER BY i) || E'\n' FROM generate_series(1, 200) i) s (content);
-- Several unique indexes: one of them is the arbiter, the others are constraints.
SELECT kept(keep, 'n int UNIQUE, a int PRIMARY KEY, b int', '(a)', content, 'SELECT -i, i * 3, i * 2 FROM generate_series(1, 100) i')
FROM ways, (SELECT string_agg(format('%s,%s,%s', i, floor(random() * 300), i % 9), E'\n' ORDER BY i) || E'\n' FROM generate_series(1, 500) i) s (content);
SELECT kept(keep, 'n int UNIQUE, a int UNIQUE, b int', '(a)', content, 'SELECT -i, i * 3, i * 2 FROM generate_series(1, 100) i', '{"conflict_index": "t_a_key"}', 'CREATE INDEX ON SCHEMA.t (b)')
FROM ways, (SELECT string_agg(format('%s,%s,%s', i, floor(random() * 300), i % 9), E'\n' ORDER BY i) || E'\n' FROM generate_series(1, 500) i) s (content);
-- A key that becomes free when its row is replaced.
SELECT kept('keep_new', 'n int, a int PRIMARY KEY, b int UNIQUE', '(a)', E'1,1,5\n2,1,6\n3,2,5\n4,7,8\n' || more, 'VALUES (-1, 7, 7), (-2, 8, 9)')
FROM (SELECT string_agg(format(E'%s,%s,%s\n', i, i * 10, i * 10), '' ORDER BY i) FROM generate_series(5, 99) i) s (more);
-- Partitions, wide rows, a partial index, and an expression index.
SELECT kept(keep, 'n int, a int, b int, PRIMARY KEY (b)) PARTITION BY HASH (b', '(b)', pairs(700, 500), 'SELECT -i, i, i FROM generate_series(1, 100) i', '{}',
	'CREATE TABLE SCHEMA.t0 PARTITION OF SCHEMA.t FOR VALUES WITH (MODULUS 2, REMAINDER 0); CREATE TABLE SCHEMA.t1 PARTITION OF SCHEMA.t FOR VALUES WITH (MODULUS 2, REMAINDER 1) PARTITION BY HASH (b);
	CREATE TABLE SCHEMA.t2 PARTITION OF SCHEMA.t1 FOR VALUES WITH (MODULUS 1, REMAINDER 0)') FROM ways;
SELECT kept(keep, 'n int, a int UNIQUE, b text', '(a)', content, 'SELECT -i, i, repeat(md5(i::text), 200) FROM generate_series(1, 30) i', after => 'ALTER TABLE SCHEMA.t ALTER b SET STORAGE EXTERNAL')
FROM ways, (SELECT string_agg(format('%s,%s,%s', i, i * 7 % 90, repeat(md5(i::text), CASE WHEN i % 5 = 0 THEN 200 ELSE 1 END)), E'\n' ORDER BY i) || E'\n' FROM generate_series(1, 300) i) s (content);
SELECT kept(keep, 'n int, a int, b int', '((b % 70)) WHERE b > 50', pairs(700, 500), 'SELECT -1, 5, 60', after => 'CREATE UNIQUE INDEX ON SCHEMA.t ((b % 70)) WHERE b > 50') FROM ways;
-- Exclusion constraints beside the arbiter.
SELECT kept(keep, 'n int, a int PRIMARY KEY, b int, EXCLUDE (n WITH =)', '(a)', content, 'SELECT -i, i * 3, i * 2 FROM generate_series(1, 100) i')
FROM ways, (SELECT string_agg(format('%s,%s,%s', i, floor(random() * 300), i % 9), E'\n' ORDER BY i) || E'\n' FROM generate_series(1, 300) i) s (content);

-- Other constraints are errors, with the line, or rejects.
CREATE TABLE two (n int, a int PRIMARY KEY, b int UNIQUE);
CALL write_file('t', E'1,1,1\n2,1,2\n3,3,3\n4,4,3\n5,5,5\n');
SELECT error_of($$SELECT bulk_load(data_path('t'), 'two', '{"format": "csv", "on_duplicate": "keep_old"}')$$);
SELECT error_of($$SELECT bulk_load(data_path('t'), 'two', '{"format": "csv", "on_duplicate": "keep_new"}')$$);
SELECT line_number, sqlstate, constraint_name FROM bulk_check(data_path('t'), 'two', '{"format": "csv", "on_duplicate": "keep_old"}') ORDER BY 1;
SELECT line_number, sqlstate, constraint_name FROM bulk_check(data_path('t'), 'two', '{"format": "csv", "on_duplicate": "keep_new", "duplicate_limit": 0}') ORDER BY 1;
SELECT rows_loaded, rows_rejected, rows_duplicate FROM bulk_load(data_path('t'), 'two', '{"format": "csv", "on_duplicate": "keep_old", "on_error": "table"}');
SELECT array_agg(n ORDER BY n) FROM two;
TRUNCATE two;
SELECT rows_loaded, rows_rejected, rows_duplicate FROM bulk_load(data_path('t'), 'two', '{"format": "csv", "on_duplicate": "keep_new", "on_error": "table"}');
SELECT array_agg(n ORDER BY n) FROM two;
SELECT line_number, raw_line, sqlstate, constraint_name FROM bulk_rejects WHERE target LIKE '%two' ORDER BY load_id, line_number;
SELECT rows_duplicate FROM bulk_history WHERE target LIKE '%two' ORDER BY load_id DESC LIMIT 1;
-- Limits.
TRUNCATE two;
CALL write_file('t', E'1,1,1\n2,1,2\n3,3,3\n4,3,4\n5,5,5\n');
SELECT error_of($$SELECT bulk_load(data_path('t'), 'two', '{"format": "csv", "on_duplicate": "keep_old", "duplicate_limit": 1}')$$);
SELECT error_of($$SELECT bulk_load(data_path('t'), 'two', '{"format": "csv", "on_duplicate": "keep_new", "duplicate_limit": 0}')$$);
SELECT error_of($$SELECT bulk_load(data_path('t'), 'two', '{"format": "csv", "on_duplicate": "keep_new", "duplicate_limit": "39%"}')$$);
SELECT count(*) FROM two;
SELECT rows_loaded, rows_duplicate FROM bulk_load(data_path('t'), 'two', '{"format": "csv", "on_duplicate": "keep_old", "duplicate_limit": "40%"}');
SELECT rows_loaded, rows_duplicate FROM bulk_load(data_path('t'), 'two', '{"format": "csv", "on_duplicate": "keep_old", "duplicate_limit": 5}');
-- Invalid combinations of options.
SELECT error_of(format($$SELECT bulk_load(data_path('t'), 'two', %L)$$, options))
FROM (VALUES ('{"on_duplicate": "keep"}'), ('{"conflict_index": "two_pkey"}'), ('{"duplicate_limit": 3}'), ('{"on_duplicate": "keep_old", "duplicate_limit": "x"}'),
	('{"on_duplicate": "keep_old", "duplicate_limit": "101%"}'), ('{"on_duplicate": "keep_old", "conflict_index": "nobody"}')) o (options);
CREATE TABLE none (a int);
CREATE INDEX plain ON none (a);
CREATE TABLE several (a int UNIQUE, b int UNIQUE, c int UNIQUE DEFERRABLE);
SELECT error_of(format($$SELECT bulk_load(data_path('t'), %L, %L)$$, target, options))
FROM (VALUES ('none', '{"on_duplicate": "keep_old"}'), ('none', '{"on_duplicate": "keep_old", "conflict_index": "plain"}'), ('several', '{"on_duplicate": "keep_new"}'),
	('several', '{"on_duplicate": "keep_new", "conflict_index": "several_c_key"}')) o (target, options);
-- Replacing rows requires the privilege to change them.
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_load_duplicates;
CREATE ROLE regress_load_duplicates;
GRANT pg_read_server_files TO regress_load_duplicates;
GRANT USAGE ON SCHEMA load_duplicates TO regress_load_duplicates;
RESET client_min_messages;
GRANT INSERT ON two TO regress_load_duplicates;
SET ROLE regress_load_duplicates;
SELECT error_of($$SELECT bulk_load(data_path('t'), 'two', '{"format": "csv", "on_duplicate": "keep_new"}')$$);
SELECT rows_duplicate FROM bulk_load(data_path('t'), 'two', '{"format": "csv", "on_duplicate": "keep_old"}');
RESET ROLE;
GRANT DELETE ON two TO regress_load_duplicates;
SET ROLE regress_load_duplicates;
SELECT rows_duplicate, notes FROM bulk_load(data_path('t'), 'two', '{"format": "csv", "on_duplicate": "keep_new"}');
RESET ROLE;
DROP OWNED BY regress_load_duplicates;
DROP ROLE regress_load_duplicates;
-- Foreign keys that refer to a replaced row: their action does not run as long as the key still exists.
CREATE TABLE child (a int REFERENCES two ON DELETE CASCADE, b int REFERENCES two (b) ON DELETE SET NULL);
INSERT INTO child VALUES (1, 2), (3, NULL), (5, NULL);
CALL write_file('t', E'1,1,2\n2,3,7\n');
SELECT rows_loaded, notes FROM bulk_load(data_path('t'), 'two', '{"format": "csv", "on_duplicate": "keep_new"}');
TABLE child;
CALL write_file('t', E'9,1,8\n');
SELECT error_of($$SELECT bulk_load(data_path('t'), 'two', '{"format": "csv", "on_duplicate": "keep_new"}')$$);
TABLE child;
-- Triggers see a replacement as an UPDATE.
CREATE TABLE told (what text);
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO told VALUES (concat_ws(' ', TG_OP, CASE TG_OP WHEN 'UPDATE' THEN OLD.n END, CASE WHEN TG_OP <> 'DELETE' THEN NEW.n END)); RETURN NULL; END $$;
CREATE TABLE watched (n int, a int PRIMARY KEY);
CREATE TRIGGER tell AFTER INSERT OR UPDATE OR DELETE ON watched FOR EACH ROW EXECUTE FUNCTION tell();
INSERT INTO watched VALUES (-1, 1), (-2, 2), (-3, 3);
TRUNCATE told;
CALL write_file('t', E'1,1\n2,9\n3,2\n4,1\n5,9\n');
SELECT rows_loaded, rows_duplicate FROM bulk_load(data_path('t'), 'watched', '{"format": "csv", "on_duplicate": "keep_new"}');
SELECT what FROM told ORDER BY what;
ALTER TABLE watched ADD UNIQUE (n);
TRUNCATE told;
CALL write_file('t', E'11,1\n12,7\n13,2\n14,1\n15,7\n');
SELECT rows_loaded, rows_duplicate FROM bulk_load(data_path('t'), 'watched', '{"format": "csv", "on_duplicate": "keep_new", "conflict_index": "watched_pkey"}');
SELECT what FROM told ORDER BY what;
TABLE watched ORDER BY a;
-- By INSERT … ON CONFLICT, if a table needs the executor.
CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TRIGGER pass BEFORE UPDATE ON watched FOR EACH ROW EXECUTE FUNCTION pass();
SELECT error_of($$SELECT bulk_load(data_path('t'), 'watched', '{"format": "csv", "on_duplicate": "keep_new"}')$$);
SELECT writer, rows_loaded, rows_duplicate FROM bulk_load(data_path('t'), 'watched', '{"format": "csv", "on_duplicate": "keep_old"}');
CREATE TRIGGER pass_first BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION pass();
CALL write_file('t', E'21,1\n22,8\n23,8\n24,6\n');
SELECT writer, rows_loaded, rows_duplicate FROM bulk_load(data_path('t'), 'watched', '{"format": "csv", "on_duplicate": "keep_old", "conflict_index": "watched_pkey"}');
TABLE watched ORDER BY a;
SELECT error_of($$SELECT bulk_load(data_path('t'), 'two', '{"format": "csv", "on_duplicate": "keep_new", "writer": "buffered"}')$$);
CREATE UNIQUE INDEX expressed ON none ((a % 10));
CALL write_file('t', E'1\n11\n2\n');
SELECT rows_loaded, rows_duplicate FROM bulk_load(data_path('t'), 'none', '{"on_duplicate": "keep_old", "writer": "buffered"}');
SET client_min_messages = warning;
DROP SCHEMA load_duplicates CASCADE;
DROP SCHEMA IF EXISTS model, loaded CASCADE;
