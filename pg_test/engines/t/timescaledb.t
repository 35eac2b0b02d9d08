
# Beside TimescaleDB, preloaded in either order: rows of each way of loading are stored where COPY stores them, in chunks, compressed ones, too.
# The next refresh of a continuous aggregate includes these rows. Where TimescaleDB is not active, loads report this and store nothing.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Engines qw(extension ways);

plan skip_all => 'TimescaleDB is not installed' unless extension('timescaledb');

my $hypertable = q{SELECT create_hypertable('%1$s', 'at', chunk_time_interval => interval '1 day')};
# For each kind: its statements, the table that is loaded, and further queries besides its rows.
my %kinds = (
	'a hypertable' => [ "CREATE TABLE %1\$s (at timestamptz NOT NULL, device int, value float8); $hypertable" ],
	'a unique one with a trigger' => [
		"CREATE TABLE %1\$s (at timestamptz NOT NULL, device int, value float8, UNIQUE (at, device)); $hypertable;
		CREATE TABLE %1\$s_log (n int); CREATE FUNCTION %1\$s_f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO %1\$s_log VALUES (NEW.device); RETURN NULL; END';
		CREATE TRIGGER t AFTER INSERT ON %1\$s FOR EACH ROW EXECUTE FUNCTION %1\$s_f()", 'SELECT count(*), sum(n) FROM %1$s_log' ],
	'with rows, compressed' => [
		"CREATE TABLE %1\$s (at timestamptz NOT NULL, device int, value float8, UNIQUE (at, device)); $hypertable;
		INSERT INTO %1\$s SELECT '2026-01-01', -i, i FROM generate_series(1, 100) i; ALTER TABLE %1\$s SET (timescaledb.compress, timescaledb.compress_segmentby = 'device');
		SELECT compress_chunk(c) FROM show_chunks('%1\$s') c", 'SELECT status FROM _timescaledb_catalog.chunk ch JOIN _timescaledb_catalog.hypertable h ON h.id = hypertable_id WHERE h.table_name = \'%1$s\' ORDER BY ch.id' ],
	'with a continuous aggregate' => [
		"CREATE TABLE %1\$s (at timestamptz NOT NULL, device int, value float8); $hypertable;
		INSERT INTO %1\$s SELECT '2026-01-01', -i, i FROM generate_series(1, 100) i;
		CREATE MATERIALIZED VIEW %1\$s_sums WITH (timescaledb.continuous) AS SELECT time_bucket('1 day', at) AS day, count(*), sum(value) FROM %1\$s GROUP BY 1",
		"CALL refresh_continuous_aggregate('%1\$s_sums', NULL, NULL);\nSELECT * FROM %1\$s_sums ORDER BY 1" ],
	'a view of one' => [
		"CREATE TABLE %1\$s_t (at timestamptz NOT NULL, device int, value float8); SELECT create_hypertable('%1\$s_t', 'at', chunk_time_interval => interval '1 day');
		CREATE VIEW %1\$s AS SELECT * FROM %1\$s_t", '', 1 ]);

my $server;
my $file;

sub run_all
{
	my ($order, %how) = @_;
	$server = Engines->new('beside_' . ($order =~ s/\W+/_/gr), 'timescaledb.telemetry_level' => 'off', %how);
	$server->start;
	$server->sql('CREATE EXTENSION timescaledb; CREATE EXTENSION pg_bulk');
	$server->{columns} = 'at timestamptz, device int, value float8';
	$file = $server->write('rows.csv', map { my $i = $_; sprintf "2026-01-0%d 00:00:00+00,%d,%g\n", 1 + int($i / 400), $i, $i / 7 } 0 .. 1999);
	for my $kind (sort keys %kinds)
	{
		my ($make, $look, $is_view) = @{ $kinds{$kind} };
		my ($expected, $number) = ('', 0);
		for my $way (ways())
		{
			# COPY does not accept views.
			my $through = $is_view && $way eq 'COPY' ? 'INSERT SELECT' : $way;
			next if $is_view && $way eq 'taken COPY';
			my $table = 't' . ++$number;
			$server->sql('SET client_min_messages = error; ' . sprintf($make, $table));
			my ($loaded, $error) = $server->into($through, $file, $table);
			is($error, '', "$order, $kind, $through: no error");
			is($loaded, 2000, "$order, $kind, $through: reported rows") if $through =~ /bulk_load|job/;
			my $stored = $is_view ? "${table}_t" : $table;
			my ($seen) = $server->try("SELECT count(*), sum(value), min(at) FROM $table; SELECT pg_relation_size('$stored')"
				. ($look ? ";\n" . sprintf($look, $table) : ''));
			$expected = $seen if $way eq 'COPY';
			is($seen, $expected, "$order, $kind, $through: what is seen is what COPY leaves");
		}
		like($expected, qr/^2[01]00\|/, "$order, $kind: COPY's rows are seen");
		my $tables = join ', ', map { "t$_" . ($is_view ? '_t' : '') } 1 .. $number;
		$server->sql("SET client_min_messages = error; DROP TABLE $tables CASCADE; DROP FUNCTION IF EXISTS " . join ', ', map { "t${_}_f" } 1 .. $number);
		$server->sql('SET client_min_messages = error; DROP TABLE IF EXISTS ' . join ', ', map { "t${_}_log" } 1 .. $number);
	}
	return;
}

run_all('timescaledb', shared_preload_libraries => 'timescaledb');
$server->node->stop;
run_all('timescaledb, pg_bulk', shared_preload_libraries => 'timescaledb,pg_bulk');
$server->node->stop;
run_all('timescaledb, session pg_bulk', shared_preload_libraries => 'timescaledb', session_preload_libraries => 'pg_bulk');
$server->node->stop;
run_all('pg_bulk, timescaledb', shared_preload_libraries => 'pg_bulk,timescaledb');

# The result of the load, and options.
sub make { my ($table, $make) = @_; $server->sql('SET client_min_messages = error; DROP TABLE IF EXISTS ' . "$table CASCADE; " . sprintf($make, $table)); return; }
my $unique = "CREATE TABLE %1\$s (at timestamptz NOT NULL, device int, value float8, UNIQUE (at, device)); $hypertable";
make('h', $unique);
my ($said) = $server->try("SELECT writer, notes FROM bulk_load('$file', 'h', '{\"format\": \"csv\"}')");
like($said, qr/^buffered\|.*planned by the library \\"timescaledb-[\d.]+\\", with its node \\"ModifyHypertable\\".*\\"h\\" is a hypertable of TimescaleDB\./, 'notes say who plans the INSERT');
my (undef, $error) = $server->into('bulk_load', $file, 'h');
like($error, qr/^23505/, 'a key that is there');
($said, $error) = $server->try("SELECT rows_loaded, rows_duplicate FROM bulk_load('$file', 'h', '{\"format\": \"csv\", \"on_duplicate\": \"keep_old\"}')");
is("$said$error", '0|2000', 'keep_old');
(undef, $error) = $server->into('bulk_load', $file, 'h', on_duplicate => '"keep_new"');
like($error, qr/^0A000: cannot replace rows of "h"/, 'keep_new is refused');
like($server->complaint, qr/DETAIL: .*library "timescaledb-[\d.]+", with its node "ModifyHypertable"/, 'and the plan node is named');
(undef, $error) = $server->into('bulk_load', $file, 'h', writer => '"direct"');
like($error, qr/^0A000: cannot load "h" with the direct writer/, 'writer direct is refused');
($said, $error) = $server->try("SELECT rows_loaded FROM bulk_load('$file', 'h', '{\"format\": \"csv\", \"truncate\": true}'); SELECT count(*) FROM h");
is("$said$error", "2000\n2000", 'truncate');
my $bad = $server->write('bad.csv', "2026-02-01 00:00:00+00,1,1\nnonsense,2,2\n2026-02-01 00:00:00+00,x,3\n2026-02-02 00:00:00+00,4,4\n");
($said, $error) = $server->try("SELECT rows_loaded, rows_rejected FROM bulk_load('$bad', 'h', '{\"format\": \"csv\", \"on_error\": \"table\"}'); SELECT line_number FROM bulk_rejects ORDER BY 1");
is("$said$error", "2|2\n2\n3", 'rejects');
my ($explained) = $server->try("CREATE FOREIGN TABLE ft ($server->{columns}) SERVER bulk_files OPTIONS (filename '$file', format 'csv'); EXPLAIN (VERBOSE, COSTS OFF) INSERT INTO h SELECT * FROM ft");
like($explained, qr/ModifyHypertable.*Direct Insert: no \("h" is a hypertable of TimescaleDB\)/s, 'EXPLAIN says why an INSERT is not a load');
($explained) = $server->try('CREATE TABLE plain (LIKE h); EXPLAIN (COSTS OFF) INSERT INTO plain SELECT * FROM ft');
like($explained, qr/Direct Insert/, 'beside TimescaleDB an INSERT into another table is a load');
($said, $error) = $server->try("SELECT writer FROM bulk_load('$file', 'plain', '{\"format\": \"csv\"}')");
is("$said$error", 'direct', 'and so the direct writer writes to it');
($said, $error) = $server->try('CREATE TABLE made AS SELECT * FROM ft; SELECT count(*) FROM made');
is("$said$error", '2000', 'CREATE TABLE AS');

# Chunks as targets.
for my $compressed (0, 1)
{
	my %seen;
	for my $way (ways())
	{
		make('c', $unique);
		$server->sql("SET client_min_messages = error; INSERT INTO c SELECT '2026-03-01', -i, i FROM generate_series(1, 100) i");
		$server->sql("SET client_min_messages = error; ALTER TABLE c SET (timescaledb.compress, timescaledb.compress_segmentby = 'device'); SELECT compress_chunk(x) FROM show_chunks('c') x") if $compressed;
		$server->sql("CREATE MATERIALIZED VIEW sums WITH (timescaledb.continuous) AS SELECT time_bucket('1 day', at) AS day, count(*), sum(value) FROM c GROUP BY 1");
		my $chunk = $server->sql("SELECT show_chunks('c')");
		my $rows = $server->write("chunk_${compressed}_$way.csv" =~ s/\s/_/gr, map { "2026-03-01 00:00:00+00,$_,$_\n" } 1 .. 500);
		my (undef, $error) = $server->into($way, $rows, $chunk);
		is($error, '', "a chunk, compressed: $compressed, $way: no error");
		my ($status) = $server->try("SELECT status FROM _timescaledb_catalog.chunk WHERE '$chunk' = format('%I.%I', schema_name, table_name)");
		($seen{$way}) = $server->try("CALL refresh_continuous_aggregate('sums', NULL, NULL);\nSELECT count(*), sum(value) FROM c; SELECT * FROM sums ORDER BY 1");
		$seen{$way} .= "\n$status";
		is($seen{$way}, $seen{COPY}, "a chunk, compressed: $compressed, $way: as COPY");
	}
	like($seen{COPY}, qr/^600\|/, 'rows of a chunk are seen');
}
# The internal table of compressed data: users do not load it.
my $internal = $server->sql("SELECT format('%I.%I', schema_name, table_name) FROM _timescaledb_catalog.hypertable WHERE compression_state = 2 LIMIT 1");
(undef, $error) = $server->try("SELECT rows_loaded FROM bulk_load('$file', '$internal', '{\"format\": \"csv\"}')");
isnt($error, '', 'a table of TimescaleDB itself takes no rows');

# The library is not loaded.
make('h', $unique);
my $chunk = $server->sql("SELECT show_chunks('c')");
$server->node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_bulk'\n");
$server->node->restart;
for my $way ('bulk_load', 'bulk_load with workers', 'job')
{
	my (undef, $error) = $server->into($way, $file, 'h');
	like($error, qr/^55000: cannot load "h": TimescaleDB is not active in this process/, "$way without TimescaleDB");
	(undef, $error) = $server->into($way, $file, 'h', writer => '"buffered"');
	like($error, qr/^55000: cannot load "h": TimescaleDB is not active/, "$way without TimescaleDB, buffered");
}
is($server->sql("SELECT pg_relation_size('h')"), '0', 'nothing was stored');
(undef, $error) = $server->into('bulk_load', $file, $chunk);
like($error, qr/^55000: cannot load "_hyper_\w+": TimescaleDB is not active in this process/, 'a chunk without TimescaleDB');
$server->node->append_conf('postgresql.conf', "shared_preload_libraries = 'timescaledb'\n");
$server->node->restart;
(undef, $error) = $server->try("SET timescaledb.disable_load = on; SELECT * FROM bulk_load('$file', 'h', '{\"format\": \"csv\"}')");
like($error, qr/^55000: cannot load "h": TimescaleDB is not active in this process/, 'without TimescaleDB in this session');
is(($server->into('job', $file, 'h'))[0], '2000', 'with it in the next one');
is($server->sql('SELECT count(*) FROM h'), '2000', 'whose rows are seen');
done_testing();
