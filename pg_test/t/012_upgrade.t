
# From version to version: the library works with the catalog objects of an older one, ALTER EXTENSION UPDATE keeps
# existing jobs, and its result equals that of CREATE EXTENSION.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Queue;

my $queue = Queue->new('upgrade');
my $node = $queue->node;
$queue->numbers("$_.txt", 1 .. $_) for 2, 3;
$queue->numbers('bad.txt', 1, 'x', 3);
$queue->numbers('worse.txt', 1, 'x', 'y');
my ($both, $two, $bad, $worse) = map { $queue->path($_) } '[23].txt', '2.txt', 'bad.txt', 'worse.txt';
my $pipe = $queue->pipe('pipe');

sub one
{
	my ($sql, $wanted, $name, $database) = @_;
	is($queue->sql($sql, $database), $wanted, $name);
	return;
}

# 0.1.0, as after installing new packages without running UPDATE.
$queue->sql("DROP EXTENSION pg_bulk; CREATE EXTENSION pg_bulk VERSION '0.1.0'");
one("SELECT rows_loaded, writer FROM bulk_load('$two', 't')", '2|direct', '0.1.0: a load');
one("SELECT rows_loaded FROM bulk_load('$both', 't')", '5', '0.1.0: a load of several files');
one("SELECT rows_rejected FROM bulk_load('$bad', 't', '{\"on_error\": \"table\"}')", '1', '0.1.0: a load with rejects');
one('SELECT line_number, raw_field FROM bulk_rejects', '2|x', '0.1.0: ... which are kept');
one("SELECT line_number, raw_field, sqlstate FROM bulk_check('$bad', 't')", '2|x|22P02', '0.1.0: a check, with its columns');
one("SELECT sum(a) FROM bulk_read('$both') r (a int)", '9', '0.1.0: a file as rows');
$queue->sql("CREATE FOREIGN TABLE f (a int) SERVER bulk_files OPTIONS (filename '$both'); INSERT INTO t SELECT * FROM f");
one('SELECT count(*) FROM t', '14', '0.1.0: a foreign table');
one("SELECT string_agg(rows_loaded::text, ' ' ORDER BY load_id) FROM bulk_history", '2 5 2', '0.1.0: the history');

my $done = $queue->enqueue($both);
is($queue->ends($done), 'succeeded', '0.1.0: a job');
my $broken = $queue->enqueue($worse, 't', q('{"on_error": "table", "reject_limit": 1}'));
is($queue->ends($broken), 'failed', '0.1.0: a job that fails');
one("SELECT h.status, min(r.raw_field) FROM bulk_history h JOIN bulk_rejects r USING (load_id) WHERE load_id = $broken GROUP BY 1", 'failed|x',
	'0.1.0: ... and what remains of it');

# A dump of it is restored as the present version.
$node->safe_psql('postgres', 'CREATE DATABASE restored');
my $dump = $queue->path('dump.sql');
$node->command_ok([ 'pg_dump', '-f', $dump, $node->connstr('postgres') ], 'a dump of 0.1.0');
$node->psql('restored', '', extra_params => [ '-q', '-f', $dump ], on_error_die => 1);
one("SELECT rows_loaded FROM bulk_history WHERE load_id = $done", '5', '... brings its history to the present version', 'restored');
one('SELECT count(*) FROM bulk_load_files', '0', '... which has its views', 'restored');

# UPDATE, with a running job and a waiting one.
my $count = $queue->sql('TRUNCATE t; SELECT count(*) FROM bulk_history');
my $running = $queue->enqueue($pipe);
$queue->runs($running);
$queue->sql('SELECT bulk_pause()');
my $waiting = $queue->enqueue($both);

$queue->sql("CREATE VIEW mine AS SELECT * FROM bulk_check('$bad', 't')");
like(($node->psql('postgres', 'ALTER EXTENSION pg_bulk UPDATE'))[2], qr/view mine depends on function bulk_check/,
	'a view over what is made anew is no victim of UPDATE');
$queue->sql('DROP VIEW mine');
$queue->sql('ALTER EXTENSION pg_bulk UPDATE');

one('SELECT count(*) FROM bulk_history', $count, 'UPDATE: the history is there');
one("SELECT string_agg(status, ' ' ORDER BY job_id) FROM bulk_jobs", 'succeeded failed running queued', 'UPDATE: the queue is there');
$queue->feed($pipe, 1 .. 4);
is($queue->ends($running), 'succeeded', 'UPDATE: a job that was running goes on');
$queue->sql('SELECT bulk_resume()');
is($queue->ends($waiting), 'succeeded', 'UPDATE: a job that waited is run');
one('SELECT count(*) FROM t', '9', 'UPDATE: their rows are there, once');
one("SELECT load_id = $waiting, right(path, 5), rows_loaded FROM bulk_load_files ORDER BY path", "t|2.txt|2\nt|3.txt|3",
	'UPDATE: of new loads it is told what became of each file');
one("SELECT right(path, 7), line_number FROM bulk_check('$bad', 't')", 'bad.txt|2', 'UPDATE: a check says which file');

# A table that is newer than the library, as in an old session.
$queue->sql('ALTER TABLE bulk_loads ADD COLUMN later int');
my $said = ($node->psql('postgres', "SELECT * FROM bulk_load('$two', 't')"))[2];
like($said, qr/table "bulk_loads" is not as extension pg_bulk has made it.*HINT:  If the extension has been updated, this process has an older library/s,
	'a library that is older than the extension says so');

# The members that CREATE EXTENSION creates, from each version that it can create.
sub extension
{
	my ($database, @statements) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$queue->sql(join('; ', 'CREATE SCHEMA bulk', @statements), $database);
	return $queue->sql("SET search_path = pg_catalog, pg_temp;\n" . slurp_file("$FindBin::RealBin/../perl/extension.sql"), $database);
}
my $fresh = extension('fresh', 'CREATE EXTENSION pg_bulk SCHEMA bulk');
cmp_ok(scalar(split /\n/, $fresh), '>', 300, 'there is something to compare');
my @versions = split /\n/,
  $queue->sql("SELECT version FROM pg_available_extension_versions WHERE name = 'pg_bulk' EXCEPT
	SELECT default_version FROM pg_available_extensions WHERE name = 'pg_bulk' ORDER BY 1");
is($versions[0], '0.1.0', 'there are older versions');
for my $version (@versions)
{
	my $name = "from_$version" =~ tr/./_/r;
	my $updated = extension($name, "CREATE EXTENSION pg_bulk SCHEMA bulk VERSION '$version'", 'ALTER EXTENSION pg_bulk UPDATE');
	my %fresh = map { $_ => 1 } split /\n/, $fresh;
	my %updated = map { $_ => 1 } split /\n/, $updated;
	my @difference = sort((map { "not there: $_" } grep { !$updated{$_} } keys %fresh),
		(map { "left: $_" } grep { !$fresh{$_} } keys %updated));
	is(join("\n", @difference), '', "UPDATE from $version makes what CREATE EXTENSION makes");
}

# UPDATE keeps privileges that were granted or revoked.
$node->safe_psql('postgres', 'CREATE DATABASE rights; CREATE ROLE "a role"');
$queue->sql(q(CREATE EXTENSION pg_bulk VERSION '0.1.0'; REVOKE ALL ON FUNCTION bulk_check FROM PUBLIC;
	GRANT EXECUTE ON FUNCTION bulk_check TO "a role" WITH GRANT OPTION;
	REVOKE ALL ON FUNCTION bulk_load FROM PUBLIC; GRANT EXECUTE ON FUNCTION bulk_load TO "a role"), 'rights');
my $RIGHTS = q(SELECT proacl, (SELECT count(*) FROM pg_init_privs WHERE objoid = p.oid) FROM pg_proc p WHERE proname = 'bulk_check' AND pronargs = 3);
my $rights = $queue->sql($RIGHTS, 'rights');
like($rights, qr/"?a role/, 'somebody has a right');
$queue->sql('ALTER EXTENSION pg_bulk UPDATE', 'rights');
one($RIGHTS, $rights, '... also after UPDATE', 'rights');
one("SELECT count(*), count(DISTINCT proacl::text), min(proacl::text) ~ 'a role', min(proacl::text) ~ '[{,]=' FROM pg_proc WHERE proname = 'bulk_load' AND proargtypes[1] = 'regclass'::regtype AND pronargs = 3", '2|1|t|f',
	'... and who may load files may load values', 'rights');
# PUBLIC may call the functions with `allow`, which check the privilege on the one without it.
for my $call (q(bulk_load('x', 'pg_class'::regclass, '{}', allow => '{}')), q(bulk_check('x', 'pg_class', '{}', '{}')))
{
	my (undef, undef, $said) = $node->psql('rights', "SET ROLE pg_monitor; SELECT $call");
	like($said, qr/permission denied for function/, "... nor does anybody else with: $call");
	(undef, undef, $said) = $node->psql('rights', "SET ROLE \"a role\"; SELECT $call");
	like($said, qr/permission denied to load from a file/, "... who has it may call: $call");
}
# A function's name in GRANT covers both overloads, also for grants after the update.
$queue->sql(q(CREATE TABLE t (a int); CREATE ROLE other; GRANT ALL ON t TO other; GRANT EXECUTE ON FUNCTION bulk_load(text, regclass, jsonb) TO other), 'rights');
like(($node->psql('rights', q(SET ROLE pg_monitor; SELECT bulk_load('/none', 't', '{}'))))[2], qr/permission denied for function bulk_load/, '... or say names, who may not');
like(($node->psql('rights', q(SET ROLE other; SELECT bulk_load('/none', 't', '{}'))))[2], qr/pg_read_server_files/, '... and who may since');
like(($node->psql('postgres', 'DROP ROLE "a role"'))[2], qr/cannot be dropped because some objects depend on it/, '... and the server knows of it');

$node->stop;
done_testing();
