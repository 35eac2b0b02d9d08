# \. ends the data if it stands alone on a line. Its meaning in other places
# depends on the format, the line end and the bytes behind it.
use strict;
use warnings FATAL => 'all';
use Corpus qw(text csv);

my @both = (text(), csv());
my @entries;

for my $end ([ LF => "\n" ], [ CRLF => "\r\n" ], [ CR => "\r" ])
{
	my ($kind, $eol) = @$end;
	push @entries,
	  [ "$kind: alone", "a$eol\\.$eol", 1, @both ],
	  [ "$kind: rows after it", "a$eol\\.${eol}b$eol", 1, @both ],
	  [ "$kind: as the first line", "\\.${eol}a$eol", 1, @both ],
	  [ "$kind: at the end of the file, no line end", "a$eol\\.", 1, @both ],
	  [ "$kind: as the whole file, no line end", "\\.", 1, @both ],
	  [ "$kind: as the whole file", "\\.$eol", 1, @both ],
	  [ "$kind: twice", "a$eol\\.$eol\\.$eol", 1, @both ],
	  [ "$kind: after data", "a${eol}abc\\.${eol}b$eol", 1, @both ],
	  [ "$kind: after data, end of the file", "a${eol}abc\\.", 1, @both ],
	  [ "$kind: in the middle of data", "a${eol}abc\\.def$eol", 1, @both ],
	  [ "$kind: followed by a letter", "a$eol\\.b${eol}c$eol", 1, @both ],
	  [ "$kind: followed by a blank", "a$eol\\. ${eol}c$eol", 1, @both ],
	  [ "$kind: followed by another", "a$eol\\.\\.${eol}c$eol", 1, @both ],
	  [ "$kind: after a blank", "a$eol \\.${eol}c$eol", 1, @both ],
	  [ "$kind: as the last of two fields", "a,b${eol}c,\\.${eol}d,e$eol", 2, text(delimiter => ','), csv() ],
	  [ "$kind: as the first of two fields", "a,b$eol\\.,c${eol}d,e$eol", 2, text(delimiter => ','), csv() ],
	  [ "$kind: quoted", qq("a"$eol"\\."$eol"c"$eol), 1, csv() ],
	  [ "$kind: quoted, as the first line", qq("\\."$eol"c"$eol), 1, csv() ],
	  [ "$kind: alone on a line inside quotes", qq("a$eol\\.${eol}b"${eol}c$eol), 1, csv() ],
	  [ "$kind: first on a line inside quotes", qq("a$eol\\.b"${eol}c$eol), 1, csv() ],
	  [ "$kind: quote opens after it", qq(a$eol\\."b"${eol}c$eol), 1, csv() ],
	  [ "$kind: with a header", "a$eol\\.${eol}b$eol", 1, text(header => 'true'), csv(header => 'true') ],
	  [ "$kind: as the header", "\\.${eol}b$eol", 1, text(header => 'true'), csv(header => 'true'), csv(header => 'match') ],
	  [ "$kind: header, then the end of data after rows", "a${eol}b$eol\\.${eol}c$eol", 1, csv(header => 'match') ],
	  [ "$kind: bad rows after it are not seen", "1$eol\\.${eol}x,y,z$eol\"", ['a int4'], @both ],
	  [ "$kind: invalid bytes after it are not seen", "1$eol\\.${eol}\xff\xfe$eol", ['a int4'], @both ],
	  [ "$kind: invalid bytes just after it", "1$eol\\.\xff$eol", 1, @both ],
	  [ "$kind: escaped backslash before a dot", "a$eol\\\\.${eol}b$eol", 1, @both ];
}

[
	@entries,
	[ 'LF, then \. ended by CRLF', "a\n\\.\r\nb\n", 1, @both ],
	[ 'LF, then \. ended by CR', "a\n\\.\rb\n", 1, @both ],
	[ 'CRLF, then \. ended by LF', "a\r\n\\.\nb\r\n", 1, @both ],
	[ 'CRLF, then \. ended by CR', "a\r\n\\.\rb\r\n", 1, @both ],
	[ 'CRLF, then \. and CR at the end of the file', "a\r\n\\.\r", 1, @both ],
	[ 'CR, then \. ended by LF', "a\r\\.\nb\r", 1, @both ],
	[ 'CR, then \. ended by CRLF', "a\r\\.\r\nb\r", 1, @both ],
	[ 'first line \., CRLF after', "\\.\r\na\r\n", 1, @both ],
	[ 'first line \., CR after', "\\.\ra\r", 1, @both ],
	[ 'data, then \. with CR, no line end known', "ab\\.\rc", 1, @both ],
	[ 'data, then \. with LF, no line end known', "ab\\.\nc", 1, @both ],
	[ 'data, then \. with CRLF, no line end known', "ab\\.\r\nc", 1, @both ],
	[ 'backslash at the end of the file', "a\nb\\", 1, @both ],
	[ 'lone backslash as a line', "a\n\\\nb\n", 1, @both ],
	[ 'lone backslash as the file', "\\", 1, @both ],
	[ 'backslash is the escape character', "a\n\\.\nb\n", 1, csv(escape => '\\') ],
	[ 'backslash is the quote character', "a\n\\.\nb\\\n\\.\n", 1, csv(quote => '\\') ],
	[ 'dot is the delimiter', "a.b\n\\.\nc.d\n", 2, csv(delimiter => '.') ],
	[ 'dot is the quote character', ".a.\n\\.\nb\n", 1, csv(quote => '.') ],
	[ 'dot is the escape character', "a\n\\.\nb\n", 1, csv(escape => '.') ],
	[ 'NULL is \.', "a\n\\.\nb\n", 1, text(null => '\\.'), csv(null => '\\.') ],
	[ 'one line, many columns', "a,b,c\n\\.\n", 3, text(delimiter => ','), csv() ],
	[ 'after 100 lines', ("abc\n" x 100) . "\\.\nabc\n", 1, @both ],
]
