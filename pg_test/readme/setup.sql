-- The files that the README's examples read, with the contents its text speaks of. :data is their folder; the README
-- calls it /data.
\set file :data '/orders.csv'
COPY (
    SELECT n AS id, 'customer ' || n % 97 AS customer, round(n * 1.37, 2) AS amount,
           timestamp '2024-01-01' + n * interval '7 minutes' AS ordered_at
    FROM generate_series(1, 1000) n
) TO :'file' (FORMAT csv, HEADER);

-- The same with three lines that do not fit their columns: a word for a number, a month 13, a field too few.
\set file :data '/orders_bad.csv'
COPY (
    SELECT CASE n WHEN 3 THEN 'three,customer 3,4.11,2024-01-01 00:21:00'
                  WHEN 5 THEN '5,customer 5,6.85,2024-13-01 00:35:00'
                  WHEN 8 THEN '8,customer 8,10.96'
                  ELSE format('%s,customer %s,%s,2024-01-01 00:00:00', n, n, n) END
    FROM generate_series(1, 10) n
) TO :'file';
