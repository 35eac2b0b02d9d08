
# The server is killed while indexes get new files, or whole leaves, at each point of
# building, merging and appending, and again when they are complete. Afterwards the table and its
# indexes have either the old or the new content, on a standby, too. For indexes whose keys are
# packed integers, for those of byte strings, and for those that the server builds, one after
# the other or several at once. A standby that is promoted
# has them, too.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use File::Spec::Functions qw(rel2abs);
use Time::HiRes qw(usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Load qw(begin_session healthy indexes_find load_server load_sql numbers_file rows_of standby_equal standby_of);
use Points qw(point_clear point_set point_taken);

# The tables, each with its indexes.
my %tables = (
	fixed => 'PRIMARY KEY (id); CREATE INDEX ON fixed (at DESC, id) WITH (fillfactor = 40); CREATE INDEX ON fixed (number)',
	bytes => 'UNIQUE (word); CREATE INDEX ON bytes (word DESC, number) WITH (fillfactor = 40); CREATE INDEX ON bytes (word, id)',
	other => 'PRIMARY KEY (id) INCLUDE (word); CREATE INDEX ON other (lower(word)); CREATE INDEX ON other (word COLLATE "en-x-icu") WHERE id % 2 = 0;'
	  . ' CREATE UNIQUE INDEX ON other ((id::numeric)); CREATE INDEX ON other USING hash (word)',
	many => 'PRIMARY KEY (id); CREATE INDEX ON many USING hash (word); CREATE INDEX ON many USING gist (point(id, number)); CREATE INDEX ON many USING spgist (word);'
	  . q{ CREATE INDEX ON many USING gin (to_tsvector('simple', word)); CREATE INDEX ON many USING brin (at)});

my $directory = rel2abs(PostgreSQL::Test::Utils::tempdir('files'));
my ($before, $more) = ("$directory/before", "$directory/more");
numbers_file($before, 1, 3000);
numbers_file($more, 3001, 7000);

my $primary = load_server('primary', wal_consistency_checking => 'all', wal_retrieve_retry_interval => '100ms',
	wal_keep_size => '1GB', log_min_messages => 'log', log_statement => 'none');
for my $table (sort keys %tables)
{
	$primary->safe_psql('postgres', "CREATE TABLE $table (id int, word text COLLATE \"C\", at timestamp, number int GENERATED ALWAYS AS (id % 70) STORED);
		ALTER TABLE $table ADD $tables{$table}; " . load_sql($before, $table, columns => [ 'id', 'word', 'at' ]) . "; DELETE FROM $table WHERE id % 10 = 0");
}
my $standby = standby_of($primary, 'standby');

sub starts { return scalar(() = slurp_file($primary->logfile) =~ /database system is ready to accept connections/g); }

# A load that rewrites every index: from the file's rows only, or from these and the existing entries.
sub statement
{
	my ($table, $way) = @_;
	$way = 'merge together' if $way eq 'apart';
	# A build is parallel with at least three processes, a merge with two.
	my $workers = $way =~ /together/ ? 2 : $way eq 'rebuild' || "$table $way" eq 'fixed merge' ? 0 : 1;
	my %options = $way =~ /merge/ ? (indexes => 'merge', lock => 'share') : $way =~ /^build|together/ ? (truncate => 'true', indexes => 'rebuild') : $way eq 'grow' ? () : (indexes => 'rebuild', lock => 'share');
	return "SET pg_bulk.chunk_size = '8kB'; SET maintenance_work_mem = '2MB'; " . load_sql($more, $table, columns => [ 'id', 'word', 'at' ], workers => $workers, %options);
}

my @ours = qw(index.renewed index.write index.logged index.built load.finalized);
# Indexes of several batches: a point that a page passes while the batch is not full, and the last batch.
my @later = ('index.write after=2', 'index.logged after=4');
my @cores = qw(load.rebuild load.rebuilt);
# Points of indexes that are built at the same time.
my @team = qw(team.build team.waits team.worker team.done);
my @grow = qw(leaf.looked leaf.page leaf.extend leaf.extended leaf.grow leaf.grown);
my @together = qw(index.together index.joined index.helper);
my %points = ('fixed grow' => \@grow, 'fixed together' => \@together, 'fixed apart' => \@together, 'fixed build' => \@ours, 'bytes build' => \@ours, 'fixed merge' => [ @ours, @later ], 'bytes merge' => [ @ours, @later ], 'other build' => [ 'index.sorted', @ours ], 'other rebuild' => \@cores, 'many team' => \@team);
for my $case (sort keys %points)
{
	my ($table, $way) = split / /, $case;
	my $rows = rows_of($primary, $table);
	for my $place (@{ $points{$case} })
	{
		my $starts = starts();
		my ($point, $after) = split / /, $place;
		# If several indexes follow, not the first one.
		$after //= $point =~ /sorted|finalized|helper|looked|page|extended|grow|team/ ? '' : 'after=1';
		# For points that all processes reach: the first process.
		my $who = $point =~ /helper|worker/ ? 'worker' : $point =~ /team.buil/ ? '' : 'leader';
		point_set($primary, $point, "signal=9 $who $after once");
		my (undef, $end) = begin_session($primary, statement($table, $way));
		my ($out, $err) = $end->();
		like($err, qr/server closed the connection|terminating connection because of crash/, "$case, killed at $place");
		ok(point_taken($primary, $point), '... there');
		for (my $tries = 0; starts() == $starts && $tries < 3000; $tries++) { usleep(10_000); }
		point_clear($primary);
		is(rows_of($primary, $table), $rows, "$case, killed at $place: the rows are those before");
		healthy($primary, "$case, killed at $place");
		$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
		is(rows_of($standby, $table), $rows, '... also on the standby');
	}
	# The load succeeds, and then the server is killed.
	is($primary->safe_psql('postgres', statement($table, $way)), '4000', "$case: the load");
	$rows = rows_of($primary, $table);
	$primary->stop('immediate');
	$primary->start;
	is(rows_of($primary, $table), $rows, "$case, killed afterwards: the rows are there");
	healthy($primary, "$case, killed afterwards");
	standby_equal($primary, $standby, $table);
	$primary->safe_psql('postgres', "DELETE FROM $table WHERE id > 3000; VACUUM $table");
	$primary->safe_psql('postgres', load_sql($before, $table, columns => [ 'id', 'word', 'at' ])) if $way =~ /^build|together/;
}

# A worker that helps to build an index fails, or the leader is canceled while a worker hangs.
for my $way ('together', 'apart')
{
	my $rows = rows_of($primary, 'fixed');
	point_set($primary, 'index.helper', 'error worker once');
	my (undef, undef, $err) = $primary->psql('postgres', statement('fixed', $way));
	like($err, qr/ERROR:.*index\.helper/, "fixed $way: the error of a worker");
	point_set($primary, 'index.helper', 'wait worker');
	(undef, undef, $err) = $primary->psql('postgres', "SET statement_timeout = '1s'; " . statement('fixed', $way));
	like($err, qr/ERROR:  canceling statement due to statement timeout/, "fixed $way: cancelled while a worker waits");
	point_clear($primary);
	is(rows_of($primary, 'fixed'), $rows, '... the rows are those before');
	is_deeply([ glob($primary->data_dir . '/base/pgsql_tmp/*') ], [], '... no file is left');
	is($primary->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'"), '0', '... no worker is left');
}
# The same where each process builds an index of its own.
my $rows = rows_of($primary, 'many');
my $team = statement('many', 'team');
for my $place ('team.worker', 'team.build', 'team.built')
{
	point_set($primary, $place, 'error worker once');
	# This leaves an index for the worker.
	point_set($primary, $place eq 'team.build' ? 'team.launched' : 'team.build', 'wait leader');
	my (undef, $end) = begin_session($primary, $team);
	for (my $tries = 0; !point_taken($primary, $place) && $tries < 3000; $tries++) { usleep(10_000); }
	# The worker's error ends the leader's wait, or the leader raises it after its wait.
	my (undef, $err) = $end->();
	like($err, qr/ERROR:.*\Q$place\E/, "$place: the error of a worker");
	unlike($err, qr/parallel worker/, '... does not say whose it is');
	point_clear($primary);
}
for my $how ('SIGTERM', 'cancel')
{
	point_set($primary, 'team.worker', 'wait worker');
	my ($pid, $end) = begin_session($primary, $team);
	my ($worker) = Points::point_wait($primary, 'team.worker');
	$primary->safe_psql('postgres', $how eq 'cancel' ? "SELECT pg_cancel_backend($pid)" : "SELECT pg_terminate_backend($worker)");
	my (undef, $err) = $end->();
	like($err, $how eq 'cancel' ? qr/ERROR:  canceling statement due to user request/ : qr/ERROR:  terminating background worker .* due to administrator command/, "team: $how");
	point_clear($primary);
}
is(rows_of($primary, 'many'), $rows, '... the rows are those before');
is($primary->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'"), '0', '... no worker is left');
# While the leader builds one index, the worker builds all others, and reports them.
point_set($primary, 'team.build', 'wait leader');
point_set($primary, 'team.worker', 'wait worker');
my (undef, $ended) = begin_session($primary, $team =~ s/rows_loaded/(SELECT count(i ->> 'workers') FROM jsonb_array_elements(indexes) i)/r);
Points::point_wait($primary, 'team.build');
Points::point_wait($primary, 'team.worker');
point_clear($primary, 'team.worker');
for (my $tries = 0; $tries < 3000 && $primary->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'") ne '0'; $tries++) { usleep(10_000); }
point_clear($primary);
my ($built, $trouble) = $ended->();
is($built . $trouble, "5\n", 'a worker has built all indexes but one');
healthy($primary, 'after a worker has built indexes');
# Duplicates of existing rows: the worker finds these, too, with the usual error.
point_set($primary, 'team.build', 'wait leader');
my (undef, undef, $twice) = $primary->psql('postgres', $team =~ s/SELECT (.*)/DO \$\$ BEGIN PERFORM $1; END \$\$/sr);
point_clear($primary);
like($twice, qr/ERROR:  duplicate key value violates unique constraint "many_pkey"\nDETAIL:  Key \(id\)=\(\d+\) already exists\.\nCONTEXT:  SQL statement "SELECT rows_loaded [^\n]*\nPL\/pgSQL function inline_code_block line 1 at PERFORM$/,
	'a key twice, found by a worker');
my %conditions = (many_pkey => 'id < 3100', many_word_idx => "word = 'word 1eef'", many_point_idx => "point(id, number) <@ box '((3000,10),(6000,30))'",
	many_word_idx1 => "word ^@ 'word 1e'", many_to_tsvector_idx => "to_tsvector('simple', word) @@ '1eef'", many_at_idx => "at > '2024-02-29 12:30'");
indexes_find($primary, 'built by a worker', 'many', %conditions);
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
indexes_find($standby, 'the same on the standby', 'many', %conditions);
# Two workers raise an error each, while the leader builds its index. The second error must not replace the first, with
# a message that shows a key to a user who may not see the table. With strings this long the server builds the B-trees.
my $long = "$directory/long";
append_to_file($long, join '', map { "$_," . 'x' x 1000 . ",2024-02-29 12:00:00\n" } 1 .. 9);
$primary->safe_psql('postgres', 'CREATE TABLE twice (id int, word text COLLATE "C", at timestamp); CREATE UNIQUE INDEX twice_1 ON twice (word); CREATE UNIQUE INDEX twice_2 ON twice (word DESC);
	CREATE UNIQUE INDEX twice_3 ON twice (word, at); CREATE ROLE loader; GRANT INSERT, TRUNCATE ON twice TO loader; GRANT pg_read_server_files TO loader');
point_set($primary, 'team.build', 'wait leader');
point_set($primary, 'team.failed', 'sleep=500');
(undef, undef, my $words) = $primary->psql('postgres', "\\set VERBOSITY verbose\nSET ROLE loader; SET pg_bulk.chunk_size = '8kB'; "
	  . load_sql($long, 'twice', workers => 2, indexes => 'rebuild', truncate => 'true'));
point_clear($primary);
like($words, qr/^psql:<stdin>:\d+: ERROR:  23505: duplicate key value violates unique constraint "(twice_\d)"\nSCHEMA NAME:  public\nTABLE NAME:  twice\nCONSTRAINT NAME:  \1\nLOCATION: [^\n]*\n?\z/,
	'two workers have an error each');
is($primary->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'"), '0', '... no worker is left');

# The standby is promoted in the middle of a merge.
$rows = rows_of($primary, 'bytes');
point_set($primary, 'index.built', 'wait leader after=1');
my (undef, $end) = begin_session($primary, statement('bytes', 'merge'));
Points::point_wait($primary, 'index.built');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
$primary->stop('immediate');
point_clear($primary);
$end->();
$standby->promote;
is(rows_of($standby, 'bytes'), $rows, 'a standby that takes over: the rows are those before');
healthy($standby, 'a standby that takes over');
is($standby->safe_psql('postgres', statement('bytes', 'merge')), '4000', '... can be loaded into');
healthy($standby, '... loaded');

$standby->stop;
done_testing();
