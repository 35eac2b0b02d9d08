
# For every file, set of options and chunk size here, a scan by bulk_fdw returns the
# rows that COPY loads. bulk_load loads them, with each of its writers in turn. If COPY
# fails, all fail with its error. perl/Differential.pm describes one comparison,
# corpus/ has the files written by hand.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Cases qw(add_chapter add_generated add_written add_types);
use Corpus qw(text csv chapters);
use Differential qw(bulk_fdw sample soak seed start_server);
use Encodings qw(databases files);
use Values qw(prerequisites);

note 'PG_BULK_SEED=' . seed();
my $node = start_server('differential');
my $suite = Differential->new($node, 'postgres');

# PostgreSQL would accept an unknown setting with this prefix and ignore it.
is($node->safe_psql('postgres', "LOAD 'pg_bulk'; SELECT min_val FROM pg_settings WHERE name = '@{[Differential::CHUNK_GUC]}'"),
	'1', 'chunks can be as small as a byte')
  if bulk_fdw();

# The comparison itself is tested first.
my @trial = ("a,b\nc,d\n", 2, csv());
my %trials = (
	'another value' => [ qr/rows differ.*row 2: \(c,x\).*row 2: \(c,d\)/s, { bytes => "a,b\nc,x\n" } ],
	'another order' => [ qr/rows differ.*row 1: /s, { bytes => "c,d\na,b\n" } ],
	'a row too few' => [ qr/rows differ.*1 rows; row 2: \(none\)/s, { bytes => "a,b\n" } ],
	'a row too many' => [ qr/rows differ.*3 rows/s, { bytes => "a,b\nc,d\nc,d\n" } ],
	'NULL, not empty' => [ qr/rows differ/, { bytes => "a,b\nc,d\n" }, "a,b\nc,\n", { bytes => qq(a,b\nc,""\n) } ],
	'another delimiter' => [ qr/COPY fails, the scan.* does not/, { options => csv(delimiter => ';') } ],
	'a scan that fails alone' => [ qr/the scan.* fails, COPY does not/, { bytes => "a,b\n" }, "a,b\nc\n" ]);
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
# Files written by hand, generated ones, files written by COPY TO, and each type.
add_chapter($suite, $_), $suite->run for chapters();
add_generated($suite), $suite->run;
add_written($suite, $node), $suite->run;
$node->safe_psql('postgres', prerequisites());
add_types($suite, $node), $suite->run;

# For options that this server's COPY lacks, the expected result is built from the rows that COPY loads
# without them.
if (bulk_fdw())
{
	my $bom = "\xef\xbb\xbf";
	for my $body ("a,b\nc,d\n", "", "\n", "\"a\",b\n", "\\.\n", "1\n", "a,b\r\nx\r\n", "\xff\n")
	{
		$suite->add('a byte order mark at the start is skipped', $bom . $body, 2, $_, oracle => { bytes => $body }, compare_errors => 1)
		  for csv(), text(delimiter => ','), csv(header => 'true'), csv(header => 'match');
	}
	$suite->add('a second byte order mark is data', "$bom${bom}a\n", 1, csv(), oracle => { bytes => "${bom}a\n" });

	my $ten = join '', map { "$_,x$_\n" } 1 .. 10;
	my $from = sub { my ($first, $last) = @_; return join '', map { "$_,x$_\n" } $first .. $last };
	my @two = ([ 'a int4', 'b text' ]);
	$suite->add("header '$_'", "h\n" x $_ . $ten, @two, csv(header => "$_"), oracle => { bytes => $ten, options => csv() }) for 0 .. 5;
	$suite->add("header '$_' is no header", $ten, @two, csv(header => $_), oracle => { options => csv(header => 'yes') }) for qw(yes nonsense -1 1.5);
	$suite->add('header beyond the file', "h\nh\n", @two, csv(header => '7'), oracle => { bytes => '', options => csv() });
	$suite->add('header of quoted lines', qq("h\nh",x\nh\n$ten), @two, csv(header => '2'), oracle => { bytes => $ten, options => csv() });
	for my $n (0, 1, 5, 10, 11)
	{
		$suite->add("skip $n", $ten, @two, csv(skip => "$n"), oracle => { bytes => $from->($n + 1, 10), options => csv() });
		$suite->add("limit $n", $ten, @two, csv(limit => "$n"), oracle => { bytes => $from->(1, $n > 10 ? 10 : $n), options => csv() });
		$suite->add("header, skip $n, limit 3", "a,b\n$ten", @two, csv(header => 'match', skip => "$n", limit => '3'),
			oracle => { bytes => $from->($n + 1, $n + 3 > 10 ? 10 : $n + 3), options => csv() });
	}
	$suite->add('limit leaves the rest unread', "1,a\n2,b\nx,\xff,\n", @two, csv(limit => '2'), oracle => { bytes => "1,a\n2,b\n", options => csv() });
	$suite->add('skip reads over bad values', "x,a\n2,b\n", @two, csv(skip => '1'), oracle => { bytes => "2,b\n", options => csv() });

	my $forced = qq("",a,""\n,"",\n"","",\n);
	for my $option (qw(force_null force_not_null))
	{
		for my $list ([ '*', [qw(a b c)] ], [ 'a', ['a'] ], [ 'a, c', [qw(a c)] ])
		{
			$suite->add("$option '$list->[0]'", $forced, 3, csv($option => $list->[0]), oracle => { options => csv($option => $list->[1]) });
		}
	}

	my @defaults = ([ 'a int4 DEFAULT 42', 'b text' . " DEFAULT 'none'", 'c text' ]);
	$suite->add('default', "1,\\D,x\n\\D,b,y\n\\D,\\D,\\Dx\n", @defaults, csv(default => '\\D'), oracle => { bytes => "1,none,x\n42,b,y\n42,none,\\Dx\n", options => csv() });
	$suite->add('default, text', "1\tdef\tx\ndef\tb\ty\n", @defaults, text(default => 'def'), oracle => { bytes => "1\tnone\tx\n42\tb\ty\n", options => text() });
	$suite->add('default quoted is data', qq(1,"\\D",x\n), @defaults, csv(default => '\\D'), oracle => { bytes => qq(1,"\\D",x\n), options => csv() });

	my $bad = "1,a\nx,b\n3,c\n99999999999,d\n5,e\n";
	$suite->add('on_error ignore', $bad, @two, csv(on_error => 'ignore'), oracle => { bytes => "1,a\n3,c\n5,e\n", options => csv() });
	$suite->add('on_error ignore, silent', $bad, @two, csv(on_error => 'ignore', log_verbosity => 'silent'), oracle => { bytes => "1,a\n3,c\n5,e\n", options => csv() });
	$suite->add('on_error ignore, enough rejects allowed', $bad, @two, csv(on_error => 'ignore', reject_limit => '2'), oracle => { bytes => "1,a\n3,c\n5,e\n", options => csv() });
	$suite->add('on_error ignore, too few rejects allowed', $bad, @two, csv(on_error => 'ignore', reject_limit => '1'), oracle => { options => csv() });
	$suite->add('on_error ignore does not forgive the shape', "1,a\n2\n", @two, csv(on_error => 'ignore'), oracle => { options => csv() }, compare_errors => 1);
	$suite->add('on_error set_null', $bad, @two, csv(on_error => 'set_null'), oracle => { bytes => "1,a\n,b\n3,c\n,d\n5,e\n", options => csv() });
	$suite->add('on_error stop', $bad, @two, csv(on_error => 'stop'), oracle => { options => csv() }, compare_errors => 1);
	$suite->run;
}

# Encodings of files and databases, given by the option or by client_encoding.
my @suites = ($suite);
srand(seed() + 3);
for my $entry (databases())
{
	my ($database, $encodings) = @$entry;
	my $name = lc "encoded_$database";
	$node->safe_psql('postgres', "CREATE DATABASE $name TEMPLATE template0 ENCODING '$database' LC_COLLATE 'C' LC_CTYPE 'C'");
	my $encoded = Differential->new($node, $name, encoding => $database);
	push @suites, $encoded;
	for my $encoding (@$encodings)
	{
		for my $file (files($encoding))
		{
			my ($what, $bytes) = @$file;
			next if length $bytes > 20_000 && rand() > sample(0.25, 1);
			my $label = "$encoding into $database";
			my @ways = ([ 1, text() ], [ 1, csv() ], [ 2, csv() ], [ 2, text(delimiter => '|') ], [ ['a int4'], csv() ], [ 2, csv(escape => '\\', header => 'true') ]);
			for my $way (soak() ? @ways : @ways[ rand() < 0.5 ? rand 2 : 2 + rand 4 ])
			{
				my ($columns, $options) = @$way;
				$encoded->add("$label, by option", $bytes, $columns, { %$options, encoding => $encoding });
				$encoded->add("$label, by client_encoding", $bytes, $columns, $options, client_encoding => $encoding)
				  if Encodings::convertible($database, $encoding) && rand() < sample(0.3, 1);
			}
		}
	}
	$encoded->run;
}

my ($accepted, $rejected, $scans, $shared) = (0, 0, 0, 0);
for my $s (@suites)
{
	my @totals = $s->totals;
	$accepted += $totals[0];
	$rejected += $totals[1];
	$scans += $totals[2];
	$shared += $totals[3];
}
note "$accepted files accepted and $rejected rejected by COPY, $scans scans and loads, $shared planned for workers";
cmp_ok($accepted, '>', 1000, 'COPY accepts many of the cases');
cmp_ok($rejected, '>', 1000, 'COPY rejects many of the cases');
cmp_ok($shared, '>', 100, 'some scans are shared by workers') if bulk_fdw();

$node->stop;
done_testing();
