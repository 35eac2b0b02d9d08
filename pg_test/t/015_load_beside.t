
# Other sessions and tools beside a load. An INSERT gets a page. A checkpoint
# ends. A base backup and pg_rewind make servers without damage. A subscriber
# gets out-of-line values, and rows of a savepoint. The load's processes stop at
# points, so nothing depends on how fast the machine is.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use File::Copy qw(copy);
use File::Path qw(rmtree);
use File::Spec::Functions qw(rel2abs);
use IPC::Run ();
use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Load qw(begin_session checksums_ok healthy load_server load_sql numbers_file rows_of standby_equal);
use Points qw(point_clear point_next point_set point_wait);

my $directory = rel2abs(PostgreSQL::Test::Utils::tempdir('files'));
numbers_file("$directory/$_->[0]", $_->[1], $_->[2])
  for [ 'first', 1, 20_000 ], [ 'second', 20_001, 40_000 ], [ 'third', 40_001, 60_000 ], [ 'odd', 60_001, 80_000 ], [ 'many', 1, 250_000 ];
# Five rows fill a page.
append_to_file("$directory/wide", join '', map { "$_," . 'w' x 1500 . ",\n" } 1 .. 600);
# With this much memory, a batch has 16 pages.
my $small = "SET pg_bulk.memory_limit = '1MB'; SET pg_bulk.chunk_size = '8kB';";

my $primary = load_server('primary', allows_streaming => 'logical', log_checkpoints => 'on', wal_keep_size => '1GB', logical_decoding_work_mem => '64kB');
my @columns = ('id int', 'word text', 'at timestamp');
sub table
{
	my ($name, @constraints) = @_;
	return "CREATE TABLE $name (" . join(', ', @columns, @constraints) . ');';
}

# Waits until the condition is true. Returns false after this number of seconds.
sub becomes
{
	my ($seconds, $is_true) = @_;
	my $end = time + $seconds;
	while (!$is_true->())
	{
		return 0 if time > $end;
		usleep(10_000);
	}
	return 1;
}

sub is_so { my ($query) = @_; return $primary->safe_psql('postgres', $query) eq 't'; }

# Begins a checkpoint, or a command that makes one, and waits until its redo point is set.
sub checkpoint_begins
{
	my ($begin) = @_;
	my $starting = sub { return scalar(() = slurp_file($primary->logfile) =~ /LOG:  checkpoint starting/g); };
	my $before = $starting->();
	my @begun = $begin->();
	becomes(60, sub { $starting->() > $before }) or die 'no checkpoint begins';
	# Now the checkpointer looks for processes that delay it.
	usleep(50_000);
	return @begun;
}

# Begins a checkpoint in another session. Returns a function that waits for it, and one that tells whether it has ended.
sub begin_checkpoint
{
	my ($pid, $end) = begin_session($primary, 'CHECKPOINT');
	return ($end, sub { is_so("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid AND state = 'active' AND query ~ 'CHECKPOINT'") });
}

#
# The extension lock. One process of a load holds it, the two others have full batches, and another session requests it. That
# session must get it next: the server would let members of a lock group jump the queue.
#
# Two full pages, and a free space map, which would be extended under the same lock.
$primary->safe_psql('postgres', table('busy') . "INSERT INTO busy SELECT 0, repeat('o', 1900) FROM generate_series(1, 8)");
point_set($primary, 'append.begin', 'wait');
my ($pid, $finish) = begin_session($primary, "$small " . load_sql("$directory/first", 'busy', workers => 2));
my @processes = point_wait($primary, 'append.begin', 3);
point_set($primary, 'append.flushed', 'wait once');
point_clear($primary, 'append.begin');
my ($holder) = point_wait($primary, 'append.flushed');
my $others = join ', ', grep { $_ != $holder } @processes;
ok(becomes(60, sub { is_so("SELECT count(*) = 2 FROM pg_stat_activity WHERE pid IN ($others) AND wait_event_type IN ('Lock', 'Extension')") }),
	'two processes of a load wait for a third one');
my ($outsider, $inserted) = begin_session($primary, "INSERT INTO busy VALUES (-1, repeat('n', 1900))");
ok(becomes(60, sub { is_so("SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $outsider AND locktype = 'extend' AND NOT granted)") }),
	'... another session waits for a page');
point_set($primary, 'append.logged', 'wait');
point_clear($primary, 'append.flushed');
point_wait($primary, 'append.logged');
ok(becomes(10, sub { is_so('SELECT EXISTS (SELECT FROM busy WHERE id = -1)') }), 'an INSERT of another session waits for one batch');
point_clear($primary);
is(($finish->())[0], "20000\n", '... the load ends');
$inserted->();
is($primary->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM busy'), '20009|20002', '... and all rows are there');
healthy($primary, 'an INSERT beside a load');

#
# A checkpoint waits for processes that have logged pages and not yet written them. Only one process of a load may be in that state
# at a time. Each batch takes 50 ms here, so the load takes many times as long as the checkpoint.
#
$primary->safe_psql('postgres', table('crowded') . 'INSERT INTO crowded VALUES (0)');
point_set($primary, 'append.begin', 'wait');
($pid, $finish) = begin_session($primary, "$small " . load_sql("$directory/many", 'crowded', workers => 8) =~ s/rows_loaded/rows_loaded, workers/r);
point_wait($primary, 'append.begin', 9);
point_set($primary, 'append.logged', 'sleep=50');
point_clear($primary, 'append.begin');
my $began = time;
my ($checkpointed) = checkpoint_begins(\&begin_checkpoint);
$checkpointed->();
ok(is_so("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid AND state = 'active' AND query ~ 'bulk_load')"),
	'a checkpoint beside eight workers does not wait for the end of the load');
note sprintf 'it took %.2f seconds', time - $began;
point_clear($primary);
is(($finish->())[0], "250000|8\n", '... the load ends');
note sprintf 'that took %.2f seconds', time - $began;
healthy($primary, 'a checkpoint beside eight workers');

#
# A process that appends batch after batch pauses once for a checkpoint that has begun. The process stops in one batch, and a checkpoint
# begins. The process goes on and stops in the next batch: the checkpoint must have passed in between. The checkpointer looks every
# 10 ms, and the pause is 15 ms. A busy machine may miss it now and then, hence five hits before five misses.
#
$primary->safe_psql('postgres', table('alone'));
my ($passed, $missed) = (0, 0);
while ($passed < 5 && $missed < 5)
{
	$primary->safe_psql('postgres', 'TRUNCATE alone; INSERT INTO alone VALUES (0)');
	point_set($primary, 'append.flagged', 'wait once');
	($pid, $finish) = begin_session($primary, "$small " . load_sql("$directory/wide", 'alone', workers => 0));
	point_wait($primary, 'append.flagged');
	my ($ended, $has_ended) = checkpoint_begins(\&begin_checkpoint);
	ok(!$has_ended->(), 'a checkpoint waits for a process that has logged pages');
	point_next($primary, 'append.flagged');
	if (becomes(2, $has_ended)) { $passed++ } else { $missed++ }
	point_clear($primary);
	is(join('', $finish->(), $ended->()), "600\n", '... the load ends');
}
note "$passed of " . ($passed + $missed) . ' passed';
is($passed, 5, 'a checkpoint passes a process that appends again and again');
healthy($primary, 'checkpoints beside one process');

#
# A write fails behind the WAL of its pages, and the transaction survives the error. It must not delay checkpoints, nor keep the
# extension lock, and it can load again.
#
$primary->safe_psql('postgres', table('caught') . 'INSERT INTO caught VALUES (0)');
my $load = load_sql("$directory/wide", 'caught', workers => 0);
for my $way ('savepoint', 'exception')
{
	my $session = $primary->background_psql('postgres', on_error_stop => 0);
	$session->query("$small BEGIN; SAVEPOINT s");
	point_set($primary, 'append.write', 'errno=28 once');
	$session->query($way eq 'savepoint' ? $load : "DO \$\$ BEGIN PERFORM * FROM ($load) l; EXCEPTION WHEN OTHERS THEN RAISE NOTICE '%', SQLERRM; END \$\$");
	like($session->{stderr}, qr/could not extend file/, "a write that fails, $way");
	$session->{stderr} = '';
	$session->query('ROLLBACK TO s') if $way eq 'savepoint';
	point_clear($primary);
	my ($end, $has_ended) = begin_checkpoint();
	my $is_free = ok(becomes(20, $has_ended), "a write that fails, $way: a checkpoint ends");
	my $insert = IPC::Run::start([ 'psql', '-XAtqc', "INSERT INTO caught SELECT 0, repeat('n', 1900) FROM generate_series(1, 9)", '-d', $primary->connstr('postgres') ], IPC::Run::timeout(60));
	ok($insert->finish, "a write that fails, $way: others get pages");
	is($session->query($load), '600', "a write that fails, $way: the transaction can load");
	$session->query('COMMIT');
	$session->quit;
	$end->();
}
is($primary->safe_psql('postgres', 'SELECT count(*) FROM caught'), '1219', '... all rows are there');
healthy($primary, 'writes that failed');

#
# A subscriber. Chunks of an out-of-line value must be decoded together with their row, although other processes log pages meanwhile.
#
my @rows = map { "$_," . ($_ % 40 ? 'short' : sprintf('%08d', $_) x 500) . ",\n" } 1 .. 8000;
append_to_file("$directory/long", join '', @rows);
my $external = table('external', 'PRIMARY KEY (id)') . 'ALTER TABLE external ALTER word SET STORAGE EXTERNAL;';
my $subscriber = load_server('subscriber', allows_streaming => 'logical');
$_->safe_psql('postgres', $external) for $primary, $subscriber;
$primary->safe_psql('postgres', 'CREATE PUBLICATION external FOR TABLE external');
my $connection = $primary->connstr('postgres') =~ s/'/''/gr;
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION external CONNECTION '$connection' PUBLICATION external WITH (streaming = on)");
$subscriber->wait_for_subscription_sync($primary, 'external');
sub has_applied
{
	my $lsn = $primary->lsn('flush');
	return ok(becomes(60, sub { is_so("SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = 'external' AND replay_lsn >= '$lsn')") }),
		'... the subscriber has applied them');
}

for my $workers (0, 2)
{
	is($primary->safe_psql('postgres', "$small TRUNCATE external; " . load_sql("$directory/long", 'external', workers => $workers) =~ s/rows_loaded/rows_loaded, workers/r),
		"8000|$workers", "values out of line: a load with $workers workers");
	is($primary->safe_psql('postgres', "SELECT pg_relation_size(reltoastrelid) > 400000 FROM pg_class WHERE oid = 'external'::regclass"),
		't', '... has stored them');
	has_applied();
	is(rows_of($subscriber, 'external'), rows_of($primary, 'external'), "the subscriber has values out of line: workers $workers");
}
# A subtransaction, streamed before it ends. The workers log more rows than the publisher keeps in memory, and the leader none until then.
$primary->safe_psql('postgres', 'TRUNCATE external');
point_set($primary, 'load.launched', 'wait');
point_set($primary, 'worker.end', 'wait');
(undef, $finish) = begin_session($primary, "$small BEGIN; INSERT INTO external VALUES (0); SAVEPOINT s; " . load_sql("$directory/second", 'external', workers => 2) . '; COMMIT');
point_wait($primary, 'worker.end', 2);
point_clear($primary);
is(($finish->())[0], "20000\n", 'a load behind a savepoint');
has_applied();
is(rows_of($subscriber, 'external'), rows_of($primary, 'external'), 'the subscriber has the rows of a savepoint');
healthy($_, 'a subscriber') for $primary, $subscriber;
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION external');
$subscriber->stop;

#
# A base backup. Its checkpoint waits for pages that are logged and not yet written: the backup has no WAL from before its start. Then
# the files are copied while the load's processes stand between two batches.
#
my @tables = qw(stored grown merged emptied);
$primary->safe_psql('postgres', join '', map { table($_, 'PRIMARY KEY (id)') . load_sql("$directory/first", $_) . ';' } @tables);
healthy($primary, 'before the backup');
point_set($primary, 'append.flushed', 'wait once');
($pid, $finish) = begin_session($primary, "$small " . load_sql("$directory/second", 'stored', workers => 2));
point_wait($primary, 'append.flushed');
my ($backup) = checkpoint_begins(sub {
	return IPC::Run::start([ 'pg_basebackup', '--no-sync', '--checkpoint', 'fast', '-D', $primary->backup_dir . '/beside', '-d', $primary->connstr('postgres') ], IPC::Run::timeout(120));
});
my $waits = !becomes(0.5, sub { is_so("SELECT count(*) = 0 FROM pg_stat_progress_basebackup WHERE phase = 'waiting for checkpoint to finish'") });
ok($waits, 'a base backup waits for pages that are logged and not written');
$backup->finish unless $waits;
point_set($primary, 'append.done', 'wait');
point_clear($primary, 'append.flushed');
point_wait($primary, 'append.done');
ok($waits ? $backup->finish : 1, '... and is made between two batches');
point_clear($primary);
is(($finish->())[0], "20000\n", '... the load ends');
my $standby = PostgreSQL::Test::Cluster->new('standby');
rmtree($primary->backup_dir . '/beside/pg_bulk_points');
$standby->init_from_backup($primary, 'beside', has_streaming => 1);
$standby->start;
standby_equal($primary, $standby, @tables, 'busy');

# A write fails behind the WAL of its pages. The primary has no such pages, and the standby has them without rows.
my $blocks = $primary->safe_psql('postgres', "SELECT pg_relation_size('busy') / 8192");
point_set($primary, 'append.write', 'errno=28 once');
like(($primary->psql('postgres', "$small " . load_sql("$directory/first", 'busy', workers => 0)))[2], qr/could not extend file/, 'a write fails');
point_clear($primary);
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
is($standby->safe_psql('postgres', "SELECT pg_relation_size('busy') / 8192 > $blocks,
	(SELECT count(*) FROM generate_series($blocks, pg_relation_size('busy') / 8192 - 1) block, heap_page_items(get_raw_page('busy', block::int)))"),
	't|0', 'a standby has empty pages where a write failed');

#
# pg_rewind. The standby is promoted. The old primary goes on with loads, and crashes in the middle of one. pg_rewind makes it a
# standby of the new primary, in the middle of a load there. No row and no index entry of the old primary's loads may remain.
#
$standby->promote;
$standby->safe_psql('postgres', 'CHECKPOINT');
$primary->safe_psql('postgres', join '; ', $small,
	load_sql("$directory/third", 'grown', workers => 2, indexes => 'insert'),
	load_sql("$directory/odd", 'merged', workers => 2, lock => 'share', indexes => 'merge'),
	load_sql("$directory/second", 'emptied', workers => 2, truncate => 'true'));
healthy($primary, 'the old primary');
point_set($primary, 'append.done', 'wait');
($pid, $finish) = begin_session($primary, "$small " . load_sql("$directory/third", 'stored', workers => 2));
point_wait($primary, 'append.done', 3);
$primary->stop('immediate');
$finish->();
point_clear($primary);
point_set($standby, 'append.done', 'wait');
($pid, $finish) = begin_session($standby, "$small " . load_sql("$directory/odd", 'stored', workers => 2));
point_wait($standby, 'append.done', 3);
my $configuration = $primary->data_dir . '/postgresql.conf';
copy($configuration, "$directory/postgresql.conf") or die $!;
command_ok([ 'pg_rewind', '--no-sync', '-D', $primary->data_dir, '--source-server', $standby->connstr('postgres') ], 'pg_rewind during a load');
copy("$directory/postgresql.conf", $configuration) or die $!;
rmtree($primary->data_dir . '/pg_bulk_points');
point_clear($standby);
is(($finish->())[0], "20000\n", '... the load ends');
$primary->enable_streaming($standby);
$primary->start;
standby_equal($standby, $primary, @tables, 'busy');
healthy($standby, 'the new primary');
is($standby->safe_psql('postgres', join(' UNION ALL ', map { "SELECT count(*) FROM $_" } @tables)), "60000\n20000\n20000\n20000", 'what the new primary has');
checksums_ok($_) for $primary, $standby;
$primary->stop;
$standby->stop;
done_testing();
