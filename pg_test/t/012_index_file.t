
# The leader writes the file of a new index in batches. Before a batch is written, the load fails, is canceled, or its
# process ends or dies. There is no disk space, or a write fails. A checkpoint begins meanwhile, and the power fails after it.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(usleep);

use Load qw(begin_session healthy load_server load_sql numbers_file rows_of);
use Points qw(point_clear point_set point_taken);
use PowerLoss;

use constant ROWS => 60_000;

my $directory = PostgreSQL::Test::Utils::tempdir('index_file');
chmod 0755, $directory;
my $file = "$directory/numbers";
numbers_file($file, 1, ROWS);

my $node = load_server('index_file', fsync => 'on', wal_level => 'replica', full_page_writes => 'on', max_wal_senders => 0, allows_streaming => 0);
my $power = PowerLoss->new($node);
$node->stop;
$power->start;
$node->safe_psql('postgres', 'CREATE TABLE t (id int PRIMARY KEY, word text COLLATE "C", at timestamp); CREATE INDEX t_at ON t (at, id); CREATE INDEX t_word ON t (word)');

sub statement { return "SET pg_bulk.chunk_size = '64kB'; " . load_sql($file, 't', workers => 1, indexes => 'rebuild'); }

sub starts { return scalar(() = slurp_file($node->logfile) =~ /database system is ready to accept connections/g); }

# Nothing is left of a load.
sub is_empty
{
	my ($name, $crashed) = @_;
	point_clear($node);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), '0', "$name: no row is left");
	healthy($node, $name);
	# A crash leaves files that no relation owns.
	return if $crashed;
	is($node->safe_psql('postgres', q{CHECKPOINT;
		SELECT count(*) FROM pg_ls_dir('base/' || (SELECT oid FROM pg_database WHERE datname = current_database())) file
		WHERE file ~ '^\d' AND pg_filenode_relation(0, substring(file FROM '^\d+')::oid) IS NULL}), '0', '... and no file');
}

# All rows are there, and indexes find them.
sub is_loaded
{
	my ($name) = @_;
	point_clear($node);
	is($node->safe_psql('postgres', 'SET enable_seqscan = off; SET enable_bitmapscan = off;
		SELECT count(*), sum(id) FROM t WHERE id > 0'), ROWS . '|' . ROWS * (ROWS + 1) / 2, "$name: the rows are there");
	healthy($node, $name);
	$node->safe_psql('postgres', 'TRUNCATE t; CHECKPOINT');
}

# Errors in the first batch, and in a later one.
for my $case ([ 'error', qr/index\.write/ ], [ 'signal=2', qr/canceling statement/ ], [ 'signal=15', qr/terminating connection/ ])
{
	my ($action, $words) = @$case;
	for my $after ('', 'after=1')
	{
		point_set($node, 'index.write', "$action leader $after once");
		my (undef, undef, $err) = $node->psql('postgres', statement());
		ok(point_taken($node, 'index.write'), "$action $after: came there");
		like($err, $words, '... it says so');
		is_empty("$action $after");
	}
}

# There is no space for pages, the first ones or later ones: the load fails before they are logged. After that it would be a
# PANIC, and recovery could not create the pages either. Or pages cannot be written after they were logged.
for my $case ([ 'append.allocate', 28, 'No space left on device' ], [ 'append.write', 28, 'No space left on device' ],
	[ 'append.write', 5, 'Input\/output error' ])
{
	my ($point, $errno, $words) = @$case;
	for my $after ('', 'after=1')
	{
		point_set($node, 'load.finalize', 'wait leader');
		my (undef, $end) = begin_session($node, statement());
		Points::point_wait($node, 'load.finalize');
		point_set($node, 'index.logged', "signal=9 leader $after") if $point eq 'append.allocate';
		point_set($node, $point, "errno=$errno leader $after once");
		point_clear($node, 'load.finalize');
		like(($end->())[1], qr/could not extend file "base\/\d+\/\d+": $words\nHINT:  Check free disk space\./, "$point, errno=$errno $after: it says so");
		ok(point_taken($node, $point), '... when it comes there');
		is_empty("$point, errno=$errno $after");
	}
}

# Sorted keys are packed to the end, 64 at once, for any number of keys in a batch of rows.
point_set($node, 'index.packed', 'sleep=1 once after=' . (int(ROWS / 64) - 1));
is($node->safe_psql('postgres', "SET pg_bulk.chunk_size = '64kB'; " . load_sql($file, 't', workers => 0, indexes => 'rebuild')), ROWS, 'keys in order');
ok(point_taken($node, 'index.packed'), '... are packed to the end');
is_loaded('keys in order');

# The process dies.
for my $after ('', 'after=1')
{
	my $starts = starts();
	point_set($node, 'index.write', "signal=9 leader $after once");
	my (undef, $end) = begin_session($node, statement());
	like(($end->())[1], qr/server closed the connection|terminating connection because of crash/, "killed $after");
	for (my $tries = 0; starts() == $starts && $tries < 3000; $tries++) { usleep(10_000); }
	is_empty("killed $after", 1);
}

# A checkpoint begins before a batch is written, and the power fails after COMMIT.
for my $after ('', 'after=1')
{
	$node->safe_psql('postgres', 'CHECKPOINT');
	point_set($node, 'index.write', "wait leader $after");
	my (undef, $end) = begin_session($node, statement());
	Points::point_wait($node, 'index.write');
	$node->safe_psql('postgres', 'CHECKPOINT');
	point_clear($node, 'index.write');
	is(($end->())[0], ROWS . "\n", "a checkpoint $after: the load goes on");
	point_clear($node);
	$power->fail(1);
	$power->start;
	is_loaded("a checkpoint $after, and the power fails");
}

# A checkpoint begins between the WAL of a batch and its write: it waits for the write.
for my $after ('', 'after=1')
{
	point_set($node, 'index.logged', "wait leader $after");
	my (undef, $end) = begin_session($node, statement());
	Points::point_wait($node, 'index.logged');
	my ($pid, $checkpoint) = begin_session($node, 'CHECKPOINT');
	usleep(500_000);
	is($node->safe_psql('postgres', "SELECT state FROM pg_stat_activity WHERE pid = $pid"), 'active', "a checkpoint behind the WAL $after waits");
	point_clear($node, 'index.logged');
	is(($end->())[0], ROWS . "\n", '... the load goes on');
	$checkpoint->();
	point_clear($node);
	$power->fail(1);
	$power->start;
	is_loaded("a checkpoint behind the WAL $after, and the power fails");
}

# Without interference.
is($node->safe_psql('postgres', statement()), ROWS, 'nothing happens');
is_loaded('nothing happens');
$node->stop;
done_testing();
