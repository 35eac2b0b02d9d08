# Who loads, and how. All rivals are timed by the same clock and load into the same table, which was emptied in a
# transaction of its own before: its file is not new.
#
# A rival is a list of statements, one for each session that it takes, or a program. Sessions are connected, have opened
# the table and have loaded their library before the clock starts; a program's start is in its time. The clock stops
# when the last answer is there, which is behind the commit. Without a check, there is no time.
#
# The tricky point is `truncate`: there the table's file is to be new in the loading transaction, which changes what
# must be logged and flushed. COPY gets there by TRUNCATE in its own transaction, bulk_load by its option.
package Rival;
use strict;
use warnings;
use List::Util qw(any);
use Time::HiRes qw(time);

my %KINDS = (
    copy        => { label => 'COPY', statements => \&copy },
    two_copies  => { label => 'two COPYs at once, of half the file each', statements => \&two_copies },
    bulk_load   => { label => 'bulk_load', bulk => {} },
    bulk_load_0 => { label => 'bulk_load, workers 0', bulk => { workers => 0 } },
    bulk_load_7 => { label => 'bulk_load, workers 7', bulk => { workers => 7 } },
    pg_bulkload => { label => 'pg_bulkload, PARALLEL', program => \&pg_bulkload },
    file_fdw    => { label => 'INSERT … SELECT, file_fdw', server => 'files', statements => \&insert },
    bulk_fdw    => { label => 'INSERT … SELECT, bulk_fdw', server => 'bulk_files', statements => \&insert },
    floor       => { label => 'floor (no server)', program => 1 },
);
# In the order of reports.
our @NAMES = qw(copy two_copies bulk_load bulk_load_0 bulk_load_7 pg_bulkload file_fdw bulk_fdw floor);

# new($bench, $name)
sub new {
    my ($class, $bench, $name) = @_;
    my $kind = $KINDS{$name} or die "$0: no rival $name: there are @NAMES\n";
    $kind->{statements} //= \&bulk_load if $kind->{bulk};
    return bless { %$kind, name => $name, bench => $bench }, $class;
}

sub label { my ($name) = @_; return $KINDS{$name}{label} }

# Whether pg_bulk must be installed for it.
sub needs_pg_bulk { my ($name) = @_; return $name =~ /^bulk_/ }

# Whether it can load the workload at all.
sub can_load {
    my ($self, $workload) = @_;
    # The floor knows one table and no index; pg_bulkload's only text format is CSV.
    return $workload->{title} eq 'test' if $self->{name} eq 'floor';
    return $workload->{options} =~ /\bformat 'csv'/ if $self->{name} eq 'pg_bulkload';
    return 1;
}

# The foreign table that it reads, if it reads one.
sub foreign_table { my ($self, $workload) = @_; return $self->{server} ? "$workload->{name}_$self->{name}" : undef }

sub copy {
    my ($self, $workload, $truncate) = @_;
    my $copy = $workload->copy($workload->{path});
    return $truncate ? "BEGIN; TRUNCATE $workload->{name}; $copy; COMMIT" : $copy;
}

sub two_copies { my ($self, $workload) = @_; return map { $workload->copy($_) } $workload->halves }

sub bulk_load {
    my ($self, $workload, $truncate) = @_;
    return $workload->bulk_load(%{ $self->{bulk} }, $truncate ? (truncate => 'true') : ());
}

sub insert {
    my ($self, $workload) = @_;
    return "INSERT INTO $workload->{name} SELECT * FROM " . $self->foreign_table($workload);
}

# Loads the workload and checks the table. Returns the figures, by name.
#   truncate => 1        the table's file is new in the loading transaction
#   before_each => sub   called with each session that is going to load
#   beforehand => sub    called when everything is ready
#   meanwhile => sub     called with the sessions when they have been set to work; they are waited for behind it
#   afterwards => sub    called when they are done, before anything is checked
sub load {
    my ($self, $workload, %how) = @_;
    my ($bench, $name) = ($self->{bench}, $workload->{name});
    my $server = $bench->{server};
    my $program = $self->{program};
    if ($self->{name} eq 'floor') {
        $server->query('CHECKPOINT');
        return { $self->floor($workload) };
    }
    $server->query("TRUNCATE $name", 'CHECKPOINT');
    my @sessions = $program ? () : $self->sessions($workload, %how);
    my $insert_lsn = 'SELECT pg_current_wal_insert_lsn() - \'0/0\'';
    $how{beforehand}->() if $how{beforehand};
    my $wal = $server->query($insert_lsn);
    my (@answers, %figures);
    my $begin = time;
    if ($program) {
        $self->$program($workload);
    } else {
        $_->{session}->send($_->{statement}) for @sessions;
        $how{meanwhile}->(map { $_->{session} } @sessions) if $how{meanwhile};
        @answers = map { $_->{session}->wait } @sessions;
    }
    my $end = time;
    $how{afterwards}->() if $how{afterwards};
    $figures{wal_bytes} = $server->query($insert_lsn) - $wal;
    @figures{qw(seconds begin end)} = ($end - $begin, $begin, $end);
    $figures{workers} = $self->judge($workload, @answers) if $self->{bulk};
    $figures{heap_bytes} = $workload->heap_bytes;
    undef @sessions;
    $workload->check($self->{name});
    return \%figures;
}

# One session for each statement, ready to run it.
sub sessions {
    my ($self, $workload, %how) = @_;
    my @sessions;
    for my $statement ($self->statements($workload, $how{truncate})) {
        my $session = $self->{bench}{server}->session;
        $session->ask("LOAD 'pg_bulk'") if $self->{bulk};
        $session->ask("SELECT count(*) FROM (SELECT FROM $_ LIMIT 1) row")
            for grep { defined } $workload->{name}, $self->foreign_table($workload);
        $how{before_each}->($session) if $how{before_each};
        push @sessions, { session => $session, statement => $statement };
    }
    return @sessions;
}

sub statements {
    my ($self, @arguments) = @_;
    my $statements = $self->{statements};
    return $self->$statements(@arguments);
}

# What bulk_load says of itself. A load that was another one than was asked for has no time, either. Returns how many
# workers it had.
sub judge {
    my ($self, $workload, $answer) = @_;
    my ($rows, $writer, $workers, $notes) = split /\|/, $answer, 4;
    my $asked = $self->{bulk}{workers};
    # A short file is not worth many workers.
    undef $asked if defined $asked && $asked * 2e6 > $workload->{bytes};
    $workload->agree("the number of rows that $self->{name} tells", $rows, $workload->{rows});
    $workload->agree("the writer of $self->{name} ($notes)", $writer, 'direct');
    $workload->agree("the number of workers of $self->{name} ($notes)", $workers, $asked) if defined $asked;
    $self->{bench}->remark("$workload->{title}, $self->{label}: $notes") if length $notes;
    return $workers;
}

# As a user calls it. The options of COPY that workloads use have a counterpart, or are its defaults.
sub pg_bulkload {
    my ($self, $workload) = @_;
    my ($null) = $workload->{options} =~ /\bnull '([^']*)'/;
    my @options = ('TYPE=CSV', 'WRITER=PARALLEL', defined $null ? "NULL=$null" : ());
    $self->{bench}->command('sh', '-c', '"$0" "$@" >/dev/null', $self->{bench}{pg_bulkload}, '-i', $workload->{path},
        '-O', $workload->{name}, map { ('-o', $_) } @options);
    return;
}

# The floor must have read every row, and its pages must be as many as COPY's but for one page in use per thread.
sub floor {
    my ($self, $workload) = @_;
    my $bench = $self->{bench};
    open my $answer, '-|', $bench->target('release/floor'), '--threads', $bench->{threads}, $workload->{path},
        $bench->{server}{base} or die "$0: floor: $!\n";
    my $line = <$answer> // '';
    close $answer or die "$0: floor failed\n";
    my %figures = $line =~ /(\w+)=([0-9.]+)/g;
    $workload->agree('the number of rows of floor', $figures{rows}, $workload->{rows});
    abs($figures{heap_bytes} - $workload->{heap}) <= $bench->{threads} * 8192
        or die "$0: floor made $figures{heap_bytes} bytes of pages, COPY $workload->{heap}\n";
    return (threads => $bench->{threads}, map { $_ => $figures{$_} } qw(seconds wal_bytes heap_bytes));
}

1;
