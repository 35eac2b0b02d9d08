
# The progress of a load that other sessions see, and its message in the log.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use File::Spec::Functions qw(rel2abs);
use POSIX qw(mkfifo);
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(write_bytes);
use Load qw(begin_session load_server load_sql numbers_file);
use Points qw(point_clear point_set point_wait);

my $directory = rel2abs(PostgreSQL::Test::Utils::tempdir('files'));
chmod 0755, $directory;
my ($rows, $fifo) = map { "$directory/$_" } qw(rows fifo);
numbers_file($rows, 1, 40_000);
my $size = -s $rows;
mkfifo($fifo, 0644) or die $!;

my $node = load_server('progress', log_min_messages => 'log');
my %phase = (rows => 1, indexes => 2, rebuild => 3, 'foreign keys' => 4, triggers => 5);
# Many chunks.
my $set = "SET pg_bulk.chunk_size = '8kB'; SET client_min_messages = warning;";

# The progress of a backend: COPY's columns, then phase, workers, rejected, load in the order of the documentation.
sub seen
{
	my ($pid) = @_;
	return $node->safe_psql('postgres', "SELECT c.relid::regclass, command, type, bytes_processed, bytes_total, tuples_processed,
		tuples_excluded, param8, param18, param19, param20 = (SELECT last_value FROM bulk_load_id_seq)
		FROM pg_stat_progress_copy c JOIN pg_stat_get_progress_info('COPY') p USING (pid) WHERE pid = $pid");
}

# Waits until a query about a backend returns true.
sub becomes
{
	my ($pid, $condition, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until('postgres', "SELECT EXISTS (SELECT FROM pg_stat_get_progress_info('COPY') p WHERE pid = $pid AND $condition)"), $name)
	  || diag seen($pid);
}

#
# Rows of all processes.
#
$node->safe_psql('postgres', 'CREATE TABLE t (id int, word text, at timestamp)');
my $load = load_sql($rows, 't', workers => 2, where => 'id % 10 > 0');
# The leader starts workers, and returns after these have read all but the first row.
point_set($node, 'load.launched', 'wait');
point_set($node, 'append.begin', 'wait worker');
my ($pid, $end) = begin_session($node, "$set $load");
point_wait($node, 'load.launched');
point_wait($node, 'append.begin');
point_clear($node, 'load.launched');
becomes($pid, "param18 = 2 AND param8 = $phase{rows} AND param1 = $size AND param3 = 36000 AND param4 = 4000", 'rows and bytes of workers');
point_set($node, 'load.received', 'wait');
point_clear($node, 'append.begin');
point_wait($node, 'load.received');
is(seen($pid), "t|COPY FROM|FILE|$size|$size|36000|4000|$phase{rows}|2|0|t", 'all rows are in');
point_clear($node);
is(($end->())[0], "36000\n", '... and the load ends');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_get_progress_info('COPY')"), '0', 'nothing is left in the view');

# One process; its progress while the rest of the file is still to come. On 15 each bad value ends a subtransaction, which
# resets the backend's progress.
$node->safe_psql('postgres', "CREATE DOMAIN positive AS int CHECK (value > 0); CREATE TABLE d (id positive)");
for my $writer ('direct', 'buffered')
{
	($pid, $end) = begin_session($node, "$set " . load_sql($fifo, 'd', writer => $writer, on_error => 'ignore', where => 'id <> 7'));
	open my $pipe, '>', $fifo or die $!;
	$pipe->autoflush;
	my $text = join '', map { $_ % 100 == 0 ? "-1\n" : $_ % 10 . "\n" } 1 .. 90_000;
	$text =~ s/^0$/5/mg;
	syswrite($pipe, $text) == length $text or die $!;
	becomes($pid, "param20 > 0 AND param8 = $phase{rows} AND param1 > 100000 AND param2 = 0 AND param3 > 40000 AND param4 > 4000 AND param19 > 400",
		"$writer: a FIFO that is still open, with bad rows in it");
	# The last subtransaction may have ended at this moment.
	ok($node->poll_query_until('postgres', "SELECT EXISTS (SELECT FROM pg_stat_progress_copy WHERE pid = $pid
		AND (relid, command, type) = ('d'::regclass, 'COPY FROM', 'FILE'))"), "$writer: ... in COPY's view") || diag seen($pid);
	close $pipe;
	is(($end->())[0], "80100\n", "$writer: ... and the load ends");
}

# A backend that already reports another command continues to do so.
point_set($node, 'load.rows', 'wait');
($pid, $end) = begin_session($node, "$set COPY ($load) TO STDOUT");
point_wait($node, 'load.rows');
is($node->safe_psql('postgres', "SELECT command, type FROM pg_stat_progress_copy WHERE pid = $pid"), 'COPY TO|PIPE', 'a load within COPY TO leaves its report alone');
point_clear($node);
$end->();

#
# The phases after the rows. A session holds the lock that each phase waits for.
#
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE parent (id int PRIMARY KEY);
INSERT INTO parent SELECT generate_series(1, 40000);
CREATE FUNCTION key(id int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$ BEGIN
	IF id = 20000 THEN PERFORM pg_advisory_xact_lock_shared(1); END IF; RETURN id; END $$;
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	PERFORM pg_advisory_xact_lock_shared(2); RETURN NULL; END $$;
CREATE FUNCTION meanwhile() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	COPY parent TO PROGRAM 'cat >/dev/null'; RETURN NULL; END $$;
CREATE TABLE phases (id int REFERENCES parent, word text, at timestamp);
INSERT INTO phases VALUES (1);
CREATE INDEX ON phases (key(id));
CREATE INDEX ON phases (word);
CREATE TRIGGER a AFTER INSERT ON phases FOR EACH STATEMENT EXECUTE FUNCTION meanwhile();
CREATE TRIGGER b AFTER INSERT ON phases FOR EACH STATEMENT EXECUTE FUNCTION wait();
SQL
for my $truncate ('false', 'true')
{
	my $holder = $node->background_psql('postgres', on_error_stop => 0);
	$holder->query_safe('BEGIN; SELECT pg_advisory_xact_lock(1)');
	my $keys = $node->background_psql('postgres');
	$keys->query_safe('BEGIN; SELECT FROM parent WHERE id = 30000 FOR UPDATE');
	my $triggers = $node->background_psql('postgres');
	$triggers->query_safe('BEGIN; SELECT pg_advisory_xact_lock(2)');
	($pid, $end) = begin_session($node, "$set " . load_sql($rows, 'phases', workers => 2, truncate => $truncate));
	my $figures = "param1 = $size AND param2 = $size AND param3 = 40000 AND param5 = 1 AND param18 = 2 AND param20 > 0";
	my $name = $truncate eq 'true' ? 'rebuild' : 'indexes';
	becomes($pid, "param8 = $phase{$name} AND $figures", $name);
	# Core's own progress of the build.
	becomes($pid, 'param10 = 2 AND param16 > 0', '... and how far the build is') if $truncate eq 'true';
	$holder->query_safe('COMMIT');
	becomes($pid, "param8 = $phase{'foreign keys'} AND $figures", 'foreign keys');
	$keys->query_safe('COMMIT');
	# The first trigger's command had the progress slot.
	$node->poll_query_until('postgres', "SELECT wait_event = 'advisory' FROM pg_stat_activity WHERE pid = $pid");
	is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_get_progress_info('COPY') WHERE pid = $pid"), '0', 'a trigger\'s COPY ended the report');
	$triggers->query_safe('COMMIT');
	is(($end->())[0], "40000\n", '... and the load ends');
	$_->quit for $holder, $keys, $triggers;
}
$node->safe_psql('postgres', 'DROP TRIGGER a ON phases');
my $triggers = $node->background_psql('postgres');
$triggers->query_safe('BEGIN; SELECT pg_advisory_xact_lock(2)');
($pid, $end) = begin_session($node, "$set " . load_sql($rows, 'phases', workers => 2, truncate => 'true'));
becomes($pid, "param8 = $phase{triggers} AND param3 = 40000", 'triggers');
$triggers->query_safe('COMMIT');
$triggers->quit;
$end->();

#
# The log.
#
sub logged
{
	my ($sql) = @_;
	my $offset = -s $node->logfile;
	my ($status, $stdout, $stderr) = $node->psql('postgres', $sql);
	return (substr(slurp_file($node->logfile), $offset), $stderr, $stdout);
}

my ($log, $stderr) = logged("$set TRUNCATE t; " . load_sql($rows, 't', workers => 2, where => 'id % 10 > 0'));
my $pages = $node->safe_psql('postgres', "SELECT pg_relation_size('t') / 8192");
my $time = qr/\d+\.\d{3} s/;
like($log, qr{^.*\ LOG:\ \ load\ \d+\ from\ file\ "\Q$rows\E"\ into\ table\ "postgres\.public\.t"\n
	\t+writer:\ direct,\ 2\ workers\n
	\t+rows:\ 36000\ loaded,\ 0\ rejected,\ 0\ duplicate,\ 4000\ filtered\n
	\t+bytes:\ $size\ read,\ avg\ rate:\ [\d.]+\ MB/s\n
	\t+pages:\ $pages\ appended\n
	\t+WAL\ usage:\ \d+\ records,\ \d+\ full\ page\ images,\ \d+\ bytes\n
	\t+phases:\ prepare\ $time,\ rows\ $time,\ indexes\ $time,\ triggers\ $time\n
	\t+system\ usage:\ CPU:\ user:\ [\d.]+\ s,\ system:\ [\d.]+\ s,\ elapsed:\ [\d.]+\ s\n}mx, 'the log');
my ($wal_records, $wal_bytes) = $log =~ /WAL usage: (\d+) records, \d+ full page images, (\d+) bytes/;
# One record for a page, nearly as large as the page's content, in every process.
cmp_ok($wal_records, '>=', $pages, 'WAL of all processes: records');
cmp_ok($wal_bytes, '>', $pages * 5000, '... bytes');
is($stderr, '', 'a client is not told');
my $plan = (logged("$set EXPLAIN (ANALYZE, WAL) " . load_sql($rows, 't', workers => 2)))[2];
cmp_ok(($plan =~ /WAL: records=(\d+)/)[0], '>=', $pages, 'EXPLAIN knows of it, too');

($log, $stderr) = logged("SET pg_bulk.log_timing = on; SET client_min_messages = log; "
	  . load_sql("$directory/nothing", 't', truncate => 'true', analyze => 'true'));
unlike($log, qr/ load \d+ /, 'a load that fails is not told of');
write_bytes("$directory/one", "1,\x{c3}\x{bc},2024-02-29\n");
($log, $stderr) = logged("SET pg_bulk.log_timing = on; SET client_min_messages = log; "
	  . load_sql("$directory/one", 'keyed', truncate => 'true', analyze => 'true')
	  =~ s/^/CREATE TABLE keyed (id int PRIMARY KEY, word text, at timestamp); /r);
my $line = qr{load\ \d+\ from\ file\ "\Q$directory/one\E"\ into\ table\ "postgres\.public\.keyed"\n
	\t+writer:\ direct,\ 0\ workers\n
	\t+rows:\ 1\ loaded,\ 0\ rejected,\ 0\ duplicate,\ 0\ filtered\n
	\t+bytes:\ 16\ read,\ avg\ rate:\ [\d.]+\ MB/s\n
	\t+pages:\ 0\ appended\n
	\t+WAL\ usage:\ .*\n
	\t+phases:\ prepare\ $time,\ rows\ $time,\ indexes\ $time,\ triggers\ $time,\ analyze\ $time\n
	\t+index\ "keyed_pkey":\ insert\ \(few\ new\ rows\),\ $time\n
	\t+stages\ of\ all\ processes:\ read\ $time,\ wait\ to\ cut\ $time,\ cut\ $time,\ scan\ $time,\ convert\ $time,\ tuple\ $time,\ page\ $time,\ wait\ to\ append\ $time,\ extend\ $time,\ log\ $time,\ flush\ $time,\ write\ $time,\ rest\ $time\n
	\t+system\ usage:\ .*}x;
like($log, $line, 'the log, with stages');
like($stderr, $line, 'a client that asks for it');
# Of the time of three processes, little may be lost between the stages. On a
# busy machine workers may start late, and stages last longer than the phase.
my (%spent, $stages);
for my $try (1 .. 20)
{
	($log) = logged("$set SET pg_bulk.log_timing = on; TRUNCATE t; " . load_sql($rows, 't', workers => 2));
	%spent = (($log =~ /phases: (.*)/)[0] // '') =~ /([a-z ]+) (\d+\.\d+) s(?:, )?/g;
	$stages = 0;
	$stages += $_ for (($log =~ /stages of all processes: (.*)/)[0] // '') =~ /(\d+\.\d+) s/g;
	last if $stages > 0.5 * $spent{rows} && $stages <= 3 * $spent{rows} + 0.01;
}
cmp_ok($stages, '>', 0.5 * $spent{rows}, 'stages make up the time of the processes');
cmp_ok($stages, '<=', 3 * $spent{rows} + 0.01, '... and no more');
($log) = logged(load_sql('seq 10', 'd', program => 'true', columns => ['id'], writer => 'buffered'));
like($log, qr/ load \d+ from program "seq 10" into table "postgres\.public\.d"\n\t+writer: buffered, 0 workers\n\t+rows: 10 loaded.*\n\t+bytes: 21 read.*\n\t+WAL usage: .*\n\t+phases: prepare $time, rows $time\n\t+system usage: /, 'a program, buffered');

# The index strategies, and the locks that make others wait.
numbers_file("$directory/next", 40_001, 60_000);
$node->safe_psql('postgres', 'CREATE TABLE indexed (id int PRIMARY KEY, word text, at timestamp)');
($log) = logged("$set " . load_sql($rows, 'indexed'));
like($log, qr/\n\t+index "indexed_pkey": rebuild[^\n]* \(.+\)[^\n]*, $time\n\t+system usage: /, 'an index that is built, which nobody waits for');
($log) = logged("$set " . load_sql("$directory/next", 'indexed', lock => 'share', indexes => 'merge'));
like($log, qr/\n\t+index "indexed_pkey": merge[^\n]* \(.+\)[^\n]*, $time\n\t+note: Queries of table "[\w.]*indexed" wait until this transaction ends: its indexes have new files\.\n/,
	'... and one that is merged');

$node->stop;
done_testing();
