-- What tests need of indexes that loads build, besides index_helpers.sql.

CREATE FUNCTION blocks(index regclass) RETURNS SETOF bigint LANGUAGE sql AS $$
	SELECT generate_series(1, pg_relation_size(index) / current_setting('block_size')::int - 1)
$$;
-- All that is on an index's pages, but for LSNs; in a high key's own t_tid is nothing that counts.
CREATE FUNCTION pages(index regclass) RETURNS TABLE (line text) LANGUAGE sql AS $$
	SELECT format('meta: %s', m) FROM public.bt_metap(index::text) m
	UNION ALL SELECT format('%s: %s', block, s) FROM blocks(index) block, public.bt_page_stats(index::text, block) s
	UNION ALL SELECT format('%s: %s', block, i) FROM blocks(index) block, public.bt_page_items(index::text, block) i
$$;
-- Loads a file into an empty table: by which way the indexes got their keys, what is wrong with them, and whether
-- core would build them otherwise.
CREATE FUNCTION built(file text, target regclass, options jsonb DEFAULT '{}') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	result record;
	index regclass;
	ours text[];
	cores text[];
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
	-- What several processes have built is the same but for where it lies.
	FOR index IN SELECT (i ->> 'index')::regclass FROM jsonb_array_elements(result.indexes) i WHERE i ->> 'from' = 'load' AND NOT i ? 'workers' ORDER BY i ->> 'index' LOOP
		SELECT relpages, reltuples INTO statistics FROM pg_class WHERE oid = index;
		ours := ARRAY(SELECT pages(index));
		EXECUTE format('REINDEX INDEX %s', index);
		cores := ARRAY(SELECT pages(index));
		IF statistics IS DISTINCT FROM (SELECT (relpages, reltuples) FROM pg_class WHERE oid = index) THEN
			RETURN NEXT index || ': wrong statistics';
		END IF;
		IF ours <> cores THEN
			RETURN NEXT index || ' differs:';
			RETURN QUERY (SELECT 'ours:  ' || line FROM unnest(ours) line EXCEPT SELECT 'ours:  ' || line FROM unnest(cores) line LIMIT 3);
			RETURN QUERY (SELECT 'core''s: ' || line FROM unnest(cores) line EXCEPT SELECT 'core''s: ' || line FROM unnest(ours) line LIMIT 3);
		END IF;
	END LOOP;
END $$;

CREATE FUNCTION series(expression text, count int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('SELECT string_agg(%s, E''\n'' ORDER BY a) FROM generate_series(1, %s) a', expression, count) INTO result;
	RETURN result;
END $$;

-- Where the keys of a file's rows come from, for each index.
CREATE FUNCTION sources(file text, target regclass, options jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(concat_ws(' ', i ->> 'index', i ->> 'method', i ->> 'from'), ', ' ORDER BY i ->> 'index')
	FROM bulk_load(data_path(file), target, options), jsonb_array_elements(indexes) i
$$;
