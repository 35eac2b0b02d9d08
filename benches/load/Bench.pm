# A run: its parameters, and all measured figures.
#
# A figure is one number: {mode, workload, rows, bytes, case, rival, round, figure, value}. The case distinguishes the measurements of
# one mode and one rival: the scan, or the server's settings. Modes record figures, and Report.pm writes tables of them;
# they do not know each other.
package Bench;
use strict;
use warnings;
use POSIX qw(strftime);
use Programs;
use Rival;
use Server;

my @SETTINGS = (
    'shared_buffers = 1GB', 'max_wal_size = 8GB', 'checkpoint_timeout = 30min', 'wal_level = replica', 'fsync = on',
    'autovacuum = off', 'max_worker_processes = 16', 'listen_addresses = \'\'',
);

# new(root =>, here =>, server =>, rounds =>, ...)
sub new {
    my ($class, %self) = @_;
    return bless { %self, figures => [], remarks => {}, absent => {}, failed => {} }, $class;
}

# For a program that runs a server of its own: with the installation of this pg_config, and a server that is not started
# yet. If root calls, $self{user} runs the server.
sub with_server {
    my ($class, $pg_config, %self) = @_;
    chomp(my $bindir   = qx("$pg_config" --bindir   2>/dev/null));
    chomp(my $sharedir = qx("$pg_config" --sharedir 2>/dev/null));
    -x "$bindir/postgres" or die "$0: no server is installed for $pg_config\n";
    my ($major) = qx("$pg_config" --version) =~ /^PostgreSQL ([0-9]+)/;
    my $user = delete $self{user};
    my $self = $class->new(%self, bindir => $bindir, sharedir => $sharedir, major => $major);
    if ($self->{with_bulk} && !-e "$sharedir/extension/pg_bulk.control") {
        die "$0: pg_bulk is not installed in this server: run `make install`, or leave it out with"
            . " RIVALS=\"copy two_copies file_fdw\"\n";
    }
    $self->{server} = Server->new(
        bindir => $bindir,
        user   => $> == 0 ? $user : undef,
        bases  => [ map { $_ . ($self->{beside} // '') } $self->target('bench'), "/var/tmp/pg_bulk-bench-$>" ],
    );
    return $self;
}

# Builds the programs of the benches, and starts the server with these settings in addition to the usual ones.
sub prepare {
    my ($self, @settings) = @_;
    delete @ENV{ grep {/^PG/} keys %ENV };
    delete @ENV{qw(RUST_BACKTRACE RUST_LIB_BACKTRACE)};
    @ENV{qw(PGUSER PGPORT PGDATABASE PGOPTIONS)} = ('bench', 5432, 'postgres', '-c client_min_messages=warning');
    $self->command(qw(cargo build --quiet --release -p pg_bulk-bench --bins));
    $self->start(@settings);
}

sub start {
    my ($self, @settings) = @_;
    $self->{server}->start(@SETTINGS, @settings);
    $self->create_extensions;
}

# A path below cargo's target directory.
sub target {
    my ($self, $path) = @_;
    my $target = $ENV{CARGO_TARGET_DIR} || 'target';
    return ($target =~ m{^/} ? $target : "$self->{root}/$target") . "/$path";
}

sub command { my ($self, @command) = @_; system(@command) == 0 or die "$0: failed: @command\n" }

sub note { my ($self, @words) = @_; print STDERR strftime('%H:%M:%S', localtime), " @words\n" }

# Free space on the disk of the server's data and the files.
sub free_bytes {
    my ($self) = @_;
    my $base = $self->{server}{base};
    my (undef, $line) = qx(df -Pk "$base");
    return (split ' ', $line)[3] * 1024;
}

# A remark for the report, printed once.
sub remark { my ($self, $remark) = @_; $self->{remarks}{$remark} = 1 }

# record($workload, mode =>, case =>, rival =>, round =>, figures => {name => value})
sub record {
    my ($self, $workload, %what) = @_;
    my $figures = delete $what{figures};
    for my $figure (sort keys %$figures) {
        push @{ $self->{figures} }, {
            workload => $workload->{title}, rows => $workload->{rows}, bytes => $workload->{bytes}, case => '',
            %what, figure => $figure, value => $figures->{$figure},
        };
    }
}

# The requested rivals among these that can load the workload. The report gets the reasons against the others.
sub rivals {
    my ($self, $workload, @names) = @_;
    my %wanted = map { $_ => 1 } @{ $self->{rivals} };
    my @able;
    for my $rival (map { Rival->new($self, $_) } grep { $wanted{$_} } @names) {
        my $lack = $rival->lacks($workload);
        push @able, $rival if !defined $lack;
        $self->{absent}{ $workload->{title} }{ $rival->{name} } = $lack if length($lack // '');
    }
    return @able;
}

# Returns the result of $what. An external program that fails is left out from then on.
sub try {
    my ($self, $workload, $rival, $what) = @_;
    return $what->() if !ref $rival->{program};
    return if defined $self->{failed}{ $rival->{name} };
    my $result = eval { $what->() };
    return $result if defined $result;
    die $@ if !defined $self->{failed}{ $rival->{name} };
    print STDERR $@;
    $self->{absent}{ $workload->{title} }{ $rival->{name} } = $self->{failed}{ $rival->{name} };
    return;
}

# Whether this pg_bulk can accelerate INSERT … SELECT.
sub has_direct_insert {
    my ($self) = @_;
    return $self->{has_direct_insert} //= $self->{with_bulk} && do {
        my $session = $self->{server}->session;
        $session->ask("LOAD 'pg_bulk'");
        $session->ask("SELECT count(*) FROM pg_settings WHERE name = 'pg_bulk.direct_insert'");
    };
}

# The extensions that a database needs for measurements.
sub create_extensions {
    my ($self) = @_;
    $self->{server}->query('CREATE EXTENSION amcheck', 'CREATE EXTENSION pg_prewarm', 'CREATE EXTENSION file_fdw',
        'CREATE SERVER files FOREIGN DATA WRAPPER file_fdw', $self->{with_bulk} ? 'CREATE EXTENSION pg_bulk' : (),
        length Programs::find($self, 'pg_bulkload') ? 'CREATE EXTENSION pg_bulkload' : ());
}

# Calls $what with each element of the list, once in each round. The order rotates from round to round, so that a slow
# minute of the machine affects all of them alike.
sub rounds {
    my ($self, $title, $what, @list) = @_;
    for my $round (1 .. $self->{rounds}) {
        $self->note("$title: round $round of $self->{rounds}");
        $what->($round, $list[($_ + $round - 1) % @list]) for 0 .. $#list;
    }
}

1;
