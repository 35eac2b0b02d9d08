--
-- bgzip files and files of many zstd frames, whose members several threads decompress: the result equals that of the format's own program.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema compressed_members
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CREATE FUNCTION content(file text, times int DEFAULT 1) RETURNS bytea LANGUAGE sql AS $$
	SELECT string_agg(pg_read_binary_file(data_path('compressed/' || file)), '') FROM generate_series(1, times)
$$;
CREATE FOREIGN TABLE members (id int, word text) SERVER bulk_files OPTIONS (filename 'x', format 'csv');
CREATE TABLE t (id int, word text);
CREATE PROCEDURE set_members(bytes bytea) LANGUAGE plpgsql AS $$ BEGIN
	CALL write_bytes('cm_file', bytes);
	EXECUTE format('ALTER FOREIGN TABLE members OPTIONS (SET filename %L)', data_path('cm_file'));
END $$;
-- The rows by a scan and by a load with workers; whether they are in order; and the number of bytes read.
CREATE FUNCTION found(bytes bytea) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	CALL set_members(bytes);
	BEGIN
		RETURN NEXT (SELECT (count(*), sum(id), sum(length(word)), count(*) FILTER (WHERE id <> before % 12000 + 1))::text
			FROM (SELECT id, word, lag(id) OVER () AS before FROM members) x);
	EXCEPTION WHEN OTHERS THEN
		RETURN NEXT SQLSTATE || ' ' || without_path(SQLERRM);
	END;
	TRUNCATE t;
	BEGIN
		RETURN NEXT (SELECT (rows_loaded, workers, bytes_read - length(bytes))::text FROM bulk_load(data_path('cm_file'), 't', '{"format": "csv", "workers": 1}'));
	EXCEPTION WHEN OTHERS THEN
		RETURN NEXT SQLSTATE || ' ' || without_path(SQLERRM);
	END;
	RETURN NEXT (SELECT (count(*), sum(id), sum(length(word)))::text FROM t);
END $$;
SELECT found(content(name)) FROM unnest('{numbers.bgz,numbers.zst}'::text[]) name;
SELECT found(content(name, 12)) FROM unnest('{numbers.bgz,numbers.zst}'::text[]) name;
-- More data than the threads decompress ahead.
SELECT found(content('numbers.bgz', 250));
-- Files of other kinds behind them, and zstd frames to skip.
SELECT found(content('numbers.bgz', 5) || content('few.gz') || content('numbers.bgz', 3));
SELECT found(content('numbers.zst', 5) || '\x512a4d1803000000aaaaaa' || content('numbers.zst', 5) || '\x502a4d1800000000');
SELECT found(content('numbers.zst', 6) || content('many.zst') || content('numbers.zst', 6));
-- Files cut off or followed by other bytes, and wrong bytes at many places: an error and no row, as with one thread.
SELECT found(substr(content('numbers.bgz', 12), 1, 400000));
SELECT found(substr(content('numbers.zst', 12), 1, 250000));
SELECT found(content('numbers.bgz', 12) || 'nothing');
SELECT found(content('numbers.zst', 12) || 'nothing');
SELECT outcome, count(*) FROM content('numbers.bgz', 8) bytes, generate_series(0, 9) n,
	LATERAL (SELECT string_agg(f, '; ') FROM found(set_byte(bytes, n * 17000 + 1000, get_byte(bytes, n * 17000 + 1000) # 85)) f) x (outcome) GROUP BY outcome ORDER BY 2 DESC, 1;
-- Wrong lengths in headers, which only the parallel decompression reads.
SELECT found(set_byte(content('numbers.bgz', 12), 16, 17)) = found(content('numbers.bgz', 12));
SELECT found(set_byte(bytes, at, n)) FROM content('numbers.bgz', 12) bytes, (SELECT 4 * length(content('numbers.bgz')) + 16) a (at), unnest('{0,100,255}'::int[]) n;
-- The error names the byte at which the file breaks off, and the line of a bad value.
CALL set_members(substr(content('numbers.bgz', 12), 1, 400000));
SELECT e FROM error_of('SELECT count(word) FROM members') e WHERE e ~ 'DETAIL';
CALL set_members(content('numbers.bgz', 9) || content('many.gz'));
ALTER FOREIGN TABLE members ALTER word TYPE varchar(4);
SELECT error_of('SELECT max(word) FROM members');
ALTER FOREIGN TABLE members ALTER word TYPE text;
-- A scan that stops early leaves no thread.
SELECT id FROM members LIMIT 1;
DO $$ BEGIN
	FOR i IN 1 .. 200 LOOP
		EXIT WHEN (SELECT count(*) FROM pg_ls_dir('/proc/self/task')) = 1;
		PERFORM pg_sleep(0.05);
	END LOOP;
END $$;
SELECT count(*) FROM pg_ls_dir('/proc/self/task');
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA compressed_members CASCADE;
