# Special bytes at the edges of 64-byte blocks: a scan that works on blocks
# carries a quote, a backslash, a CR or half a character from one to the next.
use strict;
use warnings FATAL => 'all';
use Corpus qw(text csv);

my @both = (text(), csv());
my @two = (text(delimiter => ','), csv());
my $sun = "\xe6\x97\xa5";

my @entries;
for my $at (62 .. 66, 127 .. 129, 191, 192, 255, 256, 511, 512)
{
	my $fill = 'x' x $at;                                         # bytes before the edge, in the same field
	my $lines = ("abcdefg\n" x 100);
	$lines = substr($lines, -$at);                                # bytes before the edge, in lines before
	$lines =~ s/^\n/x/;
	my $crlf = $lines;
	$crlf =~ s/g\n/\r\n/g;
	my $quoted = '"' . ('x' x ($at - 1));

	push @entries,
	  [ "$at: record ends", "$fill\nb\n", 1, @both ],
	  [ "$at: record ends with CRLF", "$fill\r\nb\r\n", 1, @both ],
	  [ "$at: record ends with CR", "$fill\rb\r", 1, @both ],
	  [ "$at: file ends", $fill, 1, @both ],
	  [ "$at: file ends with LF", $lines, 1, @both ],
	  [ "$at: delimiter", "$fill,b\n", 2, @two ],
	  [ "$at: two delimiters", "$fill,,b\n", 3, @two ],
	  [ "$at: quote opens", qq($fill"a,\n"\nb\n), 1, csv() ],
	  [ "$at: quote opens a line", qq(${lines}"a,\n"\nb\n), 1, csv() ],
	  [ "$at: quote closes", qq($quoted","b"\n), 2, csv() ],
	  [ "$at: doubled quote", qq($quoted"",b"\nc\n), 1, csv() ],
	  [ "$at: four quotes", qq($quoted"""",b"\nc\n), 1, csv() ],
	  [ "$at: escaped quote", qq($quoted\\",b"\nc\n), 1, csv(escape => '\\'), csv() ],
	  [ "$at: escaped escape, then a quote", qq($quoted\\\\",b\n), 2, csv(escape => '\\') ],
	  [ "$at: run of escapes", $quoted . ('\\' x 67) . qq(",b"\n), 1, csv(escape => '\\') ],
	  [ "$at: even run of escapes", $quoted . ('\\' x 68) . qq(",b\n), 2, csv(escape => '\\') ],
	  [ "$at: run of quotes", $quoted . ('"' x 130) . qq(",b\n), 2, csv() ],
	  [ "$at: odd run of quotes", $quoted . ('"' x 131) . qq(",b\n), 1, csv() ],
	  [ "$at: quote never closed", qq($fill"a\nb\n), 1, csv() ],
	  [ "$at: CRLF in quotes", qq($quoted\r\n"\r\nb\r\n), 1, csv() ],
	  [ "$at: backslash", "$fill\\tb\n", 1, @both ],
	  [ "$at: backslash before LF", "$fill\\\nb\nc\n", 1, @both ],
	  [ "$at: backslash before the delimiter", "$fill\\,b\n", 1, @two ],
	  [ "$at: run of backslashes", $fill . ('\\' x 129) . ",b\n", 1, @two ],
	  [ "$at: even run of backslashes", $fill . ('\\' x 128) . ",b\n", 2, @two ],
	  [ "$at: octal", "$fill\\101b\n", 1, text() ],
	  [ "$at: hex", "$fill\\x41b\n", 1, text() ],
	  [ "$at: NULL", "${lines}\\N\nb\n", 1, @both ],
	  [ "$at: end of data", "${lines}\\.\nb\n", 1, @both ],
	  [ "$at: end of data, CRLF", "${crlf}\\.\r\nb\r\n", 1, @both ],
	  [ "$at: no end of data", "${lines}\\.x\nb\n", 1, @both ],
	  [ "$at: end of data after data", "$fill\\.\nb\n", 1, @both ],
	  [ "$at: lone CR", "a\n$fill\rb\n", 1, @both ],
	  [ "$at: lone LF", "a\r\n$fill\nb\r\n", 1, @both ],
	  [ "$at: CR, LF", "$crlf\r\nb\r\n", 1, @both ],
	  [ "$at: character across", "$fill${sun}b\n", 1, @both ],
	  [ "$at: invalid", "${fill}\xe6\x97b\n", 1, @both ],
	  [ "$at: invalid a line later", "$lines\nb\xff\n", 1, @both ],
	  [ "$at: zero byte", "$fill\0b\n", 1, @both ],
	  [ "$at: bad number", ("1\n" x ($at / 2)) . "2x\n", ['a int4'], @both ];
}

[
	@entries,
	[ 'nothing but delimiters', ("," x 199) . "\n", 200, @two ],
	[ 'nothing but quotes', ('"' x 200) . "\n", 1, csv() ],
	[ 'nothing but quotes, one more', ('"' x 201) . "\n", 1, csv() ],
	[ 'quoted fields of two bytes', join(',', ('""') x 150) . "\n", 150, csv() ],
	[ 'fields of one byte', join(',', ('a') x 150) . "\n", 150, @two ],
	[ 'lines of each length', join('', map { ('x' x $_) . "\n" } 0 .. 140), 1, @both ],
	[ 'lines of each length, CRLF', join('', map { ('x' x $_) . "\r\n" } 0 .. 140), 1, @both ],
	[ 'quoted lines of each length', join('', map { '"' . ("\n" x $_) . qq("\n) } 0 .. 140), 1, csv() ],
	[ 'quoted quotes of each length', join('', map { '"' . ('""' x $_) . qq("\n) } 0 .. 140), 1, csv() ],
	[ 'backslashes of each length', join('', map { ('\\\\' x $_) . "\n" } 0 .. 140), 1, @both ],
]
