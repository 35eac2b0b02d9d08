
# Beside Citus: a coordinator and two workers. Distributed tables are loaded by the server's own INSERT … SELECT, from a job, too. Shards are
# loaded as COPY loads them. Where Citus is not active, nothing is stored.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Engines qw(extension ways);

plan skip_all => 'Citus is not installed' unless extension('citus');

my @servers = map {
	my $server = Engines->new($_, shared_preload_libraries => 'citus,pg_bulk', 'citus.node_conninfo' => 'sslmode=disable', 'citus.shard_count' => 4,
		max_prepared_transactions => 50, wal_level => 'logical', 'citus.enable_statistics_collection' => 'off');
	$server->start;
	$server->sql('CREATE EXTENSION citus; CREATE EXTENSION pg_bulk');
	$server->{columns} = 'id int, t text';
	$server
} ('coordinator', 'worker_1', 'worker_2');
my $server = $servers[0];
$server->sql("SELECT citus_set_coordinator_host('127.0.0.1', " . $server->node->port . ')');
$server->sql("SELECT citus_add_node('127.0.0.1', " . $_->node->port . ')') for @servers[1, 2];

my $file = $server->write('rows.csv', map { "$_,word $_\n" } 1 .. 2000);
my $bad = $server->write('bad.csv', "3001,a\nx,b\n3002,c\n");
$server->sql('SET client_min_messages = error; CREATE SCHEMA tenant; SELECT citus_schema_distribute(\'tenant\'); CREATE TABLE parents (id int PRIMARY KEY);
	INSERT INTO parents SELECT generate_series(1, 2000); SELECT create_reference_table(\'parents\')');

# For each kind: its statements, and its name in notes.
my $keyed = 'CREATE TABLE %1$s (id int PRIMARY KEY, t text); ';
my %kinds = (
	'distributed by hash' => [ "$keyed SELECT create_distributed_table('%1\$s', 'id')", 'a distributed table of Citus' ],
	'a reference table' => [ "$keyed SELECT create_reference_table('%1\$s')", 'a reference table of Citus' ],
	'managed by Citus' => [ "$keyed SELECT citus_add_local_table_to_metadata('%1\$s')", 'a local table that Citus manages' ],
	'managed for a foreign key' => [ 'CREATE TABLE %1$s (id int PRIMARY KEY REFERENCES parents, t text)', 'a local table that Citus manages' ],
	'of a distributed schema' => [ 'CREATE TABLE tenant.%1$s (id int PRIMARY KEY, t text); CREATE VIEW %1$s AS SELECT * FROM tenant.%1$s', undef, 'tenant.' ],
	'partitioned and distributed' => [ "CREATE TABLE %1\$s (id int, t text) PARTITION BY RANGE (id); CREATE TABLE %1\$s_1 PARTITION OF %1\$s FOR VALUES FROM (0) TO (1000);
		CREATE TABLE %1\$s_2 PARTITION OF %1\$s FOR VALUES FROM (1000) TO (10000); SELECT create_distributed_table('%1\$s', 'id')", 'a distributed table of Citus' ],
	'a view of a distributed table' => [ "CREATE TABLE %1\$s_t (id int PRIMARY KEY, t text); SELECT create_distributed_table('%1\$s_t', 'id'); CREATE VIEW %1\$s AS SELECT * FROM %1\$s_t", undef, '', '_t' ],
	'nothing of Citus' => [ $keyed, undef ]);

my $number = 0;
for my $kind (sort keys %kinds)
{
	my ($make, $what, $schema, $suffix) = @{ $kinds{$kind} };
	my $expected = '2000|1|2000|2001000';
	for my $way (ways())
	{
		my $table = 't' . ++$number;
		$server->sql('SET client_min_messages = error; ' . sprintf($make, $table));
		my $target = ($schema // '') . $table;
		# COPY does not accept views.
		next if $way =~ /COPY/ && $kind =~ /view/;
		my ($loaded, $error) = $server->into($way, $file, $target);
		is($error, '', "$kind, $way: no error");
		is($loaded, 2000, "$kind, $way: reported rows") if $way =~ /bulk_load|job/;
		my ($seen) = $server->try("SELECT count(*), min(id), max(id), sum(id) FROM $target");
		is($seen, $expected, "$kind, $way: rows are seen");
		is($server->sql("SELECT pg_relation_size('$target')"), '0', "$kind, $way: none is in the coordinator's own table") if $what;
		next unless $way eq 'bulk_load';
		my $notes = 'buffered';
		$server->sql("TRUNCATE $target") if $kind !~ /view/;
		if ($kind !~ /view/)
		{
			my ($said) = $server->try("SELECT writer, notes FROM bulk_load('$file', '$target', '{\"format\": \"csv\"}')");
			like($said, $what ? qr/^buffered\|.*planned by the library \\"citus\\".*\\"$table\\" is $what\./ : qr/^(buffered|direct)\|/, "$kind: notes say what it is");
			is($said, 'direct|{}', 'the direct writer writes to tables that Citus does not know') if $kind eq 'nothing of Citus';
		}
	}
}

$server->sql("SET client_min_messages = error; CREATE TABLE d (id int PRIMARY KEY, t text, n serial, at timestamptz DEFAULT now()); SELECT create_distributed_table('d', 'id')");
my $options = '"format": "csv", "columns": ["id", "t"]';
my ($said, $error) = $server->try("SELECT rows_loaded, rows_filtered FROM bulk_load('$file', 'd', '{$options, \"where\": \"id % 2 = 0\"}'); SELECT count(*), count(DISTINCT n), count(at) FROM d");
is("$said$error", "1000|1000\n1000|1000|1000", 'defaults and a condition');
(undef, $error) = $server->try("COPY d (id, t) FROM '$file' (FORMAT csv)");
my $complaint = $error =~ s/_\d+//r;
(undef, $error) = $server->try("SELECT * FROM bulk_load('$file', 'd', '{$options}')");
is($error =~ s/_\d+//r, $complaint, 'a key that is there: as COPY');
like($complaint, qr/duplicate key value violates unique constraint/, 'which complains of the key');
(undef, $error) = $server->try("SELECT * FROM bulk_load('$file', 'd', '{$options, \"on_duplicate\": \"keep_old\"}')");
like($error, qr/^0A000: cannot count duplicates of "d"/, 'keep_old is refused, since Citus does not count');
is($server->sql('SELECT count(*) FROM d'), '1000', 'and nothing is stored');
(undef, $error) = $server->try("SELECT * FROM bulk_load('$file', 'd', '{$options, \"on_duplicate\": \"keep_new\"}')");
like($error, qr/^0A000: cannot replace rows of "d"/, 'keep_new is refused');
like($server->complaint, qr/DETAIL: .*library "citus", with its node "Citus INSERT ... SELECT"/, 'and the plan node is named');
($said, $error) = $server->try("SELECT rows_loaded, rows_rejected FROM bulk_load('$bad', 'd', '{$options, \"on_error\": \"table\"}'); SELECT line_number FROM bulk_rejects");
is("$said$error", "2|1\n2", 'rejects');
($said, $error) = $server->try("SELECT rows_loaded FROM bulk_load('$file', 'd', '{$options, \"truncate\": true}'); SELECT count(*) FROM d");
is("$said$error", "2000\n2000", 'truncate');
($said, $error) = $server->try("BEGIN; SELECT rows_loaded FROM bulk_load('$file', 'd', '{$options, \"truncate\": true}'); ROLLBACK; SELECT count(*) FROM d");
is("$said$error", "2000\n2000", 'a load that is rolled back');
($said, $error) = $server->try("CREATE FOREIGN TABLE ft (id int, t text) SERVER bulk_files OPTIONS (filename '$file', format 'csv'); CREATE TABLE made AS SELECT * FROM ft; SELECT count(*) FROM made");
is("$said$error", '2000', 'CREATE TABLE AS');
# Citus moves the rows from the new table's file on the coordinator
# to the shards. It does not change the table's own file.
my %made = map {
	my ($on, $table) = ($_, "tenant.made_$_");
	my ($said, $error) = $server->try("SET pg_bulk.direct_insert = $on; CREATE TABLE $table AS SELECT * FROM ft; SELECT count(*), sum(id) FROM $table; SELECT partmethod FROM pg_dist_partition WHERE logicalrelid = '$table'::regclass; SELECT pg_relation_size('$table') > 0");
	$on => "$said$error"
} ('off', 'on');
like($made{off}, qr/^2000\|2001000\nn\n/, 'CREATE TABLE AS in a distributed schema');
is($made{on}, $made{off}, 'the same as a load');



# The coordinator has a shard of a reference table, too. Expected results are COPY's.
my %shards;
for my $way (ways())
{
	my $table = 'r' . ++$number;
	$server->sql("SET client_min_messages = error; CREATE TABLE $table (id int PRIMARY KEY, t text); SELECT create_reference_table('$table')");
	my $shard = $server->sql("SELECT '${table}_' || shardid FROM pg_dist_shard WHERE logicalrelid = '$table'::regclass");
	(undef, $error) = $server->into($way, $file, $shard);
	my ($seen) = $server->try("SELECT count(*) FROM $table");
	$error //= '';
	$shards{$way} = [ $error =~ s/$shard/SHARD/gr, $seen ];
	is_deeply($shards{$way}, $shards{COPY}, "a shard, $way: as COPY") or diag explain \%shards;
	is($server->sql("SELECT target FROM bulk_jobs ORDER BY job_id DESC LIMIT 1"), "public.$shard", 'a job into a shard is shown') if $way eq 'job';
	next if $way ne 'bulk_load';
	my ($said) = $server->try("SELECT notes FROM bulk_load('$bad', '$shard', '{\"format\": \"csv\", \"on_error\": \"ignore\"}')");
	like($said, qr/is a shard of a table of Citus/, 'notes say that it is a shard') if $shards{COPY}[0] eq '';
}

# A worker with metadata of the tables can load them, too.
my $local = $servers[1]->write('rows.csv', map { "$_,word $_\n" } 1 .. 2000);
$server->sql('TRUNCATE d');
($said, $error) = $servers[1]->try("SELECT rows_loaded FROM bulk_load('$local', 'd', '{\"format\": \"csv\", \"columns\": [\"id\", \"t\", \"n\"], \"expr\": {\"n\": \"id\"}}')");
unlike($error, qr/^XX/, 'a load on a worker ends well or with a reason') or diag $servers[1]->complaint;
$server->sql("SET client_min_messages = error; CREATE TABLE e (id int, t text); SELECT create_distributed_table('e', 'id')");
for my $way (ways())
{
	$server->sql('TRUNCATE e');
	(undef, $error) = $servers[1]->into($way, $local, 'e');
	is($error . $server->sql('SELECT count(*) FROM e'), '2000', "on a worker, $way");
}

# Citus is not loaded.
$server->sql('TRUNCATE e');
$server->node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_bulk'\n");
$server->node->restart;
for my $way ('bulk_load', 'bulk_load with workers', 'job')
{
	(undef, $error) = $server->into($way, $file, 'e');
	like($error, qr/^55000: cannot load "e": Citus is not active in this process/, "$way without Citus");
}
is($server->sql("SELECT pg_relation_size('e')"), '0', 'nothing was stored');
done_testing();
