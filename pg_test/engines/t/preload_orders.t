
# pg_bulk and the engines, preloaded in each order: the orders in which a server starts, and in which COPY is a load.
# docs/operations/install.md has this table. A job, too, loads the libraries of session_preload_libraries.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Engines qw(extension);

my ($citus, $timescaledb) = (extension('citus'), extension('timescaledb'));
my $server = Engines->new('orders', 'timescaledb.telemetry_level' => 'off', 'citus.enable_statistics_collection' => 'off', log_min_messages => 'warning');
$server->{columns} = 'id int, t text';
my $file = $server->write('rows.csv', map { "$_,word $_\n" } 1 .. 1000);
my @conf = slurp_file($server->node->data_dir . '/postgresql.conf');

# shared_preload_libraries and session_preload_libraries; whether
# the server starts; whether a COPY into a plain table is a load.
my @orders = (
	[ 'pg_bulk', '', 1, 1 ],
	[ '', 'pg_bulk', 1, 1 ],
	[ 'timescaledb,pg_bulk', '', 1, 1 ],
	[ 'pg_bulk,timescaledb', '', 1, 1 ],
	[ 'timescaledb', 'pg_bulk', 1, 1 ],
	[ 'citus,pg_bulk', '', 1, 0 ],
	[ 'citus', 'pg_bulk', 1, 0 ],
	[ 'pg_bulk,citus', '', 0, 0 ],
	[ 'citus,timescaledb,pg_bulk', '', 1, 0 ],
	[ 'citus,pg_bulk,timescaledb', '', 1, 0 ],
	[ 'timescaledb,citus,pg_bulk', '', 1, 0 ],
	[ 'timescaledb,pg_bulk,citus', '', 0, 0 ],
	[ 'pg_bulk,timescaledb,citus', '', 0, 0 ],
	[ 'pg_bulk,citus,timescaledb', '', 0, 0 ]);

my %made;
for (@orders)
{
	my ($shared, $session, $starts, $copies) = @$_;
	next if $shared =~ /citus/ && !$citus || $shared =~ /timescaledb/ && !$timescaledb;
	my $name = "shared '$shared', session '$session'";
	my $conf = $server->node->data_dir . '/postgresql.conf';
	unlink $conf;
	append_to_file($conf, join '', @conf, "shared_preload_libraries = '$shared'\nsession_preload_libraries = '$session'\n");
	my $logged = -e $server->node->logfile ? -s $server->node->logfile : 0;
	my $started = $server->node->start(fail_ok => 1);
	is($started ? 1 : 0, $starts, "$name: " . ($starts ? 'starts' : 'does not start'));
	if (!$starts)
	{
		like(slurp_file($server->node->logfile, $logged), qr/Citus has to be loaded first/, "$name: Citus says why");
		$server->node->stop('immediate') if $started;
		next;
	}
	# Each engine has a database of its own.
	my @databases = ([ 'postgres', '' ]);
	push @databases, [ 'of_timescaledb', 'timescaledb' ] if $shared =~ /timescaledb/;
	push @databases, [ 'of_citus', 'citus' ] if $shared =~ /citus/;
	for (@databases)
	{
		my ($database, $extension) = @$_;
		$server->{database} = 'postgres';
		$server->sql("CREATE DATABASE $database") if !$made{$database} && $database ne 'postgres';
		$server->{database} = $database;
		if (!$made{$database}++)
		{
			$server->sql('SET client_min_messages = error;' . ($extension ? "CREATE EXTENSION $extension;" : '')
				. 'CREATE EXTENSION pg_bulk; CREATE TABLE plain (id int, t text)');
			$server->sql("CREATE TABLE theirs (id int NOT NULL, t text); SELECT create_hypertable('theirs', 'id', chunk_time_interval => 300)") if $extension eq 'timescaledb';
			$server->sql("CREATE TABLE theirs (id int NOT NULL, t text); SELECT citus_set_coordinator_host('127.0.0.1', " . $server->node->port
				. "); SELECT citus_set_node_property('127.0.0.1', " . $server->node->port . ", 'shouldhaveshards', true); SELECT create_distributed_table('theirs', 'id')") if $extension eq 'citus';
		}
		$server->try("SET pg_bulk.copy = on; SET client_min_messages = debug1; COPY plain FROM '$file' (FORMAT csv)");
		my $is_load = $server->complaint =~ /is done by pg_bulk/ ? 1 : 0;
		is($is_load, $copies, "$name, in $database: a COPY is " . ($copies ? 'a load' : 'the server\'s own'));
		for my $way ('bulk_load', 'bulk_load with workers', 'job', 'INSERT SELECT', 'prepared INSERT', 'taken COPY')
		{
			for my $table ($extension ? 'theirs' : (), 'plain')
			{
				$server->sql("TRUNCATE $table");
				my (undef, $error) = $server->into($way, $file, $table);
				is($error . $server->sql("SELECT count(*) FROM $table"), '1000', "$name, in $database, $way into $table");
			}
		}
		my ($writer) = $server->try("TRUNCATE plain; SELECT writer FROM bulk_load('$file', 'plain', '{\"format\": \"csv\"}')");
		is($writer, 'direct', "$name, in $database: the direct writer writes to a plain table");
		my ($plan) = $server->try("CREATE FOREIGN TABLE pg_temp.ft (id int, t text) SERVER bulk_files OPTIONS (filename '$file', format 'csv'); EXPLAIN INSERT INTO plain SELECT * FROM ft");
		like($plan, qr/Custom Scan \(Direct Insert\)/, "$name, in $database: INSERT … SELECT is a load");
	}
	$server->node->stop;
}

# A library that only sessions load. If it logs a plan, the process that ran the plan has loaded it.
$server->{database} = 'postgres';
my $conf = $server->node->data_dir . '/postgresql.conf';
unlink $conf;
append_to_file($conf, join '', @conf, "session_preload_libraries = 'auto_explain'\nauto_explain.log_min_duration = 0\n");
$server->node->start;
my $logged = -s $server->node->logfile;
my ($rows, $error) = $server->into('job', $file, 'plain', writer => '"buffered"');
is("$rows$error", '1000', 'a job');
like(slurp_file($server->node->logfile, $logged), qr/Query Text: SELECT public\.bulk_run_job\(/, 'is seen by a library that sessions load');
$server->sql('CREATE ROLE poor LOGIN IN ROLE pg_read_server_files; GRANT INSERT ON plain TO poor; ALTER ROLE poor SET session_preload_libraries = \'no_such_library\'');
my $job = $server->sql("SET SESSION AUTHORIZATION poor; SELECT bulk_enqueue('$file', 'plain', '{\"format\": \"csv\"}')");
is($server->sql("SELECT bulk_wait($job, '60s')"), 'failed', 'a library that is not there');
like($server->sql("SELECT error_message FROM bulk_jobs WHERE job_id = $job"), qr/no_such_library/, 'is named');
done_testing();
