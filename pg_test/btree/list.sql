-- The input of crates/storage/tests/btree_core.rs, a line for each index: name, files, whether it is unique, fillfactor,
-- deduplicate_items. Then the table's attributes as attlen:attalign:attbyval:attstorage, and the key's columns as
-- attnum:type:indoption:attnotnull:attstorage:whether ranks.sql has its strings.
SELECT concat_ws(' ',
	i.relname, pg_relation_filepath(t.oid), pg_relation_filepath(i.oid), x.indisunique::int,
	coalesce((SELECT option_value FROM pg_options_to_table(i.reloptions) WHERE option_name = 'fillfactor'), '90'),
	coalesce((SELECT option_value FROM pg_options_to_table(i.reloptions) WHERE option_name = 'deduplicate_items'), 'on'),
	(SELECT string_agg(concat_ws(':', attlen, attalign, attbyval::int, attstorage), ',' ORDER BY attnum)
		FROM pg_attribute WHERE attrelid = t.oid AND attnum > 0),
	(SELECT string_agg(concat_ws(':', a.attnum, a.atttypid::regtype::text, o, a.attnotnull::int, k.attstorage,
			(EXISTS (SELECT FROM ranked WHERE relation = t.oid AND ranked.attnum = a.attnum))::int), ',' ORDER BY n)
		FROM unnest(x.indkey::int2[], x.indoption::int2[]) WITH ORDINALITY AS u (number, o, n)
		JOIN pg_attribute AS k ON k.attrelid = i.oid AND k.attnum = n
		JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum = number))
FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid JOIN pg_class AS t ON t.oid = x.indrelid
WHERE t.relnamespace = 'public'::regnamespace
ORDER BY x.indexrelid;
