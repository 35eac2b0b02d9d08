
# Workers of a parallel scan read the file that the leader has opened, even if its
# name now means another one. Of several
# files they open each one when they reach it, and so do workers of loads; they do not read a file
# that leads out of a server's directory by then.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use Time::HiRes qw(usleep);
use File::Spec::Functions qw(rel2abs);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(install_wrapper start_server write_bytes);
use Points qw(point_set point_wait point_waiting point_clear);

my $node = start_server('workers');
install_wrapper($node, 'postgres');
my $path = rel2abs(PostgreSQL::Test::Utils::tempdir('workers')) . '/rows';
my $settings = 'SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;'
	. ' SET max_parallel_workers_per_gather = 2; SET pg_bulk.chunk_size = 1000;'
	. ' SET pg_bulk.aggregate_processes = 8;';
$node->safe_psql('postgres',
	"CREATE FOREIGN TABLE t (a int, b text) SERVER bulk_files OPTIONS (filename '$path', format 'csv')");

sub rows { return join '', map { "$_,row $_\n" } @_ }
my $rows = rows(1 .. 5000);

# Begins a statement; returns a function that waits for its outcome.
sub begin
{
	my ($sql, $before) = @_;
	my ($in, $out, $err) = (join("\n", $before // (), "$settings $sql;\n"), '', '');
	my $psql = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<', \$in, '>', \$out, '2>', \$err);
	$psql->pump_nb;
	return sub { $psql->finish; return $err ne '' ? $err : $out; };
}

# The outcome of a statement whose file is changed when its workers are about to open it.
sub outcome
{
	my ($leads, $statement, $change) = @_;
	write_bytes($path, $rows);
	point_set($node, 'scan.worker', 'wait');
	my $end = begin("SET parallel_leader_participation = $leads; $statement");
	point_wait($node, 'scan.worker');
	$change->();
	point_clear($node, 'scan.worker');
	return $end->();
}

my $all = 5000 * 5001 / 2;
for my $leads ('on', 'off')
{
	for my $query ([ 'SELECT count(*), sum(a) FROM t', "5000|$all\n" ], [ 'SELECT count(*), sum(a + 0) FROM t', "5000|$all\n" ])
	{
		my ($statement, $expected) = @$query;
		my $what = "$statement, leader participates: $leads";
		is(outcome($leads, $statement, sub { write_bytes("$path.new", rows(1 .. 10)); rename "$path.new", $path or die $! }),
			$expected, "$what: a file that is replaced");
		is(outcome($leads, $statement, sub { unlink $path or die $! }), $expected, "$what: ... that is removed");
		is(outcome($leads, $statement, sub { append_to_file($path, rows(1 .. 3000)) }), $expected, "$what: ... that has grown");
	}
}
# The leader's own scan.
like(outcome('off', 'SELECT sum(a + 0) FROM t', sub { truncate $path, 1000 or die $! }),
	qr/^ERROR:  file ".*rows" changed while it was being read/, 'a file that is shorter');
# The error of a row names the file as usual.
$rows = rows(1 .. 4000) . "x,row\n";
like(outcome('off', 'SELECT sum(a) FROM t', sub { unlink $path or die $! }),
	qr{^ERROR:  invalid input syntax for type integer: "x"\nCONTEXT:  COPY t, line 4001, column a: "x"\nfile "\Q$path\E"},
	'a bad row in a file that is gone');


# The leader notices a worker's error before it reads its next chunk, with rows of its own behind it. It raises the worker's
# error, and forgets it: a later error in the leader alone is its own.
$node->safe_psql('postgres', 'CREATE DOMAIN few AS int CONSTRAINT no_more CHECK (VALUE < 4001)');
for my $case (
	[ 'int', 'x', 'invalid input syntax for type integer: "x"', '' ],
	[ 'few', '4001', 'value for domain few violates check constraint "no_more"', "SCHEMA NAME:  public\nDATATYPE NAME:  few\nCONSTRAINT NAME:  no_more\n" ])
{
	my ($type, $value, $message, $names) = @$case;
	write_bytes($path, rows(1 .. 4000) . "$value,row\n");
	$node->safe_psql('postgres', "ALTER FOREIGN TABLE t ALTER a TYPE $type");
	my $context = qq{CONTEXT:  COPY t, line 4001, column a: "$value"\nfile "$path"\n};
	for my $query ('sum(a)', 'sum(a + 0)')
	{
		point_set($node, 'scan.chunk', 'wait leader');
		my $said = begin("SELECT $query FROM t; SET max_parallel_workers_per_gather = 0; SELECT $query FROM t", '\set VERBOSITY verbose')->();
		point_clear($node, 'scan.chunk');
		$said =~ s/LOCATION: .*\n//g;
		$said =~ s/^ERROR:  \w{5}: /ERROR: /mg;
		is($said, "ERROR: $message\n${context}parallel worker\n${names}ERROR: $message\n$context$names",
			"$query: an error of a worker in the leader, and of the same line without workers");
	}
}

# The planner plans as many workers as there are processors, with the leader if it participates. A kept plan may be from a time with
# more processors: then only as many workers as now aggregate rows, and the others end at once. All rows are counted, also in a
# rescan, and without workers.
$node->safe_psql('postgres', 'ALTER FOREIGN TABLE t ALTER a TYPE int');
write_bytes($path, rows(1 .. 5000));
my $query = 'SELECT count(*), sum(a) FROM t';
for my $case ([ 1, 'off', 1 ], [ 2, 'off', 2 ], [ 2, 'on', 1 ], [ 3, 'on', 2 ])
{
	my ($processes, $leads, $workers) = @$case;
	my $four = "SET max_parallel_workers_per_gather = 4; SET parallel_leader_participation = $leads;";
	my $places = "SET pg_bulk.aggregate_processes = $processes;";
	my $later = sub { return "$four PREPARE q AS $_[0];\n\\o /dev/null\nEXPLAIN EXECUTE q;\n\\o\n$places $_[1] EXECUTE q" };
	is(join('', $node->safe_psql('postgres', "$settings $four $places EXPLAIN $query") =~ /Workers Planned: (\d+)\n/), $workers,
		"$processes processes, leader participates: $leads: workers that are planned");
	point_set($node, 'scan.chunk', 'wait worker');
	my $end = begin($later->($query, ''));
	my (@waiting, $running);
	for (my $tries = 0; $tries < 300; $tries++)
	{
		@waiting = point_waiting($node, 'scan.chunk');
		$running = $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'");
		last if $running == $workers && @waiting == $workers;
		usleep(20_000);
	}
	is(scalar(@waiting) . " of $running", "$workers of $workers", "... that read, of four");
	point_clear($node, 'scan.chunk');
	is($end->(), "5000|$all\n", '... all rows');
	is($node->safe_psql('postgres', "$settings SET enable_material = off;"
			. $later->("SELECT g, s.* FROM generate_series(1, 3) g LEFT JOIN ($query) s ON true", '')),
		join("\n", map { "$_|5000|$all" } 1 .. 3), '... and again');
	is($node->safe_psql('postgres', $settings . $later->($query, "SET max_parallel_workers = $_;")), "5000|$all", "... with $_ of the workers")
		for 0, 1;
}
is($node->safe_psql('postgres', "$settings SET pg_bulk.aggregate_processes = 1; $query"), "5000|$all", 'the leader has the only place');
# A condition may run user code that waits: all workers take part.
point_set($node, 'scan.chunk', 'wait worker');
my $filtered = begin("SET pg_bulk.aggregate_processes = 1; $query WHERE a > 0");
my @waiting;
for (my $tries = 0; $tries < 300 && @waiting < 2; $tries++)
{
	@waiting = point_waiting($node, 'scan.chunk');
	usleep(20_000);
}
is(scalar(@waiting), 2, 'workers with a condition');
point_clear($node, 'scan.chunk');
is($filtered->(), "5000|$all\n", '... all rows');
# The line is right in any process, and after other processes have ended.
write_bytes($path, rows(1 .. 4000) . "x,row\n");
like(begin("SET max_parallel_workers_per_gather = 4; SET pg_bulk.aggregate_processes = 2; $query")->(),
	qr{^ERROR:  invalid input syntax for type integer: "x"\nCONTEXT:  COPY t, line 4001, column a: "x"\nfile "\Q$path\E"},
	'a bad row');

# Files below a server's directory, which become links to the same files outside before a worker opens them.
my $top = rel2abs(PostgreSQL::Test::Utils::tempdir('below'));
mkdir "$top/$_" or die $! for 'below', 'outside';
$node->safe_psql('postgres', <<"SQL");
CREATE SERVER below FOREIGN DATA WRAPPER bulk_fdw OPTIONS (directory '$top/below');
CREATE FOREIGN TABLE several (a int, b text) SERVER below OPTIONS (filename '[0-9]', format 'csv');
CREATE TABLE loaded (a int, b text);
SQL

sub inside
{
	for my $file (1 .. 6)
	{
		unlink "$top/below/$file";
		write_bytes("$top/below/$file", rows(1 .. 1000));
	}
	return;
}

sub outside
{
	for my $file (1 .. 6)
	{
		rename "$top/below/$file", "$top/outside/$file" or die $!;
		symlink "../outside/$file", "$top/below/$file" or die $!;
	}
	return;
}

sub back
{
	for my $file (1 .. 6)
	{
		rename "$top/outside/$file", "$top/below/$file" or die $!;
	}
	return;
}

my $refused = qr{^ERROR:  42501: file "\Q$top\E/below/\d" is not below the directory of server "below"\n};
inside();
point_set($node, 'scan.worker', 'wait');
my $end = begin("SET parallel_leader_participation = off;\n\\set VERBOSITY verbose\nSELECT sum(a + 0) FROM several");
point_wait($node, 'scan.worker');
outside();
point_clear($node, 'scan.worker');
like($end->(), $refused, 'a scan, files that lead out when a worker comes');

# The leader waits until the worker has opened a file, or failed to. The leader itself finds all of them in place.
inside();
my %points = ('worker.begin' => 'wait', 'load.launched' => 'wait leader', 'files.counted' => 'wait worker');
point_set($node, $_, $points{$_}) for keys %points;
$end = begin(qq(\n\\set VERBOSITY verbose\nSELECT rows_loaded, workers FROM bulk_load('[0-9]', 'loaded', '{"format": "csv", "server": "below", "workers": 1}')));
point_wait($node, $_) for 'worker.begin', 'load.launched';
outside();
point_clear($node, 'worker.begin');
for (my $tries = 0; $tries < 300 && !point_waiting($node, 'files.counted'); $tries++)
{
	last if $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'") eq '0';
	usleep(20_000);
}
back();
point_clear($node, $_) for 'load.launched', 'files.counted';
like($end->(), $refused, 'a load, files that lead out when a worker comes');
is($node->safe_psql('postgres', 'SELECT count(*) FROM loaded'), '0', '... nothing is loaded');

done_testing();
