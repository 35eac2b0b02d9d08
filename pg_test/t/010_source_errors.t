
# An error in a file has the same message for each source of its bytes. Each bad file is
# read from each source, in each way, jobs included, and compared with COPY of the plain file.
# Afterwards the target is unchanged, and the backend has no more descriptors, temporary
# files and locks.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use File::Spec::Functions qw(rel2abs);
use POSIX qw(mkfifo);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(write_bytes);
use Load qw(load_server healthy);
use Options qw(sql_string);

my $node = load_server('source_errors');
my $directory = rel2abs(PostgreSQL::Test::Utils::tempdir('source_errors'));
$node->safe_psql('postgres', <<'SQL');
CREATE SCHEMA source;
CREATE TABLE t (a int PRIMARY KEY, b text NOT NULL, c date CHECK (c < '2030-01-01'));
INSERT INTO t VALUES (-1, 'kept', NULL);
SQL

my $session = $node->background_psql('postgres', on_error_stop => 0);
my $backend = $session->query_safe("LOAD 'pg_bulk'; SELECT pg_backend_pid()");
$session->query_safe("SET pg_bulk.chunk_size = '16kB'; SET pg_bulk.copy_min_size = 0");

# The outcome of a statement: its output, or its error without the name of the file.
sub outcome
{
	my ($sql) = @_;
	$session->{stderr} = '';
	my ($out) = $session->query("\\set VERBOSITY verbose\n$sql");
	my $error = $session->{stderr};
	$session->{stderr} = '';
	$error =~ s/^psql:<stdin>:\d+: //mg;
	$error =~ s/^(LOCATION|HINT|SCHEMA NAME|TABLE NAME|COLUMN NAME|CONSTRAINT NAME):.*\n?//mg;
	chomp $error;
	return $error ne '' ? $error : $out;
}

# Files that the backend has open, except those that the server keeps: existing relations, and the last WAL segment.
sub open_files
{
	return join ' ', sort map { s{.*/(?=\w+/)}{}r } grep { !m{/(?:(?:base|global)/[\d/_.a-z]+|pg_wal/\w+)$} } map { readlink($_) // '' } glob("/proc/$backend/fd/*");
}

# Bad files: 3,000 good lines, the error, and 3,000 more; some 150 kB.
sub rows { return join '', map { sprintf "%d,row %d,2020-02-%02d\n", $_, $_, $_ % 28 + 1 } @_; }
my ($before, $behind) = (rows(1 .. 3000), rows(3001 .. 6000));
my %wrong = (
	'a bad number' => "x,y,2020-01-01\n",
	'a bad date' => "0,y,2020-02-30\n",
	'a field too few' => "0,y\n",
	'a field too many' => "0,y,2020-01-01,z\n",
	'bytes that are no characters' => "0,\xff\xfe,2020-01-01\n",
	'a NUL byte' => "0,y\0z,2020-01-01\n",
	'a null' => "0,,2020-01-01\n",
	'a row that is refused' => "0,y,2040-01-01\n",
	'a duplicate key' => "17,y,2020-01-01\n",
	'a quote that is not closed' => qq(0,"y\n),
	'an unquoted carriage return' => "0,y\rz,2020-01-01\n",
	'the end of the data in the middle' => "\\.\n");

sub pack_with
{
	my ($command, $path) = @_;
	system("$command < '$path' > '$path.packed'") == 0 or die $command;
	return "$path.packed";
}

# A process that writes a file to a FIFO when a reader opens it.
sub write_to
{
	my ($fifo, $path) = @_;
	my $pid = fork // die "fork: $!";
	return $pid if $pid;
	open STDOUT, '>', $fifo and exec 'cat', $path;
	POSIX::_exit(1);
}

# Each source, made from the plain file: the foreign table's options, and the arguments of bulk_load.
my %sources = (
	gzip => sub { my $path = pack_with('gzip -1', $_[0]); return ([ filename => $path ], $path, '{}'); },
	# Members of a few kB each, as bgzip writes them.
	members => sub {
		my $path = "$_[0].members";
		system("split -b 20000 --filter='gzip -1' '$_[0]' > '$path'") == 0 or die 'split';
		return ([ filename => $path ], $path, '{}');
	},
	zstd => sub { my $path = pack_with('zstd -q', $_[0]); return ([ filename => $path ], $path, '{}'); },
	lz4 => sub { my $path = pack_with('lz4 -q', $_[0]); return ([ filename => $path ], $path, '{}'); },
	bzip2 => sub { my $path = pack_with('bzip2 -1', $_[0]); return ([ filename => $path ], $path, '{}'); },
	xz => sub { my $path = pack_with('xz -0', $_[0]); return ([ filename => $path ], $path, '{}'); },
	pattern => sub {
		my $list = "$_[0].d";
		mkdir $list or die $list;
		write_bytes("$list/1", rows(100_001 .. 101_000));
		write_bytes("$list/3", rows(200_001 .. 201_000));
		link $_[0], "$list/2" or die $list;
		return ([ filename => "$list/*" ], "$list/?", '{}');
	},
	directory => sub { my $list = "$_[0].d"; return ([ filename => $list ], $list, '{}'); },
	# One writer for each reader.
	FIFO => sub { my $path = "$_[0].fifo"; mkfifo($path, 0644) or die "$path: $!"; return ([ filename => $path ], $path, '{}'); },
	program => sub { return ([ program => "cat '$_[0]'" ], "cat '$_[0]'", '{"program": true}'); },
	'a compressed program' => sub { return ([ program => "gzip -1 < '$_[0]'", compression => 'gzip' ], "gzip -1 < '$_[0]'", '{"program": true, "compression": "gzip"}'); });

my $number = 0;
for my $name (sort keys %wrong)
{
	my $path = "$directory/" . $number++;
	write_bytes($path, $before . $wrong{$name} . $behind);
	my $expected = outcome('SET pg_bulk.copy = off; COPY t FROM ' . sql_string($path) . " (FORMAT csv)");
	# From 18 on, no line of a CSV file ends the data.
	my $ends = $name =~ /end of the data/ && $node->pg_version < 18;
	like($expected, $ends ? qr/^(COPY 3000)?$/ : qr/^ERROR:  [0-9A-Z]{5}: /, "COPY of $name");
	outcome('DELETE FROM t WHERE a > 0');
	my $kept = 'SELECT count(*), min(b) FROM t WHERE a < 0';

	# A scan does not check the target's constraints.
	my $of_target = $name =~ /null|refused|duplicate/;

	my $same = sub {
		my ($how, $sql) = @_;
		my $writer = $how =~ /^FIFO/ ? write_to("$path.fifo", $path) : undef;
		my $outcome = outcome($sql);
		# The rest of the writer's output is not read.
		kill KILL => $writer and waitpid $writer, 0 if $writer;
		$outcome =~ s/^CONTEXT:  COPY \Kbulk_read(?=,)/t/m if $how =~ /bulk_read/;
		# The last lines of the context name the source; COPY has the line only.
		$outcome =~ s/\n(?:file|program) "[^\n]*"$//;
		if ($ends)
		{
			is($outcome =~ /ERROR/ ? $outcome : '', '', "$name, $how");
			is(outcome('SELECT count(*) FROM t WHERE a BETWEEN 1 AND 3000'), 3000, '... rows before it') if $how !~ /scan|bulk_read/;
			is(outcome('SELECT count(*) FROM t WHERE a BETWEEN 3001 AND 6000'), 0, '... and none behind it') if $how !~ /scan|bulk_read/;
			outcome('DELETE FROM t WHERE a > 0');
			return;
		}
		# For a row of an INSERT the executor knows the line, but not its text.
		is($outcome, $how =~ /INSERT/ && $of_target ? $expected =~ s/^(CONTEXT:  COPY t, line \d+): .*/$1/mr : $expected, "$name, $how");
		return;
	};

	for my $source ('file', 'gzip', 'members', 'zstd', 'lz4', 'bzip2', 'xz', 'pattern', 'directory', 'FIFO', 'program', 'a compressed program')
	{
		my ($options, $given, $load) = $source eq 'file' ? ([ filename => $path ], $path, '{}') : $sources{$source}->($path);
		my %options = (@$options, format => 'csv');
		$node->safe_psql('postgres', 'DROP FOREIGN TABLE IF EXISTS source.t; CREATE FOREIGN TABLE source.t (a int, b text, c date) SERVER bulk_files OPTIONS ('
			  . join(', ', map { "$_ " . sql_string($options{$_}) } sort keys %options) . ')');
		$same->("$source: scan", 'SELECT count(c), sum(length(b)), sum(a) FROM source.t') unless $of_target;
		$same->("$source: INSERT", 'INSERT INTO t SELECT * FROM source.t');
		for my $workers (0, 2)
		{
			my $json = $load =~ s/\}$/($load eq '{}' ? '' : ', ') . qq("format": "csv", "workers": $workers})/er;
			$same->("$source: bulk_load, $workers workers", "SELECT rows_loaded FROM bulk_load(${\sql_string($given)}, 't', '$json')");
		}
		my $json = $load =~ s/\}$/($load eq '{}' ? '' : ', ') . '"format": "csv"}'/er;
		$same->("$source: bulk_read", "SELECT count(c), sum(length(b)), sum(a) FROM bulk_read(${\sql_string($given)}, '$json') AS t (a int, b text, c date)")
		  unless $of_target;
		# The error of a job is in the queue.
		$same->("$source: job", <<"SQL") if $source =~ /^(?:file|zstd|pattern|FIFO|program)$/;
SELECT bulk_enqueue(${\sql_string($given)}, 't', '$json') AS job \\gset
SET client_min_messages = warning;
SELECT bulk_wait(:job) AS status \\gset
SELECT 'ERROR:  ' || error_sqlstate || ': ' || error_message || coalesce(E'\nDETAIL:  ' || error_detail, '') || coalesce(E'\nCONTEXT:  ' || error_context, '')
FROM bulk_queue WHERE job_id = :job AND :'status' = 'failed';
RESET client_min_messages;
SQL
	}
	$same->('COPY FROM file', 'SET pg_bulk.copy = on; COPY t FROM ' . sql_string($path) . ' (FORMAT csv)');
	$same->('COPY FROM PROGRAM', 'COPY t FROM PROGRAM ' . sql_string("cat $path") . ' (FORMAT csv)');
	# For psql, a line ends at a NUL byte.
	$same->('COPY FROM STDIN', "\\copy t FROM '$path' (FORMAT csv)") unless $name =~ /NUL/;
	is(outcome($kept), '1|kept', "$name: the table is as it was");
	is(outcome('SELECT count(*) FROM t'), '1', '... with no row more');
}

# Nothing must be left afterwards.
my $leaves = sub {
	my @files = map { glob $node->data_dir . "/base/pgsql_tmp/$_" } '*';
	# A thread that decompresses closes the file when its results are not wanted any more.
	for (1 .. 1000)
	{
		last if open_files() !~ m{/0\.members};
		select undef, undef, undef, 0.01;
	}
	return join ' ', scalar(@files), $session->query_safe(q(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype <> 'virtualxid' AND relation IS DISTINCT FROM 'pg_locks'::regclass)),
	  $session->query_safe(q(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker')), open_files();
};
my $again = sub { outcome("SELECT rows_loaded FROM bulk_load(${\sql_string($_[0])}, 't', '{\"format\": \"csv\", \"workers\": 2}')") for 1 .. 5; };
for my $of ("$directory/0", "$directory/0.packed", "$directory/0.members", "$directory/0.d/*")
{
	$again->($of);
	my $left = $leaves->();
	like($left, qr/^0 0 0 /, "$of leaves nothing" =~ s/\S*\///r);
	$again->($of);
	is($leaves->(), $left, '... however often it is loaded');
}
is($session->query_safe('SELECT pg_backend_pid()'), $backend, 'the backend lives');
$session->quit;
healthy($node, 'after all of it');
$node->stop;
done_testing();
