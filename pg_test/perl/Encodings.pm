
=pod

=head1 NAME

Encodings - files in encodings that are not the server's

=head1 DESCRIPTION

files(encoding) gives [ name, bytes ] pairs. In the encodings that only clients
use (SJIS, BIG5, GBK, GB18030, JOHAB, UHC) the second byte of a character may be
a backslash, a bar, a letter or a digit: no field may be split before the bytes
are converted. In the others only a cut at the end of a buffer can be wrong.

=cut

package Encodings;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

our @EXPORT_OK = qw(databases file_encodings files);

# Characters by their bytes; first those whose trail bytes have a meaning to COPY.
my %characters = (
	UTF8 => [ "\xc3\xa9", "\xe6\x97\xa5", "\xe8\xa1\xa8", "\xef\xbd\xb1", "\xf0\x9f\x8e\x89", "\xe2\x82\xac", "\xc2\x80" ],
	LATIN1 => [ "\xe9", "\xff", "\xa0", "\x80", "\xa4" ],
	LATIN9 => [ "\xe9", "\xa4" ],
	WIN1252 => [ "\x80", "\xe9", "\xff", "\x81", "\x9f" ],
	WIN1251 => [ "\xc0", "\xff", "\x98" ],
	KOI8R => [ "\xc1", "\xff" ],
	SJIS => [ "\x95\x5c", "\x83\x7c", "\x94\x5c", "\x81\x5f", "\x83\x41", "\x93\xfa", "\xb1", "\x87\x40", "\xfa\x5c" ],
	SHIFT_JIS_2004 => [ "\x95\x5c", "\x83\x7c", "\x93\xfa", "\xb1" ],
	EUC_JP => [ "\xc6\xfc", "\xc9\xbd", "\x8e\xb1", "\x8f\xb0\xa1" ],
	BIG5 => [ "\xa5\x5c", "\xb3\x5c", "\xb5\x7c", "\xa4\x40", "\xa4\xe9", "\xf9\xd6" ],
	GBK => [ "\x81\x5c", "\x95\x7c", "\xd5\x5c", "\xc8\xd5", "\x80\x80" ],
	GB18030 => [ "\x81\x5c", "\x95\x7c", "\x81\x30\x81\x30", "\x90\x30\x81\x30", "\xc8\xd5", "\xe3\x32\x9a\x35" ],
	EUC_KR => [ "\xb0\xa1", "\xc0\xcf" ],
	UHC => [ "\x81\x41", "\xb0\xa1", "\xc0\x5a" ],
	JOHAB => [ "\x88\x61", "\xb7\x5c", "\xd3\x7c" ],
	EUC_CN => [ "\xc8\xd5" ],
	EUC_TW => [ "\xc5\xc6", "\x8e\xa2\xa1\xa1" ],
	SQL_ASCII => [ "\xe9", "\xff\xfe", "\x95\x5c" ]);

# Characters that are cut off, and bytes that are never valid.
my %invalid = (
	UTF8 => [ "\xff", "\xc3", "\xe6\x97", "\xed\xa0\x80" ],
	SJIS => [ "\x95", "\x95\x20", "\xff", "\x81\xff", "\x80" ],
	SHIFT_JIS_2004 => [ "\x95", "\xff" ],
	EUC_JP => [ "\xc6", "\xc6\x20", "\x8f\xb0", "\xff", "\x80" ],
	BIG5 => [ "\xa5", "\xa5\x20", "\xff", "\x80" ],
	GBK => [ "\x81", "\x81\x20", "\xff" ],
	GB18030 => [ "\x81", "\x81\x30", "\x81\x30\x81", "\xff", "\x81\x20" ],
	EUC_KR => [ "\xb0", "\xb0\x20", "\xff" ],
	UHC => [ "\x81", "\x81\x20", "\xff" ],
	JOHAB => [ "\x88", "\xff" ],
	EUC_CN => [ "\xc8", "\xff" ],
	EUC_TW => [ "\xc5", "\x8e\xa2", "\xff" ],
	LATIN1 => ["\0"],
	WIN1252 => [ "\0", "\x81" ],
	SQL_ASCII => ["\0"]);

# [ database encoding, encodings of files ]; without a conversion, both
# must report this error.
sub databases
{
	return (
		[ UTF8 => [ grep { $_ ne 'SQL_ASCII' } sort keys %characters ] ],
		[ LATIN1 => [qw(LATIN1 UTF8 WIN1252 SJIS SQL_ASCII)] ],
		[ EUC_JP => [qw(EUC_JP SJIS UTF8 LATIN1 GB18030)] ],
		[ SQL_ASCII => [qw(SQL_ASCII UTF8 SJIS BIG5 GB18030 GBK EUC_KR LATIN1 WIN1252)] ]);
}

# Whether a session of this database can have this client_encoding.
sub convertible
{
	my ($database, $encoding) = @_;
	return !($database eq 'LATIN1' && $encoding =~ /^(WIN1252|SJIS)$/
		|| $database eq 'EUC_JP' && $encoding =~ /^(LATIN1|GB18030)$/);
}

sub files
{
	my ($encoding) = @_;
	my $edge = 65536;
	my @files;
	my $all = join('', @{ $characters{$encoding} });
	for my $c (@{ $characters{$encoding} })
	{
		my $hex = unpack('H*', $c);
		push @files,
		  [ "$hex alone", "$c\n" ],
		  [ "$hex everywhere", "${c}a${c}b$c\n$c$c\n" ],
		  [ "$hex at the end of the file", "a\nb$c" ],
		  [ "$hex before delimiters", "$c,$c|$c\t$c\n" ],
		  [ "$hex in quotes", qq("$c","${c}""$c","$c\n$c"\n) ],
		  [ "$hex before a dot at the start", "$c.\n\\.\n" ],
		  [ "$hex before escapes", "$c\\n$c\\\\$c\\\n$c\n" ],
		  [ "$hex before CRLF", "a$c\r\n$c\r\n" ],
		  [ "$hex in a number", "1\n2$c\n" ],
		  [ "$hex in a long number", 'x' . ($c x 80) . "\n" ],
		  [ "$hex from 63 on", ('x' x 63) . ($c x 40) . "\n" ];
		push @files, [ "$hex at $_", ("abcdefg\n" x ($edge / 8)) =~ s/.{@{[$edge - $_]}}\z//sr . "$c$c\nb\n" ] for $edge - 2, $edge - 1;
	}
	push @files, [ 'all of them, often', ("$all,$all\n" x 2000) ];
	for my $bad (@{ $invalid{$encoding} // [] })
	{
		my $hex = unpack('H*', $bad);
		push @files,
		  [ "invalid $hex alone", $bad ],
		  [ "invalid $hex first", "${bad}a\nb\n" ],
		  [ "invalid $hex at the end of the file", "a\nb$bad" ],
		  [ "invalid $hex before LF", "a\nb$bad\nc\n" ],
		  [ "invalid $hex after good ones", "a\n$all$bad\nc\n" ],
		  [ "invalid $hex before a quote", qq("a$bad"\nc\n) ],
		  [ "invalid $hex before a delimiter", "a$bad,c\n" ],
		  [ "invalid $hex after the end of data", "a\n\\.\n$bad\n" ],
		  [ "invalid $hex at 65535", ("abcdefg\n" x ($edge / 8)) =~ s/.\z//sr . "$bad\nb\n" ];
	}
	return @files;
}

1;
