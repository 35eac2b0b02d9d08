# The chart of README.md as SVG: how many times as fast as COPY each way of loading is, by the figures of one report.
#
# A group of bars for each of four workloads: into the table without keys, and into the table with keys. The axis is linear and
# begins at 0. COPY into the same table is 1. Only what the report has measured is drawn. The file depends on nothing but the
# report, so the same figures give the same bytes.
package Chart;
use strict;
use warnings;
use List::Util qw(max min sum);

our @WORKLOADS = qw(test customer extract demo);
# In the order of the bars: the rival, its name in the legend, its color.
my @WAYS = (
    [ copy            => 'COPY', '#8a8a8a' ],
    [ copy_then_index => 'COPY, then CREATE INDEX', '#a8794f' ],
    [ pg_bulkload     => 'pg_bulkload', '#4f9d69' ],
    [ bulk_load       => 'pg_bulk', '#1f5fa8' ],
);
my ($WIDTH, $LEFT, $RIGHT, $TOP, $HEIGHT, $FOOT) = (1100, 46, 12, 66, 260, 62);
# The widest bar, the space between the two tables, and the room that their captions need.
my ($BAR, $GAP, $NARROWEST) = (40, 18, 74);

# The groups of a report. A group has a title, rows, bytes, and for both kinds of tables a caption and bars. A bar has its way of
# loading, the median of its seconds, and that of COPY divided by it. Tables without figures of COPY and pg_bulk are left out.
sub groups {
    my ($report) = @_;
    my @groups;
    for my $workload (@WORKLOADS) {
        my @tables = map { [ $_->[1], bars($report, $_->[0]) ] } [ $workload, 'without keys' ], [ "$workload+index", 'with keys' ];
        @tables = grep { @$_ > 1 } @tables or next;
        my ($any) = map { $report->figures(mode => 'load', workload => $_) } $workload, "$workload+index";
        push @groups, { title => $workload, rows => $any->{rows}, bytes => $any->{bytes}, tables => \@tables };
    }
    return @groups;
}

sub bars {
    my ($report, $workload) = @_;
    my %median = map {
        my @seconds = map { $_->{value} } $report->figures(mode => 'load', workload => $workload, rival => $_->[0], figure => 'seconds');
        @seconds ? ($_->[0] => Report::median(@seconds)) : ()
    } @WAYS;
    return if !defined $median{copy} || !defined $median{bulk_load};
    return map { { way => $_, seconds => $median{ $_->[0] }, times => $median{copy} / $median{ $_->[0] } } }
        grep { defined $median{ $_->[0] } } @WAYS;
}

sub svg {
    my ($report) = @_;
    my @groups = groups($report) or die "$0: the figures have no workload of the chart: COPY and bulk_load of @WORKLOADS\n";
    my @bars = map { my (undef, @bars) = @$_; @bars } map { @{ $_->{tables} } } @groups;
    my $top = 2 * (1 + int((1 + max(map { $_->{times} } @bars)) / 2));
    my $y = sub { my ($times) = @_; return $TOP + $HEIGHT * (1 - $times / $top) };
    my @svg = (
        sprintf('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">', $WIDTH, $TOP + $HEIGHT + $FOOT),
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        text(12, 22, 'Times as fast as COPY into the same table (COPY = 1, higher is faster)', 'font-size="15" font-weight="bold"'),
    );
    my $x = 12;
    for my $way (grep { my $known = $_; grep { $_->{way} == $known } @bars } @WAYS) {
        push @svg, box($x, 36, 12, 12, $way->[2]), text($x + 18, 47, $way->[1]);
        $x += 44 + 7 * length $way->[1];
    }
    for (my $times = 0; $times <= $top; $times += 2) {
        push @svg, sprintf('<path d="M%d %.1fH%d" stroke="#dddddd"/>', $LEFT, $y->($times), $WIDTH - $RIGHT),
            text($LEFT - 6, $y->($times) + 4, "$times×", 'text-anchor="end"');
    }
    my $each = ($WIDTH - $LEFT - $RIGHT) / @groups;
    my $bar_width = min($BAR, ($each - 2 * $GAP) / max(map { my $group = $_; sum(map { @$_ - 1 } @{ $group->{tables} }) } @groups));
    for my $number (0 .. $#groups) {
        my $group = $groups[$number];
        my @widths = map { max($NARROWEST, (@$_ - 1) * $bar_width) } @{ $group->{tables} };
        my $middle = $LEFT + $each * ($number + 0.5);
        my $left = $middle - (sum(@widths) + $GAP * $#widths) / 2;
        for my $table (@{ $group->{tables} }) {
            my ($kind, @of_table) = @$table;
            my $width = shift @widths;
            my $at = $left + ($width - @of_table * $bar_width) / 2;
            for my $bar (@of_table) {
                push @svg, box($at + 2, $y->($bar->{times}), $bar_width - 4, $HEIGHT + $TOP - $y->($bar->{times}), $bar->{way}[2]),
                    text($at + $bar_width / 2, $y->($bar->{times}) - 16, sprintf('%.1f×', $bar->{times}), 'text-anchor="middle" font-weight="bold"'),
                    text($at + $bar_width / 2, $y->($bar->{times}) - 4, sprintf('%.2f s', $bar->{seconds}), 'text-anchor="middle" font-size="10"');
                $at += $bar_width;
            }
            push @svg, text($left + $width / 2, $TOP + $HEIGHT + 16, $kind, 'text-anchor="middle"');
            $left += $width + $GAP;
        }
        push @svg, text($middle, $TOP + $HEIGHT + 36, $group->{title}, 'text-anchor="middle" font-size="14" font-weight="bold"'),
            text($middle, $TOP + $HEIGHT + 52, Report::grouped($group->{rows}) . ' rows, ' . Report::megabytes($group->{bytes}) . ' MB',
            'text-anchor="middle"');
    }
    return join("\n", @svg, '</svg>') . "\n";
}

sub box { return sprintf '<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>', @_ }

sub text {
    my ($x, $y, $text, $style) = @_;
    return sprintf '<text x="%.1f" y="%.1f"%s>%s</text>', $x, $y, defined $style ? " $style" : '', $text;
}

1;
