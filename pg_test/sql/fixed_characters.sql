--
-- Records of fixed length whose positions count characters. The oracle is substr of the line.
--
\set ECHO none
\set VERBOSITY terse
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema fixed_characters
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
-- Characters that all these encodings have, of one to four bytes in UTF8; padded with spaces.
CREATE TABLE texts AS SELECT i AS id, CASE WHEN i % 3 = 0 THEN 'plain' ELSE translate(md5(i::text), '0123456789ab', set) END AS name, set, encoding
FROM (VALUES ('UTF8', 'äöüßé€日本語☃😀ñ'), ('LATIN1', 'äöüßéñ×÷ÆØÅ¿'), ('WIN1252', 'äöü€ßé“”…ŒŽ†'), ('EUC_JP', '日本語漢字表能ソｱｲαж'), ('SJIS', '日本語漢字表能ソｱｲαж'), ('GB18030', '日本語漢字表能é😀αж'), ('BIG5', '日本語漢字表能功許一丁'), ('UHC', '日本語漢字한글ㄱㄴαж'), ('EUC_TW', '日本語漢字表能功許一丁')) e (encoding, set),
	generate_series(1, 200) i;
CREATE FUNCTION compared(wanted text, characters text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	columns jsonb = '[{"column": "id", "length": 4, "trim": "both"}, {"column": "name", "length": 9}, {"column": "last", "start": 30, "length": 3, "trim": "none"}, {"column": "over", "start": 8, "length": 10, "trim": "left"}]';
	differing bigint;
	content bytea = (SELECT string_agg(convert_to(rpad(lpad(id::text, 4) || name, 32), wanted) || '\x0a', '' ORDER BY id) FROM texts t WHERE t.encoding = wanted);
BEGIN
	CALL write_bytes('characters', content);
	WITH found AS (
		SELECT * FROM bulk_read(data_path('characters'), jsonb_build_object('format', 'fixed', 'encoding', wanted, 'units', characters, 'columns', columns)) AS t (id int, name text, last text, over text)
	), expected AS (
		SELECT substr(line, 1, 4)::int, rtrim(substr(line, 5, 9)), substr(line, 30, 3), ltrim(substr(line, 8, 10)) FROM (SELECT rpad(lpad(id::text, 4) || name, 32) AS line FROM texts t WHERE t.encoding = wanted) l
	)
	SELECT count(*) FROM ((TABLE found EXCEPT ALL TABLE expected) UNION ALL (TABLE expected EXCEPT ALL TABLE found)) x INTO differing;
	RETURN differing;
EXCEPTION WHEN bad_copy_file_format OR character_not_in_repertoire OR untranslatable_character THEN
	RETURN SQLERRM;
END $$;
SELECT wanted, compared(wanted, 'characters'), compared(wanted, 'bytes') FROM (SELECT DISTINCT encoding AS wanted FROM texts) e ORDER BY wanted;

-- Loads and foreign tables.
CALL make_table('f', $$id int OPTIONS (length '2'), word text OPTIONS (start '4', length '5', nullif 'ä')$$, $$format 'fixed', encoding 'UTF8', units 'characters', record_length '9'$$, E'1  Zürich.\n2éé€😀日本   \n3  ä     \n');
SELECT error_of('SELECT * FROM f');
CALL write_file('f', E'1  Zürich\n2é€😀日本  \n3 .ä     \r\n');
SELECT error_of('SELECT * FROM f');
CALL write_file('f', E'1  Zürich\n2 .€😀日本  \n3 .ä     \n4  plain \n');
SELECT id, '<' || word || '>' FROM f;
SELECT count(*) FROM f WHERE word > 'a';
CREATE TABLE t (id int, word text);
SET client_min_messages = error;
CREATE FUNCTION loaded(options text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	way text;
	rows text;
	earlier text;
BEGIN
	FOREACH way IN ARRAY '{"{\"workers\": 0}", "{\"workers\": 2}", "{\"writer\": \"buffered\"}"}'::text[] LOOP
		TRUNCATE t;
		PERFORM bulk_load(data_path('f'), 't', '{"format": "fixed", "encoding": "UTF8", "units": "characters", "columns": [{"column": "id", "length": 2}, {"column": "word", "length": 4}]}'::jsonb || options::jsonb || way::jsonb);
		SELECT string_agg(t::text, ' ' ORDER BY id) FROM t INTO rows;
		IF rows IS DISTINCT FROM earlier THEN
			RETURN NEXT rows;
		END IF;
		earlier = rows;
	END LOOP;
END $$;
-- Records that are too short or too long, and invalid bytes, each of which counts as a character.
CALL write_bytes('f', convert_to(E'1 éééé\n2 ééé\n3 ééééé\n4 ', 'UTF8') || '\xe9e9e9610a' || convert_to('5 ', 'UTF8') || '\xe9c3a9c3a90a' || convert_to(E'6 abcd\n', 'UTF8'));
SELECT error_of($$SELECT loaded('{}')$$);
SELECT error_of($$SELECT loaded('{"limit": 2}')$$);
SELECT loaded('{"on_error": "table"}');
SELECT line_number, sqlstate, message, count(*) FROM bulk_rejects WHERE target = 'fixed_characters.t' GROUP BY 1, 2, 3 ORDER BY 1;
SELECT loaded('{"on_error": "table", "encoding_errors": "replace"}');
SELECT bulk_enqueue(data_path('f'), 't', '{"format": "fixed", "encoding": "UTF8", "units": "characters", "limit": 1, "columns": [{"column": "id", "length": 2}, {"column": "word", "length": 4}]}') AS job \gset
SELECT bulk_wait(:job);
RESET client_min_messages;
-- Options that do not go together.
SELECT error_of(format($$ALTER FOREIGN TABLE f OPTIONS (%s)$$, o)) FROM unnest(ARRAY[$$SET units 'letters'$$, $$SET format 'csv', DROP record_length$$, $$ADD line_ends 'false'$$, $$SET units 'bytes'$$, $$SET units 'characters', SET record_length '7'$$]) o;
SELECT error_of('SELECT * FROM f');
SET client_min_messages = warning;
DROP SCHEMA fixed_characters CASCADE;
