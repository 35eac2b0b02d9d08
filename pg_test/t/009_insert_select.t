
# INSERT … SELECT from a foreign table as a load, for cases that need a server of their
# own. These are fresh connections, the corpus compared with COPY, statistics and counters,
# standbys and subscribers, and processes that end during the load.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use JSON::PP qw(decode_json);
use Test::More;
use Time::HiRes qw(usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Cases qw(add_chapter add_generated);
use Corpus qw(csv chapters);
use Differential qw(bulk_fdw sample seed);
use LoadDifferential;
use InsertDifferential;
use Load qw(load_server standby_of numbers_file begin_session healthy rows_of standby_equal checksums_ok kinds make_tables);
use Points qw(point_set point_wait point_clear);

plan skip_all => 'file_fdw does not load' unless bulk_fdw();

note 'PG_BULK_SEED=' . seed();
my $directory = PostgreSQL::Test::Utils::tempdir('insert_select');
chmod 0755, $directory;
numbers_file("$directory/rows", 1, 30_000);
numbers_file("$directory/more", 30_001, 40_000);
numbers_file("$directory/others", 50_001, 51_000);

my $node = load_server('primary', allows_streaming => 'logical', wal_consistency_checking => 'heap,heap2,btree',
	shared_preload_libraries => 'pg_stat_statements', session_preload_libraries => '', 'pg_bulk.chunk_size' => 8192,
	max_prepared_transactions => 4, logical_decoding_work_mem => '64kB', lock_timeout => '20s',
	conf => "auto_explain.log_min_duration = -1\n");
$node->safe_psql('postgres', 'CREATE EXTENSION pg_stat_statements');
my @tables = grep { $_ ne 'numbered' } kinds();
make_tables($node, @tables, 'numbered');
for my $file (qw(rows more others))
{
	$node->safe_psql('postgres',
		"CREATE FOREIGN TABLE $file (id int, word text, at timestamp) SERVER bulk_files OPTIONS (filename '$directory/$file', format 'csv')");
}
my $insert = sub { my ($table, $file) = @_; return "INSERT INTO $table (id, word, at) SELECT * FROM " . ($file // 'rows'); };

# The library is loaded while the first statement of a connection is planned.
like($node->safe_psql('postgres', 'EXPLAIN ' . $insert->('plain')), qr/^Custom Scan \(Direct Insert\)/, 'the first statement of a connection');
like($node->safe_psql('postgres', 'EXPLAIN (ANALYZE, COSTS OFF) ' . $insert->('plain') . ' WHERE id < 0'),
	qr/Rows Removed by Filter: 30000.*Workers Launched: 2/s, '... has workers');

# Into tables of all types, with a standby and a subscriber.
my $standby = standby_of($node, 'standby');
my $subscriber = load_server('subscriber', allows_streaming => 'logical');
make_tables($subscriber, @tables);
$subscriber->safe_psql('postgres', 'ALTER TABLE toasted ALTER long DROP EXPRESSION, ALTER short DROP EXPRESSION');
$subscriber->safe_psql('postgres', "TRUNCATE $_") for @tables;
$node->safe_psql('postgres', 'CREATE PUBLICATION inserted FOR TABLE ' . join(', ', @tables));
my $connection = $node->connstr('postgres') =~ s/'/''/gr;
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION inserted CONNECTION '$connection' PUBLICATION inserted WITH (streaming = on)");
$subscriber->wait_for_subscription_sync($node, 'inserted');
for my $table (@tables, 'numbered')
{
	my $explained = decode_json($node->safe_psql('postgres', 'EXPLAIN (ANALYZE, BUFFERS, WAL, FORMAT JSON) ' . $insert->($table)));
	my $plan = $explained->[0]{Plan};
	is($plan->{'Custom Plan Provider'}, 'Direct Insert', "$table: EXPLAIN as JSON");
	is($plan->{'Workers Launched'} . '|' . $plan->{'Rows Inserted'}, '2|30000', "$table: ... of a load by three processes");
	# The WAL has all rows, from every process.
	cmp_ok($plan->{'WAL Bytes'}, '>', 30_000 * 40, "$table: ... whose WAL is all there: $plan->{'WAL Bytes'} bytes");
	cmp_ok($plan->{'WAL Records'}, '>', 150, "$table: ... in $plan->{'WAL Records'} records");
	is($node->safe_psql('postgres', "SELECT count(*) FROM $table WHERE id > 0"), '30000', "$table: has the rows");
	$node->safe_psql('postgres', "BEGIN; SAVEPOINT a; @{[ $insert->($table, 'more') ]}; ROLLBACK TO a; @{[ $insert->($table, 'more') ]} WHERE id % 2 = 0; COMMIT");
	is($node->safe_psql('postgres', "SELECT count(*) FROM $table WHERE id > 0"), '35000', "$table: has those of a subtransaction");
}
healthy($node, 'after INSERTs');
standby_equal($node, $standby, @tables, 'numbered');
$node->wait_for_catchup('inserted');
for my $table (@tables)
{
	my $columns = $table eq 'toasted' ? '(SELECT id, word, at FROM toasted)' : $table;
	is(rows_of($subscriber, $columns), rows_of($node, $columns), "$table: the subscriber has the rows");
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM bulk_history'), '0', 'INSERTs are not in the history');
$subscriber->stop;
$node->safe_psql('postgres', "SELECT pg_drop_replication_slot('inserted')");

# Buffers and WAL of workers are counted for the statement. The WAL figures match the bytes written.
$node->safe_psql('postgres', 'CREATE TABLE measured (LIKE plain); SELECT pg_stat_statements_reset()');
my $written;
for my $workers (0, 2)
{
	my $before = $node->safe_psql('postgres', 'CHECKPOINT; SELECT pg_current_wal_insert_lsn()');
	my $plan = decode_json($node->safe_psql('postgres',
		"SET pg_bulk.workers = $workers; EXPLAIN (ANALYZE, BUFFERS, WAL, FORMAT JSON) @{[ $insert->('measured') ]}"))->[0]{Plan};
	is($plan->{'Workers Launched'}, $workers, "an INSERT with $workers workers");
	$written = $node->safe_psql('postgres', "SELECT pg_current_wal_insert_lsn() - '$before'");
	cmp_ok($plan->{'WAL Bytes'}, '>', 0.8 * $written, "WAL: $plan->{'WAL Bytes'} bytes of $written");
	cmp_ok($plan->{'WAL Bytes'}, '<=', $written, '... and no more');
}
my ($calls, $rows, $wal, $records);
for my $workers (0, 2)
{
	$node->safe_psql('postgres', "SELECT pg_stat_statements_reset(); SET pg_bulk.workers = $workers");
	$node->safe_psql('postgres', "SET pg_bulk.workers = $workers; @{[ $insert->('measured') ]}; @{[ $insert->('measured') ]}");
	($calls, $rows, $wal, $records) = split /\|/, $node->safe_psql('postgres',
		"SELECT calls, rows, wal_bytes, wal_records FROM pg_stat_statements WHERE query LIKE 'INSERT INTO measured%'");
	is("$calls|$rows", '2|60000', "pg_stat_statements, $workers workers: calls and rows");
	cmp_ok($wal, '>', 2 * 0.8 * $written, "pg_stat_statements, $workers workers: $wal bytes of WAL");
}
my $log = -s $node->logfile;
$node->safe_psql('postgres', "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_analyze = on; SET auto_explain.log_buffers = on;
	SET auto_explain.log_wal = on; SET auto_explain.log_triggers = on; SET auto_explain.log_nested_statements = on; @{[ $insert->('measured') ]}");
my $logged = slurp_file($node->logfile, $log);
like($logged, qr/Custom Scan \(Direct Insert\) .*Workers Launched: 2.*Rows Inserted: 30000/s, 'auto_explain tells of it');
my ($bytes) = $logged =~ /Rows Inserted: 30000.*?WAL: records=\d+.*? bytes=(\d+)/s;
cmp_ok($bytes // 0, '>', 0.8 * $written, '... and of its WAL');
# CREATE TABLE AS has the same counts, in either order of preloaded libraries.
$node->safe_psql('postgres', 'SELECT pg_stat_statements_reset()');
for my $libraries ("LOAD 'auto_explain'; LOAD 'pg_bulk'", "LOAD 'pg_bulk'; LOAD 'auto_explain'")
{
	$log = -s $node->logfile;
	$node->safe_psql('postgres', "$libraries; SET auto_explain.log_min_duration = 0; SET auto_explain.log_analyze = on; SET auto_explain.log_wal = on;
		SET pg_bulk.workers = 2; CREATE TABLE made AS SELECT * FROM rows");
	$logged = slurp_file($node->logfile, $log);
	like($logged, qr/Foreign Scan on rows .*rows=30000(\.00)? .*Direct Insert: yes/s, "auto_explain tells of a CREATE TABLE AS: $libraries");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM made; DROP TABLE made'), '30000', '... which has the rows');
}
($calls, $rows, $wal) = split /\|/, $node->safe_psql('postgres', "SELECT calls, rows, wal_bytes FROM pg_stat_statements WHERE query LIKE 'CREATE TABLE made%'");
is("$calls|$rows", '2|60000', 'pg_stat_statements: calls and rows of a CREATE TABLE AS');
cmp_ok($wal, '>', 2 * 0.8 * $written, "... and its WAL: $wal bytes");
SKIP:
{
	skip 'there is no pg_hint_plan', 2 if !-e $node->config_data('--pkglibdir') . '/pg_hint_plan.so';
	for my $libraries ("LOAD 'pg_hint_plan'", "LOAD 'pg_bulk'; LOAD 'pg_hint_plan'")
	{
		like($node->safe_psql('postgres', "$libraries; EXPLAIN /*+ NoSeqScan(plain) */ " . $insert->('plain')), qr/^Custom Scan \(Direct Insert\)/, $libraries);
	}
}
is($node->safe_psql('postgres', "SELECT n_tup_ins, n_live_tup FROM pg_stat_user_tables WHERE relname = 'measured'"), '210000|210000', 'all rows are counted');
is($node->safe_psql('postgres', "BEGIN; @{[ $insert->('measured') ]}; PREPARE TRANSACTION 'two'; SELECT count(*) FROM measured; COMMIT PREPARED 'two'; SELECT count(*) FROM measured"),
	"210000\n240000", 'a prepared transaction');

# Blocks that workers read count as read by the statement. Only workers read them, since the leader waits.
$node->safe_psql('postgres', "CREATE TABLE looked_up AS SELECT i AS id, repeat('x', 500) AS name FROM generate_series(1, 3000) i; ANALYZE looked_up; CREATE TABLE joined (LIKE plain)");
my $pages = $node->safe_psql('postgres', "SELECT pg_relation_size('looked_up') / 8192");
my %touched;
for my $workers (0, 2)
{
	if ($workers)
	{
		point_set($node, 'load.launched', 'wait');
		point_set($node, 'worker.end', 'wait');
	}
	my (undef, $end) = begin_session($node, "SET pg_bulk.workers = $workers; EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
		INSERT INTO joined SELECT r.id, left(l.name, 5), r.at FROM rows r JOIN looked_up l ON l.id = r.id");
	if ($workers)
	{
		point_wait($node, 'worker.end', $workers);
		point_clear($node);
	}
	my ($out, $err) = $end->();
	my $plan = decode_json($out)->[0]{Plan};
	is("$plan->{'Custom Plan Provider'} $plan->{'Workers Launched'} $plan->{'Rows Inserted'}$err", "Direct Insert $workers 3000", "a join with $workers workers");
	$touched{$workers} = $plan->{'Shared Hit Blocks'} + $plan->{'Shared Read Blocks'};
	note "$workers workers: $touched{$workers} buffers";
}
cmp_ok($touched{0}, '>=', $pages, "buffers of a table of $pages pages");
cmp_ok($touched{2}, '>=', $touched{0}, '... which are counted for workers, too');

# A locked partition that gets no row is not waited for; nor are other partitions locked that get no row.
{
	$node->safe_psql('postgres', 'CREATE TABLE shut (id int, word text, at timestamp) PARTITION BY LIST (id); CREATE TABLE shut_1 PARTITION OF shut FOR VALUES IN (1);
		CREATE TABLE shut_2 PARTITION OF shut FOR VALUES IN (2); CREATE TABLE shut_rest PARTITION OF shut DEFAULT');
	my $one = 'INSERT INTO shut SELECT * FROM rows WHERE id = 1';
	my $locks = q{SELECT string_agg(relation::regclass::text, ' ' ORDER BY relation) FROM pg_locks WHERE pid = pg_backend_pid() AND relation::regclass::text LIKE 'shut\_%'};
	is($node->safe_psql('postgres', "BEGIN; $one; $locks"), 'shut_1 shut_2 shut_rest', 'all partitions are locked');
	my $locker = $node->background_psql('postgres');
	$locker->query_safe('BEGIN; LOCK shut_rest IN SHARE MODE');
	is($node->safe_psql('postgres', "SET lock_timeout = '2s'; BEGIN; $one; $locks; COMMIT"), 'shut_1', 'a locked partition is not waited for, and others are not locked');
	like($node->safe_psql('postgres', "EXPLAIN (ANALYZE, COSTS OFF) $one"), qr/Direct Insert: no \(A partition is locked by somebody else\)/, '... which EXPLAIN tells');
	like(($node->psql('postgres', "SET lock_timeout = '200ms'; INSERT INTO shut SELECT * FROM rows WHERE id < 4"))[2], qr/lock timeout/, '... unless a row goes there');
	$locker->query_safe('COMMIT');
	$locker->quit;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM shut'), '2', '... and the rows come');
}

# However the load ends in the middle, no row is left, and the next load works.
my %before = map { $_ => rows_of($node, $_) } @tables;
for my $how (qw(pg_cancel_backend pg_terminate_backend worker_cancel worker_terminate timeout))
{
	for my $table (qw(keyed parts))
	{
		point_set($node, 'load.rows', 'wait');
		point_set($node, 'worker.end', 'wait');
		my ($pid, $end) = begin_session($node, ($how eq 'timeout' ? "SET statement_timeout = '500ms'; " : '') . $insert->($table));
		point_wait($node, 'load.rows');
		my @workers = point_wait($node, 'worker.end');
		my $whom = $how =~ /^worker/ ? $workers[0] : $pid;
		my $function = $how =~ /cancel/ ? 'pg_cancel_backend' : 'pg_terminate_backend';
		is($node->safe_psql('postgres', "SELECT $function($whom)"), 't', "$how: is sent") if $how ne 'timeout';
		usleep(700_000) if $how eq 'timeout';
		point_clear($node);
		my ($out, $err) = $end->();
		like($err, qr/canceling statement|terminating|terminated/, "$how: $table: ends with an error");
		is(rows_of($node, $table), $before{$table}, "$how: $table: has no row");
	}
}
healthy($node, 'after INSERTs that were ended');
point_set($node, 'worker.end', 'wait');
my ($pid, $end) = begin_session($node, $insert->('keyed'));
point_wait($node, 'worker.end');
$node->stop('immediate');
point_clear($node);
$end->();
$node->start;
is(rows_of($node, $_), $before{$_}, "$_: has no row after a crash") for @tables;
healthy($node, 'after a crash');
$node->safe_psql('postgres', $insert->($_, 'others')) for @tables;
healthy($node, 'after the crash and more INSERTs');
standby_equal($node, $standby, @tables);
$standby->stop;
checksums_ok($node);

# The corpus.
# Its DDL takes long enough without full images of all pages.
$node->safe_psql('postgres', $_) for "ALTER SYSTEM SET wal_consistency_checking = ''", 'ALTER SYSTEM SET synchronous_commit = off', 'SELECT pg_reload_conf()', 'CREATE DATABASE corpus';
my $suite = InsertDifferential->new($node, 'corpus');
my %trials = (
	'another value' => [ qr/rows differ.*row 2: \(c,x\).*row 2: \(c,d\)/s, { bytes => "a,b\nc,x\n" } ],
	'another order' => [ qr/rows differ.*row 1: /s, { bytes => "c,d\na,b\n" } ],
	'another line number' => [ qr/errors differ|COPY fails|the load fails/s, { bytes => "a,b\na\n" } ]);
for my $name (sort keys %trials)
{
	my ($pattern, $oracle) = @{ $trials{$name} };
	$suite->expect_disagreement("the comparison sees $name", $pattern, "a,b\nc,d\n", 2, csv(), oracle => $oracle);
}
$suite->{random} = 1;
$suite->{share} = sample(0.03, 1);
add_chapter($suite, $_) for chapters();
add_generated($suite);
$suite->run;
my ($direct, $parallel, $core) = (0, 0, 0);
my %by;
for my $row ($suite->census)
{
	my ($writer, $workers, $number) = @$row;
	note "$number INSERTs: $writer, " . ($workers || 'no') . ' workers';
	$direct += $number if $writer eq 'direct';
	$parallel += $number if $writer eq 'direct' && $workers;
	$core += $number if $writer eq 'core';
	$by{$workers} += $number if $writer eq 'direct';
}
cmp_ok($by{$_} // 0, '>', 0, "some had $_ workers") for 0, 1, 2, 4;
cmp_ok($direct, '>', 3 * $core, 'most INSERTs were loads');
cmp_ok($parallel, '>', 20, 'many had workers');
$node->stop;
done_testing();
