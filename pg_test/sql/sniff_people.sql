--
-- bulk_sniff and bulk_create of files as people write them (data/handmade/README.md), by kind.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema sniff_people
\i :helpers
SET client_min_messages = warning;
SET datestyle = 'ISO, MDY';
SET timezone = 'UTC';
CREATE TABLE files (name text PRIMARY KEY, kind integer, delimiter text, quote text, escape text, header boolean, columns integer, rows bigint, encoding text, types text[], content bytea);
INSERT INTO files
SELECT f[1], f[2]::integer, CASE f[3] WHEN 'tab' THEN E'\t' WHEN 'space' THEN ' ' ELSE f[3] END, f[4], left(f[5], 1), f[6]::boolean, f[7]::integer, f[8]::bigint, f[9], string_to_array(f[10], ','), decode(part[2] || E'\n', 'escape')
FROM (VALUES (1), (2)) n (n), regexp_split_to_table(E'\n' || rtrim(pg_read_file(data_path(format('handmade/files_%s.txt', n))), E'\n'), '\n%% ') line,
	regexp_match(line, '^([^\n]*)\n(.*)$') part, string_to_array(part[1], ' ') f
WHERE part IS NOT NULL;
CREATE TABLE found (name text, kind integer, what text, is_right boolean, said text);
CREATE FUNCTION try(file files) RETURNS SETOF found LANGUAGE plpgsql AS $$
DECLARE
	path CONSTANT text := data_path('sniff_people.csv');
	s record;
	types text[];
	loaded bigint;
	said text;
BEGIN
	CALL write_bytes('sniff_people.csv', file.content);
	BEGIN
		SELECT * INTO s FROM bulk_sniff(path);
	EXCEPTION WHEN OTHERS THEN
		RETURN NEXT ROW(file.name, file.kind, 'sniffs'::text, false, SQLSTATE || ' ' || SQLERRM);
		RETURN;
	END;
	RETURN NEXT ROW(file.name, file.kind, 'dialect'::text, s.delimiter = file.delimiter OR file.columns = 1, s.delimiter);
	IF file.quote <> '-' OR file.escape <> '-' THEN
		RETURN NEXT ROW(file.name, file.kind, 'quotes'::text, file.quote IN ('-', s.quote) AND file.escape IN ('-', s.escape), concat_ws(' ', s.quote, s.escape));
	END IF;
	RETURN NEXT ROW(file.name, file.kind, 'header'::text, s.header = file.header, s.header::text);
	RETURN NEXT ROW(file.name, file.kind, 'columns'::text, s.columns = file.columns, s.columns::text);
	IF file.encoding <> '-' THEN
		RETURN NEXT ROW(file.name, file.kind, 'encoding'::text, s.encoding = ANY (string_to_array(file.encoding, '|')), s.encoding);
	END IF;
	SELECT array_agg(c ->> 'type') INTO types FROM jsonb_array_elements(s.details -> 'columns') c;
	RETURN NEXT ROW(file.name, file.kind, 'types'::text, cardinality(types) = cardinality(file.types) AND (SELECT bool_and(replace(is_type, ' ', '_') = ANY (string_to_array(should, '|'))) FROM unnest(types, file.types) t (is_type, should)), array_to_string(types, ','));
	BEGIN
		SELECT rows_loaded INTO loaded FROM bulk_create(path, 'loaded', '{"on_error": "table"}');
		said := loaded::text;
		DROP TABLE loaded;
	EXCEPTION WHEN OTHERS THEN
		said := SQLSTATE || ' ' || SQLERRM;
	END;
	RETURN NEXT ROW(file.name, file.kind, 'rows'::text, loaded = file.rows, said);
	-- A foreign table with the proposed options has the same rows.
	IF said !~ ' ' AND s.rows = loaded THEN
		BEGIN
			EXECUTE replace(s.details ->> 'create_foreign_table', 'CREATE FOREIGN TABLE sniff_people', 'CREATE FOREIGN TABLE loaded');
			EXECUTE 'SELECT count(loaded) FROM loaded' INTO said;
			DROP FOREIGN TABLE loaded;
		EXCEPTION WHEN OTHERS THEN
			said := SQLSTATE || ' ' || SQLERRM;
		END;
		RETURN NEXT ROW(file.name, file.kind, 'foreign'::text, said = loaded::text, said);
	END IF;
END $$;
INSERT INTO found SELECT f.* FROM files, try(files) f;
CREATE VIEW by_half AS SELECT *, md5(name) >= '8' AS is_measure FROM found;
\set ECHO all
\pset tuples_only
\pset format unaligned
SELECT count(*), count(*) FILTER (WHERE md5(name) >= '8') FROM files;
-- What is right: of the files that rules were made for, and of the others.
SELECT what, count(*) FILTER (WHERE is_right AND NOT is_measure) || '/' || count(*) FILTER (WHERE NOT is_measure), count(*) FILTER (WHERE is_right AND is_measure) || '/' || count(*) FILTER (WHERE is_measure) FROM by_half GROUP BY what ORDER BY what;
-- Files of which all is right, by kind.
SELECT kind, count(*) FILTER (WHERE good AND NOT is_measure) || '/' || count(*) FILTER (WHERE NOT is_measure), count(*) FILTER (WHERE good AND is_measure) || '/' || count(*) FILTER (WHERE is_measure)
FROM (SELECT kind, name, is_measure, bool_and(is_right IS TRUE) AS good FROM by_half GROUP BY 1, 2, 3) f GROUP BY kind ORDER BY kind;
-- What is wrong.
SELECT kind, name, what, said FROM found WHERE is_right IS NOT TRUE ORDER BY kind, name COLLATE "C", what;
DROP SCHEMA sniff_people CASCADE;
