--
-- HINTs of errors that end a load: what the file looks like, and why the direct writer was not used.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_hints
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CREATE TABLE t (id int, name text, amount numeric);
CREATE FUNCTION load_error(content text, options jsonb DEFAULT '{}', target text DEFAULT 't') RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	CALL write_file('hints', content);
	RETURN QUERY SELECT error_of(format('SELECT bulk_load(%L, %L, %L)', data_path('hints'), target, options));
END $$;
SELECT E'id,name,amount\n1,one,1.5\n2,"two, or so",2.5\n' AS csv, E'id\tname\tamount\n1\tone\t1.5\n2\ttwo\t2.5\n' AS tabs,
	E'\\N\tone\t1.5\n2\t\\N\t2.5\n' AS text, E'1,one,1.5\n2,two,2.5\n' AS plain, E'1;one;1.5\n2;two;2.5\n' AS semicolons \gset
-- CSV read as text, by each writer and by several processes.
SELECT load_error(:'csv');
SELECT load_error(:'csv', '{"writer": "buffered"}');
SELECT load_error(:'csv', '{"workers": 2}');
SELECT load_error(:'plain');
SELECT load_error(:'plain', '{"header": true}');
-- A header that is not declared.
SELECT load_error(:'csv', '{"format": "csv"}');
SELECT load_error(:'tabs');
SELECT load_error(E'# of today\n# and yesterday\n' || :'csv', '{"format": "csv"}');
-- No HINT, because it would lack an option that is needed.
SELECT load_error(E'1||x\n2||y\n3||z\n', '{"format": "csv"}');
-- Text read as CSV.
SELECT load_error(:'tabs', '{"format": "csv", "header": true}');
SELECT load_error(:'text', '{"format": "csv", "delimiter": "\t"}');
SELECT load_error(E'1\\\t1\tone\t1.5\n2\t\\N\t2.5\n', '{"format": "csv", "delimiter": "\t"}');
-- Another delimiter, or quote.
SELECT load_error(:'semicolons', '{"format": "csv"}');
SELECT load_error(:'semicolons', '{"delimiter": "|"}');
SELECT load_error(:'semicolons', '{"format": "csv", "header": "match"}');
SELECT load_error(E'id;name;amount\n1;one;1.5\n', '{"format": "csv", "header": "match"}');
SELECT load_error(E'\'1\',\'one\',\'1.5\'\n\'2\',\'two\',\'2.5\'\n', '{"format": "csv"}');
SELECT load_error(E'"1","one","1.5"\n"2","two, or so","2.5"\n', '{"delimiter": ","}');
-- Bytes that are no file's; a pattern; a job.
SELECT error_of(format('SELECT bulk_load(%L::bytea, %L)', convert_to(:'csv', 'UTF8'), 't'));
SELECT lo_from_bytea(0, convert_to(:'csv', 'UTF8')) AS large \gset
SELECT replace(line, :'large', 'N') FROM error_of(format('SELECT bulk_load(NULL, %L, %L)', 't', jsonb_build_object('large_object', :large, 'format', 'csv'))) line;
SELECT lo_unlink(:large);
CALL write_file('hints1', :'csv');
CALL write_file('hints2', E'3,three,3.5\n');
SELECT error_of(format('SELECT bulk_load(%L, %L, %L)', data_path('hints[12]'), 't', '{"format": "csv"}'));
SELECT bulk_enqueue(data_path('hints1'), 't') AS job \gset
SET client_min_messages = warning;
SELECT bulk_wait(:job, '1 min');
RESET client_min_messages;
SELECT error_hint FROM bulk_queue WHERE job_id = :job;
-- No hint: the file is what the options say; another record fails; the fields are not those of the table; a program; a check.
SELECT load_error(E'one,1,1.5\n2,two,2.5\n', '{"format": "csv"}');
SELECT load_error(E'1,one,1.5\ntwo,2,2.5\n', '{"format": "csv"}');
CREATE TABLE words (word varchar(4), n text);
SELECT load_error(E'word,n\none,1\ntoolong,2\n', '{"format": "csv"}', 'words');
SELECT load_error(E'id,name\n1,one\n', '{"format": "csv"}');
SELECT load_error(E'id,name,amount\n1,one,1.5,0\n2,two,2.5\n', '{"format": "csv"}');
SELECT load_error(E'x\n', '{"columns": ["id"]}');
SELECT load_error('', '{"format": "csv", "header": "match"}');
SELECT load_error(E'\x01\x02\n');
SELECT error_of(format('SELECT bulk_load(%L, %L, %L)', 'cat ' || data_path('hints1'), 't', '{"program": true}'));
SELECT count(*) FROM bulk_check(data_path('hints1'), 't', '{"format": "csv"}');
-- Foreign tables have COPY's words.
CALL make_table('f', 'id int, name text, amount numeric', $$format 'csv'$$, :'csv');
SELECT error_of('SELECT * FROM f');
SELECT error_of('INSERT INTO t SELECT * FROM f');
SELECT count(*) FROM t;

-- Constraints, with on_error "table", that only the direct writer survives.
CREATE FUNCTION positive(a int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 > 0';
CREATE TABLE checked (id int PRIMARY KEY CONSTRAINT positive CHECK (positive(id)), parent int CHECK (parent < 100));
SELECT load_error(E'x\t1\n1\t1\n-2\t2\n', '{"on_error": "table"}', 'checked');
SELECT load_error(E'1\t1\n1\t2\n', '{"on_error": "table"}', 'checked');
SELECT load_error(E'1\t100\n', '{"on_error": "table", "writer": "buffered"}', 'checked');
-- Not without the option, for an error of a trigger, or of another table's.
SELECT load_error(E'1\t100\n', '{"writer": "buffered"}', 'checked');
CREATE TABLE other (id int CHECK (id > 1));
CREATE FUNCTION triggered() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF new.id = 7 THEN
		RAISE check_violation USING MESSAGE = 'no';
	END IF;
	INSERT INTO other VALUES (new.id);
	RETURN new;
END $$;
CREATE TRIGGER triggered BEFORE INSERT ON checked FOR EACH ROW EXECUTE FUNCTION triggered();
SELECT load_error(E'1\t1\n', '{"on_error": "table"}', 'checked');
SELECT load_error(E'7\t1\n', '{"on_error": "table"}', 'checked');
SELECT load_error(E'2\t100\n', '{"on_error": "table"}', 'checked');
-- Partitions are the table's.
CREATE TABLE parts (id int CHECK (positive(id))) PARTITION BY LIST (id);
CREATE TABLE part PARTITION OF parts FOR VALUES IN (1, -1);
SELECT load_error(E'1\n-1\n', '{"on_error": "table"}', 'parts');
SELECT load_error(E'1\n5\n', '{"on_error": "table"}', 'parts');

SET client_min_messages = warning;
DROP SCHEMA load_hints CASCADE;
