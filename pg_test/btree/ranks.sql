-- The strings of columns with an ICU collation, a line for each: attnum; the string's rank, which is equal for strings that
-- differ only in their bytes; the string in hexadecimal.
SELECT format('SELECT %s, dense_rank() OVER (ORDER BY s COLLATE %I), encode(convert_to(s, ''UTF8''), ''hex'')
		FROM (SELECT DISTINCT %I COLLATE "C" AS s FROM %s WHERE %3$I IS NOT NULL) AS s', attnum, same, attname, relation)
FROM ranked JOIN pg_attribute USING (attnum) WHERE attrelid = relation
ORDER BY attnum \gexec
