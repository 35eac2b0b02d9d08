
# The queue: order and time of jobs, and the effects of interference.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use IPC::Run;
use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Queue;

my $queue = Queue->new('queue');
my $node = $queue->node;
my $one = $queue->numbers('one', 1);
my $three = $queue->numbers('three', 1 .. 3);

sub count_is
{
	my ($count, $name) = @_;
	is($queue->sql('SELECT count(*) FROM t'), $count, $name);
	$queue->sql('TRUNCATE t');
	return;
}

# Many jobs, in one transaction and in as many, while other transactions roll back.
$queue->sql("SELECT count(bulk_enqueue('$one', 't')) FROM generate_series(1, 1000)");
$queue->sql("BEGIN; SELECT count(bulk_enqueue('$one', 't')) FROM generate_series(1, 10); ROLLBACK;");
$queue->sql("SELECT bulk_enqueue('$one', 't');\n" x 500 . "BEGIN; SELECT bulk_enqueue('$one', 't'); ROLLBACK;
	BEGIN; SAVEPOINT s; SELECT bulk_enqueue('$one', 't'); ROLLBACK TO s; COMMIT;\n" . "SELECT bulk_enqueue('$one', 't');\n" x 500);
ok($queue->becomes("SELECT count(*) = 2000 FROM bulk_jobs WHERE status = 'succeeded'", 180), '2,000 jobs are done')
	or diag $queue->sql('SELECT status, waits_for, error_message, count(*) FROM bulk_jobs GROUP BY 1, 2, 3');
is($queue->sql("SELECT count(*) FROM bulk_jobs WHERE status <> 'succeeded' OR attempt <> 1"), 0, '... and nothing else');
is($queue->sql('SELECT count(*) FROM bulk_queue WHERE crashes > 0'), 0, '... at the first attempt');
count_is(2000, '... each once');
ok($queue->idle, '... and nobody stays');

# One at a time, in order.
sub setting
{
	my ($name, $value) = @_;
	$queue->sql("LOAD 'pg_bulk'; ALTER SYSTEM SET $name = '$value'");
	$node->reload;
	return;
}
setting('pg_bulk.max_running_jobs', 1);
$queue->sql('SELECT bulk_pause()');
my @jobs = map { $queue->enqueue($one, 't', @$_) } (
	[ "priority => 1" ], [ "priority => -1" ], [ "run_at => now() - interval '1 hour'" ], ["priority => 0"], [ "priority => 1" ]);
is($queue->sql("SELECT string_agg(DISTINCT status || ' ' || waits_for, ',') FROM bulk_jobs WHERE job_id >= $jobs[0]"),
	'queued pause', 'paused');
$queue->sql('SELECT bulk_resume()');
is($queue->ends($_), 'succeeded', "job $_ in order") for @jobs;
is($queue->sql("SELECT string_agg((job_id - $jobs[0])::text, ' ' ORDER BY started_at) FROM bulk_jobs WHERE job_id >= $jobs[0]"),
	'1 2 3 0 4', 'by priority, then by time, then by number');
is($queue->sql("SELECT count(*) FROM bulk_jobs a JOIN bulk_jobs b ON a.started_at < b.finished_at AND b.started_at < a.finished_at
	AND a.job_id < b.job_id WHERE a.job_id >= $jobs[0]"), 0, '... one at a time');
count_is(5, '... all of them');

# One process runs the jobs of one owner, one after the other, as long as no other job comes first.
sub in_turn
{
	my ($name, @jobs) = @_;
	$queue->sql('SELECT bulk_resume()');
	is($queue->ends($_), 'succeeded', "$name: job $_") for @jobs;
	my %number;
	my $order = $queue->sql('SELECT string_agg(job_id::text, \' \' ORDER BY started_at) FROM bulk_jobs WHERE job_id IN ('
		. join(',', @jobs) . ')');
	my @processes = $queue->loaders(split / /, $order);
	for my $process (@processes)
	{
		$number{$process} = 1 + keys %number unless exists $number{$process};
	}
	return join ' ', @number{@processes};
}
$queue->sql(<<'SQL');
CREATE ROLE other LOGIN IN ROLE pg_read_server_files;
GRANT INSERT ON t TO other;
GRANT EXECUTE ON FUNCTION bulk_prioritize(bigint, integer) TO other;
CREATE TABLE seen (a int, mem text DEFAULT current_setting('work_mem'));
CREATE TABLE other_seen (a int, job text DEFAULT current_setting('app.job', true));
CREATE TABLE checked (a int CHECK (set_config('work_mem', '77MB', false) = '77MB'));
CREATE TABLE fired (a int);
CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER fire AFTER INSERT ON fired FOR EACH STATEMENT EXECUTE FUNCTION fire();
CREATE TABLE secure (a int);
CREATE FUNCTION fire_secure() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER fire AFTER INSERT ON secure FOR EACH STATEMENT EXECUTE FUNCTION fire_secure();
SQL
$queue->sql('SELECT bulk_pause()');
is(in_turn('one owner', map { $queue->enqueue($one) } 1 .. 5), '1 1 1 1 1', '... in one process');
count_is(5, '... each once');
my $as_other = "SET ROLE other; SELECT bulk_enqueue('$one', 't', priority => -1)";
$queue->sql('SELECT bulk_pause()');
is(in_turn('two owners', $queue->enqueue($one), $queue->enqueue($one, 't', 'priority => -2'), $queue->sql($as_other)),
	'1 2 3', 'another owner, who comes first, is not overtaken');
count_is(3, '... each once');
for my $table ('checked', 'fired', 'secure')
{
	$queue->sql('SELECT bulk_pause()');
	is(in_turn($table, $queue->enqueue($one, $table), $queue->enqueue($one, 'seen', q('{"columns": ["a"]}'))),
		'1 2', "$table: code of the table's owner ends the process");
}
is($queue->sql("SELECT count(*), count(*) FILTER (WHERE mem = '4MB') FROM seen"), '3|3', '... and leaves nothing to the next job');
# Settings of a job end its process, too: otherwise a setting with an unknown name would stay defined, and be empty.
$queue->sql('SELECT bulk_pause()');
is(in_turn('settings', $queue->enqueue($one, 'other_seen', q('{"columns": ["a"], "settings": {"app.job": "1"}}')),
	$queue->enqueue($one, 'other_seen', q('{"columns": ["a"]}'))), '1 2', 'settings of a job end the process');
is($queue->sql("SELECT string_agg(coalesce(job, 'none'), ' ' ORDER BY job) FROM other_seen"), '1 none', '... and leave nothing to the next job');
my $first_of_two = $queue->pipe('first of two');
for my $case ([ 'nothing', 'SELECT', 1 ], [ 'a setting of the role', "ALTER ROLE CURRENT_USER SET work_mem = '5MB'", 0 ],
	[ '... that is gone', 'ALTER ROLE CURRENT_USER RESET ALL', 0 ],
	[ '... of the database', "ALTER DATABASE postgres SET work_mem = '6MB'", 0 ], [ '... that is gone', 'ALTER DATABASE postgres RESET ALL', 0 ],
	[ 'a pause', 'SELECT bulk_pause()', 0 ])
{
	my ($what, $statement, $same) = @$case;
	$queue->sql('TRUNCATE seen');
	my $pair = $queue->enqueue($first_of_two);
	$queue->runs($pair);
	my $next = $queue->enqueue($one, 'seen', q('{"columns": ["a"]}'));
	$queue->sql($statement);
	$queue->feed($first_of_two, 1);
	is($queue->ends($pair), 'succeeded', "meanwhile: $what");
	if ($what eq 'a pause')
	{
		usleep(300_000);
		is($queue->status($next), 'queued', '... is kept');
		$queue->sql('SELECT bulk_resume()');
	}
	is($queue->ends($next), 'succeeded', '... the next job');
	my ($here, $there) = $queue->loaders($pair, $next);
	($same ? \&is : \&isnt)->($there, $here, $same ? '... in the same process' : '... in another process');
	my $expected = $statement =~ /'(.MB)'/ ? $1 : '4MB';
	is($queue->sql('SELECT mem FROM seen'), $expected, '... with the settings that it would have');
}
$queue->sql('TRUNCATE t');
setting('pg_bulk.max_running_jobs', 3);

# run_at in the future.
my $later = $queue->enqueue($one, 't', "run_at => clock_timestamp() + interval '1.5 s'");
is($queue->sql("SELECT waits_for FROM bulk_jobs WHERE job_id = $later"), 'run_at', 'a job for later');
is($queue->ends($later), 'succeeded', '... runs');
is($queue->sql("SELECT started_at BETWEEN run_at AND run_at + interval '1 s' FROM bulk_jobs WHERE job_id = $later"), 't', '... in time');
count_is(1, '... once');

# Jobs that need the table alone, and jobs that do not.
my ($pipe, $second_pipe) = ($queue->pipe('pipe'), $queue->pipe('second pipe'));
$queue->sql('CREATE TABLE other (a int)');
my $first = $queue->enqueue($pipe);
$queue->runs($first);
my $second = $queue->enqueue($second_pipe);
$queue->runs($second);
my $alone = $queue->enqueue($three, 't', "'{\"truncate\": true}'");
my $behind = $queue->enqueue($one);
my $elsewhere = $queue->enqueue($one, 'other');
is($queue->ends($elsewhere), 'succeeded', 'another table does not wait');
is($queue->sql("SELECT string_agg(status || ' ' || waits_for, ',') FROM bulk_jobs WHERE job_id IN ($alone, $behind)"),
	'queued target,queued target', 'one job wants to be alone, the next one waits for it');
$queue->feed($pipe, 1 .. 10);
is($queue->ends($first), 'succeeded', 'side by side: one');
is($queue->status($alone), 'queued', '... is not enough');
$queue->feed($second_pipe, 1 .. 10);
is($queue->ends($_), 'succeeded', 'one after the other') for $second, $alone, $behind;
count_is(4, '... in order');

# Notifications.
my ($in, $out, $err) = ("LISTEN pg_bulk;\nSELECT 'listening';\n", '', '');
my $listener = IPC::Run::start(
	[ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<', \$in, '>', \$out, '2>', \$err, IPC::Run::timeout(60));
$listener->pump until $out =~ /listening/;
my $bad = $queue->numbers('bad', 'x');
my ($good_job, $bad_job) = ($queue->enqueue($one), $queue->enqueue($bad));
$queue->ends($_) for $good_job, $bad_job;
my %seen;
while ((grep { /succeeded|failed/ } keys %seen) < 2)
{
	$in .= "SELECT 1;\n";
	$listener->pump_nb;
	usleep(50_000);
	$seen{$1}++ while $out =~ /"pg_bulk" with payload "(\{.*?\})"/g;
}
$in .= "\\q\n";
$listener->finish;
is_deeply([ sort keys %seen ], [ sort map { my ($job, @states) = @$_; map { "{\"job_id\":$job,\"status\":\"$_\"}" } @states }
	[ $good_job, 'queued', 'running', 'succeeded' ], [ $bad_job, 'queued', 'running', 'failed' ] ], 'who listens is told');
count_is(1, 'one of them loads');

# Canceled: queued, running, and while it waits for a lock.
my $running = $queue->enqueue($pipe);
$queue->runs($running);
my $began = time;
is($queue->sql("SELECT bulk_cancel($running)"), 't', 'a job that is running can be cancelled');
is($queue->ends($running), 'canceled', '... and is');
cmp_ok(time - $began, '<', 2, '... at once');
is($queue->sql("SELECT error_sqlstate FROM bulk_jobs WHERE job_id = $running"), '57014', '... as a statement is');
is($queue->sql("SELECT bulk_cancel($running)"), 'f', '... once');
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE t');
my $locked = $queue->enqueue($one);
ok($queue->becomes("SELECT status = 'running' FROM bulk_jobs WHERE job_id = $locked"), 'a job waits for its table');
is($queue->sql("SELECT bulk_wait($locked, '50 ms')"), 'running', '... whoever waits for it');
# A session that holds a lock which a job waits for must not wait for this job.
my ($status, $stdout, $stderr) = (0, '', '');
$queue->sql("SELECT bulk_cancel($locked)");
is($queue->ends($locked), 'canceled', '... and is cancelled');
$locker->quit;
count_is(0, 'nothing is loaded');

# A deadlock between a job and the session that waits for it.
my $deadlock = $queue->enqueue($one, 't', "run_at => now() + interval '1 s'");
$stderr = '';
$node->psql('postgres', "BEGIN; LOCK TABLE t; SELECT bulk_wait($deadlock); COMMIT;", stderr => \$stderr, timeout => 60);
my $ended = $queue->ends($deadlock);
ok($stderr =~ /deadlock detected/ || $queue->sql("SELECT error_sqlstate FROM bulk_jobs WHERE job_id = $deadlock") eq '40P01',
	'who has what a job waits for, and waits for the job, is in a deadlock') or diag "$ended: $stderr";
$queue->sql('TRUNCATE t');

# A job that waits for itself.
$queue->sql(<<'SQL');
CREATE TABLE own (a int);
CREATE FUNCTION wait_for_own() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM bulk_wait(job_id, '1 hour') FROM bulk_jobs WHERE pid = pg_backend_pid();
	RETURN new;
END $$;
CREATE TRIGGER own AFTER INSERT ON own FOR EACH ROW EXECUTE FUNCTION wait_for_own();
SQL
my $selfish = $queue->enqueue($one, 'own');
is($queue->ends($selfish), 'failed', 'a job that waits for itself');
is($queue->sql("SELECT error_sqlstate, error_message = format('cannot wait for job %s in the process that runs it', job_id) FROM bulk_jobs
	WHERE job_id = $selfish"), '55000|t', '... is told');

# A transaction that holds an old snapshot.
my $old = $node->background_psql('postgres');
for my $level ('REPEATABLE READ', 'SERIALIZABLE')
{
	$old->query_safe("BEGIN ISOLATION LEVEL $level; SELECT count(*) FROM bulk_jobs");
	my $newer = $queue->enqueue($one, 't', "run_at => now() + interval '1 day'");
	is($old->query_safe("SELECT bulk_wait($newer, '0')"), 'queued', "$level: a newer job can be waited for");
	is($old->query_safe("SELECT bulk_cancel($newer)"), 't', '... cancelled');
	is($old->query_safe("SELECT bulk_retry($newer)"), 't', '... put into the queue again');
	$queue->sql("SELECT bulk_pause()");
	is($old->query_safe("SELECT bulk_cancel($newer), bulk_resume()"), 't|t', '... and what others do is seen');
	$old->query_safe('COMMIT');
	is($queue->status($newer), 'canceled', '... and remains');
}
$old->quit;

# The role that monitors a job is not the role that runs it.
my $lost = $queue->enqueue($one, 't', "run_at => now() + interval '1 day'");
$queue->sql("UPDATE bulk_queue SET status = 'running' WHERE job_id = $lost");
my ($first_out, $first_err) = ('', '');
my $canceler = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', "BEGIN; SELECT bulk_cancel($lost); SELECT pg_sleep(1); COMMIT" ],
	'>', \$first_out, '2>', \$first_err, IPC::Run::timeout(60));
ok($queue->becomes("SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'object' AND classid = 'bulk_queue'::regclass AND objid = $lost)"), 'somebody cancels a job');
is($queue->sql("SELECT bulk_cancel($lost)"), 'f', '... and somebody else, who waits');
$canceler->finish;
is($first_out . $first_err, "t\n\n", '... and does not cancel the one who does');
is($queue->status($lost), 'canceled', '... it is cancelled');

# Temporary errors are retried, others are not.
$queue->sql(<<'SQL');
CREATE SEQUENCE tries;
CREATE TABLE trying (a int);
CREATE FUNCTION fail_twice() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF nextval('tries') < 3 THEN
		RAISE EXCEPTION 'not yet' USING ERRCODE = TG_ARGV[0];
	END IF;
	RETURN new;
END $$;
CREATE TRIGGER trying AFTER INSERT ON trying FOR EACH ROW EXECUTE FUNCTION fail_twice('40001');
SQL
my $transient = $queue->enqueue($one, 'trying', 'max_attempts => 3');
is($queue->ends($transient), 'succeeded', 'a serialization failure is tried again');
is($queue->sql("SELECT attempt, started_at - enqueued_at > interval '2.9 s', error_sqlstate IS NULL FROM bulk_jobs WHERE job_id = $transient"),
	'3|t|t', '... after a while, and a longer one');
$queue->sql("SELECT setval('tries', 1, false)");
my $impatient = $queue->enqueue($one, 'trying', 'max_attempts => 2');
is($queue->ends($impatient), 'failed', '... as often as was said');
is($queue->sql("SELECT attempt, error_sqlstate, error_message FROM bulk_jobs WHERE job_id = $impatient"), '2|40001|not yet', '... and says why');
$queue->sql("SELECT setval('tries', 1, false); DROP TRIGGER trying ON trying;
	CREATE TRIGGER trying AFTER INSERT ON trying FOR EACH ROW EXECUTE FUNCTION fail_twice('23514')");
my $hopeless = $queue->enqueue($one, 'trying', 'max_attempts => 3');
is($queue->ends($hopeless), 'failed', 'other errors are not');
is($queue->sql("SELECT attempt, error_sqlstate FROM bulk_jobs WHERE job_id = $hopeless"), '1|23514', '... tried again');
is($queue->sql('SELECT count(*) FROM trying'), 1, 'one row of them all');

# No free worker slots.
my @blocked = map { $queue->enqueue($_) } $pipe, $second_pipe;
$queue->runs($_) for @blocked;
setting('pg_bulk.max_running_jobs', 2);
my $waiting = $queue->enqueue($one);
usleep(300_000);
is($queue->sql("SELECT status, waits_for FROM bulk_jobs WHERE job_id = $waiting"), 'queued|worker slot', 'jobs are limited');
setting('pg_bulk.max_running_jobs', 3);
is($queue->ends($waiting), 'succeeded', '... by a setting that can be changed');
# A dispatcher that is terminated restarts, and starts no job twice.
my $dispatcher = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_bulk dispatcher'";
my $pid = $queue->sql($dispatcher);
is($queue->sql("SELECT pg_terminate_backend($pid)"), 't', 'the dispatcher is told to go');
ok($queue->becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pg_bulk dispatcher' AND pid <> $pid"), '... and another one comes');
is($queue->processes, 3, '... to the jobs that go on');
my $after = $queue->enqueue($one);
is($queue->ends($after), 'succeeded', '... and to others');
$queue->feed($pipe, 1);
$queue->feed($second_pipe, 1);
is($queue->ends($_), 'succeeded', '... which end') for @blocked;
count_is(4, 'each of them once');

# Retention.
setting('pg_bulk.job_retention', '1s');
$queue->ends($queue->enqueue($one));
ok($queue->idle, 'idle');
usleep(1_100_000);
$queue->sql('SELECT bulk_resume()');
ok($queue->becomes('SELECT count(*) = 0 FROM bulk_jobs'), 'old jobs are forgotten');
setting('pg_bulk.job_retention', '-1');
my $kept = $queue->enqueue($one);
$queue->ends($kept);
ok($queue->idle, 'idle again');
$queue->sql('SELECT bulk_resume()');
usleep(300_000);
is($queue->status($kept), 'succeeded', '... or never');
is($queue->sql('SELECT count(*), min(load_id) FROM bulk_history'), "1|$kept", 'so is their history');

# Rejects are deleted together with their load, in batches of some thousand; those of other loads stay.
my $all_bad = $queue->path('all bad');
append_to_file($all_bad, "x\n" x 12_000);
my $rejecting = "'{\"on_error\": \"table\", \"reject_limit\": \"100%\"}'";
$queue->sql("SELECT bulk_load('$all_bad', 't', $rejecting)");
$queue->sql("SELECT bulk_load('$bad', 't', $rejecting)");
is($queue->sql('SELECT count(*) FROM bulk_rejects'), 12_001, 'rejected rows are kept');
my $young = $queue->sql('SELECT max(load_id) FROM bulk_history');
$queue->sql("UPDATE bulk_loads SET finished_at = now() - interval '1 day' WHERE load_id < $young;
	UPDATE bulk_reject SET rejected_at = now() - interval '1 day' WHERE load_id < $young");
# Publications of these tables do not matter.
$queue->sql("CREATE PUBLICATION everything FOR ALL TABLES");
setting('pg_bulk.job_retention', '1h');
ok($queue->idle, 'idle once more');
my $horizon = $queue->sql('SELECT pg_current_xact_id()');
$queue->sql('SELECT bulk_resume()');
ok($queue->becomes('SELECT count(*) = 1 FROM bulk_rejects'), '... as long as the load is') or diag $queue->sql('SELECT count(*) FROM bulk_rejects');
is($queue->sql('SELECT string_agg(load_id::text, \',\') FROM bulk_history'), $young, '... and no longer');

$node->stop;
done_testing();
