# What `run` publishes: a Markdown page with a section per workload and a table per mode, and every single figure as
# tab-separated values.
#
# Medians are shown with their extremes, because a machine with few cores moves by a fifth from run to run: a
# difference that is smaller than the spread is none. A ratio is one of medians. Of what must not be long (a wait, a
# checkpoint) the worst of all rounds is shown, too.
package Report;
use strict;
use warnings;
use List::Util qw(max min uniq);
use Rival;

my %TABLES = (
    load => \&loads, variants => \&variants, scale => \&scale, latency => \&latency, checkpoint => \&checkpoints,
    memory => \&memory, scan => \&scans,
);
my @ORDER = qw(load variants scale latency checkpoint memory scan);

sub markdown {
    my ($preamble, $bench) = @_;
    my @sections = map { section($bench, $_) } uniq map { $_->{workload} } @{ $bench->{figures} };
    return join "\n", $preamble, (map { "- $_\n" } sort keys %{ $bench->{remarks} }), @sections;
}

# The values of a figure: those that have all of these properties.
sub values_of {
    my ($figures, $name, %properties) = @_;
    return map { $_->{value} }
        grep {
            my $figure = $_;
            $figure->{figure} eq $name && !grep { $figure->{$_} ne $properties{$_} } keys %properties
        } @$figures;
}

sub section {
    my ($bench, $title) = @_;
    my @all = grep { $_->{workload} eq $title } @{ $bench->{figures} };
    my $text = "## $title\n";
    # `scale` has sizes of its own.
    my ($usual) = grep { $_->{mode} ne 'scale' } @all;
    $text = sprintf "## %s: %s rows, %s MB\n", $title, grouped($usual->{rows}), megabytes($usual->{bytes}) if $usual;
    for my $mode (@ORDER) {
        my @figures = grep { $_->{mode} eq $mode } @all;
        $text .= "\n" . $TABLES{$mode}->(\@figures) if @figures;
    }
    return $text;
}

# The rivals of these figures, in the usual order.
sub rivals_of {
    my ($figures) = @_;
    my %there = map { $_->{rival} => 1 } @$figures;
    return grep { $there{$_} } @Rival::NAMES;
}

sub loads {
    my ($figures) = @_;
    my %seconds = map { $_ => [values_of($figures, 'seconds', rival => $_)] } rivals_of($figures);
    my $text = header('load', 'median s', 'min–max s', 'COPY = 1', 'two COPYs = 1', 'times the floor', 'MB/s',
        'WAL MB', 'heap MB');
    for my $rival (rivals_of($figures)) {
        my $median = median(@{ $seconds{$rival} });
        $text .= line(
            label($figures, $rival), seconds(@{ $seconds{$rival} }), speed($seconds{copy}, $median),
            speed($seconds{two_copies}, $median), times_the_floor($seconds{floor}, $median),
            sprintf('%.0f', $figures->[0]{bytes} / 1e6 / $median),
            map { megabytes(median(values_of($figures, $_, rival => $rival))) } qw(wal_bytes heap_bytes)
        );
    }
    return $text;
}

sub variants {
    my ($figures) = @_;
    my $text = header('server and table', 'load', 'median s', 'min–max s', 'COPY = 1', 'WAL MB', 'WAL, COPY = 1');
    for my $case (uniq map { $_->{case} } @$figures) {
        my @of_case = grep { $_->{case} eq $case } @$figures;
        my @copy = values_of(\@of_case, 'seconds', rival => 'copy');
        my @copy_wal = values_of(\@of_case, 'wal_bytes', rival => 'copy');
        for my $rival (rivals_of(\@of_case)) {
            my @seconds = values_of(\@of_case, 'seconds', rival => $rival);
            my $wal = median(values_of(\@of_case, 'wal_bytes', rival => $rival));
            # Without WAL there is nothing to compare.
            $text .= line($case, label(\@of_case, $rival), seconds(@seconds), speed(\@copy, median(@seconds)),
                megabytes($wal), @copy_wal && median(@copy_wal) > 1e6 ? sprintf('%.2f', $wal / median(@copy_wal)) : '');
        }
    }
    return $text;
}

sub scale {
    my ($figures) = @_;
    my $text = header('rows', 'load', 'median s', 'min–max s', 'ns a row', 'fewest rows = 1', 'COPY = 1',
        'times the floor');
    my %first;
    for my $rows (uniq map { $_->{rows} } @$figures) {
        my @of_size = grep { $_->{rows} == $rows } @$figures;
        my %seconds = map { $_ => [values_of(\@of_size, 'seconds', rival => $_)] } rivals_of(\@of_size);
        for my $rival (rivals_of(\@of_size)) {
            my $median = median(@{ $seconds{$rival} });
            my $row = $median / $rows;
            $first{$rival} //= $row;
            $text .= line(grouped($rows), label(\@of_size, $rival), seconds(@{ $seconds{$rival} }),
                sprintf('%.0f', $row * 1e9), sprintf('%.2f', $row / $first{$rival}), speed($seconds{copy}, $median),
                times_the_floor($seconds{floor}, $median));
        }
    }
    return $text;
}

sub latency {
    my ($figures) = @_;
    my $text = header('single INSERTs during', 'load s', 'INSERTs', 'longest wait ms', 'worst', 'longest batch ms',
        'worst', 'wait / batch', 'worst');
    for my $rival (rivals_of($figures)) {
        my %values = map { $_ => [values_of($figures, $_, rival => $rival)] }
            qw(seconds inserts longest_wait longest_batch);
        my ($waits, $batches) = @values{qw(longest_wait longest_batch)};
        my @ratios = map { $waits->[$_] / $batches->[$_] } grep { $batches->[$_] > 0 } 0 .. $#$waits;
        $text .= line(
            Rival::label($rival), sprintf('%.3f', median(@{ $values{seconds} })), median(@{ $values{inserts} }),
            worst_ms(@$waits), worst_ms(@$batches),
            @ratios ? map { sprintf '%.2f', $_ } median(@ratios), max(@ratios) : ('', ''),
        );
    }
    return $text;
}

sub checkpoints {
    my ($figures) = @_;
    my $text = header('CHECKPOINT during', 'load s', 'checkpoints', 'longest ms', 'worst',
        'longest that neither wrote nor synced ms', 'worst');
    for my $rival (rivals_of($figures)) {
        $text .= line(
            Rival::label($rival), sprintf('%.3f', median(values_of($figures, 'seconds', rival => $rival))),
            median(values_of($figures, 'checkpoints', rival => $rival)),
            map { worst_ms(values_of($figures, $_, rival => $rival)) } qw(longest longest_wait),
        );
    }
    return $text;
}

sub memory {
    my ($figures) = @_;
    my $text = header('memory, MB', 'load s', 'VmHWM before', 'VmHWM', 'workers seen', 'VmHWM of the largest',
        'own memory of all');
    for my $rival (rivals_of($figures)) {
        my %worst = map { $_ => max(values_of($figures, $_, rival => $rival)) }
            qw(leader_before leader workers worker own);
        $text .= line(Rival::label($rival), sprintf('%.3f', median(values_of($figures, 'seconds', rival => $rival))),
            megabytes($worst{leader_before}), megabytes($worst{leader}), $worst{workers},
            $worst{workers} ? megabytes($worst{worker}) : '', megabytes($worst{own}));
    }
    return $text;
}

sub scans {
    my ($figures) = @_;
    my $text = header('scan', 'by', 'median s', 'min–max s', 'file_fdw = 1', 'MB/s');
    for my $scan (uniq map { $_->{case} } @$figures) {
        my @of_scan = grep { $_->{case} eq $scan } @$figures;
        my @file_fdw = values_of(\@of_scan, 'seconds', rival => 'file_fdw');
        for my $rival (rivals_of(\@of_scan)) {
            my @seconds = values_of(\@of_scan, 'seconds', rival => $rival);
            $text .= line("`SELECT $scan`", $rival, seconds(@seconds), speed(\@file_fdw, median(@seconds)),
                sprintf('%.0f', $figures->[0]{bytes} / 1e6 / median(@seconds)));
        }
    }
    return $text;
}

sub tsv {
    my ($bench) = @_;
    my @columns = qw(workload rows bytes mode case rival round figure value);
    return join '', map { join("\t", @$_) . "\n" } \@columns, map { [@$_{@columns}] } @{ $bench->{figures} };
}

# ---- Parts of tables ------------------------------------------------------------------------------------------------

# Words are to the left, numbers to the right.
sub header {
    my @titles = @_;
    my %left = map { $_ => 1 } 'load', 'server and table', 'scan', 'by', 'single INSERTs during', 'CHECKPOINT during',
        'memory, MB';
    return line(@titles) . '|' . join('|', map { $left{$_} ? '---' : '--:' } @titles) . "|\n";
}

sub line { return '| ' . join(' | ', @_) . " |\n" }

# A rival's name, and how many processes it took if its name does not tell.
sub label {
    my ($figures, $rival) = @_;
    my $label = Rival::label($rival);
    my @workers = uniq values_of($figures, 'workers', rival => $rival);
    my @threads = uniq values_of($figures, 'threads', rival => $rival);
    $label .= ", workers @workers by default" if $rival eq 'bulk_load' && @workers;
    $label .= ", @threads threads" if @threads;
    return $label;
}

# A median and the extremes.
sub seconds {
    my @seconds = @_;
    return (sprintf('%.3f', median(@seconds)), sprintf('%.3f–%.3f', min(@seconds), max(@seconds)));
}

# A median and the worst, in milliseconds.
sub worst_ms { my @seconds = @_; return map { sprintf '%.1f', $_ * 1e3 } median(@seconds), max(@seconds) }

# How often a median goes into the reference's.
sub speed {
    my ($reference, $median) = @_;
    return $reference && @$reference ? sprintf('%.2f×', median(@$reference) / $median) : '';
}

sub times_the_floor { my ($floor, $median) = @_; return $floor ? sprintf('%.2f', $median / median(@$floor)) : '' }

sub median { my @sorted = sort { $a <=> $b } @_; return ($sorted[$#sorted / 2] + $sorted[@sorted / 2]) / 2 }

sub grouped { my $number = reverse $_[0]; $number =~ s/([0-9]{3})(?=[0-9])/$1,/g; return scalar reverse $number }

sub megabytes { return sprintf '%.1f', $_[0] / 1e6 }

1;
