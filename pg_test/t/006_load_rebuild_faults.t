
# A load fails or crashes while the server rebuilds its indexes: before, during
# and after. The table and its indexes have new files by then.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Faults;
use Points qw(point_clear point_set point_wait);

my $faults = Faults->new('rebuild');
my $node   = $faults->node;
my $hold   = $node->data_dir . '/pg_bulk_hold';
# Only rows of the file wait, not those that existed before, where the index is built: in the backend, and in the workers
# of the server's own build.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION hold(id int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	WHILE id > 0 AND (pg_stat_file('pg_bulk_hold', true)).size = 0 LOOP
		PERFORM pg_sleep(0.005);
	END LOOP;
	-- At two bytes the backend fails, at one byte a worker.
	IF id > 0 AND (pg_stat_file('pg_bulk_hold', true)).size = (SELECT 1 + (leader_pid IS NULL)::int FROM pg_stat_activity WHERE pid = pg_backend_pid()) THEN
		RAISE 'not this one';
	END IF;
	RETURN id;
END $$;
-- What is not said to be parallel safe is the server's to compare, and it does so in workers nevertheless.
CREATE FUNCTION compare(int, int) RETURNS int LANGUAGE internal IMMUTABLE PARALLEL RESTRICTED AS 'btint4cmp';
CREATE OPERATOR CLASS unsafe_ops FOR TYPE int USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 compare(int, int);
CREATE INDEX t_hold ON t (hold(id) unsafe_ops);
-- Its keys are index tuples, which all processes of the load sort.
CREATE INDEX t_tuples ON t ((id % 100), left(body, 20)) WHERE id > 0;
SQL
is($faults->trouble, '', 'without faults');

# A table that the load truncates, or an empty one that is not in use.
sub load_sql
{
	my ($truncate, $file) = @_;
	return "SET min_parallel_table_scan_size = 0; SELECT rows_loaded, workers, (SELECT string_agg(i->>'method', ' ') FROM jsonb_array_elements(indexes) i)
		FROM bulk_load('" . $faults->path($file // 'small') . "', 't', '{\"format\": \"csv\", \"writer\": \"direct\", \"workers\": 2,
		\"indexes\": \"rebuild\", \"truncate\": $truncate}')";
}

sub set_hold
{
	my ($content) = @_;
	if (defined $content)
	{
		append_to_file($hold, $content);
		chmod 0644, $hold;
	}
	else
	{
		unlink $hold;
	}
	return;
}

# Begins a load; returns the pid of the process that waits.
sub bring
{
	my ($place, $truncate) = @_;
	$node->safe_psql('postgres', 'TRUNCATE t') if $truncate eq 'false';
	if ($place !~ /^build/)
	{
		point_set($node, $place, 'wait');
		my $load = $faults->begin(load_sql($truncate));
		point_wait($node, $place);
		return ($load, $load->pid);
	}
	set_hold('');
	my $load = $faults->begin(load_sql($truncate));
	my $where = $place eq 'build leader' ? 'pid = ' . $load->pid : 'leader_pid = ' . $load->pid;
	# The processes sleep most of the time.
	for (1 .. 6000)
	{
		my $pid = $node->safe_psql('postgres', "SELECT min(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND $where");
		return ($load, $pid) if $pid ne '';
		usleep(2_000);
	}
	die "$place: nobody comes";
}

sub release
{
	set_hold(undef);
	point_clear($node);
	return;
}

# Files that belong to no relation.
sub strays
{
	return $node->safe_psql('postgres', q{CHECKPOINT;
		SELECT string_agg(file, ' ' ORDER BY file) FROM pg_database, pg_ls_dir('base/' || oid) file
		WHERE datname = current_database() AND file ~ '^\d' AND pg_filenode_relation(0, substring(file FROM '^\d+')::oid) IS NULL});
}

# Complaints about the state afterwards.
sub trouble
{
	my ($truncate) = @_;
	release();
	my $trouble = '';
	if ($truncate eq 'false')
	{
		my $rows = $node->safe_psql('postgres', "SELECT count(*) FROM t");
		$trouble .= "$rows rows in a table that was empty" if $rows != 0;
		$faults->renew;
	}
	my $indexes = $faults->outcome("SELECT bt_index_parent_check('t_hold', true, true), bt_index_parent_check('t_pkey', true, true), bt_index_parent_check('t_tuples', true, true)");
	$trouble .= $indexes if $indexes ne '||';
	return $trouble . $faults->trouble;
}

# The primary key is built from collected keys, one index from index tuples, one by the server.
my @places = ('index.sorted', 'index.write', 'index.logged', 'index.built', 'load.rebuild', 'build leader', 'build worker', 'load.rebuilt');

# The load fails. No interrupt is served between a page's WAL and the page.
for my $place (grep { $_ ne 'index.logged' } @places)
{
	my $truncate = $place =~ /worker|rebuilt|logged/ ? 'false' : 'true';
	for my $how ('pg_cancel_backend', 'pg_terminate_backend')
	{
		next if $place eq 'build worker' && $how eq 'pg_cancel_backend';
		my $strays = strays();
		my ($load, $pid) = bring($place, $truncate);
		$node->safe_psql('postgres', "SELECT $how($pid)");
		like($load->end, qr/^(ERROR|FATAL): /, "$place, $how");
		is(trouble($truncate), '', "$place, $how: leaves nothing");
		is(strays(), $strays, "$place, $how: ... and no files");
	}
}
for my $who ('leader', 'worker')
{
	my $truncate = $who eq 'leader' ? 'true' : 'false';
	my $strays = strays();
	my ($load) = bring("build $who", $truncate);
	set_hold($who eq 'leader' ? 'xx' : 'x');
	my $end = $load->end;
	like($end, qr/^ERROR:  not this one/, "an error of the $who within a build");
	unlike($end, qr/parallel worker/, '... does not say whose it is');
	is(trouble($truncate), '', "an error of the $who within a build: leaves nothing");
	is(strays(), $strays, "an error of the $who within a build: ... and no files");
}
$faults->write_rows('twice', 1 .. 1500, 700);
like($faults->outcome(load_sql('true', 'twice')),
	qr/^ERROR:  duplicate key value violates unique constraint "t_pkey"\nDETAIL:  Key \(id\)=\(700\) already exists\.\nCONTEXT:  COPY t, line 1501\nfile /,
	'a key twice');
is(trouble('true'), '', 'a key twice: leaves nothing');

# The server crashes, or stops.
sub starts { return scalar(() = slurp_file($node->logfile) =~ /database system is ready to accept connections/g); }
for my $place (@places)
{
	for my $how ('kill', 'stop')
	{
		my $truncate = ($place =~ /leader|rebuilt/) == ($how eq 'stop') ? 'false' : 'true';
		my $starts = starts();
		my ($load, $pid) = bring($place, $truncate);
		# New files are on disk, and recovery must remove them.
		$node->safe_psql('postgres', 'CHECKPOINT') if $truncate eq 'true' && $place ne 'index.logged';
		if ($how eq 'kill')
		{
			kill 9, $pid;
		}
		else
		{
			$node->stop('immediate');
			release();
			$node->start;
		}
		like($load->end, qr/server closed the connection|terminating connection because of crash|immediate shutdown/, "$place, $how, truncate $truncate");
		release();
		for (my $tries = 0; starts() == $starts && $tries < 3000; $tries++) { usleep(10_000); }
		is(trouble($truncate), '', "$place, $how, truncate $truncate: recovery");
	}
}

# A checkpoint runs while an index is built; the load continues, and the server crashes after it.
for my $place (grep { $_ ne 'index.logged' } @places)
{
	my $truncate = $place =~ /leader|rebuilt/ ? 'true' : 'false';
	my ($load) = bring($place, $truncate);
	$node->safe_psql('postgres', 'CHECKPOINT');
	release();
	is($load->end, "1500|2|rebuild rebuild rebuild\n", "$place, checkpoint: the load goes on");
	$faults->crash;
	$node->start;
	is($faults->outcome(<<'SQL'), "1500|1125750\n||\n1500\n1500\n1500", "$place, checkpoint: recovery");
SELECT count(*), sum(id) FROM t;
SELECT * FROM verify_heapam('t', check_toast => true);
SELECT bt_index_parent_check('t_hold', true, true), bt_index_parent_check('t_pkey', true, true), bt_index_parent_check('t_tuples', true, true);
SET enable_seqscan = off; SET enable_bitmapscan = off;
SELECT count(*) FROM t WHERE id > 0;
SELECT count(*) FROM t WHERE hold(id) > 0;
SELECT count(*) FROM t WHERE id % 100 >= 0 AND id > 0;
SQL
	$faults->renew;
}
is($faults->trouble, '', 'in the end');

$node->stop;
done_testing();
