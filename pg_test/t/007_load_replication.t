
# Loaded rows reach all servers: a standby has the same tuples at the same
# TIDs, point-in-time recovery ends at the target, a subscriber gets
# every row once, and none of a failed load. The server compares each page
# that it replays with an image that the primary put into the WAL beside the record.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use IPC::Run ();
use Test::More;
use File::Spec::Functions qw(rel2abs);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Load qw(checksums_ok healthy indexes_find kinds load_server load_sql make_tables numbers_file rows_of standby_equal standby_of);
use Points qw(point_clear point_set point_wait);

my $directory = rel2abs(PostgreSQL::Test::Utils::tempdir('files'));
my ($first, $second, $third, $bad, $twice) = map { "$directory/$_" } qw(first second third bad twice);
numbers_file($first, 1, 40_000);
numbers_file($second, 40_001, 60_000);
numbers_file($third, 200_001, 210_000);
numbers_file($bad, 60_001, 90_000);
append_to_file($bad, "90001,word,no time\n");
# Some keys exist already.
numbers_file($twice, 300_001, 330_000);
append_to_file($twice, join('', map { "$_,again,2024-02-29 12:00:00\n" } map { 300_000 + 37 * $_ } 1 .. 800));
# Many chunks, so that workers get some.
my $small_chunks = "SET pg_bulk.chunk_size = '8kB';";

my @tables = kinds();

#
# wal_level = replica: a standby, and an archive.
#
my $primary = load_server('primary', wal_consistency_checking => 'all', archive_mode => 'on', archive_command => '/bin/false', max_wal_size => '4GB',
	# A checkpoint must not remove WAL that a slow standby still needs.
	wal_keep_size => '1GB');
my $archive = $primary->archive_dir;
$primary->append_conf('postgresql.conf', "archive_command = 'cp \"%p\" \"$archive/%f\"'");
$primary->reload;
make_tables($primary, @tables);
$primary->backup('before');
my $standby = standby_of($primary, 'standby');

sub load
{
	my ($node, $path, $table, %options) = @_;
	return $node->safe_psql('postgres', "$small_chunks " . load_sql($path, $table, %options));
}

# Tables that existed before.
is(load($primary, $first, $_, workers => 2), '40000', "$_: a load by three processes") for @tables;
standby_equal($primary, $standby, @tables);
is($standby->safe_psql('postgres', 'SELECT string_agg(target, \' \' ORDER BY load_id) FROM bulk_history'),
	join(' ', map { "public.$_" } @tables), 'the standby has the history');
my %after_first = map { $_ => rows_of($primary, $_) } @tables;
$primary->safe_psql('postgres', "SELECT pg_create_restore_point('first')");

# Loads that fail, after pages were written and during a write.
$primary->safe_psql('postgres', 'CHECKPOINT');
for my $table (@tables)
{
	my ($status, $stdout, $stderr) = $primary->psql('postgres', "$small_chunks " . load_sql($bad, $table, workers => 2));
	like($stderr, qr/invalid input syntax for type timestamp: "no time"/, "$table: a load fails");
	point_set($primary, 'append.write', 'errno=28 after=1 once');
	($status, $stdout, $stderr) = $primary->psql('postgres', "$small_chunks " . load_sql($second, $table, workers => 2));
	like($stderr, qr/No space left on device/, "$table: a write fails");
	point_clear($primary);
	is(rows_of($primary, $table), $after_first{$table}, "$table: ... and no row is left");
}
standby_equal($primary, $standby, @tables);

# New files: tables created or truncated in the transaction. Frozen rows. A subtransaction that fails.
$primary->safe_psql('postgres', <<"SQL");
$small_chunks
BEGIN;
CREATE TABLE made (id int PRIMARY KEY, word text, at timestamp);
CREATE INDEX made_tuples ON made (lower(word), at) INCLUDE (id) WHERE id > 0;
@{[ load_sql($first, 'made', workers => 2) ]};
COMMIT;
@{[ load_sql($second, 'plain', workers => 2, truncate => 'true') ]};
CREATE TABLE frozen (id int, word text, at timestamp);
BEGIN;
TRUNCATE frozen;
@{[ load_sql($first, 'frozen', workers => 2, freeze => 'true') ]};
COMMIT;
CREATE TABLE kept (id int, word text, at timestamp);
BEGIN;
@{[ load_sql($first, 'kept', workers => 2) ]};
SAVEPOINT s;
@{[ load_sql($second, 'kept', workers => 2) ]};
ROLLBACK TO s;
@{[ load_sql($second, 'kept', workers => 1) ]};
COMMIT;
VACUUM;
SQL
push @tables, qw(made frozen kept);
is($primary->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM kept'), '60000|60000', 'a subtransaction that was rolled back leaves no row');
is($primary->safe_psql('postgres', "SELECT count(*) FROM heap_page_items(get_raw_page('frozen', 0)) WHERE t_infomask & 768 = 768"),
	$primary->safe_psql('postgres', "SELECT count(*) FROM heap_page_items(get_raw_page('frozen', 0))"), 'frozen rows are frozen');
healthy($primary, 'after all loads');
standby_equal($primary, $standby, @tables);

# Duplicates are removed directly in the pages of a new file, also in pages that a checkpoint has synced
# since they were written. The removal survives a crash.
my @rivals;
for my $keep (qw(keep_old keep_new))
{
	for my $between ('nothing', 'checkpoint')
	{
		my $table = "rivals_${keep}_$between";
		push @rivals, $table;
		$primary->safe_psql('postgres', "CREATE TABLE $table (id int PRIMARY KEY, word text, at timestamp)");
		point_set($primary, 'remove.begin', 'wait') if $between eq 'checkpoint';
		my ($out, $err) = ('', '');
		my $load = IPC::Run::start([ 'psql', '-XAtq', '-d', $primary->connstr('postgres'), '-c', "$small_chunks " . load_sql($twice, $table, workers => 2, on_duplicate => $keep) ],
			'>', \$out, '2>', \$err, IPC::Run::timeout(60));
		if ($between eq 'checkpoint')
		{
			point_wait($primary, 'remove.begin');
			$primary->safe_psql('postgres', 'CHECKPOINT');
			point_clear($primary);
		}
		$load->finish;
		is("$out$err", "30000\n", "$table: a load that leaves rows out");
		is($primary->safe_psql('postgres', "SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE word = 'again') FROM $table"),
			join('|', 30_000, 30_000, $keep eq 'keep_new' ? 800 : 0), "$table: ... others than those that stay");
	}
}
healthy($primary, 'after loads that left rows out');
standby_equal($primary, $standby, @rivals);
push @tables, @rivals;
my %before_crash = map { $_ => rows_of($primary, $_) } @rivals;
$primary->stop('immediate');
$primary->start;
is(rows_of($primary, $_), $before_crash{$_}, "$_: a crash changes nothing") for @rivals;

# Compression of page images must make no difference: loads write none.
for my $method ('pglz', 'off')
{
	my $table = "compressed_$method";
	$primary->safe_psql('postgres', "ALTER SYSTEM SET wal_compression = $method; ALTER SYSTEM SET wal_consistency_checking = ''; SELECT pg_reload_conf();
		CREATE TABLE $table (id int, word text, at timestamp); INSERT INTO $table VALUES (0)");
	my $size = $primary->safe_psql('postgres', "$small_chunks CREATE TEMPORARY TABLE lsn AS SELECT pg_current_wal_insert_lsn() AS lsn; "
		  . 'CREATE TEMPORARY TABLE done AS ' . load_sql($first, $table, workers => 2) . '; SELECT pg_current_wal_insert_lsn() - lsn FROM lsn');
	push @tables, $table;
	my $heap = $primary->safe_psql('postgres', "SELECT pg_relation_size('$table')");
	cmp_ok($size, '<', $heap, "wal_compression = $method: less WAL than data ($size of $heap bytes)");
}
standby_equal($primary, $standby, @tables);

# The standby is promoted. VACUUM must cope with anything that a failed load left.
$standby->promote;
$standby->safe_psql('postgres', 'VACUUM (FREEZE)');
healthy($standby, 'the promoted standby');
is(load($standby, $second, 'plain', workers => 2), '20000', 'it can be loaded into');
healthy($standby, 'the promoted standby, loaded');
checksums_ok($standby);

# Recovery to a point in time.
$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($primary, 'before', has_restoring => 1);
$restored->append_conf('postgresql.conf', "recovery_target_name = 'first'\nrecovery_target_action = 'promote'");
$restored->start;
$restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
is(rows_of($restored, $_), $after_first{$_}, "$_: a recovery to a point in time has the rows of that time") for grep { !/made|frozen|kept|compressed|rivals/ } @tables;
healthy($restored, 'the restored server');
$restored->stop;
checksums_ok($primary);
$primary->stop;
$standby->stop;

#
# wal_level = logical: a subscriber.
#
my $publisher = load_server('publisher', allows_streaming => 'logical', logical_decoding_work_mem => '64kB', max_replication_slots => 10);
my $subscriber = load_server('subscriber', allows_streaming => 'logical');
@tables = grep { $_ ne 'numbered' } kinds();
make_tables($publisher, @tables);
# A subscriber computes no generated columns or defaults.
make_tables($subscriber, @tables);
$subscriber->safe_psql('postgres', 'ALTER TABLE toasted ALTER long DROP EXPRESSION, ALTER short DROP EXPRESSION');
$subscriber->safe_psql('postgres', "TRUNCATE $_") for @tables;
$publisher->safe_psql('postgres', 'CREATE PUBLICATION everything FOR ALL TABLES');
my $connection = $publisher->connstr('postgres') =~ s/'/''/gr;
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION everything CONNECTION '$connection' PUBLICATION everything WITH (streaming = on)");
$subscriber->wait_for_subscription_sync($publisher, 'everything');

my $columns = sub { return $_[0] eq 'toasted' ? '(SELECT id, word, at FROM toasted)' : $_[0]; };
sub subscriber_equal
{
	my ($name) = @_;
	$publisher->wait_for_catchup('everything');
	is(rows_of($subscriber, $columns->($_)), rows_of($publisher, $columns->($_)), "$_: the subscriber has the rows: $name") for @tables;
	return;
}
subscriber_equal('before');
load($publisher, $first, $_, workers => 2) for @tables;
subscriber_equal('loads by three processes');
# The history is not published, since the subscriber might lack the table.
is($publisher->safe_psql('postgres', 'SELECT count(*) FROM bulk_history'), scalar(@tables), 'the history has the loads');
is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM bulk_loads'), '0', '... and is not published');
for my $table (@tables)
{
	$publisher->psql('postgres', "$small_chunks " . load_sql($bad, $table, workers => 2));
	$publisher->safe_psql('postgres', "$small_chunks BEGIN; INSERT INTO $table VALUES (100000, 'inserted', now()); SAVEPOINT s; "
		  . load_sql($second, $table, workers => 2) . '; RELEASE s; SAVEPOINT t; '
		  . load_sql($third, $table, workers => 2, where => 'id % 2 = 0') . '; ROLLBACK TO t; COMMIT');
}
subscriber_equal('savepoints, and loads that fail');
$subscriber->safe_psql('postgres', "ALTER SUBSCRIPTION everything SET (streaming = off)");
for my $table (@tables)
{
	$publisher->safe_psql('postgres', "TRUNCATE $table");
	load($publisher, $second, $table, workers => 2);
}
subscriber_equal('after TRUNCATE, without streaming');
# The direct writer would insert a duplicate and delete it again, and a subscriber would fail at the insert. So the server's own
# INSERT skips duplicates here, keep_new is refused, and a duplicate is an error.
my ($overlap, $apart) = ("$directory/overlap", "$directory/apart");
numbers_file($overlap, 59_990, 60_020);
numbers_file($apart, 400_001, 400_020);
append_to_file($apart, "400021,word,no time\n");
sub outcome
{
	my ($path, %options) = @_;
	my $sql = load_sql($path, 'keyed', %options) =~ s/rows_loaded/concat_ws(' ', rows_loaded, rows_rejected, rows_duplicate, writer, notes)/r;
	my ($status, $stdout, $stderr) = $publisher->psql('postgres', "\\set VERBOSITY verbose\nSET client_min_messages = error; $small_chunks $sql");
	return $status ? ($stderr =~ /ERROR:  (\w+: .*)\n(?:DETAIL:  (.*))?/) : $stdout;
}
my $why = 'Changes of table "keyed" are decoded';
my ($refused, $detail) = outcome($overlap, on_duplicate => 'keep_old');
like($refused, qr/^0A000: .*direct writer/, 'keep_old, with the direct writer');
is($detail, "$why for logical replication.", '... and why not');
is(outcome($overlap, on_duplicate => 'keep_old', writer => 'auto'), qq(20 0 11 buffered {"Changes of table \\"keyed\\" are decoded for logical replication."}), 'keep_old');
($refused, $detail) = outcome($overlap, on_duplicate => 'keep_new', writer => 'auto');
like($refused, qr/^0A000: cannot replace rows of "keyed" with the buffered writer/, 'keep_new');
is($detail, "$why for logical replication.", '... and why not');
like((outcome($first, on_error => 'table', workers => 2))[0] // '', qr/^40000 /, 'on_error "table", without a row that loses');
like((outcome($overlap, on_error => 'table', workers => 2))[0], qr/^23505: duplicate key value violates unique constraint "keyed_pkey"/, 'on_error "table", with a duplicate key');
is(outcome($apart, on_error => 'table', workers => 2),
	qq(20 1 0 direct {"$why for subscribers, where a duplicate key or an orphan would be an error."}) =~ s/"keyed"/\\"keyed\\"/r, 'on_error "table", with a value that is none');
is($publisher->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM keyed'), '60040|60040', 'each key is there once');
subscriber_equal('rows that lose');
healthy($publisher, 'publisher');
checksums_ok($publisher);
$subscriber->stop;
$publisher->stop;

#
# wal_level = minimal: new files have no WAL, and exist after a crash.
#
my $alone = load_server('alone', wal_level => 'minimal', max_wal_senders => 0, allows_streaming => 0);
@tables = kinds();
make_tables($alone, @tables);
for my $threshold ('0', '1GB')
{
	$alone->safe_psql('postgres', "ALTER SYSTEM SET wal_skip_threshold = '$threshold'; SELECT pg_reload_conf()");
	for my $table (@tables)
	{
		$alone->safe_psql('postgres', "$small_chunks BEGIN; TRUNCATE $table; " . load_sql($first, $table, workers => 2) . '; '
			  . load_sql($second, $table, workers => 0) . "; INSERT INTO $table VALUES (-1, 'one', 'epoch'); COMMIT");
	}
	my %rows = map { $_ => rows_of($alone, $_) } @tables;
	$alone->stop('immediate');
	$alone->start;
	for my $table (@tables)
	{
		is(rows_of($alone, $table), $table eq 'unlogged' ? '0|0' : $rows{$table}, "$table: wal_level minimal, threshold $threshold, after a crash");
	}
	healthy($alone, 'wal_level minimal');
	load($alone, $first, $_, workers => 2, truncate => 'true') for @tables;
	%rows = map { $_ => rows_of($alone, $_) } @tables;
	$alone->stop('immediate');
	$alone->start;
	is(rows_of($alone, $_), $_ eq 'unlogged' ? '0|0' : $rows{$_}, "$_: emptied and loaded, after a crash") for @tables;
	healthy($alone, 'wal_level minimal, truncate');
}
# Indexes that the server's code builds, several at once: workers, too, must know that nothing is logged. Those of an unlogged table
# are empty after a crash, and usable.
my %others = (id => [ 'hash (id)', 'id = 4077' ], number => [ 'gin ((ARRAY[id % 100]))', "ARRAY[id % 100] @> '{7}'" ],
	point => [ 'gist (point(id, 1))', "point(id, 1) <@ box '((100,0),(900,2))'" ], start => [ 'spgist (word)', "word ^@ 'word 1e'" ],
	at => [ 'brin (at)', "at = '2024-02-29 12:30:03'" ], lower => [ 'btree (lower(word))', "lower(word) = 'word 1eef'" ]);
sub find_others
{
	my ($table, $name) = @_;
	return indexes_find($alone, $name, $table, map { ("${table}_$_" => $others{$_}[1]) } keys %others);
}
for my $table ('others', 'fleeting')
{
	$alone->safe_psql('postgres', 'CREATE ' . ($table eq 'fleeting' ? 'UNLOGGED ' : '') . "TABLE $table (id int, word text, at timestamp); "
		  . join('', map { "CREATE INDEX ${table}_$_ ON $table USING $others{$_}[0]; " } sort keys %others));
}
for my $threshold ('0', '1GB')
{
	$alone->safe_psql('postgres', "ALTER SYSTEM SET wal_skip_threshold = '$threshold'; SELECT pg_reload_conf()");
	$alone->safe_psql('postgres', 'CHECKPOINT');
	my $before = $alone->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
	load($alone, $first, 'others', workers => 2, truncate => 'true');
	my $log = $alone->safe_psql('postgres', "SELECT pg_current_wal_insert_lsn() - '$before'");
	cmp_ok($log, '<', 200_000, "others: with threshold $threshold there is no WAL of pages") if $threshold eq '0';
	load($alone, $first, 'fleeting', workers => 2, truncate => 'true');
	find_others('fleeting', "unlogged, threshold $threshold");
	my $rows = rows_of($alone, 'others');
	$alone->stop('immediate');
	$alone->start;
	is(rows_of($alone, 'others'), $rows, "others: wal_level minimal, threshold $threshold, after a crash");
	find_others('others', "wal_level minimal, threshold $threshold, after a crash");
	is($alone->safe_psql('postgres', "INSERT INTO fleeting SELECT * FROM others; SELECT count(*) FROM fleeting"), '40000', "unlogged, threshold $threshold: after a crash it is empty, and can be inserted into");
	# The planner has no sane cost for a BRIN index without summaries.
	$alone->safe_psql('postgres', "SELECT brin_summarize_new_values('fleeting_at')");
	find_others('fleeting', "unlogged, threshold $threshold, after a crash and an INSERT");
	healthy($alone, 'wal_level minimal, others');
}
checksums_ok($alone);
$alone->stop;
# Two rows are removed from one page: one with an out-of-line value, which the server deletes in a buffer, then one that
# is marked in the file. The change in the buffer must not be lost if the buffer is reused just then; there are few buffers.
my $mixed = "$directory/mixed";
append_to_file($mixed, join '', map { "$_," . ($_ == 111 ? 2 : 1) . ',' . ($_ == 91 ? 'x' x 5000 : '') . "\n" } 91, 101 .. 111);
my $few = load_server('few', shared_buffers => '1MB');
$few->safe_psql('postgres', 'CREATE EXTENSION pg_prewarm; CREATE TABLE filler AS SELECT a, repeat(a::text, 100) FROM generate_series(1, 20000) a;
	CREATE TABLE parent AS SELECT 1 AS id; ALTER TABLE parent ADD PRIMARY KEY (id)');
point_set($few, 'remove.looked', 'wait after=1');
my ($counts, $trouble) = ('', '');
my $race = IPC::Run::start([
		'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $few->connstr('postgres'),
		map { ('-c', $_) } 'BEGIN', 'CREATE TABLE raced (id int PRIMARY KEY, parent int REFERENCES parent, long text)',
		'ALTER TABLE raced ALTER long SET STORAGE EXTERNAL', 'INSERT INTO raced SELECT a, 1 FROM generate_series(1, 100) a',
		load_sql($mixed, 'raced', on_error => 'table'), 'COMMIT'
	],
	'>', \$counts, '2>', \$trouble, IPC::Run::timeout(60));
point_wait($few, 'remove.looked');
$few->safe_psql('postgres', "SELECT sum(pg_prewarm('filler')) FROM generate_series(1, 10)");
point_clear($few);
$race->finish;
like("$counts$trouble", qr/^10\nNOTICE:  2 rows were rejected\nHINT:  See view bulk_rejects, load_id = \d+\.\n\z/, 'rows are taken out of a page that leaves its buffer');
is($few->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id), max(id) FROM raced'), '110|110|110', '... where no other change is lost');
healthy($few, 'a page that leaves its buffer');
$few->stop;
done_testing();
