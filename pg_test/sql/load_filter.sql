--
-- Option filter: a function that returns the row for a record's fields, or NULL to skip it. The oracle is the server's own call of it.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_filter
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CALL write_file('filter.csv', E'1,ada,20240131,"3,5"\n2,,20240229,0\n3,"o""k",20231231,-1\n');
CREATE TABLE t (id int PRIMARY KEY, name varchar(6), day date, amount numeric CHECK (amount > -4), twice int GENERATED ALWAYS AS (id * 2) STORED);
CREATE FUNCTION loaded(filter text, options jsonb DEFAULT '{}', file text DEFAULT 'filter.csv', target regclass DEFAULT 't') RETURNS text LANGUAGE sql AS $$
	SELECT (rows_loaded, rows_rejected, rows_filtered, writer, notes)::text
	FROM bulk_load(data_path(file), target, jsonb_build_object('format', 'csv', 'filter', filter) || options)
$$;
-- Functions that return the table's type with all columns, or a record of the columns that take values; typed arguments are converted.
CREATE FUNCTION whole(id int, name text, day text, amount text) RETURNS t LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT id, upper(name), to_date(day, 'YYYYMMDD'), replace(amount, ',', '.')::numeric * id, 0
$$;
CREATE FUNCTION columns(id int, name text, day text, amount text, OUT int, OUT text, OUT date, OUT numeric) LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT id, upper(name), to_date(day, 'YYYYMMDD'), replace(amount, ',', '.')::numeric * id
$$;
CREATE FUNCTION called(id int, name text, day text, amount text) RETURNS t LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
	RETURN whole(id, name, day, amount);
END $$;
CREATE FUNCTION any_row(id int, name varchar, day text, amount text) RETURNS record LANGUAGE plpgsql STABLE PARALLEL RESTRICTED AS $$
BEGIN
	RETURN (id, upper(name)::varchar(6), to_date(day, 'YYYYMMDD'), replace(amount, ',', '.')::numeric * id);
END $$;
CREATE FUNCTION as_row(id int, name text, day text, amount text) RETURNS t LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$
	SELECT ROW(id, upper(name), to_date(day, 'YYYYMMDD'), replace(amount, ',', '.')::numeric * id, 0)::t
$$;
CREATE FUNCTION atomic(id int, name text, day text, amount text) RETURNS t IMMUTABLE PARALLEL RESTRICTED RETURN (id, upper(name), to_date(day, 'YYYYMMDD'), replace(amount, ',', '.')::numeric * id, 0)::t;
CREATE FUNCTION atomic_block(id int, name text, day text, amount text) RETURNS t IMMUTABLE PARALLEL RESTRICTED BEGIN ATOMIC
	SELECT id, upper(name), to_date(day, 'YYYYMMDD'), replace(amount, ',', '.')::numeric * id, 0;
END;
CREATE DOMAIN t_domain AS t CHECK ((VALUE).id < 10);
CREATE FUNCTION of_domain(id int, name text, day text, amount text) RETURNS t_domain LANGUAGE plpgsql STABLE PARALLEL RESTRICTED AS $$ BEGIN RETURN whole(id, name, day, amount); END $$;
CREATE FUNCTION of_domain_sql(id int, name text, day text, amount text) RETURNS t_domain LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT ROW(id + 8, name, NULL, 1, 1)::t $$;
SELECT loaded('whole');
SELECT * FROM t ORDER BY id;
CREATE TABLE wanted AS TABLE t;
CREATE FUNCTION same(filter text, options jsonb DEFAULT '{}') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	TRUNCATE t;
	result := loaded(filter, options);
	RETURN result || ' ' || (SELECT count(*) FROM ((TABLE t EXCEPT ALL TABLE wanted) UNION ALL (TABLE wanted EXCEPT ALL TABLE t)) d);
END $$;
SELECT f, same(f) FROM unnest('{columns,called,any_row,as_row,atomic,atomic_block,of_domain,"load_filter.whole(int, text, text, text)","\"whole\""}'::text[]) f;
SELECT f, same(f, '{"writer": "buffered"}') FROM unnest('{whole,columns,called,any_row,as_row,of_domain}'::text[]) f;
TRUNCATE t;
SELECT error_of($$SELECT loaded('of_domain_sql')$$);

-- NULL skips the row, and so does STRICT with a NULL; a row of NULLs is a row. `where` sees the function's result.
CREATE TABLE two (a int, b text);
CALL write_file('filter_two.csv', E'1,x\n2,\n,y\n4,z\n');
CREATE FUNCTION odd(a int, b text) RETURNS two LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT a, b WHERE a <> 2 $$;
CREATE FUNCTION odd_case(a int, b text) RETURNS two LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT CASE WHEN a <> 2 THEN ROW(a, b)::two END $$;
CREATE FUNCTION odd_called(a int, b text) RETURNS two LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN IF a <> 2 THEN RETURN (a, b); END IF; RETURN NULL; END $$;
CREATE FUNCTION strict_one(a int, b text) RETURNS two LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED STRICT AS $$ SELECT a, b $$;
CREATE FUNCTION strict_called(a int, b text) RETURNS two LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED STRICT AS $$ BEGIN RETURN (a, b); END $$;
CREATE FUNCTION nothing(a int, b text) RETURNS two LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT NULL::int, NULL::text $$;
CREATE FUNCTION each_writer(filter text, options jsonb DEFAULT '{}') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	FOR w IN 0..1 LOOP
		result := loaded(filter, options || CASE w WHEN 1 THEN '{"writer": "buffered"}' ELSE '{}' END::jsonb, 'filter_two.csv', 'two');
		RETURN NEXT result || ' ' || (SELECT coalesce(string_agg(two::text, ' ' ORDER BY a, b), '') FROM two);
		TRUNCATE two;
	END LOOP;
END $$;
SELECT f, each_writer(f) FROM unnest('{odd,odd_case,odd_called,strict_one,strict_called,nothing}'::text[]) f;
SELECT each_writer('odd', '{"where": "b <> ''z''", "on_error": "table"}');
SELECT each_writer('odd', '{"limit": 1}');
-- Fields that the result does not use are converted nevertheless.
CALL write_file('filter_bad.csv', E'2,x\nbad,y\n3,z\n');
CREATE FUNCTION second(a int, b text) RETURNS two LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT 7, b WHERE b <> 'y' $$;
SELECT error_of($$SELECT loaded('second', '{}', 'filter_bad.csv', 'two')$$);
SELECT loaded('second', '{"on_error": "table"}', 'filter_bad.csv', 'two');
TABLE two;
TRUNCATE two;

-- Fewer fields than arguments: the arguments' defaults, evaluated for each row. More: extra data.
CREATE SEQUENCE numbers;
CREATE FUNCTION with_defaults(a int, b text DEFAULT 'none', c int DEFAULT nextval('numbers')) RETURNS two LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT a + c * 10, b $$;
CALL write_file('filter_short.csv', E'1\n2,two\n3,three,3\n4,\n');
SELECT loaded('with_defaults', '{}', 'filter_short.csv', 'two');
TABLE two;
TRUNCATE two;
SELECT loaded('with_defaults', '{"writer": "buffered", "on_error": "ignore"}', 'filter_short.csv', 'two');
TABLE two;
TRUNCATE two;
CALL write_file('filter_long.csv', E'1,a,2\n1,a,2,b\n');
SELECT error_of($$SELECT loaded('with_defaults', '{}', 'filter_long.csv', 'two')$$);
CALL write_file('filter_none.csv', E'1,a\n2\n');
SELECT error_of($$SELECT loaded('odd', '{}', 'filter_none.csv', 'two')$$);
SELECT loaded('odd', '{"on_error": "table"}', 'filter_none.csv', 'two');
TRUNCATE two;
CREATE FUNCTION unnamed(int, text DEFAULT 'x') RETURNS two LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT $1 + 1, $2 || $2 $$;
CALL write_file('filter_one.csv', E'1\n2\n');
SELECT loaded('unnamed', '{"columns": ["n"]}', 'filter_one.csv', 'two');
SELECT error_of($$SELECT loaded('unnamed', '{"columns": ["n"]}', 'filter_two.csv', 'two')$$);
TABLE two;
TRUNCATE two;
SELECT error_of($$SELECT loaded('unnamed', '{}', 'filter_bad.csv', 'two')$$);
-- Names of fields are used for messages, the header, force_null and records of fixed length.
CALL write_file('filter_header.csv', E'n,m\n5,""\n');
SELECT loaded('unnamed', '{"columns": ["n", "m"], "header": "match", "force_null": ["m"]}', 'filter_header.csv', 'two');
SELECT error_of($$SELECT loaded('unnamed', '{"columns": ["n", "o"], "header": "match"}', 'filter_header.csv', 'two')$$);
CALL write_file('filter_fixed.txt', E'  5abc\n  6d  \n');
SELECT loaded('unnamed', '{"format": "fixed", "columns": [{"column": "n", "length": 3}, {"column": "m", "length": 3}]}', 'filter_fixed.txt', 'two');
SELECT loaded('unnamed', '{"format": "fixed", "record_length": 6, "columns": [{"column": "n", "length": 3}]}', 'filter_fixed.txt', 'two');
TABLE two;
TRUNCATE two;

-- One of the server's own functions in C, whose columns have other types than the table's.
CREATE TABLE positions (file varchar(30), position bigint);
CALL write_file('filter_lsn.csv', E'0/1000010\n\nA/FF\n');
SELECT loaded('pg_walfile_name_offset', '{}', 'filter_lsn.csv', 'positions');
TABLE positions;
SELECT error_of($$SELECT loaded('pg_walfile_name_offset', '{}', 'filter_two.csv', 'positions')$$);

-- An error in the function: reported with its row, or survived with on_error.
CREATE TABLE audit (n int);
CREATE FUNCTION picky(a int, b text) RETURNS two LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN IF a = 2 THEN RAISE EXCEPTION 'not %', a; END IF; RETURN (10 / (a - 4), b); END $$;
CREATE FUNCTION picky_sql(a int, b text) RETURNS two LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT 10 / (a - 4), b $$;
CREATE FUNCTION writes(a int, b text) RETURNS two LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audit VALUES (a); IF a = 4 THEN RAISE EXCEPTION 'not this'; END IF; RETURN (a, b); END $$;
SELECT error_of($$SELECT loaded('picky', '{}', 'filter_two.csv', 'two')$$);
SELECT error_of($$SELECT loaded('picky_sql', '{}', 'filter_two.csv', 'two')$$);
-- A function that is labeled less volatile than its body is called, not inlined: its errors name it.
CREATE FUNCTION lies(a int, b text) RETURNS two LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT 10 / (a - 4), timeofday() $$;
SELECT error_of($$SELECT loaded('lies', '{}', 'filter_two.csv', 'two')$$);
SELECT error_of($$SELECT loaded('picky', '{"on_error": "set_null"}', 'filter_two.csv', 'two')$$);
SELECT f, each_writer(f, o::jsonb) FROM unnest('{picky,picky_sql}'::text[]) f, unnest(ARRAY['{"on_error": "table"}', '{"on_error": "ignore"}']) o;
SELECT error_of($$SELECT loaded('picky', '{"on_error": "ignore", "reject_limit": 1}', 'filter_two.csv', 'two')$$);
SELECT line_number, sqlstate, message, raw_line FROM bulk_rejects WHERE target = 'load_filter.two' ORDER BY load_id, line_number;
SELECT line_number, sqlstate, message FROM bulk_check(data_path('filter_two.csv'), 'two', '{"format": "csv", "filter": "picky"}');
-- Its writes for a rejected row are rolled back.
SELECT each_writer('writes', '{"on_error": "table"}');
TABLE audit;
SELECT error_of($$SELECT loaded('writes', '{"on_error": "table", "writer": "direct"}', 'filter_two.csv', 'two')$$);
-- An error of the class operator intervention is not survived.
CREATE FUNCTION ends(a int, b text) RETURNS two LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN RAISE EXCEPTION 'enough' USING ERRCODE = 'crash_shutdown'; END $$;
SELECT error_of($$SELECT loaded('ends', '{"on_error": "table"}', 'filter_two.csv', 'two')$$);
-- Constraints check the function's result.
CALL write_file('filter_minus.csv', E'1,a,20240101,"-5"\n2,bbbbbbb,20240101,1\n3,c,20240101,1\n');
SELECT error_of($$SELECT loaded('whole', '{}', 'filter_minus.csv')$$);
SELECT loaded('whole', '{"on_error": "table"}', 'filter_minus.csv');
SELECT line_number, sqlstate, message FROM bulk_rejects WHERE target = 'load_filter.t' ORDER BY line_number;
TRUNCATE t;

-- Many rows, by each number of processes and both writers; a function that is not parallel safe runs in one process.
COPY (SELECT i, i || '-' || md5(i::text), i % 97 FROM generate_series(1, 20000) i) TO PROGRAM 'cat >filter_many.csv' (FORMAT csv);
CREATE TABLE many (id bigint, left_part int, right_part text, list int[]);
CREATE FUNCTION many_sql(id bigint, pair text, n int) RETURNS many LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT id, split_part(pair, '-', 1)::int, split_part(pair, '-', 2), ARRAY[n, n + 1] WHERE n <> 13
$$;
CREATE FUNCTION many_called(id bigint, pair text, n int) RETURNS many LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN RETURN many_sql(id, pair, n); END $$;
CREATE FUNCTION many_alone(id bigint, pair text, n int) RETURNS many LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$
	SELECT id, split_part(pair, '-', 1)::int, split_part(pair, '-', 2), ARRAY[n, n + 1] WHERE n <> 13
$$;
CREATE FOREIGN TABLE f (id bigint, pair text, n int) SERVER bulk_files OPTIONS (filename 'filter_many.csv', format 'csv');
CREATE TABLE many_wanted AS SELECT (m).* FROM (SELECT many_called(id, pair, n) AS m FROM f OFFSET 0) x WHERE (m).id IS NOT NULL;
SET pg_bulk.chunk_size = '64kB';
CREATE FUNCTION differs(filter text, options jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	TRUNCATE many;
	SELECT (rows_loaded, rows_filtered, writer, workers, notes) INTO result
		FROM bulk_load('filter_many.csv', 'many', jsonb_build_object('format', 'csv', 'filter', filter) || options);
	RETURN result || ' ' || (SELECT count(*) FROM ((TABLE many EXCEPT ALL TABLE many_wanted) UNION ALL (TABLE many_wanted EXCEPT ALL TABLE many)) d);
END $$;
SELECT f, o, differs(f, o::jsonb) FROM unnest('{many_sql,many_called,many_alone}'::text[]) f,
	unnest(ARRAY['{"workers": 0}', '{"workers": 2}', '{"writer": "buffered"}', '{"workers": 2, "on_error": "table"}']) o;
-- Volatile: it may query the table.
ALTER FUNCTION many_called VOLATILE;
SELECT differs('many_called', '{"workers": 2}');
-- The first error in the order of the file is reported, with its line, even if it is in a worker's row.
CREATE FUNCTION many_picky(id bigint, pair text, n int) RETURNS many LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN RETURN (id, 1 / (n - 7), pair, '{}'::int[]); END $$;
SELECT error_of($$SELECT bulk_load('filter_many.csv', 'many', '{"format": "csv", "workers": 2, "filter": "many_picky"}')$$);
-- The same checks for functions that take the table's row.
CREATE TABLE many_rows (id bigint PRIMARY KEY, pair text, n int);
CREATE FUNCTION row_sql(r many_rows) RETURNS many_rows LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT r.id, NULLIF(upper(r.pair), '5'), r.n * 2 WHERE r.n <> 13 $$;
CREATE FUNCTION row_called(r many_rows) RETURNS many_rows LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	IF r.n = 13 THEN RETURN NULL; END IF;
	r.pair := upper(r.pair);
	r.n := r.n * 2;
	RETURN r;
END $$;
CREATE FUNCTION row_upper(r many_rows) RETURNS many_rows LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$ BEGIN r.pair := upper(r.pair); r.n := r.n * 2; RETURN r; END $$;
CREATE FUNCTION row_both(r many_rows) RETURNS many_rows LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT row_upper(r) WHERE r.n <> 13 $$;
CREATE FUNCTION row_alone(r many_rows) RETURNS many_rows LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN RETURN row_called(r); END $$;
CREATE TABLE many_rows_wanted AS SELECT (r).* FROM (SELECT row_called(ROW(id, pair, n)::many_rows) AS r FROM f OFFSET 0) x WHERE (r).id IS NOT NULL;
CREATE FUNCTION rows_differ(filter text, options jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	TRUNCATE many_rows;
	SELECT (rows_loaded, rows_filtered, writer, workers, notes) INTO result
		FROM bulk_load('filter_many.csv', 'many_rows', jsonb_build_object('format', 'csv', 'filter', filter) || options);
	RETURN result || ' ' || (SELECT count(*) FROM ((TABLE many_rows EXCEPT ALL TABLE many_rows_wanted) UNION ALL (TABLE many_rows_wanted EXCEPT ALL TABLE many_rows)) d);
END $$;
SELECT f, o, rows_differ(f, o::jsonb) FROM unnest('{row_sql,row_called,row_both,row_alone}'::text[]) f,
	unnest(ARRAY['{"workers": 0}', '{"workers": 2}', '{"writer": "buffered"}', '{"workers": 2, "on_error": "table"}']) o;
RESET pg_bulk.chunk_size;
DO $$ BEGIN EXECUTE 'COPY (SELECT WHERE false) TO PROGRAM ''rm filter_many.csv'''; END $$;
-- Partitions; a job.
CREATE TABLE parted (a int, b text) PARTITION BY LIST (b);
CREATE TABLE part_x PARTITION OF parted FOR VALUES IN ('x');
CREATE TABLE part_rest PARTITION OF parted DEFAULT;
CREATE FUNCTION to_parted(a int, b text) RETURNS parted LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN RETURN (a, b); END $$;
SELECT loaded('to_parted', '{}', 'filter_two.csv', 'parted');
SELECT tableoid::regclass, * FROM parted ORDER BY a, b;
SELECT bulk_enqueue(data_path('filter_two.csv'), 'two', '{"format": "csv", "filter": "load_filter.odd"}') AS job \gset
SELECT bulk_wait(:job, '1 min');
TABLE two;
TRUNCATE two;
-- Dropped columns, of the table and of the function's type.
CREATE TABLE dropped (gone int, a int, b text);
ALTER TABLE dropped DROP gone;
CREATE FUNCTION to_dropped(a int, b text) RETURNS dropped LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT a, b $$;
CREATE FUNCTION to_dropped_called(a int, b text) RETURNS dropped LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN RETURN (a, b); END $$;
SELECT f, loaded(f, '{}', 'filter_two.csv', 'dropped') FROM unnest('{to_dropped,to_dropped_called,odd,odd_called}'::text[]) f;
SELECT a, b, count(*) FROM dropped GROUP BY a, b ORDER BY a, b;

-- If the table's row type is the only argument, its columns are the fields.
CREATE TABLE own (id int NOT NULL, gone int, name text, twice int GENERATED ALWAYS AS (id * 2) STORED, day date, n numeric(5, 2) DEFAULT 7);
ALTER TABLE own DROP gone;
CALL write_file('filter_own.csv', E'1,ada,2024-01-31,3.5\n2,,2024-02-29,0\n3,"o""k",,-1\n4,odd,2024-01-01,\n');
CREATE FUNCTION own_same(r own) RETURNS own LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN RETURN r; END $$;
CREATE FUNCTION own_as_trigger(r own) RETURNS own LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$
BEGIN
	IF r.id = 4 THEN RETURN NULL; END IF;
	r.name := upper(coalesce(r.name, '?'));
	r.n := r.n * r.id;
	RETURN r;
END $$;
CREATE FUNCTION own_strict(r own) RETURNS own LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED STRICT AS $$ BEGIN RETURN own_as_trigger(r); END $$;
CREATE FUNCTION own_sql(r own) RETURNS own LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT r.id, upper(coalesce(r.name, '?')), r.twice, r.day, (r.n * r.id)::numeric(5, 2) WHERE r.id <> 4 $$;
CREATE FUNCTION own_sql_strict(own) RETURNS own LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED STRICT AS $$ SELECT $1.id, upper(coalesce($1.name, '?')), $1.twice, $1.day, ($1.n * $1.id)::numeric(5, 2) WHERE $1.id <> 4 $$;
CREATE FUNCTION own_calls(r own) RETURNS own LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT own_as_trigger(r) $$;
CREATE FUNCTION own_columns(r own, OUT int, OUT text, OUT date, OUT numeric) LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT (own_as_trigger(r)).id, (own_as_trigger(r)).name, (own_as_trigger(r)).day, (own_as_trigger(r)).n WHERE r.id <> 4 $$;
CREATE FUNCTION own_whole(r own) RETURNS own LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT r WHERE r.name <> 'ada' $$;
CREATE FUNCTION own_or_null(r own) RETURNS own LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT CASE WHEN r.name <> 'ada' THEN r END $$;
CREATE FUNCTION owned(filter text, options jsonb DEFAULT '{}', file text DEFAULT 'filter_own.csv') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	TRUNCATE own;
	result := loaded(filter, options, file, 'own');
	RETURN result || ' ' || (SELECT coalesce(string_agg(own::text, ' ' ORDER BY id), '') FROM own);
END $$;
SELECT f, o, owned(f, o::jsonb) FROM unnest('{own_same,own_as_trigger,own_strict,own_sql,own_sql_strict,own_calls,own_columns,own_whole,own_or_null}'::text[]) f, unnest('{"{}","{\"writer\": \"buffered\"}"}'::text[]) o;
SELECT owned('own_as_trigger', '{"on_error": "table", "where": "id < 3"}');
-- The option columns lists the fields' columns; the others are NULL. Names may have to match, or be an object's keys.
CALL write_file('filter_few.csv', E'name,id\nx,1\ny,2\n');
SELECT f, owned(f, '{"columns": ["name", "id"], "header": "match"}', 'filter_few.csv') FROM unnest('{own_same,own_as_trigger,own_sql,own_whole}'::text[]) f;
SELECT error_of($$SELECT loaded('own_same', '{"columns": ["id", "name"], "header": "match"}', 'filter_few.csv', 'own')$$);
SELECT f, error_of(format($$SELECT loaded('own_same', '{"columns": %s}', 'filter_few.csv', 'own')$$, f)) FROM unnest('{"[\"id\", \"twice\"]","[\"id\", \"gone\"]","[\"id\", \"r\"]","[\"id\", \"id\"]"}'::text[]) f;
SELECT error_of($$SELECT loaded('own_same', '{"columns": ["id"], "force_null": ["name"]}', 'filter_one.csv', 'own')$$);
SELECT error_of($$SELECT loaded('unnamed', '{"columns": ["n"], "force_null": ["$2"]}', 'filter_one.csv', 'two')$$);
CALL write_file('filter_own.json', E'{"n": 1.5, "id": 1, "name": "x"}\n{"id": 2}\n{"id": 3, "day": "2024-01-01", "n": null}\n');
SELECT f, owned(f, '{"format": "json"}', 'filter_own.json') FROM unnest('{own_same,own_as_trigger,own_sql}'::text[]) f;
CALL write_file('filter_own.txt', E'1 x  2024-01-01\n2    2024-01-02\n');
SELECT owned('own_as_trigger', '{"format": "fixed", "columns": [{"column": "id", "length": 2}, {"column": "name", "length": 3}, {"column": "day", "length": 10}]}', 'filter_own.txt');
-- An error in a field is a bad value. All fields must be present, and defaults are not used. Constraints check the function's result.
CALL write_file('filter_own_bad.csv', E'1,a,2024-01-31,3.5\n2,b,never,0\n3,c,2024-01-31,1000\n4\n5,e,2024-01-31,5,5\n,f,2024-01-31,6\n7,g,,\n');
SELECT error_of($$SELECT loaded('own_same', '{}', 'filter_own_bad.csv', 'own')$$);
SELECT owned('own_same', '{"on_error": "table"}', 'filter_own_bad.csv');
SELECT line_number, sqlstate, message, column_name FROM bulk_rejects WHERE target = 'load_filter.own' ORDER BY load_id, line_number;
SELECT error_of($$SELECT bulk_load(E'8,h,D,1\n'::bytea, 'own', '{"format": "csv", "default": "D", "filter": "own_same"}')$$);
SELECT error_of($$SELECT bulk_load(E',h,,1\n'::bytea, 'own', '{"format": "csv", "filter": "own_same"}')$$);
SELECT line_number, sqlstate, message FROM bulk_check(data_path('filter_own_bad.csv'), 'own', '{"format": "csv", "filter": "own_same"}');
-- An argument of another row type is an ordinary text field.
CREATE FUNCTION of_pair(p two) RETURNS two LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT p.a + 1, p.b $$;
CREATE FUNCTION of_pair_and_more(p two, n int DEFAULT 1) RETURNS two LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT p.a + n, p.b $$;
CREATE TABLE other_two (a int, b text);
CALL write_file('filter_pairs.txt', E'(1,x)\n(2,"y z")\n');
SELECT loaded('of_pair', '{"format": "text"}', 'filter_pairs.txt', 'other_two');
SELECT loaded('of_pair_and_more', '{"format": "text"}', 'filter_pairs.txt', 'other_two');
CREATE FUNCTION pair_or_not(p two, n int DEFAULT 1) RETURNS two LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT p WHERE n > 0 $$;
CREATE FUNCTION pair_as_it_is(p two) RETURNS two LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT p $$;
SELECT loaded('pair_or_not', '{"format": "text"}', 'filter_pairs.txt', 'other_two');
SELECT loaded('pair_as_it_is', '{"format": "text"}', 'filter_pairs.txt', 'other_two');
TABLE other_two;
SELECT each_writer('of_pair');
-- If the result has one column whose type is a row, its value is taken as the table's row if possible.
CREATE TABLE one_column (a text);
CREATE TABLE of_rows (p two);
CREATE TABLE one_child () INHERITS (one_column);
CREATE FUNCTION one_as_record(r one_column) RETURNS record LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT r $$;
CREATE FUNCTION one_called(r one_column) RETURNS one_column LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN RETURN r; END $$;
CREATE FUNCTION one_calls_record(r one_column) RETURNS record LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT one_called(r) $$;
CREATE FUNCTION one_of_child(a text) RETURNS one_column LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT ROW(a)::one_child $$;
CREATE FUNCTION two_in_row(a int, b text) RETURNS of_rows LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT ROW(a, b)::two $$;
SELECT f, loaded(f, '{}', 'filter_one.csv', 'one_column') FROM unnest('{one_as_record,one_called,one_calls_record,one_of_child}'::text[]) f;
TABLE one_column;
SELECT loaded('two_in_row', '{}', 'filter_two.csv', 'of_rows');
TABLE of_rows;
-- The function cannot alter the table during the load.
CREATE FUNCTION own_alters(r own) RETURNS own LANGUAGE plpgsql AS $$ BEGIN ALTER TABLE own ALTER name TYPE int USING 1; RETURN r; END $$;
SELECT error_of($$SELECT loaded('own_alters', '{}', 'filter_own.csv', 'own')$$);
-- Partitions; a job.
CREATE FUNCTION of_parted(r parted) RETURNS parted LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN r.a := r.a * 10; RETURN r; END $$;
TRUNCATE parted;
SELECT loaded('of_parted', '{}', 'filter_two.csv', 'parted');
SELECT tableoid::regclass, * FROM parted ORDER BY a, b;
TRUNCATE own;
SELECT bulk_enqueue(data_path('filter_own.csv'), 'own', '{"format": "csv", "filter": "load_filter.own_as_trigger(load_filter.own)"}') AS job \gset
SELECT bulk_wait(:job, '1 min');
SELECT * FROM own ORDER BY id;

-- Functions that cannot be a filter.
CREATE FUNCTION twice(a int) RETURNS two LANGUAGE sql AS $$ SELECT a, 'int' $$;
CREATE FUNCTION twice(a text) RETURNS two LANGUAGE sql AS $$ SELECT 1, a $$;
CREATE FUNCTION rows(a int) RETURNS SETOF two LANGUAGE sql AS $$ SELECT a, 'int' $$;
CREATE FUNCTION one(a int) RETURNS int LANGUAGE sql AS $$ SELECT a $$;
CREATE FUNCTION several(VARIADIC a text[]) RETURNS two LANGUAGE sql AS $$ SELECT 1, a[1] $$;
CREATE FUNCTION polymorphic(a anyelement) RETURNS two LANGUAGE sql AS $$ SELECT 1, a::text $$;
CREATE FUNCTION three(a int, OUT int, OUT int, OUT int) LANGUAGE sql AS $$ SELECT 1, 2, 3 $$;
CREATE FUNCTION dates(a int, OUT int, OUT date) LANGUAGE sql AS $$ SELECT 1, date '2024-01-01' $$;
CREATE FUNCTION other_row(a int) RETURNS record LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN IF a = 1 THEN RETURN (a, 'a'::text); END IF; RETURN (a, a); END $$;
CREATE FUNCTION longer_row(a int) RETURNS record LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN RETURN (a, 'a'::text, a); END $$;
CREATE PROCEDURE proceeds(a int) LANGUAGE sql AS $$ SELECT 1 $$;
CREATE TABLE numbered (a int, b int);
SELECT f, error_of(format($$SELECT loaded(%L, '{}', 'filter_one.csv', 'two')$$, f))
FROM unnest('{twice,rows,one,several,polymorphic,three,other_row,longer_row,proceeds,max(int),row_number,nobody,nobody(int),max(,-,0,"",twice(date)}'::text[]) f;
SELECT error_of($$SELECT loaded('dates', '{}', 'filter_one.csv', 'numbered')$$);
SELECT loaded('twice(text)', '{}', 'filter_one.csv', 'two');
SELECT loaded('dates', '{}', 'filter_one.csv', 'two');
TABLE two;
TRUNCATE two;
-- Options that cannot be combined with it.
SELECT error_of($$SELECT loaded('odd', '{"match_by": "name"}', 'filter_two.csv', 'two')$$);
SELECT error_of($$SELECT loaded('odd', '{"columns": ["a", {"name": "b", "expr": "1"}]}', 'filter_two.csv', 'two')$$);
SELECT error_of($$SELECT loaded('odd', '{"columns": ["a", {"column": "b", "source": "filename"}]}', 'filter_two.csv', 'two')$$);
SELECT error_of($$SELECT loaded('odd', '{"columns": ["a", "b", "c"]}', 'filter_two.csv', 'two')$$);
SELECT error_of($$SELECT loaded('odd', '{"columns": ["a"]}', 'filter_two.csv', 'two')$$);
SELECT error_of($$SELECT loaded('odd', '{"columns": ["a", "a"]}', 'filter_two.csv', 'two')$$);
SELECT error_of($$SELECT loaded('odd', '{"force_null": ["c"]}', 'filter_two.csv', 'two')$$);
SELECT error_of($$SELECT loaded('odd', '{"filter": ["odd", "even"]}', 'filter_two.csv', 'two')$$);
-- A function whose body no longer fits the table.
CREATE TABLE changing (a int, b int);
CREATE FUNCTION to_changing(a int) RETURNS changing LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS $$ SELECT a, a $$;
ALTER TABLE changing ALTER b TYPE date USING NULL;
SELECT error_of($$SELECT loaded('to_changing', '{}', 'filter_one.csv', 'changing')$$);
ALTER TABLE changing ADD c int;
-- 18 plans the statements of a function one by one, and its message has the statement's number.
SELECT replace(e, '"to_changing" statement 1', '"to_changing" during startup') FROM error_of($$SELECT loaded('to_changing', '{}', 'filter_one.csv', 'changing')$$) e;
-- A result whose row type differs from the declared one, or is unknown; a type that is altered between two rows; bodies without a query.
CREATE TABLE row_of_two (a text, b int);
CREATE FUNCTION longer(x int8, OUT a text, OUT b int) LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS 'SELECT ROW(x, 1, 1)';
CREATE FUNCTION mistaken(x int8, OUT a text, OUT b int) LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS 'SELECT ROW(x, 1)';
CREATE FUNCTION fixed_row(x int8, OUT a text, OUT b int) LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS 'SELECT ROW(7::int8, 1)';
CREATE FUNCTION shorter(x int8, OUT a text, OUT b int) LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS 'SELECT ROW(x)';
CREATE FUNCTION numbers(x int8, OUT a int8, OUT b int) LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS 'SELECT x, 1';
CREATE FUNCTION by_another(x int8, OUT a text, OUT b int) LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS 'SELECT numbers(x)';
CREATE FUNCTION right_row(x int8, OUT a text, OUT b int) LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS 'SELECT ROW(x::text, 1)';
SELECT f, error_of(format($$SELECT * FROM bulk_load('1094795585'::bytea, 'row_of_two', '{"filter": "%s"}')$$, f)) FROM unnest('{longer,mistaken,fixed_row,shorter,by_another,right_row}'::text[]) f;
TABLE row_of_two;
CREATE TYPE altered AS (a text, b text);
CREATE TABLE row_of_texts (a text, b text);
CREATE FUNCTION alters(x int) RETURNS altered LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	IF x = 2 THEN
		EXECUTE 'ALTER TYPE altered ALTER ATTRIBUTE b TYPE int';
		SELECT '2'::text, 1073741820 INTO r;
	ELSE
		SELECT '1'::text, 'x'::text INTO r;
	END IF;
	RETURN r;
END $$;
SELECT error_of($$SELECT * FROM bulk_load(E'1\n2\n'::bytea, 'row_of_texts', '{"filter": "alters"}')$$);
SET check_function_bodies = off;
CREATE FUNCTION makes_table(x int) RETURNS row_of_texts LANGUAGE sql AS 'SELECT x::text AS a, ''1''::text AS b INTO nowhere';
CREATE FUNCTION empty_body(x int) RETURNS row_of_texts LANGUAGE sql BEGIN ATOMIC END;
RESET check_function_bodies;
-- 17 supports MERGE RETURNING, so its message names MERGE.
SELECT f, replace(replace(e, 'DELETE/MERGE', 'DELETE'), '"makes_table" statement 1', '"makes_table" during startup') FROM unnest('{makes_table,empty_body}'::text[]) f,
	error_of(format($$SELECT * FROM bulk_load('1'::bytea, 'row_of_texts', '{"filter": "%s"}')$$, f)) e;
TABLE row_of_texts;
-- A domain over an argument whose condition queries the table.
CREATE TABLE seen (a int, b int);
CREATE FUNCTION fresh(v int) RETURNS bool LANGUAGE plpgsql VOLATILE AS 'BEGIN RETURN NOT EXISTS (SELECT FROM seen WHERE seen.a = v); END';
CREATE DOMAIN fresh_int AS int CHECK (fresh(VALUE));
CREATE FUNCTION looks(x fresh_int, OUT a int, OUT b int) LANGUAGE sql IMMUTABLE PARALLEL RESTRICTED AS 'SELECT x, 1';
SELECT error_of($$SELECT * FROM bulk_load(E'1\n1\n'::bytea, 'seen', '{"filter": "looks"}')$$);
-- Privileges: the loading user needs EXECUTE; a SECURITY DEFINER function runs as its owner.
SET client_min_messages = warning;
CREATE ROLE filter_loader IN ROLE pg_read_server_files;
RESET client_min_messages;
GRANT USAGE ON SCHEMA load_filter TO filter_loader;
GRANT INSERT, SELECT ON two TO filter_loader;
CREATE FUNCTION whoami(a int, b text) RETURNS two LANGUAGE sql STABLE PARALLEL RESTRICTED SECURITY DEFINER AS $$ SELECT a, CASE WHEN current_user = 'filter_loader' THEN 'loader' ELSE 'owner' END $$;
REVOKE EXECUTE ON FUNCTION odd, odd_called FROM PUBLIC;
SET ROLE filter_loader;
SELECT error_of($$SELECT loaded('odd', '{}', 'filter_two.csv', 'two')$$);
SELECT error_of($$SELECT loaded('odd_called', '{}', 'filter_two.csv', 'two')$$);
SELECT loaded('whoami', '{}', 'filter_two.csv', 'two');
RESET ROLE;
SELECT DISTINCT b FROM two;
SET client_min_messages = warning;
DROP SCHEMA load_filter CASCADE;
DROP ROLE filter_loader;
