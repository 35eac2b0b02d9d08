
=pod

=head1 NAME

Soup - generated input files

=head1 DESCRIPTION

Three kinds. soup() concatenates bytes with a meaning under the given
options, and a few without. lines() gives each
record nearly the right number of fields, each a small soup without delimiters or
line ends, so that more of a file is read before its first error.
mutated() takes a valid file and damages a few bytes.

All randomness is rand(), which the caller seeds.

=cut

package Soup;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

our @EXPORT_OK = qw(soup lines mutated random_value random_options pick);

sub pick { return $_[ rand @_ ]; }

my @harmless = ('a', 'b', 'N', 'x', '0', '1', '7', ' ', 't', 'n', "\xc3\xa9", "\xe6\x97\xa5", "\xf0\x9f\x8e\x89");
my @line_ends = ("\n", "\r\n", "\r");

# The bytes with a meaning under these options, including COPY's own tokens.
sub tokens
{
	my ($options) = @_;
	my $csv = $options->{format} eq 'csv';
	my $delimiter = $options->{delimiter} // ($csv ? ',' : "\t");
	my $quote = $options->{quote} // '"';
	my $escape = $options->{escape} // $quote;
	my $null = $options->{null} // ($csv ? '' : '\\N');
	return ($csv ? ($quote, $quote, "$quote$quote", $escape, "$escape$quote") : ('\\', '\\', '\\x4', '\\101', '\\xc3'),
		$delimiter, $null, '\\', '.', '\\.', '\\N');
}

sub soup
{
	my ($options) = @_;
	my $line_end = pick(@line_ends);
	my @tokens = (tokens($options), $line_end, $line_end, pick(@line_ends));
	my $length = int rand pick(10, 40, 130, 400);
	my $file = '';
	# One soup in eight has a byte that is not valid text.
	my $bad = rand() < 0.125 ? pick("\xff", "\xc3", "\xe6\x97", "\0") : '';
	while (length $file < $length)
	{
		$file .= rand() < 0.55 ? pick(@harmless) : pick(@tokens);
		$file .= $bad if $bad ne '' && rand() < 0.02;
	}
	return $file;
}

sub lines
{
	my ($options, $columns) = @_;
	my $csv = $options->{format} eq 'csv';
	my $delimiter = $options->{delimiter} // ($csv ? ',' : "\t");
	my $quote = $options->{quote} // '"';
	my $escape = $options->{escape} // $quote;
	my $line_end = pick(@line_ends);
	my @inside = grep { $_ ne $delimiter && $_ ne '\\.' && $_ ne $quote } tokens($options);
	my $file = '';
	for (1 .. rand(pick(4, 12, 40)))
	{
		my $fields = $columns + (rand() < 0.02 ? pick(-1, 1) : 0);
		my @fields;
		for (1 .. $fields)
		{
			my $field = join '', map { rand() < 0.75 ? pick(@harmless) : pick(@inside) } 1 .. rand pick(2, 6, 30);
			if ($csv && rand() < 0.4)
			{
				$field .= pick("\n", "\r\n", "\r", $delimiter, '') if rand() < 0.3;
				$field =~ s/(\Q$quote\E|\Q$escape\E)/$escape$1/g unless rand() < 0.03;
				$field = $quote . $field . $quote;
				$field .= pick(@harmless) if rand() < 0.03;
			}
			elsif ($csv)
			{
				$field =~ s/\Q$quote\E//g unless rand() < 0.03;
			}
			else
			{
				# A backslash at the end would escape the delimiter.
				$field =~ s/\\+$// unless rand() < 0.05;
			}
			push @fields, $field;
		}
		$file .= join($delimiter, @fields) . (rand() < 0.01 ? pick(@line_ends) : $line_end);
		$file .= pick('\\.', '\\.x') . $line_end if rand() < 0.01;
	}
	$file =~ s/(?:\r\n|\r|\n)\z// if rand() < 0.2;
	return $file;
}

sub mutated
{
	my ($file) = @_;
	for (1 .. pick(1, 1, 1, 2, 3, 8))
	{
		my $at = int rand(length($file) + 1);
		my $kind = pick(qw(flip delete insert insert double));
		if ($kind eq 'insert' || $at >= length $file)
		{
			substr($file, $at, 0) = pick("\n", "\r", "\r\n", '"', '\\', ',', "\t", '\\.', '.', "'", "\xff", "\xc3\xa9", 'x', '1');
		}
		elsif ($kind eq 'flip')
		{
			substr($file, $at, 1) = chr(ord(substr($file, $at, 1)) ^ (1 << int rand 8));
		}
		elsif ($kind eq 'delete')
		{
			substr($file, $at, 1 + int rand 3) = '';
		}
		else
		{
			substr($file, $at, 0) = substr($file, $at, 1 + int rand 20);
		}
	}
	return $file;
}

# A value for COPY TO to write: bytes in UTF-8, or undef.
sub random_value
{
	my ($type) = @_;
	return undef if rand() < 0.1;
	return int(rand(2**32)) - 2**31 if $type eq 'int4';
	return sprintf('%.*f', int(rand 4), rand(20_000) - 10_000) if $type eq 'numeric';
	return sprintf('%04d-%02d-%02d %02d:%02d:%02d.%06d', 1 + rand 9998, 1 + rand 12, 1 + rand 28, rand 24, rand 60, rand 60, rand 1_000_000)
	  if $type eq 'timestamp';
	return pick('t', 'f') if $type eq 'bool';
	return '' if rand() < 0.1;
	return join '', map {
		rand() < 0.7
		  ? pick(@harmless)
		  : pick("\n", "\r", "\r\n", "\t", '"', "'", '\\', ',', '|', ';', '.', '\\.', '\\N', 'NULL', "\x01", "\b", "\f", "\x0b")
	} 1 .. rand pick(3, 10, 60, 200);
}

# Options that COPY TO accepts.
sub random_options
{
	my $format = pick(qw(text csv csv));
	my $options = { format => $format };
	$options->{header} = pick('true', 'true', 'match') if rand() < 0.4;
	if ($format eq 'csv')
	{
		$options->{delimiter} = pick(';', '|', "\t", '~', "\x01", ' ', ':') if rand() < 0.5;
		$options->{quote} = pick("'", '"', '%', '#') if rand() < 0.4;
		$options->{escape} = pick('\\', '"', "'", '^') if rand() < 0.4;
		$options->{null} = pick('NULL', '\\N', 'x', '-') if rand() < 0.4;
	}
	else
	{
		$options->{delimiter} = pick(',', ';', '|', "\x01", '~', ' ', 'A') if rand() < 0.6;
		$options->{null} = pick('', 'NULL', 'x', '-') if rand() < 0.4;
	}
	return $options;
}

1;
