
# Random tables with random indexes, into which random batches are loaded, with
# all options and all values of on_duplicate. The content must equal the result of
# core's INSERT of the same rows one after the other, with or without ON CONFLICT.
# Every index must find these rows, also on a standby and after a crash.
# See perl/RandomTables.pm and perl/model.sql.
#
# PG_BULK_SEED sets another seed. PG_BULK_ROUNDS sets the number of tables or, as FIRST-LAST,
# the tables; PG_BULK_TIMES=3 makes three times as many, PG_BULK_SOAK=1 many.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(sample seed write_bytes);
use Load qw(checksums_ok load_server standby_of);
use RandomTables qw(random_case);

use constant ROUNDS => 50;

my ($begin, $end) = ($ENV{PG_BULK_ROUNDS} // sample(ROUNDS, 1500)) =~ /^(?:(\d+)-)?(\d+)$/ or die 'PG_BULK_ROUNDS is N or FIRST-LAST';
$begin //= 1;
note 'PG_BULK_SEED=' . seed() . " PG_BULK_ROUNDS=$begin-$end";

my $node = load_server('model', wal_level => 'replica', wal_consistency_checking => 'all', log_statement => 'none', log_min_error_statement => 'panic', max_wal_size => '8GB');
my $model = "$FindBin::RealBin/../perl/model.sql";
my $session = "\\getenv data PGB_DATA\nSET client_min_messages = warning;\nSET statement_timeout = '120s';\n"
  . "SET search_path = proof, public;\nSELECT set_config('test.dir', :'data', false) \\gset\n";
$node->safe_psql('postgres', slurp_file($model));
my $standby = standby_of($node, 'standby');

# A script prints only complaints.
sub complaints_of
{
	my ($script) = @_;
	my ($status, $stdout, $stderr) = $node->psql('postgres', $session . $script, on_error_stop => 0, timeout => 600);
	return join "\n", grep { $_ ne '' } $stdout, $stderr;
}

sub case_of
{
	my ($number) = @_;
	srand(seed() * 1_000_003 + $number);
	return random_case($number);
}

my $failures = 0;
for my $number ($begin .. $end)
{
	my $script = case_of($number);
	my $complaints = complaints_of($script);
	next if $complaints eq '';
	fail("table $number");
	my $path = $node->basedir . "/case_$number.sql";
	write_bytes($path, $session . $script);
	diag("PG_BULK_SEED=" . seed() . " PG_BULK_ROUNDS=$number-$number\n$complaints\n");
	diag("after perl/model.sql, psql -f $path, which is, without rows:\n", $script =~ s/(\$content\$.{0,100}).*?\$content\$/$1...\$content\$/gsr);
	last if ++$failures >= 5;
}
is($failures, 0, 'loads do what the model does');

my $census = $node->safe_psql('postgres', "SELECT concat_ws(' from ', method, came_from), count(*) FROM proof.census GROUP BY 1 ORDER BY 1");
my $ends = $node->safe_psql('postgres', 'SELECT what, count(*) FROM proof.ends GROUP BY 1 ORDER BY 1');
note "indexes:\n$census\nloads:\n$ends";
# With few tables, the coverage depends on chance.
if ($end - $begin > 40)
{
	for my $way ('insert', 'merge', 'rebuild from load', 'rebuild from table')
	{
		my ($number) = $census =~ /^$way\|(\d+)$/m;
		cmp_ok($number // 0, '>', ($end - $begin) / 4, "$way: many indexes");
	}
	for my $what ('23505', 'all loaded', 'some left out')
	{
		my ($number) = $ends =~ /^$what\|(\d+)$/m;
		cmp_ok($number // 0, '>', ($end - $begin) / 4, "$what: many loads");
	}
}

# Checksums of the tables that were kept; unlogged ones are empty on a standby and after a crash.
sub digests
{
	my ($server) = @_;
	return $server->safe_psql('postgres', "SET search_path = proof, public;
		SELECT oid::regclass, digest(oid) FROM pg_class WHERE relname = 't' AND relpersistence = 'p' AND relnamespace::regnamespace::text LIKE 'case%' ORDER BY 1");
}
my $digests = digests($node);
cmp_ok(scalar(() = $digests =~ /^case/mg), '>', ($end - $begin) / 2, 'tables are there in the end');
command_ok([ 'pg_amcheck', '--all', '--heapallindexed', '--rootdescend', '--exclude-relation=pg_catalog.*', '-h', $node->host, '-p', $node->port ], 'pg_amcheck is content');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is(digests($standby), $digests, 'the standby has the same');
command_ok([ 'pg_amcheck', '--all', '--heapallindexed', '--exclude-relation=pg_catalog.*', '-h', $standby->host, '-p', $standby->port ], 'pg_amcheck is content with the standby');
$node->stop('immediate');
$node->start;
is(digests($node), $digests, 'after a crash there is the same');
command_ok([ 'pg_amcheck', '--all', '--heapallindexed', '--parent-check', '--exclude-relation=pg_catalog.*', '-h', $node->host, '-p', $node->port ], 'pg_amcheck is content after a crash');
checksums_ok($node);

$standby->stop;
$node->stop;
done_testing();
