# The mode `wal`: the rate at which this server accepts WAL, from one session and from two at once, and at which this disk accepts
# bytes. A load cannot append pages faster.
#
# Sessions write messages (pg_logical_emit_message), which no process reads, with the length of the record of a page of `test`. The
# tricky point is other work in this time. The function call costs little beside 6000 bytes. A new WAL
# segment is filled with zeros first, a recycled one is not. Checkpoints decide between the two, as for a load.
package Wal;
use strict;
use warnings;
use IO::Handle;
use Time::HiRes qw(time);

# Bytes of a message; of a batch of pages; in total.
my $RECORD = 6000;
my $BATCH = 256 * $RECORD;
my %BYTES = (tiny => 2 * $BATCH);
my $BYTES = 200 * $BATCH;

sub wal {
    my ($bench, $workload) = @_;
    my $batches = ($BYTES{ $bench->{size} } // $BYTES) / $BATCH;
    my $message = "(SELECT repeat('x', $RECORD))";
    my %statements = (
        # Not transactional: logged at once, and no commit waits for it.
        inserted => 'SELECT count(pg_logical_emit_message(false, \'bench\', ' . $message . ')) FROM generate_series(1, '
            . $batches * $BATCH / $RECORD . ')',
        'flushed for each batch' => "DO \$\$ BEGIN FOR batch IN 1 .. $batches LOOP PERFORM pg_logical_emit_message(true,"
            . " 'bench', $message) FROM generate_series(1, " . $BATCH / $RECORD . '); COMMIT; END LOOP; END $$',
    );
    my @cases = map { my $sessions = $_; map { [ $_, $sessions ] } sort keys %statements } 1, 2;
    $bench->rounds(
        'WAL',
        sub {
            my ($round, $case) = @_;
            my ($how, $sessions) = @$case;
            my $server = $bench->{server};
            $server->query('CHECKPOINT');
            my @sessions = map { $server->session } 1 .. $sessions;
            $_->ask('SELECT 1') for @sessions;
            my $begin = time;
            $_->send($statements{$how}) for @sessions;
            $_->wait for @sessions;
            record($bench, $workload, $round, "WAL $how", $sessions, $sessions * $batches * $BATCH, time - $begin);
        },
        @cases
    );
    $bench->rounds(
        'disk',
        sub {
            my ($round, $each) = @_;
            my $seconds = disk("$bench->{server}{base}/disk", $batches, $each);
            record($bench, $workload, $round, 'file written, synced ' . ($each ? 'for each batch' : 'at the end'), 1,
                $batches * $BATCH, $seconds);
        },
        0, 1
    );
}

sub record {
    my ($bench, $workload, $round, $case, $sessions, $bytes, $seconds) = @_;
    $bench->record($workload, mode => 'wal', case => $case, rival => $sessions, round => $round,
        figures => { seconds => $seconds, log_bytes => $bytes });
}

# Writes batches to a new file. Returns the duration.
sub disk {
    my ($path, $batches, $sync_each) = @_;
    my $bytes = 'x' x $BATCH;
    open my $file, '>:raw', $path or die "$0: $path: $!\n";
    my $begin = time;
    for my $batch (1 .. $batches) {
        syswrite($file, $bytes) == $BATCH or die "$0: $path: $!\n";
        $file->sync or die "$0: $path: $!\n" if $sync_each || $batch == $batches;
    }
    my $seconds = time - $begin;
    close $file;
    unlink $path;
    return $seconds;
}

sub table {
    my ($figures) = @_;
    my $text = Report::header('log', 'sessions', 'MB', 'median s', 'min–max s', 'MB/s', 'ms a batch');
    my %seen;
    for my $figure (grep { !$seen{"$_->{case} $_->{rival}"}++ } @$figures) {
        my @same = grep { $_->{case} eq $figure->{case} && $_->{rival} eq $figure->{rival} } @$figures;
        my ($bytes) = Report::values_of(\@same, 'log_bytes');
        my @seconds = Report::values_of(\@same, 'seconds');
        my $median = Report::median(@seconds);
        $text .= Report::line($figure->{case}, $figure->{rival}, Report::megabytes($bytes), Report::seconds(@seconds),
            sprintf('%.0f', $bytes / 1e6 / $median), sprintf('%.2f', 1e3 * $median * $BATCH / $bytes));
    }
    return $text;
}

1;
