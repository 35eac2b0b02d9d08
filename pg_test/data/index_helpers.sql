-- Functions for tests of indexes, in addition to helpers.sql.

-- The result of a query that must use the index; meanwhile the index is the table's only valid one.
CREATE FUNCTION by_index(index regclass, query text) RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET enable_sort = off SET enable_incremental_sort = off SET client_min_messages = warning AS $$
DECLARE
	name text := (SELECT relname FROM pg_class WHERE oid = index);
	result text := 'not used';
	line text;
BEGIN
	UPDATE pg_index SET indisvalid = false FROM pg_index own
	WHERE own.indexrelid = index AND pg_index.indrelid = own.indrelid AND pg_index.indexrelid <> index;
	FOR line IN EXECUTE 'EXPLAIN ' || query LOOP
		IF line LIKE '%Index%Scan using ' || name || ' %' OR line LIKE '%Bitmap Index Scan on ' || name || ' %' THEN
			EXECUTE query INTO result;
		END IF;
	END LOOP;
	RAISE SQLSTATE 'UNDO0';
EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
	RETURN result;
END $$;

CREATE FUNCTION by_table(query text) RETURNS text LANGUAGE plpgsql
SET enable_indexscan = off SET enable_bitmapscan = off AS $$
DECLARE
	result text;
BEGIN
	EXECUTE query INTO result;
	RETURN result;
END $$;

-- Complaints about a table and its indexes: those of amcheck, and every B-tree that finds other rows than
-- a sequential scan.
CREATE FUNCTION faults(target regclass) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	index record;
	query text;
	indexs text;
	tables text;
	predicate text;
BEGIN
	RETURN QUERY SELECT 'heap: ' || v::text FROM public.verify_heapam(target) v;
	FOR index IN
		SELECT i.indexrelid::regclass AS name, coalesce(pg_get_expr(i.indpred, i.indrelid), 'true') AS predicate,
			(SELECT string_agg(pg_get_indexdef(i.indexrelid, n, true)
				|| CASE i.indcollation[n - 1] WHEN 0 THEN '' ELSE ' COLLATE ' || i.indcollation[n - 1]::regcollation END
				|| CASE WHEN EXISTS (SELECT FROM pg_opclass o WHERE o.oid = i.indclass[n - 1] AND o.opcname ~ '_pattern_ops$')
					THEN CASE i.indoption[n - 1] & 1 WHEN 1 THEN ' USING ~>~' ELSE ' USING ~<~' END
					ELSE CASE i.indoption[n - 1] & 1 WHEN 1 THEN ' DESC' ELSE '' END END
				|| CASE i.indoption[n - 1] & 2 WHEN 2 THEN ' NULLS FIRST' ELSE ' NULLS LAST' END, ', ' ORDER BY n)
			FROM generate_series(1, i.indnkeyatts) n) AS keys
		FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
		WHERE i.indrelid = target AND a.amname = 'btree' AND i.indisvalid
		ORDER BY 1
	LOOP
		BEGIN
			PERFORM public.bt_index_parent_check(index.name, true, true);
		EXCEPTION WHEN OTHERS THEN
			RETURN NEXT index.name || ': ' || SQLERRM;
		END;
		-- Rows are equal if their TIDs are.
		query := format('SELECT count(*) || '' '' || coalesce(sum(hashtidextended(tid, 0)), 0) FROM (SELECT r.ctid AS tid FROM %s r WHERE %s ORDER BY %s OFFSET 0) s',
			target, index.predicate, index.keys);
		indexs := by_index(index.name, query);
		IF index.predicate IS DISTINCT FROM predicate THEN
			predicate := index.predicate;
			tables := by_table(format('SELECT count(*) || '' '' || coalesce(sum(hashtidextended(r.ctid, 0)), 0) FROM %s r WHERE %s', target, predicate));
		END IF;
		IF indexs IS DISTINCT FROM tables THEN
			RETURN NEXT format('%s: %s by index, %s by table', index.name, indexs, tables);
		END IF;
	END LOOP;
END $$;

-- The strategies of a table's indexes in the load of a file, and complaints about them afterwards.
CREATE FUNCTION indexed(file text, target regclass, options jsonb DEFAULT '{}') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	result record;
BEGIN
	SELECT * INTO result FROM bulk_load(data_path(file), target, options);
	RETURN NEXT result.rows_loaded || ' rows, ' || result.writer;
	RETURN QUERY SELECT (i ->> 'method') || ': ' || string_agg(i ->> 'index', ' ' ORDER BY i ->> 'index')
		|| CASE WHEN bool_and((i ->> 'seconds')::float8 > 0) THEN '' ELSE ', no time' END
		FROM jsonb_array_elements(result.indexes) i GROUP BY i ->> 'method' ORDER BY 1;
	RETURN QUERY SELECT 'note: ' || note FROM unnest(result.notes) note;
	RETURN QUERY SELECT faults(leaf) FROM pg_partition_tree(target) t, LATERAL (SELECT t.relid AS leaf) l WHERE t.isleaf;
	IF (SELECT relkind = 'r' AND NOT relispartition FROM pg_class WHERE oid = target) THEN
		RETURN QUERY SELECT faults(target);
	END IF;
END $$;

-- Whether the database has written this many temporary files since `before`. Processes that ended may not have reported theirs yet.
CREATE FUNCTION spilled(before bigint, wanted bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..100 LOOP
		PERFORM pg_stat_clear_snapshot();
		IF (SELECT temp_files FROM pg_stat_database WHERE datname = current_database()) - before >= wanted THEN
			RETURN true;
		END IF;
		PERFORM pg_sleep(0.1);
	END LOOP;
	RETURN false;
END $$;
