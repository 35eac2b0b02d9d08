-- Tables and indexes whose files src/format/tests/btree_core.rs makes again. An index whose name begins with read_ has
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

-- Around the borders of one page and of one row.
SELECT format('CREATE TABLE few_%1$s AS SELECT g AS i, g / 3 AS j FROM generate_series(1, %1$s) g', n),
	format('CREATE INDEX single_%1$s ON few_%1$s (i)', n), format('CREATE INDEX double_%1$s ON few_%1$s (j)', n)
FROM unnest(ARRAY[0, 1, 2, 3, 365, 366, 367, 368, 406, 407, 408, 409, 1000]) AS n \gexec

-- Pages that have been split, deduplicated, emptied and deleted.
CREATE TABLE changed (i int NOT NULL, j int, k bigint NOT NULL);
CREATE INDEX read_ascending ON changed (i);
CREATE INDEX read_duplicates ON changed (j);
CREATE INDEX read_pair ON changed (j DESC, k);
INSERT INTO changed SELECT g, CASE WHEN g % 4 > 0 THEN g % 50 END, hashint8(g) FROM generate_series(1, 60000) AS g;
INSERT INTO changed SELECT -g, g % 50, hashint8(g) FROM generate_series(1, 20000) AS g;
DELETE FROM changed WHERE i BETWEEN 10000 AND 30000;
VACUUM changed;
INSERT INTO changed SELECT g, g % 50, 7 FROM generate_series(1, 20000) AS g;

CHECKPOINT;
