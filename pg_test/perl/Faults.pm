
=pod

=head1 NAME

Faults - loads by bulk_load's direct writer that are stopped at a point, and checks of the state afterwards

=head1 SYNOPSIS

  my $faults = Faults->new('faults');
  my $load = $faults->bring('append.ready', 'worker', 'wait');
  my ($pid) = $faults->wait_at('append.ready');
  # ... something happens to it
  like($load->end, qr/^ERROR/, 'the load fails');
  is($faults->trouble, '', 'and nothing is left of it');

=head1 DESCRIPTION

The table C<t> has a primary key and a column with out-of-line values.
It has some rows, loaded and committed just before. The file has chunks for
three processes. Each process claims a chunk before any of them continues, so
the chosen process always reaches the point.

=cut

package Faults;

use strict;
use warnings FATAL => 'all';

use File::Spec::Functions qw(rel2abs);
use IPC::Run;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(write_bytes);
use Points qw(point_set point_wait point_waiting point_clear);

use constant BASE_ROWS => 10;
use constant GATE      => 'chunk.claimed';
# Chunks of the file are four times as long.
use constant CHUNK_SIZE => '16kB';

# Points that processes pass before there are chunks to work on.
my %early = map { $_ => 1 } qw(load.begin load.first load.launched worker.begin chunk.claimed);

sub new
{
	my ($class, $name, %how) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name, $how{install} ? (install_path => $how{install}) : ());
	delete $ENV{RUST_BACKTRACE};
	$node->init(extra => [ '-E', 'UTF8', '--locale=C.UTF-8', '--data-checksums' ]);
	$node->append_conf('postgresql.conf', <<'CONF');
wal_level = replica
fsync = off
autovacuum = off
checkpoint_timeout = 1h
restart_after_crash = on
max_worker_processes = 16
max_parallel_workers = 16
log_statement = none
CONF
	$node->start;
	my $self = bless { node => $node, directory => rel2abs(PostgreSQL::Test::Utils::tempdir('faults')) }, $class;
	chmod 0755, $self->{directory};
	$self->write_rows('base', map { -$_ } 1 .. BASE_ROWS);
	$self->write_rows('small', 1 .. 1500);
	$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION pg_bulk;
CREATE EXTENSION amcheck;
CREATE TABLE t (id int PRIMARY KEY, wide text, body text);
ALTER TABLE t ALTER wide SET STORAGE EXTERNAL, ALTER body SET STORAGE PLAIN;
SQL
	$self->renew;
	return $self;
}

sub node { return $_[0]{node}; }
sub path { my ($self, $file) = @_; return "$self->{directory}/$file"; }

# A row has some 1.5 kB; every twentieth is wide.
sub rows
{
	return join '', map { "$_," . ($_ % 20 ? '' : 'w' x 4000) . ',' . 'b' x 1500 . "\n" } @_;
}

sub write_rows
{
	my ($self, $file, @ids) = @_;
	write_bytes($self->path($file), rows(@ids));
	$self->{rows}{$file} = @ids;
	return;
}

# A statement that loads a file.
sub load_sql
{
	my ($self, $file, $workers) = @_;
	$workers //= 2;
	my $options = "{\"format\": \"csv\", \"writer\": \"direct\", \"workers\": $workers}";
	return "SELECT rows_loaded, writer, workers FROM bulk_load('" . $self->path($file) . "', 't', '$options')";
}

=pod

=head2 outcome(sql)

The output of the statements, or their error.

=cut

sub outcome
{
	my ($self, $sql, $verbosity) = @_;
	my $begin = "\\set VERBOSITY " . ($verbosity // 'default') . "\nSET pg_bulk.chunk_size = '" . CHUNK_SIZE . "';\n";
	my ($status, $stdout, $stderr) =
		$self->{node}->psql('postgres', "${begin}SET statement_timeout = '30s';\n$sql", timeout => 60);
	$stderr =~ s/^psql:<stdin>:\d+: //mg;
	return $status == 0 ? $stdout : $stderr;
}

# Begins the statement.
sub begin
{
	my ($self, $sql) = @_;
	my $session = bless {
		in  => "SET pg_bulk.chunk_size = '" . CHUNK_SIZE . "';\nSELECT pg_backend_pid();\n",
		out => '',
		err => ''
	}, 'Faults::Session';
	$session->{psql} = IPC::Run::start(
		[ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $self->{node}->connstr('postgres') ],
		'<', \$session->{in}, '>', \$session->{out}, '2>', \$session->{err}, IPC::Run::timeout(60));
	$session->{psql}->pump until $session->{out} =~ /^(\d+)\n/;
	$session->{pid} = $1;
	$session->{out} = '';
	$session->say("$sql;\n");
	return $session;
}

=pod

=head2 bring(point, who, command, sql)

Begins a load, or C<sql> with a load in it; one process, C<leader> or C<worker>,
runs the command at the point.

=cut

sub bring
{
	my ($self, $point, $who, $command, $sql) = @_;
	my $gated = !$early{$point};
	point_set($self->{node}, GATE, 'wait') if $gated;
	point_set($self->{node}, $point, "$command $who once") unless $gated;
	# A point that is reached only after a failure.
	point_set($self->{node}, 'append.write', "errno=28 $who once") if $point eq 'append.emptied';
	# The leader must not take all chunks before a worker has started.
	my $holds = $point eq GATE && $who eq 'worker';
	point_set($self->{node}, 'load.launched', 'wait leader') if $holds;
	my $session = $self->begin($sql // $self->load_sql('small'));
	if ($holds)
	{
		for (my $tries = 0; $tries < 200 && !point_waiting($self->{node}, $point); $tries++) { usleep(5_000); }
		point_clear($self->{node}, 'load.launched');
	}
	if ($gated)
	{
		point_wait($self->{node}, GATE, 3);
		point_set($self->{node}, $point, "$command $who once");
		point_clear($self->{node}, GATE);
	}
	return $session;
}

=pod

=head2 wait_at(point)

=cut

sub wait_at
{
	my ($self, $point) = @_;
	my ($pid) = point_wait($self->{node}, $point);
	return $pid;
}

=pod

=head2 trouble(rows)

Complaints about the server and the table after the end of a load. The table
must have this many rows (default 0) besides the earlier ones. No process and no
lock of the load may be left, and the next INSERT, load and checkpoint must
work. Afterwards the table has its first rows again.

=cut

sub trouble
{
	my ($self, $rows) = @_;
	$rows //= 0;
	my $node = $self->{node};
	point_clear($node);
	my $others = "FROM pg_stat_activity a LEFT JOIN pg_locks l USING (pid) WHERE pid <> pg_backend_pid()
		AND (backend_type IN ('parallel worker', 'client backend') OR l.pid IS NOT NULL)";
	unless ($node->poll_query_until('postgres', "SELECT count(*) = 0 $others"))
	{
		return $self->outcome("SELECT 'left: ', pid, backend_type, wait_event, state, locktype, mode $others");
	}
	my $total = BASE_ROWS + $rows;
	my $again = $self->{rows}{small};
	my $sql = <<"SQL";
SELECT count(*), count(*) FILTER (WHERE id < 0) FROM t;
SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off;
SELECT count(DISTINCT id), count(nullif(wide, '')), sum(coalesce(length(wide), 0) + length(body)) = (count(*) * 1500
	+ count(nullif(wide, '')) * 4000) FROM t;
SELECT * FROM verify_heapam('t', check_toast => true);
SELECT bt_index_parent_check('t_pkey', true, true);
DELETE FROM t WHERE id > 0;
INSERT INTO t VALUES (0, 'another', 'row');
@{[ $self->load_sql('small') ]};
CHECKPOINT;
SELECT count(*), sum(id) FILTER (WHERE id >= 0) FROM t;
SELECT * FROM verify_heapam('t', check_toast => true);
SELECT bt_index_parent_check('t_pkey', true, true);
SQL
	my $wide = $rows ? int($rows / 20) : 0;
	my $expected = join "\n", "$total|" . BASE_ROWS, "$total|$wide|t", '', "$again|direct|2",
		BASE_ROWS + 1 + $again . '|' . $again * ($again + 1) / 2, '';
	my $outcome = $self->outcome($sql);
	$self->renew;
	return $outcome eq $expected ? '' : "expected\n${expected}but\n$outcome";
}

# Loads the first rows again. Their pages are then in the WAL and not yet on disk.
sub renew
{
	my ($self) = @_;
	my $outcome = $self->outcome('TRUNCATE t; ' . $self->load_sql('base', 0));
	die $outcome unless $outcome eq BASE_ROWS . '|direct|0';
	return;
}

=pod

=head2 crash()

Kills the postmaster. Returns when no process is left.

=cut

sub crash
{
	my ($self) = @_;
	my ($postmaster) = slurp_file($self->{node}->data_dir . '/postmaster.pid') =~ /^(\d+)/;
	my @pids = split /\n/, $self->{node}->safe_psql('postgres', 'SELECT pid FROM pg_stat_activity');
	$self->{node}->kill9;
	my $end = time + 30;
	for my $pid ($postmaster, @pids)
	{
		while (kill 0, $pid)
		{
			die "process $pid survives the postmaster" if time > $end;
			usleep(5_000);
		}
	}
	return;
}

package Faults::Session;

use strict;
use warnings FATAL => 'all';

use Time::HiRes qw(time usleep);

sub pid { return $_[0]{pid}; }

sub say
{
	my ($self, $sql) = @_;
	$self->{in} .= $sql;
	$self->{psql}->pump_nb;
	return;
}

# Whether the session prints text that matches the pattern, within the given number of seconds.
sub prints
{
	my ($self, $pattern, $seconds) = @_;
	my $end = time + $seconds;
	while (1)
	{
		$self->{psql}->pump_nb;
		return 1 if "$self->{out}$self->{err}" =~ $pattern;
		return 0 if time > $end;
		usleep(10_000);
	}
}

# Its output, or its error, at the end.
sub end
{
	my ($self) = @_;
	eval { $self->{psql}->finish; 1 } or return "no end: $@";
	(my $err = $self->{err}) =~ s/^psql:<stdin>:\d+: //mg;
	return $err ne '' ? $err : $self->{out};
}

1;
