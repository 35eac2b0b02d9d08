--
-- The content of all tables, which the suites do not show completely.
--
SELECT c.oid::regclass AS relation,
	(xpath('/row/n/text()', query_to_xml(format('SELECT count(*) AS n FROM ONLY %s', c.oid::regclass), false, true, '')))[1] AS rows,
	(xpath('/row/h/text()', query_to_xml(format('SELECT md5(string_agg(t::text, E''\n'' ORDER BY t::text COLLATE "C")) AS h FROM ONLY %s t',
		c.oid::regclass), false, true, '')))[1] AS hash
FROM pg_class c
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
ORDER BY c.oid::regclass::text COLLATE "C";
