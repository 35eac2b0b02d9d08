
# A scan by bulk_fdw returns what COPY loads, bulk_load loads it, by turns with each of
# its writers, and all fail as COPY fails: for every file here, every set of options,
# every chunk size. See perl/Differential.pm for how one comparison is made, corpus/ for
# the files written by hand.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Corpus qw(text csv chapters entries grid);
use Differential qw(bulk_fdw soak seed start_server);
use Encodings qw(databases files);
use Options qw(sql_string copy_options);
use Soup qw(soup lines mutated random_value random_options pick);
use Values qw(type_inputs setting_groups prerequisites);

note 'PG_BULK_SEED=' . seed();
my $node = start_server('differential');
my $suite = Differential->new($node, 'postgres');

# An unknown setting of this name would be accepted and do nothing.
is($node->safe_psql('postgres', "LOAD 'pg_bulk'; SELECT min_val FROM pg_settings WHERE name = '@{[Differential::CHUNK_GUC]}'"),
	'1', 'chunks can be as small as a byte')
  if bulk_fdw();

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

# Generated: soups, and lines of about the right shape.
my @ways = (
	text(), text(delimiter => ','), text(null => '', delimiter => '|'), text(null => 'N', header => 'true'),
	csv(), csv(header => 'true'), csv(escape => '\\'), csv(quote => "'", delimiter => ';'), csv(quote => "'", escape => '"'),
	csv(null => 'a', force_null => ['a']), csv(force_not_null => ['a'], null => '\\N'), csv(delimiter => "\t", null => 'N'),
	csv(quote => '\\'), csv(escape => '.'), csv(delimiter => '\\'));
for my $options (@ways)
{
	my $label = join(' ', map { ref $options->{$_} ? "$_ (@{ $options->{$_} })" : "$_ '$options->{$_}'" } sort keys %$options);
	srand(seed() + unpack('%32C*', $label));
	for my $n (1 .. (soak() ? 1000 : 60))
	{
		my $columns = pick(1, 1, 2, 3);
		$suite->add("soup: $label", soup($options), $columns, $options);
		$suite->add("lines: $label", lines($options, $columns), $columns, $options);
	}
}
$suite->run;

# Generated: what COPY TO writes of random values, as written and damaged.
srand(seed() + 1);
my @written;
my $script = '';
my $written = $suite->{directory};
for my $n (1 .. (soak() ? 400 : 50))
{
	my @types = map { pick(qw(text text text int4 numeric timestamp bool)) } 1 .. pick(1, 2, 3, 6, 12);
	my @names = map { chr(96 + $_) } 1 .. @types;
	my @rows = map { '(' . join(', ', map { my $v = random_value($_); (defined $v ? sql_string($v) : 'NULL') . "::$_" } @types) . ')' }
	  1 .. 1 + rand pick(2, 10, 100);
	my $options = random_options();
	my %to = %$options;
	$to{header} = 'true' if $to{header};
	my $path = "$written/written_$n.data";
	$script .= "COPY (SELECT * FROM (VALUES @{[ join(', ', @rows) ]}) v (@{[ join(', ', @names) ]})) TO "
	  . sql_string($path) . ' WITH ' . copy_options(\%to) . ";\n";
	push @written, [ $n, $path, [ map { "$names[$_] $types[$_]" } 0 .. $#types ], $options ];
}
$node->safe_psql('postgres', $script);
my @intact;
for my $w (@written)
{
	my ($n, $path, $columns, $options) = @$w;
	my $bytes = slurp_file($path);
	push @intact, $suite->add('written by COPY TO', $bytes, $columns, $options, typed => 1);
	$suite->add('written by COPY TO, damaged', mutated($bytes), $columns, $options) for 1 .. (soak() ? 50 : 10);
}
$suite->expect_accepted(@intact);
$suite->run;

# Types: what is accepted in one file, each input that is not in a file of its own.
sub in_text
{
	my ($value) = @_;
	$value =~ s/\\/\\\\/g;
	$value =~ s/\n/\\n/g;
	$value =~ s/\t/\\t/g;
	$value =~ s/\r/\\r/g;
	return $value;
}

sub in_csv { return '"' . ($_[0] =~ s/"/""/gr) . '"'; }

$node->safe_psql('postgres', prerequisites());
srand(seed() + 2);
for my $entry (type_inputs())
{
	my ($type, $group, $inputs) = @$entry;
	my %seen;
	my @inputs = grep { !$seen{$_}++ } @$inputs;
	my $first = 1;
	my $array = 'ARRAY[' . join(', ', map { sql_string($_) } @inputs) . ']::text[]';
	for my $settings (setting_groups($group))
	{
		my $sql = 'ARRAY[' . join(', ', map { sql_string($_) } @$settings) . ']::text[]';
		my $accepted = $node->safe_psql('postgres', 'SELECT unnest(accepted_inputs(' . sql_string($type) . ", $sql, $array))");
		my %accepted = map { $_ - 1 => 1 } split /\n/, $accepted;
		my @good = @inputs[ sort { $a <=> $b } keys %accepted ];
		my @bad = @inputs[ grep { !$accepted{$_} } 0 .. $#inputs ];
		my @more = (typed => 1, settings => $settings);
		my $label = join ' ', "type: $type", @$settings;

		if (@good)
		{
			my @ids = (
				$suite->add($label, join('', map { in_text($_) . "\n" } @good), ["a $type"], text(), @more),
				$suite->add($label, join('', map { in_csv($_) . "\n" } @good), ["a $type"], csv(), @more),
				$suite->add($label, join('', map { my $v = in_text($_); "7\t$v\t\\N\t$v\n" } @good), [ 'a int4', "b $type", "c $type", "d $type" ], text(), @more));
			# The last has a NULL in it, which a domain may refuse.
			$suite->expect_accepted(@ids[ 0, 1 ]);
		}
		for my $i (0 .. $#bad)
		{
			# Other settings change other inputs than these; a sample of them will do.
			next unless $first || soak() || rand() < 0.3;
			my $before = @good && $i % 2 ? in_text($good[ $i % @good ]) . "\n" : '';
			$suite->add($label, $before . in_text($bad[$i]) . "\n", ["a $type"], text(), @more, chunks => [ 0, bulk_fdw() ? pick(1, 3, 7) : () ]);
		}
		$first = 0;
	}
}
$suite->run;

# What COPY of this server cannot do is compared with what it loads from the file
# as it would be after the fact.
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

# Encodings of files and databases, named by the option or by client_encoding.
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
			next if length $bytes > 20_000 && !soak() && rand() < 0.75;
			my $label = "$encoding into $database";
			my @ways = ([ 1, text() ], [ 1, csv() ], [ 2, csv() ], [ 2, text(delimiter => '|') ], [ ['a int4'], csv() ], [ 2, csv(escape => '\\', header => 'true') ]);
			for my $way (soak() ? @ways : @ways[ rand() < 0.5 ? rand 2 : 2 + rand 4 ])
			{
				my ($columns, $options) = @$way;
				$encoded->add("$label, by option", $bytes, $columns, { %$options, encoding => $encoding });
				$encoded->add("$label, by client_encoding", $bytes, $columns, $options, client_encoding => $encoding)
				  if Encodings::convertible($database, $encoding) && (soak() || rand() < 0.3);
			}
		}
	}
	$encoded->run;
}

my ($accepted, $rejected, $scans) = (0, 0, 0);
for my $s (@suites)
{
	my @totals = $s->totals;
	$accepted += $totals[0];
	$rejected += $totals[1];
	$scans += $totals[2];
}
note "$accepted files accepted and $rejected rejected by COPY, $scans scans and loads";
cmp_ok($accepted, '>', 1000, 'COPY accepts many of the cases');
cmp_ok($rejected, '>', 1000, 'COPY rejects many of the cases');

$node->stop;
done_testing();
