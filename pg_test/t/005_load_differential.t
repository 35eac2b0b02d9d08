
# bulk_load stores the rows that COPY of the same file stores, and fails with COPY's
# error, for each table, number of workers, chunk size, and
# caller. See perl/LoadDifferential.pm.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Cases qw(add_chapter add_generated add_written add_types);
use Corpus qw(csv chapters);
use Differential qw(bulk_fdw sample seed start_server);
use LoadDifferential;
use Values qw(prerequisites);

plan skip_all => 'file_fdw has no bulk_load' unless bulk_fdw();

note 'PG_BULK_SEED=' . seed();
my $node = start_server('load_differential');
$node->append_conf('postgresql.conf', <<'CONF');
fsync = off
max_worker_processes = 16
max_parallel_workers = 16
wal_consistency_checking = 'all'
CONF
$node->restart;

# The comparison itself is tested first.
my $trial = LoadDifferential->new($node, 'postgres');
my %trials = (
	'another value' => [ qr/rows differ.*row 2: \(c,x\).*row 2: \(c,d\)/s, { bytes => "a,b\nc,x\n" } ],
	'another order' => [ qr/rows differ.*row 1: /s, { bytes => "c,d\na,b\n" } ],
	'a row too few' => [ qr/rows differ.*1 rows; row 2: \(none\)/s, { bytes => "a,b\n" } ],
	'a row too many' => [ qr/rows differ.*3 rows/s, { bytes => "a,b\nc,d\nc,d\n" } ],
	'another delimiter' => [ qr/COPY fails, the load does not/, { options => csv(delimiter => ';') } ]);
for my $name (sort keys %trials)
{
	my ($pattern, $oracle) = @{ $trials{$name} };
	$trial->expect_disagreement("the comparison sees $name", $pattern, "a,b\nc,d\n", 2, csv(), oracle => $oracle);
}
$trial->expect_disagreement('the comparison sees another line number', qr/errors differ.*line 3.*line 2/s,
	"a,b\nc\n", 2, csv(), oracle => { bytes => "a,b\na,b\nc\n" }, compare_errors => 1);
$trial->{random} = 1;

# Files written by hand, generated ones, files written by COPY TO, and each type.
my $suite = $trial;
$suite->{share} = sample(0.2, 1);
add_chapter($suite, $_), $suite->run for chapters();
add_generated($suite), $suite->run;
add_written($suite, $node, $_), $suite->run for 1 .. sample(2, 6);
$node->safe_psql('postgres', prerequisites());
add_types($suite, $node), $suite->run;

# Bad values that are survived, by several processes: as if the file did not have these rows, or had NULL for the value.
srand(seed() + 3);
for my $n (1 .. sample(40, 400))
{
	my $share = (0.02, 0.2, 0.9, 1)[ rand 4 ];
	my (@file, @ignored, @nulls);
	for my $line (1 .. 10 + rand 200)
	{
		my $bad = rand() < $share ? ('x', '99999999999', '1 2', '"', ' ')[ rand 5 ] : undef;
		my $text = join '', map { ('a' .. 'e')[ rand 5 ] } 1 .. 1 + rand 20;
		my $given = defined $bad ? '"' . ($bad =~ s/"/""/r) . '"' : $line;
		push @file, "$given,$text";
		push @ignored, "$given,$text" unless defined $bad;
		push @nulls, (defined $bad ? '' : $line) . ",$text";
	}
	my @columns = ([ 'a int4', 'b text' ]);
	my $end = ("\n", "\r\n", "\r")[ rand 3 ];
	my %bytes = map { $_->[0] => join('', map { "$_$end" } @{ $_->[1] }) } [ file => \@file ], [ ignore => \@ignored ], [ set_null => \@nulls ];
	for my $way (qw(ignore set_null))
	{
		$suite->expect_accepted($suite->add("on_error $way", $bytes{file}, @columns, csv(on_error => $way),
			oracle => { bytes => $bytes{$way}, options => csv() }));
	}
}
$suite->run;

my ($accepted, $rejected, $loads) = $suite->totals;
my ($direct, $parallel, $others) = (0, 0, 0);
for my $row ($suite->census)
{
	my ($writer, $workers, $number) = @$row;
	note "$number loads by the $writer writer with $workers workers";
	$direct += $number if $writer eq 'direct';
	$parallel += $number if $workers > 0;
	$others += $number if $writer ne 'direct';
}
note "$accepted files accepted and $rejected rejected by COPY, $loads loads";
cmp_ok($direct, '>', 5 * $others, 'most loads went through the direct writer');
cmp_ok($parallel, '>', $accepted / 10, 'many loads had workers');
cmp_ok($rejected, '>', 500, 'COPY rejects many of the files');

$node->stop;
done_testing();
