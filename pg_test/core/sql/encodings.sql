--
-- COPY and encodings: files are written in one encoding and read in the same and in others, set by the option and by
-- client_encoding. (Core has a similar suite, copyencoding, from version 18 on. This one runs on all versions.)
--

\getenv abs_builddir PG_ABS_BUILDDIR
\set file :abs_builddir '/results/encodings.data'

SELECT getdatabaseencoding();

CREATE TABLE words (id int, word text, note text);
CREATE TABLE found (id int, word text, note text);
INSERT INTO words VALUES
	(1, 'plain', NULL),
	(2, E'\u00e9t\u00e9', 'latin'),
	(3, E'\u00fc|\u00df', ''),
	(4, E'a\\b', E'two\nlines'),
	(5, '"quoted", with commas', E'\ttab');
CREATE TABLE kana (id int, word text, note text);
-- In SJIS the second bytes of these characters are the backslash, the bar and a letter.
INSERT INTO kana VALUES
	(1, E'\u3042', E'\u30a2\u30a4'),
	(2, E'\u8868', E'\u30bd\u80fd'),
	(3, E'\u30dd', NULL),
	(4, E'\u3042,"\u8868"', E'\u8868\n\u8868');

-- Written and read with the option.
COPY words TO :'file' (ENCODING 'LATIN1');
COPY found FROM :'file' (ENCODING 'LATIN1');
\echo :ROW_COUNT rows
COPY words TO :'file' (FORMAT csv, HEADER, ENCODING 'LATIN9');
COPY found FROM :'file' (FORMAT csv, HEADER match, ENCODING 'LATIN9');
COPY words TO :'file' (FORMAT csv, ENCODING 'UTF8');
COPY found FROM :'file' (FORMAT csv, ENCODING 'UTF8');
SELECT id, count(*), min(word) = max(word) AS same, min(word) FROM found GROUP BY id ORDER BY id;
(TABLE found EXCEPT TABLE words) UNION ALL (TABLE words EXCEPT TABLE found);
TRUNCATE found;

COPY kana TO :'file' (FORMAT csv, ENCODING 'SJIS');
COPY found FROM :'file' (FORMAT csv, ENCODING 'SJIS') WHERE id <> 2;
\echo :ROW_COUNT rows
COPY kana TO :'file' (FORMAT csv, ENCODING 'EUC_JP');
COPY found FROM :'file' (FORMAT csv, ENCODING 'EUC_JP');
COPY kana TO :'file' (ENCODING 'GB18030');
COPY found FROM :'file' (ENCODING 'GB18030');
COPY kana TO :'file' (ENCODING 'SJIS');
COPY found FROM :'file' (ENCODING 'SJIS');
SELECT id, count(*), min(word) = max(word) AS same, octet_length(min(word)) FROM found GROUP BY id ORDER BY id;
(TABLE found EXCEPT TABLE kana) UNION ALL (TABLE kana EXCEPT TABLE found);
TRUNCATE found;

-- With client_encoding, and with an option that overrides it.
SET client_encoding = 'SJIS';
COPY kana TO :'file' (FORMAT csv);
COPY found FROM :'file' (FORMAT csv);
COPY kana TO :'file' (FORMAT csv, ENCODING 'UTF8');
COPY found FROM :'file' (FORMAT csv, ENCODING 'UTF8');
SET client_encoding = 'EUC_JP';
COPY kana TO :'file';
COPY found FROM :'file';
RESET client_encoding;
SELECT id, count(*), min(word) = max(word) AS same, octet_length(min(word)) FROM found GROUP BY id ORDER BY id;
(TABLE found EXCEPT TABLE kana) UNION ALL (TABLE kana EXCEPT TABLE found);
TRUNCATE found;

-- Read with a wrong encoding: UTF8 as encodings in which all bytes are valid, and as others.
COPY kana TO :'file' (FORMAT csv, ENCODING 'UTF8');
COPY found FROM :'file' (FORMAT csv, ENCODING 'LATIN1');
COPY found FROM :'file' (FORMAT csv, ENCODING 'WIN1252');
COPY found FROM :'file' (FORMAT csv, ENCODING 'EUC_JP');
COPY found FROM :'file' (FORMAT csv, ENCODING 'SJIS');
COPY found FROM :'file' (FORMAT csv, ENCODING 'SQL_ASCII');
SELECT id, encode(convert_to(word, 'UTF8'), 'hex') AS word, encode(convert_to(note, 'UTF8'), 'hex') AS note FROM found ORDER BY id, 2;
TRUNCATE found;
SET client_encoding = 'LATIN1';
COPY found FROM :'file' (FORMAT csv);
SET client_encoding = 'EUC_JP';
COPY found FROM :'file' (FORMAT csv);
RESET client_encoding;
SELECT count(*), sum(octet_length(word)) FROM found;
TRUNCATE found;

-- Other encodings read as UTF8: the error names the first invalid byte, and its line.
COPY words TO :'file' (ENCODING 'LATIN1');
COPY found FROM :'file' (ENCODING 'UTF8');
COPY found FROM :'file' (ENCODING 'SQL_ASCII');
COPY words TO :'file' (FORMAT csv, ENCODING 'WIN1252');
COPY found FROM :'file' (FORMAT csv);
COPY kana TO :'file' (FORMAT csv, ENCODING 'SJIS');
COPY found FROM :'file' (FORMAT csv);
COPY found FROM :'file' (FORMAT csv, ENCODING 'EUC_JP');
COPY found FROM :'file' (FORMAT csv, ENCODING 'EUC_KR');
COPY found FROM :'file' (FORMAT csv, ENCODING 'LATIN1');
SELECT count(*), sum(octet_length(word)) FROM found;
TRUNCATE found;

-- Characters that the encoding lacks.
COPY kana TO :'file' (ENCODING 'LATIN1');
COPY words TO :'file' (ENCODING 'SJIS');
COPY words TO '/no file' (ENCODING 'nonsense');
COPY found FROM '/no file' (ENCODING 'nonsense');
COPY found FROM '/no file' (ENCODING 'UTF8', ENCODING 'UTF8');

-- From a client.
SET client_encoding = 'LATIN1';
COPY found FROM STDIN;
1	café	two characters
2	caf\xc3\xa9	escapes are bytes of the database's encoding
\.
COPY found FROM STDIN (ENCODING 'UTF8');
3	café	one
4	caf\xc3\xa9	\N
\.
\echo :ROW_COUNT rows
COPY found FROM STDIN;
5	plain	\N
6	caf\xe9	not such a byte
\.
RESET client_encoding;
SELECT * FROM found ORDER BY id;

DROP TABLE words, found, kana;
