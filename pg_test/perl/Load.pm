
=pod

=head1 NAME

Load - servers for loads, and checks after a load

=head1 SYNOPSIS

  my $primary = load_server('primary', wal_level => 'replica');
  my $standby = standby_of($primary, 'standby');
  numbers_file("$dir/rows", 1, 100_000);
  $primary->safe_psql('postgres', load_sql("$dir/rows", 't', workers => 2));
  healthy($primary, 'after the load');
  standby_equal($primary, $standby, 't');

=head1 DESCRIPTION

The checks are TAP results: amcheck of all relations, index scans compared with
sequential scans, a standby compared with its primary page by page, checksums.

=cut

package Load;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use IPC::Run ();
use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Options qw(sql_string);

our @EXPORT_OK = qw(load_server standby_of numbers_file load_sql begin_session entries_complaints entries_complete healthy indexes_find not_ahead rows_of standby_equal checksums_ok kinds make_tables);

# Rows are (id int, word text, at timestamp). One table of each kind.
my %kinds = (
	plain => 'CREATE TABLE plain (id int, word text, at timestamp)',
	keyed => 'CREATE TABLE keyed (id int PRIMARY KEY, word text, at timestamp); CREATE INDEX ON keyed (word); CREATE INDEX ON keyed USING brin (at)',
	parts => 'CREATE TABLE parts (id int, word text, at timestamp) PARTITION BY HASH (id);
		CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1)',
	# Some rows have an out-of-line value, some a compressed one.
	toasted => q{CREATE TABLE toasted (id int PRIMARY KEY, word text, at timestamp,
			long text GENERATED ALWAYS AS (CASE WHEN id % 50 = 0 THEN repeat(word, 400) END) STORED,
			short text GENERATED ALWAYS AS (CASE WHEN id % 30 = 0 THEN repeat(word, 400) END) STORED);
		ALTER TABLE toasted ALTER long SET STORAGE EXTERNAL},
	numbered => 'CREATE TABLE numbered (id int, word text, at timestamp, row_number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)');

sub kinds { return sort keys %kinds; }

# The tables of these kinds, with a few rows from before the load.
sub make_tables
{
	my ($node, @kinds) = @_;
	for my $kind (@kinds)
	{
		$node->safe_psql('postgres', "$kinds{$kind};
			INSERT INTO $kind (id, word, at) SELECT -i, 'before', 'epoch' FROM generate_series(1, 500) i");
	}
	return;
}

=pod

=head2 load_server(name, setting => value, ...)

A primary with checksums, the extension and amcheck, with enough workers for
all tests. C<conf> is further configuration.

=cut

sub load_server
{
	my ($name, %how) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	delete $ENV{RUST_BACKTRACE};
	$node->init(allows_streaming => $how{allows_streaming} // 1, extra => [ '-E', 'UTF8', '--locale=C.UTF-8', '--data-checksums' ]);
	delete $how{allows_streaming};
	my %settings = (
		autovacuum => 'off',
		# Tests kill processes, not the machine.
		fsync => 'off',
		restart_after_crash => 'on',
		checkpoint_timeout => '1h',
		max_wal_size => '2GB',
		max_worker_processes => 16,
		max_parallel_workers => 16,
		log_min_messages => 'warning',
		'pg_bulk.workers' => 2,
		%how);
	my $conf = delete $settings{conf} // '';
	$node->append_conf('postgresql.conf', join('', map { "$_ = '$settings{$_}'\n" } sort keys %settings) . $conf);
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_bulk; CREATE EXTENSION amcheck; CREATE EXTENSION pageinspect');
	return $node;
}

=pod

=head2 standby_of(primary, name, options)

A running streaming standby. With C<slot>, the primary keeps the WAL that the standby still needs, also while the standby is stopped.

=cut

sub standby_of
{
	my ($primary, $name, %how) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$primary->safe_psql('postgres', "SELECT pg_create_physical_replication_slot('$name', true)") if $how{slot};
	$primary->backup("for_$name");
	$standby->init_from_backup($primary, "for_$name", has_streaming => 1);
	$standby->append_conf('postgresql.conf', "primary_slot_name = '$name'\n") if $how{slot};
	$standby->start;
	return $standby;
}

=pod

=head2 numbers_file(path, first, last)

Writes a CSV file of rows for the tables of make_tables().

=cut

sub numbers_file
{
	my ($path, $first, $last) = @_;
	open my $file, '>:raw', $path or die "$path: $!";
	print $file join('', map { sprintf "%d,word %x,2024-02-29 12:%02d:%02d\n", $_, $_ * 7919 % 1_000_003, $_ / 60 % 60, $_ % 60 } $_ .. ($_ + 999 < $last ? $_ + 999 : $last))
	  for map { $first + 1000 * $_ } 0 .. int(($last - $first) / 1000);
	close $file or die "$path: $!";
	return;
}

=pod

=head2 load_sql(path, table, option => value, ...)

A statement. Unless an option says otherwise the file is CSV and the writer
direct. A list is an array.

=cut

sub load_sql
{
	my ($path, $table, %options) = @_;
	%options = (format => 'csv', writer => 'direct', %options);
	# The file has no field for its identity column.
	$options{columns} = [qw(id word at)] if $table eq 'numbered';
	my $value = sub { return ref $_[0] ? 'ARRAY[' . join(', ', map { sql_string($_) } @{ $_[0] }) . ']' : sql_string($_[0]) . '::text'; };
	my $json = join(', ', map { sql_string($_) . ', ' . $value->($options{$_}) } sort keys %options);
	return 'SELECT rows_loaded FROM bulk_load(' . sql_string($path) . ", '$table', jsonb_build_object($json))";
}

=pod

=head2 begin_session(node, sql)

Begins it in a session of its own. Returns the backend's pid and a function
that waits for its end and returns its output and its errors.

=cut

sub begin_session
{
	my ($node, $sql) = @_;
	my ($in, $out, $err) = ("SELECT pg_backend_pid();\n", '', '');
	my $psql = IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres') ],
		'<', \$in, '>', \$out, '2>', \$err, IPC::Run::timer(180));
	$psql->pump until $out =~ /^(\d+)\n/;
	my $pid = $1;
	($in, $out) = ("$sql;\n", '');
	$psql->pump_nb;
	return ($pid, sub { $psql->finish; $err =~ s/^psql:<stdin>:\d+: //mg; return ($out, $err); });
}

=pod

=head2 healthy(node, name)

amcheck finds no error in any table and any B-tree, and every index of the
tables finds as many rows as a sequential scan.

=cut

my $complaints = <<'SQL';
SET client_min_messages = warning;
SELECT format('%s, block %s, item %s: %s', relation.oid::regclass, blkno, offnum, msg)
FROM pg_class relation, verify_heapam(relation.oid, check_toast => true)
WHERE relkind IN ('r', 't') AND relpersistence <> 't' AND (relpersistence = 'p' OR NOT pg_is_in_recovery())
	AND relnamespace <> 'pg_catalog'::regnamespace;
DO $$
DECLARE
	index regclass;
	relation regclass;
	method name;
	by_index bigint;
	by_scan bigint;
	key text;
BEGIN
	FOR index, relation, method IN
		SELECT indexrelid, indrelid, amname FROM pg_index, pg_class, pg_am
		WHERE pg_class.oid = indexrelid AND pg_am.oid = relam AND indisvalid AND relpersistence <> 't'
			AND (relpersistence = 'p' OR NOT pg_is_in_recovery()) AND relkind = 'i'
	LOOP
		BEGIN
			IF method = 'btree' AND NOT pg_is_in_recovery() THEN
				PERFORM bt_index_parent_check(index, true, true);
			ELSIF method = 'btree' THEN
				PERFORM bt_index_check(index, true);
			END IF;
		EXCEPTION WHEN OTHERS THEN
			RAISE WARNING 'index %: %', index, SQLERRM;
		END;
		CONTINUE WHEN relation::text LIKE 'pg\_%' OR relation::text LIKE 'information_schema.%';
		key := pg_get_indexdef(index, 1, true);
		SET LOCAL enable_seqscan = on;
		SET LOCAL enable_indexscan = off;
		SET LOCAL enable_indexonlyscan = off;
		SET LOCAL enable_bitmapscan = off;
		EXECUTE format('SELECT count(*) FROM ONLY %s WHERE %s IS NOT NULL', relation, key) INTO by_scan;
		SET LOCAL enable_seqscan = off;
		SET LOCAL enable_indexscan = on;
		SET LOCAL enable_indexonlyscan = on;
		SET LOCAL enable_bitmapscan = on;
		EXECUTE format('SELECT count(*) FROM ONLY %s WHERE %s IS NOT NULL', relation, key) INTO by_index;
		IF by_index <> by_scan THEN
			RAISE WARNING 'index % finds % rows of %', index, by_index, by_scan;
		END IF;
	END LOOP;
END $$;
SQL

sub complaints
{
	my ($node, $database) = @_;
	my ($status, $stdout, $stderr) = $node->psql($database // 'postgres', $complaints, on_error_stop => 0);
	return join("\n", grep { $_ ne '' } $stdout, $stderr);
}

sub healthy
{
	my ($node, $name, $database) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(complaints($node, $database), '', "amcheck is content: $name");
}

=pod

=head2 entries_complete(node, name, database)

Indexes that neither amcheck nor a search for all keys covers: hash and GIN indexes, and those with a condition, find as many rows
as a sequential scan. Each query is planned as if the index were its table's only one, and must use it. Not on a standby.

=cut

my $entries = <<'SQL';
\set VERBOSITY terse
SET search_path = public;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SET enable_memoize = off;
DO $$
DECLARE
	index record;
	query text;
	line text;
	used boolean;
	by_index bigint;
	by_scan bigint;
BEGIN
	FOR index IN
		SELECT indexrelid, indrelid::regclass AS relation, relname AS name, amname AS method, coalesce(pg_get_expr(indpred, indrelid), 'true') AS condition,
			pg_get_indexdef(indexrelid, 1, true) AS key
		FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam
		WHERE indisvalid AND relkind = 'i' AND relpersistence <> 't' AND relnamespace <> ALL ('{pg_catalog,pg_toast,information_schema}'::regnamespace[])
			AND (amname IN ('hash', 'gin') OR indpred IS NOT NULL)
		ORDER BY 3
	LOOP
		-- Only some of many values.
		query := format(CASE index.method
			WHEN 'hash' THEN 'SELECT count(*) FROM (SELECT DISTINCT %1$s AS wanted FROM ONLY %2$s WHERE %3$s) w, LATERAL (SELECT FROM ONLY %2$s WHERE %1$s = wanted AND %3$s) found'
			WHEN 'gin' THEN 'SELECT count(*) FROM (SELECT DISTINCT ON (md5(%1$s::text)) %1$s AS wanted FROM ONLY %2$s WHERE %3$s ORDER BY md5(%1$s::text) LIMIT 300) w, LATERAL (SELECT FROM ONLY %2$s WHERE %1$s @> wanted AND %3$s) found'
			ELSE 'SELECT count(*) FROM ONLY %2$s WHERE %1$s IS NOT NULL AND %3$s' END, index.key, index.relation, index.condition);
		SET LOCAL enable_seqscan = on;
		SET LOCAL enable_indexscan = off;
		SET LOCAL enable_indexonlyscan = off;
		SET LOCAL enable_bitmapscan = off;
		IF index.method = 'hash' THEN
			EXECUTE format('SELECT count(*) FROM ONLY %s WHERE %s IS NOT NULL AND %s', index.relation, index.key, index.condition) INTO by_scan;
		ELSE
			EXECUTE query INTO by_scan;
		END IF;
		CONTINUE WHEN by_scan = 0;
		BEGIN
			UPDATE pg_index SET indisvalid = false WHERE indrelid = index.relation AND indexrelid <> index.indexrelid;
			SET LOCAL enable_seqscan = off;
			SET LOCAL enable_indexscan = on;
			SET LOCAL enable_indexonlyscan = on;
			SET LOCAL enable_bitmapscan = on;
			used := false;
			FOR line IN EXECUTE 'EXPLAIN ' || query LOOP
				used := used OR line ~ ('Index (Only )?Scan (using|on) ' || index.name || ' ');
			END LOOP;
			EXECUTE query INTO by_index;
			RAISE SQLSTATE 'UNDO0';
		EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
			NULL;
		END;
		IF NOT used THEN
			RAISE WARNING 'index % is not used', index.name;
		ELSIF by_index <> by_scan THEN
			RAISE WARNING 'index % finds % rows of %', index.name, by_index, by_scan;
		ELSE
			RAISE INFO 'index % finds all of %', index.name, by_scan;
		END IF;
	END LOOP;
END $$;
SQL

sub entries_said
{
	my ($node, $database) = @_;
	my ($status, $stdout, $stderr) = $node->psql($database // 'postgres', $entries, on_error_stop => 0);
	return split /\n/, $stderr;
}

sub entries_complaints { return join "\n", grep { !/INFO:  index/ } entries_said(@_); }

# Returns the indexes that were checked.
sub entries_complete
{
	my ($node, $name, $database) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @said = entries_said($node, $database);
	is(join("\n", grep { !/INFO:  index/ } @said), '', "$name: hash, GIN and partial indexes find all rows");
	return map { /INFO:  index (\S+) finds all/ ? $1 : () } @said;
}

=pod

=head2 indexes_find(node, name, table, index => condition, ...)

With each of these indexes a query finds rows, and as many as a sequential scan. Each query is planned separately, and must use its index.

=cut

sub indexes_find
{
	my ($node, $name, $table, %conditions) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $index (sort keys %conditions)
	{
		my $query = "SELECT count(*) FROM $table WHERE $conditions{$index}";
		my $ask = "EXPLAIN (COSTS OFF) $query; $query";
		my $said = $node->safe_psql('postgres', "SET enable_seqscan = off; $ask; SET enable_seqscan = on; SET enable_indexscan = off; "
			  . "SET enable_indexonlyscan = off; SET enable_bitmapscan = off; $ask");
		my ($by_index, $found, $by_table, $there) = $said =~ /\A(.*?)^(\d+)\n(.*?)^(\d+)\z/ms or die $said;
		ok($by_index =~ /Index (?:Only )?Scan (?:using|on) \Q$index\E\b/ && $by_table =~ /Seq Scan on \Q$table\E\b/ && $found > 0 && $found == $there,
			"$name: $index finds what a sequential scan finds")
		  or diag($said);
	}
	return;
}

=pod

=head2 not_ahead(node, name)

No page of a table or index has an LSN beyond the end of the WAL: recovery and checkpoints would assume that it is
newer than it is.

=cut

my $ahead = <<'SQL';
SELECT c.oid::regclass, block
FROM pg_class c, generate_series(0, pg_relation_size(c.oid) / 8192 - 1) block, page_header(get_raw_page(c.oid::regclass::text, block::int))
WHERE relkind IN ('r', 't', 'm', 'i') AND relpersistence = 'p' AND c.oid > 16384 AND lsn > pg_current_wal_insert_lsn()
SQL

sub not_ahead
{
	my ($node, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($node->safe_psql('postgres', $ahead), '', "no page is ahead of the log: $name");
}

=pod

=head2 rows_of(node, table)

Number of rows and a checksum, independent of their order.

=cut

sub rows_of
{
	my ($node, $table) = @_;
	return $node->safe_psql('postgres',
		"SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM $table t");
}

=pod

=head2 standby_equal(primary, standby, tables)

The standby has replayed all WAL, has the same rows at the same TIDs, and
is healthy. Hint bits, command ids and the space between tuples may differ.

=cut

my $tuples = <<'SQL';
SELECT block, lp, lp_off, lp_flags, lp_len, t_xmin, t_xmax, t_ctid, t_infomask2, t_infomask & x'f0df'::int, t_hoff, t_bits, md5(t_data)
FROM generate_series(0, pg_relation_size(:'leaf') / 8192 - 1) block, heap_page_items(get_raw_page(:'leaf', block::int))
ORDER BY block, lp
SQL

sub tuples_of
{
	my ($node, $leaf) = @_;
	my $sql = $tuples =~ s/:'leaf'/'$leaf'/gr;
	return $node->safe_psql('postgres', "SELECT count(*), md5(string_agg(t::text, E'\\n')) FROM ($sql) t");
}

sub standby_equal
{
	my ($primary, $standby, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	for my $table (@tables)
	{
		is(rows_of($standby, $table), rows_of($primary, $table), "$table: the standby has the primary's rows");
		for my $leaf (split /\n/, $primary->safe_psql('postgres',
			"SELECT relid FROM pg_partition_tree('$table') WHERE isleaf UNION SELECT oid FROM pg_class WHERE oid = '$table'::regclass AND relkind = 'r'"))
		{
			is(tuples_of($standby, $leaf), tuples_of($primary, $leaf), "$leaf: ... in the same places");
		}
	}
	return healthy($standby, 'standby');
}

=pod

=head2 checksums_ok(node)

Stops the server, lets pg_checksums read all of it, starts it again.

=cut

sub checksums_ok
{
	my ($node) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->stop;
	command_ok([ 'pg_checksums', '--check', '-D', $node->data_dir ], $node->name . ': all checksums are right');
	$node->start;
	return;
}

1;
