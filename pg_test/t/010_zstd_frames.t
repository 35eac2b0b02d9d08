
# Long zstd frames that several processes load are decoded in place, in the shared ring: the rows equal those of one
# process, and errors have the same messages.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Compress::Raw::Zlib ();
use Test::More;
use Digest::MD5 qw(md5_hex);
use File::Spec::Functions qw(rel2abs);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(install_wrapper start_server write_bytes);
use Points qw(point_set point_wait point_clear);

my $node = start_server('frames');
install_wrapper($node, 'postgres');
my $directory = rel2abs(PostgreSQL::Test::Utils::tempdir('frames'));
chmod 0755, $directory;
$node->safe_psql('postgres', 'CREATE UNLOGGED TABLE t (a int, b text)');

# 40 MB, more than twice the ring. The text of the rows repeats after 7 MB.
my @words = map { md5_hex($_) } 1 .. 170_000;
my $plain = "$directory/plain";
write_bytes($plain, join '', map { "$_,$words[$_ % @words]\n" } 1 .. 1_000_000);

sub outcome
{
	my ($path, $workers) = @_;
	my ($status, $out, $err) = $node->psql('postgres', <<SQL);
TRUNCATE t;
SELECT rows_loaded, workers, notes FROM bulk_load('$path', 't', '{"format": "csv", "workers": $workers}');
SELECT count(*), sum(a), sum(hashtextextended(b, a)) FROM t;
SQL
	$err =~ s/^psql:<stdin>:\d+: //mg;
	return $status == 0 ? $out : $err;
}

sub shell { system("cd '$directory' && $_[0]") == 0 or die $_[0]; return }

my $expected = outcome($plain, 1);
like($expected, qr/^1000000\|1\|\{\}\n1000000\|/, 'the plain file');

my $far = 'wlog=23,clog=20,hlog=21,slog=1,mml=5,strat=2';
my %frames = (
	'a frame' => 'zstd -q -1 -c plain',
	'a frame whose length is not told' => 'zstd -q -1 -c < plain',
	'a frame without a checksum' => 'zstd -q -1 --no-check -c plain',
	'a frame that looks back far' => "zstd -q --zstd=$far -c plain",
	'a frame that looks back further than the ring reaches' => 'zstd -q -1 --long=26 -c < plain',
	'a frame of quoted values without the last line end' => q{sed 's/[^,]*/"&"/g' plain | head -c -1 | zstd -q -1 -c},
	'two frames' => 'split -n l/2 plain part.; for p in part.*; do zstd -q -1 -c $p; done',
	'a long frame, one to skip, and short ones' =>
		q{head -n 900000 plain | zstd -q -1 -c; printf 'P*M\030\003\000\000\000abc'; tail -n 100000 plain | split -l 11000 --filter='zstd -q -1 -c' -});
# A failed ring is not visible otherwise: the file is then read in order, with the same result.
point_set($node, 'ring.in_order', 'error');
for my $name (sort keys %frames)
{
	shell("{ $frames{$name}; } > rows.zst");
	is(outcome("$directory/rows.zst", 1), $expected, $name);
}

# Bytes that another decoder starts with overwrite bytes decoded in place,
# so the ring was filled more than once; but not before they were read.
point_clear($node, 'ring.in_order');
shell('cat plain plain > both');
my $both = outcome("$directory/both", 1);
unlink "$directory/both";
shell(q{{ zstd -q -1 -c plain; printf 'P*M\030\003\000\000\000abc'; zstd -q -1 -c plain; } > skip.zst});
shell('{ zstd -q -1 -c plain; zstd -q -1 --long=27 -c < plain; } > far.zst');
point_set($node, 'ring.in_order', 'error');
for my $readers ('fast', 'slow')
{
	point_set($node, 'chunk.ticket', 'sleep=15') if $readers eq 'slow';
	is(outcome("$directory/$_.zst", 1), $both, "a long frame, and a long one for another decoder: $_, $readers readers") for 'skip', 'far';
}
point_clear($node, 'chunk.ticket');
point_clear($node, 'ring.in_order');
unlink map { "$directory/$_.zst" } 'skip', 'far';

# Check that this path was taken.
shell('zstd -q -1 -f plain -o rows.zst');
point_set($node, 'zstd.block', 'wait');
my ($out, $err) = ('', '');
my $load = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
		"SELECT rows_loaded FROM bulk_load('$directory/rows.zst', 't', '{\"format\": \"csv\", \"workers\": 1}')" ], '>', \$out, '2>', \$err);
point_wait($node, 'zstd.block');
point_clear($node, 'zstd.block');
$load->finish;
is("$out$err", "1000000\n", 'block by block');
point_set($node, 'zstd.block', 'errno=5 after=30');
is(outcome("$directory/rows.zst", 1), $expected, 'a block that cannot be decoded: the file is read in order');
point_clear($node, 'zstd.block');

# Requests to cancel.
point_set($node, 'zstd.block', 'wait');
$load = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
		"SELECT rows_loaded FROM bulk_load('$directory/rows.zst', 't', '{\"format\": \"csv\", \"workers\": 1}')" ], '>', \$out, '2>', \$err);
my ($pid) = point_wait($node, 'zstd.block');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
$load->finish;
like($err, qr/^ERROR:  canceling statement due to user request/, 'canceled');
point_clear($node, 'zstd.block');

# Errors, with the messages of one process.
my $size = -s "$directory/rows.zst";
my %wrong = (
	'a byte in the middle' => sub { my $f = shift; seek $f, $size / 2, 0; print $f "\xff\x00\xff\x00\xff\x00" },
	'the checksum' => sub { my $f = shift; seek $f, -4, 2; print $f 'abcd' },
	'the end' => sub { my $f = shift; truncate $f, $size - 100_000 },
	'all but a head' => sub { my $f = shift; truncate $f, 10 },
	'bytes behind it' => sub { my $f = shift; seek $f, 0, 2; print $f 'no frame at all, but text' });
for my $name (sort keys %wrong)
{
	shell('cp rows.zst wrong.zst');
	open my $file, '+<', "$directory/wrong.zst" or die $!;
	$wrong{$name}->($file);
	close $file or die $!;
	my $alone = outcome("$directory/wrong.zst", 0);
	like($alone, qr/^ERROR:  /, "$name: one process");
	# The number of lines read before differs.
	is(outcome("$directory/wrong.zst", 1) =~ s/, line \d+$//mr, $alone =~ s/, line \d+$//mr, "$name: two");
}

# Records that fit into the ring, or do not.
for my $length (14, 20)
{
	shell(qq{{ head -n 1000 plain; printf '0,'; head -c ${length}000000 /dev/zero | tr '\\0' x; echo; cat plain; } | zstd -q -1 -c > rows.zst});
	my $alone = outcome("$directory/rows.zst", 0) =~ s/^1001001\|0\|/1001001|1|/r;
	is(outcome("$directory/rows.zst", 1), $alone, "a record of $length MB");
}

# Frames that refer further back than a decoder may go, although the
# bytes are valid. One raw block, behind a header that states the window.
for my $window ([ 27, 0x88 ], [ 28, 0x90 ], [ 31, 0xa8 ])
{
	my ($log, $byte) = @$window;
	write_bytes("$directory/window.zst", pack('V C C', 0xFD2FB528, 0, $byte) . "\x21\0\0" . "1,x\n");
	for my $workers (0, 1)
	{
		my $said = outcome("$directory/window.zst", $workers);
		if ($log == 27) { like($said, qr/^1\|\d\|\{\}\n1\|1\|/, "a window of 128 MB, $workers workers"); }
		else { like($said, qr/^ERROR:  zstd data of file ".*" need too much memory to be decompressed\nDETAIL:  The window of a decompressor is limited to 128 MB\./, "a window of 2^$log bytes, $workers workers"); }
	}
}
# xz states it in a byte of the block header, which has a checksum: 64 MB, an upper bound for most presets, and 4 GB.
shell('printf "1,x\n" | xz -0 > small.xz');
my $xz = slurp_file("$directory/small.xz");
for my $dictionary ([ 28, qr/^1\|\d\|\{\}\n1\|1\|/ ], [ 40, qr/^ERROR:  xz data of file ".*" need too much memory to be decompressed\nDETAIL/ ])
{
	my ($byte, $expected) = @$dictionary;
	my $length = (ord(substr $xz, 12, 1) + 1) * 4;
	my $bytes = $xz;
	substr $bytes, 16, 1, chr $byte;
	substr $bytes, 12 + $length - 4, 4, pack 'V', Compress::Raw::Zlib::crc32(substr $bytes, 12, $length - 4);
	write_bytes("$directory/small.xz", $bytes);
	like(outcome("$directory/small.xz", 1), $expected, "an xz dictionary of size $byte");
}

done_testing();
