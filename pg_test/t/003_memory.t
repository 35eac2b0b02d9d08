
# The memory of a scan: 64 MB and three times the longest record, for a file of any
# size. VmHWM of a fresh backend has its peak; the memory of the planner and the
# executor is measured on a file of one short record. The memory of a
# load from each source, and into many partitions: pg_bulk.memory_limit.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use IPC::Run;
use Test::More;
use Time::HiRes qw(usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(start_server install_wrapper);
use Options qw(sql_string);

use constant MB => 1024 * 1024;

my $node = start_server('memory');
install_wrapper($node, 'postgres');
$node->safe_psql('postgres', 'CREATE DOMAIN plain AS text');
my $directory = PostgreSQL::Test::Utils::tempdir('memory');
chmod 0755, $directory;

# A file of pieces, each a string and its number of repetitions.
sub write_file
{
	my ($name, @pieces) = @_;
	my $path = "$directory/$name";
	open my $out, '>:raw', $path or die "$path: $!";
	while (my ($string, $times) = splice @pieces, 0, 2)
	{
		for (; $times > 1000; $times -= 1000) { print $out $string x 1000; }
		print $out $string x $times;
	}
	close $out or die "$path: $!";
	return $path;
}

# MB used at most by a backend that has run a query over a file.
sub peak
{
	my ($path, $options, $type, $query) = @_;
	my $out = $node->safe_psql('postgres', <<"SQL");
SET client_min_messages = error;
SET jit = off;
DROP FOREIGN TABLE IF EXISTS t;
CREATE FOREIGN TABLE t (a int, b $type) SERVER bulk_files OPTIONS (filename ${\sql_string($path)}, $options);
\\o /dev/null
$query;
\\o
SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\\s+(\\d+)')::int / 1024;
SQL
	return $out;
}

my $csv   = "format 'csv'";
my $query = 'SELECT octet_length(b::text) FROM t';
my $base  = peak(write_file('short', "1,x\n", 1), $csv, 'text', $query);
my $size  = 100;

my %records = (
	'text'                    => [ "format 'text'", 'text',  "2\t",   'abcdefghij',   "\n" ],
	'text with escapes'       => [ "format 'text'", 'text',  "2\t",   'abcdefgh\\t',  "\n" ],
	'CSV, quoted'             => [ $csv,            'text',  '2,"',   "abcdefghi\n",  "\"\n" ],
	'CSV, with doubled quotes' => [ $csv,           'text',  '2,"',   'abcdefgh""',   "\"\n" ],
	'a type without decoder'  => [ $csv,            'plain', '2,"',   'abcdefghij',   "\"\n" ],
);
for my $name (sort keys %records)
{
	my ($options, $type, $start, $fill, $end) = @{ $records{$name} };
	my $first = $options eq $csv ? "1,x\n" : "1\tx\n";
	my $path = write_file('long', $first, 1, $start, 1, $fill, $size * MB / length $fill, $end, 1);
	# Only the scan counts: the query makes no copy of the value.
	my $used = peak($path, $options, $type, 'SELECT count(b) FROM t') - $base;
	cmp_ok($used, '<=', 64 + 3 * $size, "one record of $size MB: $name");
	cmp_ok($used, '>=', $size, "and the record was in memory: $name");
	unlink $path;
}

# Many records in a large file: the size must not matter.
my $many = write_file('many', "1,\"abcdefghijklmnopqrstuvwxyz\"\n", 8_000_000);
my $used = peak($many, $csv, 'text', 'SELECT count(b) FROM t') - $base;
cmp_ok($used, '<=', 64, '240 MB of short records');

# Compressed files, too. A file of few bytes that decompresses to 3 GB is valid: the scan reads on, and can be
# canceled.
system('gzip', '-1', '-k', $many) == 0 or die 'gzip';
$used = peak("$many.gz", $csv, 'text', 'SELECT count(b) FROM t') - $base;
cmp_ok($used, '<=', 64, '240 MB of short records, compressed');
my $bomb = write_file('bomb', slurp_file($ENV{PG_ABS_SRCDIR} . '/data/compressed/many.zst'), 1250);
$used = peak($bomb, $csv, 'text', <<'SQL');
SET statement_timeout = '500ms';
DO $$ BEGIN PERFORM count(b) FROM t; EXCEPTION WHEN query_canceled THEN NULL; END $$;
RESET statement_timeout
SQL
cmp_ok($used - $base, '<=', 64, '300 KB that stand for 3 GB');
$node->psql('postgres', "SET statement_timeout = '300ms'; SELECT count(b) FROM t", stderr => \my $said);
like($said,
	qr/canceling statement due to statement timeout/, '... until it is cancelled');

# When the reader stops, the decompressing thread ends at any point: here within 256 GB of skippable frames, which the
# file system stores as a hole.
my $frame = slurp_file($ENV{PG_ABS_SRCDIR} . '/data/compressed/few.zst');
open my $sparse, '>:raw', "$directory/sparse" or die "sparse: $!";
print $sparse $frame;
for (1 .. 64)
{
	print $sparse pack('V2', 0x184D2A50, 0xFFFFFFFF);
	seek $sparse, 0xFFFFFFFF, 1 or die "seek: $!";
}
print $sparse $frame;
close $sparse or die "sparse: $!";
is($node->safe_psql('postgres', <<"SQL"), 1, 'a thread that nobody reads from ends');
CREATE FOREIGN TABLE sparse (a int, b text) SERVER bulk_files OPTIONS (filename ${\sql_string("$directory/sparse")}, $csv);
SET statement_timeout = '300ms';
DO \$\$ BEGIN PERFORM count(b) FROM sparse; EXCEPTION WHEN query_canceled THEN NULL; END \$\$;
RESET statement_timeout;
DO \$\$ BEGIN
	FOR i IN 1 .. 100 LOOP
		EXIT WHEN (SELECT count(*) FROM pg_ls_dir('/proc/self/task')) = 1;
		PERFORM pg_sleep(0.05);
	END LOOP;
END \$\$;
SELECT count(*) FROM pg_ls_dir('/proc/self/task');
SQL
unlink "$directory/sparse";

# A load, from each source, by each of its processes. Shared memory counts for each process that touches it.
$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS pg_bulk; CREATE TABLE loaded (a int, b text)');
my $rows = 3_000_000;
my $plain = write_file('plain', "1,\"abcdefghijklmnopqrstuvwxyz\"\n", $rows);
system("gzip -1 -k '$plain'; split -b 1000000 --filter='gzip -1' '$plain' > '$plain.members.gz'; zstd -q -1 '$plain'; xz -k -0 '$plain'; mkdir '$plain.d'; split -C 1000000 '$plain' '$plain.d/'; lz4 -q '$plain' '$plain.lz4'; bzip2 -1 -k '$plain'; mkfifo '$plain.fifo'") == 0
  or die 'compress';

# MB used at most by each worker of the server; the workers of a load end after it.
sub workers_peak
{
	my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
	my $peak = 0;
	for my $status (glob '/proc/[0-9]*/status')
	{
		open my $in, '<', $status or next;
		my $text = join '', <$in>;
		next unless $text =~ /^PPid:\s+$postmaster$/m && $text =~ /^VmHWM:\s+(\d+)/m;
		my $used = $1 / 1024;
		open my $name, '<', $status =~ s/status$/cmdline/r or next;
		$peak = $used if $used > $peak && (<$name> // '') =~ /parallel worker|pg_bulk/;
	}
	return $peak;
}

# The rows that a statement has loaded, and the MB used by the session and by workers. Rows are counted later: the first
# reader of pages with checksums, which initdb enables by default from 18 on, touches all shared buffers.
sub loading
{
	my ($statement) = @_;
	my ($in, $out, $err) = (<<"SQL", '', '');
SET pg_bulk.memory_limit = '16MB';
LOAD 'pg_bulk';
SET pg_bulk.copy = on;
TRUNCATE loaded;
\\o /dev/null
$statement;
\\o
SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\\s+(\\d+)')::int / 1024;
SET max_parallel_workers_per_gather = 0;
SELECT count(*) FROM loaded;
\\q
SQL
	my $psql = IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') ], '<', \$in, '>', \$out, '2>', \$err);
	my $others = 0;
	while ($psql->pumpable)
	{
		$psql->pump_nb;
		my $peak = workers_peak();
		$others = $peak if $peak > $others;
		usleep(10_000);
	}
	$psql->finish or die $err;
	# The statement's own output comes first.
	my @said = split /\n/, $out;
	my ($peak, $loaded) = splice @said, -2;
	return (@said, $loaded, $peak, $others);
}
sub load_from { return "SELECT * FROM bulk_load(${\sql_string($_[0])}, 'loaded', '{\"format\": \"csv\", \"workers\": $_[1]$_[2]}')"; }
my $short = write_file('short', "1,x\n", 1);
my (undef, $least) = loading(load_from($short, 0, ''));
sub job_of { return "SELECT bulk_enqueue(${\sql_string($_[0])}, 'loaded', '{\"format\": \"csv\", \"workers\": 2}') AS job \\gset\nSELECT bulk_wait(:job)"; }
# An INSERT that runs as a load.
sub take_over
{
	my ($path) = @_;
	return <<"SQL";
SET client_min_messages = warning;
DROP FOREIGN TABLE IF EXISTS taken;
CREATE FOREIGN TABLE taken (a int, b text) SERVER bulk_files OPTIONS (filename ${\sql_string($path)}, $csv);
SET pg_bulk.workers = 2;
INSERT INTO loaded SELECT * FROM taken
SQL
}
my %statements = (
	(map { my $path = $_; map { ($path =~ s/.*\///r . ", $_ workers" => load_from($path, $_, '')) } (0, 2) }
		  $plain, "$plain.gz", "$plain.members.gz", "$plain.zst", "$plain.xz", "$plain.lz4", "$plain.bz2", "$plain.d"),
	(map { ("a job: $_" =~ s/ .*\// /r => job_of($_)) } $plain, "$plain.zst", "$plain.d"),
	'FIFO' => "\\! cat '$plain' > '$plain.fifo' &\n" . load_from("$plain.fifo", 0, ''),
	'program' => load_from("cat '$plain'", 0, ', "program": true'),
	(map { ("an INSERT from $_" =~ s/ \/.*\// /r => take_over($_)) } $plain, "$plain.gz", "$plain.members.gz", "$plain.zst", "$plain.xz", "$plain.d"),
	'COPY FROM file' => "COPY loaded FROM '$plain' (FORMAT csv)",
	'COPY FROM PROGRAM' => "COPY loaded FROM PROGRAM 'cat $plain' (FORMAT csv)",
	'COPY FROM STDIN' => "\\copy loaded FROM '$plain' (FORMAT csv)");
for my $name (sort keys %statements)
{
	my ($loaded, $peak, $others) = loading($statements{$name});
	is($loaded, $rows, "$name: all rows");
	cmp_ok($peak - $least, '<=', 64, '... in 64 MB');
	cmp_ok($others - $least, '<=', 64, '... and so are its workers');
	cmp_ok($others, '>', 0, '... which there were') if $name =~ /^plain, 2 workers|^a job|^an INSERT/;
}
# The server keeps a function's result, below work_mem.
for my $path ($plain, "$plain.gz", "$plain.xz")
{
	my ($read, $peak) = split /\n/, $node->safe_psql('postgres', <<"SQL");
SELECT count(*) FROM bulk_read(${\sql_string($path)}, '{"format": "csv"}') AS r (a int, b text);
SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\\s+(\\d+)')::int / 1024;
SQL
	is($read, $rows, 'bulk_read: all rows of ' . $path =~ s/.*\///r);
	cmp_ok($peak - $least, '<=', 64, '... in 64 MB');
}
# And scans.
for my $kind (qw(xz lz4 bz2 d))
{
	$used = peak("$plain.$kind", $csv, 'text', 'SELECT count(b) FROM t') - $base;
	cmp_ok($used, '<=', 64, "a scan: $kind");
}
$used = peak("$plain.d", $csv, 'text', 'SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SELECT count(b) FROM t WHERE length(b) > 0') - $base;
cmp_ok($used, '<=', 64, 'a parallel scan of a directory');

# Files that decompress to 3 GB or more, in each format, take the same memory, and can be canceled.
write_file('rows', "1,abcdefghijklmnopqrstuvwxyz\n", 1_000_000);
my %programs = (gz => 'gzip -9', bz2 => 'bzip2 -9', xz => 'xz -1', lz4 => 'lz4 -q -1 -c', zst => 'zstd -q -1 -c');
for my $kind (sort keys %programs)
{
	system("cd '$directory' && $programs{$kind} < rows > one.$kind") == 0 or die $kind;
	my $bomb = write_file("bomb.$kind", slurp_file("$directory/one.$kind"), 110);
	my $stop = "\\set ON_ERROR_STOP 0\nSET statement_timeout = '400ms'";
	my %ways = (
		'a load' => load_from($bomb, 2, ''),
		'an INSERT' => take_over($bomb),
		'a scan' => take_over($bomb) =~ s/INSERT INTO loaded SELECT \*/SELECT count(b)/r);
	for my $way (sort keys %ways)
	{
		my ($state, $left, $peak, $others) = loading("$stop;\n$ways{$way};\n\\o\n\\echo :SQLSTATE\nRESET statement_timeout");
		is("$state|$left", '57014|0', "$way of 3 GB of $kind is cancelled");
		cmp_ok($peak - $least, '<=', 64, '... in 64 MB');
		cmp_ok($others - $least, '<=', 64, '... and so are its workers');
	}
	if ($kind eq 'gz')
	{
		$node->safe_psql('postgres', "SELECT bulk_enqueue('$bomb', 'loaded', '{\"format\": \"csv\", \"workers\": 2}')");
		my $others = 0;
		for (1 .. 40)
		{
			my $peak = workers_peak();
			$others = $peak if $peak > $others;
			usleep(10_000);
		}
		like($node->safe_psql('postgres', "SELECT bulk_cancel(max(job_id)) FROM bulk_jobs; SELECT bulk_wait(max(job_id)) FROM bulk_jobs"), qr/canceled/, 'a job of it is cancelled');
		cmp_ok($others - $least, '<=', 64, '... in 64 MB');
	}
	unlink $bomb;
}

# A load keeps pages of many partitions in memory, within its limit.
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION IF NOT EXISTS pg_bulk;
CREATE TABLE parted (a int, b text) PARTITION BY LIST (a);
SELECT format('CREATE TABLE parted_%s PARTITION OF parted FOR VALUES IN (%s)', i, i) FROM generate_series(0, 499) i \gexec
SQL

# MB used at most by a backend that has loaded a file into all partitions, and the rows loaded.
sub load_peak
{
	my ($path, $limit) = @_;
	return split /\n/, $node->safe_psql('postgres', <<"SQL");
SET pg_bulk.memory_limit = '$limit';
SELECT rows_loaded FROM bulk_load(${\sql_string($path)}, 'parted', '{"format": "csv", "workers": 0}');
SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\\s+(\\d+)')::int / 1024;
SQL
}
my $each = join '', map { "$_,x\n" } 0 .. 499;
my (undef, $idle) = load_peak(write_file('each', $each, 1), '1MB');
my $wide = join '', map { "$_," . 'x' x 1000 . "\n" } 0 .. 499;
my $parted = write_file('parted', $wide, 120);
for my $case ([ '1MB', 0, 20 ], [ '64MB', 16, 64 ], [ '1GB', 60, 1024 ])
{
	my ($limit, $least, $most) = @$case;
	my ($rows, $peak) = load_peak($parted, $limit);
	is($rows, 60_000, "memory_limit $limit: all rows");
	my $used = $peak - $idle;
	ok($used >= $least && $used <= $most, "... for which $used MB are used, $least to $most");
}
# A record that exceeds the limit.
my $huge = write_file('huge', "1,x\n", 1, '2,"', 1, 'abcdefghij', 20 * MB / 10, "\"\n", 1);
is((load_peak($huge, '1MB'))[0], 2, 'a record of 20 MB in 1 MB');

done_testing();
