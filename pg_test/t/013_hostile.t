
# A load's own session interferes with the load: functions that delete its rows and undo this,
# truncate its partitions, or reindex its table. Each case runs in every way into a table, with workers and without, for plain
# and partitioned tables, and must have COPY's result. See perl/UserCode.pm.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use File::Spec::Functions qw(rel2abs);
use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(write_bytes);
use Load qw(begin_session healthy load_server);
use UserCode qw(has_label is_possible ways);

my $node = load_server('hostile', shared_preload_libraries => 'pg_bulk', log_statement => 'none', log_min_error_statement => 'panic',
	log_min_messages => 'fatal', client_min_messages => 'warning', statement_timeout => '60s', 'pg_bulk.memory_limit' => '1MB', 'pg_bulk.chunk_size' => '16kB', UserCode::settings());
my $matrix = UserCode->new($node);

# A place for the code, an action, kinds of tables, the file, and expected lines of COPY's result.
my @cases = (
	# Rows that a function deletes and restores keep their index entries, triggers and foreign key checks.
	[ 'where', 'delete undone', [ 'plain', 'empty', 'parts' ], 'good', 'STATE 00000', 'fired 1000 t' ],
	[ 'where', 'delete undone', [ 'plain', 'parts' ], 'orphans', 'STATE 23503' ],
	[ 'check', 'delete undone', [ 'plain', 'parts' ], 'good', 'fired 1000 t' ],
	[ 'select list', 'delete undone', [ 'plain', 'empty', 'parts' ], 'good', 'STATE 00000' ],

	# New versions of rows that a function updates keep them, too.
	[ 'where', 'update kept', [ 'plain', 'parts' ], 'good', 'fired 1000 t' ],
	[ 'where', 'update of keys kept', [ 'plain', 'parts' ], 'good', 'fired 1000 t' ],
	[ 'where', 'lock kept', ['plain'], 'orphans', 'STATE 23503' ],

	# The condition of a trigger deletes rows and restores them.
	[ 'condition of a trigger', 'delete undone', [ 'plain', 'parts' ], 'good', 'fired 1000 t' ],
	[ 'condition of a trigger', 'delete undone', [ 'plain', 'parts' ], 'orphans', 'STATE 23503' ],

	# It truncates partitions: one that has rows of the load, and one whose rows come later.
	[ 'condition of a trigger', 'truncate', [ 'plain', 'parts', 'first leaf' ], 'good', 'log 55006 x 1, acted x 1', 'fired 1000 t' ],
	[ 'condition of a trigger', 'truncate', ['later leaf'], 'good', 'STATE 00000', 't_3: rows 10[12] .*', 'fired 1000 t' ],
	[ 'where', 'truncate', [ 'plain', 'empty', 'first leaf' ], 'good', 'log 55006 x 1, acted x 1' ],
	[ 'where', 'truncate', ['later leaf'], 'good', 't_3: rows 10[12] .*' ],

	# A function reindexes the table.
	[ 'where', 'reindex index', [ 'plain', 'empty', 'first leaf' ], 'good', 'log 55006 x 1, acted x 1' ],
	[ 'where', 'reindex table', [ 'plain', 'empty' ], 'good', 'log 55006 x 1, acted x 1' ],
	[ 'where', 'cluster', [ 'plain', 'empty', 'first leaf' ], 'good', 'log 55006 x 1, acted x 1' ]);
my %right;
for my $case (@cases)
{
	my ($place, $action, $kinds, $file, @lines) = @$case;
	for my $kind (@$kinds)
	{
		for my $way (grep { $_ !~ /^(?:direct|buffered)$/ } ways())
		{
			for my $workers (0, 2)
			{
				# The direct writer runs only functions whose label allows it. Without it, nothing depends on workers.
				for my $label (!has_label($place) ? undef : $workers ? 'restricted' : ('unsafe', 'restricted'))
				{
					my %cell = (place => $place, action => $action, kind => $kind, way => $way, file => $file, workers => $workers, label => $label);
					next unless is_possible(%cell);
					$matrix->add(%cell);
				}
			}
		}
		$right{"$place|$action|$kind|$file"} = \@lines;
	}
}
$matrix->run;
my (%was_asked, %ways);
for my $cell ($matrix->cells)
{
	$ways{ $cell->{way} }++;
	is($matrix->verdict($cell), '', $cell->{name}) or diag $matrix->said_of($cell);
	my $key = join '|', @$cell{ 'place', 'action', 'kind', 'file' };
	next if $cell->{way} eq 'ctas' || $was_asked{$key}++;
	my $outcome = $matrix->oracle($cell);
	like($outcome, qr/^$_$/m, "what is right: $key") for @{ $right{$key} };
}
is(join(' ', sort keys %ways), 'auto ctas insert job takeover', 'all ways');

# An empty table whose foreign key check waits for a parent row that
# another session has locked: that session can still insert into the table.
my $directory = rel2abs(PostgreSQL::Test::Utils::tempdir('hostile'));
chmod 0755, $directory;
# More than WORTH_EXCLUSIVE (1 MB).
write_bytes("$directory/children", join '', map { "$_," . (1 + $_ % 1000) . "\n" } 1 .. 120_000);
$node->safe_psql('postgres', 'CREATE TABLE p (id int PRIMARY KEY); INSERT INTO p SELECT generate_series(1, 1000); CREATE TABLE k (id int, pid int REFERENCES p);
	CREATE TABLE k_parts (id int, pid int REFERENCES p) PARTITION BY HASH (id); CREATE TABLE k_0 PARTITION OF k_parts FOR VALUES WITH (MODULUS 1, REMAINDER 0);'
	. "CREATE FOREIGN TABLE f (id int, pid int) SERVER bulk_files OPTIONS (filename '$directory/children', format 'csv')");
for my $table ('k', 'k_parts')
{
	for my $load (
		[ 'COPY', "COPY $table FROM '$directory/children' (FORMAT csv)" ],
		[ 'bulk_load', qq{SELECT rows_loaded FROM bulk_load('$directory/children', '$table', '{"format": "csv"}')} ],
		[ 'bulk_load, 2 workers', qq{SELECT rows_loaded FROM bulk_load('$directory/children', '$table', '{"format": "csv", "workers": 2}')} ],
		[ 'a job', qq{SELECT bulk_enqueue('$directory/children', '$table', '{"format": "csv"}') AS job \\gset\nSELECT bulk_wait(:job, '60s')} ],
		[ 'INSERT', "INSERT INTO $table SELECT * FROM f" ],
		[ 'INSERT, exclusive', "SET pg_bulk.direct_insert = exclusive; INSERT INTO $table SELECT * FROM f" ],
		[ 'COPY as a load', "SET pg_bulk.copy = on; COPY $table FROM '$directory/children' (FORMAT csv)" ])
	{
		my ($name, $sql) = @$load;
		$node->safe_psql('postgres', "TRUNCATE $table");
		my $holder = $node->background_psql('postgres', on_error_stop => 0);
		$holder->query_safe('BEGIN; SELECT FROM p WHERE id = 7 FOR UPDATE');
		my (undef, $ended) = begin_session($node, $sql);
		$node->poll_query_until('postgres', "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple'))")
		  or die 'the load does not wait';
		$holder->query("SET statement_timeout = '20s'; INSERT INTO $table VALUES (-1, 8)");
		$holder->query('COMMIT');
		$holder->quit;
		my (undef, $err) = $ended->();
		is($err, '', "$table, $name: the load ends");
		is($node->safe_psql('postgres', "SELECT count(*) FROM $table"), 120_001, "$table, $name: the other session's row, and the load's");
	}
}
healthy($node, 'in the end');
$node->stop;
done_testing();
