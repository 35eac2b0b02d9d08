
# Duplicates are removed from a new heap. The rows that stay do not depend on the number of processes of the load. They are the same on a
# standby, and after a crash. A removal that fails, waits or is canceled leaves nothing behind.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use File::Spec::Functions qw(rel2abs);
use Time::HiRes qw(usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Load qw(begin_session checksums_ok healthy load_server load_sql numbers_file rows_of standby_equal standby_of);
use Points qw(point_clear point_set point_taken point_wait);

my $directory = rel2abs(PostgreSQL::Test::Utils::tempdir('files'));
my ($before, $twice) = map { "$directory/$_" } qw(before twice);
numbers_file($before, 1, 3000);
# Every 37th key occurs again, a hundred lines later: nearly every page has a duplicate, with either keep option. Some of
# those rows have out-of-line values, and so have all of the first file.
append_to_file($twice, join '', map { ("$_,word,2024-02-29 12:00:00\n", ($_ - 100) % 37 ? () : join(',', $_ - 100, 'again' . ($_ % 50 && $_ > 307_000 ? '' : 'x' x 5000), "2024-02-29 12:00:00\n")) } 300_001 .. 330_000);

# The duplicates whose first row is not in the file stay.
my $again = grep { $_ % 37 == 0 } 300_001 - 100 .. 330_000 - 100;
my $new = grep { $_ % 37 == 0 } 300_001 - 100 .. 300_000;
my $rows = 30_000 + $new;

my $primary = load_server('primary', wal_consistency_checking => 'all', wal_keep_size => '1GB');
$primary->safe_psql('postgres', "CREATE TABLE parted (id int PRIMARY KEY, word text, at timestamp); ALTER TABLE parted ALTER word SET STORAGE EXTERNAL;
	CREATE TABLE known (id int PRIMARY KEY); INSERT INTO known SELECT i FROM generate_series(1, 400000) i WHERE i % 41 > 0;
	CREATE TABLE referring (id int REFERENCES known, word text, at timestamp);" . load_sql($before, 'parted'));
my $standby = standby_of($primary, 'standby', slot => 1);

sub starts { return scalar(() = slurp_file($primary->logfile) =~ /database system is ready to accept connections/g); }
sub workers { return $primary->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'"); }

sub statement
{
	my ($keep, $workers) = @_;
	return "SET pg_bulk.chunk_size = '8kB'; " . load_sql($twice, 'parted', workers => $workers // 2, truncate => 'true', on_duplicate => $keep);
}
# The result of one process.
my %expected;
for my $keep (qw(keep_old keep_new))
{
	$primary->safe_psql('postgres', statement($keep, 0));
	$expected{$keep} = rows_of($primary, 'parted');
	is($primary->safe_psql('postgres', "SELECT count(*), count(*) FILTER (WHERE word ^@ 'again') FROM parted"), $keep eq 'keep_old' ? "$rows|$new" : "$rows|$again", "$keep: rows of one process");
}
isnt($expected{keep_old}, $expected{keep_new}, 'which rows stay is to be seen');

# With or without a checkpoint between the rows and their removal.
for my $keep (qw(keep_old keep_new))
{
	for my $waits (qw(checkpoint nobody))
	{
		point_set($primary, 'remove.begin', 'wait') if $waits eq 'checkpoint';
		my (undef, $end) = begin_session($primary, statement($keep));
		if ($waits eq 'checkpoint')
		{
			point_wait($primary, 'remove.begin');
			is(workers(), '0', "$keep: workers are done before rows are removed");
			# After a checkpoint, changed pages are logged with full images.
			$primary->safe_psql('postgres', 'CHECKPOINT');
		}
		point_clear($primary);
		my ($out, $err) = $end->();
		is($out . $err, "$rows\n", "$keep, waiting: $waits");
		# Compared before any page has been read on the primary:
		# reading sets hint bits, which are logged with their pages.
		$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
		is(rows_of($standby, 'parted'), $expected{$keep}, '... the rows of the standby are those of one process');
		is(rows_of($primary, 'parted'), $expected{$keep}, '... the rows are those of one process');
		healthy($primary, "$keep, waiting: $waits");
		standby_equal($primary, $standby, 'parted');
	}
}
$primary->stop('immediate');
$primary->start;
is(rows_of($primary, 'parted'), $expected{keep_new}, 'a crash changes nothing');

# Visibility within the transaction: one command inserted the rows, and a later one deleted them. There is one pair of commands.
# The server deletes only rows with out-of-line values, and fetches only their pages.
my $pairs = "SELECT count(DISTINCT (t_field3, t_infomask & 32)), bool_and(t_infomask & 32 > 0), count(*) FROM generate_series(0, pg_relation_size('parted') / 8192 - 1) block,
	heap_page_items(get_raw_page('parted', block::int)) WHERE t_xmax <> 0";
my $lost = $again - $new;
for my $keep (qw(keep_old keep_new))
{
	my $seen = $primary->safe_psql('postgres', "BEGIN; TRUNCATE parted; SAVEPOINT a;"
		  . statement($keep) . "; SELECT pg_stat_get_xact_blocks_fetched('parted'::regclass) < 300; $pairs; SELECT count(*), count(DISTINCT id) FROM parted; UPDATE parted SET word = 'new' WHERE id % 37 = 0;
		SELECT count(*) FROM parted; ROLLBACK TO a; SELECT count(*) FROM parted; COMMIT");
	is($seen, "$rows\nt\n1|t|$lost\n$rows|$rows\n$rows\n0", "$keep: what its transaction sees");
	healthy($primary, "$keep: rolled back");
}
$primary->safe_psql('postgres', statement('keep_new'));

# Orphans are removed in the same way.
my $good = grep { /^(\d+)/ && $1 % 41 } split /\n/, slurp_file($twice);
my $load = "SET pg_bulk.chunk_size = '8kB'; " . load_sql($twice, 'referring', workers => 2, truncate => 'true', on_error => 'table');
point_set($primary, 'remove.looked', 'sleep=1 once');
is($primary->safe_psql('postgres', $load), $good, 'rows that refer to nothing');
ok(point_taken($primary, 'remove.looked'), '... are taken out page by page');
point_clear($primary);
is($primary->safe_psql('postgres', 'SELECT count(*), count(*) FILTER (WHERE id % 41 = 0) FROM referring'), "$good|0", '... and no others');
healthy($primary, 'rows that refer to nothing');
standby_equal($primary, $standby, 'referring');

# The process is killed at each of these points.
for my $point (qw(remove.begin remove.looked))
{
	my $starts = starts();
	point_set($primary, $point, 'signal=9 once' . ($point eq 'remove.looked' ? ' after=5' : ''));
	my (undef, $end) = begin_session($primary, statement('keep_old'));
	my (undef, $err) = $end->();
	like($err, qr/server closed the connection|terminating connection because of crash/, "killed: $point");
	ok(point_taken($primary, $point), '... there');
	for (my $tries = 0; starts() == $starts && $tries < 3000; $tries++) { usleep(10_000); }
	point_clear($primary);
	is(rows_of($primary, 'parted'), $expected{keep_new}, '... the rows are those before');
	healthy($primary, "killed: $point");
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	is(rows_of($standby, 'parted'), $expected{keep_new}, '... also on the standby');
}

# The removal fails, or is canceled while it waits.
point_set($primary, 'remove.looked', 'error once after=5');
my (undef, undef, $err) = $primary->psql('postgres', statement('keep_old'));
like($err, qr/ERROR:.*remove\.looked/, 'an error between pages');
point_clear($primary);
for my $point (qw(remove.begin remove.looked))
{
	point_set($primary, $point, 'wait');
	my ($pid, $end) = begin_session($primary, statement('keep_old'));
	point_wait($primary, $point);
	$primary->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	(undef, $err) = $end->();
	like($err, qr/ERROR:  canceling statement due to user request/, "cancelled while it waits: $point");
	point_clear($primary);
	is(workers(), '0', '... no worker is left');
	is($primary->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE relation = 'parted'::regclass"), '0', '... nor a lock');
}
is(rows_of($primary, 'parted'), $expected{keep_new}, 'the rows are those before');
# No worker is available.
$primary->safe_psql('postgres', 'ALTER SYSTEM SET max_parallel_workers = 1; SELECT pg_reload_conf()');
is($primary->safe_psql('postgres', statement('keep_old')), $rows, 'with one worker of two');
is(rows_of($primary, 'parted'), $expected{keep_old}, '... the rows are those of one process');
healthy($primary, 'at last');
standby_equal($primary, $standby, 'parted', 'referring');
$primary->stop;
checksums_ok($primary);
done_testing();
