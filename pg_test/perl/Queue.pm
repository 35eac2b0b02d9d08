
=pod

=head1 NAME

Queue - servers with a queue of loads, and the results of their jobs

=head1 SYNOPSIS

  my $queue = Queue->new('queue', 'pg_bulk.max_running_jobs = 1');
  my $job = $queue->enqueue($queue->numbers('n.txt', 1 .. 10));
  is($queue->ends($job), 'succeeded', 'a job');
  my $pipe = $queue->pipe('pipe');
  my $blocked = $queue->enqueue($pipe);        # runs until somebody writes
  $queue->runs($blocked);
  $queue->feed($pipe, 11 .. 20);

=head1 DESCRIPTION

Files have one number a line and are loaded into table C<t (a int)>. A job that
reads a FIFO runs until the test writes to it.

=cut

package Queue;

use strict;
use warnings FATAL => 'all';

use Errno qw(EINTR ENXIO);
use Fcntl qw(O_WRONLY O_NONBLOCK);
use File::Spec::Functions qw(rel2abs);
use IO::Handle;
use POSIX qw(mkfifo);
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use constant SECONDS => 60;

sub new
{
	my ($class, $name, @conf) = @_;
	my $install = ref $conf[0] ? shift(@conf)->{install} : undef;
	my $node = PostgreSQL::Test::Cluster->new($name, $install ? (install_path => $install) : ());
	delete $ENV{RUST_BACKTRACE};
	$node->init(allows_streaming => 1, extra => [ '-E', 'UTF8', '--locale=C.UTF-8' ]);
	$node->append_conf('postgresql.conf', join "\n", 'fsync = off', 'autovacuum = off', 'max_worker_processes = 16',
		'restart_after_crash = on', 'log_statement = none', @conf, '');
	$node->start;
	my $self = bless { node => $node, directory => rel2abs(PostgreSQL::Test::Utils::tempdir('queue')) }, $class;
	chmod 0755, $self->{directory};
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_bulk; CREATE TABLE t (a int)');
	return $self;
}

sub node { return $_[0]{node}; }
sub path { my ($self, $name) = @_; return "$self->{directory}/$name"; }
sub sql { my ($self, $sql, $database) = @_; return $self->{node}->safe_psql($database // 'postgres', $sql); }

# Writes a file of numbers; returns its path.
sub numbers
{
	my ($self, $name, @numbers) = @_;
	my $path = $self->path($name);
	open my $file, '>', $path or die "$path: $!";
	print $file map { "$_\n" } @numbers;
	close $file or die $!;
	return $path;
}

# Creates a FIFO; returns its path.
sub pipe
{
	my ($self, $name) = @_;
	my $path = $self->path($name);
	unlink $path;
	mkfifo($path, 0644) or die "$path: $!";
	return $path;
}

# Writes to a FIFO that a job reads, and closes it.
sub feed
{
	my ($self, $path, @numbers) = @_;
	my $end = time + SECONDS;
	my $file;
	until (sysopen $file, $path, O_WRONLY | O_NONBLOCK)
	{
		die "$path: $!" unless $! == ENXIO && time < $end;
		usleep(5_000);
	}
	$file->autoflush(1);
	print $file map { "$_\n" } @numbers or die $!;
	close $file or die $!;
	return;
}

# Enqueues a job; further arguments are SQL. Returns its job_id.
sub enqueue
{
	my ($self, $path, $target, @more) = @_;
	my $arguments = join ', ', "'$path'", "'" . ($target // 't') . "'", @more;
	return $self->sql("SELECT bulk_enqueue($arguments)");
}

# Queries a server that may be restarting: returns nothing then.
sub ask
{
	my ($self, $sql) = @_;
	my $answer = '';
	eval { my ($status, $stdout) = $self->{node}->psql('postgres', $sql, timeout => 60); $answer = $stdout if $status == 0; };
	return $answer;
}

sub status
{
	my ($self, $job) = @_;
	return $self->ask("SELECT status FROM bulk_jobs WHERE job_id = $job");
}

# Waits for the end of a job, without starting a dispatcher.
sub ends
{
	my ($self, $job) = @_;
	my $end = time + SECONDS;
	while (time < $end)
	{
		my $status = $self->status($job);
		return $status if $status =~ /succeeded|failed|canceled/;
		usleep(20_000);
	}
	return 'never: ' . $self->sql("SELECT status, waits_for, attempt, error_message FROM bulk_jobs WHERE job_id = $job");
}

# Waits until a job runs its load; returns its pid.
sub runs
{
	my ($self, $job) = @_;
	my $end = time + SECONDS;
	while (time < $end)
	{
		my $pid = $self->ask("SELECT pid FROM bulk_jobs WHERE job_id = $job AND status = 'running'
			AND EXISTS (SELECT FROM pg_locks l WHERE l.pid = bulk_jobs.pid AND l.mode = 'RowExclusiveLock')");
		return $pid if $pid ne '';
		usleep(10_000);
	}
	die "job $job does not run: " . $self->sql("SELECT status, waits_for, error_message FROM bulk_jobs WHERE job_id = $job");
}

# The processes that ran the loads of jobs, from the log.
sub loaders
{
	my ($self, @jobs) = @_;
	my $log = slurp_file($self->{node}->logfile);
	return map { $log =~ /\[(\d+)\][^\n]* LOG:  load $_ from/ ? $1 : "none of job $_" } @jobs;
}

# Waits until a query returns true; returns false if this takes too long.
sub becomes
{
	my ($self, $query, $seconds) = @_;
	my $end = time + ($seconds // SECONDS);
	while (time < $end)
	{
		return 1 if $self->ask($query) eq 't';
		usleep(20_000);
	}
	return 0;
}

# The queue's processes, except its launcher, which stays.
my $PROCESSES = "FROM pg_stat_activity WHERE backend_type IN ('pg_bulk dispatcher', 'pg_bulk job')";
sub processes
{
	my ($self) = @_;
	return $self->sql("SELECT count(*) $PROCESSES");
}

sub idle
{
	my ($self) = @_;
	return $self->becomes("SELECT count(*) = 0 $PROCESSES", 15);
}

1;
