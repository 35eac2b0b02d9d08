
# The queue's processes are stopped, killed and canceled at each of their points.
# Invariant: either a job has succeeded and each of its rows is there
# once, or it has not, and no row is. PG_BULK_SOAK=1 tries all points of loads,
# PG_BULK_TIMES=3 three times as many as without.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use List::Util qw(shuffle);
use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(sample seed);
use Points qw(point_names point_set point_wait point_clear point_taken);
use Queue;
use Restart qw(comes_back);

note 'PG_BULK_SEED=' . seed();
srand(seed());

my $queue = Queue->new('queue', 'pg_bulk.workers = 2', 'pg_bulk.chunk_size = 4kB', 'pg_bulk.max_running_jobs = 3');
my $node = $queue->node;
my $ROWS = 8000;
my $DISPATCHER = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_bulk dispatcher'";

# Each job has its own file, with its own numbers.
my %first;
my $files = 0;
sub enqueue
{
	my (@more) = @_;
	my $begin = 1 + $ROWS * $files++;
	my $job = $queue->enqueue($queue->numbers("file $files", $begin .. $begin + $ROWS - 1), 't', @more);
	$first{$job} = $begin;
	return $job;
}

# The postmaster restarts a terminated dispatcher five seconds later, in the middle of a later test.
# A test that counts dispatchers waits until it has been there.
my $terminated = 0;
sub terminate_dispatcher
{
	is($queue->sql("SELECT count(pg_terminate_backend(pid)) FROM ($DISPATCHER) d"), 1, 'the dispatcher is terminated');
	$terminated = time;
	return;
}

sub await_restart
{
	my $left = $terminated + 7 - time;
	usleep($left * 1_000_000) if $left > 0;
	return;
}

# In one snapshot: the jobs whose rows do not match their status.
sub wrong
{
	return '' unless %first;
	my $jobs = join ', ', map { "($_, $first{$_})" } sort { $a <=> $b } keys %first;
	return $queue->sql(<<"SQL");
SELECT string_agg(concat_ws(' ', 'job', f.job, q.status, r.number, r.different), ', ')
FROM (VALUES $jobs) f (job, first)
JOIN bulk_queue q ON q.job_id = f.job
CROSS JOIN LATERAL (SELECT count(*), count(DISTINCT a) FROM t WHERE a BETWEEN f.first AND f.first + $ROWS - 1) r (number, different)
CROSS JOIN LATERAL (SELECT CASE q.status WHEN 'succeeded' THEN $ROWS ELSE 0 END) w (number)
WHERE r.number <> w.number OR r.different <> w.number
SQL
}

sub forget
{
	is(wrong(), '', "$_[0]: jobs and rows agree");
	$queue->sql(q(SET lock_timeout = '60s'; TRUNCATE t));
	%first = ();
	return;
}

sub up
{
	my ($log) = @_;
	$node->wait_for_log(qr/database system is ready to accept connections/, $log);
	return;
}

# Processes are killed at each of the queue's points, and at some of a load's.
my @own = grep { /^(job|dispatcher)\./ && !/^(job\.(aborted|failed)|dispatcher\.connects)$/ } point_names();
my @others = grep { /^(load|worker|append|chunk)\./ } point_names();
@others = (shuffle @others)[ 0 .. sample(5, scalar @others) - 1 ];
my $not_taken = 0;
for my $point (@own, @others)
{
	my $log = -s $node->logfile;
	$queue->sql('SELECT bulk_pause()');
	my @jobs = map { enqueue() } 1 .. ($point eq 'job.handed' ? 5 : 2);
	point_set($node, $point, 'signal=9 once');
	$queue->ask('SELECT bulk_resume()');
	# Not all of these points are on the path of such a load.
	my $end = time + (grep({ $_ eq $point } @own) ? 30 : 1);
	usleep(10_000) until point_taken($node, $point) || time > $end;
	my $taken = point_taken($node, $point);
	point_clear($node, $point);
	$taken ? up($log) : $not_taken++;
	$queue->becomes('SELECT bulk_resume() IS NOT NULL');
	ok($taken, "$point is reached") if grep { $_ eq $point } @own;
	is(wrong(), '', "$point: after the crash") if $taken;
	is($queue->ends($_), 'succeeded', "$point: job $_") for @jobs;
	forget($point);
}
cmp_ok($not_taken, '<', @others, 'points of loads are reached') if @others;
# ... and on the paths after an error.
for my $point ('job.aborted', 'job.failed')
{
	my $log = -s $node->logfile;
	my $bad = $queue->enqueue($queue->numbers('bad', 1 .. 100, 'x'), 't', "run_at => now() + interval '0.2 s'");
	point_set($node, $point, 'signal=9 once');
	usleep(10_000) until point_taken($node, $point);
	point_clear($node, $point);
	up($log);
	is($queue->ends($bad), 'failed', "$point: a job that fails is killed, and fails");
	is($queue->sql("SELECT attempt, error_sqlstate FROM bulk_jobs WHERE job_id = $bad"), '1|22P02', '... as if it had not been');
	is($queue->sql('SELECT count(*) FROM t'), 0, '... without rows');
}

# Errors of the queue's own code: they end the worker; the dispatcher restarts.
for my $point (@own)
{
	next if $point =~ /committed|claimed|gate|handed/;
	point_set($node, $point, 'error once');
	my $job = enqueue();
	my $end = $queue->ends($job);
	ok(point_taken($node, $point), "$point: an error") if $point ne 'dispatcher.leaves';
	point_clear($node, $point);
	like($end, $point =~ /^job\.(begins|loaded)/ ? qr/^failed/ : qr/^succeeded/, '... of a job, or on the way to it');
	forget($point);
}
ok($queue->idle, 'nobody stays');
# A dispatcher that cannot connect now may connect later.
for my $fault ('error once', 'signal=15 once')
{
	point_set($node, 'dispatcher.connects', $fault);
	my $job = enqueue();
	is($queue->ends($job), 'succeeded', "a dispatcher cannot connect: $fault");
	ok(point_taken($node, 'dispatcher.connects'), '... at first');
	forget($fault);
	ok($queue->idle, '... and leaves in the end');
	point_clear($node, 'dispatcher.connects');
}

# Stress: processes are killed and terminated at random times, and the server is restarted.
my @jobs = map { enqueue() } 1 .. 8;
my $rounds = sample(8, 60);
for my $round (1 .. $rounds)
{
	usleep(int rand 150_000);
	my @pids = split /\n/, $queue->sql("SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'pg_bulk%' OR backend_type = 'parallel worker'");
	my $what = int rand 4;
	if ($what == 0)
	{
		$node->restart;
		$queue->sql('SELECT bulk_resume()');
	}
	elsif (@pids)
	{
		my $log = -s $node->logfile;
		my $signal = (qw(- KILL TERM INT))[$what];
		my $victim = $pids[ rand @pids ];
		if (kill($signal, $victim) && $signal eq 'KILL')
		{
			# The process may have been about to exit.
			usleep(100_000);
			comes_back($node);
		}
	}
	my $wrong = wrong();
	is($wrong, '', "round $round: jobs and rows agree");
}
for my $job (@jobs)
{
	my $end = $queue->ends($job);
	# A job that got SIGINT was canceled, or failed because of a parallel worker.
	like($end, qr/^(succeeded|canceled|failed)$/, "job $job ends after the storm");
	$queue->sql("SELECT bulk_retry($job)") if $end ne 'succeeded';
	is($queue->ends($job), 'succeeded', "... and is done in the end");
}
forget('after the storm');
ok($queue->idle, 'nobody stays after the storm');

# A job is canceled at each of its points.
for my $point (grep { /^job\./ && !/aborted|failed|claimed|handed/ } point_names())
{
	point_set($node, $point, 'wait');
	my $job = enqueue();
	point_wait($node, $point);
	my $done = $point =~ /committed|offers/;
	is($queue->sql("SELECT bulk_cancel($job)"), $done ? 'f' : 't', "$point: cancelled");
	point_clear($node, $point);
	is($queue->ends($job), $done ? 'succeeded' : 'canceled', '... unless it is done');
	forget($point);
}

# A worker between two jobs: signals for the first job must not hit the second one, and no job is lost.
$node->append_conf('postgresql.conf', 'pg_bulk.max_running_jobs = 1');
$node->reload;
for my $case ([ 'job.offers', 'late' ], [ 'job.offers', 'SIGINT' ], [ 'job.offers', 'SIGTERM' ], [ 'job.offers', 'no dispatcher' ],
	[ 'job.handed', 'cancelled' ], [ 'job.handed', 'SIGTERM' ], [ 'job.handed', 'no dispatcher' ], [ 'job.handed', 'error' ])
{
	my ($point, $what) = @$case;
	my $name = "$point, $what";
	$queue->sql('SELECT bulk_pause()');
	my @pair = map { enqueue() } 1 .. 2;
	point_set($node, $point, $what eq 'error' ? 'error once' : 'wait once');
	$queue->sql('SELECT bulk_resume()');
	my ($pid) = $what eq 'error' ? () : point_wait($node, $point);
	$queue->becomes("SELECT status = 'succeeded' FROM bulk_jobs WHERE job_id = $pair[1]") if $what eq 'error';
	is($queue->sql("SELECT bulk_cancel($pair[0])"), 'f', "$name: the first job is done") if $what eq 'late';
	kill 'INT', $pid if $what eq 'SIGINT';
	kill 'TERM', $pid if $what eq 'SIGTERM';
	is($queue->sql("SELECT bulk_cancel($pair[1])"), 't', "$name: the second job") if $what eq 'cancelled';
	if ($what eq 'no dispatcher')
	{
		$queue->sql("SELECT pg_terminate_backend(pid) FROM ($DISPATCHER) d");
		$queue->becomes("SELECT NOT EXISTS ($DISPATCHER)");
	}
	point_clear($node, $point);
	# Otherwise the session might find the next process.
	$queue->becomes("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)") if $point eq 'job.offers' && $what eq 'no dispatcher';
	$queue->sql('SELECT bulk_resume()');
	is($queue->ends($pair[0]), 'succeeded', "$name: the first job");
	is($queue->ends($pair[1]), $what eq 'cancelled' ? 'canceled' : 'succeeded', '... the second one');
	my ($first_loader, $second_loader) = $queue->loaders(@pair);
	my $same = $point eq 'job.offers' ? $what eq 'late' || $what eq 'SIGINT' : $what eq 'no dispatcher';
	is($first_loader eq $second_loader, $same, $same ? '... in the same process' : '... not in the same process');
	is($queue->sql("SELECT crashes FROM bulk_queue WHERE job_id = $pair[1]"), 0,
		'... at the first attempt');
	forget($name);
}
# A session has looked up the process of the first job, and sends the signal late.
my $second_pipe = $queue->pipe('second of two');
point_set($node, 'job.loaded', 'wait once');
my $canceled = enqueue();
point_wait($node, 'job.loaded');
my $spared = $queue->enqueue($second_pipe);
point_set($node, 'cancel.found', 'wait once');
my $canceler = $node->background_psql('postgres');
$canceler->{stdin} .= "SELECT 'canceled ' || bulk_cancel($canceled);\n";
$canceler->{run}->pump_nb;
point_wait($node, 'cancel.found');
point_clear($node, 'job.loaded');
is($queue->ends($canceled), 'succeeded', 'a job is done while somebody is about to cancel it');
usleep(300_000);
point_clear($node, 'cancel.found');
$canceler->{run}->pump until $canceler->{stdout} =~ /canceled (true|t)/;
$queue->feed($second_pipe, -1);
is($queue->ends($spared), 'succeeded', '... and that is not about the next one');
is(join(' ', $queue->loaders($spared)), join(' ', $queue->loaders($canceled)), '... in the same process');
$canceler->quit;
$queue->sql('DELETE FROM t WHERE a = -1');
forget('a late cancel');
ok($queue->idle, 'nobody stays between two jobs');
$node->append_conf('postgresql.conf', 'pg_bulk.max_running_jobs = 3');
$node->reload;

# A dispatcher dies while a worker holds the job's lock and has
# not claimed it: the next dispatcher starts another worker.
point_set($node, 'job.locked', 'wait once');
my $job = enqueue();
point_wait($node, 'job.locked');
terminate_dispatcher();
$queue->sql('SELECT bulk_resume()');
ok($queue->becomes("SELECT crashes = 1 FROM bulk_queue WHERE job_id = $job"), 'two workers for one job: the second one gives up');
is($queue->status($job), 'queued', '... without doing anything');
point_clear($node, 'job.locked');
is($queue->ends($job), 'succeeded', '... and the first one does it');
forget('two workers');

# Two dispatchers: the second one exits.
await_restart();
my $pipe = $queue->pipe('pipe');
my $blocked = $queue->enqueue($pipe);
$queue->runs($blocked);
point_set($node, 'job.locked', 'wait');
# Until the first dispatcher holds its life lock, each session that enqueues starts another one, without limit.
terminate_dispatcher();
$node->pgbench('-n -c 4 -j 2 -t 5', 0, [qr/number of transactions actually processed: 20/], [qr/^/], 'many enqueue at once',
	{ 'enqueue' => "SELECT bulk_enqueue('" . $queue->numbers('one', 0) . "', 't');" });
point_clear($node, 'job.locked');
ok($queue->becomes("SELECT count(*) = 20 FROM bulk_jobs WHERE status = 'succeeded' AND path LIKE '%/one'"), '... and all is done');
ok($queue->becomes("SELECT count(*) = 1 FROM ($DISPATCHER) d"), '... by one dispatcher');
is($queue->sql('SELECT count(*), count(DISTINCT a) FROM t'), '20|1', '... once');
is($queue->sql("SELECT count(*) FROM bulk_queue WHERE crashes > 0 AND path LIKE '%/one'"), 0, '... without attempts in vain');
$queue->feed($pipe, -1);
is($queue->ends($blocked), 'succeeded', '... and the job that ran before goes on');
$queue->sql(q(SET lock_timeout = '60s'; TRUNCATE t));

# Two transactions start a dispatcher each before they commit.
# The second dispatcher makes the first one look at the queue.
await_restart();
ok($queue->idle, 'idle');
point_set($node, 'commit.started', 'wait');
# Neither dispatcher finds the other one, even if one is slow.
point_set($node, 'dispatcher.connects', 'wait');
my @sessions = map { $node->background_psql('postgres') } 1 .. 2;
my @backends = map { $_->query_safe('SELECT pg_backend_pid()') } @sessions;
for my $i (0, 1)
{
	my $path = $i == 0 ? $pipe : $queue->numbers('second', 5);
	$sessions[$i]{stdin} .= "SELECT 'job ' || bulk_enqueue('$path', 't');\n";
	$sessions[$i]{run}->pump_nb;
}
point_wait($node, 'commit.started', 2);
point_clear($node, 'dispatcher.connects');
ok($queue->becomes("SELECT count(*) = 2 FROM ($DISPATCHER) d"), 'two transactions start a dispatcher each');
my @both;
kill 'STOP', $backends[1];
point_set($node, 'commit.started', 'sleep=0');
for my $i (0, 1)
{
	kill 'CONT', $backends[1] if $i == 1;
	$sessions[$i]{run}->pump until $sessions[$i]{stdout} =~ /job (\d+)/;
	push @both, $1;
	next if $i == 1;
	$queue->runs($1);
	# By then the dispatcher's own timeout has woken it.
	usleep(1_500_000);
}
my $since = time;
is($queue->ends($both[1]), 'succeeded', '... and both jobs run');
cmp_ok(time - $since, '<', 10, '... at once');
$queue->feed($pipe, 6);
is($queue->ends($both[0]), 'succeeded', '... to the end');
point_clear($node, 'commit.started');
$_->quit for @sessions;
is($queue->sql('SELECT string_agg(a::text, \' \' ORDER BY a) FROM t'), '5 6', '... each once');
$queue->sql(q(SET lock_timeout = '60s'; TRUNCATE t));
# ... and one that fails then.
ok($queue->idle, 'idle again');
point_set($node, 'commit.started', 'error once');
like(($node->psql('postgres', "SELECT bulk_enqueue('$pipe', 't')"))[2], qr/error at/, 'a transaction fails at its end');
ok(point_taken($node, 'commit.started'), '... after it has started a dispatcher');
point_clear($node, 'commit.started');
usleep(300_000);
ok($queue->idle, '... which leaves');

# A dispatcher that is about to exit, and is woken, terminated, or woken too late.
for my $case ([ 'dispatcher.leaves', 'woken' ], [ 'dispatcher.leaves', 'terminated' ], [ 'dispatcher.gate', 'late' ])
{
	my ($point, $what) = @$case;
	ok($queue->idle, 'idle');
	point_set($node, $point, 'wait');
	is($queue->ends(enqueue()), 'succeeded', "a dispatcher is to leave, and is $what");
	my ($pid) = point_wait($node, $point);
	my $session = $node->background_psql('postgres');
	my $path = $queue->numbers('late', 1 .. 3);
	# A session that comes too late waits until this dispatcher is gone.
	$session->{stdin} .= "SELECT 'job ' || bulk_enqueue('$path', 't');\n";
	$session->{run}->pump_nb;
	usleep(200_000);
	$queue->sql("SELECT pg_terminate_backend($pid)") if $what eq 'terminated';
	point_clear($node, $point);
	$session->{run}->pump until $session->{stdout} =~ /job (\d+)/;
	my $late = $1;
	is($queue->ends($late), 'succeeded', '... but the job is not forgotten');
	$session->quit;
	$queue->sql(q(SET lock_timeout = '60s'; TRUNCATE t));
	%first = ();
}

# An open transaction that has enqueued keeps the dispatcher, which then runs the job at once.
my $pipe_job = $queue->enqueue($pipe);
$queue->runs($pipe_job);
my $session = $node->background_psql('postgres');
my $path = $queue->numbers('kept', 1 .. 3);
$session->query_safe("BEGIN");
my $kept = $session->query_safe("SELECT bulk_enqueue('$path', 't')");
$queue->feed($pipe, 4);
is($queue->ends($pipe_job), 'succeeded', 'a transaction that has enqueued goes on');
usleep(2_500_000);
my $staying = $queue->sql($DISPATCHER);
isnt($staying, '', '... and the dispatcher stays');
$session->query_safe('COMMIT');
is($queue->ends($kept), 'succeeded', '... and runs the job');
is($queue->sql("SELECT started_at - enqueued_at > interval '2.4 s' FROM bulk_jobs WHERE job_id = $kept"), 't', '... not before the commit');
$session->quit;
$queue->sql(q(SET lock_timeout = '60s'; TRUNCATE t));

# Between the end of its transaction and the record of it, a job holds no lock: it looks lost and is run again, and the
# first process then finds that it must record nothing.
point_set($node, 'job.aborted', 'wait once');
my $bad = $queue->enqueue($queue->numbers('bad', 1 .. 100, 'x'));
my ($pid) = point_wait($node, 'job.aborted');
point_set($node, 'job.begins', 'wait');
$queue->sql("SELECT pg_terminate_backend(pid) FROM ($DISPATCHER) d");
$queue->sql('SELECT bulk_resume()');
point_wait($node, 'job.begins');
point_clear($node, 'job.aborted');
ok($queue->becomes("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)"), 'a job is taken for lost while it fails');
is($queue->status($bad), 'running', '... and says nothing of the second process');
point_clear($node, 'job.begins');
is($queue->ends($bad), 'failed', '... which fails again');
is($queue->sql("SELECT status, attempt, error_sqlstate FROM bulk_jobs WHERE job_id = $bad"), 'failed|1|22P02', '... and changes nothing');

# A large load stops at once on each signal: from a file with parallel workers, and from a program.
my $large = $queue->path('large');
open my $file, '>', $large or die $!;
print $file "1234567\n" x 1_000_000 for 1 .. 128;
close $file or die $!;
$node->append_conf('postgresql.conf', "pg_bulk.chunk_size = 256kB");
$node->reload;
for my $way ('cancel', 'terminate', 'shutdown')
{
	for my $load ([ $large, '{}' ], [ 'yes 1', '{"program": true}' ])
	{
		my $huge = $queue->enqueue($load->[0], 't', "'$load->[1]'");
		my $pid = $queue->runs($huge);
		usleep(500_000);
		my $began = time;
		if ($way eq 'shutdown')
		{
			$node->stop('fast');
			my $took = time - $began;
			cmp_ok($took, '<', 2, "$load->[0]: shutdown");
			note sprintf '%.2f s', $took;
			$node->start;
			$queue->sql("SELECT bulk_cancel($huge)");
		}
		else
		{
			$queue->sql($way eq 'cancel' ? "SELECT bulk_cancel($huge)" : "SELECT pg_terminate_backend($pid)");
			ok($queue->becomes("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)"), "$load->[0]: $way");
			my $took = time - $began;
			cmp_ok($took, '<', 1, '... at once');
			note sprintf '%.2f s', $took;
			$queue->sql("SELECT bulk_cancel($huge)") if $way eq 'terminate';
		}
		is($queue->ends($huge), 'canceled', '... and it is over');
		is($queue->sql('SELECT count(*) FROM t'), 0, '... without rows');
		$queue->sql(q(SET lock_timeout = '60s'; TRUNCATE t));
	}
}

# Canceled while its failure is recorded, with a retry to follow.
$queue->sql(<<'SQL');
CREATE TABLE unlucky (a int);
CREATE FUNCTION bad_luck() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'bad luck' USING ERRCODE = '40001'; END $$;
CREATE TRIGGER bad_luck AFTER INSERT ON unlucky FOR EACH ROW EXECUTE FUNCTION bad_luck();
SQL
point_set($node, 'job.failed', 'wait once');
my $unlucky = $queue->enqueue($queue->numbers('unlucky', 1), 'unlucky', 'max_attempts => 5');
point_wait($node, 'job.failed');
is($queue->sql("SELECT bulk_cancel($unlucky)"), 't', 'a job that has just failed is cancelled');
point_clear($node, 'job.failed');
is($queue->ends($unlucky), 'canceled', '... and not tried again');
is($queue->sql("SELECT attempt, error_sqlstate FROM bulk_jobs WHERE job_id = $unlucky"), '1|40001', '... though it was to be');

$node->stop;
done_testing();
