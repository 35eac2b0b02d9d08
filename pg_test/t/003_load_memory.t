
# The memory of a load whose keys exceed it: all its processes together use maintenance_work_mem for keys. The
# leader does not use more when it merges the keys of one index while it holds those of others. Keys are spilled once.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Load qw(begin_session healthy load_server);
use Points qw(point_clear point_set point_wait);

use constant { ROWS => 1_500_000, LIMIT => 32 };

# Shared memory counts for each process that touches it, so shared_buffers is small.
my $node = load_server('memory', shared_buffers => '4MB', log_temp_files => 0, 'pg_bulk.memory_limit' => '8MB', maintenance_work_mem => LIMIT . 'MB',
	max_wal_size => '8GB');
my $directory = PostgreSQL::Test::Utils::tempdir('memory');
chmod 0755, $directory;
my $path = "$directory/rows";
# Unordered and distinct.
$node->safe_psql('postgres', "COPY (SELECT a * 1000003::bigint % 3000017 FROM generate_series(1, @{[ROWS]}) a) TO '$path'");

# MB used at most by the leader and by its worker in a load into a table with these indexes; and MB written to files.
sub load
{
	my (@indexes) = @_;
	$node->safe_psql('postgres', join ';', 'DROP TABLE IF EXISTS t; CREATE TABLE t (a int NOT NULL)', @indexes);
	my $log = -s $node->logfile;
	point_set($node, 'worker.end', 'wait');
	my (undef, $end) = begin_session($node, "SELECT rows_loaded, workers, (SELECT string_agg(DISTINCT concat_ws(' ', i ->> 'method', i ->> 'from'), ',') FROM jsonb_array_elements(indexes) i)
		FROM bulk_load('$path', 't', '{\"truncate\": true, \"workers\": 1}');
		SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\\s+(\\d+)')::int / 1024");
	my ($worker) = point_wait($node, 'worker.end');
	my ($used) = slurp_file("/proc/$worker/status") =~ /VmHWM:\s+(\d+)/;
	point_clear($node);
	my ($out, $err) = $end->();
	my ($done, $leader) = split /\n/, $out;
	is("$done$err", join('|', ROWS, 1, @indexes ? 'rebuild load' : ''), 'a load with ' . @indexes . ' indexes');
	my ($written, $logged) = (0, slurp_file($node->logfile, $log));
	$written += $1 while $logged =~ /LOG:  temporary file: path .*, size (\d+)/g;
	return ($leader, int($used / 1024), int($written / (1 << 20)));
}
my ($leader, $worker, $none) = load();
is($none, 0, 'no temporary files without indexes');
# The index of tuples is built first.
my ($leaders, $workers, $written) = load('CREATE INDEX ON t (a) INCLUDE (a)', 'CREATE INDEX ON t (a)', 'CREATE UNIQUE INDEX ON t (a DESC)', 'CREATE INDEX ON t (a, a)');
$_ -= $leader for $leaders;
$_ -= $worker for $workers;
note "leader $leaders MB, worker $workers MB, files $written MB";
# Half of it belongs to the worker.
cmp_ok($workers, '>=', LIMIT / 4, 'the worker has collected keys in memory');
cmp_ok($workers, '<=', LIMIT / 2 + 4, '... half of it at most');
cmp_ok($leaders, '>=', LIMIT / 2, 'the leader has put them together in memory');
# The process may still have memory that it freed while keys were sorted.
cmp_ok($leaders, '<=', LIMIT * 1.3, '... no more than all of it');
# 16 bytes for a key, 24 for an index tuple.
my $keys = ROWS * (16 + 16 + 16 + 24) / (1 << 20);
cmp_ok($written, '>=', $keys / 2, 'keys went to files');
cmp_ok($written, '<=', $keys * 1.25, '... once');
healthy($node, 'indexes that were built from files');

# Merged by several processes, the indexes are as large as newly built ones.
$node->safe_psql('postgres', "COPY (SELECT (a * 1000003::bigint + 500) % 3000017 + 3000017 FROM generate_series(1, 200000) a) TO '$directory/more'");
is($node->safe_psql('postgres', "SET pg_bulk.chunk_size = '64kB'; SELECT rows_loaded, workers, (SELECT string_agg(DISTINCT i ->> 'method', ',') FROM jsonb_array_elements(indexes) i WHERE i ->> 'index' <> 't_a_a1_idx')
	FROM bulk_load('$directory/more', 't', '{\"lock\": \"share\", \"indexes\": \"merge\", \"workers\": 3}')"), '200000|3|merge', 'a merge by four processes');
my $sizes = q{SELECT string_agg(pg_relation_size(indexrelid)::text, ' ' ORDER BY indexrelid) FROM pg_index WHERE indrelid = 't'::regclass};
my @merged = split / /, $node->safe_psql('postgres', $sizes);
healthy($node, 'indexes that were merged');
my @fresh = split / /, $node->safe_psql('postgres', "REINDEX TABLE t; $sizes");
is(@merged, 4, 'four indexes');
cmp_ok($merged[$_], '<=', 1.02 * $fresh[$_], "merged: $merged[$_] bytes, built anew: $fresh[$_]") for 0 .. $#fresh;

# With on_error, the memory of values that input functions make is freed with their rows.
my ($rows, $most) = (100_000, 100);
$node->safe_psql('postgres', "COPY (SELECT 'word' || a || ' other' FROM generate_series(1, $rows) a) TO '$directory/words'; CREATE TABLE words (a tsvector)");
my ($loaded, $memory) = split /\n/, $node->safe_psql('postgres', "SELECT rows_loaded, writer FROM bulk_load('$directory/words', 'words', '{\"workers\": 0, \"on_error\": \"ignore\"}');
	SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\\s+(\\d+)')::int / 1024");
is($loaded, "$rows|direct", 'a load with on_error of a type without a decoder');
cmp_ok($memory, '<=', $most, '... keeps no values');

# So is that of rejects: copies of errors, and values of records that lack fields.
$node->safe_psql('postgres', "CREATE DOMAIN plain AS text; CREATE TABLE pairs (a plain, b int);
	COPY (SELECT repeat('x', 1000) FROM generate_series(1, $rows)) TO '$directory/short'");
append_to_file("$directory/invalid", "\xff\t1\n" x 400_000 . "a\t1\n");
append_to_file("$directory/short", "a\t1\n");
for (['invalid', 400_000, '"encoding_errors": "reject"'], ['short', $rows, '"short_rows": "error"'])
{
	my ($name, $rejected, $option) = @$_;
	my ($counts, $used) = split /\n/, $node->safe_psql('postgres', "SELECT rows_loaded, rows_rejected, writer FROM bulk_load('$directory/$name', 'pairs', '{\"workers\": 0, \"on_error\": \"ignore\", $option}');
		SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\\s+(\\d+)')::int / 1024");
	is($counts, "1|$rejected|direct", "a load of $name records");
	cmp_ok($used, '<=', $most, '... keeps no rejects');
}
$node->stop;
done_testing();
