
# The queue when its environment goes away: restarts, crashes,
# promotion, dumps, subscriptions; dropped extensions, tables, roles and databases.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Load qw(begin_session);
use Queue;

my $queue = Queue->new('queue', 'max_prepared_transactions = 5', 'wal_level = logical');
my $node = $queue->node;
my $one = $queue->numbers('one', 1);
my $pipe = $queue->pipe('pipe');

sub count_is
{
	my ($count, $name, $who) = @_;
	$who //= $queue;
	is($who->sql('SELECT count(*) FROM t'), $count, $name);
	$who->sql('TRUNCATE t');
	return;
}

# An administrator's commands must not wait for a load.
sub quickly
{
	my ($name, $action) = @_;
	my $began = time;
	$action->();
	cmp_ok(time - $began, '<', 3, "$name does not wait for a load");
	return;
}

# Prepared transactions.
like(($node->psql('postgres', "BEGIN; SELECT bulk_enqueue('$one', 't'); PREPARE TRANSACTION 'p'"))[2],
	qr/cannot PREPARE a transaction that has/, 'a transaction that enqueues cannot be prepared');
is($node->psql('postgres', "BEGIN; SELECT bulk_enqueue('$one', 't'); ROLLBACK; BEGIN; INSERT INTO t VALUES (0); PREPARE TRANSACTION 'p';
	COMMIT PREPARED 'p'"), 0, '... one after it can');
count_is(1, '... and nothing is loaded');

# A restart without the library preloaded.
my $running = $queue->enqueue($pipe);
$queue->runs($running);
my $queued = $queue->enqueue($one, 't', "'{\"truncate\": true}'");
quickly('a fast shutdown', sub { $node->stop('fast') });
$node->start;
is($queue->sql("SELECT string_agg(status, ' ' ORDER BY job_id) FROM bulk_jobs"), 'queued queued', 'after a restart nothing is said to run');
is($queue->processes, 0, '... and nothing does');
$queue->sql('SELECT bulk_resume()');
$queue->runs($running);
is($queue->sql("SELECT attempt, error_sqlstate FROM bulk_jobs WHERE job_id = $running"), '1|', '... until somebody asks');
$queue->feed($pipe, 1 .. 5);
is($queue->ends($_), 'succeeded', '... and all is done') for $running, $queued;
count_is(1, '... in order');

# A session that waits for a job suffices to start a dispatcher.
$running = $queue->enqueue($pipe);
$queue->runs($running);
$node->restart;
$queue->sql("SELECT bulk_wait($running, '0')");
$queue->runs($running);
$queue->feed($pipe, 1 .. 5);
is($queue->ends($running), 'succeeded', 'waiting starts the queue, too');
count_is(5, '... once');

# Crashes of the job, the dispatcher, or another process; no session calls a function of the queue.
for my $victim ('pg_bulk job', 'pg_bulk dispatcher', 'checkpointer')
{
	$running = $queue->enqueue($pipe);
	$queue->runs($running);
	my $log = -s $node->logfile;
	kill 'KILL', $queue->sql("SELECT pid FROM pg_stat_activity WHERE backend_type = '$victim'");
	$node->wait_for_log(qr/all server processes terminated; reinitializing/, $log);
	$node->wait_for_log(qr/database system is ready to accept connections/, $log);
	$queue->runs($running);
	is($queue->sql('SELECT count(*) FROM t'), 0, "$victim is killed: nothing is loaded");
	$queue->feed($pipe, 1 .. 5);
	is($queue->ends($running), 'succeeded', '... the job is run again');
	is($queue->sql("SELECT attempt FROM bulk_jobs WHERE job_id = $running"), 1, '... which does not count');
	count_is(5, '... and loads once');
}
# A terminated job is treated like a crashed one.
$running = $queue->enqueue($pipe);
my $pid = $queue->runs($running);
quickly('pg_terminate_backend', sub {
	$queue->sql("SELECT pg_terminate_backend($pid)");
	$queue->becomes("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)") });
$queue->runs($running);
$queue->feed($pipe, 1 .. 5);
is($queue->ends($running), 'succeeded', '... and runs again');
count_is(5, '... once');

# A job that runs while the server crashes twice in a row fails. A shutdown in between does not count.
sub crash
{
	my ($job) = @_;
	my $pid = $queue->runs($job);
	my $log = -s $node->logfile;
	kill 'KILL', $pid;
	$node->wait_for_log(qr/all server processes terminated; reinitializing/, $log);
	$node->wait_for_log(qr/database system is ready to accept connections/, $log);
	return;
}
$running = $queue->enqueue($pipe);
crash($running);
$queue->runs($running);
is($queue->sql("SELECT attempt, crashed_in FROM bulk_queue WHERE job_id = $running"), '1|1', 'after a crash a job is run again');
$node->restart;
$queue->sql('SELECT bulk_resume()');
ok($queue->becomes("SELECT status = 'running' FROM bulk_jobs WHERE job_id = $running", 20), 'after a shutdown, too');
$queue->runs($running);
is($queue->sql("SELECT attempt, crashed_in FROM bulk_queue WHERE job_id = $running"), '1|', '... which is not a crash');
crash($running);
$queue->runs($running);
pass('... and after a crash that is not the second in a row');
crash($running);
is($queue->ends($running), 'failed', 'a second crash in a row is the last');
is($queue->sql("SELECT error_sqlstate, error_message FROM bulk_jobs WHERE job_id = $running"),
	'57P02|the server crashed twice while the job was running', '... and that is said');
like(($node->psql('postgres', "SELECT bulk_wait($running, '1 s')"))[2], qr/DETAIL:  The same attempt was ended by two crashes in a row/, '... with all its parts');
$queue->sql("SELECT bulk_retry($running)");
crash($running);
$queue->runs($running);
$queue->feed($pipe, 1 .. 5);
is($queue->ends($running), 'succeeded', '... until somebody tries it again');
count_is(5, '... once');

# A job that always ends with its process fails.
$running = $queue->enqueue($pipe);
$queue->runs($running);
$queue->sql("UPDATE bulk_queue SET crashes = 10 WHERE job_id = $running");
$queue->sql("SELECT pg_terminate_backend(" . $queue->runs($running) . ")");
is($queue->ends($running), 'failed', 'a job that always ends with its process is given up');
is($queue->sql("SELECT error_sqlstate FROM bulk_jobs WHERE job_id = $running"), '57P02', '... and says so');

# The extension.
$running = $queue->enqueue($pipe);
$pid = $queue->runs($running);
my $dropper = $node->background_psql('postgres', on_error_stop => 0);
$dropper->query_until(qr/begun/, "\\echo begun\nDROP EXTENSION pg_bulk;\nSELECT 'dropped';\n");
ok($queue->becomes("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock')"), 'DROP EXTENSION waits for a job');
$queue->feed($pipe, 1 .. 5);
ok($queue->becomes("SELECT NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_bulk')"), '... and goes on');
$dropper->quit;
ok($queue->idle, '... and the dispatcher leaves');
count_is(5, '... the job was done');
$queue->sql('CREATE EXTENSION pg_bulk');
my $new = $queue->enqueue($one, 't', "run_at => now() + interval '1 day'");
$queue->enqueue($one, 't', "run_at => now() + interval '1 day'");
$queue->sql('DROP EXTENSION pg_bulk');
ok($queue->idle, 'a dispatcher that has nothing to do for a day leaves with it');
$queue->sql('CREATE EXTENSION pg_bulk');
is($queue->sql('SELECT count(*) FROM bulk_jobs'), 0, 'jobs in the queue go with it');
$new = $queue->enqueue($one);
is($queue->ends($new), 'succeeded', '... and it can be made again');
count_is(1, '... and loads');

# Tables.
$queue->sql('CREATE TABLE dropped (a int); CREATE TABLE renamed (a int)');
$queue->sql('SELECT bulk_pause()');
my ($dropped, $renamed) = ($queue->enqueue($one, 'dropped'), $queue->enqueue($one, 'renamed'));
is($queue->sql("SELECT string_agg(target, ',' ORDER BY job_id) FROM bulk_jobs WHERE job_id IN ($dropped, $renamed)"), 'dropped,renamed', 'jobs have tables');
$queue->sql('DROP TABLE dropped; ALTER TABLE renamed RENAME TO other; SELECT bulk_resume()');
is($queue->ends($_), 'failed', 'the table is gone') for $dropped, $renamed;
is($queue->sql("SELECT string_agg(error_sqlstate || ' ' || error_message, ',' ORDER BY job_id) FROM bulk_jobs WHERE job_id IN ($dropped, $renamed)"),
	'42P01 relation "public.dropped" does not exist,42P01 relation "public.renamed" does not exist', '... and that is said');
is($queue->sql("SELECT string_agg(target, ',' ORDER BY job_id) FROM bulk_jobs WHERE job_id IN ($dropped, $renamed)"), 'public.dropped,other',
	'... while names are known: what was, and what is');
is($queue->sql("SELECT bulk_retry($renamed)"), 't', 'what is shown can be tried again');
is($queue->ends($renamed), 'succeeded', '... and is loaded');
is($queue->sql('SELECT count(*) FROM other'), 1, '... there');

# Roles: privileges, LOGIN, CONNECT, and the role itself.
$queue->sql("SELECT bulk_pause(); REVOKE CONNECT ON DATABASE postgres FROM PUBLIC");
my %loses = (
	files => [ 'REVOKE pg_read_server_files FROM %s', '42501', qr/permission denied to load from a file/ ],
	inserts => [ 'REVOKE INSERT ON t FROM %s', '42501', qr/permission denied for table t/ ],
	login => [ 'ALTER ROLE %s NOLOGIN', '28000', qr/role "login" is not permitted to log in/ ],
	connects => [ 'REVOKE CONNECT ON DATABASE postgres FROM %s', '42501', qr/role "connects" may not connect/ ],
	itself => [ 'REASSIGN OWNED BY %1$s TO postgres; DROP OWNED BY %1$s; DROP ROLE %1$s', '42704', qr/role with OID \d+ does not exist/ ]);
my %job;
for my $role (sort keys %loses)
{
	$queue->sql("CREATE ROLE $role LOGIN IN ROLE pg_read_server_files; GRANT INSERT ON t TO $role; GRANT CONNECT ON DATABASE postgres TO $role");
	($job{$role}) = $queue->sql("SET ROLE $role; SELECT bulk_enqueue('$one', 't')");
	$queue->sql(sprintf $loses{$role}[0], $role);
}
my $log = -s $node->logfile;
my $rows = 0;
$queue->sql('SELECT bulk_resume()');
for my $role (sort keys %loses)
{
	my ($statement, $sqlstate, $message) = @{ $loses{$role} };
	my $state = $queue->ends($job{$role});
	# From 17 on a job's owner needs no LOGIN, so this one loads its row.
	my $may = $role eq 'login' && $node->pg_version >= 17;
	$rows++ if $may;
	is($state, $may ? 'succeeded' : 'failed', "who loses: $role");
	next if $may;
	like($queue->sql("SELECT error_sqlstate || ' ' || error_message FROM bulk_jobs WHERE job_id = $job{$role}"), qr/^$sqlstate $message/, '... is told');
}
unlike(slurp_file($node->logfile, $log), qr/FATAL/, '... without processes that cannot connect');
$queue->sql('GRANT CONNECT ON DATABASE postgres TO PUBLIC; DROP OWNED BY files, inserts, login, connects; DROP ROLE files, inserts, login, connects');
count_is($rows, 'nothing else is loaded');

# The same while a job is running: it is not disturbed.
$queue->sql('CREATE ROLE shortlived LOGIN IN ROLE pg_read_server_files; CREATE TABLE dropped (a int); GRANT INSERT ON dropped TO shortlived');
($running) = $queue->sql("SET ROLE shortlived; SELECT bulk_enqueue('$pipe', 'dropped')");
$queue->runs($running);
$queue->sql('DROP OWNED BY shortlived; DROP ROLE shortlived');
$dropper = $node->background_psql('postgres', on_error_stop => 0);
$dropper->query_until(qr/begun/, "\\echo begun\nDROP TABLE dropped;\nSELECT 'dropped';\n");
ok($queue->becomes("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock')"), 'DROP TABLE waits for a job');
is($queue->status($running), 'running', '... which goes on, also without its role');
$queue->feed($pipe, 1 .. 5);
is($queue->ends($running), 'succeeded', '... to its end');
is($queue->sql("SELECT rows_loaded, attempt FROM bulk_jobs WHERE job_id = $running"), '5|1', '... with all its rows');
ok($queue->becomes("SELECT to_regclass('dropped') IS NULL"), '... and then they are gone');
$dropper->quit;
$queue->sql("DELETE FROM bulk_queue WHERE job_id = $running");

# Databases.
$queue->sql('CREATE DATABASE doomed');
$queue->sql('CREATE EXTENSION pg_bulk; CREATE TABLE t (a int)', 'doomed');
$queue->sql("SELECT bulk_enqueue('$one', 't', run_at => now() + interval '1 day'), bulk_enqueue('$pipe', 't')", 'doomed');
ok($queue->becomes("SELECT count(*) = 2 FROM pg_stat_activity WHERE datname = 'doomed' AND backend_type LIKE 'pg_bulk%'"), 'a job runs in another database');
$log = -s $node->logfile;
like(($node->psql('postgres', 'DROP DATABASE doomed'))[2], qr/database "doomed" is being accessed by other users/, 'DROP DATABASE does not end a job');
quickly('DROP DATABASE (FORCE)', sub { $queue->sql('DROP DATABASE doomed (FORCE)') });
usleep(6_500_000);
is(() = slurp_file($node->logfile, $log) =~ /FATAL:  database \d+ does not exist/g, 1, 'nobody looks for it twice');
is($queue->processes, 0, '... or at all');

# A dispatcher that only waits does not block DROP DATABASE; roles that may terminate it can drop the database.
my $tomorrow = "SELECT bulk_enqueue('$one', 't', run_at => now() + interval '1 day')";
my $waits = "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = '%s' AND backend_type = 'pg_bulk dispatcher'";
$queue->sql('CREATE ROLE landlord LOGIN CREATEDB; CREATE DATABASE doomed OWNER landlord');
$queue->sql('CREATE EXTENSION pg_bulk; CREATE TABLE t (a int)', 'doomed');
$queue->sql($tomorrow, 'doomed');
ok($queue->becomes(sprintf $waits, 'doomed'), 'a dispatcher waits for tomorrow');
$queue->sql('CREATE DATABASE copied TEMPLATE doomed');
pass('... makes way for a copy of its database');
ok($queue->becomes(sprintf $waits, 'doomed'), '... and comes back');
is($queue->sql('SELECT status FROM bulk_jobs', 'copied'), 'canceled', 'the copy has a job that is not to be run there');
$log = -s $node->logfile;
$queue->sql('SET ROLE landlord; DROP DATABASE doomed');
pass('its owner drops a database that has a queue');
$queue->sql('DROP DATABASE copied');
$queue->sql('CREATE DATABASE doomed OWNER landlord');
$queue->sql('CREATE EXTENSION pg_bulk; CREATE TABLE t (a int)', 'doomed');
$queue->sql($tomorrow, 'doomed');
ok($queue->becomes(sprintf $waits, 'doomed'), 'a dispatcher again');
like(($node->psql('postgres', 'SET ROLE landlord; DROP DATABASE doomed (FORCE)'))[2], qr/must be a member .*pg_signal_backend|permission denied to terminate process/,
	'to end it by FORCE takes the right to end processes');
$queue->sql('GRANT pg_signal_backend TO landlord; SET ROLE landlord; DROP DATABASE doomed (FORCE)');
usleep(6_500_000);
is($queue->processes, 0, '... and nobody comes back');
is(() = slurp_file($node->logfile, $log) =~ /FATAL:  database \d+ does not exist/g, 2, '... or asks for it a second time');
$queue->sql('DROP ROLE landlord');

# A database that is created from another one as its template: only the original runs its jobs.
$queue->sql('CREATE DATABASE original');
$queue->sql('CREATE EXTENSION pg_bulk; CREATE TABLE t (a int)', 'original');
my $early = $queue->sql("SELECT bulk_pause(); SELECT bulk_enqueue('$one', 't')", 'original') =~ s/.*\n//r;
my $running_there = $queue->sql("SELECT bulk_enqueue('$one', 't')", 'original');
$queue->sql("UPDATE bulk_queue SET status = 'running' WHERE job_id = $running_there", 'original');
$queue->sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'original'");
$queue->sql('CREATE DATABASE copied TEMPLATE original');
is($queue->sql("SELECT string_agg(status || ' ' || target, ',') FROM bulk_jobs", 'copied'), 'canceled t,canceled t', 'jobs of a copied database are not to be run');
is($queue->sql("SELECT bulk_wait($early)", 'copied'), 'canceled', '... nor waited for');
is($queue->sql("SELECT bulk_cancel($early)", 'copied'), 'f', '... nor cancelled');
is($queue->sql('SELECT bulk_resume()', 'copied'), 't', '... though the queue is at work');
my $there_too = $queue->sql("SELECT bulk_enqueue('$one', 't')", 'copied');
is($queue->sql("SELECT bulk_wait($there_too)", 'copied'), 'succeeded', '... on others');
is($queue->sql("SELECT (SELECT count(*) FROM t), string_agg(DISTINCT status || ' ' || error_message, ',') FROM bulk_queue WHERE job_id <> $there_too", 'copied'),
	'1|canceled the job belongs to the database that this one was copied from', '... and says so');
is($queue->sql("SELECT bulk_retry($early)", 'copied'), 't', '... unless somebody wants it');
is($queue->sql("SELECT bulk_wait($early)", 'copied'), 'succeeded', '... here');
$queue->sql('SELECT bulk_resume()', 'original');
is($queue->sql("SELECT bulk_wait(job_id) FROM bulk_jobs WHERE job_id = $_", 'original'), 'succeeded', '... the original has its own') for $early, $running_there;
is($queue->sql('SELECT count(*) FROM t', 'original'), 2, '... once');

# Dump and restore.
$queue->sql("CREATE ROLE carrier LOGIN IN ROLE pg_read_server_files; CREATE ROLE departed LOGIN IN ROLE pg_read_server_files; GRANT INSERT ON t TO carrier, departed");
for my $role ('carrier', 'departed')
{
	my $job = $queue->sql("SET ROLE $role; SELECT bulk_enqueue('$one', 't')");
	$queue->ends($job);
}
count_is(2, 'jobs of two roles');
$queue->sql('SELECT bulk_pause()');
$queued = $queue->enqueue($one);
my $dump = $queue->path('dump.sql');
$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr('postgres') ], 'a dump');
$queue->sql('SELECT bulk_resume()');
$queue->ends($queued);
$queue->sql('CREATE DATABASE restored');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr('restored') ], '... and its restore');
is($queue->sql("SELECT count(*) FILTER (WHERE status IN ('queued', 'running')), count(*) > 5 FROM bulk_jobs", 'restored'), '0|t', 'jobs that have ended are there, others are not');
is($queue->sql("SELECT string_agg(DISTINCT target::text, ',') FROM bulk_jobs WHERE status = 'succeeded'", 'restored'), 'other,t', '... with their tables');
cmp_ok($queue->sql("SELECT bulk_enqueue('$one', 't')", 'restored'), '>', $queued, '... and numbers go on');
$queue->sql("SELECT bulk_wait(max(job_id)) FROM bulk_jobs", 'restored');
count_is(1, 'one is loaded here');
is($queue->sql('SELECT count(*) FROM t', 'restored'), 1, '... and one there');

# The extension may be in any schema.
$queue->sql('CREATE DATABASE odd');
$queue->sql('CREATE SCHEMA "Odd; Schema"; CREATE EXTENSION pg_bulk SCHEMA "Odd; Schema"; CREATE TABLE t (a int)', 'odd');
my $odd = 'SET search_path = "Odd; Schema", public;';
$queue->sql("$odd SELECT bulk_enqueue('$one', 't')", 'odd');
is($queue->sql("$odd SELECT bulk_wait(max(job_id)) FROM bulk_jobs", 'odd'), 'succeeded', 'a job of an extension in a schema of its own');

# A subscriber to all tables has jobs of its own, with the same job_ids, and none of the publisher's.
$queue->sql('CREATE DATABASE published');
my $in_published = sub { return $queue->sql($_[0], 'published'); };
$in_published->('CREATE EXTENSION pg_bulk; CREATE TABLE t (a int)');
my $strange = $queue->numbers('strange', 1, 'x');
my $rejects = "'{\"on_error\": \"table\"}'";
my $done = $in_published->("SELECT bulk_enqueue('$one', 't')");
is($in_published->("SELECT bulk_wait($done)"), 'succeeded', 'a job is done before there is a subscriber');
$in_published->("SELECT bulk_load('$strange', 't', $rejects)");
$in_published->('CREATE PUBLICATION everything FOR ALL TABLES');
my $subscriber = Queue->new('subscriber', 'wal_level = logical');
my $own = $subscriber->enqueue($one, 't', "run_at => now() + interval '1 day'");
is($own, $done, 'numbers are the same');
my $connection = $node->connstr('published') =~ s/'/''/gr;
$subscriber->sql("CREATE SUBSCRIPTION everything CONNECTION '$connection' PUBLICATION everything");
$subscriber->node->wait_for_subscription_sync($node, 'everything');
my $of_subscriber = "SELECT (SELECT string_agg(job_id || ' ' || status, ',') FROM bulk_queue), (SELECT bool_or(paused) FROM bulk_queue_state),
	(SELECT count(*) FROM bulk_loads), (SELECT count(*) FROM bulk_reject)";
is($subscriber->sql($of_subscriber), "$own queued|f|0|0", 'a subscriber begins with tables, not with jobs');
$in_published->("SELECT bulk_cancel($done), bulk_pause()");
my $published = $in_published->("SELECT bulk_enqueue('$strange', 't', $rejects)");
$in_published->('SELECT bulk_resume()');
is($in_published->("SELECT bulk_wait($published)"), 'succeeded', 'more jobs are done');
$in_published->("SELECT bulk_pause()");
$in_published->("DELETE FROM bulk_queue WHERE job_id = $done; INSERT INTO t VALUES (100)");
$node->wait_for_catchup('everything');
ok($subscriber->becomes('SELECT max(a) = 100 FROM t'), '... and changes come');
is($subscriber->sql($of_subscriber), "$own queued|f|0|0", '... of tables, not of jobs');
count_is(4, '... rows are there', $subscriber);
# The trigger that keeps published rows out affects nothing else.
$subscriber->sql("ALTER TABLE bulk_queue DISABLE TRIGGER ALL; ALTER TABLE bulk_queue ENABLE TRIGGER ALL");
is($subscriber->ends($subscriber->enqueue($one)), 'succeeded', 'however triggers are enabled');
is($subscriber->ends($subscriber->sql("SET session_replication_role = replica; SELECT bulk_enqueue('$one', 't')")), 'succeeded',
	'... and whatever role a session plays');
like(($subscriber->node->psql('postgres', 'SELECT bulk_keep_local()'))[2], qr/bulk_keep_local\(\) must be called as trigger/, 'a trigger is called as one');
$subscriber->sql('DROP SUBSCRIPTION everything');
# In another cluster, role OIDs belong to other roles, or to none.
$subscriber->sql('CREATE ROLE other; CREATE ROLE carrier LOGIN IN ROLE pg_read_server_files; CREATE DATABASE restored');
my $log_before = -s $subscriber->node->logfile;
$node->command_ok([ 'psql', '-Xq', '-f', $dump, '-d', $subscriber->node->connstr('restored') ], 'a dump in another cluster');
unlike(slurp_file($subscriber->node->logfile, $log_before), qr/ERROR.*\n.*CONTEXT:  COPY/, '... has all its rows');
my $of_carrier = "SELECT string_agg(owner || ' ' || status, ',')";
is($subscriber->sql("SET ROLE carrier; $of_carrier FROM bulk_jobs", 'restored'), 'carrier succeeded', '... whoever is there has his jobs');
is($subscriber->sql("SET ROLE carrier; $of_carrier FROM bulk_history", 'restored'), 'carrier succeeded', '... and their history');
is($subscriber->sql("SET ROLE other; SELECT (SELECT count(*) FROM bulk_jobs), (SELECT count(*) FROM bulk_history)", 'restored'), '0|0', '... whoever was not there, nothing');
is($subscriber->sql("$of_carrier FROM bulk_jobs WHERE owner = 'departed'", 'restored'), 'departed succeeded', '... and whoever is not there, is known by name');
my $departed = $subscriber->sql("SELECT job_id FROM bulk_jobs WHERE owner = 'departed'", 'restored');
like(($subscriber->node->psql('restored', "SELECT bulk_retry($departed)"))[2], qr/ERROR:  role "departed" does not exist/, '... has no job to be tried again');
# A job that failed is retried with the local table of that name.
my $failed_there = $subscriber->sql("UPDATE bulk_queue SET status = 'failed', target = 1247 WHERE owner_name = 'carrier' RETURNING job_id", 'restored');
$subscriber->sql('GRANT INSERT ON t TO carrier; TRUNCATE t', 'restored');
is($subscriber->sql("SELECT target FROM bulk_jobs WHERE job_id = $failed_there", 'restored'), 't', 'names count elsewhere');
is($subscriber->sql("SELECT bulk_retry($failed_there)", 'restored'), 't', '... and a job can be tried again there');
is($subscriber->sql("SELECT bulk_wait($failed_there)", 'restored'), 'succeeded', '... by its owner');
is($subscriber->sql("SELECT count(*) FROM t", 'restored'), 1, '... in its table');
$subscriber->node->stop;

# Few slots: one is the logical replication launcher's, one the dispatcher's.
$node->append_conf('postgresql.conf', 'max_worker_processes = 3');
$node->restart;
my $second_pipe = $queue->pipe('second pipe');
my @blocked = ($queue->enqueue($pipe), $queue->enqueue($second_pipe));
$queue->runs($blocked[0]);
usleep(500_000);
is($queue->sql("SELECT status, waits_for FROM bulk_jobs WHERE job_id = $blocked[1]"), 'queued|worker slot', 'there is no slot');
$queue->feed($pipe, 1);
$queue->runs($blocked[1]);
$queue->feed($second_pipe, 2);
is($queue->ends($_), 'succeeded', '... until there is') for @blocked;
count_is(2, '... for each');

# ... and none even for a dispatcher: two other dispatchers wait for tomorrow's jobs.
sub two_others
{
	my %job = map { $_ => $queue->sql($odd . $tomorrow, $_) } 'odd', 'restored';
	ok($queue->becomes("SELECT count(*) = 2 FROM pg_stat_activity WHERE backend_type = 'pg_bulk dispatcher'"), 'others have all slots');
	return %job;
}
ok($queue->idle, 'nobody is there');
my %others = two_others();
my ($code, $stdout, $stderr) = $node->psql('postgres', "SELECT bulk_enqueue('$one', 't')");
like($stderr, qr/WARNING:  out of background worker slots\nDETAIL:.*\nHINT:  Call one of the queue's functions/, 'no dispatcher: that is said');
$queue->sql($odd . "SELECT bulk_cancel($others{$_})", $_) for keys %others;
ok($queue->idle, '... and they leave');
is($queue->status($stdout), 'queued', '... but the job waits');
is($queue->sql("SELECT bulk_wait($stdout)"), 'succeeded', '... for somebody to ask');
count_is(1, '... and is run once');

# Preloaded.
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_bulk'\nmax_worker_processes = 4");
$node->restart;
ok($queue->becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pg_bulk launcher'"), 'a launcher is there');
ok($queue->idle, '... alone');
%others = two_others();
($code, $stdout, $stderr) = $node->psql('postgres', "SELECT bulk_enqueue('$one', 't')");
is($stderr, '', 'no dispatcher: nobody has to care');
$queue->sql($odd . "SELECT bulk_cancel($others{$_})", $_) for keys %others;
is($queue->ends($stdout), 'succeeded', '... for the launcher does');
count_is(1, '... once');
$node->append_conf('postgresql.conf', 'max_worker_processes = 16');

# ... with a standby.
$node->restart;
ok($queue->idle, 'idle');
$running = $queue->enqueue($pipe);
$queue->runs($running);
$node->restart;
$queue->runs($running);
pass('preloaded, a queue goes on by itself');
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
my $second = PostgreSQL::Test::Cluster->new('second');
$second->init_from_backup($node, 'backup', has_streaming => 1);
$second->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$second->start;
my $there = bless { %$queue, node => $standby }, 'Queue';
$node->wait_for_catchup($_) for $standby, $second;
is($there->status($running), 'running', 'a standby shows what runs on its primary');
is($there->processes, 0, '... and runs nothing');
like(($standby->psql('postgres', "SELECT bulk_enqueue('$one', 't')"))[2], qr/cannot execute bulk_enqueue\(\) during recovery/, '... nor can anybody make it');
is($there->sql("SELECT bulk_wait($running, '50 ms')"), 'running', '... but wait');
$node->stop('immediate');
$standby->promote;
$there->runs($running);
$there->feed($pipe, 1 .. 5);
is($there->ends($running), 'succeeded', 'after a promotion the job runs there');
count_is(5, '... once', $there);
$standby->stop;

# ... where the library is not preloaded, and a session has been waiting since before.
$there->{node} = $second;
my ($waiter, $end) = begin_session($second, "SELECT bulk_wait($running)");
ok($there->becomes("SELECT state = 'active' AND query ~ 'bulk_wait' FROM pg_stat_activity WHERE pid = $waiter"), 'somebody waits on a standby');
$second->promote;
$there->feed($pipe, 1 .. 5);
is(($end->())[0], "succeeded\n", '... and the job runs once that is promoted');
count_is(5, '... once', $there);
$second->stop;
done_testing();
