
=pod

=head1 NAME

PowerLoss - a server whose machine loses power: written pages that were not yet durable are lost, or some of them

=head1 SYNOPSIS

  my $power = PowerLoss->new($node);
  $power->start;
  $power->fail(1);  # the server is stopped, and nothing is left that was not durable
  $power->fail(1, 0);  # ... of the log, while the system has got around to all other files
  $power->start;

=head1 DESCRIPTION

A library that is preloaded into the server traces its writes and its fsyncs
(power/unsynced.c). When the power fails, all processes are killed. Pages that were
written into files of relations and of the WAL since the last fsync of the file are
kept or zeroed, page by page: all of them, none, or at random.

Zeros can replace any earlier content. With checksums on, the server logs a full
image of a page before its first change since a checkpoint, even for a hint bit, so
recovery does not read the page. A part of a file that is zeros was never
written. The last WAL page is written repeatedly as it fills, so only WAL
behind the furthest durable position is lost. Other files are not changed: their
content before a write is not known.

=cut

package PowerLoss;

use strict;
use warnings FATAL => 'all';

use Fcntl qw(SEEK_SET);
use Time::HiRes qw(usleep);
use PostgreSQL::Test::Utils;

use constant PAGE => 8192;
use constant SEGMENT => 16 * 1024 * 1024;

sub new
{
	my ($class, $node) = @_;
	my $directory = PostgreSQL::Test::Utils::tempdir('power');
	chmod 0755, $directory;
	my $library = "$directory/unsynced.so";
	system('cc', '-shared', '-fPIC', '-O2', '-o', $library, "$ENV{PG_ABS_SRCDIR}/power/unsynced.c", '-ldl') == 0 or die 'cc';
	return bless { node => $node, library => $library, trace => "$directory/trace" }, $class;
}

sub start
{
	my ($self) = @_;
	local $ENV{LD_PRELOAD} = $self->{library};
	local $ENV{UNSYNCED_TRACE} = $self->{trace};
	$self->{node}->start;
	return;
}

sub slurp_words { my ($path) = @_; open my $file, '<', $path or return; return split ' ', join '', <$file>; }

sub state { return (slurp_words("/proc/$_[0]/stat"))[2]; }

# Stops all processes without notice, so that none can do anything more.
sub kill_all
{
	my ($self) = @_;
	my $node = $self->{node};
	my $postmaster = $node->{_pid};
	# A stopped postmaster starts no new processes.
	kill 'STOP', $postmaster;
	usleep(10_000) until (state($postmaster) // 'T') eq 'T';
	my @children = slurp_words("/proc/$postmaster/task/$postmaster/children");
	kill 'KILL', @children;
	for my $pid (@children)
	{
		usleep(10_000) until (state($pid) // 'Z') =~ /^[XZ]$/;
	}
	$node->kill9;
	# While a process has its pid, the next postmaster would assume that it is alive.
	usleep(10_000) while -e "/proc/$postmaster";
	return;
}

# Pages that are not durable, by file; and the furthest end of each file's writes since it was begun.
sub unsynced
{
	my ($self) = @_;
	my (%pages, %durable, %written);
	open my $trace, '<', $self->{trace} or die "$self->{trace}: $!";
	my $line = 0;
	my %begun;
	while (<$trace>)
	{
		my ($what, $file, $at, $length) = split;
		$line++;
		if ($what eq 'W')
		{
			# A full WAL segment is recycled, and begins anew.
			$durable{$file} = $written{$file} = 0 if $at == 0 && ($written{$file} // 0) >= SEGMENT;
			$written{$file} = $at + $length if $at + $length > ($written{$file} // 0);
			$pages{$file}{$_} = $line for int($at / PAGE) .. int(($at + $length - 1) / PAGE);
		}
		elsif ($what eq 'B') { $begun{$file} = [ $line, $written{$file} // 0 ]; }
		elsif ($what eq 'T')
		{
			delete $pages{$file}{$_} for grep { $_ * PAGE >= $at } keys %{ $pages{$file} };
		}
		elsif ($what eq 'E')
		{
			# Two overlapping writes: the end of the later one counts for
			# the earlier one. Bytes in between are not lost in this test.
			my ($line, $end) = @{ $begun{$file} };
			delete $pages{$file}{$_} for grep { $pages{$file}{$_} < $line } keys %{ $pages{$file} };
			$durable{$file} = $end;
		}
	}
	return (\%pages, \%durable);
}

# The power fails. Returns the number of lost pages, and of pages that could be lost. A share of these is lost, given or random.
# Pages of relations may have another share: the kernel writes files in any order.
sub fail
{
	my ($self, $share, $of_relations) = @_;
	$self->kill_all;
	my $data = $self->{node}->data_dir;
	my ($pages, $durable) = $self->unsynced;
	$share //= (0, 0.5, 1)[ int rand 3 ];
	$of_relations //= $share;
	my ($lost, $unsafe) = (0, 0);
	open my $files, '-|', 'find', "$data/base", "$data/pg_wal", '-type', 'f', '-exec', 'stat', '-c', '%i %W %w %n', '{}', '+' or die "find: $!";
	while (<$files>)
	{
		# If the file system has no birth times, stat prints a dash, and statx zeros.
		my ($inode, $seconds, $fraction, $path) = /^(\d+) (\d+) (?:-|\S+ [\d:]+\.(\d{9}) \S+) (.*)$/ or die "stat: $_";
		$fraction //= 0;
		next if $path !~ m{/(\d+(_fsm|_vm)?(\.\d+)?|[0-9A-F]{24})$};
		my $key = "$inode.$seconds." . int $fraction;
		my $dirty = $pages->{$key} // next;
		my $kept = $path =~ m{/pg_wal/} ? $durable->{$key} // 0 : 0;
		open my $file, '+<:raw', $path or die "$path: $!";
		my $size = -s $file;
		for my $page (keys %$dirty)
		{
			my ($from, $to) = ($page * PAGE, ($page + 1) * PAGE);
			$from = $kept if $from < $kept;
			$to = $size if $to > $size;
			next if $from >= $to;
			$unsafe++;
			next if rand() >= ($path =~ m{/pg_wal/} ? $share : $of_relations);
			sysseek $file, $from, SEEK_SET or die "$path: $!";
			syswrite($file, "\0" x ($to - $from)) or die "$path: $!";
			$lost++;
		}
		close $file or die "$path: $!";
	}
	close $files or die 'find';
	# From now on all existing data are durable.
	unlink $self->{trace};
	return ($lost, $unsafe);
}

1;
