-- Tables and indexes whose files crates/storage/tests/btree_core.rs builds again. An index whose name begins with read_ has
-- been changed since it was built: only the entries of its leaves are compared.

CREATE TABLE rows (
	id int NOT NULL, many int NOT NULL, few int NOT NULL, same int NOT NULL, gaps int, small smallint, flag bool,
	c "char", word text, o oid, f4 float4, f8 float8, d date, ts timestamp, tstz timestamptz NOT NULL, t time, m money,
	u uuid NOT NULL, v uuid, big bigint NOT NULL, nothing int8, late int
);
SELECT setseed(0.5);
INSERT INTO rows
SELECT
	i, (random() * 4e9 - 2e9)::int, i / 7 % 25, 3, CASE WHEN random() < 0.7 THEN (random() * 9e4)::int END,
	CASE WHEN i % 11 > 0 THEN (random() * 65535 - 32768)::int END, CASE WHEN i % 3 > 0 THEN random() < 0.5 END,
	chr((random() * 126)::int + 1)::"char", CASE WHEN i % 13 > 0 THEN repeat('x', i % 200) END,
	(random() * 4.2e9)::bigint::oid,
	CASE WHEN i % 17 = 0 THEN 'NaN' WHEN i % 19 = 0 THEN '-Infinity' ELSE (random() - 0.5) * 1e10 END,
	CASE WHEN i % 17 > 0 THEN (random() - 0.5) * 1e10 WHEN i % 2 > 0 THEN 'NaN' WHEN i % 4 > 0 THEN 'Infinity' END,
	date '2000-01-01' + (random() * 9e4)::int - 40000, timestamp '2020-02-02' + random() * interval '9 years',
	CASE WHEN i % 1000 = 0 THEN 'infinity' ELSE timestamptz '2020-02-02 00:00+00' + i * interval '1 second' END,
	time '00:00' + random() * interval '23:59:59', (i % 1000)::money,
	md5(i::text)::uuid, CASE WHEN i % 5 > 0 THEN md5((i % 5000)::text)::uuid END,
	(random() * 1e18 - 5e17)::bigint, NULL, i % 40000
FROM generate_series(1, 110000) AS i;

CREATE UNIQUE INDEX one_ascending ON rows (id);
CREATE INDEX not_unique ON rows (id);
CREATE INDEX random ON rows (many);
CREATE INDEX random_down ON rows (many DESC);
CREATE INDEX duplicates ON rows (few);
CREATE INDEX duplicates_plain ON rows (few) WITH (deduplicate_items = off);
CREATE INDEX duplicates_tight ON rows (few) WITH (fillfactor = 100);
CREATE INDEX duplicates_loose ON rows (few) WITH (fillfactor = 40);
CREATE INDEX duplicates_pair ON rows (few, late);
CREATE INDEX equal ON rows (same);
CREATE INDEX equal_plain ON rows (same) WITH (deduplicate_items = off);
CREATE INDEX nulls_last ON rows (gaps);
CREATE INDEX nulls_first ON rows (gaps NULLS FIRST) WITH (fillfactor = 100);
CREATE INDEX nulls_down ON rows (gaps DESC);
CREATE INDEX nulls_down_last ON rows (gaps DESC NULLS LAST);
CREATE UNIQUE INDEX nulls_unique ON rows (gaps, id);
CREATE INDEX only_nulls ON rows (nothing);
CREATE INDEX pair ON rows (few, id DESC);
CREATE INDEX pair_loose ON rows (many, gaps) WITH (fillfactor = 50);
CREATE INDEX pair_of_one ON rows (id, id DESC);
CREATE INDEX triple ON rows (small, d, big);
CREATE INDEX triple_nulls ON rows (flag, gaps DESC NULLS LAST, small NULLS FIRST);
CREATE INDEX quadruple ON rows (flag, c, small, gaps);
CREATE INDEX padded ON rows (c, big);
CREATE INDEX shorts ON rows (small);
CREATE INDEX flags ON rows (flag);
CREATE INDEX flags_plain ON rows (flag DESC) WITH (deduplicate_items = off, fillfactor = 10);
CREATE INDEX chars ON rows (c);
CREATE INDEX oids ON rows (o);
CREATE INDEX singles ON rows (f4);
CREATE INDEX doubles ON rows (f8 DESC);
CREATE INDEX dates ON rows (d);
CREATE INDEX timestamps ON rows (ts);
CREATE INDEX timestamptzs ON rows (tstz);
CREATE INDEX times ON rows (t);
CREATE INDEX moneys ON rows (m);
CREATE UNIQUE INDEX uuids ON rows (u);
CREATE INDEX uuids_down ON rows (u DESC) WITH (fillfactor = 70);
CREATE INDEX uuids_nulls ON rows (v);
CREATE INDEX bigs ON rows (big) WITH (fillfactor = 50);
CREATE INDEX lates ON rows (late);

-- Keys of byte strings.
CREATE TABLE strings (
	id int NOT NULL, few int2, digits text COLLATE "C" NOT NULL, word text COLLATE "C", same text COLLATE "C",
	value text COLLATE "C" NOT NULL, wide text COLLATE "C", steps text COLLATE "POSIX" NOT NULL, url varchar,
	gaps text COLLATE "C", zeros bytea, bytes bytea NOT NULL, border text COLLATE "C" NOT NULL, nothing text COLLATE "C",
	u uuid, d date, low text COLLATE "C" NOT NULL
);
INSERT INTO strings
SELECT
	i, i % 7, to_char(i, 'FM00000000'), substr(md5(i::text), 1, 1 + i % 30), 'of everybody', 'value ' || i * 7 % 23,
	CASE WHEN i % 50 > 0 THEN repeat(chr(65 + i % 11), 150 + i % 11) END,
	repeat('a', i % 61) || CASE WHEN i % 5 = 0 THEN 'b' ELSE '' END,
	'https://example.org/' || (random() * 1e4)::int || '/' || md5((i / 3)::text),
	CASE WHEN i % 3 = 0 THEN '' WHEN i % 4 > 0 THEN substr(md5((i % 999)::text), 1, i % 9) END,
	CASE WHEN i % 19 > 0 THEN decode(repeat('00', i % 13) || substr('ff', 1, i % 2 * 2) || repeat('00', i % 4), 'hex') END,
	decode(md5(i::text) || repeat('0001', i % 3), 'hex'), repeat(chr(97 + i % 3), 120 + i % 14), NULL,
	CASE WHEN i % 9 > 0 THEN md5((i % 700)::text)::uuid END, date '2020-02-02' - i % 300,
	repeat(' ', i % 2) || (i / 10)
FROM generate_series(1, 40000) AS i;

CREATE UNIQUE INDEX bytes_ascending ON strings (digits);
CREATE INDEX bytes_down ON strings (digits DESC);
CREATE INDEX bytes_tight ON strings (digits) WITH (fillfactor = 100);
CREATE INDEX bytes_loose ON strings (digits) WITH (fillfactor = 50);
CREATE INDEX bytes_words ON strings (word);
CREATE INDEX bytes_words_down ON strings (word DESC NULLS LAST) WITH (fillfactor = 100);
CREATE INDEX bytes_words_plain ON strings (word) WITH (deduplicate_items = off);
CREATE INDEX bytes_same ON strings (same);
CREATE INDEX bytes_same_plain ON strings (same) WITH (deduplicate_items = off, fillfactor = 20);
CREATE INDEX bytes_values ON strings (value);
CREATE INDEX bytes_values_tight ON strings (value) WITH (fillfactor = 100);
CREATE INDEX bytes_values_plain ON strings (value) WITH (deduplicate_items = off);
CREATE INDEX bytes_wide ON strings (wide);
CREATE INDEX bytes_wide_loose ON strings (wide NULLS FIRST) WITH (fillfactor = 30);
CREATE INDEX bytes_steps ON strings (steps);
CREATE INDEX bytes_steps_down ON strings (steps DESC) WITH (fillfactor = 100);
CREATE INDEX bytes_urls ON strings (url COLLATE "C");
CREATE INDEX bytes_urls_pattern ON strings (url varchar_pattern_ops);
CREATE INDEX bytes_gaps ON strings (gaps);
CREATE INDEX bytes_gaps_first ON strings (gaps NULLS FIRST);
CREATE INDEX bytes_gaps_down ON strings (gaps DESC);
CREATE UNIQUE INDEX bytes_gaps_unique ON strings (gaps, id);
CREATE INDEX bytes_zeros ON strings (zeros);
CREATE INDEX bytes_zeros_down ON strings (zeros DESC);
CREATE INDEX bytes_zeros_pair ON strings (zeros, few);
CREATE INDEX bytes_zeros_pair_down ON strings (zeros DESC NULLS LAST, id DESC);
CREATE INDEX bytes_random ON strings (bytes);
CREATE INDEX bytes_border ON strings (border);
CREATE INDEX bytes_nothing ON strings (nothing);
CREATE INDEX bytes_behind ON strings (few, word);
CREATE INDEX bytes_before ON strings (word, few);
CREATE INDEX bytes_before_down ON strings (word DESC, d DESC NULLS LAST) WITH (fillfactor = 100);
CREATE INDEX bytes_between ON strings (d, value, id DESC);
CREATE INDEX bytes_two ON strings (value, word);
CREATE INDEX bytes_two_down ON strings (value DESC, gaps NULLS FIRST);
CREATE INDEX bytes_uuid ON strings (u, value) WITH (fillfactor = 70);
CREATE INDEX bytes_many ON strings (few, value, d, gaps DESC, u, zeros, id);
CREATE INDEX bytes_twice ON strings (word, word DESC);
CREATE INDEX bytes_low ON strings (low, few);
-- Fixed width, and too wide for one word.
CREATE INDEX bytes_wide_numbers ON strings (u, id, d);

-- Varlena headers of four bytes. INSERT would store shorter ones.
CREATE TABLE plains (id serial, t text COLLATE "C", i int2 DEFAULT 7);
ALTER TABLE plains ALTER t SET STORAGE PLAIN;
COPY plains (t) FROM PROGRAM 'seq 1 7 140000';
COPY plains (t) FROM PROGRAM $$seq -f "$(printf %0140d 1)-%.0f" 1 3000$$;
CREATE INDEX bytes_plain ON plains (t);
CREATE INDEX bytes_plain_pair ON plains (i, t DESC);

-- Keys of which three or a few fit on a page.
CREATE TABLE longs (id int NOT NULL, t text COLLATE "C" NOT NULL, b bytea, few int2) WITH (toast_tuple_target = 8160);
ALTER TABLE longs ALTER t SET STORAGE EXTERNAL, ALTER b SET STORAGE EXTERNAL;
INSERT INTO longs
SELECT i, substr(repeat(md5((i % 1700)::text), 90), 1, i * 37 % 2690 + 3),
	CASE WHEN i % 8 > 0 THEN decode(repeat(CASE WHEN i % 5 > 0 THEN '00' ELSE '01' END, i * 53 % 2670), 'hex') END, i % 3
FROM generate_series(1, 2500) AS i;
CREATE INDEX bytes_long ON longs (t);
CREATE INDEX bytes_long_tight ON longs (t DESC) WITH (fillfactor = 100);
CREATE INDEX bytes_long_loose ON longs (t) WITH (fillfactor = 10, deduplicate_items = off);
CREATE INDEX bytes_long_zeros ON longs (b);
CREATE INDEX bytes_long_pair ON longs (few, b);
CREATE INDEX bytes_long_pair_down ON longs (b DESC, few);

-- Strings with an ICU collation, each beside a string that differs only in its bytes: the rank replaces the sort key.
SELECT EXISTS (SELECT FROM pg_collation WHERE collprovider = 'i') AS icu \gset
CREATE TABLE ranked (relation regclass, attnum int2, same name);
\if :icu
CREATE COLLATION bases (provider = icu, locale = 'und-u-ks-level1');
CREATE COLLATION bases_same (provider = icu, locale = 'und-u-ks-level1', deterministic = false);
CREATE COLLATION numbers (provider = icu, locale = 'en-u-kn-true-kf-upper');
CREATE COLLATION numbers_same (provider = icu, locale = 'en-u-kn-true-kf-upper', deterministic = false);
CREATE COLLATION german_same (provider = icu, locale = 'de', deterministic = false);
CREATE TABLE collated (id int NOT NULL, few int2, base text COLLATE bases, number text COLLATE numbers NOT NULL,
	german varchar COLLATE "de-x-icu", c text COLLATE "C");
INSERT INTO collated
SELECT i, i % 7, CASE WHEN i % 11 > 0 THEN w || CASE WHEN i % 3 = 0 THEN 'A' ELSE 'ä' END || i % 40 END,
	CASE WHEN i % 500 = 0 THEN repeat(w, 60) ELSE 'item ' || i * 7919 % 20000 END, CASE WHEN i % 5 > 0 THEN w || substr(md5(i::text), 1, i % 20) END, w
FROM (SELECT i, (ARRAY['cote', 'coté', 'côte', 'Cote', '', ' ', 'x-1', 'x_1', 'straße', 'STRASSE', 'Äpfel', 'æon', '日本', 'я', U&'a\034Fb',
	U&'\FFFE', U&'\+01F600'])[i % 17 + 1] AS w FROM generate_series(1, 30000) AS i) AS i;
CREATE INDEX icu_base ON collated (base);
CREATE INDEX icu_base_down ON collated (base DESC NULLS LAST) WITH (fillfactor = 50);
CREATE INDEX icu_base_plain ON collated (base) WITH (deduplicate_items = off);
CREATE INDEX icu_number ON collated (number) WITH (fillfactor = 100);
CREATE INDEX icu_number_down ON collated (number DESC);
CREATE INDEX icu_german ON collated (german);
CREATE INDEX icu_german_first ON collated (german NULLS FIRST);
CREATE INDEX icu_behind ON collated (few, german);
CREATE INDEX icu_before ON collated (base, few DESC);
CREATE INDEX icu_mixed ON collated (c, german DESC, number);
CREATE UNIQUE INDEX icu_unique ON collated (base, id);
INSERT INTO ranked VALUES ('collated', 3, 'bases_same'), ('collated', 4, 'numbers_same'), ('collated', 5, 'german_same');
\endif

-- Row counts near the limits of one page and of one row.
SELECT format('CREATE TABLE few_%1$s AS SELECT g AS i, g / 3 AS j FROM generate_series(1, %1$s) g', n),
	format('CREATE INDEX single_%1$s ON few_%1$s (i)', n), format('CREATE INDEX double_%1$s ON few_%1$s (j)', n)
FROM unnest(ARRAY[0, 1, 2, 3, 365, 366, 367, 368, 406, 407, 408, 409, 1000]) AS n \gexec

SELECT format('CREATE TABLE string_%1$s AS SELECT g::text COLLATE "C" AS i, (g / 3)::text COLLATE "C" AS j
		FROM generate_series(1, %1$s) g', n),
	format('CREATE INDEX bytes_single_%1$s ON string_%1$s (i)', n),
	format('CREATE INDEX bytes_double_%1$s ON string_%1$s (j DESC)', n)
FROM unnest(ARRAY[0, 1, 2, 3, 406, 407, 1000]) AS n \gexec

-- Pages that were split, deduplicated, emptied and deleted.
CREATE TABLE changed (i int NOT NULL, j int, k bigint NOT NULL);
CREATE INDEX read_ascending ON changed (i);
CREATE INDEX read_duplicates ON changed (j);
CREATE INDEX read_pair ON changed (j DESC, k);
INSERT INTO changed SELECT g, CASE WHEN g % 4 > 0 THEN g % 50 END, hashint8(g) FROM generate_series(1, 60000) AS g;
INSERT INTO changed SELECT -g, g % 50, hashint8(g) FROM generate_series(1, 20000) AS g;
DELETE FROM changed WHERE i BETWEEN 10000 AND 30000;
VACUUM changed;
INSERT INTO changed SELECT g, g % 50, 7 FROM generate_series(1, 20000) AS g;
CREATE TABLE rewritten (t text COLLATE "C" NOT NULL, b bytea, i int NOT NULL);
CREATE INDEX read_bytes ON rewritten (t);
CREATE INDEX read_bytes_pair ON rewritten (b DESC, i);
CREATE INDEX read_bytes_behind ON rewritten (i, t);
INSERT INTO rewritten SELECT md5(g::text), decode(repeat('00ff', g % 40), 'hex'), g % 300 FROM generate_series(1, 20000) AS g;
INSERT INTO rewritten SELECT 'equal', NULL, g FROM generate_series(1, 9000) AS g;
DELETE FROM rewritten WHERE t < '7';
VACUUM rewritten;
INSERT INTO rewritten SELECT md5(g::text), '\x00', 7 FROM generate_series(1, 9000) AS g;

CHECKPOINT;
