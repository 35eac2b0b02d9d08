# A rival: one way to load. All rivals are timed by the same clock and load into the same table, which was truncated in an
# earlier transaction: its file is not new.
#
# A rival is a list of statements, one for each session, or a program. Before the clock starts, sessions have connected, opened
# the table and loaded their library. The time of a program includes its start. The clock stops
# at the last answer, after the commit. A load whose result is not checked has no time.
#
# Not every rival can load every workload. `lacks` returns the reason: a text if a reader of the report would ask for it,
# otherwise ''.
#
# The tricky point is `truncate`: then the table's file must be new in the loading transaction, which changes the
# WAL and the flushes. COPY does this by TRUNCATE in its own transaction, bulk_load by its option.
package Rival;
use strict;
use warnings;
use List::Util qw(any);
use Programs;
use Time::HiRes qw(time);

my %KINDS = (
    copy            => { label => 'COPY', statements => \&copy },
    copy_good       => { label => 'COPY of the good rows alone', statements => sub { $_[1]->copy($_[1]{good_path}) } },
    copy_freeze     => { label => 'TRUNCATE and COPY FREEZE', statements => \&copy_freeze },
    copy_then_index => { label => 'COPY, then CREATE INDEX', statements => \&copy_then_index },
    two_copies      => { label => 'two COPYs at once, of half the file each', statements => sub { copies(@_, 2) } },
    four_copies     => { label => 'four COPYs at once, of a quarter each', statements => sub { copies(@_, 4) } },
    bulk_load       => { label => 'bulk_load', bulk => {} },
    bulk_load_0     => { label => 'bulk_load, workers 0', bulk => { workers => 0 } },
    bulk_load_1     => { label => 'bulk_load, workers 1', bulk => { workers => 1 } },
    bulk_load_2     => { label => 'bulk_load, workers 2', bulk => { workers => 2 } },
    bulk_load_7     => { label => 'bulk_load, workers 7', bulk => { workers => 7 } },
    bulk_load_share => { label => 'bulk_load, lock share', bulk => { lock => '"share"' } },
    bulk_load_table => { label => 'bulk_load, on_error table', bulk => { on_error => '"table"' } },
    bulk_enqueue    => { label => 'bulk_enqueue, bulk_wait', jobs => 1, statements => \&enqueue },
    four_jobs       => { label => 'four jobs of a quarter each', jobs => 4, statements => \&enqueue },
    pg_bulkload_buffered => { label => 'pg_bulkload, BUFFERED', program => Programs::pg_bulkload('BUFFERED') },
    pg_bulkload_direct   => { label => 'pg_bulkload, DIRECT', program => Programs::pg_bulkload('DIRECT') },
    pg_bulkload          => { label => 'pg_bulkload, PARALLEL', program => Programs::pg_bulkload('PARALLEL') },
    timescaledb_parallel_copy =>
        { label => 'timescaledb-parallel-copy', program => \&Programs::timescaledb_parallel_copy },
    pgloader        => { label => 'pgloader', program => \&Programs::pgloader },
    file_fdw        => { label => 'INSERT … SELECT, file_fdw', server => 'files', statements => \&insert },
    bulk_fdw        => { label => 'INSERT … SELECT, bulk_fdw', server => 'bulk_files', statements => \&insert },
    bulk_fdw_serial => { label => 'INSERT … SELECT, bulk_fdw, no workers', server => 'bulk_files', statements => \&insert },
    bulk_fdw_direct =>
        { label => 'INSERT … SELECT, bulk_fdw, taken over', server => 'bulk_files', statements => \&insert },
    bulk_fdw_exclusive =>
        { label => 'INSERT … SELECT, bulk_fdw, taken over, exclusive', server => 'bulk_files', statements => \&insert },
    floor           => { label => 'floor (no server)', program => 1 },
);
# In the order of reports.
our @NAMES = qw(copy copy_good copy_freeze copy_then_index two_copies four_copies bulk_load bulk_load_share bulk_load_0
    bulk_load_1 bulk_load_2 bulk_load_7 bulk_load_table bulk_enqueue four_jobs pg_bulkload_buffered pg_bulkload_direct
    pg_bulkload timescaledb_parallel_copy pgloader file_fdw bulk_fdw bulk_fdw_serial bulk_fdw_direct
    bulk_fdw_exclusive floor);
# Rivals of one mode only.
my %SPECIAL = map { $_ => 1 } qw(four_copies four_jobs bulk_load_1 bulk_load_2 bulk_load_7 bulk_fdw_serial);
our @USUAL = grep { !$SPECIAL{$_} } @NAMES;

# new($bench, $name)
sub new {
    my ($class, $bench, $name) = @_;
    my $kind = $KINDS{$name} or die "$0: no rival $name: there are @NAMES\n";
    $kind->{statements} //= \&bulk_load if $kind->{bulk};
    return bless { %$kind, name => $name, bench => $bench }, $class;
}

sub known { my ($name) = @_; return exists $KINDS{$name} }

sub label { my ($name) = @_; return $KINDS{$name}{label} }

# Whether the rival requires pg_bulk.
sub needs_pg_bulk { my ($name) = @_; return $name =~ /^(?:bulk_|four_jobs)/ }

# The reason why it cannot load the workload; undef if it can.
sub lacks {
    my ($self, $workload) = @_;
    my ($name, $bench) = ($self->{name}, $self->{bench});
    my ($bad, $more) = ($workload->{bad}, defined $workload->{held});
    my $soft = $bench->{major} >= 17;
    if ($name eq 'floor') {
        # It supports one table, without indexes.
        return $workload->{title} eq 'test' ? undef : '';
    } elsif ($name eq 'copy') {
        return $bad && !$soft ? 'COPY leaves bad rows out from 17 on' : undef;
    } elsif ($name eq 'copy_good' || $name eq 'bulk_load_table') {
        return $bad ? undef : '';
    } elsif ($name eq 'copy_freeze') {
        return $bad || $more ? '' : undef;
    } elsif ($name eq 'copy_then_index') {
        return $workload->{index} && !$bad && !$more ? undef : '';
    } elsif ($name =~ /_copies$/) {
        return $bad ? '' : undef;
    } elsif ($name eq 'bulk_load_share') {
        return $workload->{index} ? undef : '';
    } elsif ($name eq 'file_fdw') {
        return $more ? '' : $bad && $bench->{major} < 18 ? 'file_fdw leaves bad rows out from 18 on' : undef;
    } elsif ($name =~ /^bulk_fdw_(?:direct|exclusive)$/) {
        return 'not there yet (there is no pg_bulk.direct_insert)' if !$bench->has_direct_insert;
        return $more ? '' : undef;
    } elsif ($name =~ /^bulk_(?:fdw|enqueue)$/) {
        return $more ? '' : undef;
    } elsif (ref $self->{program}) {
        return Programs::lacks($name, $bench, $workload);
    }
    return undef;
}

# The foreign table that it reads, if any.
sub foreign_table { my ($self, $workload) = @_; return $self->{server} ? "$workload->{name}_$self->{name}" : undef }

sub copy {
    my ($self, $workload, $truncate) = @_;
    my $copy = $workload->copy($workload->{path}, $workload->{bad} ? ', on_error ignore' : '');
    return $truncate ? "BEGIN; TRUNCATE $workload->{name}; $copy; COMMIT" : $copy;
}

sub copy_freeze {
    my ($self, $workload) = @_;
    return "BEGIN; TRUNCATE $workload->{name}; " . $workload->copy($workload->{path}, ', freeze') . '; COMMIT';
}

sub copy_then_index {
    my ($self, $workload) = @_;
    return $workload->copy($workload->{path}) . "; $workload->{indexes}";
}

sub copies { my ($self, $workload, undef, $count) = @_; return map { $workload->copy($_) } $workload->parts($count) }

sub bulk_load {
    my ($self, $workload, $truncate) = @_;
    return $workload->bulk_load(%{ $self->{bulk} }, $truncate ? (truncate => 'true') : ());
}

sub enqueue {
    my ($self, $workload) = @_;
    return $workload->bulk_enqueue($self->{jobs} > 1 ? $workload->parts($self->{jobs}) : $workload->{path});
}

sub insert {
    my ($self, $workload) = @_;
    return "INSERT INTO $workload->{name} SELECT * FROM " . $self->foreign_table($workload);
}

# Loads the workload and checks the table. Returns the figures, by name.
#   truncate => 1        the table's file is new in the loading transaction
#   before_each => sub   called with each loading session
#   beforehand => sub    called when all is ready
#   meanwhile => sub     called with the sessions after they have started their statements; afterwards they are waited for
#   afterwards => sub    called when they are done, before the checks
sub load {
    my ($self, $workload, %how) = @_;
    my ($bench, $name) = ($self->{bench}, $workload->{name});
    my $server = $bench->{server};
    my $program = $self->{program};
    if ($self->{name} eq 'floor') {
        $server->query('CHECKPOINT');
        return { $self->floor($workload) };
    }
    if ($self->{name} eq 'copy_then_index') {
        $workload->make_table(1);
        $server->query('CHECKPOINT');
    } else {
        $workload->reset;
    }
    my @sessions = $program ? () : $self->sessions($workload, %how);
    my $insert_lsn = 'SELECT pg_current_wal_insert_lsn() - \'0/0\'';
    $how{beforehand}->() if $how{beforehand};
    my $wal = $server->query($insert_lsn);
    my $cpu = $server->cpu_seconds + children_cpu();
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
    $figures{cpu} = $server->cpu_seconds + children_cpu() - $cpu;
    $how{afterwards}->() if $how{afterwards};
    $figures{wal_bytes} = $server->query($insert_lsn) - $wal;
    @figures{qw(seconds begin end)} = ($end - $begin, $begin, $end);
    @figures{qw(workers indexes)} = $self->judge($workload, @answers) if $self->{bulk};
    $workload->agree("the end of the jobs of $self->{name}", "@answers", join '|', ('succeeded') x $self->{jobs})
        if $self->{jobs};
    $figures{heap_bytes} = $workload->heap_bytes;
    $figures{index_bytes} = $workload->index_bytes;
    undef @sessions;
    $workload->check($self->{name});
    return \%figures;
}

# Processor time of child processes that have ended.
sub children_cpu { my (undef, undef, $user, $system) = times; return $user + $system }

# One session for each statement, ready to run it.
sub sessions {
    my ($self, $workload, %how) = @_;
    my @sessions;
    my $bench = $self->{bench};
    for my $statement ($self->statements($workload, $how{truncate})) {
        my $session = $bench->{server}->session;
        $session->ask("LOAD 'pg_bulk'") if needs_pg_bulk($self->{name});
        $session->ask("SELECT count(*) FROM (SELECT FROM $_ LIMIT 1) row")
            for grep { defined } $workload->{name}, $self->foreign_table($workload);
        $self->choose_insert($session, $statement) if $self->{name} =~ /^bulk_fdw/ && $bench->has_direct_insert;
        $how{before_each}->($session) if $how{before_each};
        push @sessions, { session => $session, statement => $statement };
    }
    return @sessions;
}

# Enables or disables acceleration of INSERT; the plan must show it.
sub choose_insert {
    my ($self, $session, $statement) = @_;
    my $how = { bulk_fdw_direct => 'on', bulk_fdw_exclusive => 'exclusive' }->{ $self->{name} } // 'off';
    $session->ask("SET pg_bulk.direct_insert = $how");
    my $plan = $session->ask("EXPLAIN (COSTS OFF) $statement");
    ($plan =~ /Custom Scan/) == ($how ne 'off') or die "$0: not the plan that $self->{name} asked for:\n$plan\n";
}

sub statements {
    my ($self, @arguments) = @_;
    my $statements = $self->{statements};
    return $self->$statements(@arguments);
}

# Checks the result of bulk_load: a load by another strategy than requested has no time. Returns the number of
# its workers, and the index strategies.
sub judge {
    my ($self, $workload, $answer) = @_;
    my ($rows, $rejected, $writer, $workers, $indexes, $notes) = split /\|/, $answer, 6;
    my %methods = map { $_ => 1 } $indexes =~ /"method": "(\w+)"/g;
    $indexes = join ', ', sort keys %methods;
    $notes = join ' ', map { s/^"(.*)"$/$1/r =~ s/\\(.)/$1/gr } $notes =~ /("(?:[^"\\]|\\.)*"|[^",{}]+)/g;
    my $asked = $self->{bulk}{workers};
    # A short file gets fewer workers.
    undef $asked if defined $asked && $asked * 2e6 > $workload->{bytes};
    $workload->agree("the number of rows that $self->{name} tells", $rows, $workload->{good_rows});
    $workload->agree("the number of bad rows that $self->{name} tells", $rejected,
        $workload->{rows} - $workload->{good_rows});
    # A thousand rows correctly use another writer.
    $workload->agree("the writer of $self->{name} ($notes)", $writer, 'direct') if $workload->{rows} > 10_000;
    $workload->agree("the number of workers of $self->{name} ($notes)", $workers, $asked) if defined $asked;
    $self->{bench}->remark("$workload->{title}, $self->{label}: $notes") if length $notes;
    return ($workers, $indexes);
}

# The floor must have read every row, and have as many pages as COPY except one for each thread.
sub floor {
    my ($self, $workload) = @_;
    my $bench = $self->{bench};
    my $cpu = children_cpu();
    open my $answer, '-|', $bench->target('release/floor'), '--threads', $bench->{threads}, $workload->{path},
        $bench->{server}{base} or die "$0: floor: $!\n";
    my $line = <$answer> // '';
    close $answer or die "$0: floor failed\n";
    my %figures = $line =~ /(\w+)=([0-9.]+)/g;
    $figures{cpu} = children_cpu() - $cpu;
    $workload->agree('the number of rows of floor', $figures{rows}, $workload->{rows});
    # From PostgreSQL 16 on COPY extends a file ahead of its rows (MAX_BUFFERS_TO_EXTEND_BY).
    my $ahead = $bench->{major} >= 16 ? 64 : 0;
    my $less = ($workload->{heap} - $figures{heap_bytes}) / 8192;
    $less >= -$bench->{threads} && $less <= $bench->{threads} + $ahead
        or die "$0: floor made $figures{heap_bytes} bytes of pages, COPY $workload->{heap}\n";
    return (threads => $bench->{threads}, map { $_ => $figures{$_} } qw(seconds cpu wal_bytes heap_bytes));
}

1;
