--
-- Indexes of text under ICU collations: built from ICU sort keys, with the same items on the same pages as core's own build of
-- the same rows, and merged. On a server without ICU the test ends here (load_index_icu_1.out).
--
\set ECHO none
SELECT NOT EXISTS (SELECT FROM pg_collation WHERE collprovider = 'i') AS no_icu \gset
\if :no_icu
\quit
\endif
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
CREATE EXTENSION IF NOT EXISTS pageinspect;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema load_index_icu
\i :helpers
\set helpers :data '/load_helpers.sql'
\i :helpers
\set helpers :data '/index_helpers.sql'
\i :helpers
\set helpers :data '/build_helpers.sql'
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
CREATE COLLATION numbers (provider = icu, locale = 'en-u-kn');
CREATE COLLATION uppers (provider = icu, locale = 'en-u-kf-upper');
-- Many strings are equal under this collation, except for their bytes.
CREATE COLLATION bases (provider = icu, locale = 'und-u-ks-level1');
-- Nondeterministic: core treats different strings as equal.
CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
-- Indexes whose keys are tuples are never merged.
CREATE FUNCTION ways(file text, target regclass, options jsonb DEFAULT '{}') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	result record;
BEGIN
	SELECT * INTO result FROM bulk_load(data_path(file), target, '{"lock": "share", "indexes": "merge"}' || options);
	RETURN NEXT format('%s rows, %s workers', result.rows_loaded, result.workers);
	RETURN QUERY SELECT (i ->> 'method') || ': ' || string_agg(i ->> 'index', ' ' ORDER BY i ->> 'index') FROM jsonb_array_elements(result.indexes) i GROUP BY i ->> 'method' ORDER BY 1;
	RETURN QUERY SELECT 'note: ' || note FROM unnest(result.notes) note;
	RETURN QUERY SELECT faults(target);
END $$;
CREATE TABLE words (id int NOT NULL, w text COLLATE "und-x-icu" NOT NULL, d text COLLATE "de-x-icu", n text COLLATE numbers, u varchar(400) COLLATE uppers,
	b text COLLATE bases, c text COLLATE "C", few smallint);
CREATE UNIQUE INDEX words_w ON words (w);
CREATE INDEX words_w_down ON words (w DESC) WITH (fillfactor = 50);
CREATE INDEX words_d ON words (d);
CREATE INDEX words_d_first ON words (d NULLS FIRST) WITH (deduplicate_items = off);
CREATE INDEX words_d_down ON words (d DESC NULLS LAST);
CREATE INDEX words_n ON words (n) WITH (fillfactor = 100);
CREATE INDEX words_u_down ON words (u DESC);
CREATE INDEX words_b ON words (b);
CREATE INDEX words_b_down ON words (b DESC, few);
CREATE INDEX words_few_b ON words (few, b);
CREATE INDEX words_few_down_d ON words (few DESC, d DESC);
CREATE INDEX words_c_d ON words (c, d);
CREATE INDEX words_d_c ON words (d, c DESC);
CREATE INDEX words_b_n_u ON words (b NULLS FIRST, n DESC, u);
CREATE UNIQUE INDEX words_b_id ON words (b, id);
CREATE FUNCTION word(a int) RETURNS text LANGUAGE sql AS $$
	SELECT (ARRAY['cote', 'coté', 'côte', 'côté', 'Cote', 'COTÉ', 'e' || U&'\0301', 'É', '', ' ', 'x-1', 'x_1', 'x 1', 'straße', 'STRASSE', 'Äpfel', 'æon', '日本', '東京',
		'한글', U&'\110B\116E', 'Ωμέγα', 'я', 'ё', U&'a\034Fb', U&'\FFFE', U&'a\FFFF', U&'\+01F600', U&'\FDFA', 'a' || U&'\0327\0301', 'a' || U&'\0301\0327', 'ไก่'])[a % 32 + 1]
$$;
CREATE FUNCTION words(ids text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE 'SELECT string_agg(concat_ws(E''\t'', a, CASE WHEN a % 4 = 0 THEN upper(md5(a::text)) ELSE md5(a::text) END || word(a), CASE WHEN a % 9 = 0 THEN ''\N'' ELSE word(a) || a % 3 END,
		CASE WHEN a % 7 = 0 THEN ''\N'' ELSE ''item '' || a % 1500 END, CASE WHEN a % 1000 = 3 THEN repeat(''é'', 240) || a ELSE word(a / 5) || a % 50 END,
		CASE WHEN a % 11 = 0 THEN ''\N'' ELSE word(a) || CASE WHEN a % 3 = 0 THEN ''A'' ELSE ''a'' END END, word(a / 9), a % 5), E''\n'' ORDER BY n) || E''\n'' FROM ' || ids || ' AS ids(a, n)' INTO result;
	RETURN result;
END $$;
CALL write_file('words', words('(SELECT n, md5(n::text) FROM generate_series(1, 12000) n)'));
CALL write_file('more_words', words('(SELECT n, md5(n::text) FROM generate_series(20001, 24000) n)'));
SELECT built('words', 'words', '{"workers": 0}');
-- Several processes, with minimal memory: sorted runs are merged from files.
SET pg_bulk.chunk_size = '16kB';
SET maintenance_work_mem = '1MB';
SELECT pg_stat_force_next_flush();
SELECT temp_files AS before FROM pg_stat_database WHERE datname = current_database() \gset
SELECT built('words', 'words', '{"workers": 2}');
SELECT pg_stat_force_next_flush();
SELECT spilled(:before, 8);
-- Indexes with entries are merged with the new ones.
UPDATE words SET few = 9 WHERE id % 50 = 0;
DELETE FROM words WHERE id % 70 = 0;
SELECT ways('more_words', 'words', '{"workers": 2}');
RESET maintenance_work_mem;
RESET pg_bulk.chunk_size;
-- Keys are equal only if their bytes are: strings that only the collation does not distinguish are no duplicates.
CREATE TABLE same (b text COLLATE bases UNIQUE, t text);
CALL write_file('same', series($$concat_ws(E'\t', CASE a WHEN 7000 THEN 'ÉTÉ 9' WHEN 7001 THEN 'Été 9' WHEN 7002 THEN U&'\0301' WHEN 7003 THEN '' ELSE 'été ' || a END, a)$$, 12000));
SELECT built('same', 'same');
CALL write_file('twice', series($$concat_ws(E'\t', CASE a WHEN 11000 THEN 'ÉTÉ 100' WHEN 11001 THEN 'ÉTÉ 100' ELSE 'Été ' || a END, a)$$, 12000));
SELECT error_of($$SELECT bulk_load(data_path('twice'), 'same', '{"truncate": true}')$$);
SELECT error_of($$SELECT bulk_load(data_path('twice'), 'same', '{"truncate": true, "workers": 2}')$$);
TRUNCATE same;
SELECT error_of(format('COPY same FROM %L', data_path('twice')));
SELECT built('twice', 'same', '{"on_duplicate": "keep_old"}');
SELECT string_agg(t, ' ') FROM same WHERE b = 'ÉTÉ 100';
CALL write_file('taken', series($$concat_ws(E'\t', CASE a WHEN 900 THEN 'ÉTÉ 100' ELSE 'ete ' || a END, 'new')$$, 3000));
SELECT error_of($$SELECT bulk_load(data_path('taken'), 'same', '{"lock": "share", "indexes": "merge"}')$$);
SELECT ways('taken', 'same', '{"on_duplicate": "keep_new"}');
SELECT string_agg(t, ' ') FROM same WHERE b = 'ÉTÉ 100';
-- Strings for which pg_bulk uses no sort keys: long ones, which indexes compress; and nondeterministic collations.
CREATE TABLE others (w text COLLATE "und-x-icu", n text COLLATE nocase);
CREATE INDEX others_n ON others (n);
CREATE INDEX others_w ON others (w);
CALL write_file('others', series($$concat_ws(E'\t', a, CASE WHEN a % 2 = 0 THEN 'a' ELSE 'A' END || a / 2)$$, 12000));
SELECT built('others', 'others');
SELECT ways('others', 'others');
CALL write_file('long_words', series($$concat_ws(E'\t', CASE WHEN a % 3000 = 0 THEN repeat(a::text, 130) ELSE word(a) || a END, a)$$, 12000));
SELECT built('long_words', 'others');
SELECT ways('long_words', 'others', '{"workers": 2}');
-- In ICU 72, two strings whose sort keys order differently from the server's comparison. For such collations pg_bulk calls the
-- server's comparison function.
CREATE COLLATION french (provider = icu, locale = 'fr-CA');
CREATE COLLATION shifted (provider = icu, locale = 'en-u-ka-shifted');
CREATE TABLE doubtful (f text COLLATE french, s text COLLATE shifted);
CREATE INDEX doubtful_f ON doubtful (f);
CREATE INDEX doubtful_down ON doubtful (s DESC);
CALL write_file('doubtful', series($$(SELECT concat_ws(E'\t', t, t) FROM (SELECT CASE a WHEN 5000 THEN U&'B\0311\034F' WHEN 5001 THEN U&'B\0311\034F\0336' ELSE 'mot ' || a END AS t) t)$$, 12000));
SELECT i ->> 'index', i ->> 'from', i ->> 'method' FROM bulk_load(data_path('doubtful'), 'doubtful', '{"truncate": true}'), jsonb_array_elements(indexes) i ORDER BY 1;
SELECT i ->> 'index', i ->> 'why', i ->> 'method' FROM bulk_load(data_path('doubtful'), 'doubtful', '{"lock": "share", "indexes": "merge"}'), jsonb_array_elements(indexes) i ORDER BY 1;
-- An empty string in the second column, behind equal strings in the first one.
CREATE TABLE empty_last (w text COLLATE "en-x-icu" NOT NULL, n text COLLATE "C" NOT NULL);
CREATE INDEX empty_last_w ON empty_last (w, n);
CALL write_file('empty_last', series($$concat_ws(E'\t', 'x' || a / 2, CASE WHEN a % 2 = 1 THEN '' ELSE 'a' END)$$, 12000));
SELECT i ->> 'index', i ->> 'from', i ->> 'method' FROM bulk_load(data_path('empty_last'), 'empty_last', '{"truncate": true}'), jsonb_array_elements(indexes) i;
SELECT bt_index_parent_check('empty_last_w', true, true);
-- The database's own collation.
CREATE DATABASE load_index_icu TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'de' LC_COLLATE 'C' LC_CTYPE 'C';
SELECT data_path('others') AS others, current_database() AS back \gset
\connect load_index_icu
CREATE EXTENSION pg_bulk;
CREATE EXTENSION amcheck;
CREATE TABLE others (w text, n text);
CREATE INDEX others_w ON others (w, n DESC);
SELECT rows_loaded, i ->> 'method', i ->> 'from' FROM bulk_load(:'others', 'others', '{"truncate": true}'), jsonb_array_elements(indexes) i;
SELECT rows_loaded, i ->> 'method' FROM bulk_load(:'others', 'others', '{"lock": "share", "indexes": "merge"}'), jsonb_array_elements(indexes) i;
SELECT bt_index_parent_check('others_w', true, true);
\connect :back
DROP DATABASE load_index_icu;
SET client_min_messages = warning;
DROP SCHEMA load_index_icu CASCADE;
