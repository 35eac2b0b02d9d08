
=pod

=head1 NAME

PowerLoss - a server whose machine loses power: what it had written and not yet made durable is gone, or part of it

=head1 SYNOPSIS

  my $power = PowerLoss->new($node);
  $power->start;
  $power->fail(1);  # the server is stopped, and nothing is left that was not durable
  $power->fail(1, 0);  # ... of the log, while the system has got around to all other files
  $power->start;

=head1 DESCRIPTION

A library that is preloaded into the server traces its writes and its fsyncs
(power/unsynced.c). When the power fails, all processes are killed, and what was
written into files of relations and of the log since the last fsync of the file is
kept or made zeros, page by page: all of it, none, or as a coin says. Zeros stand
for whatever was there before: with checksums on, the server writes the whole page to
the log before it changes it for the first time since a checkpoint, be it but a hint,
so that recovery does not read it; and a part of a file that is zeros was never
written. The log's last page is written again and again as it fills, so that of the log
only what is behind all that was ever durable is lost. Other files are left alone: what
stands in them before a write is not known.

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

# Nobody does anything any more, and nobody has been told.
sub kill_all
{
	my ($self) = @_;
	my $node = $self->{node};
	my $postmaster = $node->{_pid};
	# Nobody is started anew, then.
	kill 'STOP', $postmaster;
	usleep(10_000) until (state($postmaster) // 'T') eq 'T';
	my @children = slurp_words("/proc/$postmaster/task/$postmaster/children");
	kill 'KILL', @children;
	for my $pid (@children)
	{
		usleep(10_000) until (state($pid) // 'Z') =~ /^[XZ]$/;
	}
	$node->kill9;
	# While anybody has its number, the next one takes it for alive.
	usleep(10_000) while -e "/proc/$postmaster";
	return;
}

# What is not durable, by file: pages; and how far each has ever been, since it was begun.
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
			# A segment of the log that was full is used again, and begins anew.
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
			# With two at once, the later one's end is taken for the earlier one's: what is between is not lost in this test.
			my ($line, $end) = @{ $begun{$file} };
			delete $pages{$file}{$_} for grep { $pages{$file}{$_} < $line } keys %{ $pages{$file} };
			$durable{$file} = $end;
		}
	}
	return (\%pages, \%durable);
}

# The power fails. Returns how many pages were lost, of how many that could be: of those a share, or one that is drawn. Those of
# relations may have a share of their own: the system writes what it likes first.
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
		# Where the file system knows no times of birth, stat says so by a dash, and statx by zeros.
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
	# From now on all that is there is durable.
	unlink $self->{trace};
	return ($lost, $unsafe);
}

1;
