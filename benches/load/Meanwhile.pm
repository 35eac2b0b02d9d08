# The modes that measure something else during a load: `latency`, the wait of another session's INSERT;
# `checkpoint`, the duration of a checkpoint; `memory`, the memory of the load's processes.
package Meanwhile;
use strict;
use warnings;
use List::Util qw(max min);
use Rival;
use Time::HiRes qw(sleep time);

# A sequence that tells sessions to stop: its value is visible at once, without a transaction.
my $STOPPED = '(SELECT is_called FROM bench_stop)';

# Inserts rows until it is stopped, each in a transaction of its own, and keeps the begin and the duration of each.
# The rows are wide: each needs a page of its own, so that most of them extend the table. Commits do not wait for the disk,
# since this mode does not measure it.
sub inserts {
    my ($workload) = @_;
    return <<"END";
SET synchronous_commit = off;
DO \$\$
DECLARE
    wide text := (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 220) n);
    number int := 0;
    start timestamptz;
    began float8[];
    took float8[];
BEGIN
    WHILE NOT $STOPPED LOOP
        number := number + 1;
        start := clock_timestamp();
        INSERT INTO $workload->{name} ($workload->{sum}, $workload->{wide}) VALUES (-number, wide);
        took := took || extract(epoch FROM clock_timestamp() - start)::float8;
        began := began || extract(epoch FROM start)::float8;
        COMMIT;
        PERFORM pg_sleep(0.001);
    END LOOP;
    INSERT INTO bench_inserts SELECT * FROM unnest(began, took);
END \$\$
END
}

# Looks every millisecond for the holder of the table's extension lock, until it is stopped. Keeps the duration of each tenure,
# except the inserter's. If a process releases the lock and takes it again between two looks, this looks like one
# tenure. The end of the file tells them apart: it moves when a batch is written, the last step under the lock.
sub looks {
    my ($workload, $inserter) = @_;
    return <<"END";
DO \$\$
DECLARE
    holder int;
    seen int;
    since timestamptz;
    at_first bigint;
    before bigint;
    size bigint;
    took float8[];
BEGIN
    WHILE NOT $STOPPED LOOP
        SELECT pid INTO holder FROM pg_locks
        WHERE locktype = 'extend' AND relation = '$workload->{name}'::regclass AND granted AND pid <> $inserter;
        size := pg_relation_size('$workload->{name}');
        IF holder IS DISTINCT FROM seen OR (before > at_first AND size = before) THEN
            IF seen IS NOT NULL THEN
                took := took || extract(epoch FROM clock_timestamp() - since)::float8;
            END IF;
            seen := holder;
            since := clock_timestamp();
            at_first := size;
        END IF;
        before := size;
        PERFORM pg_sleep(0.001);
    END LOOP;
    INSERT INTO bench_holds SELECT unnest(took);
END \$\$
END
}

sub latency {
    my ($bench, $workload) = @_;
    if (!defined $workload->{wide}) {
        $bench->note("$workload->{title}: no column for wide rows, so no latency");
        return;
    }
    my $server = $bench->{server};
    # Keeps wide rows in their page, without TOAST.
    $server->query("ALTER TABLE $workload->{name} SET (toast_tuple_target = 8160)", 'CREATE SEQUENCE bench_stop',
        'CREATE TABLE bench_inserts (began float8, took float8)', 'CREATE TABLE bench_holds (took float8)');
    $bench->rounds(
        "$workload->{title}, latency",
        sub {
            my ($round, $rival) = @_;
            $server->query('SELECT setval(\'bench_stop\', 1, false)', 'TRUNCATE bench_inserts, bench_holds');
            my ($inserter, $looker) = map { $server->session } 1, 2;
            my $pid = $inserter->ask('SELECT pg_backend_pid()');
            my $figures = $rival->load(
                $workload,
                beforehand => sub {
                    $inserter->send(inserts($workload));
                    $looker->send(looks($workload, $pid));
                    # By then the table is in use, and not empty, when the load opens it.
                    sleep 0.3;
                },
                afterwards => sub {
                    $server->query('SELECT setval(\'bench_stop\', 1, true)');
                    $_->wait for $inserter, $looker;
                },
            );
            my $during = "began < $figures->{end} AND began + took > $figures->{begin}";
            my ($inserts, $wait) = split /\|/,
                $server->query("SELECT count(*), coalesce(max(took), 0) FROM bench_inserts WHERE $during");
            my ($lost) = $server->query('SELECT (SELECT count(*) FROM bench_inserts)'
                    . " - (SELECT count(*) FROM $workload->{name} WHERE $workload->{sum} < 0)");
            $workload->agree("the number of rows inserted meanwhile that $rival->{name} lost", $lost, 0);
            my $batch = $server->query('SELECT coalesce(max(took), 0) FROM bench_holds');
            $bench->record($workload, mode => 'latency', rival => $rival->{name}, round => $round, figures => {
                seconds => $figures->{seconds}, inserts => $inserts, longest_wait => $wait, longest_batch => $batch,
            });
        },
        $bench->rivals($workload, qw(copy bulk_load bulk_load_7))
    );
    $server->query('DROP SEQUENCE bench_stop', 'DROP TABLE bench_inserts, bench_holds');
    $workload->make_table;
}

# Runs one CHECKPOINT after the other during the load. The server's log has the time that each one wrote and synced.
# The rest of its time, it waited for the load's processes, or to begin.
sub checkpoints {
    my ($bench, $workload) = @_;
    my $server = $bench->{server};
    $bench->rounds(
        "$workload->{title}, checkpoint",
        sub {
            my ($round, $rival) = @_;
            my $session = $server->session;
            my (@took, $log);
            my $figures = $rival->load(
                $workload,
                beforehand => sub { $log = $server->log },
                meanwhile  => sub {
                    my ($load) = @_;
                    sleep 0.05;
                    until ($load->is_done) {
                        my $begin = time;
                        $session->ask('CHECKPOINT');
                        push @took, time - $begin;
                    }
                },
            );
            my @waited;
            for ($server->log($log)) {
                next if !/checkpoint complete: .* write=([0-9.]+) s, sync=([0-9.]+) s, total=([0-9.]+) s/;
                push @waited, max(0, $3 - $1 - $2);
            }
            $bench->record($workload, mode => 'checkpoint', rival => $rival->{name}, round => $round, figures => {
                seconds => $figures->{seconds}, checkpoints => scalar @took, longest => max(0, @took),
                longest_wait => max(0, @waited[0 .. min($#took, $#waited)]),
            });
        },
        $bench->rivals($workload, qw(copy bulk_load bulk_load_7))
    );
}

# Reads /proc for each process of the load every few milliseconds: the peak of its resident memory (VmHWM, including shared
# buffers that it touched), and its private memory (RssAnon), also summed over the processes. Processes
# that did not exist before count as the load's. Two rounds, or one with SIZE=small, since memory varies less
# than time.
sub memory {
    my ($bench, $workload) = @_;
    my $server = $bench->{server};
    local $bench->{rounds} = min($bench->{size} eq 'small' ? 1 : 2, $bench->{rounds});
    $bench->rounds(
        "$workload->{title}, memory",
        sub {
            my ($round, $rival) = @_;
            my (%most, %own, %known);
            my $own = 0;
            my $figures = $rival->load(
                $workload,
                before_each => sub { my ($session) = @_; $known{ $session->ask('SELECT pg_backend_pid()') } = 1 },
                beforehand => sub {
                    my %loading = %known;
                    %known = map { $_ => 1 } grep { !$loading{$_} } $server->processes;
                },
                meanwhile => sub {
                    my @load = @_;
                    my @processes;
                    for (my $look = 0; grep { !$_->is_done } @load; $look++) {
                        @processes = grep { !$known{$_} } $server->processes if $look % 5 == 0;
                        my $sum = 0;
                        for my $pid (@processes) {
                            my ($most, $now) = status($pid) or next;
                            $most{$pid} = $most;
                            $own{$pid} = max($own{$pid} // 0, $now);
                            $sum += $now;
                        }
                        $own = max($own, $sum);
                        sleep 0.003;
                    }
                },
            );
            $bench->record($workload, mode => 'memory', rival => $rival->{name}, round => $round, figures => {
                seconds => $figures->{seconds}, processes => scalar keys %most, largest => max(0, values %most),
                largest_own => max(0, values %own), own => $own,
            });
        },
        grep { !$_->{program} } $bench->rivals($workload, @Rival::USUAL, 'bulk_load_7')
    );
}

# (VmHWM, RssAnon) of a process in bytes; an empty list if it has ended.
sub status {
    my ($pid) = @_;
    open my $file, '<', "/proc/$pid/status" or return;
    my %kilobytes = map { /^(VmHWM|RssAnon):\s*([0-9]+) kB/ ? ($1, $2) : () } <$file>;
    return if keys %kilobytes < 2;
    return map { $kilobytes{$_} * 1024 } qw(VmHWM RssAnon);
}

1;
