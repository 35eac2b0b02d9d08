# Bytes that are not valid text: zero bytes, invalid UTF-8, a byte order mark at another
# place than the beginning; and the values that errors quote.
use strict;
use warnings FATAL => 'all';
use Corpus qw(text csv);

my @both = (text(), csv());
my @two = (text(delimiter => ','), csv());
my $e = "\xc3\xa9";
my $sun = "\xe6\x97\xa5";

my %invalid = (
	'lone continuation' => "\x80",
	'0xff' => "\xff",
	'overlong NUL' => "\xc0\x80",
	'overlong slash' => "\xe0\x80\xaf",
	'surrogate' => "\xed\xa0\x80",
	'above U+10FFFF' => "\xf4\x90\x80\x80",
	'0xf8' => "\xf8\x88\x80\x80\x80",
	'two bytes cut' => "\xc3",
	'three bytes cut after one' => "\xe6",
	'three bytes cut after two' => "\xe6\x97",
	'four bytes cut after three' => "\xf0\x9f\x8e",
	'zero byte' => "\0");

my @places;
for my $what (sort keys %invalid)
{
	my $bad = $invalid{$what};
	push @places,
	  [ "$what: first byte", "${bad}a\nb\n", 1, @both ],
	  [ "$what: the whole file", $bad, 1, @both ],
	  [ "$what: last bytes", "a\nb$bad", 1, @both ],
	  [ "$what: before LF", "a\nb$bad\nc\n", 1, @both ],
	  [ "$what: after LF", "a\n${bad}b\nc\n", 1, @both ],
	  [ "$what: after CR", "a\r${bad}b\rc\r", 1, @both ],
	  [ "$what: after CRLF", "a\r\n${bad}b\r\nc\r\n", 1, @both ],
	  [ "$what: between CR and LF", "a\r$bad\nb\r\n", 1, @both ],
	  [ "$what: before the delimiter", "a,b\nc$bad,d\n", 2, @two ],
	  [ "$what: after the delimiter", "a,b\nc,${bad}d\n", 2, @two ],
	  [ "$what: in quotes", qq("a\n$bad"\n), 1, csv() ],
	  [ "$what: before the closing quote", qq("a$bad"\n), 1, csv() ],
	  [ "$what: in a number", "1\n2$bad\n", ['a int4'], @both ],
	  [ "$what: after a good line, twice", "a\nb$bad\nc$bad\n", 1, @both ],
	  [ "$what: after a backslash", "a\\${bad}b\n", 1, @both, csv(escape => '\\') ],
	  [ "$what: after 64 good bytes", ('x' x 64) . "$bad\n", 1, @both ],
	  [ "$what: in the line after a bad number", "x\n$bad\n", ['a int4'], @both ];
}

my @long;
for my $length (1, 99, 100, 101, 150, 300)
{
	for my $fill ([ ascii => 'x' ], [ 'two bytes' => $e ], [ 'three bytes' => $sun ], [ 'four bytes' => "\xf0\x9f\x8e\x89" ])
	{
		my ($name, $char) = @$fill;
		push @long,
		  [ "error quotes $length of $name", ($char x $length) . "\n", ['a int4'], @both ],
		  [ "error quotes a line of $length of $name", "a,b\n" . ($char x $length) . "\n", 2, @two ],
		  [ "error quotes $length of $name and one byte before", 'y' . ($char x $length) . ",1\n", [ 'a int4', 'b int4' ], csv() ];
	}
}

[
	@places, @long,
	[ 'a byte order mark later', "a\n\xef\xbb\xbfb\n", 1, @both ],
	[ 'half a byte order mark', "\xef\xbb\na\n", 1, @both ],
	[ 'a third of a byte order mark', "\xef", 1, @both ],
	[ 'a byte order mark of UTF-16 later', "b\n\xff\xfea\0\n\0", 1, @both ],
	[ 'all of Latin in UTF-8', join('', map { my $c = chr; utf8::encode($c); $c } 0xa0 .. 0x17f) . "\n", 1, @both ],
	[ 'one character of each length', "a$e$sun\xf0\x9f\x8e\x89\n", 1, @both ],
	[ 'last code points', "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\n", 1, @both ],
	[ 'control characters', join('', map { chr } 1 .. 8, 11, 12, 14 .. 31, 127) . "\n", 1, @both ],
	[ 'error quotes a line end', qq("a\nb"\n), ['a int4'], csv() ],
	[ 'error quotes a CRLF', qq("a\r\nb"\r\n), ['a int4'], csv() ],
	[ 'error quotes a quote', qq("a""b"\n), ['a int4'], csv() ],
	[ 'error quotes an escape', "a\\tb\n", ['a int4'], text() ],
	[ 'error quotes a line with escapes', "a\\tb\\\nc\n", 2, text() ],
	[ 'error names a column to be quoted', "x\n", ['"A b" int4'], @both ],
	[ 'error of a type that quotes the value itself', "x\n", ['a uuid'], @both ],
	[ 'error of a length', "abc\n", ['a varchar(2)'], @both ],
	[ 'error of a length, multibyte', "$e$e$e\n", ['a varchar(2)'], @both ],
	[ 'error of json, a line of its own', qq({"a":\n), ['a json'], text(), csv(quote => "'") ],
	[ 'blanks too many cut off silently', "ab      \n", [ 'a varchar(2)' ], @both ],
]
