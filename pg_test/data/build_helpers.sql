-- Functions for tests of indexes that loads build, in addition to index_helpers.sql.

-- The pages of an index, and the content of one without its LSN and checksum; t_tid in a high key has no meaning.
CREATE FUNCTION pages(index regclass) RETURNS bytea[] LANGUAGE sql AS $$
	SELECT array_agg(public.get_raw_page(index::text, block) ORDER BY block)
	FROM generate_series(0, pg_relation_size(index) / current_setting('block_size')::int - 1) block
$$;
CREATE FUNCTION lines_of(page bytea, block int) RETURNS TABLE (line text) LANGUAGE sql AS $$
	SELECT format('%s: %s %s %s %s %s %s %s', block, h.flags, h.lower, h.upper, h.special, h.pagesize, h.version, h.prune_xid) FROM public.page_header(page) h
	UNION ALL SELECT format('%s: %s', block, substr(page, 1 + (public.page_header(page)).special))
	UNION ALL SELECT format('%s: %s', block, i) FROM public.bt_page_items(page) i WHERE block > 0
	UNION ALL SELECT format('%s: %s', block, substr(page, 25)) WHERE block = 0
$$;
-- Pages with equal bytes are skipped.
CREATE FUNCTION difference(ours bytea[], cores bytea[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	i int;
BEGIN
	IF cardinality(ours) <> cardinality(cores) THEN
		RETURN NEXT format('%s pages instead of %s', cardinality(ours), cardinality(cores));
	END IF;
	FOR i IN 1 .. least(cardinality(ours), cardinality(cores)) LOOP
		CONTINUE WHEN substr(ours[i], 11) = substr(cores[i], 11);
		RETURN QUERY (SELECT 'ours:  ' || line FROM lines_of(ours[i], i - 1) EXCEPT SELECT 'ours:  ' || line FROM lines_of(cores[i], i - 1) LIMIT 3);
		RETURN QUERY (SELECT 'core''s: ' || line FROM lines_of(cores[i], i - 1) EXCEPT SELECT 'core''s: ' || line FROM lines_of(ours[i], i - 1) LIMIT 3);
	END LOOP;
END $$;
-- Loads a file into an empty table. Returns the strategies of the indexes, amcheck's complaints about them, and whether
-- core would build them otherwise.
CREATE FUNCTION built(file text, target regclass, options jsonb DEFAULT '{}') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	result record;
	index regclass;
	ours bytea[];
	statistics record;
BEGIN
	EXECUTE format('TRUNCATE %s', target);
	SELECT * INTO result FROM bulk_load(data_path(file), target, options || '{"truncate": true}');
	RETURN NEXT format('%s rows, %s workers', result.rows_loaded, result.workers);
	RETURN QUERY SELECT concat_ws(' from ', i ->> 'method', i ->> 'from') || ': ' || count(*)
			|| coalesce(', by several processes: ' || nullif(count(i ->> 'workers'), 0), '')
		FROM jsonb_array_elements(result.indexes) i GROUP BY i ->> 'method', i ->> 'from' ORDER BY 1;
	RETURN QUERY SELECT 'note: ' || note FROM unnest(result.notes) note;
	RETURN QUERY SELECT faults(target);
	-- An index that several processes have built has the same pages in another order.
	FOR index IN SELECT (i ->> 'index')::regclass FROM jsonb_array_elements(result.indexes) i WHERE i ->> 'from' = 'load' AND NOT i ? 'workers' ORDER BY i ->> 'index' LOOP
		SELECT relpages, reltuples INTO statistics FROM pg_class WHERE oid = index;
		ours := pages(index);
		EXECUTE format('REINDEX INDEX %s', index);
		IF statistics IS DISTINCT FROM (SELECT (relpages, reltuples) FROM pg_class WHERE oid = index) THEN
			RETURN NEXT index || ': wrong statistics';
		END IF;
		RETURN QUERY SELECT index || ' differs: ' || line FROM difference(ours, pages(index)) line LIMIT 6;
	END LOOP;
END $$;

CREATE FUNCTION series(expression text, count int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('SELECT string_agg(%s, E''\n'' ORDER BY a) FROM generate_series(1, %s) a', expression, count) INTO result;
	RETURN result;
END $$;

-- The source of the keys of a file's rows, for each index.
CREATE FUNCTION sources(file text, target regclass, options jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(concat_ws(' ', i ->> 'index', i ->> 'method', i ->> 'from'), ', ' ORDER BY i ->> 'index')
	FROM bulk_load(data_path(file), target, options), jsonb_array_elements(indexes) i
$$;
