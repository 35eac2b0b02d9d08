-- Functions for tests of bulk_load, in addition to helpers.sql.

-- A load's figures without those that differ from run to run.
CREATE FUNCTION figures(file text, target regclass, options jsonb DEFAULT '{}', OUT loaded bigint, OUT rejected bigint,
	OUT filtered bigint, OUT writer text, OUT notes text) RETURNS record LANGUAGE sql AS $$
	SELECT rows_loaded, rows_rejected, rows_filtered, writer, array_to_string(notes, E'\n')
	FROM bulk_load(data_path(file), target, options)
$$;

-- Loads `content` by COPY and by bulk_load into tables of the same definition, by each writer. Returns the number of rows,
-- or the error, if all agree, and both sides if not. COPY lacks the CONTEXT line that names the file.
CREATE FUNCTION same(definition text, content bytea, copy text, options jsonb, columns text DEFAULT '')
RETURNS SETOF text LANGUAGE plpgsql SET client_min_messages = warning AS $$
DECLARE
	copys text[];
	ours text[];
	writer text;
	differing bigint;
	total bigint;
BEGIN
	CALL write_bytes('t', content);
	DROP SCHEMA IF EXISTS copied, loaded CASCADE;
	CREATE SCHEMA copied;
	CREATE SCHEMA loaded;
	EXECUTE format('CREATE TABLE copied.t (%s)', definition);
	EXECUTE format('CREATE TABLE loaded.t (%s)', definition);
	copys := ARRAY(SELECT error_of(format('COPY copied.t %s FROM %L %s', columns, data_path('t'), copy)));
	FOREACH writer IN ARRAY ARRAY['buffered', 'auto'] LOOP
		TRUNCATE loaded.t RESTART IDENTITY;
		ours := ARRAY(SELECT error_of(format('SELECT * FROM bulk_load(%L, ''loaded.t'', %L)', data_path('t'),
			options || jsonb_build_object('writer', writer))));
		IF array_remove(ours, 'CONTEXT: file "PGB_DATA/t"') <> copys THEN
			RETURN QUERY SELECT writer || ': ' || unnest(ours);
			RETURN QUERY SELECT 'COPY: ' || unnest(copys);
			RETURN;
		END IF;
		SELECT count(*) INTO differing FROM (
			(SELECT t::text FROM copied.t EXCEPT ALL SELECT t::text FROM loaded.t) UNION ALL
			(SELECT t::text FROM loaded.t EXCEPT ALL SELECT t::text FROM copied.t)) d;
		IF differing > 0 THEN
			RETURN NEXT writer || ' differs:';
			RETURN QUERY SELECT 'COPY: ' || t::text FROM copied.t;
			RETURN QUERY SELECT writer || ': ' || t::text FROM loaded.t;
			RETURN;
		END IF;
		RETURN QUERY SELECT writer || ' corrupt: ' || v::text FROM public.verify_heapam('loaded.t') v;
	END LOOP;
	IF ours = ARRAY['no error'] THEN
		SELECT count(*) INTO total FROM loaded.t;
		RETURN NEXT total || ' rows';
	ELSE
		RETURN QUERY SELECT unnest(ours);
	END IF;
END $$;

CREATE FUNCTION same(definition text, content text, copy text DEFAULT '', options jsonb DEFAULT '{}',
	columns text DEFAULT '') RETURNS SETOF text LANGUAGE sql AS $$
	SELECT same(definition, convert_to(content, 'UTF8'), copy, options, columns)
$$;

-- Loads `content` by one process, and by several in small chunks, into tables of the same definition. Returns the numbers of
-- rows loaded, rejected and kept as rejects, or the error, if both agree, and both sides if not.
CREATE FUNCTION alike(definition text, content bytea, options jsonb) RETURNS SETOF text LANGUAGE plpgsql
SET client_min_messages = warning AS $$
DECLARE
	said text[] := '{}';
	rows text[] := '{}';
	digest text;
	kept bigint;
	workers int;
	call text;
	result record;
BEGIN
	CALL write_bytes('t', content);
	FOREACH workers IN ARRAY ARRAY[0, 3] LOOP
		DROP SCHEMA IF EXISTS loaded CASCADE;
		CREATE SCHEMA loaded;
		EXECUTE format('CREATE TABLE loaded.t (%s)', definition);
		PERFORM set_config('pg_bulk.chunk_size', CASE workers WHEN 0 THEN '256kB' ELSE '64' END, true);
		call := format('SELECT load_id, rows_loaded, rows_rejected, workers FROM bulk_load(%L, ''loaded.t'', %L)', data_path('t'),
			options || jsonb_build_object('workers', workers, 'writer', 'direct'));
		BEGIN
			EXECUTE call INTO result;
			IF result.workers <> workers THEN
				RETURN NEXT format('%s workers', result.workers);
			END IF;
			SELECT count(*), md5(string_agg(format('%s', (line_number, byte_offset, column_name, raw_field, raw_line, raw_bytes, sqlstate,
				message, constraint_name)), E'\n' ORDER BY line_number)) INTO kept, digest FROM bulk_rejects WHERE load_id = result.load_id;
			rows := rows || digest;
			said := said || (format('%s loaded, %s rejected', result.rows_loaded, result.rows_rejected)
				|| CASE WHEN kept > 0 THEN format(', %s kept', kept) ELSE '' END);
		EXCEPTION WHEN OTHERS THEN
			rows := rows || NULL::text;
			said := said || array_to_string(ARRAY(SELECT error_of(call)), E'\n');
		END;
		SELECT md5(string_agg(t::text, E'\n' ORDER BY t::text)) INTO digest FROM loaded.t;
		rows := rows || digest;
		RETURN QUERY SELECT workers || ' workers, corrupt: ' || v::text FROM public.verify_heapam('loaded.t') v;
	END LOOP;
	IF rows[1:2] IS DISTINCT FROM rows[3:4] THEN
		RETURN NEXT 'the rows or rejects differ';
	END IF;
	RETURN NEXT said[1];
	IF said[1] <> said[2] THEN
		RETURN NEXT 'with workers: ' || said[2];
	END IF;
END $$;

CREATE FUNCTION alike(definition text, content text, options jsonb) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT alike(definition, convert_to(content, 'UTF8'), options)
$$;
