
# A scan by bulk_fdw returns what COPY loads, and fails as COPY fails: for every
# file here, every set of options, every chunk size. See perl/Differential.pm for
# how one comparison is made, corpus/ for the files written by hand.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Corpus qw(text csv chapters entries grid);
use Differential qw(bulk_fdw soak seed start_server);

note 'PG_BULK_SEED=' . seed();
my $node = start_server('differential');
my $suite = Differential->new($node, 'postgres');

# The comparison on trial, before it judges anything.
my @trial = ("a,b\nc,d\n", 2, csv());
my %trials = (
	'another value' => [ qr/rows differ.*row 2: \(c,x\).*row 2: \(c,d\)/s, { bytes => "a,b\nc,x\n" } ],
	'another order' => [ qr/rows differ.*row 1: /s, { bytes => "c,d\na,b\n" } ],
	'a row too few' => [ qr/rows differ.*1 rows; row 2: \(none\)/s, { bytes => "a,b\n" } ],
	'a row too many' => [ qr/rows differ.*3 rows/s, { bytes => "a,b\nc,d\nc,d\n" } ],
	'NULL, not empty' => [ qr/rows differ/, { bytes => "a,b\nc,d\n" }, "a,b\nc,\n", { bytes => qq(a,b\nc,""\n) } ],
	'another delimiter' => [ qr/COPY fails, the scan does not/, { options => csv(delimiter => ';') } ],
	'a scan that fails alone' => [ qr/the scan fails, COPY does not/, { bytes => "a,b\n" }, "a,b\nc\n" ]);
for my $name (sort keys %trials)
{
	my ($pattern, $oracle, $bytes) = @{ $trials{$name} };
	$oracle = $trials{$name}[3] // $oracle;
	$suite->expect_disagreement("the comparison sees $name", $pattern, $bytes // $trial[0], @trial[ 1, 2 ], oracle => $oracle);
}
$suite->expect_disagreement('the comparison sees another line number', qr/errors differ.*line 3.*line 2/s,
	"a,b\nc\n", 2, csv(), oracle => { bytes => "a,b\na,b\nc\n" }, compare_errors => 1);
$suite->expect_disagreement('the comparison sees another SQLSTATE', qr/errors differ.*22P02.*22003/s,
	"99999999999\n", ['a int4'], csv(), oracle => { bytes => "x\n" }, compare_errors => 1);
# By hand.
for my $chapter (chapters())
{
	srand(seed());
	my @grid = grid();
	for my $entry (entries($chapter))
	{
		my ($name, $bytes, $columns, @options) = @$entry;
		$suite->add("$chapter: $name", $bytes, $columns, $_) for @options;
		next if length($bytes) > 20_000;
		my @ways = soak() ? @grid : $grid[ rand @grid ];
		$suite->add("$chapter: $name", $bytes, @$_) for @ways;
	}
	$suite->run;
}

my ($accepted, $rejected, $scans) = $suite->totals;
note "$accepted files accepted and $rejected rejected by COPY, $scans scans";
cmp_ok($accepted, '>', 1000, 'COPY accepts many of the cases');
cmp_ok($rejected, '>', 1000, 'COPY rejects many of the cases');

$node->stop;
done_testing();
