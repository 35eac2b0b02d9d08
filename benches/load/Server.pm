# The private server that is measured: it lives only during the run, in a directory of its own, and has no TCP port.
#
# If root calls, an unprivileged user runs the server. It must be able to reach all files that it reads and writes, hence
# base_directory(). Results contain no path: paths are passed on the command line, and are not among the published
# settings.
#
# The tricky point is the state that a killed run leaves: postmaster.pid alone may name an unrelated process,
# so a server is recognized by its command line.
package Server;
use strict;
use warnings;
use Fcntl qw(:flock);
use File::Path qw(make_path remove_tree);
use File::Temp qw(tempdir);
use List::Util qw(any);
use POSIX ();
use Session;

# new(bindir =>, user =>, bases => [directories to try])
sub new {
    my ($class, %self) = @_;
    my $self = bless {%self}, $class;
    $self->{base} = $self->base_directory;
    $self->{data} = "$self->{base}/cluster/data";
    return $self;
}

sub base_directory {
    my ($self) = @_;
    my $user = $self->{user};
    !defined $user || getpwnam $user or die "$0: no user $user to run the server as: set BENCH_USER\n";
    for my $directory (@{ $self->{bases} }) {
        make_path($directory, { error => \my $failed });
        next if @$failed || -l $directory || (stat $directory)[4] != $>;
        return $directory if !defined $user || system('runuser', '-u', $user, '--', 'test', '-x', $directory) == 0;
    }
    die "$0: no directory that " . ($user // 'this user') . " can reach\n";
}

# Runs in a directory of the server's user, since that user may be unable to enter the caller's.
sub as_server {
    my ($self, $shell_command, @arguments) = @_;
    my @command = (defined $self->{user} ? ('runuser', '-u', $self->{user}, '--') : ());
    push @command, 'sh', '-c', "cd / && $shell_command", @arguments;
    system(@command) == 0 or die "$0: failed: @command\n";
}

# Creates and starts a cluster with these lines of configuration.
sub start {
    my ($self, @settings) = @_;
    my ($base, $data, $user) = @$self{qw(base data user)};
    open $self->{lock}, '>>', "$base/lock" or die "$0: $base/lock: $!\n";
    flock $self->{lock}, LOCK_EX | LOCK_NB or die "$0: another run is under way\n";
    $self->stop;
    # Closed to all other users, since each user who reaches the socket may connect.
    mkdir "$base/cluster", 0700 or die "$0: $base/cluster: $!\n";
    # The path of a socket is limited to some 100 bytes.
    $self->{socket} = length "$base/cluster" < 90 ? "$base/cluster" : tempdir('pg_bulk-bench-XXXXXX', TMPDIR => 1);
    if (defined $user) {
        my ($uid, $gid) = (getpwnam $user)[2, 3];
        chown($uid, $gid, "$base/cluster", $self->{socket}) == 2 or die "$0: chown: $!\n";
    }
    # From PostgreSQL 18 on initdb enables checksums by default.
    my ($bare) = qx("$self->{bindir}/initdb" --help) =~ /(--no-data-checksums)/;
    $self->as_server('"$0" -D "$1" -U bench -A trust -E UTF8 --locale=C.UTF-8 --no-sync ' . ($bare // '') . ' >"$1.log"',
        "$self->{bindir}/initdb", $data);
    $self->configure('postgresql.conf', @settings, "include_if_exists = 'variant.conf'");
    $self->command('start');
    {
        local $self->{database} = 'postgres';
        $self->query('CREATE DATABASE bench');
    }
    # For external programs.
    @ENV{qw(PGHOST PGDATABASE)} = ($self->{socket}, 'bench');
}

# The database that is used.
sub database { my ($self) = @_; return $self->{database} // 'bench' }

sub configure {
    my ($self, $file, @settings) = @_;
    $self->as_server('f=$0; printf "%s\n" "$@" >>"$f"', "$self->{data}/$file", @settings);
}

sub command {
    my ($self, $command) = @_;
    $self->as_server('"$0" "$3" -D "$1" -l "$1.log" -o "-k \"$2\" -p 5432" -w -s -m fast',
        "$self->{bindir}/pg_ctl", @$self{qw(data socket)}, $command);
}

# Restarts the server with these settings in addition to the usual ones, and without those of an earlier call; $checksums is the
# action of pg_checksums meanwhile, if any.
sub vary {
    my ($self, $settings, $checksums) = @_;
    unlink "$self->{data}/variant.conf";
    $self->configure('variant.conf', @$settings) if @$settings;
    $self->command('stop');
    $self->as_server('"$0" "$2" --no-sync -D "$1" >/dev/null', "$self->{bindir}/pg_checksums", $self->{data}, $checksums)
        if defined $checksums;
    $self->command('start');
}

# Removes the cluster.
sub stop {
    my ($self) = @_;
    my $data = $self->{data};
    if (defined $self->postmaster) {
        $self->as_server('"$0" stop -D "$1" -m immediate -w -s', "$self->{bindir}/pg_ctl", $data);
    }
    remove_tree("$self->{base}/cluster");
    remove_tree($self->{socket}) if defined $self->{socket};
}

# The pid of the postmaster, if it runs.
sub postmaster {
    my ($self) = @_;
    open my $pid_file, '<', "$self->{data}/postmaster.pid" or return undef;
    my ($pid) = (<$pid_file> // '') =~ /^([0-9]+)$/ or return undef;
    open my $proc, '<', "/proc/$pid/cmdline" or return undef;
    return (any { $_ eq $self->{data} } split /\0/, <$proc> // '') ? $pid : undef;
}

# All processes of the server except the postmaster.
sub processes {
    my ($self) = @_;
    my $postmaster = $self->postmaster;
    return grep { my $stat = stat_of($_); $stat && $stat->[1] == $postmaster } map { m{([0-9]+)$} } glob '/proc/[0-9]*';
}

# The fields of /proc/PID/stat behind the program's name, which may contain any byte: state, parent, …
sub stat_of {
    my ($pid) = @_;
    open my $file, '<', "/proc/$pid/stat" or return undef;
    my ($rest) = (<$file> // '') =~ /.*\) (.*)/s or return undef;
    return [split ' ', $rest];
}

# Processor time of all present and past processes of the server, in steps of 10 ms.
sub cpu_seconds {
    my ($self) = @_;
    my $ticks = 0;
    # User and system time; for the postmaster also those of its children that have ended.
    for my $stat (map { stat_of($_) } $self->processes) { $ticks += $stat->[11] + $stat->[12] if $stat }
    my $own = stat_of($self->postmaster);
    $ticks += $own->[$_] for 11 .. 14;
    return $ticks / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}

# The log from byte $from on; without $from, its length.
sub log {
    my ($self, $from) = @_;
    my $log = "$self->{data}.log";
    return -s $log if !defined $from;
    open my $file, '<', $log or die "$0: $log: $!\n";
    seek $file, $from, 0;
    return <$file>;
}

# Runs the commands one after the other in one session and returns the lines of their answers.
sub query {
    my ($self, @commands) = @_;
    my @psql = ($self->psql, '-h', $self->{socket}, '-d', $self->database, qw(-X -q -A -t -v ON_ERROR_STOP=1), map { ('-c', $_) } @commands);
    open my $answer, '-|', @psql or die "$0: psql: $!\n";
    chomp(my @lines = <$answer>);
    close $answer or die "$0: failed: $commands[-1]\n";
    return wantarray ? @lines : join "\n", @lines;
}

sub psql { my ($self) = @_; return "$self->{bindir}/psql" }

sub session { my ($self) = @_; return Session->new($self->psql, '-h', $self->{socket}, '-d', $self->database) }

1;
