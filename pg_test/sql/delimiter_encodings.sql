--
-- Delimiters of several bytes in files whose encoding has characters that end in such bytes.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema delimiter_encodings
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
-- All characters of two bytes whose second byte is @, \, | or ~.
CREATE FUNCTION characters(encoding text) RETURNS TABLE (bytes bytea, shown text) LANGUAGE plpgsql AS $$
BEGIN
	FOR bytes IN SELECT set_byte(set_byte('\x0000', 0, lead), 1, trail) FROM generate_series(129, 254) lead, unnest('{64,92,124,126}'::int[]) trail LOOP
		BEGIN
			shown := convert_from(bytes, encoding);
			CONTINUE WHEN length(shown) <> 1;
			RETURN NEXT;
		EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
			NULL;
		END;
	END LOOP;
END $$;
CREATE TABLE expected (id int, a text, b text);
CREATE TABLE loaded (LIKE expected);
-- A file with each character before, between and behind delimiters. Returns the number of rows, and how many differ: with each writer, and in a scan.
CREATE FUNCTION tried(encoding text, delimiter text, more jsonb) RETURNS text LANGUAGE plpgsql SET client_min_messages = warning AS $$
DECLARE
	options jsonb := jsonb_build_object('encoding', encoding, 'delimiter', delimiter, 'truncate', true) || more;
	result text;
	content bytea;
BEGIN
	TRUNCATE expected;
	INSERT INTO expected SELECT row_number() OVER (), shown || shown, 'x' || shown FROM characters(encoding);
	SELECT string_agg(convert_to(id::text || delimiter, encoding) || bytes || bytes || convert_to(delimiter || 'x', encoding) || bytes || '\x0a', '' ORDER BY id) INTO content
		FROM expected, LATERAL (SELECT convert_to(left(a, 1), encoding)) c (bytes);
	CALL write_bytes('delimiter_encodings', content);
	result := (SELECT count(*) FROM expected);
	FOREACH options SLICE 0 IN ARRAY ARRAY[options || '{"writer": "direct", "workers": 2}', options || '{"writer": "buffered"}'] LOOP
		PERFORM bulk_load(data_path('delimiter_encodings'), 'loaded', options);
		result := result || ' ' || (SELECT count(*) FROM expected FULL JOIN loaded USING (id, a, b) WHERE expected IS NULL OR loaded IS NULL);
	END LOOP;
	RETURN result || ' ' || (SELECT count(*) FROM expected FULL JOIN bulk_read(data_path('delimiter_encodings'), options - '{truncate,writer}'::text[]) AS r (id int, a text, b text)
		USING (id, a, b) WHERE expected IS NULL OR r IS NULL);
END $$;
SELECT count(*), string_agg(format('%s %s %s: %s', e, d, m, r), E'\n') FILTER (WHERE r !~ '^[1-9]\d\d 0 0 0$')
FROM unnest('{sjis,gbk,big5,gb18030}'::text[]) e, unnest('{||,@@,|@|,~~}'::text[]) d, unnest(ARRAY['{"format": "csv"}', '{"format": "csv", "quote": "none"}', '{}']::jsonb[]) m, LATERAL tried(e, d, m) r;
-- A delimiter that equals the second byte of a character, and one that consists of such bytes of two characters.
SELECT tried('sjis', '|' || convert_from('\x837c', 'sjis'), '{}'), tried('gbk', convert_from('\x817c', 'gbk') || '|', '{"format": "csv"}');
-- The database has such an encoding. Its longer characters contain no ASCII byte. A multi-byte delimiter might match across two adjacent characters.
SELECT data_path('delimiter_encodings') AS file, data_path('delimiter_encodings.euc') AS euc, current_database() AS back \gset
SELECT tried('sjis', '||', '{}');
SELECT string_agg(convert_to(id::text || '||', 'EUC_JP') || convert_to(a || '||' || b, 'EUC_JP') || '\x0a', '' ORDER BY id) AS content FROM expected \gset
CALL write_bytes('delimiter_encodings.euc', :'content');
SELECT md5(string_agg(id || a || b, ',' ORDER BY id)) AS all_of_them FROM expected \gset
CREATE DATABASE delimiter_encodings TEMPLATE template0 ENCODING 'EUC_JP' LC_COLLATE 'C' LC_CTYPE 'C';
\connect delimiter_encodings
CREATE EXTENSION pg_bulk;
CREATE TABLE t (id int, a text, b text);
SET pg_bulk.chunk_size = '64';
SELECT rows_loaded, workers FROM bulk_load(:'file', 't', '{"encoding": "sjis", "delimiter": "||", "workers": 2}');
SELECT md5(convert_to(string_agg(id || a || b, ',' ORDER BY id), 'UTF8')) = :'all_of_them' FROM t;
SELECT rows_loaded, workers FROM bulk_load(:'euc', 't', '{"encoding": "euc_jp", "delimiter": "||", "workers": 2, "truncate": true, "format": "csv"}');
SELECT md5(convert_to(string_agg(id || a || b, ',' ORDER BY id), 'UTF8')) = :'all_of_them' FROM t;
DO $$ BEGIN
	PERFORM bulk_load('/nowhere', 't', jsonb_build_object('delimiter', U&'\30a2\30a4', 'format', 'csv'));
EXCEPTION WHEN feature_not_supported THEN
	RAISE NOTICE '%', SQLERRM;
END $$;
-- A database without an encoding: names may have bytes that are no text in UTF-8. Messages replace these.
\connect :back
DROP DATABASE delimiter_encodings;
CREATE DATABASE delimiter_encodings TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C';
\connect delimiter_encodings
CREATE EXTENSION pg_bulk;
DO $$ BEGIN
	EXECUTE format('CREATE TABLE %I (id int, a text, b text)', 'caf' || chr(233));
END $$;
SELECT rows_loaded FROM bulk_load(:'euc', ('"caf' || chr(233) || '"')::regclass, '{"delimiter": "||", "format": "csv"}');
\connect :back
DROP DATABASE delimiter_encodings;
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA delimiter_encodings CASCADE;
