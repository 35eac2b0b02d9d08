-- The points of src/pg/points.rs, driven from SQL. pg_test/run reads this into the database of the isolation specs. A
-- program's working directory is the data directory.
CREATE SCHEMA points;

CREATE PROCEDURE points.run(command text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('COPY (SELECT WHERE false) TO PROGRAM %L', command);
END $$;

-- From now on whoever comes to the point does that. The name stands for itself in a shell.
CREATE FUNCTION point_set(name text, command text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF name !~ '^[a-z_.]+$' OR command !~ '^[a-z0-9= ]+$' THEN
		RAISE 'no point "%", or no command "%"', name, command;
	END IF;
	CALL points.run(format('mkdir -p pg_bulk_points && echo %s >pg_bulk_points/%s.new && mv pg_bulk_points/%2$s.new pg_bulk_points/%2$s',
		command, name));
END $$;

-- Who waits there, sooner or later; an error after 30 seconds.
CREATE FUNCTION point_wait(name text, processes int DEFAULT 1) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..3000 LOOP
		IF (SELECT count(*) FROM pg_ls_dir('pg_bulk_points', true, false) file WHERE starts_with(file, name || '.waiting.')) >= processes THEN
			RETURN;
		END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RAISE 'nobody came to "%"', name;
END $$;

-- Whoever waits there goes on. Returns when they do.
CREATE FUNCTION point_clear(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	CALL points.run(format('rm -f pg_bulk_points/%s pg_bulk_points/%1$s.once', name));
	FOR i IN 1..3000 LOOP
		IF NOT EXISTS (SELECT FROM pg_ls_dir('pg_bulk_points', true, false) file WHERE starts_with(file, name || '.waiting.')) THEN
			RETURN;
		END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RAISE 'somebody still waits at "%"', name;
END $$;

-- The isolation tester asks this function whether a step waits for another session, and otherwise waits for the step to
-- end. A process at a point waits for other sessions too. It is another function of the name that must answer: one that
-- is replaced keeps its OID, by which the server would find its own.
ALTER FUNCTION pg_catalog.pg_isolation_test_session_is_blocked(int, int[]) RENAME TO pg_isolation_test_session_waits_for_lock;
CREATE FUNCTION pg_catalog.pg_isolation_test_session_is_blocked(pid int, others int[]) RETURNS boolean LANGUAGE sql AS $$
	SELECT pg_isolation_test_session_waits_for_lock($1, $2) OR EXISTS (
		SELECT FROM pg_ls_dir('pg_bulk_points', true, false) file, pg_stat_activity process
		WHERE $1 IN (process.pid, leader_pid) AND file LIKE '%.waiting.' || process.pid)
$$;
