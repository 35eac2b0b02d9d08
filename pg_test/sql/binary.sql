--
-- COPY's binary format.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set load_helpers :data '/load_helpers.sql'
\set schema binary_format
\i :helpers
\i :load_helpers
CREATE FUNCTION copy_to(query text, name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('COPY (%s) TO %L (FORMAT binary)', query, data_path(name));
END $$;
-- The bytes of a file: a header, then records.
CREATE FUNCTION header(flags int DEFAULT 0, extension bytea DEFAULT '') RETURNS bytea LANGUAGE sql AS $$
	SELECT '\x5047434f50590aff0d0a00'::bytea || int4send(flags) || int4send(length(extension)) || extension
$$;
CREATE FUNCTION row_of(VARIADIC fields bytea[]) RETURNS bytea LANGUAGE sql AS $$
	SELECT int2send(cardinality(fields)::int2) || string_agg(coalesce(int4send(length(f)) || f, int4send(-1)), '' ORDER BY i)
	FROM unnest(fields) WITH ORDINALITY u (f, i)
$$;
CREATE FUNCTION same_binary(definition text, content bytea, options jsonb DEFAULT '{}') RETURNS SETOF text LANGUAGE sql AS $$
	SELECT same(definition, content, '(FORMAT binary)', options || '{"format": "binary"}')
$$;
\set ECHO all
\pset tuples_only
\pset format unaligned
-- A table with columns of many types.
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN positive AS int CHECK (value > 0);
CREATE DOMAIN word AS varchar(5);
CREATE TABLE kinds (
	id int8, b bool, i2 int2, i4 int4, o oid, f4 float4, f8 float8, n numeric, n2 numeric(10, 2), c "char", t text, v varchar(12), bp char(7), nm name,
	by bytea, u uuid, d date, ti time, ti2 time(2), tz timetz, ts timestamp, ts0 timestamp(0), tstz timestamptz, tstz3 timestamptz(3), iv interval,
	j json, jb jsonb, x inet, ci cidr, ma macaddr, bt bit(5), vb varbit, p point, bx box, m money, ia int[], ta text[], na numeric[], r int4range, mr nummultirange,
	ts_v tsvector, e mood, co pair, dp positive, dw word, reg regclass, l pg_lsn
);
INSERT INTO kinds SELECT i, i % 2 = 0, -i, i * 100000, i + 3000000000, i / 3.0, -i / 7.0, i * 1.000123, i / 3.0, chr(64 + i % 50)::"char", repeat('ü€a', i % 9), 'word ' || i, 'b' || i,
	'name' || i, decode(lpad(to_hex(i), 8, '0'), 'hex'), md5(i::text)::uuid, date '1999-12-25' + i, time '00:00' + i * interval '7.123456 s', time '00:00' + i * interval '7.123456 s',
	'12:00:00+01', timestamp '1970-01-01' + i * interval '5 days 3.25 s', timestamp '2020-01-01' + i * interval '1.7 s', timestamptz '2001-02-03 04:05:06+02' + i * interval '1 h',
	timestamptz '2001-02-03 04:05:06.7891+02', i * interval '1 mon 3 days', json_build_object('a', i), jsonb_build_object('k', repeat('x', i)), '10.0.0.1'::inet + i, '10.0.0.0/8', '08:00:2b:01:02:03',
	i::bit(5), i::bit(12)::varbit, point(i, -i), box(point(i, i), point(0, 0)), i::money, ARRAY[i, NULL, -i], ARRAY['a', NULL, 'ü'], ARRAY[i / 8.0], int4range(i, i + 10), nummultirange(numrange(1, i + 1)),
	to_tsvector('simple', 'some words ' || i), (enum_range(NULL::mood))[1 + i % 3], ROW(i, 'x')::pair, i, 'w' || i, 'pg_class', '16/B374D848'::pg_lsn + i
FROM generate_series(1, 100) i;
INSERT INTO kinds (id) VALUES (101), (NULL);
INSERT INTO kinds (id, b, i2, i4, o, f4, f8, n, t, v, bp, by, d, ti, tz, ts, tstz, iv, ia) VALUES
	(-9223372036854775808, true, -32768, -2147483648, 4294967295, 'NaN', '-Infinity', 'NaN', '', '', '', '', '-infinity', '24:00', '24:00:00+15:59', '-infinity', 'infinity', '-178000000 years', '{}'),
	(9223372036854775807, false, 32767, 2147483647, 0, '-0', '1e308', '-Infinity', E'\t\n\\', ' x ', ' y', '\x00ff', '4714-11-24 BC', '00:00', '00:00:00-15:59', '4714-11-24 00:00:00 BC', '294276-12-31 23:59:59.999999+00', '1 us', '[0:1]={1,2}'),
	(0, true, 0, 0, 1, 1e-45, 5e-324, 1e-300, repeat('long ', 3000), 'äöüäöüäöüäöü', 'ß', repeat('x', 5000)::bytea, '5874897-12-31', '23:59:59.999999', '01:02:03+00', '294276-12-31 23:59:59.999999', '4714-11-24 00:00:00+00 BC', '0', '{{1,2},{3,4}}');
SELECT copy_to('SELECT * FROM kinds', 'binary.bin');
CREATE TABLE copied (LIKE kinds);
CREATE TABLE loaded (LIKE kinds);
DO $do$ BEGIN EXECUTE format('COPY copied FROM %L (FORMAT binary)', data_path('binary.bin')); END $do$;
CREATE FUNCTION differing() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM ((SELECT t::text FROM copied t EXCEPT ALL SELECT t::text FROM loaded t) UNION ALL (SELECT t::text FROM loaded t EXCEPT ALL SELECT t::text FROM copied t)) d $$;
SELECT count(*), differing() FROM copied;
SELECT w, n, (SELECT (rows_loaded, writer, workers, rows_rejected) FROM bulk_load(data_path('binary.bin'), 'loaded', jsonb_build_object('format', 'binary', 'truncate', true, 'workers', n, 'writer', w))), differing(), (SELECT count(*) FROM verify_heapam('loaded'))
FROM unnest('{buffered,direct}'::text[]) w, unnest('{0,1,2}'::int[]) n;
-- The stored bits equal those that COPY stores, also for NaN and zero.
SELECT count(*) FROM copied c JOIN loaded l USING (id) WHERE float4send(c.f4) <> float4send(l.f4) OR numeric_send(c.n) <> numeric_send(l.n) OR c.bp::bytea <> l.bp::bytea OR pg_column_size(c.n) <> pg_column_size(l.n);
-- Foreign tables of the file that query all columns, some or none.
DO $do$ BEGIN EXECUTE format('CREATE FOREIGN TABLE file (%s) SERVER bulk_files OPTIONS (filename %L, format ''binary'')', (SELECT string_agg(format('%I %s', attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'kinds'::regclass AND attnum > 0), data_path('binary.bin')); END $do$;
TRUNCATE loaded;
SET pg_bulk.direct_insert = off;
INSERT INTO loaded SELECT * FROM file;
SELECT differing();
SELECT count(*) FROM file;
SELECT count(*), count(t), sum(i4), max(ts), min(n) FROM file WHERE id % 3 = 1;
SELECT count(*), count(t), sum(i4), max(ts), min(n) FROM kinds WHERE id % 3 = 1;
SELECT id, dp, co FROM file WHERE e = 'happy' ORDER BY id LIMIT 2;
RESET pg_bulk.direct_insert;
SELECT plan_of('INSERT INTO loaded SELECT * FROM file', 'COSTS OFF') AS plan;
TRUNCATE loaded;
INSERT INTO loaded SELECT * FROM file;
SELECT differing(), (SELECT count(*) FROM verify_heapam('loaded'));
-- Joined, and as a partition beside a table.
CREATE TABLE joined (id int8, e mood, t text);
SELECT plan_of('INSERT INTO joined SELECT f.id, f.e, f.t FROM file f JOIN generate_series(5, 90, 5) g ON g = f.id', 'COSTS OFF') AS plan;
INSERT INTO joined SELECT f.id, f.e, f.t FROM file f JOIN generate_series(5, 90, 5) g ON g = f.id;
SELECT count(*), count(*) FILTER (WHERE a.e = k.e AND a.t = k.t) FROM joined a JOIN kinds k USING (id);
CREATE TABLE parts (id int8, name text) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (3);
SELECT copy_to($$SELECT i, 'part ' || i FROM generate_series(3, 6) i$$, 'binary.5.bin');
DO $do$ BEGIN EXECUTE format('CREATE FOREIGN TABLE parts_2 PARTITION OF parts FOR VALUES FROM (3) TO (10) SERVER bulk_files OPTIONS (filename %L, format ''binary'')', data_path('binary.5.bin')); END $do$;
SELECT error_of('SELECT * FROM parts_2');
SELECT copy_to($$SELECT i::int8, 'part ' || i FROM generate_series(3, 6) i$$, 'binary.5.bin');
INSERT INTO parts VALUES (1, 'one');
SELECT * FROM parts WHERE id <> 4 ORDER BY id;
ANALYZE file;
SELECT rows_expected('SELECT * FROM file');
SELECT count(*) FROM bulk_check(data_path('binary.bin'), 'loaded', '{"format": "binary"}');
-- Several processes read a binary file.
SET pg_bulk.aggregate_processes = 3; SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
SELECT set_config(name, 'on', false) AS forced FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \gset
ALTER FOREIGN TABLE file OPTIONS (ADD encoding 'utf8');
SELECT plan_of('SELECT count(t), sum(i4) FROM file') AS plan;
SELECT count(t), sum(i4) FROM file;
RESET pg_bulk.aggregate_processes; RESET min_parallel_table_scan_size; RESET parallel_setup_cost; RESET parallel_tuple_cost;
SELECT set_config(name, 'off', false) AS forced FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \gset
-- Records and fields for which the file has no column, columns in another order, defaults, expressions, where, limit.
SELECT copy_to($$SELECT i, 'n' || i, date '2024-01-01' + i FROM generate_series(1, 5) i$$, 'binary.1.bin');
SELECT copy_to($$SELECT i, NULL::text, date '2024-01-01' + i FROM generate_series(6, 8) i$$, 'binary.2.bin');
SELECT copy_to($$SELECT i, 'n' || i, 'since ' || i FROM generate_series(1, 5) i$$, 'binary.3.bin');
CREATE TABLE small (day date, id int PRIMARY KEY, name text, seen bool DEFAULT true, twice int GENERATED ALWAYS AS (id * 2) STORED, line int, path text);
SELECT * FROM figures('binary.[12].bin', 'small', '{"format": "binary", "columns": ["id", "name", "day", {"column": "path", "source": "filename"}, {"column": "line", "source": "line_number"}], "where": "id <> 2"}');
SELECT day, id, name, seen, twice, line, without_path(path) FROM small ORDER BY id;
SELECT * FROM figures('binary.3.bin', 'small', '{"format": "binary", "truncate": true, "columns": ["id", "label", "since", {"name": "name", "expr": "upper(label) || since"}], "limit": 2}');
SELECT id, name, day FROM small ORDER BY id;
SELECT * FROM bulk_read(data_path('binary.[12].bin'), '{"format": "binary", "limit": 6}') AS t (id int, name text, day date);
SELECT (SELECT rows_loaded FROM bulk_load(data_path('binary.1.bin'), 'small', '{"format": "binary", "on_duplicate": "keep_new", "columns": ["id", "name", "day"]}')), count(*), count(name) FROM small;
SELECT (rows_loaded, rows_duplicate) FROM bulk_load(data_path('binary.[12].bin'), 'small', '{"format": "binary", "on_duplicate": "keep_old", "columns": ["id", "name", "day"]}');
SELECT error_of(format('SELECT bulk_load(%L, ''small'', ''{"format": "binary", "columns": ["id", "name", "day"]}'')', data_path('binary.1.bin')));
SELECT count(*) FROM bulk_check(data_path('binary.1.bin'), 'small', '{"format": "binary", "columns": ["id", "name", "day"]}');
CREATE FOREIGN TABLE virtual (path text OPTIONS (source 'filename'), id int, name text, line int OPTIONS (source 'line_number'), day date) SERVER bulk_files OPTIONS (filename '?', format 'binary');
DO $do$ BEGIN EXECUTE format('ALTER FOREIGN TABLE virtual OPTIONS (SET filename %L)', data_path('binary.[12].bin')); END $do$;
SELECT id, name, line, day, right(path, 12) FROM virtual WHERE id > 4;
TRUNCATE small;
INSERT INTO small (id, name, line) SELECT id, name, line FROM virtual WHERE id < 7;
SELECT id, name, line FROM small ORDER BY id;
-- A compressed file; a program; a job of the queue.
DO $do$ BEGIN EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'cat >/dev/null; gzip -c "' || data_path('binary.1.bin') || '" >"' || data_path('binary.1.gz') || '"'); END $do$;
SELECT (rows_loaded, workers) FROM bulk_load(data_path('binary.1.gz'), 'small', '{"format": "binary", "truncate": true, "workers": 2, "columns": ["id", "name", "day"]}');
SELECT rows_loaded FROM bulk_load('cat "' || data_path('binary.2.bin') || '"', 'small', '{"format": "binary", "truncate": true, "program": true, "columns": ["id", "name", "day"]}');
SELECT bulk_enqueue(data_path('binary.1.bin'), 'small', '{"format": "binary", "columns": ["id", "name", "day"]}') AS job \gset
SELECT bulk_wait(:job);
SELECT count(*), count(name) FROM small;
SELECT count(*) FROM bt_index_check('small_pkey', true);
-- Headers.
SELECT same_binary('a int', header() || row_of('\x00000001') || '\xffff');
SELECT same_binary('a int', header() || row_of('\x00000001'));
SELECT same_binary('a int', header(65535, 'more') || row_of('\x00000001') || '\xffff');
SELECT same_binary('a int', header() || '\xffff');
SELECT same_binary('a int', header());
SELECT same_binary('a int', header() || '\x00');
SELECT same_binary('a int', '');
SELECT same_binary('a int', 'PGCOPY and no more');
SELECT same_binary('a int', replace(header()::text, '0d0a', '0a0a')::bytea);
SELECT same_binary('a int', substring(header() FOR n)) FROM unnest('{10, 12, 17}'::int[]) n;
SELECT same_binary('a int', header(65536));
SELECT same_binary('a int', header(131072));
SELECT same_binary('a int', header(-2147483648));
SELECT same_binary('a int', substring(header() FOR 15) || '\xffffffff');
SELECT same_binary('a int', substring(header() FOR 15) || '\x0000000361');
-- Records.
SELECT same_binary('a int', header() || row_of('\x00000001') || '\xffff00');
SELECT same_binary('a int', header() || row_of('\x00000001') || row_of('\x00000001', NULL));
SELECT same_binary('a int', header() || '\xfffe');
SELECT same_binary('a int, b text', header() || '\x0001');
SELECT same_binary('a int, b text', header() || '\x7fff');
SELECT same_binary('a int, b text', header() || row_of('\x00000001', 'x') || '\x0002' || '\x0000000400000002' || '\xfffffffe');
-- 18 uses another message.
SELECT replace(s, 'string buffer exceeds maximum allowed length (1073741823 bytes)', 'out of memory') FROM same_binary('a int, b text', header() || '\x0002' || '\x0000000400000002' || '\x7fffffff') s;
SELECT same_binary('a int, b text', header() || '\x0002' || '\x0000000400000002' || '\x3ffffffe' || 'too few');
SELECT replace(s, 'string buffer exceeds maximum allowed length (1073741823 bytes)', 'out of memory') FROM same_binary('a int, b text', header() || '\x0002' || '\x3fffffff') s;
-- An error in a field is reported before an error in a later field.
SELECT same_binary('a int, b text', header() || '\x0002' || '\x00000003000000' || '\x0000');
SELECT same_binary('a positive, b text', header() || '\x0002' || '\x00000004ffffffff' || '\x0000');
-- Values: of another size, out of range, invalid.
SELECT definition, same_binary('x ' || definition, header() || row_of(NULL) || row_of(bytes)) FROM (VALUES
	('bool', '\x02'::bytea), ('bool', ''), ('bool', '\x0101'), ('int2', '\x01'), ('int2', '\x010203'), ('int4', '\x0102030405'), ('int8', '\x01'), ('float4', '\x7fc00001'), ('float8', '\x7ff0000000000001'),
	('float8', '\x01'), ('date', '\x7ffffffe'), ('date', '\x7fffffff'), ('date', '\x80000001'), ('time', int8send(86400000000)), ('time', int8send(86400000001)), ('time', int8send(-1)), ('time(1)', int8send(86399999999)),
	('timestamp', int8send(9223371331200000000)), ('timestamp', int8send(9223371331199999999)), ('timestamp(3)', int8send(-1)), ('timestamp(0)', int8send(9223371331199999999)), ('timestamptz', int8send(-211813488000000001)),
	('timestamptz', int8send(-211813488000000000)), ('timestamptz', int8send(9223372036854775807)), ('uuid', '\x01'), ('text', '\x61ff'), ('text', '\x610062'), ('text', '\xc3a4'), ('varchar(2)', 'abc'), ('varchar(2)', 'ab  '),
	('varchar(2)', '\xc3a4c3a4'), ('char(2)', 'abc'), ('char(2)', 'a    '), ('bytea', ''), ('numeric', '\x00010000000000000001'), ('numeric', '\x0001000000000000ffff'), ('numeric(3,1)', numeric_send(123.4)), ('numeric(3,1)', numeric_send(3.14)),
	('jsonb', '\x027b7d'), ('jsonb', '\x017b'), ('json', '{}'), ('json', '{'), ('"char"', '\xff'), ('name', repeat('x', 70)::bytea), ('positive', '\x00000000'), ('positive NOT NULL', '\x00000005'), ('word', 'longer'),
	('int[]', array_send('{1,2}'::int[])), ('int[]', array_send('{a}'::text[])), ('point', '\x01'), ('mood', 'ok'), ('mood', 'angry'), ('pair', record_send(ROW(1, 'x'::text)::pair)), ('int CHECK (x < 5)', '\x00000007')) v (definition, bytes);
CREATE DOMAIN wanted AS text NOT NULL;
SELECT same_binary('x wanted, y int', header() || row_of('a', NULL) || row_of(NULL, '\x01'));
SELECT same_binary('x aclitem', header() || row_of(NULL));
-- Duplicates are found again in the file, among records of different lengths in many chunks.
SET pg_bulk.chunk_size = '1kB';
SELECT header() || string_agg(row_of(int4send(CASE i WHEN 2500 THEN 10 ELSE i END), CASE WHEN i % 3 > 0 THEN repeat('v', i % 50)::bytea END), '' ORDER BY i) || '\xffff' AS content FROM generate_series(1, 3000) i \gset
SELECT same_binary('a int PRIMARY KEY, b text', :'content');
SELECT same_binary('a int, b text', :'content');
CALL write_bytes('binary.4.bin', :'content');
CREATE TABLE unique_ones (a int PRIMARY KEY, b text);
SELECT d, (SELECT (rows_loaded, rows_duplicate) FROM bulk_load(data_path('binary.4.bin'), 'unique_ones', jsonb_build_object('format', 'binary', 'truncate', true, 'on_duplicate', d))) FROM unnest('{keep_old,keep_new}'::text[]) d;
SELECT count(*), max(length(b)) FILTER (WHERE a = 10) FROM unique_ones;
SELECT line_number, message FROM bulk_check(data_path('binary.4.bin'), 'unique_ones', '{"format": "binary", "truncate": true}');
RESET pg_bulk.chunk_size;
-- Files that are cut off at any byte.
SELECT substring(string_agg(DISTINCT r, E'\n'), 1, 1000) FROM (SELECT same_binary('id int, name text, day date', substring(f FOR n)) AS r FROM pg_read_binary_file(data_path('binary.2.bin')) f, generate_series(0, length(f)) n) c;
CREATE FUNCTION scanned(content bytea) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	CALL write_bytes('binary.cut.bin', content);
	RETURN string_agg(e, ' ') FROM error_of('SELECT * FROM cut') e;
END $$;
DO $do$ BEGIN EXECUTE format('CREATE FOREIGN TABLE cut (id int, name text, day date) SERVER bulk_files OPTIONS (filename %L, format ''binary'')', data_path('binary.cut.bin')); END $do$;
SELECT n, s FROM (SELECT min(n) AS n, scanned(substring(f FOR n)) AS s FROM pg_read_binary_file(data_path('binary.2.bin')) f, generate_series(0, length(f)) n GROUP BY 2) s ORDER BY n;
SELECT scanned(header() || '\x0003' || '\x00000004' || '\x00000001' || '\x00000002' || 'ab' || '\x00000003');
SELECT error_of('SELECT id FROM cut');
SELECT error_of('SELECT count(*) FROM cut');
CREATE TABLE cut_off (LIKE cut);
SELECT line_number, message FROM bulk_check(data_path('binary.cut.bin'), 'cut_off', '{"format": "binary"}');
CALL write_bytes('binary.cut.bin', header() || row_of('\x00000001', 'x', NULL) || row_of('\x00000001', 'x', '\x7ffffff0') || '\xffff');
SELECT error_of(format('SELECT line_number, message FROM bulk_check(%L, ''cut_off'', ''{"format": "binary"}'')', data_path('binary.cut.bin')));
SELECT id, name FROM cut;
SELECT error_of('SELECT id, day FROM cut');
-- Strings are converted from client_encoding only.
SET client_encoding = latin1;
SELECT same_binary('x text, v varchar(3), j json', header() || row_of('\xe4', '\xe4f6fc', '\x22e422'));
SELECT length(x), x = U&'\00e4', length(j) FROM (SELECT x, j::text AS j FROM loaded.t) t;
SELECT same_binary('x text, v varchar(3), j json', header() || row_of('a', '\xe4f6fc61', '\x22e422'));
SET client_encoding = sjis;
SELECT same_binary('x text, v varchar(3)', header() || row_of('\x8abf', '\x835c'));
SELECT same_binary('x text, v varchar(3)', header() || row_of('\x8a', '\x835c'));
SET client_encoding = utf8;
SELECT error_of(format('SELECT bulk_load(%L, ''small'', ''{"format": "binary", "encoding": "latin1"}'')', data_path('binary.1.bin')));
SELECT error_of($$ALTER FOREIGN TABLE file OPTIONS (SET encoding 'latin1'); SELECT * FROM file$$);
BEGIN;
DECLARE c CURSOR FOR SELECT id, name FROM virtual;
FETCH 1 FROM c;
SET LOCAL client_encoding = latin1;
\set VERBOSITY terse
FETCH 1 FROM c;
\set VERBOSITY default
ROLLBACK;
-- Invalid combinations of options.
SELECT o, error_of(format('CREATE FOREIGN TABLE wrong (a int) SERVER bulk_files OPTIONS (filename ''x'', format ''binary'', %s)', o)) FROM unnest(ARRAY[$$delimiter ','$$, $$null ''$$, $$default 'x'$$, $$quote '"'$$, $$escape '"'$$, $$force_null '*'$$,
	$$force_not_null '*'$$, $$header 'true'$$, $$header 'match'$$, $$header '2'$$, $$on_error 'ignore'$$, $$on_error 'set_null'$$, $$reject_limit '3'$$, $$match_by 'name'$$, $$match_by 'position'$$, $$skip '1'$$, $$record_length '3'$$, $$line_ends 'true'$$]) o;
SELECT o, error_of(format('CREATE FOREIGN TABLE wrong (a int OPTIONS (%s)) SERVER bulk_files OPTIONS (filename %L, format ''binary'', header ''off''); SELECT * FROM wrong', o, data_path('binary.1.bin'))) FROM unnest(ARRAY[$$force_null 'true'$$, $$length '3'$$, $$nullif ''$$]) o;
SELECT o, error_of(format('SELECT bulk_load(%L, ''small'', %L)', data_path('binary.1.bin'), '{"format": "binary"}'::jsonb || o)) FROM unnest(ARRAY['{"on_error": "table"}', '{"skip": 1}', '{"header": true}', '{"null": ""}']::jsonb[]) o;
SELECT error_of(format('SELECT * FROM bulk_sniff(%L, ''{"format": "binary"}'')', data_path('binary.1.bin')));
-- The server itself runs a COPY of this format.
LOAD 'pg_bulk';
SET pg_bulk.copy = on;
SET pg_bulk.copy_min_size = 0;
TRUNCATE copied;
DO $do$ BEGIN EXECUTE format('COPY copied FROM %L (FORMAT binary)', data_path('binary.bin')); END $do$;
SELECT count(*), differing() FROM copied;
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA IF EXISTS copied, loaded CASCADE;
DROP SCHEMA binary_format CASCADE;
