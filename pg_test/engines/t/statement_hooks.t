
# Libraries that log, forbid or count statements treat a load as a COPY, in a session and in a job.
# They are pgaudit, set_user and pg_stat_statements. pg_bulk is preloaded before them, after them, by session_preload_libraries, or on demand.

use strict;
use warnings FATAL => 'all';

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

# The runner itself fails if Debian's packages are not available. Servers from other sources have no such packages.
my $libraries = $ENV{PG_BULK_PKGLIBDIR};
plan skip_all => 'neither pgaudit nor set_user is installed'
  if defined $libraries && !-e "$libraries/pgaudit.so" && !-e "$libraries/set_user.so";

my $others = 'pgaudit, set_user, pg_stat_statements';
my %orders = (
	'pg_bulk first' => { shared => "pg_bulk, $others" },
	'pg_bulk last' => { shared => "$others, pg_bulk" },
	'pg_bulk in the middle' => { shared => 'set_user, pg_stat_statements, pg_bulk, pgaudit' },
	'pg_bulk by session' => { shared => $others, session => 'pg_bulk' },
	'pg_bulk not preloaded' => { shared => $others });

my $node = PostgreSQL::Test::Cluster->new('hooks');
$node->init(allows_streaming => 1);
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'pgaudit, set_user, pg_stat_statements'
pg_stat_statements.track = all
autovacuum = off
log_statement = none
set_user.block_copy_program = on
set_user.superuser_allowlist = '*'
CONF
$node->start;

my $dir = $node->basedir . '/files';
mkdir $dir or die;
my $file = "$dir/two.txt";
append_to_file($file, "1\tone\n2\ttwo\n");
my $header = "$dir/header.csv";
append_to_file($header, "b,a\none,1\ntwo,2\n");
my $many = "$dir/many.txt";
append_to_file($many, join '', map {"$_\tx\n"} 1 .. 100_000);
my $mark = "$dir/mark";
my $program = "touch $mark; cat $file";

$node->safe_psql('postgres', <<"SQL");
CREATE EXTENSION pg_bulk;
CREATE EXTENSION pgaudit;
CREATE EXTENSION set_user;
CREATE EXTENSION pg_stat_statements;
CREATE ROLE auditor;
CREATE ROLE loader LOGIN IN ROLE pg_read_server_files, pg_execute_server_program;
CREATE ROLE reader LOGIN;
CREATE ROLE boss LOGIN SUPERUSER;
GRANT EXECUTE ON FUNCTION set_user(text), set_user_u(text), reset_user() TO loader;
GRANT pg_monitor TO loader;
CREATE TABLE t (a int, b text);
CREATE TABLE closed (a int, b text);
CREATE SCHEMA hidden;
CREATE TABLE hidden.t (a int, b text);
GRANT SELECT, INSERT ON t, hidden.t TO loader, reader;
CREATE SERVER below FOREIGN DATA WRAPPER bulk_fdw OPTIONS (directory '$dir');
GRANT USAGE ON FOREIGN SERVER below TO reader;
CREATE FOREIGN TABLE of_program (a int, b text) SERVER bulk_files OPTIONS (program '$program');
CREATE FOREIGN TABLE of_file (a int, b text) SERVER bulk_files OPTIONS (filename '$file');
CREATE FOREIGN TABLE of_many (a int, b text) SERVER bulk_files OPTIONS (filename '$many');
GRANT SELECT ON of_program, of_file, of_many TO loader, reader;
CREATE VIEW viewed AS SELECT * FROM t;
CREATE FUNCTION to_t() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO t VALUES (NEW.*); RETURN NEW; END';
CREATE TRIGGER to_t INSTEAD OF INSERT ON viewed FOR EACH ROW EXECUTE FUNCTION to_t();
CREATE TABLE guarded (a int, b text);
ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
CREATE POLICY all_rows ON guarded USING (true);
CREATE TABLE parts (a int, b text) PARTITION BY LIST (a);
CREATE TABLE part_1 PARTITION OF parts FOR VALUES IN (1);
CREATE TABLE part_2 PARTITION OF parts DEFAULT;
GRANT INSERT ON viewed, guarded, parts TO loader;
CREATE TABLE numbers AS SELECT n FROM generate_series(1, 100) n;
ALTER TABLE numbers SET (parallel_workers = 2);
GRANT SELECT ON numbers TO loader;
CREATE FUNCTION rows_of_file(n int) RETURNS bigint LANGUAGE plpgsql PARALLEL RESTRICTED AS 'BEGIN RETURN (SELECT count(*) FROM of_file WHERE n > 0); END';
CREATE FUNCTION rows_of_program(n int) RETURNS bigint LANGUAGE plpgsql PARALLEL RESTRICTED AS 'BEGIN RETURN (SELECT count(*) FROM of_program WHERE n > 0); END';
GRANT EXECUTE ON FUNCTION pg_stat_statements_reset(oid, oid, bigint) TO loader;
SQL

my $log_at = 0;

# The outcome of a role's statements: "ok", or SQLSTATE and message of the first error.
sub said
{
	my ($role, $sql) = @_;
	my ($out, $err);
	$node->psql('postgres', $sql, stdout => \$out, stderr => \$err,
		extra_params => [ '-U', $role, '-v', 'VERBOSITY=verbose', '-q' ], on_error_stop => 0);
	return $err =~ /ERROR:\s+(.*)/ ? $1 : 'ok';
}

sub rows_of
{
	my ($role, $sql) = @_;
	return $node->safe_psql('postgres', $sql, extra_params => [ '-U', $role ]);
}

# A role's job: "succeeded", or its error.
sub job_said
{
	my ($role, $arguments, $before) = @_;
	my ($out, $err);
	$before //= '';
	$node->psql('postgres', <<"SQL", stdout => \$out, stderr => \$err, extra_params => [ '-U', $role, '-q' ], on_error_stop => 1);
$before
SELECT bulk_enqueue($arguments) AS job \\gset
SELECT bulk_wait(:job, '60 s') \\gset
SELECT CASE :'bulk_wait' WHEN 'succeeded' THEN 'ok' ELSE concat_ws(': ', error_sqlstate, error_message) END FROM bulk_jobs WHERE job_id = :job;
SQL
	return $out ne '' ? $out : $err;
}

# The entries of class WRITE that pgaudit has logged since the last call, without numbers and texts; and their texts.
sub entries
{
	my $log = slurp_file($node->logfile, $log_at);
	$log_at = -s $node->logfile;
	my (@entries, @texts);
	while ($log =~ /AUDIT: (\w+),\d+,\d+,(\w+),([^,]*),([^,]*),([^,]*),("(?:[^"]|"")*"|[^,\n]*),/g)
	{
		my ($type, $class, $command, $kind, $name, $text) = ($1, $2, $3, $4, $5, $6);
		# The dispatcher's own statements, which run as a superuser.
		next if $class ne 'WRITE' || $text =~ /bulk_queue/;
		push @entries, "$type $class $command $kind $name";
		push @texts, $text;
	}
	return (join('; ', @entries), join('; ', @texts));
}

sub with
{
	my (%settings) = @_;
	$node->safe_psql('postgres', join '', map {"ALTER ROLE ALL SET $_ = '$settings{$_}';\n"} sort keys %settings);
	entries();
	return;
}

sub without
{
	$node->safe_psql('postgres', join '', map {"ALTER ROLE ALL RESET $_;\n"} @_);
	return;
}

# A load by each caller is logged as COPY is.
sub is_as_copy
{
	my ($name, $copy, $columns, %options) = @_;
	my $source = $options{program} ? "PROGRAM '$options{program}'" : "'$file'";
	my $path = $options{program} // $file;
	my $json = $options{program} ? '"program": true' : '"format": "text"';
	my $list = $columns ? '(' . join(', ', @$columns) . ')' : '';
	$json .= ', "columns": [' . join(', ', map {"\"$_\""} @$columns) . ']' if $columns;
	$json .= ', "writer": "buffered"' if $options{buffered};
	is(said('loader', "COPY t $list FROM $source"), 'ok', "$name: COPY");
	my ($expected) = entries();
	is($expected, $copy, "$name: COPY is seen");
	my %callers = (
		'bulk_load' => sub { said('loader', "SELECT * FROM bulk_load('$path', 't', '{$json}')") },
		'bulk_load in a function' => sub { said('loader', "DO 'BEGIN PERFORM * FROM bulk_load(''$path'', ''t'', ''{$json}''); END'") },
		'bulk_check' => sub { said('loader', "SELECT * FROM bulk_check('$path', 't', '{$json}')") },
		'a job' => sub { job_said('loader', "'$path', 't', '{$json}'") });
	for my $caller (sort keys %callers)
	{
		next if $options{buffered} && $caller eq 'bulk_check';
		is($callers{$caller}->(), 'ok', "$name: $caller");
		my ($entries, $texts) = entries();
		is($entries, $expected, "$name: $caller is seen as COPY is");
		next if $expected eq '';
		like($texts, qr/COPY public\.t .*FROM .*\Q$path\E/, "$name: ... with its text");
	}
	return;
}

sub audits
{
	my ($order) = @_;
	my $name = "$order: pgaudit.log";
	with('pgaudit.log' => 'write', 'pgaudit.log_level' => 'log');
	is_as_copy("$name = write", 'SESSION WRITE COPY  ');
	is_as_copy("$name = write, columns", 'SESSION WRITE COPY  ', ['b'], program => "cut -f 2 $file");
	# The header lists the columns.
	is(said('loader', "SELECT * FROM bulk_load('$header', 't', '{\"format\": \"csv\", \"match_by\": \"name\"}')"), 'ok', "$name: by name");
	my ($entries, $texts) = entries();
	is($entries, 'SESSION WRITE COPY  ', "$name: by name is seen");
	like($texts, qr/COPY public\.t \(a, b\)/, "$name: ... with the columns");
	# The rows of a query.
	is(said('loader', "SELECT * FROM bulk_load(NULL, 't', '{\"query\": \"SELECT 1, ''x''\"}')"), 'ok', "$name: a query");
	($entries) = entries();
	like($entries, qr/^SESSION WRITE COPY  /, "$name: a query is seen");
	with('pgaudit.log' => 'all', 'pgaudit.log_relation' => 'on');
	is_as_copy("$name = all, log_relation", 'SESSION WRITE INSERT TABLE public.t');
	without('pgaudit.log_relation');
	with('pgaudit.log' => 'all', 'pgaudit.log_rows' => 'on');
	is_as_copy("$name = all, log_rows", 'SESSION WRITE COPY  ');
	my $oid = $node->safe_psql('postgres', "SELECT 'hidden.t'::regclass::oid");
	# Another library has a planner hook, so pg_bulk plans the INSERT, which names the table.
	is(said('loader', "SELECT * FROM bulk_load('$file', $oid)"), '42501: permission denied for schema hidden', "$name: a table whose schema is closed");
	entries();
	without('pgaudit.log_rows', 'pgaudit.log');

	# pgaudit logs statements that use a privilege of this role.
	$node->safe_psql('postgres', 'GRANT INSERT ON t TO auditor');
	with('pgaudit.log' => 'none', 'pgaudit.role' => 'auditor');
	is_as_copy("$order: pgaudit.role, table", 'OBJECT WRITE INSERT TABLE public.t');
	is(said('loader', "SELECT * FROM bulk_load('$header', 't', '{\"format\": \"csv\", \"match_by\": \"name\"}')"), 'ok',
		"$order: pgaudit.role, by name");
	($entries) = entries();
	is($entries, 'OBJECT WRITE INSERT TABLE public.t', "$order: pgaudit.role, by name is seen once");
	$node->safe_psql('postgres', 'REVOKE INSERT ON t FROM auditor; GRANT INSERT (b) ON t TO auditor');
	entries();
	is_as_copy("$order: pgaudit.role, column", 'OBJECT WRITE INSERT TABLE public.t', [ 'a', 'b' ]);
	is_as_copy("$order: pgaudit.role, other column", '', ['a'], program => "cut -f 1 $file");
	$node->safe_psql('postgres', 'REVOKE INSERT (b) ON t FROM auditor');
	with('pgaudit.log' => 'all', 'pgaudit.role' => 'auditor');

	# A COPY that pg_bulk runs.
	is(said('loader', "SET pg_bulk.copy = on; SET pg_bulk.copy_min_size = 0; COPY t FROM '$many'"), 'ok', "$order: pg_bulk.copy")
	  if $order ne 'pg_bulk not preloaded';
	($entries) = entries();
	is($entries, 'SESSION WRITE COPY  ', "$order: pg_bulk.copy is seen") if $order ne 'pg_bulk not preloaded';
	# Scans of foreign tables.
	is(rows_of('loader', 'SELECT count(*) FROM of_program'), 2, "$order: a scan of a program");
	is(rows_of('loader', 'SET force_parallel_mode = on; SET parallel_setup_cost = 0; SELECT count(*), sum(a) FROM of_many'),
		'100000|5000050000', "$order: a parallel scan");
	is(rows_of('reader', 'SELECT count(*) FROM of_file'), 2, "$order: a scan by a role that may read no file itself");
	is(rows_of('reader', 'SELECT count(*) FROM of_program'), 2, "$order: a scan by a role that may run no program itself");
	is(rows_of('loader', "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
		SELECT sum(rows_of_file(n)) FROM numbers"), 200, "$order: a scan in a function while workers run");
	is(said('loader', 'INSERT INTO t SELECT * FROM of_many'), 'ok', "$order: INSERT from a foreign table");
	is(said('boss', 'ANALYZE of_file'), 'ok', "$order: ANALYZE of a foreign table");
	is(said('boss', qq[CREATE SCHEMA imported; IMPORT FOREIGN SCHEMA files FROM SERVER bulk_files INTO imported OPTIONS (filename '$dir/t*.txt');
		SELECT 1 / (count(*) = 2)::int FROM imported.two; DROP SCHEMA imported CASCADE]), 'ok', "$order: IMPORT FOREIGN SCHEMA");
	is(said('loader', "SELECT * FROM bulk_load('$file', '$_')"), 'ok', "$order: a load into $_") for qw(viewed guarded parts);
	is(said('loader', qq[SELECT * FROM bulk_load('$file', 't', '{"where": "a > 1", "columns": ["a", "b"]}')]), 'ok', "$order: where");
	is(said('reader', qq[SELECT * FROM bulk_load('two.txt', 't', '{"server": "below"}')]), 'ok', "$order: a file of a directory");
	is(said('loader', "SELECT * FROM bulk_load('$file', 'hidden.t'::regclass::oid)"), '42501: permission denied for schema hidden',
		"$order: a table in a schema that is closed");
	is(said('loader', "SELECT * FROM bulk_load('$file', $oid)"), '42501: permission denied for schema hidden', "$order: ... by its OID");
	without('pgaudit.log', 'pgaudit.role', 'pgaudit.log_level');
	return;
}

sub rights
{
	my ($order) = @_;
	with('pgaudit.log' => 'all');
	my $denied = said('loader', "COPY closed FROM '$file'");
	is($denied, '42501: permission denied for table closed', "$order: COPY without a right");
	is(said('loader', "SELECT * FROM bulk_load('$file', 'closed')"), $denied, "$order: bulk_load without a right");
	is(said('loader', "SELECT * FROM bulk_check('$file', 'closed')"), $denied, "$order: bulk_check without a right");
	is(said('loader', "SELECT * FROM bulk_load('$header', 'closed', '{\"format\": \"csv\", \"match_by\": \"name\"}')"), $denied,
		"$order: bulk_load by name without a right");
	# bulk_enqueue requires the privilege; it may be revoked later.
	my $job = rows_of('boss', "SELECT bulk_pause() \\gset
		GRANT INSERT ON closed TO loader; SET ROLE loader; SELECT bulk_enqueue('$file', 'closed');");
	is(rows_of('boss', "REVOKE INSERT ON closed FROM loader; SELECT bulk_resume() \\gset
		SELECT bulk_wait($job, '60 s') \\gset
		SELECT error_sqlstate || ': ' || error_message FROM bulk_jobs WHERE job_id = $job"), $denied, "$order: a job without a right");
	without('pgaudit.log');
	return;
}

# The program must not run: it would create a file.
sub forbids
{
	my ($order) = @_;
	my $as_boss = "SELECT set_user_u('boss');";
	my $is = sub {
		my ($expected, $sql, $name) = @_;
		unlink $mark;
		my $said = said('loader', "$as_boss $sql");
		is($said, $expected, "$order: $name");
		ok($expected ne 'ok' ? !-e $mark : 1, "$order: ... it has not run") if $sql =~ /program/;
		return;
	};
	my $forbidden = '42501: COPY PROGRAM blocked by set_user config';
	my $json = '{"program": true}';
	$is->($forbidden, "COPY t FROM PROGRAM '$program'", 'COPY FROM PROGRAM');
	$is->($forbidden, "SELECT * FROM bulk_load('$program', 't', '$json')", 'bulk_load of a program');
	$is->($forbidden, "SELECT * FROM bulk_load('$program', 't', '{\"program\": true, \"format\": \"csv\", \"match_by\": \"name\"}')",
		'bulk_load of a program by name');
	$is->($forbidden, "SELECT * FROM bulk_check('$program', 't', '$json')", 'bulk_check of a program');
	$is->($forbidden, "SELECT * FROM bulk_read('$program', '$json') AS (a int, b text)", 'bulk_read of a program');
	$is->($forbidden, "SELECT * FROM bulk_sniff('$program', '$json')", 'bulk_sniff of a program');
	$is->($forbidden, "SELECT bulk_enqueue('$program', 't', '$json')", 'bulk_enqueue of a program');
	$is->($forbidden, "SELECT * FROM bulk_load('$program', 'made', '{\"program\": true, \"create\": true}')", 'bulk_create of a program');
	$is->($forbidden, 'SELECT * FROM of_program', 'a foreign table of a program');
	$is->($forbidden, 'INSERT INTO t SELECT * FROM of_program', 'INSERT from a foreign table of a program');
	$is->($forbidden, 'CREATE TABLE made AS SELECT * FROM of_program', 'CREATE TABLE AS from a foreign table of a program');
	$is->($forbidden, 'BEGIN; DECLARE c CURSOR FOR SELECT * FROM of_program; FETCH c; COMMIT', 'a cursor over a program');
	$is->($forbidden, 'SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
		SELECT sum(rows_of_program(n)) FROM numbers', 'a program in a function while workers run');
	$is->('ok', 'EXPLAIN SELECT * FROM of_program', 'EXPLAIN of a program');
	$is->('ok', "SELECT * FROM bulk_load('$file', 't')", 'bulk_load of a file');
	$is->('ok', 'SELECT * FROM of_file', 'a foreign table of a file');
	# If the error is caught, the session's state is unchanged.
	$is->($forbidden, "DO 'BEGIN PERFORM * FROM of_program; EXCEPTION WHEN insufficient_privilege THEN
		PERFORM * FROM bulk_load(''$file'', ''t''); END'; COPY t FROM '$file'; SELECT * FROM of_program", 'after an error that was caught');
	unlink $mark;
	is(said('loader', "$as_boss SELECT reset_user(); SELECT * FROM bulk_load('$program', 't', '$json')"), 'ok',
		"$order: bulk_load of a program as the own role");
	ok(-e $mark, "$order: ... it has run");
	is(job_said('loader', "'$program', 't', '$json'"), 'ok', "$order: a job of a program");
	return;
}

sub counts
{
	my ($order) = @_;
	rows_of('loader', 'SELECT pg_stat_statements_reset()');
	is(job_said('loader', "'$file', 't'"), 'ok', "$order: a job") for 1 .. 3;
	is(rows_of('loader', <<'SQL'), '3|t', "$order: its statement is counted");
SELECT sum(calls), bool_and(total_exec_time > 0 AND query = 'SELECT public.bulk_run_job($1::bigint, $2::text, $3::text, $4::jsonb)')
FROM pg_stat_statements JOIN pg_roles r ON r.oid = userid WHERE query ~ 'bulk_run_job' AND rolname = 'loader' AND calls > 0
SQL
	rows_of('loader', "SELECT * FROM bulk_load('$file', 't')");
	is(rows_of('loader', q[SELECT calls, rows FROM pg_stat_statements WHERE query ~ '^SELECT \* FROM bulk_load']), '1|1',
		"$order: a call is counted");
	return;
}

# The statement of a job that monitoring shows, while the job runs, and when it fails.
sub shows
{
	my $job = rows_of('loader', q[SELECT bulk_enqueue(NULL, 't', '{"query": "SELECT 1, NULL::text FROM pg_sleep(1000)"}')]);
	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE state = 'active' AND backend_type = 'pg_bulk job'
		AND query = format('SELECT public.bulk_run_job(%s::bigint, ''''::text, ''public.t''::text, ''{\"query\": \"SELECT 1, NULL::text FROM pg_sleep(1000)\"}''::jsonb)', $job)
		AND query_id IS NOT NULL") or diag rows_of('loader', 'SELECT backend_type, query FROM pg_stat_activity');
	is(rows_of('loader', "SELECT bulk_cancel($job), bulk_wait($job, '60 s')"), 't|canceled', 'a job that is shown is canceled');
	append_to_file("$dir/bad.txt", "1\tone\nx\ttwo\n");
	entries();
	like(job_said('loader', "'$dir/bad.txt', 't'"), qr/^22P02: invalid input syntax for type integer: "x"$/, 'a job fails');
	my $log = slurp_file($node->logfile, 0);
	like($log, qr/CONTEXT:  COPY t, line 2, column a: "x"\n[^\n]*bad\.txt"\n[^\n]*STATEMENT:  SELECT public\.bulk_run_job\(\d+::bigint, '\Q$dir\E\/bad\.txt'::text/,
		'... with its statement and the context of COPY in the log');
	is(said('loader', "SELECT bulk_run_job(1, '$file', 't', '{}')"), '55000: bulk_run_job() is called only by workers of pg_bulk',
		'nobody else calls its function');
	is(said('boss', "SELECT bulk_run_job(NULL, NULL, NULL, NULL)"), '55000: bulk_run_job() is called only by workers of pg_bulk',
		'... not a superuser either');
	# User code that runs in the job's process cannot use it either.
	is(said('boss', <<'SQL'), 'ok', 'a trigger');
CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM bulk_run_job(1, 'x', 't', '{}'); RETURN NULL; END$$;
CREATE TABLE triggered (a int, b text);
GRANT INSERT ON triggered TO loader;
CREATE TRIGGER again AFTER INSERT ON triggered FOR EACH ROW EXECUTE FUNCTION again();
SQL
	is(job_said('loader', "'$file', 'triggered'"), '55000: bulk_run_job() is called only by workers of pg_bulk', '... runs no other job');
	# Other functions with the same name are not confused with it.
	is(said('boss', <<'SQL'), 'ok', 'other functions of the name');
CREATE FUNCTION bulk_run_job(int, text, text, text) RETURNS void LANGUAGE sql AS 'SELECT 1/0';
CREATE FUNCTION bulk_run_job(text, text, text, text) RETURNS void LANGUAGE sql AS 'SELECT 1/0';
SQL
	is(job_said('loader', "'$file', 't'", "SET standard_conforming_strings = off;"), 'ok', '... are not called');
	is(said('boss', <<'SQL'), 'ok', 'a type with the name of another one');
CREATE SCHEMA evil;
CREATE DOMAIN evil.text AS pg_catalog.text;
GRANT USAGE ON SCHEMA evil TO loader;
CREATE FUNCTION bulk_run_job(bigint, evil.text, evil.text, jsonb) RETURNS void LANGUAGE sql AS 'SELECT 1/0';
SQL
	is(job_said('loader', "'$file', 't'", "SET search_path = evil, pg_catalog, public;"),
		'55000: a table or function of the load was renamed or replaced meanwhile', '... does not make another function be called');
	is(said('boss', 'DROP SCHEMA evil CASCADE'), 'ok', '... is dropped');
	is(job_said('loader', q['cat "' || '] . $file . q[" # ''\\'' \\', 't', '{"program": true}']), 'ok', 'a path with quotes');
	is(said('boss', 'DROP FUNCTION bulk_run_job(int, text, text, text), bulk_run_job(text, text, text, text)'), 'ok', 'they are dropped');
	return;
}

# A server that refuses COPY FROM still reads files.
sub standby
{
	$node->backup('b');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'b', has_streaming => 1);
	$standby->start;
	$node->wait_for_catchup($standby);
	is($standby->safe_psql('postgres', 'SELECT count(*) FROM of_file'), 2, 'a standby reads a file');
	is($standby->safe_psql('postgres', "SELECT count(*) FROM bulk_read('$file') AS (a int, b text)"), 2, '... by bulk_read');
	my ($out, $err);
	$standby->psql('postgres', "SELECT set_user_u('boss'); SELECT * FROM of_program;", stdout => \$out, stderr => \$err,
		extra_params => [ '-U', 'loader' ]);
	like($err, qr/COPY PROGRAM blocked by set_user config/, '... and runs no program that is forbidden');
	$standby->stop;
	return;
}

for my $order (sort keys %orders)
{
	my $libraries = $orders{$order};
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'$libraries->{shared}'");
	$node->adjust_conf('postgresql.conf', 'session_preload_libraries', $libraries->{session} ? "'$libraries->{session}'" : "''");
	$node->restart;
	$log_at = -s $node->logfile;
	audits($order);
	rights($order);
	forbids($order);
	counts($order);
	shows() if $order eq 'pg_bulk first';
	standby() if $order eq 'pg_bulk last';
}
my $log = slurp_file($node->logfile);
unlike($log, qr/\(PID \d+\) was terminated by signal/, 'no process has crashed');
done_testing();
