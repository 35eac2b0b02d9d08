-- The state of schema m after a load, one fact a line.
CREATE SCHEMA matrix;

-- The error that amcheck raises for an index, if any.
CREATE FUNCTION matrix.complaint(index regclass) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM public.bt_index_parent_check(index, true, true);
	RETURN NULL;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLERRM;
END $$;

CREATE FUNCTION matrix.outcome() RETURNS SETOF text LANGUAGE plpgsql SET search_path = m, public SET enable_indexscan = on SET enable_bitmapscan = on SET enable_hashjoin = off SET enable_mergejoin = off SET enable_memoize = off AS $$
DECLARE
	relation regclass;
	index regclass;
	line text;
	number bigint;
BEGIN
	RETURN QUERY SELECT 'log ' || coalesce(string_agg(format('%s x %s', note, count), ', ' ORDER BY note), '') FROM (SELECT note, count(*) FROM m.log GROUP BY 1) l;
	FOR relation IN SELECT oid FROM pg_class WHERE relnamespace = 'm'::regnamespace AND relkind IN ('r', 'p') AND relname NOT IN ('log', 'parent', 'other_parent') ORDER BY relname LOOP
		EXECUTE format('SELECT format(''rows %%s %%s'', count(*), md5(string_agg(x::text, '';'' ORDER BY x::text))) FROM %s x', relation) INTO line;
		RETURN NEXT format('%s: %s', relation, line);
		RETURN QUERY SELECT format('%s: columns %s', relation, string_agg(format('%s %s', attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum))
			FROM pg_attribute WHERE attrelid = relation AND attnum > 0 AND NOT attisdropped;
		RETURN QUERY SELECT format('%s: %s%s%s%s %s %s', relation, relkind, relpersistence, relrowsecurity, relispartition, reloptions, pg_get_expr(relpartbound, oid)) FROM pg_class WHERE oid = relation;
		RETURN QUERY SELECT format('%s: trigger %s %s', relation, tgname, tgenabled) FROM pg_trigger WHERE tgrelid = relation AND NOT tgisinternal ORDER BY tgname;
		RETURN QUERY SELECT format('%s: constraint %s %s', relation, conname, pg_get_constraintdef(oid)) FROM pg_constraint WHERE conrelid = relation ORDER BY conname;
		RETURN QUERY SELECT format('%s: rule %s', relation, rulename) FROM pg_rewrite WHERE ev_class = relation ORDER BY rulename;
		RETURN QUERY SELECT format('%s: policy %s', relation, polname) FROM pg_policy WHERE polrelid = relation ORDER BY polname;
		IF (SELECT relkind FROM pg_class WHERE oid = relation) = 'r' THEN
			RETURN QUERY SELECT format('%s: heap: %s', relation, msg) FROM public.verify_heapam(relation);
		END IF;
		IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = relation AND attname = 'p' AND NOT attisdropped) THEN
			EXECUTE format('SELECT count(*) FROM %s x WHERE NOT EXISTS (SELECT FROM m.parent WHERE id = p)', relation) INTO number;
			RETURN NEXT format('%s: orphans %s', relation, number);
		END IF;
		FOR index, line IN SELECT indexrelid, format('index %s valid %s clustered %s', pg_get_indexdef(indexrelid), indisvalid, indisclustered) FROM pg_index WHERE indrelid = relation ORDER BY 2 LOOP
			RETURN NEXT line;
			CONTINUE WHEN (SELECT relkind FROM pg_class WHERE oid = index) <> 'i';
			IF line LIKE '%USING btree%' THEN
				line := matrix.complaint(index);
				IF line IS NOT NULL THEN
					RETURN NEXT format('%s: %s', index, line);
				END IF;
			ELSE
				-- Each row is found by its key.
				PERFORM set_config('enable_seqscan', 'off', true);
				EXECUTE format('SELECT count(*) FROM (SELECT DISTINCT id + 0 AS wanted FROM %1$s) w, LATERAL (SELECT FROM %1$s WHERE id = wanted OFFSET 0) f', relation) INTO number;
				RETURN NEXT format('%s: finds %s', index, number);
				PERFORM set_config('enable_seqscan', 'on', true);
			END IF;
		END LOOP;
	END LOOP;
	RETURN QUERY SELECT format('acts %s', is_called) FROM m.acted;
	RETURN QUERY SELECT format('fired %s %s', last_value, is_called) FROM m.fired;
END $$;
