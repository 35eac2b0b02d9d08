
# Beside pg_partman, PostGIS, periods and pglogical: loads have the same effects as COPY.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Engines qw(extension ways);

my %tested = map { $_ => extension($_) } ('pg_partman_bgw', 'postgis-3', 'periods', 'pglogical');
plan skip_all => 'none of the extensions is installed' unless grep { $_ } values %tested;
ok($tested{$_}, "$_ is installed") for sort keys %tested;

# From some minor release on a server has a list of the libraries for logical decoding.
my @plugins = `postgres --describe-config` =~ /^output_plugin_libraries\t/m ? (output_plugin_libraries => 'pgoutput,pglogical_output') : ();
my $server = Engines->new('extensions', @plugins, shared_preload_libraries => 'pg_bulk,pglogical', wal_level => 'logical', max_replication_slots => 20, max_wal_senders => 20,
	'pglogical.conflict_resolution' => 'error')->start;
$server->sql('CREATE EXTENSION pg_bulk');
my $number = 0;

# Loads the rows of a file, in each way into a table of its own. Returns the output of `look` for each.
sub compare
{
	my ($kind, $make, $file, $look, $columns) = @_;
	$server->{columns} = $columns;
	my $expected;
	for my $way (ways())
	{
		my $table = 't' . ++$number;
		$server->sql('SET client_min_messages = error; ' . sprintf($make, $table));
		my (undef, $error) = $server->into($way, $file, $table);
		my ($seen) = $server->try(sprintf($look, $table));
		$seen =~ s/\b$table\b|\b${table}_/T/g;
		$expected //= "$error\n$seen";
		is("$error\n$seen", $expected, "$kind, $way: as COPY");
	}
	return $expected;
}

my $points = $server->write('points.csv', map { my $i = $_; sprintf qq(%d,"POINT(%d %g)"\n), $i, $i % 100, $i / 7 } 1 .. 3000);
$server->sql('CREATE EXTENSION postgis');
my $seen = compare('PostGIS', 'CREATE TABLE %1$s (id int PRIMARY KEY, g geometry(Point)); CREATE INDEX ON %1$s USING gist (g); CREATE INDEX ON %1$s USING spgist (g)', $points,
	q{SELECT count(*), sum(st_x(g)), sum(st_y(g)), min(st_astext(g)) FROM %1$s; SET enable_seqscan = off; SELECT count(*), sum(id) FROM %1$s WHERE g && st_makeenvelope(10, 10, 20, 200);
	SELECT st_extent(g) FROM %1$s}, 'id int, g geometry');
like($seen, qr/^\n3000\|/, 'PostGIS: rows are seen');
my $lines = $server->write('lines.csv', qq(1,"POINT(1 1)"\n), qq(2,"LINESTRING(1 1, 2 2)"\n));
$seen = compare('PostGIS, another type', 'CREATE TABLE %1$s (id int, g geometry(Point))', $lines, 'SELECT count(*) FROM %1$s', 'id int, g geometry(Point)');
like($seen, qr/^22023/, 'PostGIS: an error of a type modifier');

my $days = $server->write('days.csv', map { my $i = $_; sprintf qq(%d,%s\n), $i, $i % 10 == 0 ? '1990-01-01' : sprintf('2026-01-%02d', 1 + $i % 28) } 1 .. 3000);
$server->sql('CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman');
$seen = compare('pg_partman', q{CREATE TABLE %1$s (id int, at timestamp NOT NULL) PARTITION BY RANGE (at);
	SELECT partman.create_parent('public.%1$s', 'at', 'native', 'weekly', p_start_partition => '2026-01-01')}, $days,
	q{SELECT tableoid::regclass::text, count(*), sum(id) FROM %1$s GROUP BY 1 ORDER BY 1; SELECT partman.partition_data_time('public.%1$s')}, 'id int, at timestamp');
like($seen, qr/Tdefault\|300\|/, 'pg_partman: rows are in its partitions, and in the default one');

my $words = $server->write('words.csv', map { "$_,word $_\n" } 1 .. 1000);
$server->sql('CREATE EXTENSION periods CASCADE');
$server->{columns} = 'id int, t text';
my %periods;
for my $way (ways())
{
	my $table = 't' . ++$number;
	$server->sql("SET client_min_messages = error; CREATE TABLE $table (id int PRIMARY KEY, t text); SELECT periods.add_system_time_period('$table'); SELECT periods.add_system_versioning('$table')");
	my $columns = $way =~ /COPY/ ? "$table (id, t)" : $table;
	my (undef, $error);
	if ($way =~ /INSERT/)
	{
		my $insert = "INSERT INTO $table (id, t) SELECT * FROM ft";
		(undef, $error) = $server->try("CREATE FOREIGN TABLE pg_temp.ft (id int, t text) SERVER bulk_files OPTIONS (filename '$words', format 'csv'); "
			. ($way =~ /prepared/ ? "PREPARE p AS $insert; EXECUTE p" : $insert));
	}
	else
	{
		(undef, $error) = $server->into($way, $words, $columns, $way =~ /COPY/ ? () : (columns => '["id", "t"]'));
	}
	($periods{$way}) = $server->try("SELECT count(*), count(DISTINCT system_time_start), min(system_time_end), bool_and(system_time_start > now() - interval '1 hour') FROM $table;
		UPDATE $table SET t = 'x' WHERE id < 11; SELECT count(*) FROM ${table}_history");
	is("$error\n$periods{$way}", "\n$periods{COPY}", "periods, $way: as COPY");
}
like($periods{COPY}, qr/^1000\|1\|infinity\|t\n10$/, 'periods: the time is set, and history is kept');

# A subscriber in another database of the same server.
my $port = $server->node->port;
my $host = $server->node->host;
$server->sql('CREATE DATABASE subscriber');
$server->sql("SET client_min_messages = error; CREATE EXTENSION pglogical; SELECT pglogical.create_node('provider', 'host=$host port=$port dbname=postgres')");
my @published = map { [ $_, 'p' . ++$number ] } ways();
for (@published)
{
	$server->sql("CREATE TABLE $_->[1] (id int PRIMARY KEY, t text); SELECT pglogical.replication_set_add_table('default', '$_->[1]')");
	$server->node->safe_psql('subscriber', "CREATE TABLE $_->[1] (id int PRIMARY KEY, t text)");
}
$server->node->safe_psql('subscriber', "SET client_min_messages = error; CREATE EXTENSION pglogical; SELECT pglogical.create_node('subscriber', 'host=$host port=$port dbname=subscriber');
	SELECT pglogical.create_subscription('s', 'host=$host port=$port dbname=postgres', synchronize_data := false)");
$server->node->poll_query_until('subscriber', "SELECT status = 'replicating' FROM pglogical.show_subscription_status()");
for (@published)
{
	my ($way, $table) = @$_;
	my (undef, $error) = $server->into($way, $words, $table);
	is($error, '', "pglogical, $way: no error");
	ok($server->node->poll_query_until('subscriber', "SELECT count(*) = 1000 AND sum(id) = 500500 AND bool_and(t = 'word ' || id) FROM $table"), "pglogical, $way: the rows reach a subscriber");
}
done_testing();
