
# Power failures at moments that other tests do not reach by chance. Pages of a load are
# written, and the kernel has stored them before the WAL. A load continues in a second
# segment. A load has removed rows from its own pages, with a checkpoint in between.
# Indexes have been written. A job has just succeeded. A test point stops each one.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Load qw(begin_session healthy load_server load_sql not_ahead numbers_file rows_of);
use Points qw(point_clear point_set point_wait);
use PowerLoss;

use constant { PAGE => 8192, SEGMENT => 131_072 };

my $directory = PostgreSQL::Test::Utils::tempdir('power_edges');
chmod 0755, $directory;
# More rows than go through shared buffers.
numbers_file("$directory/rows", 1, 20_000);
# Some numbers occur twice, the second time some pages later.
numbers_file("$directory/twice", 1, 20_000);
numbers_file("$directory/again", 3001, 3300);
append_to_file("$directory/twice", slurp_file("$directory/again"));

# The WAL writer must not flush what a process forgets to flush.
my $node = load_server('edges', fsync => 'on', max_wal_senders => 0, allows_streaming => 0, full_page_writes => 'on', wal_level => 'replica',
	wal_writer_delay => '10s', wal_writer_flush_after => '1GB', bgwriter_lru_maxpages => 0);
my $power = PowerLoss->new($node);
$node->stop;
$power->start;

# Expected content. The test reads no table before the power fails: reading sets hint bits, and a
# checkpoint would write these pages through the server, and request the syncs that a load may have forgotten.
$node->safe_psql('postgres', "CREATE TABLE twin (id int, word text, at timestamp); COPY twin FROM '$directory/rows' (FORMAT csv)");
my $expected = rows_of($node, 'twin');

# Rows of a load whose WAL is lost: their pages must not exist either, whatever else is lost.
$node->safe_psql('postgres', "CREATE TABLE flushed (id int, word text, at timestamp); INSERT INTO flushed VALUES (0); CHECKPOINT");
my $before = rows_of($node, 'flushed');
point_set($node, 'append.done', 'wait once');
my ($pid, $finish) = begin_session($node, load_sql("$directory/rows", 'flushed', workers => 0));
point_wait($node, 'append.done');
cmp_ok($node->safe_psql('postgres', "SELECT pg_relation_size('flushed')"), '>', PAGE, 'pages are written');
$power->fail(1, 0);
$finish->();
point_clear($node);
$power->start;
is(rows_of($node, 'flushed'), $before, 'a load that did not end: what was committed is there');
not_ahead($node, 'a load that did not end');

# A table that ends a few pages before its first segment does; zero pages are empty ones.
$node->safe_psql('postgres', "CREATE TABLE long (id int, word text, at timestamp); CHECKPOINT");
my $path = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('long')");
$node->stop;
truncate $path, (SEGMENT - 4) * PAGE or die "$path: $!";
$power->start;
$node->safe_psql('postgres', load_sql("$directory/rows", 'long', workers => 0));
cmp_ok(-s "$path.1", '>', PAGE, 'a load goes on into the second segment');
$node->safe_psql('postgres', 'CHECKPOINT');
$power->fail(1);
$power->start;
is(rows_of($node, 'long'), $expected, 'the second segment: what was committed is there');
$node->safe_psql('postgres', 'DROP TABLE long');

# The checkpoint in the middle syncs pages with the rows that are removed later; the one at the end, without them.
$node->safe_psql('postgres', "CREATE TABLE once (id int PRIMARY KEY, word text, at timestamp)");
point_set($node, 'remove.begin', 'wait once');
($pid, $finish) = begin_session($node, load_sql("$directory/twice", 'once', workers => 0, truncate => 'true', on_duplicate => 'keep_old'));
point_wait($node, 'remove.begin');
$node->safe_psql('postgres', 'CHECKPOINT');
point_clear($node);
is(($finish->())[0], "20000\n", 'rows are loaded, and others taken back');
$node->safe_psql('postgres', 'CHECKPOINT');
$power->fail(1);
$power->start;
is(rows_of($node, 'once'), $expected, 'rows that were taken back: what was committed is there');
healthy($node, 'rows that were taken back');
not_ahead($node, 'rows that were taken back');

# Indexes that are written past shared buffers. The next checkpoint syncs a new file in any case, so
# a checkpoint runs before.
$node->safe_psql('postgres', 'CREATE INDEX once_word ON once (word)');
point_set($node, 'index.write', 'wait once');
($pid, $finish) = begin_session($node, load_sql("$directory/rows", 'once', workers => 0, truncate => 'true')
	  =~ s/rows_loaded/indexes @> '[{"method": "rebuild", "from": "load"}]'/r);
point_wait($node, 'index.write');
$node->safe_psql('postgres', 'CHECKPOINT');
point_clear($node);
is(($finish->())[0], "t\n", 'indexes are built');
$node->safe_psql('postgres', 'CHECKPOINT');
$power->fail(1);
$power->start;
healthy($node, 'indexes that were built');
is(rows_of($node, 'once'), $expected, 'indexes: what was committed is there');

# A job that reports its success, with any settings that its
# table's triggers made. No other process writes WAL meanwhile.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE queued (id int, word text, at timestamp);
CREATE FUNCTION hasten() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('synchronous_commit', 'off', false); RETURN NULL; END $$;
CREATE TRIGGER hasten AFTER INSERT ON queued EXECUTE FUNCTION hasten();
SQL
point_set($node, 'job.committed', 'wait once');
kill 'STOP', $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'");
my $job = $node->safe_psql('postgres', "SELECT bulk_enqueue('$directory/rows', 'queued', '{\"format\": \"csv\"}')");
point_wait($node, 'job.committed');
$power->fail(1, 0);
point_clear($node);
$power->start;
is($node->safe_psql('postgres', "SELECT status FROM bulk_jobs WHERE job_id = $job"), 'succeeded', 'a job that is done is done');
is(rows_of($node, 'queued'), $expected, '... and its rows are there');
$node->stop;
done_testing();
