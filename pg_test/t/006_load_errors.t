
# Loads that fail, and the state afterwards: a full or broken disk,
# caught errors, files and libraries that change during the load, statistics.
# PG_BULK_SOAK=1 tries all points; otherwise PG_BULK_SEED chooses some, and PG_BULK_TIMES more of them.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use File::Basename qw(dirname);
use List::Util qw(shuffle);
use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(sample seed write_bytes);
use Faults;
use Points qw(point_set point_wait point_clear point_taken);

note 'PG_BULK_SEED=' . seed();
srand(seed());

my $faults = Faults->new('errors');
my $node   = $faults->node;
my $good   = qr/^1500\|direct\|2$/m;

sub some
{
	my ($number, @cases) = @_;
	@cases = shuffle @cases;
	return @cases[ 0 .. sample($number, scalar @cases) - 1 ];
}

# A full or broken disk. Each process writes a batch in 16 pieces; a process has several batches of the large file.
$faults->write_rows('large', 1 .. 9000);
my %states = (28 => '53100', 5 => '58030');
my @disk;
for my $errno (sort keys %states)
{
	push @disk, map { [ $errno, 'append.allocate', $_ ] } ('leader', 'worker', 'after=1');
	push @disk, map { [ $errno, 'append.write', $_ ] } ('leader', 'worker', 'leader after=3', 'worker after=3', 'after=18');
}
for my $case (some(6, @disk))
{
	my ($errno, $point, $whom) = @$case;
	my $name = "$point: errno $errno, $whom";
	# Of the small file, a process has one batch, in one or few pieces.
	my $file = $whom =~ /after/ ? 'large' : 'small';
	my $load = $faults->bring($point, $whom, "errno=$errno", "\\set VERBOSITY verbose\n" . $faults->load_sql($file));
	like($load->end, qr/^ERROR:  $states{$errno}: could not extend file "base\/.*\nHINT:  Check free disk space\./, $name);
	ok(point_taken($node, $point), "$name: taken");
	point_clear($node);
	is($faults->outcome("INSERT INTO t VALUES (0, 'another', 'row')"), '', "$name: others can insert");
	is($faults->outcome('CHECKPOINT'), '', "$name: checkpoint") if rand() < 0.5;
	$faults->crash;
	$node->start;
	is($faults->outcome('DELETE FROM t WHERE id = 0 RETURNING wide'), 'another', "$name: recovery");
	is($faults->trouble, '', "$name: all is well");
}

# WAL was written before the pages that could not be written: recovery creates these, without the rows.
$node->safe_psql('postgres', 'CREATE EXTENSION pgstattuple');
my $pages = $faults->outcome("SELECT pg_relation_size('t')");
point_set($node, 'append.write', 'errno=28 once');
like($faults->outcome($faults->load_sql('small', 0)), qr/^ERROR:  could not extend file/, 'no page of a batch is written');
$faults->crash;
point_clear($node);
$node->start;
is($faults->outcome("SELECT dead_tuple_count, table_len > $pages FROM pgstattuple('t')"), '0|t', '... recovery makes empty ones');
is($faults->trouble, '', '... and all is well');

# Errors that the transaction survives.
my @errors = (
	(map { [ $_, 'leader', 'error' ] } qw(load.first load.launched load.rows load.received load.finalize load.key load.finalized)),
	[ 'load.key', 'leader after=2', 'error' ],
	(map { [ $_, 'worker', 'error' ] } qw(worker.begin worker.end)),
	(map { my $point = $_; map { [ $point, $_, 'error' ] } qw(leader worker) }
		qw(append.begin append.lock append.ready append.done chunk.claimed chunk.ticket wide.insert)),
	(map { my $point = $_; map { [ $point, $_, 'errno=28' ] } qw(leader worker) } qw(append.allocate append.write)));
# Only a failing subtransaction could leave the leader with the flag that delays checkpoints.
for my $case ([ 'append.write', 'leader', 'errno=28' ], some(7, @errors))
{
	my ($point, $who, $command) = @$case;
	for my $way ('savepoint', 'exception')
	{
		my $name = "$point: $command of $who, $way";
		my $sql = $faults->load_sql('small');
		my $caught = $way eq 'savepoint'
			? "\\set ON_ERROR_STOP off\nBEGIN; SAVEPOINT s;\n$sql;\nROLLBACK TO s; SELECT 'caught'"
			: "BEGIN; DO \$\$ BEGIN PERFORM * FROM ($sql) l; EXCEPTION WHEN OTHERS THEN
				RAISE NOTICE '%', SQLERRM; END \$\$; SELECT 'caught'";
		my $load = $faults->bring($point, $who, $command, $caught);
		ok($load->prints(qr/caught/, 20), "$name: is caught");
		like($load->{err}, $command eq 'error' ? qr/error at pg_bulk_points\/\Q$point\E/ : qr/could not extend file/, $name);
		my $checkpoint = $faults->begin("CHECKPOINT; SELECT 'done'");
		ok($checkpoint->prints(qr/done/, 2), "$name: a checkpoint ends");
		$checkpoint->end;
		$load->say("$sql; COMMIT;\n");
		ok($load->prints($good, 20), "$name: the transaction can load");
		$load->end;
		is($faults->trouble(1500), '', "$name: all is well");
	}
}

# A file that changes. At chunk.claimed each process has opened it.
my $path = $faults->path('changing');
my $tail = "1501,,half";
sub file_case
{
	my ($name, $point, $content, $change, $expected, $rows) = @_;
	write_bytes($path, $content);
	point_set($node, $point, 'wait');
	my $load = $faults->begin($faults->load_sql('changing'));
	if ($point eq 'chunk.claimed') { point_wait($node, $point, 3) }
	else
	{
		$faults->wait_at($point);
		# The leader has read its chunks, and waits for the workers. If
		# the file changed earlier, the leader would report another error.
		$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'client backend'
			AND query ~ 'bulk_load' AND wait_event_type IN ('Extension', 'IPC') AND pid <> pg_backend_pid()") or die 'the leader does not wait';
	}
	$change->();
	point_clear($node);
	like($load->end, $expected, "$name: the load");
	is($faults->outcome('SELECT count(*) FROM t WHERE id > 0'), $rows, "$name: rows");
	$faults->outcome('DELETE FROM t WHERE id > 0');
	is($faults->trouble, '', "$name: all is well");
	return;
}

sub append
{
	my ($bytes) = @_;
	open my $file, '>>:raw', $path or die $!;
	print $file $bytes;
	close $file or die $!;
	return;
}

my $content = Faults::rows(1 .. 1500);
my $changed = qr/^ERROR:  file ".*changing" changed while it was being read/;
file_case('truncated', 'chunk.claimed', $content, sub { truncate $path, 100_000 or die $! }, $changed, 0);
file_case('emptied', 'chunk.claimed', $content, sub { truncate $path, 0 or die $! }, $changed, 0);
file_case('replaced', 'chunk.claimed', $content,
	sub { write_bytes("$path.new", Faults::rows(2001 .. 3500)); rename "$path.new", $path or die $! }, $good, 1500);
file_case('removed', 'chunk.claimed', $content, sub { unlink $path or die $! }, $good, 1500);
# A worker has not opened the file yet: the name then means another file than the leader has open.
file_case('replaced early', 'worker.begin', $content,
	sub { write_bytes("$path.new", Faults::rows(2001 .. 3500)); rename "$path.new", $path or die $! }, $good, 1500);
file_case('removed early', 'worker.begin', $content, sub { unlink $path or die $! }, $good, 1500);
file_case('made a directory early', 'worker.begin', $content, sub { unlink $path or die $!; mkdir $path or die $! }, $good, 1500);
rmdir $path or die $!;
file_case('grown early', 'worker.begin', $content, sub { append(Faults::rows(1501 .. 1600)) }, $good, 1500);
file_case('truncated early', 'worker.begin', $content, sub { truncate $path, 100_000 or die $! }, $changed, 0);
file_case('written anew early', 'worker.begin', $content, sub { write_bytes($path, scalar reverse $content) }, $changed, 0);
file_case('grown', 'chunk.claimed', $content, sub { append(Faults::rows(1501 .. 1600)) }, $good, 1500);
file_case('grown in its last record', 'chunk.claimed', $content . $tail,
	sub { append("\n" . Faults::rows(1502 .. 1600)) }, qr/^1600\|direct\|2$/, 1600);

# Files of a list that grow after ids were reserved for their
# rows: added lines are not read, and neither is a part of a line.
mkdir $faults->path('list');
$node->safe_psql('postgres', 'CREATE TABLE ids (id serial, n int)');
sub list_case
{
	my ($name, $content, $added, $expected) = @_;
	my $before = $path;
	write_bytes($faults->path("list/$_"), $content) for 1, 2;
	$path = $faults->path('list/1');
	point_set($node, 'files.counted', 'wait');
	my $directory = $faults->path('list');
	my $load = $faults->begin("SELECT rows_loaded, workers FROM bulk_load('$directory', 'ids', '{\"workers\": 1, \"columns\": [\"n\"]}')");
	point_wait($node, 'files.counted', 2);
	append($added);
	$path = $before;
	point_clear($node);
	like($load->end, $expected, "$name: the load");
	return;
}
my $lines = join('', map { "$_\n" } 1 .. 3);
list_case('lines are added', $lines, $lines x 10, qr/^6\|1$/m);
is($node->safe_psql('postgres', 'SELECT count(DISTINCT id), sum(n) FROM ids'), '6|12', '... and none of them is loaded');
list_case('a line is added to', $lines . '4', "56\n7\n", qr/^ERROR:  file ".*list\/1" changed while it was being read/);

# Statistics.
my $alone = "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend'";
my $statistics = "SELECT n_tup_ins, n_live_tup, n_dead_tup FROM pg_stat_user_tables WHERE relname = 't'";
sub reset_statistics
{
	$node->poll_query_until('postgres', $alone);
	$faults->outcome("SELECT pg_stat_reset_single_table_counters('t'::regclass)");
	return;
}

reset_statistics();
like($faults->outcome($faults->load_sql('small')), $good, 'a good load');
$node->poll_query_until('postgres', $alone);
is($faults->outcome($statistics), '1500|1500|0', '... counts its rows');
is($faults->trouble(1500), '', '... which are there');
# Rows that were appended before the load failed. The count may miss the batch that a process is appending.
sub counts_dead
{
	my ($name, $load, $error, $dead) = @_;
	like($load->end, $error, $name);
	point_clear($node);
	$node->poll_query_until('postgres', $alone);
	my $there = $faults->outcome("SELECT dead_tuple_count FROM pgstattuple('t')");
	my ($inserted, $live, $counted) = split /\|/, $faults->outcome($statistics);
	is("$inserted|$live", "$counted|0", "$name: what was inserted is dead");
	cmp_ok($counted, '<=', $there, "$name: dead rows are counted once") unless defined $dead;
	is("$counted|$there", "$dead|$dead", "$name: all of them are counted") if defined $dead;
	is($faults->trouble, '', "$name: all is well");
	return;
}

for my $case ([ 'load.received', 'leader', 1500 ], [ 'append.done', 'leader' ], [ 'append.done', 'worker' ],
	[ 'chunk.ticket', 'leader', 0 ], [ 'worker.end', 'worker' ])
{
	my ($point, $who, $dead) = @$case;
	reset_statistics();
	my $load = $faults->bring($point, $who, 'wait');
	$faults->wait_at($point);
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $load->pid . ')');
	counts_dead("$point: $who waits, the load is cancelled", $load, qr/^ERROR:  canceling statement/, $dead);
}
write_bytes($path, $content . "no number,,x\n");
reset_statistics();
counts_dead('bad value', $faults->begin($faults->load_sql('changing')), qr/^ERROR:  invalid input syntax/);
write_bytes($path, $content . Faults::rows(1));
reset_statistics();
counts_dead('duplicate key', $faults->begin($faults->load_sql('changing')),
	qr/^ERROR:  duplicate key value/, 1501);

$node->stop;

# The library is replaced while sessions use it. The test needs an installation that it may change.
my ($bindir, $pkglibdir, $sharedir) = map { chomp(my $dir = `pg_config --$_`); $dir } qw(bindir pkglibdir sharedir);
my $root = PostgreSQL::Test::Utils::tempdir('install');
for my $copy ([ '-R', $bindir ], [ '-Rs', $pkglibdir ], [ '-Rs', $sharedir ])
{
	my ($how, $dir) = @$copy;
	system('mkdir', '-p', "$root$dir") == 0 && system('cp', $how, "$dir/.", "$root$dir/") == 0 or die "cannot copy $dir";
}
my $library = "$root$pkglibdir/pg_bulk.so";
my $image = slurp_file($library);
sub replace_library
{
	my ($bytes) = @_;
	write_bytes("$library.new", $bytes);
	chmod 0755, "$library.new";
	rename "$library.new", $library or die $!;
	return;
}
replace_library($image);

# As if it had been built from other sources.
my $other = $image;
$other =~ /\x04\0\0\0.\0\0\0\x03\0\0\0GNU\0/s or die 'no build id';
substr($other, $+[0], 1) ^= "\x01";

$faults = Faults->new('library', install => dirname("$root$bindir"));
$node = $faults->node;
my $replaced = qr/^ERROR:  library pg_bulk was replaced while it was in use\nHINT:  Reconnect and try again\./;
my $load = $faults->load_sql('small');
my $old = $faults->begin("\\set ON_ERROR_STOP off\n$load; TRUNCATE t");
ok($old->prints($good, 20), 'a session has the library');
$old->{out} = '';
replace_library($image);
$old->say("$load; TRUNCATE t;\n");
ok($old->prints($good, 20), 'replaced by the same, it works in an old session');
$old->{out} = '';
my $waiting = $faults->bring('load.first', 'leader', 'wait');
$faults->wait_at('load.first');
replace_library($other);
point_clear($node);
like($waiting->end, $replaced, 'another one: an error in a load that goes on');
$old->say("$load;\nSELECT 'still here';\n");
ok($old->prints(qr/still here/, 20), '... and an old session lives');
like($old->end, $replaced, '... with an error');
is($faults->outcome("TRUNCATE t; $load"), '1500|direct|2', 'a new session loads');
$faults->renew;
is($faults->trouble, '', 'all is well');
$node->stop;
done_testing();
