
# The queue divides slots among owners and lets owners take turns:
# jobs of one role keep no job of another role from starting.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Queue;

my $queue = Queue->new('queue');
my $node = $queue->node;
my $one = $queue->numbers('one', 1);
my $PRIORITIZE = 'FUNCTION bulk_prioritize(bigint, integer)';

sub setting
{
	my ($name, $value) = @_;
	$queue->sql("LOAD 'pg_bulk'; ALTER SYSTEM SET $name = '$value'");
	$node->reload;
	return;
}

# Enqueues a job of a role; returns its job_id and the server's messages.
sub enqueue_telling
{
	my ($role, $path, $target, @more) = @_;
	my $arguments = join ', ', "'$path'", "'$target'", @more;
	my ($stdout, $stderr) = ('', '');
	$node->psql('postgres', "SET ROLE $role; SELECT bulk_enqueue($arguments)", stdout => \$stdout, stderr => \$stderr, on_error_die => 1);
	return ($stdout, $stderr);
}

# Returns the job_id only.
sub enqueue_as
{
	my ($number) = enqueue_telling(@_);
	return $number;
}

sub waits_for
{
	my ($job) = @_;
	return $queue->sql("SELECT concat_ws(' ', status, waits_for) FROM bulk_jobs WHERE job_id = $job");
}

# The owners of jobs, in the order of their starts.
sub owners_by_start
{
	my (@jobs) = @_;
	is($queue->ends($_), 'succeeded', "job $_ ends") for @jobs;
	return $queue->sql("SELECT string_agg(owner, ' ' ORDER BY started_at) FROM bulk_jobs WHERE job_id IN (" . join(',', @jobs) . ')');
}

# The jobs themselves, in that order, by their position in the list.
sub places_by_start
{
	my (@jobs) = @_;
	is($queue->ends($_), 'succeeded', "job $_ ends") for @jobs;
	return $queue->sql("SELECT string_agg((array_position(ARRAY[" . join(',', @jobs) . "], job_id::int))::text, ' ' ORDER BY started_at)
		FROM bulk_jobs WHERE job_id IN (" . join(',', @jobs) . ')');
}

$queue->sql('CREATE TABLE shared (a int)');
for my $role ('a', 'b', 'c')
{
	$queue->sql("CREATE ROLE $role LOGIN IN ROLE pg_read_server_files; CREATE TABLE of_$role (a int);
		GRANT INSERT ON of_$role, t TO $role; GRANT INSERT, TRUNCATE ON shared TO $role");
}
is($queue->sql("LOAD 'pg_bulk'; SHOW pg_bulk.max_running_jobs"), 2, 'two slots by default');

# Two jobs that sleep, in front of everything else.
my $sleeping = q(NULL, 'of_a', '{"query": "SELECT 1 FROM pg_sleep(200)"}', -2147483648);
my ($stdout, $stderr) = ('', '');
$node->psql('postgres', "SET ROLE a; SELECT bulk_enqueue($sleeping); SELECT bulk_enqueue($sleeping)",
	stdout => \$stdout, stderr => \$stderr, on_error_die => 1);
my @sleepers = split /\n/, $stdout;
like($stderr, qr/WARNING:  role "a" may not have jobs with a priority below 0\nDETAIL:  The priority counts as 0\./, 'a priority below 0 needs a right');
$queue->runs($_) for @sleepers;
my $began = time;
my $other = enqueue_as('b', $one, 'of_b');
is($queue->ends($other), 'succeeded', "another owner's job does not wait for two that sleep");
cmp_ok(time - $began, '<', 10, '... at all');
is($queue->sql("SELECT count(*) FROM bulk_jobs WHERE status = 'running'"), 2, '... which go on');
my $third = enqueue_as('a', $one, 'of_a');
usleep(1_500_000);
is(waits_for($third), 'queued worker slot', 'a third job of the first owner waits');
# A job that needs its table alone must not block other owners' jobs while its own owner gets no slot.
my $alone = enqueue_as('a', $one, 'shared', q('{"truncate": true}'), -5);
my $beside = enqueue_as('b', $one, 'shared');
is($queue->ends($beside), 'succeeded', "a job that waits for a slot keeps no other owner's job from the table");
is(waits_for($alone), 'queued worker slot', '... and waits on');
# For any number of such jobs.
$queue->sql("SET ROLE a; SELECT count(bulk_enqueue('$one', 'of_a', run_at => '-infinity')) FROM generate_series(1, 200)");
is($queue->ends(enqueue_as('b', $one, 'of_b')), 'succeeded', '200 more jobs of the first owner do not matter');
is($queue->sql("SELECT count(*) FROM bulk_jobs WHERE owner = 'a' AND status = 'queued'"), 202, '... and wait');

# Three owners and two slots: the third owner waits for one of the two that run a job.
my $pipe = $queue->pipe('pipe');
my $blocked = enqueue_as('b', $pipe, 'of_b');
$queue->runs($blocked);
my $of_c = enqueue_as('c', $one, 'of_c');
usleep(1_500_000);
is(waits_for($of_c), 'queued worker slot', 'a third owner waits while as many owners as slots run jobs');
is($queue->sql("SELECT string_agg(owner, ' ' ORDER BY owner) FROM bulk_jobs WHERE status = 'running'"), 'a a b', '... one beyond the limit');
$queue->feed($pipe, 1);
is($queue->ends($of_c), 'succeeded', '... and is next');
is($queue->ends($blocked), 'succeeded', '... when one of them ends');
$queue->sql("SELECT count(bulk_cancel(job_id)) FROM bulk_jobs WHERE owner = 'a' AND status IN ('queued', 'running')");
ok($queue->becomes("SELECT count(*) = 0 FROM bulk_jobs WHERE status IN ('queued', 'running')"), 'nothing is left');

# A single owner has all slots.
my ($first_pipe, $second_pipe) = ($queue->pipe('first'), $queue->pipe('second'));
@sleepers = (enqueue_as('a', $first_pipe, 'of_a'), enqueue_as('a', $second_pipe, 'of_a'));
$queue->runs($_) for @sleepers;
$queue->feed($_, 1) for $first_pipe, $second_pipe;
is($queue->ends($_), 'succeeded', 'a single owner has both slots') for @sleepers;

# One slot: owners take turns. Neither more jobs nor an early run_at helps.
setting('pg_bulk.max_running_jobs', 1);
sub paused
{
	my (@jobs) = @_;
	# A new dispatcher does not know the earlier turns.
	ok($queue->idle, 'idle');
	$queue->sql('SELECT bulk_pause()');
	my @numbers = map { enqueue_as(@$_) } @jobs;
	$queue->sql('SELECT bulk_resume()');
	return @numbers;
}
my @jobs = paused((map { [ 'a', $one, 'of_a', "run_at => '-infinity'" ] } 1 .. 4), (map { my $role = $_; map { [ $role, $one, "of_$role" ] } 1, 2 } 'b', 'c'));
is(owners_by_start(@jobs), 'a b c a b c a a', 'one slot: turns go round');
is($queue->sql("SELECT count(*) FROM bulk_jobs x JOIN bulk_jobs y ON x.started_at < y.finished_at AND y.started_at < x.finished_at
	AND x.job_id < y.job_id WHERE x.job_id >= $jobs[0] AND y.job_id >= $jobs[0]"), 0, '... one job at a time');
# Priorities override turns.
@jobs = paused([ 'a', $one, 'of_a', 'priority => 2' ], [ 'b', $one, 'of_b', 'priority => 1' ], [ 'a', $one, 'of_a' ], [ 'a', $one, 'of_a', 'priority => 1' ],
	[ 'c', $one, 'of_c', 'priority => 1' ]);
is(places_by_start(@jobs), '3 2 5 4 1', '... among jobs of the same priority');
# Priorities below 0: with the privilege, they override earlier turns; without it, they count as 0.
$queue->sql("GRANT EXECUTE ON $PRIORITIZE TO c");
(undef, $stderr) = enqueue_telling('c', $one, 'of_c', 'priority => -1');
is($stderr, '', 'who has the right is not warned');
@jobs = paused([ 'a', $one, 'of_a' ], [ 'b', $one, 'of_b', 'priority => -9' ], [ 'a', $one, 'of_a', 'priority => -7' ], [ 'c', $one, 'of_c', 'priority => -1' ],
	[ 'c', $one, 'of_c', 'priority => -2' ]);
is(places_by_start(@jobs), '5 4 1 2 3', 'priorities below 0 count with the right only');
# Queued jobs when the privilege is granted or revoked.
ok($queue->idle, 'idle');
$queue->sql('SELECT bulk_pause()');
@jobs = map { enqueue_as(@$_) } [ 'a', $one, 'of_a' ], [ 'c', $one, 'of_c', 'priority => -3' ], [ 'b', $one, 'of_b', 'priority => -4' ];
$queue->sql("REVOKE EXECUTE ON $PRIORITIZE FROM c; GRANT EXECUTE ON $PRIORITIZE TO b; SELECT bulk_resume()");
is(places_by_start(@jobs), '3 1 2', 'the right counts when the job is chosen');
$queue->sql("REVOKE EXECUTE ON $PRIORITIZE FROM b");

# A changed priority.
ok($queue->idle, 'idle');
$queue->sql('SELECT bulk_pause()');
@jobs = map { enqueue_as(@$_) } [ 'a', $one, 'of_a' ], [ 'a', $one, 'of_a' ], [ 'b', $one, 'of_b' ];
like(($node->psql('postgres', "SET ROLE a; SELECT bulk_prioritize($jobs[1], 0)"))[2], qr/permission denied for function bulk_prioritize/,
	'to change a priority needs the right');
like(($node->psql('postgres', "SELECT bulk_prioritize($jobs[1], -1)"))[2],
	qr/ERROR:  role "a" may not have jobs with a priority below 0\nHINT:  Grant it EXECUTE on function bulk_prioritize\(bigint, integer\)/,
	'... and its owner has, where it is below 0');
$queue->sql("GRANT EXECUTE ON $PRIORITIZE TO a");
like(($node->psql('postgres', "SET ROLE a; SELECT bulk_prioritize($jobs[2], 0)"))[2], qr/job $jobs[2] does not exist/, "... which is about one's own jobs");
is($queue->sql("SET ROLE a; SELECT bulk_prioritize($jobs[1], -1)"), 't', 'a priority is changed');
is($queue->sql("SELECT bulk_prioritize($jobs[0], 5)"), 't', '... up and down');
is($queue->sql("SELECT string_agg(priority::text, ' ' ORDER BY job_id) FROM bulk_jobs WHERE job_id IN ($jobs[0], $jobs[1])"), '5 -1', '... and shown');
$queue->sql('SELECT bulk_resume()');
is(places_by_start(@jobs), '2 3 1', '... and counts');
is($queue->sql("SELECT bulk_prioritize($jobs[0], 0)"), 'f', '... of a job that is queued');
like(($node->psql('postgres', "SELECT bulk_prioritize(NULL, 0)"))[2], qr/job_id must not be null/, '... and known');
like(($node->psql('postgres', "SELECT bulk_prioritize(1, NULL)"))[2], qr/priority must not be null/, '... to a number');
$queue->sql("REVOKE EXECUTE ON $PRIORITIZE FROM a");

# The view shows the priority that counts.
setting('pg_bulk.max_running_jobs', 3);
$blocked = enqueue_as('a', $pipe, 'shared');
$queue->runs($blocked);
my $first = enqueue_as('b', $one, 'shared', q('{"truncate": true}'));
my $second = enqueue_as('c', $one, 'shared', q('{}'), -1);
is(waits_for($first), 'queued target', 'a job waits for another one that loads its table');
usleep(1_000_000);
is(waits_for($second), 'queued target', '... and one behind it waits for both, whatever priority it claims');
$queue->feed($pipe, 1);
is(places_by_start($blocked, $first, $second), '1 2 3', '... which run in this order');

# max_running_jobs = 0 means none, for all owners.
setting('pg_bulk.max_running_jobs', 0);
my $none = enqueue_as('b', $one, 'of_b');
usleep(1_500_000);
is(waits_for($none), 'queued worker slot', 'no slots, no jobs');
setting('pg_bulk.max_running_jobs', 2);
is($queue->ends($none), 'succeeded', '... until there are some');

$node->stop;
done_testing();
