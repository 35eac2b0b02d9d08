
=pod

=head1 NAME

Points - stop, fail or kill the processes of a server at named places

=head1 SYNOPSIS

  use Points qw(point_set point_wait point_clear);

  point_set($node, 'source.ready', 'wait');
  # ... a session begins a scan
  my ($pid) = point_wait($node, 'source.ready');
  point_clear($node, 'source.ready');

=head1 DESCRIPTION

src/server/points.rs lists the commands. All functions here work on files in
the data directory, so the server may be down, or not answering.

pg_test/run runs a test that uses this module on a server whose library
has test points.

=cut

package Points;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;

our @EXPORT_OK = qw(point_names point_set point_wait point_waiting point_taken point_next point_clear);

use constant WAIT_SECONDS => 60;

sub directory { return $_[0]->data_dir . '/pg_bulk_points'; }

my @names;

=pod

=head2 point_names()

All test points of the library, sorted.

=cut

sub point_names
{
	return @names if @names;
	chomp(my $libdir = `pg_config --pkglibdir`);
	my %seen = map { $_ => 1 } slurp_file("$libdir/pg_bulk.so") =~ m{pg_bulk_points/([a-z_.]+)\0}g;
	@names = sort keys %seen;
	die "$libdir/pg_bulk.so has no points" unless @names;
	return @names;
}

=pod

=head2 point_set(node, name, command)

=cut

sub point_set
{
	my ($node, $name, $command) = @_;
	die "no point $name" unless grep { $_ eq $name } point_names();
	my $directory = directory($node);
	mkdir $directory;
	# A process that reaches the point meanwhile finds either the old command or the new one.
	open my $file, '>', "$directory/$name.new" or die "$directory/$name.new: $!";
	print $file "$command\n";
	close $file or die $!;
	chmod 0666, "$directory/$name.new";
	rename "$directory/$name.new", "$directory/$name" or die $!;
	return;
}

=pod

=head2 point_waiting(node, name)

The pids of the processes that wait at the point now.

=cut

sub point_waiting
{
	my ($node, $name) = @_;
	return grep { kill 0, $_ } map { /\.waiting\.(\d+)$/ ? $1 : () } glob(directory($node) . "/$name.waiting.*");
}

=pod

=head2 point_wait(node, name, number)

Waits until this number of processes (default 1) wait at the point; returns their pids.

=cut

sub point_wait
{
	my ($node, $name, $number) = @_;
	my $end = time + WAIT_SECONDS;
	while (time < $end)
	{
		my @pids = point_waiting($node, $name);
		return @pids if @pids >= ($number // 1);
		usleep(5_000);
	}
	die "nobody came to $name";
}

=pod

=head2 point_taken(node, name)

Whether a process has taken the command, which was given with C<once>.

=cut

sub point_taken
{
	my ($node, $name) = @_;
	return -e directory($node) . "/$name.once";
}

=pod

=head2 point_next(node, name)

Releases the process that waits at the point because of C<wait once>, and waits until a process stops there again. Returns its pid.

=cut

sub point_next
{
	my ($node, $name) = @_;
	my $path = directory($node) . "/$name";
	point_set($node, $name, 'wait once');
	unlink "$path.once" or die "nobody has taken the command for $name";
	my $end = time + WAIT_SECONDS;
	# A process takes the command by renaming it.
	while (-e $path)
	{
		die "nobody came to $name again" if time > $end;
		usleep(1_000);
	}
	my ($pid) = point_wait($node, $name);
	return $pid;
}

=pod

=head2 point_clear(node, names)

Removes the commands of these points, or of all, and releases the waiting processes. Returns
when no process waits any longer.

=cut

sub point_clear
{
	my ($node, @clear) = @_;
	for my $name (@clear ? @clear : point_names())
	{
		my $path = directory($node) . "/$name";
		unlink $path, "$path.once";
		my $end = time + WAIT_SECONDS;
		while (point_waiting($node, $name))
		{
			die "somebody still waits at $name" if time > $end;
			usleep(5_000);
		}
		# Files of processes that died while they waited.
		unlink glob("$path.waiting.*");
	}
	return;
}

1;
