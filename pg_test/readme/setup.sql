-- The files that the examples of the documents read. :data is their directory, which the documents call /data. A page that
-- needs another file adds it at the end of this script.
\set file :data '/orders.csv'
COPY (
    SELECT n AS id, 'customer ' || n % 97 AS customer, round(n * 1.37, 2) AS amount,
           timestamp '2024-01-01' + n * interval '7 minutes' AS ordered_at
    FROM generate_series(1, 1000) n
) TO :'file' (FORMAT csv, HEADER);

-- Ten lines without a header. Two have a value that does not fit its column: line 3 a word for a number, line 5 a month 13.
\set file :data '/orders_bad.csv'
COPY (
    SELECT CASE n WHEN 3 THEN 'three' ELSE n::text END, 'customer ' || n, round(n * 1.37, 2),
           CASE n WHEN 5 THEN '2024-13-01 00:00:00' ELSE '2024-01-01 00:00:00' END
    FROM generate_series(1, 10) n
) TO :'file' (FORMAT csv);

-- The third line lacks its last field.
\set file :data '/orders_short.csv'
COPY (
    SELECT CASE n WHEN 3 THEN '3|customer 3|4.11' ELSE format('%s|customer %s|%s|2024-01-01 00:00:00', n, n, n) END
    FROM generate_series(1, 5) n
) TO :'file';

-- Text format in LATIN1, with a NULL and a DEFAULT marker.
\set file :data '/cities.txt'
COPY (
    SELECT * FROM (VALUES (1, 'Zürich', '?'), (2, 'Besançon', 'FR'), (3, NULL, 'ES')) v (id, name, country)
) TO :'file' (DELIMITER ';', NULL '-', ENCODING 'latin1');

-- The first file, compressed.
\set command 'gzip >' :data '/orders.csv.gz'
COPY (
    SELECT n AS id, 'customer ' || n % 97 AS customer, round(n * 1.37, 2) AS amount,
           timestamp '2024-01-01' + n * interval '7 minutes' AS ordered_at
    FROM generate_series(1, 1000) n
) TO PROGRAM :'command' (FORMAT csv, HEADER);

-- Three files whose headers differ.
\set file :data '/orders-01.csv'
COPY (SELECT 1 AS id, 'Ada' AS customer, 10.5 AS amount) TO :'file' (FORMAT csv, HEADER);
\set file :data '/orders-02.csv'
COPY (SELECT * FROM (VALUES ('Ida', 2), ('Nadia', 3)) v (customer, id)) TO :'file' (FORMAT csv, HEADER);
\set file :data '/orders-03.csv'
COPY (SELECT * FROM (VALUES (1.5, 4), (2.5, 5)) v (amount, id)) TO :'file' (FORMAT csv, HEADER);

-- Records of fixed length.
\set file :data '/people.dat'
COPY (
    SELECT '   1Ada      1815-12-10' UNION ALL SELECT '   2Blaise             '
) TO :'file';

-- Lines of JSON.
\set file :data '/events.json'
COPY (
    SELECT '{"id": 1, "event type": "signup", "at": "2024-01-31", "tags": ["new", "mobile"], "user": {"name": "Ada"}}' UNION ALL SELECT '{"id": 2, "event type": "login", "at": null}'
) TO :'file';

-- Records without line ends: an unsigned integer, a string and a float, each in little-endian byte order.
\set file :data '/samples.bin'
SELECT lo_from_bytea(0, '\x01286bee' || 'roof'::bytea || '\x0000' || '\x0000aa41' || '\x02000000' || 'cellar'::bytea || '\x00002841') AS samples \gset
SELECT lo_export(:samples, :'file'), lo_unlink(:samples);

-- COPY's binary format.
\set file :data '/measured.pgcopy'
COPY (
    SELECT n::bigint AS id, timestamptz '2024-01-01 00:00:00+00' + n * interval '5 minutes' AS at, (n % 310 / 10.0)::real AS celsius
    FROM generate_series(1, 1000) n
) TO :'file' (FORMAT binary);

-- README.md: what gzip makes of the file of its quick start.
\set command 'gzip >' :data '/sales.csv.gz'
COPY (
    SELECT n AS id, 'customer ' || n % 97 AS customer, n * 1.25 AS amount, date '2026-01-01' + n % 365 AS ordered_on
    FROM generate_series(1, 100000) n
) TO PROGRAM :'command' (FORMAT csv, HEADER);

-- Directories with values of columns.
\set command 'cd ' :data ' && mkdir -p sales/year=2023/month=12 && cat >sales/year=2023/month=12/part-0.csv'
COPY (SELECT 1 AS id, 9.50 AS amount) TO PROGRAM :'command' (FORMAT csv, HEADER);
\set command 'cd ' :data ' && mkdir -p sales/year=2024/month=01 && cat >sales/year=2024/month=01/part-0.csv'
COPY (SELECT * FROM (VALUES (2, 12.00), (3, 3.25)) v (id, amount)) TO PROGRAM :'command' (FORMAT csv, HEADER);

-- A file as people send it: a comment, a blank line, quotes within quotes, rows with too few and too many fields, a total.
\set file :data '/export.csv'
COPY (
    SELECT unnest(ARRAY['# Export of 2026-01-31', 'id;name;amount', '1;Ada;10.50', '', '2;"Bob "the builder";20.00', '3;Carl', '4;Dora;7.25;new', 'Total;4;'])
) TO :'file';
