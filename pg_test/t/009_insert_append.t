
# An INSERT that reads two files and ends in the second one: in each case, no row of the first file stays, and
# the server and the table are intact.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(write_bytes);
use Faults;
use Points qw(point_clear point_set point_wait);

my $faults = Faults->new('append');
my $node   = $faults->node;
$faults->write_rows('second', 1501 .. 3000);
for my $table ('small', 'second')
{
	my $path = $faults->path($table);
	$node->safe_psql('postgres', "CREATE FOREIGN TABLE $table (id int, wide text, body text) SERVER bulk_files OPTIONS (filename '$path', format 'csv')");
}
my $insert = 'SET pg_bulk.workers = 2; INSERT INTO t SELECT * FROM small UNION ALL SELECT * FROM second';
my $direct = $faults->outcome("EXPLAIN (COSTS OFF) INSERT INTO t SELECT * FROM small UNION ALL SELECT * FROM second");
like($direct, qr/^Custom Scan \(Direct Insert\)/, 'it is a load');
is($faults->outcome($insert), '', 'both files');
is($faults->trouble(3000), '', 'all rows are there');

# Begins, and waits at the end of the first file.
sub first_file
{
	point_set($node, 'load.rows', 'wait leader');
	my $load = $faults->begin($insert);
	point_wait($node, 'load.rows');
	return $load;
}

# A point of the second file, or of the work after it, and the process that reaches it.
my @places = (
	[ 'load.first',    'leader' ],
	[ 'load.launched', 'leader' ],
	[ 'worker.begin',  'worker' ],
	# Whichever process is first: there may be no chunk left for a worker.
	[ 'chunk.ticket',    '' ],
	[ 'worker.end',    'worker' ],
	[ 'load.received', 'leader' ],
	[ 'load.finalize',   'leader' ],
	[ 'load.finalized',  'leader' ]);
for (@places)
{
	my ($place, $who) = @$_;
	for my $action ('error', 'signal=15')
	{
		my $load = first_file();
		point_set($node, $place, "$action $who once");
		point_clear($node, 'load.rows');
		like($load->end, qr/^(ERROR|FATAL|WARNING): /, "$place, $action");
		is($faults->trouble, '', "after $place, $action");
	}
}

# The second file is removed, or has a bad row, after the first one has been loaded.
my $load = first_file();
rename $faults->path('second'), $faults->path('gone') or die $!;
point_clear($node, 'load.rows');
like($load->end, qr/^ERROR:  could not open file/, 'no second file');
is($faults->trouble, '', 'after that');
write_bytes($faults->path('second'), Faults::rows(1501 .. 2999) . "3000,,\nx,,\n");
like($faults->outcome($insert), qr/^ERROR:  invalid input syntax for type integer: "x"\nCONTEXT:  COPY second, line 1501, column id/, 'a bad row');
is($faults->trouble, '', 'after a bad row');
rename $faults->path('gone'), $faults->path('second') or die $!;

# A crash, in the second file and after it.
for my $place ('worker.begin', 'load.finalize')
{
	$load = first_file();
	point_set($node, $place, 'wait');
	point_clear($node, 'load.rows');
	point_wait($node, $place);
	$faults->crash;
	point_clear($node);
	$load->end;
	$node->start;
	is($faults->trouble, '', "after a crash at $place");
}
is($faults->outcome($insert), '', 'both files again');
is($faults->trouble(3000), '', 'all rows are there again');

done_testing();
