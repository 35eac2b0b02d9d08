--
-- INSERT … SELECT from a foreign table in transactions, functions and kept plans: output and results are equal as a
-- load and by core (data/insert_session.sql, run twice). Then the differences.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set insert_helpers :data '/insert_helpers.sql'
\set schema insert_select_session
\i :helpers
\i :insert_helpers
-- Errors name the file that psql reads, so both runs use this directory.
\cd :data
\pset format unaligned
CREATE TABLE t (id int, word text);
CREATE TABLE above (id int PRIMARY KEY);
CREATE TABLE late (id int REFERENCES above DEFERRABLE INITIALLY DEFERRED, n int UNIQUE DEFERRABLE INITIALLY DEFERRED);
CREATE FUNCTION fill() RETURNS void LANGUAGE sql AS 'INSERT INTO t SELECT id, word FROM ft';
CREATE FUNCTION fill_and_count(int) RETURNS bigint LANGUAGE sql AS 'INSERT INTO t SELECT id, word FROM ft WHERE id >= $1; SELECT count(*) FROM t';
CREATE PROCEDURE fill_and_commit() LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 3 LOOP
		INSERT INTO t SELECT id + i, word FROM ft;
		IF i = 2 THEN
			ROLLBACK;
		ELSE
			COMMIT;
		END IF;
	END LOOP;
END $$;
\set VERBOSITY terse
-- Command tags.
\set QUIET off
\set ECHO all
SET pg_bulk.direct_insert = on;
\i insert_session.sql
SET pg_bulk.direct_insert = off;
\i insert_session.sql
RESET pg_bulk.direct_insert;
\set QUIET on
\set VERBOSITY default

-- The differences: the last id, and the line of the file in the CONTEXT of an error.
CREATE TABLE ids (id serial, n int CHECK (n < 30), a int UNIQUE, p int REFERENCES above);
INSERT INTO ids (n) SELECT id FROM ft;
SELECT currval('ids_id_seq');
SELECT lastval();
ALTER TABLE ids ALTER id DROP DEFAULT, ALTER id DROP NOT NULL;
\pset tuples_only
SELECT error_of('INSERT INTO ids (n) SELECT n FROM ft');
SELECT error_of('INSERT INTO ids (a) SELECT id / 2 FROM ft');
SELECT error_of('INSERT INTO ids (p) SELECT id FROM ft');
SELECT error_of('INSERT INTO ids (n) SELECT 1 / (id - 2) FROM ft');
SET pg_bulk.direct_insert = off;
SELECT error_of('INSERT INTO ids (n) SELECT n FROM ft');
SELECT error_of('INSERT INTO ids (a) SELECT id / 2 FROM ft');
SELECT error_of('INSERT INTO ids (p) SELECT id FROM ft');
SELECT error_of('INSERT INTO ids (n) SELECT 1 / (id - 2) FROM ft');
RESET pg_bulk.direct_insert;
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA insert_select_session CASCADE;
