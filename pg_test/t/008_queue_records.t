
# A job's outcome is recorded despite obstacles: rows that another session has
# locked, settings of the owner, rejects that cannot be stored.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Queue;

my $queue = Queue->new('queue', 'pg_bulk.max_running_jobs = 1');
my $node = $queue->node;
my $one = $queue->numbers('one', 1);
my $bad = $queue->numbers('bad', 1 .. 100, 'x');
my $pipe = $queue->pipe('pipe');
$queue->sql("CREATE ROLE loader LOGIN IN ROLE pg_read_server_files; GRANT INSERT ON t TO loader");

# A transaction has canceled a job and stays open: other sessions
# do not wait for it, and nothing is lost when it rolls back.
my $session = $node->background_psql('postgres');
$queue->sql('SELECT bulk_pause()');
my $cancelled = $queue->enqueue($one, 't', 'priority => -1');
my $behind = $queue->enqueue($one);
$session->query_safe("BEGIN; SELECT bulk_cancel($cancelled)");
$queue->sql('SELECT bulk_resume()');
my $began = time;
is($queue->ends($behind), 'succeeded', 'a job goes on while the one before it is being cancelled');
cmp_ok(time - $began, '<', 10, '... soon');
is($queue->status($cancelled), 'queued', '... which waits');
is($queue->sql("SELECT crashes FROM bulk_queue WHERE job_id = $cancelled"), 0, '... and is not said to have crashed');
$session->query_safe('ROLLBACK');
is($queue->ends($cancelled), 'succeeded', '... until it turns out not to be');
is($queue->sql("SELECT attempt FROM bulk_jobs WHERE job_id = $cancelled"), 1, '... at the first attempt');

# The same if the dispatcher itself must record something about the job: its owner can no longer have a session.
$queue->sql('SELECT bulk_pause()');
($cancelled) = $queue->sql("SET ROLE loader; SELECT bulk_enqueue('$one', 't', priority => -1)");
$behind = $queue->enqueue($one);
$queue->sql('REVOKE CONNECT ON DATABASE postgres FROM PUBLIC');
$session->query_safe("BEGIN; SELECT bulk_cancel($cancelled)");
$queue->sql('SELECT bulk_resume()');
$began = time;
is($queue->ends($behind), 'succeeded', 'the dispatcher does not wait for who cancels a job that it would fail');
cmp_ok(time - $began, '<', 10, '... either');
$session->query_safe('ROLLBACK');
is($queue->ends($cancelled), 'failed', '... and comes back to it');
is($queue->sql("SELECT error_sqlstate FROM bulk_jobs WHERE job_id = $cancelled"), '42501', '... to say why');
$queue->sql('GRANT CONNECT ON DATABASE postgres TO PUBLIC');

# A job that needs its table alone keeps its position while another session's cancellation of it is not committed.
$queue->sql('SELECT bulk_pause(); TRUNCATE t');
my $truncates = $queue->enqueue($one, 't', "'{\"truncate\": true}'", 'priority => -1');
$behind = $queue->enqueue($one);
$session->query_safe("BEGIN; SELECT bulk_cancel($truncates)");
$queue->sql('SELECT bulk_resume()');
usleep(1_500_000);
is($queue->status($behind), 'queued', 'a job waits for one that has to be alone, as long as that may come');
$session->query_safe('ROLLBACK');
is($queue->ends($_), 'succeeded', '... and both run') for $truncates, $behind;
is($queue->sql('SELECT count(*) FROM t'), 2, '... one after the other');

# A privileged session has locked the job's row when the job fails: the job waits to record its failure, despite its owner's
# lock_timeout and exit_on_error.
$queue->sql("ALTER ROLE loader SET lock_timeout = '10ms'; ALTER ROLE loader SET exit_on_error = on");
my ($job) = $queue->sql("SET ROLE loader; SELECT bulk_enqueue('$pipe', 't')");
$queue->runs($job);
$session->query_safe("BEGIN; SELECT FROM bulk_queue WHERE job_id = $job FOR UPDATE");
$queue->feed($pipe, 'x');
ok($queue->becomes("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'pg_bulk job' AND wait_event_type = 'Lock')"), 'a job waits to say that it has failed');
usleep(300_000);
$session->query_safe('COMMIT');
is($queue->ends($job), 'failed', '... as long as it takes');
is($queue->sql("SELECT attempt, crashes, error_sqlstate FROM bulk_queue WHERE job_id = $job"), '1|0|22P02', '... once');
# The owner's lock_timeout still limits the load itself.
$session->query_safe('BEGIN; LOCK TABLE t');
($job) = $queue->sql("SET ROLE loader; SELECT bulk_enqueue('$one', 't')");
is($queue->ends($job), 'failed', 'lock_timeout');
is($queue->sql("SELECT error_sqlstate FROM bulk_jobs WHERE job_id = $job"), '55P03', '... counts for the load');
$session->query_safe('COMMIT');
$session->quit;
$queue->sql('ALTER ROLE loader RESET ALL');

# If rejects cannot be stored, the job stays failed.
my $rejects = "'{\"on_error\": \"table\", \"reject_limit\": 1}'";
my $worse = $queue->numbers('worse', 1 .. 100, 'x', 'y');
$job = $queue->enqueue($worse, 't', $rejects);
is($queue->ends($job), 'failed', 'too many rejects');
is($queue->sql("SELECT rows_rejected, (SELECT count(*) FROM bulk_rejects WHERE load_id = job_id) FROM bulk_jobs WHERE job_id = $job"), '2|2', '... which are kept');
$queue->sql('ALTER TABLE bulk_reject ADD COLUMN mine int');
my $log = -s $node->logfile;
$job = $queue->enqueue($worse, 't', $rejects);
is($queue->ends($job), 'failed', 'too many rejects for a table that somebody has altered');
like($queue->sql("SELECT attempt, crashes, error_sqlstate, error_detail FROM bulk_queue WHERE job_id = $job"),
	qr/^1\|0\|22P02\|The first rejected rows:\n.*\n.*\nThe rejected rows could not be kept: table "bulk_reject" was changed after the extension was created$/,
	'... the job has failed all the same, once');
like(slurp_file($node->logfile, $log), qr/WARNING:  the rejected rows of job $job could not be kept\n.*DETAIL:  table "bulk_reject" was changed after/, '... and the log says so');
is($queue->sql('SELECT count(*) FROM bulk_rejects'), 2, '... with those of the one before');
$queue->sql('ALTER TABLE bulk_reject DROP COLUMN mine');
# A dropped column still has its attribute, so the table is created again.
$queue->sql('DROP EXTENSION pg_bulk; CREATE EXTENSION pg_bulk');

# No space for rejects while they are spooled.
my $many = $queue->path('many');
open my $file, '>', $many or die $!;
print $file "not a number, and rather long: $_\n" for 1 .. 200_000;
close $file or die $!;
$queue->sql("ALTER SYSTEM SET temp_file_limit = '2MB'; LOAD 'pg_bulk'; ALTER SYSTEM SET pg_bulk.reject_cap = 1000000");
$node->reload;
usleep(200_000);
$job = $queue->enqueue($many, 't', "'{\"on_error\": \"table\"}'");
is($queue->ends($job), 'failed', 'rejects that take more than temp_file_limit');
is($queue->sql("SELECT attempt, crashes, error_sqlstate, error_detail, rows_rejected FROM bulk_queue WHERE job_id = $job"),
	'1|0|53400|The rejected rows could not be kept: the rejects of the load cannot be read|', '... fail the load once');
is($queue->sql('SELECT count(*) FROM bulk_rejects'), 0, '... and part of them is not taken for all');

$node->stop;
done_testing();
