
=pod

=head1 NAME

Corpus - the hand-written files of the differential suite

=head1 DESCRIPTION

Each file in pg_test/corpus is a chapter: Perl code that returns a list of
entries

  [ name, bytes, columns, options, options, ... ]

where columns is a number (that many text columns) or a list of definitions, and
each options hash is one way to read the file. The name describes the feature
that the file tests.

grid() lists further ways to read any file. Most files then have some error,
and errors are compared like rows.

=cut

package Corpus;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use File::Basename qw(dirname);
use File::Spec::Functions qw(rel2abs);

our @EXPORT_OK = qw(text csv chapters entries grid);

sub text { return { format => 'text', @_ }; }
sub csv  { return { format => 'csv', @_ }; }

my $directory = rel2abs(dirname(__FILE__) . "/../corpus");

sub chapters
{
	return sort map { m{([^/]+)\.pl$} ? $1 : () } glob("$directory/*.pl");
}

sub entries
{
	my ($chapter) = @_;
	my $path = "$directory/$chapter.pl";
	my $entries = do $path;
	die "$path: " . ($@ || $!) unless ref $entries eq 'ARRAY';
	for my $entry (@$entries)
	{
		my ($name, $bytes, $columns, @options) = @$entry;
		die "$path: $name" if !@options || grep { ref ne 'HASH' } @options;
	}
	return @$entries;
}

my @typed = ('a int4', 'b text', 'c date', 'd numeric(10,2)');

# [ columns, options ]
my @grid = (
	[ 1, text() ],
	[ 1, csv() ],
	[ 2, text(delimiter => ',', null => '') ],
	[ 2, csv(header => 'true') ],
	[ 2, csv(escape => '\\') ],
	[ 2, csv(quote => "'", delimiter => "\t", null => 'NULL') ],
	[ 3, text() ],
	[ 3, csv() ],
	[ 3, csv(force_null => ['a'], force_not_null => [ 'b', 'c' ]) ],
	[ 3, text(header => 'match', delimiter => '|') ],
	[ 3, csv(header => 'match') ],
	[ \@typed, text() ],
	[ \@typed, csv() ],
	[ [ 'a int4', 'b int4' ], csv(delimiter => ';', quote => '"', escape => '"') ],
	[ [ 'a varchar(3)' ], csv(null => 'a') ],
	[ [ 'a char(2)', 'b "char"' ], text() ]);

sub grid { return @grid; }

1;
