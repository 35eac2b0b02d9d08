--
-- Servers with a directory: USAGE suffices to read files below it, and no path leads out of it.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema directory_servers
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
\! mkdir -p "$PGB_DATA/dir/sub" "$PGB_DATA/dir_not" && echo 1,one >"$PGB_DATA/dir/a.csv" && echo 2,two >"$PGB_DATA/dir/sub/b.csv" && echo 9,secret >"$PGB_DATA/dir_not/s.csv"
\! cd "$PGB_DATA/dir" && ln -s ../dir_not/s.csv link_out && ln -s ../dir_not link_dir && ln -s sub/b.csv link_in && ln -s ../dir/./sub/../a.csv link_back && ln -s "$PGB_DATA/dir/a.csv" link_whole && ln -s link_self link_self && ln -s ../dir_not/missing link_missing && ln -s missing link_nothing && mkfifo -m 666 fifo
SET client_min_messages = warning;
CREATE ROLE dir_admin IN ROLE pg_read_server_files;
CREATE ROLE dir_user LOGIN;
CREATE ROLE dir_other;
GRANT USAGE, CREATE ON SCHEMA directory_servers TO PUBLIC;
GRANT USAGE ON FOREIGN DATA WRAPPER bulk_fdw TO dir_admin, dir_user;
RESET client_min_messages;

-- The option: for servers only, and only for roles that may read all files.
SET test.dir TO :'data';
CREATE FUNCTION do_sql(statement text, VARIADIC arguments text[] DEFAULT '{}') RETURNS SETOF text LANGUAGE sql AS $$ SELECT error_of(format(statement, VARIADIC arguments)) $$;
SELECT do_sql('CREATE SERVER bad FOREIGN DATA WRAPPER bulk_fdw OPTIONS (directory ''relative'')');
SELECT do_sql('CREATE SERVER bad FOREIGN DATA WRAPPER bulk_fdw OPTIONS (dictionary ''/'')');
SELECT do_sql('CREATE FOREIGN TABLE bad (a int) SERVER bulk_files OPTIONS (filename ''x'', directory ''/'')');
SET ROLE dir_user;
SELECT do_sql('CREATE SERVER bad FOREIGN DATA WRAPPER bulk_fdw OPTIONS (directory ''/'')');
CREATE SERVER dir_own FOREIGN DATA WRAPPER bulk_fdw;
SELECT do_sql('ALTER SERVER dir_own OPTIONS (ADD directory ''/'')');
SELECT do_sql('CREATE FOREIGN TABLE bad (a int) SERVER dir_own OPTIONS (filename ''a.csv'')');
SET ROLE dir_admin;
SELECT do_sql('CREATE SERVER dir_files FOREIGN DATA WRAPPER bulk_fdw OPTIONS (directory %L)', data_path('dir'));
SELECT without_path(srvoptions::text) FROM pg_foreign_server WHERE srvname = 'dir_files';

-- Foreign tables: without USAGE none can be created, with it a table of any file below the directory.
SET ROLE dir_user;
SELECT do_sql('CREATE FOREIGN TABLE a (id int, word text) SERVER dir_files OPTIONS (filename ''a.csv'', format ''csv'')');
SET ROLE dir_admin;
GRANT USAGE ON FOREIGN SERVER dir_files TO dir_user;
SET ROLE dir_user;
SELECT do_sql('CREATE FOREIGN TABLE a (id int, word text) SERVER dir_files OPTIONS (filename ''a.csv'', format ''csv'')');
TABLE a;
CREATE FUNCTION reading(name text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY SELECT 'naming ' || without_path(name) || ' -> ' || e FROM error_of(format('ALTER FOREIGN TABLE a OPTIONS (SET filename %L)', name)) e WHERE e <> 'no error';
	IF FOUND THEN
		RETURN;
	END IF;
	RETURN QUERY SELECT without_path(name) || ' -> ' || e FROM error_of('SELECT * FROM a') e;
	IF FOUND AND (SELECT count(*) FROM error_of('SELECT * FROM a') e WHERE e = 'no error') = 1 THEN
		RETURN QUERY SELECT a::text FROM a;
	END IF;
END $$;
SELECT reading('sub/b.csv');
SELECT reading('./sub/../a.csv');
SELECT reading('link_in');
SELECT reading(data_path('dir/a.csv'));
SELECT reading(data_path('dir//sub/./b.csv'));
SELECT reading('missing');
SELECT reading('link_nothing');
SELECT reading('link_self');
SELECT reading('link_back');
SELECT reading('link_whole');
-- Every kind of path that leads out fails. The error does not tell whether the file exists.
SELECT reading('../dir_not/s.csv');
SELECT reading('../dir_not/missing');
SELECT reading('sub/../../dir_not/s.csv');
SELECT reading('link_out');
SELECT reading('link_missing');
SELECT reading('link_dir/s.csv');
SELECT reading('link_dir/missing');
SELECT reading('link_dir/missing/missing');
SELECT reading('link_dir/../dir_not/s.csv');
-- Patterns and directories; directories outside are not searched.
SELECT reading('*.csv');
SELECT reading('s*/[ab].*');
SELECT reading('**/*.csv');
SELECT reading('link_dir/**/*.csv');
SELECT reading('**/../../dir_not/*.csv');
SELECT reading('sub');
SELECT reading('l*k_in');
SELECT reading('s*/missing*');
SELECT reading('link_dir');
SELECT reading('link_dir/*');
SELECT reading('link_dir/missing*');
SELECT reading('l*k_dir/s.csv');
SELECT reading('l*k_dir/s*');
SELECT reading('l*k_dir/missing*');
SELECT reading('l*k_out');
SELECT reading('\.\./dir_not/s*');
SELECT reading('sub/\.\./none*');
-- A name with brackets may be a link that leads out, to an existing file or to none.
\! cd "$PGB_DATA/dir" && ln -s ../dir_not 'out[x]' && ln -s ../dir_nothing 'gone[x]'
SELECT reading('out[x]');
SELECT reading('gone[x]');
-- A file that becomes a link to the outside before the scan reaches it.
RESET ROLE;
\! cd "$PGB_DATA/dir" && mkdir turn && echo 1,one >turn/1 && echo 2,two >turn/2
SET ROLE dir_user;
ALTER FOREIGN TABLE a OPTIONS (SET filename 'turn');
BEGIN;
DECLARE turn CURSOR FOR SELECT * FROM a;
FETCH 1 FROM turn;
\! cd "$PGB_DATA/dir/turn" && ln -sf ../../dir_not/s.csv 2
\set VERBOSITY sqlstate
FETCH 1 FROM turn;
\set VERBOSITY default
ROLLBACK;
\! rm -r "$PGB_DATA/dir/turn"
SELECT reading('../dir_not');
SELECT reading('../dir_not/*');
SELECT reading('../d*/s.csv');
SELECT reading(data_path('dir_not/*'));
SELECT reading(data_path('d*/s.csv'));
SELECT reading(data_path('dir_not/s.csv'));
SELECT reading(data_path('dir/../dir_not/s.csv'));
SELECT reading(data_path('dir_not/missing'));
SELECT reading('/etc/passwd');
SELECT reading('/proc/self/cwd/PG_VERSION');
-- A role that may name files still cannot read outside the directory.
RESET ROLE;
SELECT reading('../dir_not/s.csv');
SELECT reading('sub/../a.csv');
SELECT reading('link_dir/../dir_not/s.csv');
SELECT reading(data_path('dir_not/missing'));
SELECT reading(data_path('dir_not/s.csv'));
SET ROLE dir_user;
SELECT error_of('TABLE a');
-- Neither a plan nor ANALYZE reveals anything about files outside.
SELECT plan_of('TABLE a', 'COSTS ON') ~ 'Size';
SELECT reading('link_out');
SELECT plan_of('TABLE a', 'COSTS ON') ~ 'Size';
SELECT error_of('ANALYZE a');
SELECT reading('a.csv');
SELECT plan_of('TABLE a', 'COSTS ON') ~ 'Size';
ANALYZE a;
-- Programs are refused on such servers.
SELECT do_sql('ALTER FOREIGN TABLE a OPTIONS (DROP filename, ADD program ''id'')');
RESET ROLE;
SELECT do_sql('ALTER FOREIGN TABLE a OPTIONS (DROP filename, ADD program ''id'')');
SELECT do_sql('CREATE FOREIGN TABLE p (id int) SERVER dir_files OPTIONS (program ''echo 1'')');
-- Superusers' tables are confined, too.
SELECT do_sql('CREATE FOREIGN TABLE s (id int, word text) SERVER dir_files OPTIONS (filename ''/etc/passwd'')');
SELECT error_of('TABLE s');
DROP FOREIGN TABLE s;

-- In a session that has not loaded the library: the statement alone, and in a transaction. The check runs at its end or before the first read.
\c -
SET search_path = directory_servers, public;
SET ROLE dir_user;
CREATE FOREIGN TABLE c (id int, word text) SERVER dir_own OPTIONS (filename '/etc/passwd');
\c -
SET search_path = directory_servers, public;
SET ROLE dir_user;
BEGIN;
CREATE FOREIGN TABLE c (id int, word text) SERVER dir_own OPTIONS (filename '/etc/passwd');
SAVEPOINT s;
SELECT count(*) FROM c;
ROLLBACK TO s;
SELECT count(*) FROM c;
ROLLBACK TO s;
COMMIT;
\c -
SET search_path = directory_servers, public;
SET ROLE dir_user;
DO $$ BEGIN
	CREATE FOREIGN TABLE c (id int, word text) SERVER dir_own OPTIONS (filename '/etc/passwd');
	BEGIN
		PERFORM count(*) FROM c;
	EXCEPTION WHEN insufficient_privilege THEN NULL;
	END;
END $$;
-- A table that the check would refuse is dropped, or altered to an allowed file, and comes back with ROLLBACK TO.
\c -
SET search_path = directory_servers, public;
SET ROLE dir_user;
BEGIN;
CREATE FOREIGN TABLE c (id int, word text) SERVER dir_own OPTIONS (filename '/etc/passwd');
SAVEPOINT s;
DROP FOREIGN TABLE c;
ROLLBACK TO s;
SELECT count(*) FROM c;
ROLLBACK TO s;
COMMIT;
\c -
SET search_path = directory_servers, public;
SET ROLE dir_user;
BEGIN;
CREATE FOREIGN TABLE c (id int, word text) SERVER dir_own OPTIONS (filename '/etc/passwd');
SAVEPOINT s;
SAVEPOINT inner_one;
DROP FOREIGN TABLE c;
RELEASE inner_one;
SELECT 1;
ROLLBACK TO s;
COMMIT;
\c -
SET search_path = directory_servers, public;
SET ROLE dir_user;
DO $$ BEGIN
	CREATE FOREIGN TABLE c (id int, word text) SERVER dir_own OPTIONS (filename '/etc/passwd');
	BEGIN
		DROP FOREIGN TABLE c;
		RAISE 'back';
	EXCEPTION WHEN raise_exception THEN NULL;
	END;
END $$;
\c -
SET search_path = directory_servers, public;
SET ROLE dir_user;
-- An object brought back in a subtransaction that commits, and one that was altered.
BEGIN;
CREATE FOREIGN TABLE c (id int, word text) SERVER dir_own OPTIONS (filename '/etc/passwd');
SAVEPOINT s;
SAVEPOINT inner_one;
ALTER FOREIGN TABLE c OPTIONS (SET filename 'a.csv');
ROLLBACK TO inner_one;
RELEASE s;
COMMIT;
\c -
SET search_path = directory_servers, public;
SET ROLE dir_user;
BEGIN;
SAVEPOINT s;
CREATE FOREIGN TABLE c (id int, word text) SERVER dir_own OPTIONS (filename '/etc/passwd')\; SAVEPOINT inner_one\; DROP FOREIGN TABLE c\; SELECT 1\; ROLLBACK TO inner_one;
SAVEPOINT inner_two;
ROLLBACK TO inner_two;
COMMIT;
\c -
SET search_path = directory_servers, public;
SET ROLE dir_user;
-- Tables whose creation was rolled back are no longer checked, and use no entry of the bounded list.
DO $$ BEGIN
	FOR i IN 1 .. 10001 LOOP
		BEGIN
			EXECUTE format('CREATE FOREIGN TABLE c (id int, word text) SERVER dir_files OPTIONS (filename %L)', 'a' || i);
			RAISE 'back';
		EXCEPTION WHEN raise_exception THEN NULL;
		END;
	END LOOP;
	BEGIN
		CREATE FOREIGN TABLE c (id int, word text) SERVER dir_files OPTIONS (filename 'a.csv', format 'csv');
	EXCEPTION WHEN raise_exception THEN NULL;
	END;
	DROP FOREIGN TABLE c;
END $$;
CREATE FOREIGN TABLE c (id int, word text) SERVER dir_files OPTIONS (filename 'a.csv', format 'csv')\; TABLE c;
DROP FOREIGN TABLE c;
RESET ROLE;
SELECT count(*) FROM pg_class WHERE relname = 'c';
\getenv data PGB_DATA
SET test.dir TO :'data';

-- Any change of the server keeps the directory; but roles that may read all files can set another.
SET ROLE dir_admin;
SELECT do_sql('ALTER SERVER dir_files OPTIONS (DROP directory)');
RESET ROLE;
SELECT do_sql('ALTER SERVER dir_files OPTIONS (DROP directory)');
SELECT do_sql('ALTER SERVER dir_files OPTIONS (SET directory ''sub'')');
SELECT do_sql('ALTER SERVER dir_files VERSION ''2'' OPTIONS (SET directory %L)', data_path('dir/sub'));
SELECT reading('a.csv');
SELECT reading('b.csv');
SELECT do_sql('ALTER SERVER dir_files OPTIONS (DROP directory, ADD directory %L)', data_path('dir'));
SELECT reading('a.csv');
-- The directory's own name is not a pattern.
\! cd "$PGB_DATA" && mkdir 'dir [20]' 'dir\*' && echo 1,one | tee 'dir [20]/a1' >'dir\*/a1' && echo 2,two | tee 'dir [20]/a2' >'dir\*/a2'
SELECT do_sql('ALTER SERVER dir_files OPTIONS (SET directory %L)', data_path('dir [20]'));
SELECT reading('a*');
SELECT reading('a1');
SELECT reading('missing');
SELECT plan_of('TABLE a');
SELECT reading('a*/');
SELECT reading(data_path('dir [20]/a?'));
SELECT do_sql('ALTER SERVER dir_files OPTIONS (SET directory %L)', data_path('dir\*'));
SELECT reading('a[2]');
SELECT reading('missing');
SELECT reading('.');
SELECT do_sql('ALTER SERVER dir_files OPTIONS (SET directory %L)', data_path('dir'));
SELECT reading('a.csv');
\c -
SET search_path = directory_servers, public;
ALTER SERVER dir_files OPTIONS (DROP directory);
\getenv data PGB_DATA
SET test.dir TO :'data';
-- A server that is a member of an extension cannot have a directory: a dump has members without their options, and would lose it.
SELECT do_sql('ALTER SERVER bulk_files OPTIONS (ADD directory ''/'')');
SELECT do_sql('ALTER SERVER bulk_files VERSION ''1'' ');
-- Servers of other wrappers are not checked, whatever their options: a wrapper without a handler, and one whose handler fails.
CREATE FOREIGN DATA WRAPPER dir_none;
CREATE FUNCTION dir_handler() RETURNS fdw_handler LANGUAGE internal AS 'fdw_handler_in';
CREATE FOREIGN DATA WRAPPER dir_fails HANDLER dir_handler;
SELECT do_sql('CREATE SERVER dir_foreign FOREIGN DATA WRAPPER %s OPTIONS (directory ''/'')', w), do_sql('ALTER SERVER dir_foreign OPTIONS (DROP directory)'),
	do_sql('SELECT bulk_load(''a.csv'', ''pg_class'', ''{"server": "dir_foreign"}'')'),
	do_sql('CREATE FOREIGN TABLE dir_foreign (a int) SERVER dir_foreign OPTIONS (filename ''x'')'),
	do_sql('DROP SERVER dir_foreign CASCADE') FROM unnest('{dir_none,dir_fails}'::text[]) w;
DROP FOREIGN DATA WRAPPER dir_none, dir_fails;
-- An owner without the role can neither change the directory nor grant access to the files below it.
GRANT USAGE ON FOREIGN DATA WRAPPER bulk_fdw TO dir_other;
ALTER SERVER dir_files OWNER TO dir_other;
SET ROLE dir_other;
SELECT do_sql('ALTER SERVER dir_files OPTIONS (DROP directory)');
SELECT do_sql('ALTER SERVER dir_files OPTIONS (SET directory ''/'')');
SELECT do_sql('CREATE FOREIGN TABLE o (id int, word text) SERVER dir_files OPTIONS (filename ''a.csv'', format ''csv'')');
GRANT USAGE ON FOREIGN SERVER dir_files TO dir_user;
SET ROLE dir_user;
SELECT do_sql('CREATE FOREIGN TABLE o (id int, word text) SERVER dir_files OPTIONS (filename ''a.csv'', format ''csv'')');
-- Such an owner's existing tables cannot be read either.
SELECT error_of('TABLE a');
SELECT do_sql('ALTER FOREIGN TABLE a OPTIONS (SET filename ''b.csv'')');
RESET ROLE;
ALTER SERVER dir_files OWNER TO dir_admin;
SET ROLE dir_user;
SELECT do_sql('CREATE FOREIGN TABLE o (id int, word text) SERVER dir_files OPTIONS (filename ''a.csv'', format ''csv'')');
DROP FOREIGN TABLE o;
-- A role that passes USAGE on must have the required role, too.
SET ROLE dir_admin;
GRANT USAGE ON FOREIGN SERVER dir_files TO dir_user WITH GRANT OPTION;
SET ROLE dir_user;
GRANT USAGE ON FOREIGN SERVER dir_files TO dir_other;
SET ROLE dir_other;
SELECT do_sql('CREATE FOREIGN TABLE o (id int, word text) SERVER dir_files OPTIONS (filename ''a.csv'', format ''csv'')');
SET ROLE dir_admin;
GRANT USAGE ON FOREIGN SERVER dir_files TO PUBLIC;
SET ROLE dir_other;
SELECT do_sql('CREATE FOREIGN TABLE o (id int, word text) SERVER dir_files OPTIONS (filename ''a.csv'', format ''csv'')');
TABLE o;
-- SELECT on a table lets others read the files that its owner may read.
GRANT SELECT ON o TO dir_user;
SET ROLE dir_admin;
REVOKE USAGE ON FOREIGN SERVER dir_files FROM PUBLIC;
REVOKE USAGE ON FOREIGN SERVER dir_files FROM dir_user CASCADE;
GRANT USAGE ON FOREIGN SERVER dir_files TO dir_other;
SET ROLE dir_user;
SELECT error_of('TABLE a');
TABLE o;
-- Without USAGE the owner of a table can no longer read it or name another file, and other roles cannot read it.
SET ROLE dir_admin;
REVOKE USAGE ON FOREIGN SERVER dir_files FROM dir_other;
GRANT USAGE ON FOREIGN SERVER dir_files TO dir_user;
SET ROLE dir_other;
SELECT do_sql('ALTER FOREIGN TABLE o OPTIONS (SET filename ''sub/b.csv'')');
SELECT error_of('TABLE o');
SELECT error_of('EXPLAIN TABLE o');
SELECT error_of('ANALYZE o');
SET ROLE dir_user;
SELECT error_of('TABLE o');
SELECT error_of('TABLE a');

-- Loads, INSERTs, jobs.
SET ROLE dir_user;
CREATE TABLE t (id int, word text);
SELECT do_sql('SELECT bulk_load(''a.csv'', ''t'', ''{"format": "csv"}'')');
SELECT do_sql('SELECT bulk_load(''a.csv'', ''t'', ''{"format": "csv", "server": "dir_files"}'')');
SELECT do_sql('SELECT bulk_load(''../dir_not/s.csv'', ''t'', ''{"format": "csv", "server": "dir_files"}'')');
SELECT do_sql('SELECT bulk_load(''link_out'', ''t'', ''{"format": "csv", "server": "dir_files"}'')');
SELECT do_sql('SELECT bulk_load(''a.csv'', ''t'', ''{"format": "csv", "server": "dir_own"}'')');
SELECT do_sql('SELECT bulk_load(''a.csv'', ''t'', ''{"format": "csv", "server": "bulk_files"}'')');
SELECT do_sql('SELECT bulk_load(''a.csv'', ''t'', ''{"format": "csv", "server": "no_server"}'')');
SELECT do_sql('SELECT bulk_load(''id'', ''t'', ''{"program": true, "server": "dir_files"}'')');
SELECT do_sql('SELECT bulk_check(''a.csv'', ''t'', ''{"format": "csv", "server": "dir_files"}'')');
INSERT INTO t SELECT * FROM a;
TABLE t;
CREATE TABLE listed (LIKE t);
SELECT do_sql('SELECT bulk_load(''[as]*/*'', ''listed'', ''{"format": "csv", "server": "dir_files", "workers": 2}'')');
SELECT do_sql('SELECT bulk_load(''link_[bi]*'', ''listed'', ''{"format": "csv", "server": "dir_files", "workers": 2}'')');
SELECT do_sql('SELECT bulk_load(''link_[bo]*'', ''listed'', ''{"format": "csv", "server": "dir_files", "workers": 2}'')');
SELECT do_sql('SELECT bulk_load(''link_*/*'', ''listed'', ''{"format": "csv", "server": "dir_files"}'')');
SELECT do_sql('SELECT bulk_enqueue(''link_*/*'', ''listed'', ''{"format": "csv", "server": "dir_files", "each_file": true}'')');
SELECT bulk_enqueue('link_[bi]*', 'listed', '{"format": "csv", "server": "dir_files", "each_file": true}') AS job \gset
SELECT bulk_wait(:job - 1), bulk_wait(:job);
SELECT without_path(path), rows_loaded FROM bulk_jobs WHERE job_id > :job - 2 ORDER BY job_id;
SELECT word, count(*) FROM listed GROUP BY word ORDER BY word;
SELECT do_sql('SELECT bulk_enqueue(''link_out'', ''t'', ''{"format": "csv", "server": "dir_own"}'')');
SET ROLE dir_other;
SELECT do_sql('SELECT bulk_load(''a.csv'', ''t'', ''{"format": "csv", "server": "dir_files"}'')');
SELECT do_sql('SELECT bulk_enqueue(''a.csv'', ''t'', ''{"format": "csv", "server": "dir_files"}'')');
SET ROLE dir_user;
SELECT error_of('EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) INSERT INTO t SELECT * FROM a');
SELECT bulk_enqueue('sub/b.csv', 't', '{"format": "csv", "server": "dir_files"}') AS job \gset
SELECT bulk_wait(:job);
TABLE t;
-- The privilege is checked again when the job runs.
BEGIN;
SELECT bulk_enqueue('sub/b.csv', 't', '{"format": "csv", "server": "dir_files"}') AS job \gset
SET ROLE dir_admin;
REVOKE USAGE ON FOREIGN SERVER dir_files FROM dir_user;
COMMIT;
RESET ROLE;
SET client_min_messages = warning;
SELECT bulk_wait(:job);
RESET client_min_messages;
SELECT status, error_sqlstate, error_message FROM bulk_jobs WHERE job_id = :job;
SET ROLE dir_admin;
GRANT USAGE ON FOREIGN SERVER dir_files TO dir_user;
RESET ROLE;
-- Workers check it, too.
CALL write_file('dir/many.csv', repeat(E'1,word\n', 400000));
SET ROLE dir_user;
TRUNCATE t;
SELECT rows_loaded, workers FROM bulk_load('many.csv', 't', '{"format": "csv", "server": "dir_files", "workers": 1}');
RESET ROLE;
-- pg_bulk.allowed_directories applies as well.
ALTER SYSTEM SET pg_bulk.allowed_directories = '/no/such';
SELECT pg_reload_conf();
\c -
SET search_path = directory_servers, public;
\getenv data PGB_DATA
SET test.dir TO :'data';
SELECT error_of('TABLE a');
ALTER SYSTEM RESET pg_bulk.allowed_directories;
SELECT pg_reload_conf();
SET client_min_messages = warning;
DROP SERVER dir_own, dir_files CASCADE;
DROP SCHEMA directory_servers CASCADE;
DROP OWNED BY dir_admin, dir_user, dir_other;
DROP ROLE dir_admin, dir_user, dir_other;
