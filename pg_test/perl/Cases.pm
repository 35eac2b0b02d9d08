
=pod

=head1 NAME

Cases - the files of a differential suite

=head1 DESCRIPTION

Each function adds cases to a suite of any kind (see Differential). The random
generator is seeded here, so a suite that skips some cases does not change the
others.

=cut

package Cases;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use PostgreSQL::Test::Utils;

use Corpus qw(text csv entries grid);
use Differential qw(bulk_fdw soak sample seed);
use Options qw(sql_string copy_options);
use Soup qw(soup lines mutated random_value random_options pick);
use Values qw(type_inputs setting_groups);

our @EXPORT_OK = qw(add_chapter add_generated add_written add_types);

# A chapter of the corpus.
sub add_chapter
{
	my ($suite, $chapter) = @_;
	srand(seed());
	my @grid = grid();
	for my $entry (entries($chapter))
	{
		my ($name, $bytes, $columns, @options) = @$entry;
		$suite->add("$chapter: $name", $bytes, $columns, $_) for @options;
		next if length($bytes) > 20_000;
		my @ways = soak() ? @grid : map { $grid[ rand @grid ] } 1 .. sample(1, scalar @grid);
		$suite->add("$chapter: $name", $bytes, @$_) for @ways;
	}
	return;
}

my @ways = (
	text(), text(delimiter => ','), text(null => '', delimiter => '|'), text(null => 'N', header => 'true'),
	csv(), csv(header => 'true'), csv(escape => '\\'), csv(quote => "'", delimiter => ';'), csv(quote => "'", escape => '"'),
	csv(null => 'a', force_null => ['a']), csv(force_not_null => ['a'], null => '\\N'), csv(delimiter => "\t", null => 'N'),
	csv(quote => '\\'), csv(escape => '.'), csv(delimiter => '\\'));

# Soups, and lines of nearly the right format.
sub add_generated
{
	my ($suite) = @_;
	for my $options (@ways)
	{
		my $label = join(' ', map { ref $options->{$_} ? "$_ (@{ $options->{$_} })" : "$_ '$options->{$_}'" } sort keys %$options);
		srand(seed() + unpack('%32C*', $label));
		for my $n (1 .. sample(60, 1000))
		{
			my $columns = pick(1, 1, 2, 3);
			$suite->add("soup: $label", soup($options), $columns, $options);
			$suite->add("lines: $label", lines($options, $columns), $columns, $options);
		}
	}
	return;
}

# The output of COPY TO for random values, unchanged and damaged. Each round has values of its own.
sub add_written
{
	my ($suite, $node, $round) = @_;
	srand(seed() + 1 + 1000 * ($round // 0));
	my @written;
	my $script = '';
	my $written = $suite->{directory};
	for my $n (1 .. sample(50, 400))
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
	return;
}

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

# Types: all accepted inputs in one file, each rejected input in a file of its own.
sub add_types
{
	my ($suite, $node) = @_;
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
				# The last value is NULL, which a domain may reject.
				$suite->expect_accepted(@ids[ 0, 1 ]);
			}
			for my $i (0 .. $#bad)
			{
				# Other settings change other inputs than these, so a sample of them suffices.
				next unless $first || rand() < sample(0.3, 1);
				my $before = @good && $i % 2 ? in_text($good[ $i % @good ]) . "\n" : '';
				$suite->add($label, $before . in_text($bad[$i]) . "\n", ["a $type"], text(), @more, chunks => [ 0, bulk_fdw() ? pick(1, 3, 7) : () ]);
			}
			$first = 0;
		}
	}
	return;
}

1;
