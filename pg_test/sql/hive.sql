--
-- Columns from the directories of a path: year=2024/month=01/x.csv.
--
\set ECHO none
\set VERBOSITY terse
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema hive
\i :helpers
\! rm -rf "$PGB_DATA/hive"; mkdir -p "$PGB_DATA/hive/year=2023/month=12" "$PGB_DATA/hive/year=2024/month=01" "$PGB_DATA/hive/year=2024/month=__HIVE_DEFAULT_PARTITION__" "$PGB_DATA/hive_odd/year=2024" "$PGB_DATA/hive_odd/year=x/place=a%2Fb%20%zz%ff%00" "$PGB_DATA/hive_odd/year=5/year=2020"
\set ECHO all
\pset tuples_only
\pset format unaligned
CALL write_file('hive/year=2023/month=12/a.csv', E'id,word\n1,a\n2,b\n');
CALL write_file('hive/year=2024/month=01/a.csv', E'word,id\nc,3\n');
CALL write_file('hive/year=2024/month=__HIVE_DEFAULT_PARTITION__/b.csv', E'id,word\n4,d\n');
CREATE TABLE t (year int, id int, month text, word text, file text, line int);
CREATE FUNCTION ways(pattern text, options text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	way text;
	rows text;
	earlier text;
BEGIN
	FOREACH way IN ARRAY '{"{\"workers\": 0}", "{\"workers\": 2}", "{\"writer\": \"buffered\"}"}'::text[] LOOP
		TRUNCATE t;
		PERFORM bulk_load(data_path(pattern), 't', '{"format": "csv"}'::jsonb || options::jsonb || way::jsonb);
		SELECT string_agg((year, id, month, word, right(file, 5), line)::text, ' ' ORDER BY id, line) FROM t INTO rows;
		IF rows IS DISTINCT FROM earlier THEN
			RETURN NEXT rows;
		END IF;
		earlier = rows;
	END LOOP;
END $$;
SELECT ways('hive/**', '{"match_by": "name", "columns": [{"column": "year", "source": "hive"}, {"column": "month", "source": "hive"}, {"column": "file", "source": "filename"}, {"column": "line", "source": "line_number"}]}');
SELECT ways('hive/year=2023/**', '{"header": true, "columns": ["id", "word", {"column": "year", "source": "hive"}]}');
-- Formats whose records are one field, and binary ones.
CALL write_file('hive_odd/year=2024/a.json', E'{"id": 1}\n');
CALL write_file('hive_odd/year=2024/a.dat', E'12\n');
COPY (SELECT 1) TO PROGRAM 'cat >"$PGB_DATA/hive_odd/year=2024/a.bin"' (FORMAT binary);
SELECT ways('hive_odd/*/a.json', '{"format": "json", "columns": ["id", {"column": "year", "source": "hive"}]}');
SELECT ways('hive_odd/year=2024/a.dat', '{"format": "fixed", "columns": [{"column": "id", "length": 2}, {"column": "year", "source": "hive"}]}');
SELECT ways('hive_odd/**/a.bin', '{"format": "binary", "columns": ["id", {"column": "year", "source": "hive"}]}');
SELECT ways('hive_odd/year=2024/a.dat', '{"format": "csv", "default": "D", "columns": ["id", {"column": "year", "source": "hive"}]}');
-- Of two directories the inner one counts; a value is decoded, if it is text then, and its type reads it.
CALL write_file('hive_odd/year=5/year=2020/a.txt', E'1\n');
CALL write_file('hive_odd/year=x/place=a%2Fb%20%zz%ff%00/a.csv', E'1\n');
SELECT ways('hive_odd/year=5/**/a.txt', '{"columns": ["id", {"column": "year", "source": "hive"}]}');
\! mv "$PGB_DATA/hive_odd/year=x/place=a%2Fb%20%zz%ff%00" "$PGB_DATA/hive_odd/year=x/word=a%2Fb%20%zz%2"
SELECT ways('hive_odd/year=x/**', '{"columns": ["id", {"column": "word", "source": "hive"}]}');
\! mv "$PGB_DATA/hive_odd/year=x/word=a%2Fb%20%zz%2" "$PGB_DATA/hive_odd/year=x/word=%41%00"
SELECT ways('hive_odd/year=x/**', '{"columns": ["id", {"column": "word", "source": "hive"}]}');
SELECT error_of($$SELECT ways('hive_odd/year=x/**', '{"columns": ["id", {"column": "year", "source": "hive"}]}')$$);
-- A file whose path lacks the directory is an error; the rows of such a file are rejects. Case matters, and the file's own name does not count.
CALL write_file('hive_odd/year=2024/word=2.csv', E'8\n9\n');
SELECT error_of($$SELECT ways('hive_odd/*/*.csv', '{"columns": ["id", {"column": "word", "source": "hive"}]}')$$);
CREATE TABLE upper (id int, "Year" int);
SELECT error_of(format($$SELECT bulk_load(%L, 'upper', '{"format": "csv", "columns": ["id", {"column": "Year", "source": "hive"}]}')$$, data_path('hive_odd/year=2024/*.csv')));
SELECT error_of($$SELECT ways('hive_odd/*/*.csv', '{"columns": ["id", {"column": "word", "source": "hive "}]}')$$);
SET client_min_messages = error;
SELECT ways('hive_odd/**/*.csv', '{"on_error": "table", "columns": ["id", {"column": "word", "source": "hive"}]}');
RESET client_min_messages;
SELECT without_path(path), line_number, raw_line, without_path(message), count(*) FROM bulk_rejects WHERE target = 'hive.t' GROUP BY 1, 2, 3, 4 ORDER BY 1, 2;
-- Foreign tables, also as the source of a load; bulk_read; bulk_check.
DO $$ BEGIN EXECUTE format('CREATE FOREIGN TABLE f (month text OPTIONS (source ''hive''), id int, word text, year int OPTIONS (source ''hive'')) SERVER bulk_files OPTIONS (filename %L, format ''csv'', match_by ''name'')', data_path('hive/**/*.csv')); END $$;
SELECT * FROM f ORDER BY id;
SELECT year, count(*) FROM f WHERE month IS NOT NULL GROUP BY year ORDER BY year;
SELECT count(*) FROM f WHERE year = 2024;
TRUNCATE t;
INSERT INTO t (year, id) SELECT year, id FROM f;
SELECT year, id FROM t ORDER BY id;
SELECT error_of($$ALTER FOREIGN TABLE f ALTER word OPTIONS (ADD source 'hives')$$);
SELECT without_path(file), year, id, n FROM bulk_read(data_path('hive/**/*.csv'), '{"format": "csv", "match_by": "name", "columns": [{"column": "year", "source": "hive"}, {"column": "file", "source": "filename"}, {"column": "n", "source": "line_number"}]}') AS x (year int, id int, file text, n int) ORDER BY id;
SELECT * FROM bulk_read(data_path('hive_odd/year=2024/a.dat'), '{"format": "fixed", "columns": [{"column": "id", "length": 1}, {"column": "year", "source": "hive"}], "record_length": 2}') AS x (year int, id int);
SELECT error_of($$SELECT * FROM bulk_read('x', '{"columns": [{"column": "a", "source": "hive"}, {"column": "a", "source": "hive"}]}') AS t (a int)$$);
SELECT without_path(path), line_number, without_path(message) FROM bulk_check(data_path('hive_odd/year=2024/*.csv'), 't', '{"format": "csv", "columns": ["id", {"column": "word", "source": "hive"}]}');
SET client_min_messages = warning;
DROP SCHEMA hive CASCADE;
