
# Several sessions load, change, roll back and enqueue in shared tables.
# Others vacuum, build and drop indexes, cancel and end sessions, kill processes,
# stop the server immediately or simulate a power failure, and start it again.
# Each session records the changes that it has committed: exactly these are there
# in the end, on a standby, too. See perl/Schedule.pm.
#
# PG_BULK_SECONDS sets the duration, PG_BULK_SEED the schedules. The interleaving
# is random in any case.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use POSIX ();
use Storable ();
use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(soak seed);
use Load qw(checksums_ok entries_complete healthy load_server not_ahead standby_of);
use PowerLoss;
use Restart qw(comes_back);
use Schedule;

use constant SESSIONS => 4;

my $seconds = $ENV{PG_BULK_SECONDS} // (soak() ? 1800 : 60);
note 'PG_BULK_SEED=' . seed() . " PG_BULK_SECONDS=$seconds";
my $node = load_server('schedules', wal_level => 'replica', autovacuum => 'on', fsync => 'on', autovacuum_naptime => '1s', autovacuum_vacuum_threshold => 500,
	checkpoint_timeout => '30s', max_prepared_transactions => 20, max_connections => 40, max_worker_processes => 24, shared_buffers => '32MB',
	maintenance_work_mem => '8MB', deadlock_timeout => '200ms', wal_consistency_checking => '', min_parallel_table_scan_size => 0,
	log_min_error_statement => 'panic', log_min_messages => 'fatal', shared_preload_libraries => 'pg_bulk', 'pg_bulk.chunk_size' => '16kB');
my $directory = PostgreSQL::Test::Utils::tempdir('schedules');
chmod 0777, $directory;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_visibility; CREATE EXTENSION pg_freespacemap; ' . Schedule->create(SESSIONS));
# Some indexes of each type exist all the time; others are created and dropped.
$node->safe_psql('postgres', 'CREATE INDEX keyed_hash ON keyed USING hash (word); CREATE INDEX plain_gin ON plain USING gin ((string_to_array(word, chr(32)))); CREATE INDEX parts_some ON parts (id) WHERE length(word) > 7');
$node->safe_psql('postgres', "CREATE FOREIGN TABLE source_$_ (id int, word text) SERVER bulk_files OPTIONS (filename '/', format 'csv')") for 1 .. SESSIONS;
# The standby is stopped now and then, while checkpoints run.
my $standby = standby_of($node, 'standby', slot => 1);
my $power = PowerLoss->new($node);
$node->stop;
$power->start;

my $end = time + $seconds;
my @schedules = map { Schedule->new(node => $node, number => $_, seed => seed(), directory => $directory) } 1 .. SESSIONS;
my @pids;
for my $schedule (@schedules)
{
	my $pid = fork // die "fork: $!";
	if ($pid) { push @pids, $pid; next; }
	# The child must not clean up for the parent.
	eval {
		$schedule->step while time < $end && !$schedule->troubles;
		delete $schedule->{node};
		Storable::store($schedule, "$directory/schedule.$schedule->{number}");
		1;
	} or do { diag "session $schedule->{number}: $@"; POSIX::_exit(1); };
	POSIX::_exit(0);
}

# The interferences. Errors of these statements do not matter.
my (%interferences, %pages);
sub attempt { my ($sql) = @_; my (undef, $out) = eval { $node->psql('postgres', "SET lock_timeout = '3s'; $sql", on_error_stop => 0, stderr => \my $err, timeout => 120) }; return $out // ''; }
sub somebody { my @pids = split /\n/, attempt("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND ($_[0])"); return @pids ? $pids[ int rand @pids ] : undef; }
sub children { my ($pid) = @_; open my $file, '<', "/proc/$pid/task/$pid/children" or return; return split ' ', <$file> // ''; }
# The postmaster also waits for dead-end children, which only report that the server is shutting down. On a busy machine there is always
# one. While it recovers from a child's crash, it forgets the checkpointer (PM_WAIT_BACKENDS with FatalError, postmaster.c, 15).
# Any other process that still exists has ignored its signal.
my @deaf;
sub stop_fast
{
	comes_back($node);
	my $postmaster = $node->{_pid};
	return if $node->stop('fast', fail_ok => 1);
	my %there = map { $_ => eval { slurp_file("/proc/$_/cmdline") } // '' } children($postmaster);
	sleep 5;
	push @deaf, map { "$_ $there{$_}" } grep { exists $there{$_} && $there{$_} !~ /checkpointer/ } children($postmaster);
	$node->stop('immediate');
	return;
}
my $working = "backend_type IN ('client backend', 'parallel worker', 'pg_bulk job', 'pg_bulk dispatcher', 'autovacuum worker')";
my @tables = ('plain', 'keyed', 'parts_0', 'parts_1', 'toasted', 'ledger', map { "own_$_" } 1 .. SESSIONS);
sub any { return $_[ int rand @_ ]; }
my %interfere = (
	cancel => [ 12, sub { my $pid = somebody($working) // return; attempt("SELECT pg_cancel_backend($pid)"); } ],
	'end a session' => [ 6, sub { my $pid = somebody($working) // return; attempt("SELECT pg_terminate_backend($pid)"); } ],
	kill => [ 3, sub { my $pid = somebody("$working OR backend_type IN ('checkpointer', 'background writer', 'pg_bulk launcher')") // return; kill 'KILL', $pid; } ],
	'stop at once' => [ 2, sub { $node->stop('immediate'); $power->start; } ],
	'power failure' => [ 4, sub { my ($lost, $unsafe) = $power->fail; $pages{lost} += $lost; $pages{unsafe} += $unsafe; $power->start; } ],
	'stop fast' => [ 1, sub { stop_fast(); $power->start; } ],
	'restart the standby' => [ 2, sub { $standby->stop(any('immediate', 'fast')); $standby->start; } ],
	checkpoint => [ 8, sub { attempt('CHECKPOINT'); } ],
	vacuum => [ 12, sub { attempt('VACUUM (' . any('FREEZE', 'ANALYZE', 'INDEX_CLEANUP on', 'DISABLE_PAGE_SKIPPING', 'FULL') . ') ' . any(@tables)); } ],
	reindex => [ 5, sub { attempt('REINDEX TABLE ' . any('', 'CONCURRENTLY ') . any(@tables)); } ],
	'create an index' => [ 8, sub { attempt('CREATE INDEX ' . any('', 'CONCURRENTLY ') . 'extra_' . int(rand 4) . ' ON ' . any(@tables[ 0 .. 4 ]) . any(' (word)', ' (word COLLATE "C", id)', ' USING hash (word)', ' (id) WHERE length(word) > 7', ' USING gin ((string_to_array(word, chr(32))))')); } ],
	'drop an index' => [ 8, sub { attempt('DROP INDEX ' . any('', 'CONCURRENTLY ') . 'extra_' . int(rand 4)); } ],
	cluster => [ 1, sub { attempt('CLUSTER keyed USING keyed_pkey'); } ],
	'alter a table' => [ 3, sub { attempt('ALTER TABLE ' . any('keyed', 'plain', 'toasted') . ' SET (fillfactor = ' . any(50, 90, 100) . ')'); } ],
	'add a column' => [ 2, sub { attempt("SELECT pg_advisory_lock(${\Schedule::REWRITES}); " . 'ALTER TABLE ' . any('keyed', 'plain', 'parts', 'toasted') . ' ADD COLUMN IF NOT EXISTS more int' . any('', ' DEFAULT 5', ' DEFAULT random() * 9')); } ],
	'drop a column' => [ 2, sub { attempt('ALTER TABLE ' . any('keyed', 'plain', 'parts', 'toasted') . ' DROP COLUMN IF EXISTS more'); } ],
	pause => [ 2, sub { attempt('SELECT bulk_pause()'); usleep(500_000); attempt('SELECT bulk_resume()'); } ]);
my @lots = map { ($_) x $interfere{$_}[0] } sort keys %interfere;
while (time < $end)
{
	my $what = any(@lots);
	$interferences{$what}++;
	$interfere{$what}[1]->();
	usleep(20_000 + rand 300_000);
}
my $children = 0;
for my $pid (@pids) { waitpid $pid, 0; $children++ if $? == 0; }
is($children, SESSIONS, 'all sessions have come to their end');
is(join(', ', @deaf), '', 'all processes obey a shutdown');

# The server runs, the queue is idle, and no transaction is left.
ok(comes_back($node), 'the server is there');
$node->safe_psql('postgres', 'SELECT bulk_resume()');
ok($node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM bulk_jobs WHERE status IN ('queued', 'running'))"), 'the queue comes to rest')
	or diag $node->safe_psql('postgres', "SELECT status, waits_for, attempt, error_message, pid FROM bulk_jobs WHERE status IN ('queued', 'running')");
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts'), 0, 'no prepared transaction is left');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks l WHERE locktype = 'relation' AND relation = ANY (ARRAY['plain', 'keyed', 'parts', 'parts_0', 'parts_1', 'toasted']::regclass[]) AND pid NOT IN (SELECT pid FROM pg_stat_activity WHERE backend_type = 'autovacuum worker')"), 0, 'no lock is left');
my %status = map { split /\|/ } split /\n/, $node->safe_psql('postgres', 'SELECT path, status FROM bulk_jobs');
my $odd = $node->safe_psql('postgres', "SELECT error_sqlstate, error_message FROM bulk_jobs WHERE status = 'failed' AND error_sqlstate !~ '^(57|40|53|55P03)' AND error_message !~ 'crash'");
is($odd, '', 'jobs fail only for what was done to them');

my %did;
for my $number (1 .. SESSIONS)
{
	my $schedule = Storable::retrieve("$directory/schedule.$number");
	$schedule->settle(\%status);
	is(join("\n", $schedule->troubles), '', "session $number met with nothing unexpected");
	$did{$_} += $schedule->did->{$_} for keys %{ $schedule->did };
	for my $table ($schedule->tables)
	{
		my $rows = $schedule->rows->{$table};
		my %there = map { split /\|/, $_, 2 } split /\n/, $node->safe_psql('postgres', "SELECT id, word FROM $table WHERE id % 50 = $number");
		my $count = $node->safe_psql('postgres', "SELECT count(*) FROM $table WHERE id % 50 = $number");
		is($count, scalar keys %$rows, "session $number, $table: as many rows as were committed");
		my @lost = grep { !exists $there{$_} } sort { $a <=> $b } keys %$rows;
		my @more = grep { !exists $rows->{$_} } sort { $a <=> $b } keys %there;
		my @other = grep { exists $there{$_} && $there{$_} ne $rows->{$_} } sort { $a <=> $b } keys %$rows;
		ok(!@lost && !@more && !@other, '... namely these') or diag("lost @lost[0 .. ($#lost < 9 ? $#lost : 9)], more @more[0 .. ($#more < 9 ? $#more : 9)], other @other[0 .. ($#other < 9 ? $#other : 9)]");
	}
}
for my $table ('plain', 'keyed', 'parts', 'toasted')
{
	is($node->safe_psql('postgres', "SELECT count(*) FROM $table WHERE id % 50 BETWEEN 1 AND ${\SESSIONS} IS NOT TRUE"), 0, "$table: no row is nobody's");
}
note join "\n", 'sessions:', map({ "  $_: $did{$_}" } sort keys %did), 'interferences:', map({ "  $_: $interferences{$_}" } sort keys %interferences), map { "  pages $_: $pages{$_}" } sort keys %pages;
cmp_ok($did{COMMIT} // 0, '>', $seconds / 10, 'sessions got something done');

# The state on disk.
# An index whose build was interrupted is invalid, and may be incomplete.
my @unfinished = split /\n/, $node->safe_psql('postgres', 'SELECT indexrelid::regclass FROM pg_index WHERE NOT indisvalid');
$node->safe_psql('postgres', "DROP INDEX IF EXISTS $_") for @unfinished;
note 'valid indexes, and others that were dropped: ', $node->safe_psql('postgres', "SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = indexrelid WHERE relname LIKE 'extra%'"), ', ', scalar @unfinished;
healthy($node, 'after all of it');
my %complete = map { $_ => 1 } entries_complete($node, 'after all of it');
note 'looked at: ', join ', ', sort keys %complete;
# An index without entries is not looked at.
my %sought = (keyed_hash => 'keyed', plain_gin => 'plain', map { ("parts_${_}_id_idx" => "parts_$_ WHERE length(word) > 7") } 0, 1);
is(join(', ', grep { !$complete{$_} && $node->safe_psql('postgres', "SELECT count(*) FROM $sought{$_}") > 0 } sort keys %sought), '', '... among them those that are there all the time');
my $visibility = "SELECT c.oid::regclass, t_ctid FROM pg_class c, LATERAL (SELECT t_ctid FROM pg_check_visible(c.oid) UNION ALL SELECT t_ctid FROM pg_check_frozen(c.oid)) v WHERE relkind IN ('r', 't', 'm') AND relpersistence = 'p' AND relnamespace <> 'pg_catalog'::regnamespace";
is($node->safe_psql('postgres', $visibility), '', 'the visibility map is right');
not_ahead($node, 'after all of it');
# The free space map after VACUUM: each page's free space, in steps of 32 bytes, and no page beyond the end of the table.
# Without INDEX_CLEANUP, VACUUM leaves pages with a few dead line pointers, and their entries in the map, unchanged.
# A page that an interrupted load has left is all zeros, and free.
my @heaps = grep { $_ ne 'ledger' } @tables;
$node->safe_psql('postgres', "ALTER SYSTEM SET autovacuum = off; SELECT pg_reload_conf()");
ok($node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'autovacuum worker')"), 'no autovacuum');
$node->safe_psql('postgres', "VACUUM (DISABLE_PAGE_SKIPPING, TRUNCATE off, INDEX_CLEANUP on) $_") for @heaps;
my $free = join ' UNION ALL ', map { "SELECT '$_' AS name, blkno, avail, CASE upper WHEN 0 THEN 8168 ELSE GREATEST(upper - lower - 4, 0) END AS free FROM pg_freespace('$_'), page_header(get_raw_page('$_', blkno::int))" } @heaps;
is($node->safe_psql('postgres', "SELECT * FROM ($free) f WHERE avail > free OR free - avail >= 32 AND avail < 8128 LIMIT 10"), '', 'the free space map is right');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET autovacuum; SELECT pg_reload_conf()');
my $digest = join ' UNION ALL ', map { "SELECT '$_', count(*), sum(hashtextextended(t::text, 0)::numeric) FROM $_ t" } 'plain', 'keyed', 'parts', 'toasted', 'ledger', map { "own_$_" } 1 .. SESSIONS;
$digest .= ' ORDER BY 1';
my $all = $node->safe_psql('postgres', $digest);
eval { $node->wait_for_catchup($standby, 'replay', $node->lsn('insert')); 1 }
	or do { diag 'the standby does not follow: ', slurp_file($standby->logfile) =~ /((?:.*\n){0,8})\z/; die 'the standby'; };
is($standby->safe_psql('postgres', $digest), $all, 'the standby has the same');
healthy($standby, 'the standby');
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', $digest), $all, 'after a crash there is the same');
healthy($node, 'after a crash');
entries_complete($node, 'after a crash');
checksums_ok($node);
$standby->stop;
$node->stop;
done_testing();
