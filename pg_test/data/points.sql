-- The test points of src/server/points.rs, controlled from SQL. pg_test/run loads this into the database of the isolation specs. A
-- program's working directory is the data directory.
CREATE SCHEMA points;

CREATE PROCEDURE points.run(command text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('COPY (SELECT WHERE false) TO PROGRAM %L', command);
END $$;

-- From now on, processes that reach the point run the command. The name needs no quotes in a shell.
CREATE FUNCTION point_set(name text, command text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF name !~ '^[a-z_.]+$' OR command !~ '^[a-z0-9= ]+$' THEN
		RAISE 'no point "%", or no command "%"', name, command;
	END IF;
	CALL points.run(format('mkdir -p pg_bulk_points && echo %s >pg_bulk_points/%s.new && mv pg_bulk_points/%2$s.new pg_bulk_points/%2$s',
		command, name));
END $$;

-- Waits until processes wait at the point; an error after 30 seconds.
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

-- Releases the processes that wait at the point, and returns when they have gone on.
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

-- The isolation tester asks this function whether a step waits for another session; if not, it waits for the step to
-- end. A process at a test point waits for other sessions, too. A new function with this name must answer:
-- a replaced one keeps its OID, by which the server would call its own built-in function.
ALTER FUNCTION pg_catalog.pg_isolation_test_session_is_blocked(int, int[]) RENAME TO pg_isolation_test_session_waits_for_lock;
CREATE FUNCTION pg_catalog.pg_isolation_test_session_is_blocked(pid int, others int[]) RETURNS boolean LANGUAGE sql AS $$
	SELECT pg_isolation_test_session_waits_for_lock($1, $2) OR EXISTS (
		SELECT FROM pg_ls_dir('pg_bulk_points', true, false) file, pg_stat_activity process
		WHERE $1 IN (process.pid, leader_pid) AND file LIKE '%.waiting.' || process.pid)
$$;
