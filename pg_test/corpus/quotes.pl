# Quotes of CSV. A quote opens anywhere in a field, bytes after the closing one
# belong to the field, and a field that had quotes is not NULL.
use strict;
use warnings FATAL => 'all';
use Corpus qw(text csv);

my @opposite = (csv(), csv(null => 'x'), csv(force_null => ['a']), csv(force_not_null => ['a']),
	csv(force_null => ['a'], force_not_null => ['a']));

# Every printable character in each role, and two control characters.
my @roles;
for my $byte (1 .. 127)
{
	my $c = chr $byte;
	my ($q, $d) = ($c eq '"' ? "'" : '"', $c eq ',' ? ';' : ',');
	my $name = sprintf '0x%02x', $byte;
	push @roles,
	  [ "delimiter $name", "1${c}${q}2${c}2${q}\n${c}\n", 2, csv(delimiter => $c, quote => $q), text(delimiter => $c) ],
	  [ "quote $name", "${c}1,${c}${c}1${c},2\n3,4\n", 2, csv(quote => $c, delimiter => $d) ],
	  [ "escape $name", qq("1$c"$c$c","2"\n3,4$c"\n), 2, csv(escape => $c, quote => $q, delimiter => $d) ];
}

[
	@roles,
	[ 'quoted', qq("a"\n"b"\n), 1, csv() ],
	[ 'empty, quoted and not', qq(a,b\n,""\n"",\n"",""\n,\n), 2, @opposite ],
	[ 'NULL string, quoted and not', qq(x,"x"\n"x",x\nxx,"xx"\n), 2, @opposite ],
	[ 'doubled quote', qq("a""b"\n""""\n""""""\n), 1, csv() ],
	[ 'doubled quote outside of quotes', qq(a""b\n), 1, csv() ],
	[ 'two empty pairs', qq(""""\n"" ""\n), 1, csv() ],
	[ 'quote opens in the middle of a field', qq(ab"cd"ef\n), 1, csv() ],
	[ 'quote opens in the middle, delimiter inside', qq(ab"c,d"ef,g\n), 2, csv() ],
	[ 'text after the closing quote', qq("ab"cd\n), 1, csv() ],
	[ 'two quoted parts in one field', qq("a,b"c"d,e"\n), 1, csv() ],
	[ 'blank before the opening quote', qq( "a" ,"b" \n), 2, csv() ],
	[ 'LF inside', qq("a\nb"\nc\n), 1, csv() ],
	[ 'CRLF inside', qq("a\r\nb"\r\nc\r\n), 1, csv() ],
	[ 'CR inside', qq("a\rb"\rc\r), 1, csv() ],
	[ 'only line ends inside', qq("\n\n\n"\n), 1, csv() ],
	[ 'delimiters inside', qq(",,,",","\n), 2, csv() ],
	[ 'unterminated at the end of the file', qq(a\n"b), 1, csv() ],
	[ 'unterminated, with line ends', qq(a\n"b\nc\nd\n), 1, csv() ],
	[ 'unterminated, with CRLF', qq(a\r\n"b\r\nc\r\n), 1, csv() ],
	[ 'unterminated: one quote is all', qq("), 1, csv() ],
	[ 'unterminated: a quote and LF', qq("\n), 1, csv() ],
	[ 'unterminated: the last of three', qq(a\n"""), 1, csv() ],
	[ 'unterminated, too few columns before', qq("a), 2, csv() ],
	[ 'unterminated in the middle of a field', qq(a"b\nc\n), 1, csv() ],
	[ 'closing quote is the last byte', qq(a\n"b"), 1, csv() ],
	[ 'doubled quote is the last bytes', qq(a\n"b""), 1, csv() ],
	[ 'escape is backslash', qq("a\\"b","c\\\\"\n"\\a","\\\n"\n), 2, csv(escape => '\\') ],
	[ 'escape is backslash, quote doubled', qq("a""b"\n), 1, csv(escape => '\\') ],
	[ 'escape before something else stays', qq("a\\nb"\n"\\\\n"\n), 1, csv(escape => '\\') ],
	[ 'escape outside of quotes', qq(a\\"b"\n), 1, csv(escape => '\\') ],
	[ 'escape outside of quotes, doubled', qq(a\\\\b\n), 1, csv(escape => '\\') ],
	[ 'escape at the end of a field', qq(a\\,b\\\n), 2, csv(escape => '\\') ],
	[ 'escape before the closing quote', qq("a\\",b\n"\n), 1, csv(escape => '\\') ],
	[ 'escaped escape before the closing quote', qq("a\\\\",b\n), 2, csv(escape => '\\') ],
	[ 'three escapes before a quote', qq("a\\\\\\"",b\n), 2, csv(escape => '\\') ],
	[ 'escape is the last byte', qq("a\\), 1, csv(escape => '\\') ],
	[ 'escape, LF in quotes', qq("a\\\nb"\nc\n), 1, csv(escape => '\\') ],
	[ 'escape, CR in quotes', qq("a\\\rb"\nc\n), 1, csv(escape => '\\') ],
	[ 'escape, then a delimiter in quotes', qq("a\\,b",c\n), 2, csv(escape => '\\') ],
	[ 'escape is a letter', qq("ax"bxxcxd"\n), 1, csv(escape => 'x') ],
	[ 'quote equals escape, said so', qq("a""b"\n), 1, csv(quote => '"', escape => '"') ],
	[ 'quote equals escape, another character', qq('a''b'\n"c"\n), 1, csv(quote => "'", escape => "'") ],
	[ 'quote given, escape follows it', qq('a''b'\n'c\n), 1, csv(quote => "'") ],
	[ 'escape given, quote does not follow', qq("a'"b"\n), 1, csv(escape => "'") ],
	[ 'quote in text format is data', qq("a"\tb"\n), 2, text() ],
	[ 'backslash in CSV is data', qq(a\\nb\n"c\\td"\n), 1, csv() ],
	[ 'quote is 0x01', qq(\x01a\x01\n), 1, csv(quote => "\x01") ],
	[ 'two characters as quote', "a\n", 1, csv(quote => '""'), csv(escape => 'xx') ],
	[ 'none as quote', "a\n", 1, csv(quote => ''), csv(escape => '') ],
	[ 'quote equals delimiter', "a\n", 1, csv(quote => ',') ],
	[ 'escape equals delimiter', qq(a,b\n"c,"",d"\n), 2, csv(escape => ',') ],
	[ 'delimiter in the NULL string', "a\n", 1, csv(null => 'a,b'), text(null => "a\tb") ],
	[ 'quote in the NULL string', "a\n", 1, csv(null => 'a"') ],
	[ 'line end in the NULL string', "a\n", 1, csv(null => "a\n"), text(null => "\r") ],
	[ 'quotes of text format', "a\n", 1, text(quote => '"'), text(escape => '"'), text(force_null => ['a']), text(force_not_null => ['a']) ],
	# COPY has no delimiters of more than one byte.
	[ 'multibyte quote', "a\xc3\xa9b\n", 2, csv(quote => "\xc3\xa9") ],
	[ 'multibyte in quotes', qq("\xe6\x97\xa5","\xf0\x9f\x8e\x89"\n), 2, csv() ],
	[ 'many quoted fields', join(',', ('"x"') x 20) . "\n" . join(',', ('""') x 20) . "\n", 20, csv() ],
	[ 'quoted number, quoted empty number', qq("1"\n""\n), ['a int4'], csv() ],
	[ 'quoted empty, forced to NULL, is a number', qq("1"\n""\n), ['a int4'], csv(force_null => ['a']) ],
]
