
# Input that is missing, never ends, never arrives or is no text. Afterwards the backend is
# alive, with no more open files and no more memory than before.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use File::Spec::Functions qw(rel2abs);
use IPC::Run ();
use POSIX ();
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(bulk_fdw sample seed start_server install_wrapper write_bytes);
use Options qw(sql_string);

note 'PG_BULK_SEED=' . seed();
my $node = start_server('bad_input');
install_wrapper($node, 'postgres');
my $directory = rel2abs(PostgreSQL::Test::Utils::tempdir('bad_input'));

# One session for all statements that must leave no trace in their backend.
my $session = $node->background_psql('postgres', on_error_stop => 0);
my $backend = $session->query_safe('SELECT pg_backend_pid()');

# The outcome of a statement in that session: its output, or the error with
# DETAIL, HINT and CONTEXT as psql shows them.
sub outcome
{
	my ($sql) = @_;
	$session->{stderr} = '';
	my ($out) = $session->query("\\set VERBOSITY verbose\n$sql");
	my $error = $session->{stderr};
	$session->{stderr} = '';
	$error =~ s/^psql:<stdin>:\d+: //mg;
	$error =~ s/^LOCATION:.*\n?//mg;
	chomp $error;
	return $error ne '' ? $error : $out;
}

sub foreign_table
{
	my (%how) = @_;
	my $columns = delete $how{columns} // 'a text';
	$node->safe_psql('postgres',
		"DROP FOREIGN TABLE IF EXISTS t; CREATE FOREIGN TABLE t ($columns) SERVER bulk_files OPTIONS ("
		  . join(', ', map { "$_ " . sql_string($how{$_}) } sort keys %how) . ')');
	return;
}

sub like_copy
{
	my ($name, $source, %how) = @_;
	my $copied = 'COPY copied.t FROM ' . ($how{program} ? 'PROGRAM ' : '') . sql_string($source) . " (FORMAT 'csv')";
	my $by_copy = outcome($copied);
	foreign_table(($how{program} ? 'program' : 'filename') => $source, format => 'csv');
	my $by_scan = outcome('SELECT * FROM t');
	$by_scan =~ s/\nfile "[^\n]*"$//;
	s/\nHINT:.*// for $by_scan, $by_copy;    # COPY's hint names COPY
	is($by_scan, $by_copy, "$name fails as COPY does");
	like($by_copy, $how{error}, "... namely so");
	return;
}

sub open_files { return scalar(() = glob("/proc/$backend/fd/*")); }

sub memory { return $session->query_safe('SELECT sum(total_bytes) FROM pg_backend_memory_contexts'); }

sub still_there
{
	my ($name) = @_;
	is($session->query('SELECT pg_backend_pid()'), $backend, "the backend lives: $name");
	return;
}

$node->safe_psql('postgres', 'CREATE SCHEMA copied; CREATE TABLE copied.t (a text)');

# Missing files, and files without permission to read.
my $unreadable = "$directory/unreadable";
write_bytes($unreadable, "a\n");
chmod 0, $unreadable;
mkdir "$directory/a_directory";
like_copy('a missing file', "$directory/missing", error => qr/58P01.*could not open file.*No such file or directory/);
like_copy('a directory', "$directory/a_directory", error => qr/42809.*is a directory/);
like_copy('a file that may not be read', $unreadable, error => qr/42501.*Permission denied/);
like_copy('a file name with a slash behind it', "$unreadable/", error => qr/could not open file/);
like_copy('a path through a file', "$unreadable/x", error => qr/Not a directory/);
still_there('after files that cannot be opened');

# Programs.
foreign_table(program => q(printf 'a\nb\n'), format => 'csv');
is(outcome('SELECT * FROM t'), "a\nb", 'a program delivers rows');
is(outcome('SELECT x.a, y.a FROM t x, t y ORDER BY 1, 2'), "a|a\na|b\nb|a\nb|b", 'a program is run again for a rescan');
like_copy('a program that fails', 'false', program => 1, error => qr/38000.*program "false" failed.*child process exited with exit code 1/s);
like_copy('a program that fails after rows', 'echo a; exit 3', program => 1, error => qr/38000.*exit code 3/s);
like_copy('a program that is killed', 'kill -9 $$', program => 1, error => qr/38000.*terminated by signal 9/s);
like_copy('a program that is not there', '/no/such/program', program => 1, error => qr/38000.*command not found|38000.*exit code 127/s);
foreign_table(program => 'yes', format => 'csv');
is(outcome('SELECT * FROM t LIMIT 1'), 'y', 'LIMIT 1 over a program without end');
is(outcome('SELECT count(*) FROM (SELECT FROM t LIMIT 100000) s'), '100000', 'LIMIT over many reads of a program without end');
foreign_table(program => 'yes x', format => 'csv', columns => 'a int4');
like(outcome('SELECT * FROM t'), qr/^ERROR:  22P02: .*\nCONTEXT:  COPY t, line 1, column a: "x"/, 'a bad value from a program without end');
still_there('after programs');

SKIP:
{
	skip 'file_fdw cannot be cancelled while it waits for input', 21 unless bulk_fdw();

	# Input that never arrives. A statement timeout must end the wait at once.
	my $fifo = "$directory/fifo";
	POSIX::mkfifo($fifo, 0600) or die "mkfifo: $!";
	my %waits = (
		'a FIFO without writer' => [ filename => $fifo ],
		'a program that says nothing' => [ program => 'sleep 100' ],
		'a program that stops after a row' => [ program => 'echo a; sleep 100' ],
		'a program that stops within what tells a compression' => [ program => "printf '\\037'; sleep 100" ],
		'a program that stops within the head of a member' => [ program => "printf '\\037\\213\\010'; sleep 100", compression => 'gzip' ],
		'a program that stops within a member' => [ program => "echo a | gzip | head -c 15; sleep 100" ]);
	for my $name (sort keys %waits)
	{
		foreign_table(@{ $waits{$name} }, format => 'csv');
		my $start = time;
		my $outcome = outcome("SET statement_timeout = '500ms';\nSELECT count(*) FROM t;\nRESET statement_timeout");
		my $took = time - $start;
		like($outcome, qr/57014: canceling statement due to statement timeout/, "$name is cancelled");
		cmp_ok($took, '<', 3, '... within a second or two');
	}
	is($node->safe_psql('postgres', q(SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT count%' AND state = 'active' AND pid <> pg_backend_pid())),
		'0', 'nobody waits any longer');
	my $sleepers = sub { return scalar grep { (slurp($_) // '') eq "sleep\0100\0" } glob('/proc/[0-9]*/cmdline'); };
	usleep(100_000) for grep { $sleepers->() } 1 .. 50;
	is($sleepers->(), 0, 'cancelled programs do not live on');

	# A slow writer.
	foreign_table(filename => $fifo, format => 'csv', columns => 'a int4, b text');
	my $writer = IPC::Run::start([ 'sh', '-c', "for i in 1 2 3; do echo \"\$i,x\"; sleep 0.3; printf '%s' \"1\$i\"; sleep 0.1; echo ,y; done > '$fifo'" ]);
	is(outcome('SELECT * FROM t'), "1|x\n11|y\n2|x\n12|y\n3|x\n13|y", 'a slow writer of a FIFO is heard to the end');
	$writer->finish;

	# A scan reports its progress, and its row disappears from the view.
	my $progress = sub { return $node->safe_psql('postgres', "SELECT command, type, tuples_processed >= 0 FROM pg_stat_progress_copy WHERE pid = $backend"); };
	foreign_table(program => 'echo 1; sleep 2; echo 2', format => 'csv', columns => 'a int4');
	$session->query_until(qr/begun/, "\\echo begun\nSELECT * FROM t;\n");
	my $seen = '';
	for (1 .. 15)
	{
		$seen = $progress->();
		last if $seen ne '';
		usleep(100_000);
	}
	is($seen, 'COPY FROM|PROGRAM|t', 'a scan shows in pg_stat_progress_copy');
	is($session->query(''), "1\n2", '... and ends');
	is($progress->(), '', '... and shows no more');
	foreign_table(program => 'echo x', format => 'csv', columns => 'a int4');
	like(outcome('SELECT * FROM t'), qr/22P02/, 'a scan fails');
	is($progress->(), '', '... and shows no more');
	still_there('after waits');
}

sub slurp
{
	my ($path) = @_;
	open my $file, '<:raw', $path or return;
	local $/;
	return scalar <$file>;
}

# Binary junk, by both formats.
srand(seed());
for my $n (1 .. 5)
{
	my $junk = join '', map { chr int rand 256 } 1 .. 65536;
	write_bytes("$directory/junk", $junk);
	for my $format ('csv', 'text')
	{
		my $by_copy = outcome('COPY copied.t FROM ' . sql_string("$directory/junk") . " (FORMAT '$format')");
		foreign_table(filename => "$directory/junk", format => $format);
		my $by_scan = outcome('SELECT * FROM t');
		$by_scan =~ s/\nfile "[^\n]*"$//;
		is($by_scan, $by_copy, "junk $n as $format fails as COPY does");
	}
}
still_there('after junk');

# Scans that fail or are not finished leave no file open and no memory allocated.
write_bytes("$directory/rows", join '', map { "$_,row $_\n" } 1 .. 20_000);
write_bytes("$directory/bad", (join '', map { "$_,row $_\n" } 1 .. 5_000) . "x,y\n");
write_bytes("$directory/cut", (join '', map { "$_,row $_\n" } 1 .. 5_000) . '5,"');
my %leaks = (
	'a bad value' => [ qr/22P02/, 'SELECT count(a) FROM t', filename => "$directory/bad" ],
	'an unterminated quote' => [ qr/22P04/, 'SELECT count(a) FROM t', filename => "$directory/cut" ],
	'a division by zero above the scan' => [ qr/22012/, 'SELECT a / (a - 3000) FROM t', filename => "$directory/rows" ],
	'a LIMIT' => [ qr/^1$/, 'SELECT a FROM t LIMIT 1', filename => "$directory/rows" ],
	'a missing file' => [ qr/58P01/, 'SELECT count(a) FROM t', filename => "$directory/missing" ],
	'a program that fails' => [ qr/38000/, 'SELECT count(a) FROM t', program => 'echo 1,a; exit 1' ],
	'a program that is not read to its end' => [ qr/^1$/, 'SELECT a FROM t LIMIT 1', program => 'yes 1,a' ],
	'rescans' => [ qr/^60000$/, 'SELECT count(*) FROM (VALUES (1), (2), (3)) v (i), LATERAL (SELECT v.i FROM t OFFSET 0) s', filename => "$directory/rows" ]);
for my $name (sort keys %leaks)
{
	my ($pattern, $sql, @options) = @{ $leaks{$name} };
	foreign_table(@options, format => 'csv', columns => 'a int4, b text');
	outcome($sql) for 1 .. 3;    # caches fill
	memory();
	my ($files, $memory) = (open_files(), memory());
	my @outcomes = map { outcome($sql) } 1 .. 50;
	is(scalar(grep { $_ =~ $pattern } @outcomes), 50, "$name, fifty times") or diag($outcomes[0]);
	is(open_files(), $files, '... leaves no file open');
	cmp_ok(memory() - $memory, '<=', 65536, '... leaves no memory allocated');
}
my $defunct = grep { (slurp($_) // '') =~ /^\d+ \(.*\) Z $backend / } glob('/proc/[0-9]*/stat');
is($defunct, 0, 'every program was waited for');
still_there('after all of it');

# A field longer than the maximal size of a value.
SKIP:
{
	skip 'PG_BULK_TIMES is not set', 2 unless sample(1, 2) > 1;
	my $path = "$directory/endless";
	open my $file, '>:raw', $path or die "$path: $!";
	print $file qq(a\n"b\n);
	my $block = ('x' x 1023) . "\n";
	$block x= 1024;
	print $file $block for 1 .. 1126;
	close $file;
	like_copy('a quote that is not closed in 1.1 GB', $path, error => qr/54000.*(out of memory|exceeds maximum allowed length).*COPY t, line/s);
	unlink $path;
}

$session->quit;
$node->stop;
done_testing();
