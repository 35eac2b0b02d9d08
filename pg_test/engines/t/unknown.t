
# Beside a library without any catalog entry: its planner hook redirects rows of one table to another. Loads, in a job, too, do the same
# as the server's own INSERT. The planner's answer is cached, and renewed when the table has changed.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Engines;

my $directory = PostgreSQL::Test::Utils::tempdir('diverter');
chmod 0755, $directory;
my $headers = `pg_config --includedir-server` =~ s/\n//r;
system_or_bail('cc', '-shared', '-fPIC', '-O1', '-w', "-I$headers", '-o', "$directory/diverter.so", "$FindBin::RealBin/../data/diverter.c");
chmod 0755, "$directory/diverter.so";
my $server = Engines->new('unknown', session_preload_libraries => "$directory/diverter.so")->start;
$server->sql('CREATE EXTENSION pg_bulk; CREATE TABLE sent (id int, t text); CREATE TABLE elsewhere (id int, t text)');
$server->{columns} = 'id int, t text';
my $file = $server->write('rows.csv', map { "$_,word $_\n" } 1 .. 1000);
my $count = q{SELECT (SELECT count(*) FROM sent) || ' ' || (SELECT count(*) FROM elsewhere)};

$server->sql('INSERT INTO sent SELECT 1');
is($server->sql($count), '0 1', 'the server sends a row elsewhere');
for my $way ('bulk_load', 'bulk_load with workers', 'job', 'INSERT SELECT', 'prepared INSERT', 'taken COPY')
{
	$server->sql('TRUNCATE sent, elsewhere');
	my (undef, $error) = $server->into($way, $file, 'sent');
	# COPY has no plan.
	is($error . $server->sql($count), $way eq 'taken COPY' ? '1000 0' : '0 1000', "$way: as the server");
	$server->sql('TRUNCATE sent, elsewhere');
	(undef, $error) = $server->into($way, $file, 'elsewhere');
	is($error . $server->sql($count), '0 1000', "$way into a table that it leaves alone");
}
my $load = q{SELECT writer, notes FROM bulk_load('FILE', 'TABLE', '{"format": "csv"}');} =~ s/FILE/$file/r;
my ($into_sent, $into_kept) = map { my $table = $_; $load =~ s/TABLE/$table/r } 'sent', 'kept';
$server->sql('TRUNCATE sent, elsewhere');
my ($said, $error) = $server->try("$into_sent $into_sent ALTER TABLE sent RENAME TO kept; $into_kept $into_kept ALTER TABLE kept RENAME TO sent; $into_sent $count");
my $buffered = q(buffered|{"The server's query for an INSERT into \\"sent\\" is not a plain INSERT."});
is($error, '', 'loads in one session');
is($said, join("\n", $buffered, $buffered, 'direct|{}', 'direct|{}', $buffered, '2000 3000'), 'the planner is asked again when the table has changed');
(undef, $error) = $server->try("CREATE UNIQUE INDEX ON sent (id) WHERE id < 0; TRUNCATE sent; CREATE UNIQUE INDEX keys ON sent (id); SELECT * FROM bulk_load('$file', 'sent', '{\"format\": \"csv\", \"on_duplicate\": \"keep_old\", \"conflict_index\": \"keys\"}')");
like($error, qr/^0A000: cannot count duplicates of "sent" with the buffered writer/, 'keep_old');
(undef, $error) = $server->into('bulk_load', $file, 'sent', on_duplicate => '"keep_new"', conflict_index => '"keys"');
like($error, qr/^0A000: cannot replace rows of "sent" with the buffered writer/, 'keep_new');
($said) = $server->try("CREATE FOREIGN TABLE ft (id int, t text) SERVER bulk_files OPTIONS (filename '$file', format 'csv'); EXPLAIN (VERBOSE, COSTS OFF) INSERT INTO sent SELECT * FROM ft");
like($said, qr/Direct Insert: no \(The server's query for an INSERT into "sent" is not a plain INSERT\)/, 'EXPLAIN says why');
($said, $error) = $server->try("CREATE TABLE made AS SELECT * FROM ft; SELECT count(*) FROM made; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) CREATE TABLE again AS SELECT * FROM ft");
like("$said$error", qr/^1000\n.*Direct Insert: yes/s, 'CREATE TABLE AS is a load');

# A library that counts plans without changing them. pg_bulk's own planning is not counted.
$server->node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_stat_statements'\nsession_preload_libraries = ''\npg_stat_statements.track_planning = on\npg_stat_statements.track = all\n");
$server->node->restart;
$server->sql('CREATE EXTENSION pg_stat_statements');
($said, $error) = $server->try("SELECT pg_stat_statements_reset(); $into_sent");
like("$said$error", qr/^direct\|\{\}$/m, 'the direct writer beside pg_stat_statements');
($said) = $server->try('EXPLAIN (COSTS OFF) INSERT INTO sent SELECT * FROM ft');
like($said, qr/Custom Scan \(Direct Insert\)/, 'INSERT … SELECT beside pg_stat_statements');
is($server->sql("SELECT count(*) FROM pg_stat_statements WHERE query LIKE '%json_populate_recordset%' AND query NOT LIKE '%pg_stat_statements%'"), '0', 'nobody counts the question');
done_testing();
