
# pg_createsubscriber turns a standby into a subscriber, with the queue of its primary: docs/operations/replication-and-backup.md describes this.
# The publisher runs each job, and each row is there once.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Queue;

sub set
{
	my ($node, $what) = @_;
	$node->safe_psql('postgres', $_) for "LOAD 'pg_bulk'; ALTER SYSTEM $what", 'SELECT pg_reload_conf()';
	return;
}

my $bindir = `pg_config --bindir`;
chomp $bindir;
plan skip_all => 'pg_createsubscriber comes with 17' if !-x "$bindir/pg_createsubscriber";

my $queue = Queue->new('publisher', 'wal_level = logical', "shared_preload_libraries = 'pg_bulk'");
my $publisher = $queue->node;
my $one = $queue->numbers('one', 1);
is($queue->ends($queue->enqueue($one)), 'succeeded', 'a job is done before there is a standby');
$publisher->backup('backup');
my $subscriber = PostgreSQL::Test::Cluster->new('subscriber');
$subscriber->init_from_backup($publisher, 'backup', has_streaming => 1);
$subscriber->start;
my $there = bless { %$queue, node => $subscriber }, 'Queue';
# pg_createsubscriber would wait for a running load. This setting of
# the publisher keeps jobs from starting before there is a subscriber.
set($publisher, 'SET pg_bulk.max_running_jobs = 0');
my @queued = map { $queue->enqueue($one) } 1 .. 3;
$publisher->wait_for_catchup($subscriber);
# Without this setting, the subscriber would run them sooner or later.
set($subscriber, 'SET pg_bulk.max_running_jobs = 0');
$subscriber->stop;
command_ok([ 'pg_createsubscriber', '-D', $subscriber->data_dir, '-P', $publisher->connstr('postgres'), '-d', 'postgres', '-p', $subscriber->port,
	'-s', $subscriber->host ], 'pg_createsubscriber');

$subscriber->start;
ok($there->becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'pg_bulk dispatcher'"), 'the queue was copied');
ok($there->becomes("SELECT count(*) = 3 FROM bulk_jobs WHERE status = 'queued' AND waits_for = 'worker slot'"), '... and waits');
is($there->sql("SELECT count(bulk_cancel(job_id)) FROM bulk_jobs WHERE status IN ('queued', 'running')"), 3, '... until its jobs are cancelled');
set($subscriber, 'RESET pg_bulk.max_running_jobs');
ok($there->idle, '... and nobody has anything to do');

set($publisher, 'RESET pg_bulk.max_running_jobs');
is($queue->ends($_), 'succeeded', 'the publisher goes on') for @queued;
$publisher->safe_psql('postgres', 'INSERT INTO t VALUES (100)');
ok($there->becomes('SELECT max(a) = 100 FROM t'), '... and its subscriber has what is loaded');
my $rows = 'SELECT string_agg(a::text, $$ $$ ORDER BY a) FROM t';
is($queue->sql($rows), '1 1 1 1 100', '... which is there once');
is($there->sql($rows), $queue->sql($rows), '... on both sides');
is($there->sql("SELECT string_agg(status, ' ' ORDER BY job_id) FROM bulk_jobs"), 'succeeded canceled canceled canceled', 'the subscriber has its own word on jobs');
my $own = $there->enqueue($one);
is($there->ends($own), 'succeeded', '... and new ones of its own');
is($there->sql('SELECT count(*) FROM t WHERE a = 1'), 5, '... which are run');
is($queue->sql('SELECT count(*) FROM t WHERE a = 1'), 4, '... nowhere else');
$_->stop for $subscriber, $publisher;
done_testing();
