
# Wait points and fault points behave as src/server/points.rs describes, at points on the way of a
# scan. Other tests rely on them.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use File::Spec::Functions qw(rel2abs);
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(install_wrapper start_server write_bytes);
use Points qw(point_names point_set point_wait point_waiting point_taken point_clear);
use Restart qw(comes_back);

my $node = start_server('points');
install_wrapper($node, 'postgres');
my $path = rel2abs(PostgreSQL::Test::Utils::tempdir('points')) . '/three';
write_bytes($path, "1\n2\n3\n");
# With an encoding given, a scan may run in a parallel worker.
$node->safe_psql('postgres',
	"CREATE FOREIGN TABLE t (a int) SERVER bulk_files OPTIONS (filename '$path', format 'csv', encoding 'UTF8')");

for my $name ('source.ready', 'source.read', 'scan.row')
{
	ok((grep { $_ eq $name } point_names()), "the library has the point $name");
}
ok(!eval { point_set($node, 'source.no_such_point', 'wait'); 1 }, 'no other points can be set');

# The outcome of a statement in a session of its own.
sub outcome
{
	my ($sql) = @_;
	my ($status, $stdout, $stderr) = $node->psql('postgres', $sql);
	$stderr =~ s/^psql:<stdin>:\d+: //mg;
	return $status == 0 ? $stdout : $stderr;
}

# Begins the statement; returns the pid of the session and a function that waits for the outcome.
sub begin
{
	my ($sql) = @_;
	my ($in, $out, $err) = ("SELECT pg_backend_pid();\n", '', '');
	my $psql = IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') ],
		'<', \$in, '>', \$out, '2>', \$err);
	$psql->pump until $out =~ /^(\d+)\n/;
	my $pid = $1;
	($in, $out) = ("$sql;\n", '');
	$psql->pump_nb;
	return ($pid, sub { $psql->finish; return $err ne '' ? $err : $out; });
}

is(outcome('SELECT sum(a + 0) FROM t'), '6', 'without commands a scan is a scan');

# wait
point_set($node, 'source.ready', 'wait');
my ($pid, $end) = begin('SELECT sum(a + 0) FROM t');
is_deeply([ point_wait($node, 'source.ready') ], [$pid], 'wait: the process waits');
usleep(100_000);
is_deeply([ point_waiting($node, 'source.ready') ], [$pid], '... and goes on waiting');
point_clear($node, 'source.ready');
is($end->(), "6\n", '... until the command is gone');
is_deeply([ point_waiting($node, 'source.ready') ], [], '... and leaves nothing behind');

point_set($node, 'source.ready', 'wait');
($pid, $end) = begin('SELECT sum(a + 0) FROM t');
point_wait($node, 'source.ready');
point_set($node, 'source.ready', 'error');
like($end->(), qr{^ERROR:  error at pg_bulk_points/source.ready}, 'another command is obeyed by who waits');
point_clear($node);

for my $point ('source.ready', 'scan.row')
{
	point_set($node, $point, 'wait');
	($pid, $end) = begin('SELECT sum(a + 0) FROM t');
	point_wait($node, $point);
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	like($end->(), qr/^ERROR:  canceling statement/, "$point: who waits can be cancelled");
	($pid, $end) = begin('SELECT sum(a + 0) FROM t');
	point_wait($node, $point);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	like($end->(), qr/FATAL:  terminating connection/, "$point: who waits can be terminated");
	is_deeply([ point_waiting($node, $point) ], [], '... and leaves nothing behind');
	point_clear($node);
}

# A process that serves no interrupts continues to wait.
point_set($node, 'source.read', 'wait');
($pid, $end) = begin('SELECT sum(a + 0) FROM t');
point_wait($node, 'source.read');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
usleep(200_000);
is_deeply([ point_waiting($node, 'source.read') ], [$pid], 'source.read: a cancel request does not end the wait');
point_clear($node);
like($end->(), qr/^ERROR:  canceling statement/, '... but comes through afterwards');

# sleep
point_set($node, 'source.ready', 'sleep=300 once');
my $start = time;
is(outcome('SELECT sum(a + 0) FROM t'), '6', 'sleep: the process goes on');
cmp_ok(time - $start, '>=', 0.3, '... a while later');
point_clear($node);

# error
point_set($node, 'source.ready', 'error');
like(outcome('SELECT sum(a + 0) FROM t'), qr{^ERROR:  error at pg_bulk_points/source.ready}, 'error, in a guarded frame');
point_clear($node);
point_set($node, 'scan.row', 'error after=1');
like(outcome('SELECT sum(a + 0) FROM t'), qr{^ERROR:  error at pg_bulk_points/scan.row\nCONTEXT:  COPY t, line 2\b}m,
	'error, in a plain frame; after one row');
my $twice = join '', map { "BEGIN; SAVEPOINT s; SELECT sum(a + 0) FROM t; ROLLBACK TO s; SELECT 'alive'; COMMIT;\n" } 1 .. 2;
my (undef, $stdout, undef) = $node->psql('postgres', $twice, on_error_stop => 0);
is($stdout, "alive\nalive", '... twice in a session, whose count begins with the command');
point_clear($node);

# errno
point_set($node, 'source.read', 'errno=5');
like(outcome('SELECT sum(a + 0) FROM t'), qr{^ERROR:  could not read from COPY file: Input/output error}, 'errno: a system call fails');
point_clear($node);

# Restrictions.
point_set($node, 'source.ready', 'error once');
like(outcome('SELECT sum(a + 0) FROM t'), qr/^ERROR:  error at/, 'once: one process obeys');
ok(point_taken($node, 'source.ready'), '... and is known to have obeyed');
is(outcome('SELECT sum(a + 0) FROM t'), '6', '... and no other');
point_clear($node);
ok(!point_taken($node, 'source.ready'), '... until the next command');

point_set($node, 'source.ready', 'wait once');
($pid, $end) = begin('SELECT sum(a + 0) FROM t');
point_wait($node, 'source.ready');
is(outcome('SELECT sum(a + 0) FROM t'), '6', 'wait once: others pass');
is_deeply([ point_waiting($node, 'source.ready') ], [$pid], '... while one waits');
point_clear($node);
is($end->(), "6\n", '... until the command is gone');

# Planning reads a sample of the file, in the leader; rows are read in the worker.
my $in_worker = 'SET force_parallel_mode = on; SELECT sum(a + 0) FROM t';
SKIP:
{
	skip 'the setting has another name', 3 if $node->pg_version >= 16;
	point_set($node, 'scan.row', 'error worker');
	is(outcome('SELECT sum(a + 0) FROM t'), '6', 'worker: others do not obey');
	like(outcome($in_worker), qr/^ERROR:  error at.*CONTEXT:.*parallel worker/s, '... workers do');
	point_set($node, 'scan.row', 'error leader');
	is(outcome($in_worker), '6', 'leader: workers do not obey');
}
like(outcome('SELECT sum(a + 0) FROM t'), qr/^ERROR:  error at/, '... others do') if $node->pg_version < 16;
point_clear($node);
point_set($node, 'source.ready', 'error pid=1');
is(outcome('SELECT sum(a + 0) FROM t'), '6', 'pid: others do not obey');
point_clear($node);

# signal
point_set($node, 'source.ready', 'signal=2');
like(outcome('SELECT sum(a + 0) FROM t'), qr/^ERROR:  canceling statement/, 'signal: as if a user had sent it');
point_clear($node);
for my $command ('signal=9', 'error', 'no such command')
{
	# If a point cannot do its action, the process ends; a killed process makes the server restart.
	my $point = $command eq 'error' ? 'source.read' : 'source.ready';
	point_set($node, $point, $command);
	like(outcome('SELECT sum(a + 0) FROM t'), qr/server closed the connection/, "$point: $command ends the process");
	point_clear($node);
	ok(comes_back($node), '... and the server comes back');
}
like(slurp_file($node->logfile), qr{pg_bulk_points/source.read cannot raise an error\n}, 'the log says why');
like(slurp_file($node->logfile), qr{pg_bulk_points/source.ready is told what no point understands\n}, '... each time');
is(outcome('SELECT sum(a + 0) FROM t'), '6', 'in the end a scan is a scan');

$node->stop;
done_testing();
