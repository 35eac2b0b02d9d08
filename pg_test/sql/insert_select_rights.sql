--
-- INSERT … SELECT from a foreign table as a load requires exactly the statement's privileges, and an error shows only
-- data that the current user may see.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set insert_helpers :data '/insert_helpers.sql'
\set schema insert_select_rights
\i :helpers
\i :insert_helpers
\pset tuples_only
\pset format unaligned
\set ECHO all
CREATE ROLE insert_reader;
CREATE ROLE insert_owner;
CREATE ROLE insert_bypass BYPASSRLS;
GRANT USAGE ON SCHEMA insert_select_rights TO PUBLIC;
GRANT CREATE ON SCHEMA insert_select_rights TO insert_owner;

-- Privileges on the table, on columns, on the foreign table.
CREATE TABLE t (id int, word text, n int, CHECK (n <> 30));
SET ROLE insert_reader;
SELECT either_way('INSERT INTO t (id, word) SELECT id, word FROM ft');
RESET ROLE;
GRANT INSERT ON t TO insert_reader;
SET ROLE insert_reader;
SELECT either_way('INSERT INTO t (id, word) SELECT id, word FROM ft');
RESET ROLE;
GRANT SELECT (id, word) ON ft TO insert_reader;
GRANT SELECT (id) ON t TO insert_reader;
SET ROLE insert_reader;
SELECT either_way('INSERT INTO t (id, word) SELECT id, word FROM ft', '(SELECT id FROM t)');
SELECT either_way('INSERT INTO t (id, word) SELECT id, word FROM ft WHERE n > 1', '(SELECT id FROM t)');
SELECT either_way('INSERT INTO t (id) SELECT count(n) FROM ft', '(SELECT id FROM t)');
RESET ROLE;
-- An error shows the columns of the row that the user may read or has given a value.
GRANT SELECT ON ft TO insert_reader;
SET ROLE insert_reader;
SELECT either_way('INSERT INTO t (id, word, n) SELECT id, word, n FROM ft', '(SELECT id FROM t)');
SELECT either_way('INSERT INTO t (n) SELECT n FROM ft', '(SELECT id FROM t)');
RESET ROLE;
ALTER TABLE t ALTER word SET DEFAULT 'secret', ALTER id SET DEFAULT 5;
REVOKE ALL ON t FROM insert_reader;
GRANT INSERT ON t TO insert_reader;
SET ROLE insert_reader;
SELECT either_way('INSERT INTO t (n) SELECT n FROM ft', '(SELECT 1)');
SELECT either_way('INSERT INTO t (n, word) SELECT n, ''secret'' FROM ft', '(SELECT 1)');
SELECT either_way('INSERT INTO t (n, word, id) SELECT n, ''other'', 5 FROM ft', '(SELECT 1)');
SELECT either_way('INSERT INTO t (word, n, id) SELECT NULL, n, NULL FROM ft', '(SELECT 1)');
RESET ROLE;
ALTER TABLE t ALTER word DROP DEFAULT;
SET ROLE insert_reader;
SELECT either_way('INSERT INTO t (word, n) SELECT NULL, n FROM ft', '(SELECT 1)');
SELECT either_way('INSERT INTO t (word, n) SELECT NULL, n FROM twelve', '(SELECT 1)', '{0,2}');
RESET ROLE;
GRANT SELECT ON twelve TO insert_reader;
SET ROLE insert_reader;
SELECT either_way('INSERT INTO t (word, n) SELECT NULL, n FROM twelve', '(SELECT 1)', '{0,2}');
RESET ROLE;
CREATE TABLE keys (id int PRIMARY KEY, word text);
GRANT INSERT ON keys TO insert_reader;
SET ROLE insert_reader;
SELECT either_way('INSERT INTO keys (id) SELECT id / 2 FROM ft', '(SELECT 1)');
RESET ROLE;
REVOKE INSERT ON keys FROM insert_reader;
GRANT INSERT (id) ON keys TO insert_reader;
SET ROLE insert_reader;
SELECT either_way('INSERT INTO keys (id) SELECT id FROM ft', '(SELECT 1)');
SELECT either_way('INSERT INTO keys SELECT id FROM ft', '(SELECT 1)');
SELECT either_way('INSERT INTO keys (id, word) SELECT id, NULL FROM ft', '(SELECT 1)');
RESET ROLE;

-- Sequences: the privilege is checked with the first id, and never for an identity column.
CREATE TABLE serials (id serial, n int);
CREATE TABLE identities (id int GENERATED ALWAYS AS IDENTITY, n int);
GRANT SELECT, INSERT ON serials, identities TO insert_reader;
SET ROLE insert_reader;
SELECT either_way('INSERT INTO serials (n) SELECT id FROM ft', 'serials');
SELECT either_way('INSERT INTO serials (n) SELECT id FROM ft WHERE id > 3', 'serials');
SELECT any_way('INSERT INTO serials (n) SELECT id FROM twelve WHERE id > 12', 'serials');
SELECT any_way('INSERT INTO serials (n) SELECT id FROM twelve WHERE id > 6', 'serials');
SELECT either_way('INSERT INTO serials (id, n) SELECT id, id FROM ft', 'serials');
SELECT either_way('INSERT INTO identities (n) SELECT id FROM ft', '(SELECT n FROM identities)');
RESET ROLE;
CALL make_table('empty', 'id int', '', '');
GRANT SELECT ON empty TO insert_reader;
SET ROLE insert_reader;
SELECT either_way('INSERT INTO serials (n) SELECT id FROM empty', 'serials');
RESET ROLE;
GRANT USAGE ON SEQUENCE serials_id_seq TO insert_reader;
SET ROLE insert_reader;
SELECT either_way('INSERT INTO serials (n) SELECT id FROM ft', '(SELECT n FROM serials)');
RESET ROLE;

-- Functions of defaults, constraints and expressions run as the inserting user.
CREATE FUNCTION who() RETURNS text STABLE PARALLEL RESTRICTED LANGUAGE sql AS 'SELECT current_user::text';
CREATE FUNCTION fine(int) RETURNS bool IMMUTABLE PARALLEL RESTRICTED LANGUAGE plpgsql AS 'BEGIN RETURN $1 < 100; END';
CREATE TABLE calls (id int CHECK (fine(id)), w text DEFAULT who());
GRANT SELECT, INSERT ON calls TO insert_reader;
SET ROLE insert_reader;
SELECT any_way('INSERT INTO calls (id) SELECT id FROM twelve', 'calls');
RESET ROLE;
REVOKE EXECUTE ON FUNCTION who, fine FROM PUBLIC;
SET ROLE insert_reader;
SELECT either_way('INSERT INTO calls (id) SELECT id FROM ft', 'calls');
SELECT either_way('INSERT INTO calls (id, w) SELECT id, word FROM ft', 'calls');
SELECT either_way('INSERT INTO t (id) SELECT id FROM ft WHERE fine(id)', '(SELECT 1)');
SELECT either_way('INSERT INTO t (id, n) SELECT id, fine(id)::int FROM ft', '(SELECT 1)');
RESET ROLE;
CREATE FUNCTION insert_as_owner(way text) RETURNS SETOF text SECURITY DEFINER LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('pg_bulk.direct_insert', way, true);
	INSERT INTO insert_select_rights.calls (id) SELECT id FROM insert_select_rights.ft;
	RETURN QUERY DELETE FROM insert_select_rights.calls RETURNING w;
END $$;
SET ROLE insert_reader;
SELECT insert_as_owner('off') = current_user, insert_as_owner('on') = current_user;
RESET ROLE;

-- Views: the owner's privileges count for the base tables.
CREATE TABLE base (id int, word text);
CREATE FOREIGN TABLE hidden (id int, word text, day date, n int) SERVER bulk_files OPTIONS (filename '/nowhere');
DO $$ BEGIN EXECUTE format('ALTER FOREIGN TABLE hidden OPTIONS (SET filename %L, ADD format ''csv'')', data_path('ft')); END $$;
ALTER TABLE base OWNER TO insert_owner;
GRANT SELECT ON hidden TO insert_owner;
SET ROLE insert_owner;
CREATE VIEW to_base AS SELECT * FROM base;
CREATE VIEW from_hidden AS SELECT id, word FROM hidden;
GRANT SELECT, INSERT ON to_base TO insert_reader;
GRANT SELECT ON from_hidden TO insert_reader;
SET ROLE insert_reader;
SELECT either_way('INSERT INTO to_base SELECT id, word FROM from_hidden', 'to_base');
SELECT either_way('INSERT INTO base SELECT id, word FROM from_hidden', 'to_base');
SELECT either_way('INSERT INTO to_base SELECT id, word FROM hidden', 'to_base');
RESET ROLE;
REVOKE SELECT ON hidden FROM insert_owner;
SET ROLE insert_reader;
SELECT either_way('INSERT INTO to_base SELECT id, word FROM from_hidden', 'to_base');
RESET ROLE;
GRANT SELECT ON hidden TO insert_owner;
ALTER VIEW to_base SET (security_invoker);
SET ROLE insert_reader;
SELECT either_way('INSERT INTO to_base SELECT id, word FROM from_hidden', '(SELECT 1)');
RESET ROLE;
ALTER VIEW to_base RESET (security_invoker);
ALTER VIEW from_hidden SET (security_invoker);
SET ROLE insert_reader;
SELECT either_way('INSERT INTO to_base SELECT id, word FROM from_hidden', 'to_base');
RESET ROLE;
ALTER VIEW from_hidden RESET (security_invoker);
-- A row in an error that came through a view.
ALTER TABLE base ADD CHECK (id <> 2), ADD n int DEFAULT 9;
SET ROLE insert_reader;
SELECT either_way('INSERT INTO to_base SELECT id, word FROM from_hidden', 'to_base');
RESET ROLE;
-- A condition of the view is evaluated before a user's condition that could leak its rows.
CREATE FUNCTION leak(int) RETURNS bool IMMUTABLE PARALLEL RESTRICTED LANGUAGE plpgsql COST 0.0001 AS 'BEGIN RAISE NOTICE ''leaked %'', $1; RETURN true; END';
CREATE VIEW guarded WITH (security_barrier) AS SELECT id, word FROM hidden WHERE id = 1;
CREATE VIEW unguarded AS SELECT id, word FROM hidden WHERE id = 1;
GRANT SELECT ON guarded, unguarded TO insert_reader;
GRANT INSERT, SELECT ON keys TO insert_reader;
SET ROLE insert_reader;
BEGIN;
SET LOCAL pg_bulk.direct_insert = on;
INSERT INTO keys SELECT id, word FROM guarded WHERE leak(id);
INSERT INTO keys SELECT id + 1, word FROM unguarded WHERE leak(id);
ROLLBACK;
BEGIN;
SET LOCAL pg_bulk.direct_insert = off;
INSERT INTO keys SELECT id, word FROM guarded WHERE leak(id);
INSERT INTO keys SELECT id + 1, word FROM unguarded WHERE leak(id);
ROLLBACK;
RESET ROLE;

-- Policies.
CREATE TABLE policed (id int, word text DEFAULT 'w', CHECK (id <> 3));
ALTER TABLE policed OWNER TO insert_owner;
ALTER TABLE policed ENABLE ROW LEVEL SECURITY;
GRANT SELECT, INSERT ON policed TO insert_reader, insert_bypass;
GRANT SELECT ON ft TO insert_owner, insert_bypass;
SET ROLE insert_reader;
SELECT either_way('INSERT INTO policed (id) SELECT id FROM ft', 'policed');
RESET ROLE;
CREATE POLICY small ON policed FOR INSERT WITH CHECK (id < 2);
CREATE POLICY all_seen ON policed FOR SELECT USING (true);
SET ROLE insert_reader;
SELECT either_way('INSERT INTO policed (id) SELECT id FROM ft', 'policed');
SELECT either_way('INSERT INTO policed (id) SELECT id FROM ft WHERE id = 1', 'policed');
SET row_security = off;
SELECT either_way('INSERT INTO policed (id) SELECT id FROM ft', 'policed');
RESET row_security;
SET ROLE insert_owner;
SELECT either_way('INSERT INTO policed (id) SELECT id FROM ft WHERE id < 3', 'policed');
SELECT either_way('INSERT INTO policed (id) SELECT id FROM ft', 'policed');
SET ROLE insert_bypass;
SELECT either_way('INSERT INTO policed (id) SELECT id FROM ft WHERE id < 3', 'policed');
SELECT either_way('INSERT INTO policed (id) SELECT id FROM ft', 'policed');
RESET ROLE;
ALTER TABLE policed FORCE ROW LEVEL SECURITY;
SET ROLE insert_owner;
SELECT either_way('INSERT INTO policed (id) SELECT id FROM ft', 'policed');
CREATE VIEW of_owner AS SELECT * FROM policed;
GRANT SELECT, INSERT ON of_owner TO insert_bypass, insert_reader;
SET ROLE insert_bypass;
SELECT either_way('INSERT INTO of_owner (id) SELECT id FROM ft', 'of_owner');
RESET ROLE;
ALTER TABLE policed NO FORCE ROW LEVEL SECURITY;
SET ROLE insert_reader;
SELECT either_way('INSERT INTO of_owner (id) SELECT id FROM ft', 'of_owner');
RESET ROLE;

-- A kept plan checks again whose privileges count.
CREATE FUNCTION way_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	EXECUTE 'EXPLAIN (COSTS OFF) ' || statement INTO line;
	RETURN line;
END $$;
SET plan_cache_mode = force_generic_plan;
PREPARE policed AS INSERT INTO policed (id) SELECT id FROM ft WHERE id < 3;
SELECT way_of('EXECUTE policed');
SET ROLE insert_reader;
SELECT way_of('EXECUTE policed');
EXECUTE policed;
RESET ROLE;
REVOKE INSERT ON policed FROM insert_reader;
SET ROLE insert_reader;
EXECUTE policed;
RESET ROLE;
EXECUTE policed;
RESET plan_cache_mode;
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA insert_select_rights CASCADE;
DROP ROLE insert_reader, insert_owner, insert_bypass;
