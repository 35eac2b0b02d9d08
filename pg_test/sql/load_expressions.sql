--
-- Expressions in columns: columns that are computed from a file's fields. The oracle is an INSERT … SELECT over a foreign table.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_expressions
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CALL write_file('expressions.csv', E'1,ada,20240131,"3,5"\n2,,20240229,0\n3,"o""k",20231231,-1\n');
CREATE TABLE t (id int PRIMARY KEY, name text DEFAULT 'none', day date, amount numeric CHECK (amount > -4), who varchar(5), seen int DEFAULT 5);
CREATE FUNCTION loaded(columns jsonb, options jsonb DEFAULT '{}', file text DEFAULT 'expressions.csv', target regclass DEFAULT 't') RETURNS text LANGUAGE sql AS $$
	SELECT (rows_loaded, rows_rejected, rows_filtered, writer, workers, notes)::text
	FROM bulk_load(data_path(file), target, jsonb_build_object('format', 'csv', 'columns', columns) || options)
$$;
-- Inputs have type text; a name that is also a column of the table gets its field.
\set columns '["id", "name", "day_text", "amount_text", {"name": "day", "expr": "to_date(day_text, \'YYYYMMDD\')"}, {"name": "amount", "expr": "replace(amount_text, \',\', \'.\')::numeric * id"}]'
SELECT loaded(:'columns');
SELECT * FROM t ORDER BY id;
TRUNCATE t;
SELECT loaded(:'columns', '{"writer": "buffered"}');
SELECT id, name, day, amount, who FROM t ORDER BY id;
TRUNCATE t;
-- Without names: all columns except the computed ones. A field need not be used by an expression, and an expression need not use a field.
CREATE TABLE three (a int, b int, c int, d int GENERATED ALWAYS AS (a + c) STORED);
CALL write_file('expressions_two.csv', E'1,2\n3,4\n,\n');
SELECT loaded('[{"name": "c", "expr": "a * 10 + coalesce(b, 0)"}]', '{}', 'expressions_two.csv', 'three');
SELECT loaded('[{"name": "b", "expr": "17"}]', '{"writer": "buffered"}', 'expressions_two.csv', 'three');
SELECT loaded('["x", "b", {"name": "c", "expr": "length(x) + b"}, {"column": "a", "source": "line_number"}]', '{"where": "c = 3"}', 'expressions_two.csv', 'three');
SELECT loaded('["x", "y", {"name": "a", "expr": "x"}]', '{}', 'expressions_two.csv', 'three');
TABLE three;
TRUNCATE three;

-- Many rows, by each number of processes and both writers, compared with an INSERT.
COPY (SELECT i, i || '-' || md5(i::text), i % 97 FROM generate_series(1, 20000) i) TO PROGRAM 'cat >expressions_many.csv' (FORMAT csv);
CREATE TABLE many (id bigint, left_part int, right_part text, twice numeric, kind text);
CREATE TABLE wanted (LIKE many);
CREATE FOREIGN TABLE f (id bigint, pair text, n int) SERVER bulk_files OPTIONS (filename 'expressions_many.csv', format 'csv');
CREATE FUNCTION kind(n int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT CASE WHEN n > 50 THEN 'large' WHEN n > 90 THEN 'huge' ELSE 'small' END $$;
CREATE FUNCTION slow_kind(n int) RETURNS text LANGUAGE plpgsql STABLE PARALLEL RESTRICTED AS $$ BEGIN RETURN kind(n); END $$;
INSERT INTO wanted SELECT id, split_part(pair, '-', 1)::int, split_part(pair, '-', 2), n * 2.0, kind(n) FROM f;
SET pg_bulk.chunk_size = '64kB';
CREATE FUNCTION differs(options jsonb, kind text DEFAULT 'kind') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	TRUNCATE many;
	SELECT (rows_loaded, writer, workers, notes) INTO result FROM bulk_load('expressions_many.csv', 'many', jsonb_build_object('format', 'csv',
		'columns', jsonb_build_array('id', 'pair', 'n', '{"name": "left_part", "expr": "split_part(pair, ''-'', 1)::int"}'::jsonb,
			'{"name": "right_part", "expr": "split_part(pair, ''-'', 2)"}'::jsonb, '{"name": "twice", "expr": "n::int * 2.0"}'::jsonb,
			jsonb_build_object('name', 'kind', 'expr', kind || '(n::int)'))) || options);
	RETURN result || ' ' || (SELECT count(*) FROM ((TABLE many EXCEPT ALL TABLE wanted) UNION ALL (TABLE wanted EXCEPT ALL TABLE many)) d);
END $$;
SELECT differs('{"workers": 0}');
SELECT differs('{"workers": 2}');
SELECT differs('{"writer": "buffered"}');
-- Not parallel safe: one process. Volatile: it may query the table.
SELECT differs('{"workers": 2}', 'slow_kind');
ALTER FUNCTION slow_kind VOLATILE PARALLEL SAFE;
SELECT differs('{"workers": 2}', 'slow_kind');
SELECT error_of($$SELECT differs('{"writer": "direct"}', 'slow_kind')$$);
RESET pg_bulk.chunk_size;
-- The first error in the order of the file is reported, with its line, even if it is in a worker's row.
SELECT error_of($$SELECT bulk_load('expressions_many.csv', 'many', '{"format": "csv", "workers": 2, "columns": ["id", "right_part", "n", {"name": "left_part", "expr": "1 / (n::int - 7)"}]}')$$);
SELECT error_of($$SELECT bulk_load('expressions_many.csv', 'many', '{"format": "csv", "writer": "buffered", "columns": ["id", "right_part", "n", {"name": "left_part", "expr": "1 / (n::int - 7)"}]}')$$);
DO $$ BEGIN EXECUTE 'COPY (SELECT WHERE false) TO PROGRAM ''rm expressions_many.csv'''; END $$;

-- Constraints, and values that do not fit, reject the row. Rows with bad fields are rejected before expressions are evaluated.
SELECT error_of($$SELECT loaded('["id", "name", "x", "y", {"name": "amount", "expr": "length(x || y) - id * 5"}]')$$);
SELECT loaded('["id", "name", "x", "y", {"name": "amount", "expr": "length(x || y) - id * 7"}]', '{"on_error": "table"}');
SELECT line_number, sqlstate, message FROM bulk_rejects WHERE target = 'load_expressions.t' ORDER BY line_number;
SELECT line_number, message FROM bulk_check(data_path('expressions.csv'), 't', '{"format": "csv", "columns": ["id", "name", "x", "y", {"name": "amount", "expr": "length(x || y) - id * 7"}]}');
TRUNCATE t;
SELECT error_of($$SELECT loaded('["id", "name", "x", "y", {"name": "who", "expr": "x || y"}]')$$);

-- Several files, whose headers have other names, in other orders.
\! mkdir -p "$PGB_DATA/expressions"; cd "$PGB_DATA/expressions"; printf 'p,q\n1,2\n' >1.csv; printf 'q,p\n4,3\n' >2.csv
SELECT loaded('["a", "y", {"name": "b", "expr": "a + y::int * 10"}]', '{"header": true}', 'expressions/*.csv', 'three');
SELECT loaded('["a", "y", {"name": "b", "expr": "a + y::int * 10"}]', '{"header": true, "writer": "buffered", "truncate": true}', 'expressions/*.csv', 'three');
TABLE three;
TRUNCATE three;
\! rm -r "$PGB_DATA/expressions"
-- A job.
SELECT bulk_enqueue(data_path('expressions_two.csv'), 'three', '{"format": "csv", "columns": ["a", "y", {"name": "c", "expr": "length(y)"}]}') AS job \gset
SELECT bulk_wait(:job, '1 min');
TABLE three;
TRUNCATE three;
-- Partitions.
CREATE TABLE parted (id int, half int) PARTITION BY LIST (half);
CREATE TABLE part_0 PARTITION OF parted FOR VALUES IN (0);
CREATE TABLE part_1 PARTITION OF parted DEFAULT;
SELECT loaded('["a", "b", {"name": "id", "expr": "a::int"}, {"name": "half", "expr": "coalesce(b::int, 0) / 2"}]', '{"null": ""}', 'expressions_two.csv', 'parted');
SELECT tableoid::regclass, * FROM parted ORDER BY id;

-- Errors.
SELECT error_of($$SELECT loaded('["id", "name", "x", "y", {"name": "none", "expr": "x || y"}]')$$);
SELECT error_of($$SELECT loaded('["id", "name", "x", "y", {"name": "who", "expr": "x || z"}]')$$);
SELECT error_of($$SELECT loaded('["id", "name", "x", "y", {"name": "who", "expr": "x || t.name || amount"}]')$$);
SELECT error_of($$SELECT loaded('["id", "name", "x", "nome", {"name": "who", "expr": "x"}]')$$);
SELECT error_of($$SELECT loaded('["id", "name", "x", "x", {"name": "who", "expr": "x"}]')$$);
SELECT error_of($$SELECT loaded('["id", "name", "x", {"name": "name", "expr": "x"}]')$$);
SELECT error_of($$SELECT loaded('["x", {"name": "id", "expr": "x::int"}, {"name": "id", "expr": "x::int"}]')$$);
SELECT error_of($$SELECT loaded('["x", {"name": "day", "expr": "x"}]')$$);
SELECT error_of($$SELECT loaded('["x", {"name": "day", "expr": "1 +"}]')$$);
SELECT error_of($$SELECT loaded('["x", {"name": "day", "expr": "now(); DROP TABLE t"}]')$$);
SELECT error_of($$SELECT loaded('["x", {"name": "id", "expr": "(SELECT 1)"}]')$$);
SELECT error_of($$SELECT loaded('["x", {"name": "id", "expr": "count(x)"}]')$$);
SELECT error_of($$SELECT loaded('["x", {"name": "id", "expr": "generate_series(1, 2)"}]')$$);
SELECT error_of($$SELECT loaded('["x", {"name": "id", "expr": "1 / 0"}]')$$);
SELECT error_of($$SELECT loaded('["x", {"name": "id"}]')$$);
SELECT error_of($$SELECT loaded('["x", {"name": "id", "expr": 1}]')$$);
SELECT error_of($$SELECT loaded('["x", {"name": "id", "expr": "1", "column": "id"}]')$$);
SELECT error_of($$SELECT loaded('["x", {"name": "id", "exp": "1"}]')$$);
SELECT error_of($$SELECT loaded('[{"name": "id", "expr": "1"}]', '{"match_by": "name"}')$$);
SELECT error_of($$SELECT loaded('["a", "b", {"name": "d", "expr": "1"}]', '{}', 'expressions_two.csv', 'three')$$);
SELECT error_of(format($$SELECT loaded(%L)$$, (SELECT jsonb_agg('x' || i) || '[{"name": "id", "expr": "x1::int"}]' FROM generate_series(1, 40000) i)));
-- A name in an expression is an input even if the expression simplifies without it;
-- force_null applies to inputs, too; long names are truncated as by the parser.
SELECT loaded('["x", "y", {"name": "a", "expr": "coalesce(7, x::int)"}, {"name": "b", "expr": "y::int"}]', '{}', 'expressions_two.csv', 'three');
CALL write_file('expressions_quoted.csv', E'"",1\n');
SELECT loaded('["x", "b", {"name": "a", "expr": "CASE WHEN x IS NULL THEN 8 ELSE 9 END"}]', '{"force_null": ["x"]}', 'expressions_quoted.csv', 'three');
SELECT loaded(jsonb_build_array(repeat('é', 40), 'b', jsonb_build_object('name', 'a', 'expr', format('10 + length(%s)', repeat('é', 40)))), '{}', 'expressions_quoted.csv', 'three');
TABLE three;
TRUNCATE three;
-- A row that a function writes to another table is not part of the load: its errors are not survived.
CREATE TABLE audit (n int CHECK (n < 3));
CREATE FUNCTION log_it(int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audit VALUES ($1); RETURN $1; END $$;
SELECT error_of($$SELECT count(*) FROM bulk_check(data_path('expressions_two.csv'), 'three', '{"format": "csv", "columns": ["x", "b", {"name": "a", "expr": "log_it(x::int)"}]}')$$);
TABLE audit;
-- Privileges: on the computed columns, and on the functions.
SET client_min_messages = warning;
CREATE ROLE expressions_loader IN ROLE pg_read_server_files;
RESET client_min_messages;
GRANT USAGE ON SCHEMA load_expressions TO expressions_loader;
GRANT INSERT (a) ON three TO expressions_loader;
REVOKE EXECUTE ON FUNCTION kind FROM PUBLIC;
SET ROLE expressions_loader;
SELECT error_of($$SELECT loaded('["x", "y", {"name": "b", "expr": "x::int + y::int"}]', '{}', 'expressions_two.csv', 'three')$$);
SELECT error_of($$SELECT loaded('["x", "y", {"name": "a", "expr": "length(kind(x::int + y::int))"}]', '{}', 'expressions_two.csv', 'three')$$);
SELECT loaded('["x", "y", {"name": "a", "expr": "x::int + y::int"}]', '{}', 'expressions_two.csv', 'three');
RESET ROLE;
TABLE three;
SET client_min_messages = warning;
DROP SCHEMA load_expressions CASCADE;
DROP ROLE expressions_loader;
