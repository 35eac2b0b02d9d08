
# From library to library: the present version reads files and jobs that a published version has left, and continues with them,
# also after a crash. pg_test/published/run builds that version; without it the test is skipped.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Load qw(healthy);
use Queue;

my ($version, $install) = @ENV{qw(PG_BULK_PUBLISHED PG_BULK_PUBLISHED_INSTALL)};
plan skip_all => 'no library of a published version' if !$version;

my $queue = Queue->new('published', { install => $install }, "max_prepared_transactions = 2", "shared_preload_libraries = 'pg_bulk'",
	'max_parallel_workers = 16', 'pg_bulk.chunk_size = \'8kB\'');
my $node = $queue->node;
$queue->sql('CREATE EXTENSION amcheck; CREATE EXTENSION pg_visibility');
sub one
{
	my ($sql, $wanted, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($queue->sql($sql), $wanted, $name);
}
sub present { return $queue->sql("SELECT extversion FROM pg_extension WHERE extname = 'pg_bulk'"); }
is(present(), $version, "the library is that of $version");

# Tables with all that its loads write: pages of a file of several
# chunks, keys of many types, out-of-line values, partitions.
my $rows = $queue->path('rows.csv');
$queue->sql("COPY (SELECT i, md5(i::text), CASE WHEN i % 50 = 0 THEN repeat(md5(i::text), 100) END, i % 7 FROM generate_series(1, 20000) i) TO '$rows' (FORMAT csv)");
my %tables = (
	plain => '',
	keyed => '; ALTER TABLE keyed ADD PRIMARY KEY (id); CREATE INDEX ON keyed (word COLLATE "C"); CREATE INDEX ON keyed (part) WHERE part > 2; CREATE INDEX ON keyed USING gin (string_to_array(word, \'a\'))',
	merged => '; ALTER TABLE merged ADD PRIMARY KEY (id); INSERT INTO merged SELECT -i, md5(i::text), NULL, 1 FROM generate_series(1, 20000) i',
	parts => ' PARTITION BY LIST (part); CREATE TABLE parts_low PARTITION OF parts FOR VALUES IN (0, 1, 2); CREATE TABLE parts_high PARTITION OF parts DEFAULT; CREATE UNIQUE INDEX ON parts (part, id)');
$queue->sql("CREATE TABLE $_ (id int, word text, wide text, part int)$tables{$_}") for sort keys %tables;
one("SELECT rows_loaded FROM bulk_load('$rows', '$_', '{\"format\": \"csv\", \"workers\": 2}')", 20000, "$version loads: $_") for sort keys %tables;
my $bad = $queue->numbers('bad', 1, 'x', 3);
one("SELECT rows_rejected FROM bulk_load('$bad', 't', '{\"on_error\": \"table\"}')", 1, "$version rejects a row");
$queue->sql("CREATE FOREIGN TABLE f (id int, word text, wide text, part int) SERVER bulk_files OPTIONS (filename '$rows', format 'csv')");
# A prepared transaction, which the new library's server commits.
$queue->sql("CREATE TABLE prepared (id int PRIMARY KEY, word text, wide text, part int); BEGIN; SELECT bulk_load('$rows', 'prepared', '{\"format\": \"csv\"}'); PREPARE TRANSACTION 'p'");

# Jobs: finished, failed, running when the server stops immediately, and waiting.
my $pipe = $queue->pipe('pipe');
my $few = $queue->numbers('few', 1 .. 5);
my $done = $queue->enqueue($few);
is($queue->ends($done), 'succeeded', "$version: a job");
my $failed = $queue->enqueue($bad);
is($queue->ends($failed), 'failed', "$version: a job that fails");
my $running = $queue->enqueue($pipe);
$queue->runs($running);
$queue->sql('SELECT bulk_pause()');
my $waiting = $queue->enqueue($few);
my $history = 'SELECT load_id, target, rows_loaded, rows_rejected, status FROM bulk_history ORDER BY load_id';
my $rejects = 'SELECT line_number, raw_line, message FROM bulk_rejects ORDER BY 1';
my $digest = join ' UNION ALL ', map { "SELECT '$_', count(*), sum(hashtextextended(t::text, 0)::numeric) FROM $_ t" } sort keys %tables;
my %queries = (history => $history, rejects => $rejects, tables => "$digest ORDER BY 1");
my %before = map { $_ => $queue->sql($queries{$_}) } keys %queries;

# The present library starts after the crash.
$node->stop('immediate');
delete $node->{_install_path};
$node->start;
isnt($queue->sql("SELECT default_version FROM pg_available_extensions WHERE name = 'pg_bulk'"), $version, 'another library');
is(present(), $version, '... with the objects of before');
one($queries{$_}, $before{$_}, "... and with what $version has written: $_") for sort keys %before;
# Until the prepared transaction ends, its tables are locked.
$queue->sql("COMMIT PREPARED 'p'");
one('SELECT count(*), sum(id) FROM prepared', '20000|200010000', 'a transaction that was prepared');
healthy($node, 'after recovery');
for my $when ('before UPDATE', 'after UPDATE')
{
	if ($when eq 'after UPDATE')
	{
		$queue->sql('ALTER EXTENSION pg_bulk UPDATE');
		isnt(present(), $version, 'UPDATE');
		one($rejects, $before{rejects}, "$when: rejects");
	}
	one("SELECT string_agg(status, ' ' ORDER BY job_id) FROM bulk_jobs WHERE job_id IN ($done, $failed)", 'succeeded failed', "$when: jobs that had ended");
	one("SELECT status FROM bulk_jobs WHERE job_id = $waiting", 'queued', "$when: a job that waits");
	one('SELECT count(*), sum(id) FROM f', '20000|200010000', "$when: a foreign table");
	# Keys are inserted into leaves that the other library has written.
	my $shift = $when eq 'before UPDATE' ? 20000 : 40000;
	my $more = $queue->path("more.$shift");
	$queue->sql("COPY (SELECT i, md5(i::text), NULL, i % 7 FROM generate_series($shift + 1, $shift + 3000) i) TO '$more' (FORMAT csv)");
	one("SELECT rows_loaded FROM bulk_load('$more', '$_', '{\"format\": \"csv\"}')", 3000, "$when: a load into $_") for sort keys %tables;
	healthy($node, $when);
}
$queue->sql('SELECT bulk_resume()');
$queue->feed($pipe, 10 .. 13);
is($queue->ends($running), 'succeeded', 'the job that was running is run again');
is($queue->ends($waiting), 'succeeded', 'the job that waited is run');
one('SELECT string_agg(a::text, \' \' ORDER BY a) FROM t', '1 1 1 2 2 3 3 3 4 4 5 5 10 11 12 13', 'their rows are there, once');
one("SELECT status FROM bulk_jobs WHERE job_id = $failed", 'failed', 'the job that failed can be tried again');
$queue->numbers('bad', 7);
$queue->sql("SELECT bulk_retry($failed)");
is($queue->ends($failed), 'succeeded', '... and succeeds');
healthy($node, 'in the end');
$node->stop;
done_testing();
