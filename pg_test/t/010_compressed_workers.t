
# Several processes load a compressed file: the decompressing thread fails, there is no memory for the shared
# ring, or the file changes.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use File::Spec::Functions qw(rel2abs);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(install_wrapper start_server write_bytes);
use Points qw(point_set point_wait point_clear);

my $node = start_server('compressed');
install_wrapper($node, 'postgres');
my $path = rel2abs(PostgreSQL::Test::Utils::tempdir('compressed')) . '/rows';
$node->safe_psql('postgres', 'CREATE TABLE t (a int, b text)');

sub rows { return join '', map { "$_,row $_\n" } @_ }

sub compress
{
	my ($rows) = @_;
	write_bytes($path, $rows);
	unlink "$path.gz";
	system('gzip', '-n', $path) == 0 or die 'gzip';
}

my $load = "SET pg_bulk.chunk_size = 4096; TRUNCATE t;"
	. " SELECT rows_loaded, workers, notes FROM bulk_load('$path.gz', 't', '{\"format\": \"csv\", \"workers\": 1}');"
	. ' SELECT count(*), sum(a) FROM t';

# Begins a load; returns a function that waits for its outcome.
sub begin
{
	my ($in, $out, $err) = ("$load;\n", '', '');
	my $psql = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<', \$in, '>', \$out, '2>', \$err);
	$psql->pump_nb;
	return sub { $psql->finish; return $err ne '' ? $err : $out; };
}

my $many = 200_000;
my $all = "$many|" . $many * ($many + 1) / 2 . "\n";
compress(rows(1 .. $many));
is(begin()->(), "$many|1|{}\n$all", 'as it should be');

# The thread panics: at once, and after some bytes.
for my $after (0, 5)
{
	point_set($node, 'ring.fill', "errno=5 after=$after");
	is(begin()->(), "$many|1|{}\n$all", "a thread that panics after $after pieces: the file is read in order");
	point_clear($node, 'ring.fill');
}

# There is no memory; and a signal comes first.
point_set($node, 'ring.memory', 'errno=28');
is(begin()->(), "$many|0|{\"no memory to share what the file stands for; the load ran in one process\"}\n$all", 'no memory');
point_set($node, 'ring.memory', 'errno=4 once');
is(begin()->(), "$many|1|{}\n$all", 'an interrupted system call');
point_clear($node, 'ring.memory');

# A process that waits for the thread shows a wait event.
point_set($node, 'ring.fill', 'wait');
my $end = begin();
my ($pid) = point_wait($node, 'ring.fill');
ok($node->poll_query_until('postgres', "SELECT wait_event = 'Extension' FROM pg_stat_activity WHERE pid = $pid"), 'a wait event');
point_clear($node, 'ring.fill');
is($end->(), "$many|1|{}\n$all", '... and it goes on');

# The file must be read again, and is another one by then.
for my $case ([ 'is shorter', sub { truncate "$path.gz", 1000 or die $! } ],
	[ 'has other bytes', sub { my $size = -s "$path.gz"; open my $f, '+<', "$path.gz" or die $!; seek $f, $size / 2, 0; print $f 'x'; close $f } ])
{
	my ($what, $change) = @$case;
	compress(rows(1 .. $many));
	point_set($node, 'ring.fill', 'errno=5 after=5');
	point_set($node, 'ring.in_order', 'wait');
	$end = begin();
	point_wait($node, 'ring.in_order');
	$change->();
	point_clear($node, 'ring.in_order');
	like($end->(), qr{^ERROR:  file "\Q$path.gz\E" changed while it was being read}, "a file that $what");
	point_clear($node, 'ring.fill');
}

# No thread for members: one decoder. The file of that name has the members that bgzip would write.
write_bytes("$path.gz", slurp_file($ENV{PG_ABS_SRCDIR} . '/data/compressed/numbers.bgz') x 12);
my $expected = begin()->();
like($expected, qr/^144000\|1\|\{\}\n/, 'members');
point_set($node, 'members.thread', 'errno=11');
is(begin()->(), $expected, '... without threads');
point_clear($node, 'members.thread');

done_testing();
