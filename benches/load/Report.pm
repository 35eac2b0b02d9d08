# What `run` publishes: a Markdown page with a table per workload, and every single time as tab-separated values.
#
# A result, as measure() in `run` returns it, holds the workload's title, rows, bytes (of the file), heap (bytes after
# COPY) and index, and the names of the loaders, the scanners and the scans; `time` is
# {measure => {rival => [seconds]}}, where the measure is 'load' or a scan, and `wal` is {rival => [bytes]}.
#
# Medians are shown with their extremes, because a machine with few cores moves by a fifth from run to run: a difference
# that is smaller than the spread is none.
package Report;
use strict;
use warnings;
use List::Util qw(max min);

my %LABEL = (
    copy     => 'COPY',
    file_fdw => 'INSERT … SELECT, file_fdw',
    bulk_fdw => 'INSERT … SELECT, bulk_fdw',
    floor    => 'floor (no server, 2 threads)',
);

sub markdown {
    my ($preamble, @results) = @_;
    return join "\n", $preamble, map { section($_) } @results;
}

sub section {
    my ($result) = @_;
    my $time = $result->{time};
    my $text = sprintf "## %s: %s rows, %s MB%s\n\nHeap after COPY: %s MB.\n\n", $result->{title},
        grouped($result->{rows}), megabytes($result->{bytes}), $result->{index} ? ', indexes in place' : '',
        megabytes($result->{heap});
    $text .= "| load | median s | min–max s | speed, COPY = 1 | MB/s | WAL MB |\n|---|--:|--:|--:|--:|--:|\n";
    for my $rival (@{ $result->{loaders} }) {
        $text .= line($result, $LABEL{$rival}, $time->{load}{$rival}, $time->{load}{copy},
            megabytes(median(@{ $result->{wal}{$rival} })));
    }
    return $text if !@{ $result->{scans} } || !@{ $result->{scanners} };
    $text .= "\n| scan | by | median s | min–max s | speed, file_fdw = 1 | MB/s |\n|---|---|--:|--:|--:|--:|\n";
    for my $scan (@{ $result->{scans} }) {
        for my $rival (@{ $result->{scanners} }) {
            my $label = '`SELECT ' . short($scan) . "` | $rival";
            $text .= line($result, $label, $time->{$scan}{$rival}, $time->{$scan}{file_fdw});
        }
    }
    return $text;
}

# One line of a table: the median, the extremes, how often the median goes into the reference's, and megabytes of the
# file per second.
sub line {
    my ($result, $label, $times, $reference, @more) = @_;
    my $median = median(@$times);
    return '| ' . join(' | ', $label, sprintf('%.3f', $median), sprintf('%.3f–%.3f', min(@$times), max(@$times)),
        $reference ? sprintf('%.2f×', median(@$reference) / $median) : '',
        sprintf('%.0f', $result->{bytes} / 1e6 / $median), @more) . " |\n";
}

sub tsv {
    my @results = @_;
    my $text = join("\t", qw(workload rows bytes measure rival round seconds wal_bytes)) . "\n";
    for my $result (@results) {
        for my $measure ('load', @{ $result->{scans} }) {
            my $time = $result->{time}{$measure};
            for my $rival (sort keys %$time) {
                for my $round (0 .. $#{ $time->{$rival} }) {
                    my $wal = $measure eq 'load' ? $result->{wal}{$rival}[$round] : '';
                    $text .= join("\t", @$result{qw(title rows bytes)}, short($measure), $rival, $round + 1,
                        $time->{$rival}[$round], $wal) . "\n";
                }
            }
        }
    }
    return $text;
}

# A select list of all columns is named by its first and its last one.
sub short { my ($scan) = @_; return $scan =~ /^([^,]+), .*, ([^,]+)$/ ? "$1, …, $2" : $scan }

sub median { my @sorted = sort { $a <=> $b } @_; return ($sorted[$#sorted / 2] + $sorted[@sorted / 2]) / 2 }

sub grouped { my $number = reverse $_[0]; $number =~ s/([0-9]{3})(?=[0-9])/$1,/g; return scalar reverse $number }

sub megabytes { return sprintf '%.1f', $_[0] / 1e6 }

1;
