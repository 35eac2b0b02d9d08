
# pg_upgrade from an older server, if there is one (PG_BULK_OLD_BINDIR, which pg_test/run sets), otherwise from the
# same version. Catalogs and tables stay the same, foreign tables can be read, and the
# queue continues. Also tests pg_dump and pg_restore.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Cwd qw(getcwd);
use File::Basename qw(dirname);
use File::Spec::Functions qw(rel2abs);
use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Queue;

my $bindir = `pg_config --bindir`;
chomp $bindir;
my $old_bindir = $ENV{PG_BULK_OLD_BINDIR} || $bindir;
# For some days, the new server may lack a minor release that the older one has. Then it does not know column options in
# the old catalogs, and pg_upgrade fails.
my ($knows, $old_knows) = map { index(slurp_file("$_/postgres"), 'pg_attver') >= 0 } $bindir, $old_bindir;
if ($old_knows && !$knows)
{
	diag("the server in $bindir lacks the minor release that the older one has: it is upgraded from the same version");
	delete $ENV{PG_BULK_OLD_BINDIR};
	$old_bindir = $bindir;
}
my @initdb = ('-E', 'UTF8', '--locale=C.UTF-8', '--data-checksums');

# A server that preloads the library. Its queue must not run during pg_upgrade.
sub make_node
{
	my ($name, %how) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name, %how);
	delete $ENV{RUST_BACKTRACE};
	$node->init(extra => [@initdb]);
	$node->append_conf('postgresql.conf', join "\n", "shared_preload_libraries = 'pg_bulk'", 'fsync = off', 'autovacuum = off',
		'max_worker_processes = 16', '');
	return $node;
}

my $old = make_node('old', $ENV{PG_BULK_OLD_BINDIR} ? (install_path => dirname($old_bindir)) : ());
my ($from, $to) = map { /(\d+)/ ? $1 : 0 } $old->pg_version . '', `pg_config --version`;
note "from $from to $to";
# In a run that must have both servers, an upgrade from the same version is not enough.
is($from, $ENV{PG_BULK_UPGRADE_FROM}, 'the older server is there') if $ENV{PG_BULK_UPGRADE_FROM};

my $directory = rel2abs(PostgreSQL::Test::Utils::tempdir('upgrade'));
chmod 0755, $directory;
my $queue = bless { node => $old, directory => $directory }, 'Queue';
my @files = ($queue->numbers('one', 1), $queue->numbers('many', 1 .. 1000), $queue->numbers('bad', 1, 'x', 3));
my $pipe = $queue->pipe('pipe');

#
# Before: objects of every kind that the extension has in a database.
#
$old->start;
$queue->sql(<<SQL);
CREATE ROLE loader LOGIN IN ROLE pg_read_server_files;
CREATE ROLE reader LOGIN;
CREATE SCHEMA "Bulk loading";
GRANT USAGE ON SCHEMA "Bulk loading" TO PUBLIC;
CREATE EXTENSION pg_bulk SCHEMA "Bulk loading";
ALTER DATABASE postgres SET search_path = public, "Bulk loading";
SET search_path = public, "Bulk loading";
CREATE TABLE t (a int);
CREATE TABLE keyed (a int PRIMARY KEY, b text DEFAULT 'b');
GRANT INSERT ON t, keyed TO loader;
CREATE FOREIGN TABLE many (a int OPTIONS (force_not_null 'true')) SERVER bulk_files OPTIONS (filename '$files[1]', format 'csv', sorted_by 'a');
CREATE SERVER "here only" FOREIGN DATA WRAPPER bulk_fdw OPTIONS (directory '$directory');
CREATE USER MAPPING FOR reader SERVER "here only";
CREATE USER MAPPING FOR PUBLIC SERVER "here only";
GRANT USAGE ON FOREIGN SERVER "here only" TO reader;
CREATE FOREIGN TABLE parts (a int, word text DEFAULT 'x') SERVER "here only" OPTIONS (filename '$directory/many', "default" '?', on_error 'set_null', log_verbosity 'silent');
ALTER FOREIGN TABLE parts DROP word;
GRANT SELECT ON parts TO reader;
CREATE VIEW over_many AS SELECT count(*), sum(a) FROM many;
ALTER FUNCTION bulk_load(text, regclass, jsonb) OWNER TO postgres;
REVOKE EXECUTE ON FUNCTION bulk_check(text, regclass, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION bulk_pause, bulk_resume TO loader;
SQL

my $queries = {
	'foreign tables' => 'SELECT (SELECT count(*) FROM many), (SELECT sum(a) FROM many WHERE a > 500), (SELECT sum(a) FROM parts), over_many FROM over_many',
	'a server of its own, to who may' => 'SET ROLE reader; SELECT count(*) FROM parts',
	'tables' => 'SELECT (SELECT count(*) FROM t), (SELECT sum(a) FROM keyed)',
	'jobs' => "SELECT job_id, target, path, options, owner, priority, status, waits_for, attempt, enqueued_at, run_at, finished_at, rows_loaded, error_sqlstate, error_message
		FROM bulk_jobs WHERE status <> 'running' AND path <> '$pipe' ORDER BY 1",
	'jobs, to their owner' => "SET ROLE loader; SELECT job_id, owner, status FROM bulk_jobs WHERE path <> '$pipe' ORDER BY 1",
	'history' => 'SELECT * FROM bulk_history ORDER BY load_id, attempt',
	'history, to the loader' => 'SET ROLE loader; SELECT * FROM bulk_history ORDER BY load_id, attempt',
	'rejected rows' => 'SELECT * FROM bulk_rejects ORDER BY load_id, line_number',
	'rights' => 'SELECT oid::regprocedure, proowner::regrole, proacl FROM pg_proc WHERE proname LIKE \'bulk%\' ORDER BY 1::text',
	'options' => 'SELECT srvname, srvoptions, srvacl FROM pg_foreign_server ORDER BY 1',
	'mappings' => 'SELECT srvname, usename, umoptions FROM pg_user_mappings ORDER BY 1, 2',
	'members' => q(SELECT pg_describe_object(classid, objid, objsubid) FROM pg_depend
		WHERE refclassid = 'pg_extension'::regclass AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_bulk') AND classid <> 'pg_type'::regclass ORDER BY 1),
	'what is dumped' => q(SELECT extversion, extnamespace::regnamespace, ARRAY(SELECT format('%s %s', r::regclass, c) FROM unnest(extconfig, extcondition) u(r, c) ORDER BY 1)
		FROM pg_extension WHERE extname = 'pg_bulk') };

# Finished loads and jobs, one of them by another role, and a failed one.
$queue->sql("SELECT bulk_load('$files[1]', 'keyed', '{\"columns\": [\"a\"]}')");
$queue->sql("SELECT bulk_load('$files[2]', 't', '{\"on_error\": \"table\"}')");
my $done = $queue->enqueue($files[0]);
is($queue->ends($done), 'succeeded', 'a job is done');
my $owned = ($queue->sql("SET ROLE loader; SELECT bulk_enqueue('$files[0]', 't')"))[0];
is($queue->ends($owned), 'succeeded', '... another role\'s');
my $failed = ($queue->sql("SET ROLE loader; SELECT bulk_enqueue('$files[2]', 't')"))[0];
is($queue->ends($failed), 'failed', '... and one has failed');
# Files that must not be loaded again.
my $once = '{"columns": ["a"], "once": true}';
sub loaded_once { my ($table, $database) = @_; return $queue->sql("SET client_min_messages = error; SELECT rows_loaded FROM bulk_load('$files[1]', '$table', '$once')", $database); }
$queue->sql("CREATE TABLE dropped (a int); CREATE TABLE seen (a int); CREATE TABLE zeen (a int)");
is(loaded_once($_), 1000, "a file is loaded into $_") for 'seen', 'zeen', 'dropped';
$queue->sql("ALTER TABLE seen RENAME TO renamed; ALTER TABLE zeen RENAME TO seen");
is(loaded_once($_), 0, "... once, $_ it is now") for 'seen', 'renamed';
# One job is running, the others wait.
my $running = $queue->enqueue($pipe);
$queue->runs($running);
$queue->sql('SELECT bulk_pause()');
my $queued = ($queue->sql("SET ROLE loader; SELECT bulk_enqueue('$files[0]', 't', priority => 7)"))[0];
my $tomorrow = $queue->enqueue($files[0], 'keyed', "'{\"columns\": [\"a\"]}'", "run_at => now() + interval '1 day'");
is($queue->status($running), 'running', 'a job runs');
is($queue->status($_), 'queued', '... one waits') for $queued, $tomorrow;

my %before = map { $_ => scalar $queue->sql($queries->{$_}) } keys %$queries;
like($before{'rejected rows'}, qr/\|x\|/, 'there is a rejected row');
like($before{jobs}, qr/failed/, '... and a job that failed');

# The schema, with all members of the extension as pg_upgrade
# transfers it, and as an ordinary dump; by the new server's pg_dump.
sub dumped
{
	my ($node, $what, @options) = @_;
	my $path = $queue->path("dump of $what");
	command_ok([ "$bindir/pg_dump", @options, '-f', $path, '-d', $node->connstr('postgres') ], "$what is dumped");
	# pg_upgrade changes frozen xids, and default privileges. From 16 on a view of one table does not qualify
	# its columns.
	my @lines = map { /^\s/ ? s/\b(?:bulk_reject|many|q)\.(?=\w)//gr : $_ } split /\n/, slurp_file($path);
	return [ grep { !/^\\(un)?restrict|^-- (Dumped|Started|Completed)|relfrozenxid|relminmxid|^SET |_record_init_privs|^-- Name: TABLE .*Type: ACL|^(--)?$/ } @lines ];
}
my %dumps = ('the database' => [], 'the schema with members' => [ '--schema-only', '--binary-upgrade' ]);
my %dumped_before = map { $_ => dumped($old, $_, @{ $dumps{$_} }) } keys %dumps;
$old->stop('fast');

#
# pg_upgrade.
#
my $new = make_node('new');
my $cwd = getcwd();
chdir $PostgreSQL::Test::Utils::tmp_check or die $!;
ok(run_log([ "$bindir/pg_upgrade", '-d', $old->data_dir, '-D', $new->data_dir, '-b', $old_bindir, '-B', $bindir, '-s', $new->host,
	'-p', $old->port, '-P', $new->port, '-U', scalar getpwuid($<) ]), "pg_upgrade from $from to $to")
  or do { diag(`find '@{[$new->data_dir]}/pg_upgrade_output.d' -name '*.log' -o -name '*.txt' | xargs tail -n 30`); BAIL_OUT('no upgrade') };
chdir $cwd or die $!;

#
# After.
#
$new->start;
$queue->{node} = $new;
is($queue->sql($queries->{$_}), $before{$_}, "$_: as before") for sort keys %$queries;
for my $what (sort keys %dumps)
{
	my $after = dumped($new, $what, @{ $dumps{$what} });
	cmp_ok(scalar @$after, '>', 100, "$what: something is dumped");
	is_deeply($after, $dumped_before{$what}, "$what: dumped as before");
}
is($queue->sql("SELECT status || ' ' || waits_for FROM bulk_jobs WHERE job_id = $running"), 'queued pause', 'what was running is to be run again');
is($queue->sql('SELECT count(*) FROM t'), 4, '... nothing has been loaded meanwhile');
is(loaded_once($_), 0, "what was loaded into $_ is known") for 'seen', 'renamed', 'dropped';
$queue->sql("ALTER TABLE seen RENAME TO zeen; ALTER TABLE renamed RENAME TO seen; DROP TABLE dropped");
$queue->sql('SET ROLE loader; SELECT bulk_resume()');
$queue->runs($running);
$queue->feed($pipe, 1 .. 5);
is($queue->ends($running), 'succeeded', '... and is');
is($queue->ends($queued), 'succeeded', 'what was queued is done');
is($queue->status($tomorrow), 'queued', '... in its time');
is($queue->sql('SELECT count(*) FROM t'), 10, '... once');
is($queue->sql("SELECT owner || ' ' || attempt FROM bulk_jobs WHERE job_id = $queued"), 'loader 1', '... as its owner');
$queue->numbers('bad', 1, 2, 3);
is($queue->sql("SET ROLE loader; SELECT bulk_retry($failed)"), 't', 'a job that failed can be tried again');
is($queue->ends($failed), 'succeeded', '... and is done');
$queue->sql("UPDATE bulk_queue SET run_at = now() WHERE job_id = $tomorrow; SELECT bulk_resume()");
is($queue->ends($tomorrow), 'failed', 'a job finds the keys of a table that was upgraded');
is($queue->sql("SELECT error_sqlstate FROM bulk_jobs WHERE job_id = $tomorrow"), '23505', '... in its index');
cmp_ok($queue->enqueue($files[0]), '>', $tomorrow, 'numbers go on');
$new->restart;
ok($queue->becomes("SELECT count(*) = 0 FROM bulk_jobs WHERE status IN ('queued', 'running')"), 'the queue goes on by itself');
ok($queue->becomes("SELECT string_agg(target, ' ' ORDER BY target) = 'public.seen public.zeen' FROM bulk_once"), 'it forgets tables that are gone');

#
# pg_dump and pg_restore.
#
$queue->sql('SELECT bulk_pause()');
$queue->enqueue($files[0]);
command_ok([ 'pg_dump', '-Fc', '-f', $queue->path('dump'), '-d', $new->connstr('postgres') ], 'pg_dump');
$queue->sql('CREATE DATABASE restored; ALTER DATABASE restored SET search_path = public, "Bulk loading"');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $new->connstr('restored'), $queue->path('dump') ], 'pg_restore');
for my $what ('foreign tables', 'a server of its own, to who may', 'tables', 'history', 'rights', 'options', 'mappings', 'members', 'what is dumped')
{
	is($queue->sql($queries->{$what}, 'restored'), scalar $queue->sql($queries->{$what}), "$what: restored");
}
is($queue->sql("SELECT count(*) FILTER (WHERE status = 'queued') || ' ' || count(*) FILTER (WHERE status = 'succeeded') FROM bulk_jobs", 'restored'),
	'0 ' . $queue->sql("SELECT count(*) FROM bulk_jobs WHERE status = 'succeeded'"), 'jobs that were done are restored, others are not');
# By name, since OIDs are those of the other database; then a table of the same name does not count.
is(loaded_once($_, 'restored'), 0, "what was loaded into $_ is known where it was restored") for 'seen', 'zeen';
is(loaded_once('seen', 'restored'), 0, '... and stays so');
$queue->sql('DROP TABLE seen; CREATE TABLE seen (a int)', 'restored');
is(loaded_once('seen', 'restored'), 1000, '... but not for another table of that name');
is($queue->sql('SELECT count(*) FROM bulk_rejects', 'restored'), 0, '... nor are rejected rows');
is($queue->sql('SELECT bool_or(paused) FROM bulk_queue_state', 'restored'), 'f', '... and the queue is not at rest');
$new->stop;
done_testing();
