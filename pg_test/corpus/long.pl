# Long fields and long files: beyond 64 kB, where COPY refills its buffers, and
# far beyond the size of one read.
use strict;
use warnings FATAL => 'all';
use Corpus qw(text csv);

my @both = (text(), csv());
my @two = (text(delimiter => ','), csv());
my $edge = 65536;
my $sun = "\xe6\x97\xa5";

my @entries;
for my $at ($edge - 2 .. $edge + 1)
{
	my $fill = 'x' x $at;
	my $lines = substr("abcdefg\n" x 10_000, -$at);
	my $quoted = '"' . ('x' x ($at - 1));
	push @entries,
	  [ "$at: LF", "$fill\nb\n", 1, @both ],
	  [ "$at: CRLF", "$fill\r\nb\r\n", 1, @both ],
	  [ "$at: CR", "$fill\rb\r", 1, @both ],
	  [ "$at: delimiter", "$fill,b\n", 2, @two ],
	  [ "$at: doubled quote", qq($quoted""b"\nc\n), 1, csv() ],
	  [ "$at: closing quote", qq($quoted"\nc\n), 1, csv() ],
	  [ "$at: escaped quote", qq($quoted\\"b"\nc\n), 1, csv(escape => '\\') ],
	  [ "$at: backslash", "$fill\\tb\n", 1, @both ],
	  [ "$at: end of data", "$lines\\.\nb\n", 1, @both ],
	  [ "$at: end of data after data", "$fill\\.\nb\n", 1, @both ],
	  [ "$at: character across", "$fill${sun}b\n", 1, @both ],
	  [ "$at: cut character ends the file", "$fill\xe6\x97", 1, @both ],
	  [ "$at: invalid", "${lines}a\xe6\x97b\n", 1, @both ],
	  [ "$at: lone CR", "${lines}a\rb\n", 1, @both ],
	  [ "$at: bad number", substr("1234567\n" x 10_000, -$at) . "x\n", ['a int4'], @both ];
}

# No two parts are equal, so that a chunk that is read twice or not at all is noticed.
my $varied = join('', map { sprintf("%d,%x,\"%o\"\n", $_, $_ * 7919, $_ * 31) } 1 .. 8_000);
my $paragraph = join(' ', map { sprintf('%x', $_ * 104_729) } 1 .. 140_000);

[
	@entries,
	[ 'eight thousand rows, three columns', $varied, 3, @two ],
	[ 'eight thousand rows, numbers', $varied, [ 'a int4', 'b text', 'c int8' ], csv() ],
	[ 'eight thousand rows, CRLF', $varied =~ s/\n/\r\n/gr, 3, csv() ],
	[ 'eight thousand rows, a bad one near the end', $varied . "x,y,1\n1,2,3\n", [ 'a int4', 'b text', 'c int8' ], csv() ],
	[ 'eight thousand rows, one too short near the end', $varied . "1,2\n", 3, csv() ],
	[ 'a field of 100 kB', substr($paragraph, 0, 100_000) . "\n", 1, @both ],
	[ 'a field of 1 MB', substr($paragraph, 0, 1 << 20) . "\n", 1, @both ],
	[ 'a quoted field of 1 MB', '"' . substr($paragraph, 0, 1 << 20) . qq("\nb\n), 1, csv() ],
	[ 'a quoted field of 200 kB, lines inside', '"' . (substr($paragraph, 0, 200_000) =~ s/ /\n/gr) . qq("\nx,y\n), 1, csv() ],
	[ 'a field of 200 kB of doubled quotes', '"' . ('""' x 100_000) . qq("\n), 1, csv() ],
	[ 'a field of 200 kB of escapes', ('\\\\' x 100_000) . "\n", 1, text() ],
	[ 'a field of 300 kB of three bytes each', ($sun x 100_000) . "\nb\n", 1, @both ],
	[ 'an unterminated quote over 300 kB', qq(a\n"b) . substr($paragraph, 0, 300_000), 1, csv() ],
	[ 'a bad number of 100 kB', ('1' x 100_000) . "x\n", ['a int4'], @both ],
	[ 'a line of 100 kB with too few columns', ('y' x 100_000) . "\n", 2, @two ],
	[ 'invalid after 1 MB', substr($paragraph, 0, 1 << 20) . "\xff\n", 1, @both ],
]
