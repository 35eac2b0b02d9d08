
# What becomes of a file between the leader of a parallel scan and its workers:
# they read what the leader has opened, whatever has its name by then.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use File::Spec::Functions qw(rel2abs);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(install_wrapper start_server write_bytes);
use Points qw(point_set point_wait point_clear);

my $node = start_server('workers');
install_wrapper($node, 'postgres');
my $path = rel2abs(PostgreSQL::Test::Utils::tempdir('workers')) . '/rows';
my $settings = 'SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;'
	. ' SET max_parallel_workers_per_gather = 2; SET pg_bulk.chunk_size = 1000;';
$node->safe_psql('postgres',
	"CREATE FOREIGN TABLE t (a int, b text) SERVER bulk_files OPTIONS (filename '$path', format 'csv')");

sub rows { return join '', map { "$_,row $_\n" } @_ }
my $rows = rows(1 .. 5000);

# A statement begun now; a function that ends it and returns what it says.
sub begin
{
	my ($sql, $before) = @_;
	my ($in, $out, $err) = (join("\n", $before // (), "$settings $sql;\n"), '', '');
	my $psql = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<', \$in, '>', \$out, '2>', \$err);
	$psql->pump_nb;
	return sub { $psql->finish; return $err ne '' ? $err : $out; };
}

# What a statement says whose file is changed when its workers are about to open it.
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
# The leader's own.
like(outcome('off', 'SELECT sum(a + 0) FROM t', sub { truncate $path, 1000 or die $! }),
	qr/^ERROR:  file ".*rows" changed while it was being read/, 'a file that is shorter');
# An error of a row names the file as ever.
$rows = rows(1 .. 4000) . "x,row\n";
like(outcome('off', 'SELECT sum(a) FROM t', sub { unlink $path or die $! }),
	qr{^ERROR:  invalid input syntax for type integer: "x"\nCONTEXT:  COPY t, line 4001, column a: "x"\nfile "\Q$path\E"},
	'a bad row in a file that is gone');


# The leader notices a worker's error while it is about to read on, with lines of its own behind it. It tells what the worker said,
# and forgets it: who meets the same later, alone, says so.
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

done_testing();
