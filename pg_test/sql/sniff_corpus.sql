--
-- bulk_sniff of a collection of CSV files (data/messy/README.md), compared with their true format.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema sniff_corpus
\i :helpers
SET client_min_messages = warning;
SET datestyle = 'ISO, DMY';
SET timezone = 'UTC';
-- The true format of each file. `*` is the delimiter of a single column, `-` a quote that the file does not use, `*` an unknowable number of
-- `header_lines`, of which comments and blank lines are none. `odd_rows` have more or fewer fields than the others: they are read with short_rows and long_rows, or are rejects. `encoding`: other than UTF-8. `error`: of a load.
CREATE TABLE truths (file text PRIMARY KEY, delimiter text, quote text, header_lines text, columns integer, rows integer, odd_rows integer, encoding text, error text);
\set truths :data '/messy/truths.tsv'
COPY truths FROM :'truths' (FORMAT csv, DELIMITER E'\t', QUOTE E'\b', HEADER);
-- Known wrong answers, and their reasons.
CREATE TABLE misses (file text REFERENCES truths, what text, reason text NOT NULL, PRIMARY KEY (file, what));
\set misses :data '/messy/misses.tsv'
COPY misses FROM :'misses' (FORMAT csv, DELIMITER E'\t', QUOTE E'\b', HEADER);
CREATE TABLE found (file text, what text, is_right boolean, said text);
-- Loads a file as bulk_sniff describes all of it: creates the table, then loads.
CREATE FUNCTION try(truth truths) RETURNS SETOF found LANGUAGE plpgsql AS $$
DECLARE
	path CONSTANT text := data_path('messy/' || truth.file);
	s record;
	l record;
	lines text;
	failed text;
BEGIN
	BEGIN
		SELECT * INTO s FROM bulk_sniff(path, '{"sample": "all", "table": "loaded"}');
	EXCEPTION WHEN OTHERS THEN
		RETURN NEXT ROW(truth.file, 'sniffs'::text, false, SQLSTATE || ' ' || SQLERRM);
		RETURN;
	END;
	RETURN NEXT ROW(truth.file, 'sniffs'::text, truth.error IS NULL OR s.details ->> 'notes' ~ 'a load fails there', s.details ->> 'notes');
	IF truth.error IS NOT NULL THEN
		RETURN;
	END IF;
	IF truth.encoding IS NOT NULL THEN
		RETURN NEXT ROW(truth.file, 'encoding'::text, convert_from(pg_read_binary_file(path), s.encoding) = convert_from(pg_read_binary_file(path), truth.encoding), s.encoding);
	END IF;
	lines := CASE s.details #>> '{options,header}' WHEN 'true' THEN '1' WHEN 'false' THEN '0' ELSE coalesce(s.details #>> '{options,header}', '0') END;
	RETURN NEXT ROW(truth.file, 'delimiter'::text, truth.delimiter IN ('*', CASE s.delimiter WHEN E'\t' THEN 'tab' ELSE s.delimiter END), s.delimiter);
	RETURN NEXT ROW(truth.file, 'quote'::text, CASE truth.quote WHEN '-' THEN s.quote IS NULL OR position(s.quote::bytea IN pg_read_binary_file(path)) = 0 ELSE s.quote IS NOT DISTINCT FROM truth.quote END, s.quote);
	RETURN NEXT ROW(truth.file, 'header'::text, truth.header_lines IN ('*', lines), lines);
	RETURN NEXT ROW(truth.file, 'columns'::text, s.columns = truth.columns, s.columns::text);
	-- The answer for the whole file holds for a load of it, whether it is the true format or not.
	EXECUTE s.details ->> 'create_table';
	BEGIN
		SELECT * INTO l FROM bulk_load(path, 'loaded', (s.details -> 'options') || jsonb_build_object('on_error', CASE WHEN s.details ->> 'notes' ~ 'a load fails there' THEN 'table' ELSE 'stop' END));
		IF l.rows_loaded <> s.rows OR NOT (s.details -> 'complete')::boolean OR (l.rows_rejected > 0) <> (s.details ->> 'notes' ~ 'a load fails there') THEN
			SELECT string_agg(DISTINCT sqlstate || ' ' || message, '; ') INTO failed FROM bulk_rejects WHERE load_id = l.load_id;
			failed := concat_ws(': ', format('%s rows, not %s', l.rows_loaded, s.rows), failed);
		END IF;
	EXCEPTION WHEN OTHERS THEN
		failed := SQLSTATE || ' ' || SQLERRM;
	END;
	DROP TABLE loaded;
	-- A foreign table has the same rows if no record is an error.
	IF failed IS NULL AND l.rows_rejected = 0 THEN
		BEGIN
			EXECUTE s.details ->> 'create_foreign_table';
			EXECUTE 'SELECT format(''%s rows, not %s'', count(*), $1) FROM (SELECT loaded FROM loaded) x HAVING count(*) <> $1' INTO failed USING s.rows;
		EXCEPTION WHEN OTHERS THEN
			failed := SQLSTATE || ' ' || SQLERRM;
		END;
		DROP FOREIGN TABLE IF EXISTS loaded;
	END IF;
	RETURN NEXT ROW(truth.file, 'loads'::text, failed IS NULL, failed);
	RETURN NEXT ROW(truth.file, 'rows'::text, truth.header_lines = '*' OR (l.rows_loaded >= truth.rows AND l.rows_loaded + l.rows_rejected = truth.rows + truth.odd_rows), format('%s, %s rejected', l.rows_loaded, l.rows_rejected));
END $$;
INSERT INTO found SELECT f.* FROM truths, try(truths) f;
\set ECHO all
\pset tuples_only
\pset format unaligned
-- The list has all files, and no others.
SELECT count(*), count(*) FILTER (WHERE error IS NULL) FROM truths;
SELECT origin || '/' || file FROM pg_ls_dir(data_path('messy')) origin, LATERAL pg_ls_dir(data_path('messy') || '/' || origin) file WHERE origin !~ '\.' AND file ~ '\.[ct]sv$' EXCEPT SELECT file FROM truths;
-- The score, and the score of the files for which no rule was written.
SELECT what, count(*) FILTER (WHERE is_right) || '/' || count(*), count(*) FILTER (WHERE is_right AND md5(file) >= '8') || '/' || count(*) FILTER (WHERE md5(file) >= '8') FROM found GROUP BY what ORDER BY what;
SELECT count(*) FILTER (WHERE is_right) || '/' || count(*) FROM (SELECT bool_and(is_right) AS is_right FROM found GROUP BY file) f;
-- Wrong answers that are not listed, and listed ones that are right.
SELECT f.file, f.what, f.said FROM found f LEFT JOIN misses m USING (file, what) WHERE f.is_right IS NOT TRUE AND m.file IS NULL ORDER BY f.file COLLATE "C", f.what;
SELECT m.file, m.what FROM misses m LEFT JOIN found f ON f.file = m.file AND f.what = m.what AND f.is_right IS NOT TRUE WHERE f.file IS NULL;
DROP SCHEMA sniff_corpus CASCADE;
