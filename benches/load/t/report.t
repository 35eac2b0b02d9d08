#!/usr/bin/env perl
#
# Figures become tables, and are read back from their file.
use strict;
use warnings;
use File::Temp qw(tempdir);
use FindBin;
use Test::More;
use lib "$FindBin::RealBin/..";
use Report;

sub figure {
    my ($workload, $mode, $rival, $round, $figure, $value) = @_;
    return { workload => $workload, rows => 5000, bytes => 2e6, mode => $mode, case => '', rival => $rival, round => $round,
        figure => $figure, value => $value };
}

my @figures = (
    (map { figure('test', 'load', 'copy', $_, 'seconds', $_) } 1 .. 3),
    (map { figure('test', 'load', 'bulk_load', $_, 'seconds', $_ / 10) } 1 .. 3),
    figure('test', 'load', 'bulk_load', 1, 'wal_bytes', 3e6),
    (map { figure('test', 'load', 'bulk_load', $_, 'indexes', 'merge') } 1 .. 3),
    figure('test', 'load', 'copy', 1, 'index_bytes', 0),
    figure('test', 'memory', 'bulk_load', 1, 'largest', 7e6),
    (map { figure('test', 'memory', 'bulk_load', 1, $_, 6e6) } qw(seconds processes largest_own own)),
    figure('test', '', 'pgloader', 0, 'absent', 'not installed'),
    figure('test', '', 'copy_freeze', 0, 'absent', 'too cold'),
    figure('', '', '', 0, 'remark', 'It rained.'),
);
my $report = Report->new([ '# A run', '    how', '- Machine: this one' ], \@figures);
my $page = $report->markdown;
like($page, qr/^# A run\n\n    how\n\n- Machine: this one\n\n- Spread: .*\n- It rained\.\n/, 'what it says of itself');
like($page, qr/^- Spread: .* are 100 % of the median for the half of them, and 100 % at worst \(test, COPY\)\. 2 loads\.$/m,
    'how far its times are apart');
like($page, qr/^## test: 5,000 rows, 2\.0 MB$/m, 'a section');
like($page, qr/^\| load \| median s \| min–max s \| COPY = 1 \| MB\/s \| WAL MB \| largest process MB \| its own MB \|$/m,
    'a column for what was measured, and no other');
like($page, qr/^\| bulk_load, indexes: merge \| 0\.200 \| 0\.100–0\.300 \| 10\.00× \| 10 \| 3\.0 \| 7\.0 \| 6\.0 \|$/m, 'a row');
like($page, qr/^Not there: TRUNCATE and COPY FREEZE: too cold\.$/m, 'why a rival is not there');
like($page, qr/^- pgloader: not installed$/m, '... told once where it is for all workloads');

my $directory = tempdir(CLEANUP => 1);
Report::write_file("$directory/a.tsv", $report->tsv);
is(Report->from_tsv("$directory/a.tsv")->markdown, $page, 'there and back');
my $other = Report->new([ '# A run', '    otherwise', '- Machine: this one' ], [ figure('demo', 'load', 'copy', 1, 'seconds', 4) ]);
my $both = Report->join_all($report, $other)->markdown;
like($both, qr/^# A run\n\n    how\n    otherwise\n\n- Machine: this one\n/, 'two runs together');
like($both, qr/^## test:.*^## demo:/ms, '... have the sections of both');

# 5000 rows, 2 MB. With one process: 8 s of work, of which 2 s append;
# 1 s around the rows. With two on two cores, half of it at best.
my %one = ('phases rows' => 8, 'stages read' => 6, 'stages log' => 1, 'stages write' => 1, workers => 0, cores => 2);
my %two = (%one, 'phases rows' => 5, 'stages read' => 6.5, 'stages cut' => 0.5, 'stages wait to append' => 0.25, workers => 1);
my $stages = Report->new([], [
    (map { my $load = $_; map { { %{ figure('test', 'serial', $load->[0], 1, $_, $load->[1]{$_}) }, case => 'new file' } } sort keys %{ $load->[1] } }
        ([ bulk_load_0 => { %one, seconds => 9 } ], [ bulk_load_1 => { %two, seconds => 6 } ])),
])->markdown;
like($stages, qr/^\| 5,000 \| new file \| bulk_load, workers 0 \| 9\.000 \| 9\.000–9\.000 \| 9\.000 \| 1\.000 \| 8\.000 \|  \| 2\.000 \|  \|  \| 0\.25 \|  \| 1 \| 4\.0 \|$/m,
    'what one process at a time can do, and when that is all');
like($stages, qr/^\| 5,000 \| new file \| bulk_load, workers 1 \| 6\.000 \| 6\.000–6\.000 \| 5\.000 \| 1\.000 \| 9\.000 \| 0\.500 \| 2\.000 \|  \| 0\.250 \| 0\.22 \| 4 \| 1 \| 4\.5 \|$/m,
    '... and what is expected of two');
like($stages, qr/^\| new file \| 2 \| 0 \| work \| 6944\.4 \| 0 \| work \| 6944\.4 \|\n.*\n\| new file \| 8 \| 1 \| append \| 4166\.7 \| 1 \| log \| 2777\.8 \|$/m,
    '... and of more');
is(Stages::expected({ around => 1, work => 8, append => 2, cut => 0 }, 8), 3, 'of eight, what the turns allow');

Report::write_file("$directory/README.md", "before\n<!-- figures -->\nold\n<!-- end of figures -->\nafter\n");
mkdir "$directory/results" or die $!;
Readme::show($report, $directory, "$directory/results", 'load');
open my $file, '<', "$directory/README.md" or die $!;
my $readme = do { local $/; <$file> };
like($readme, qr/^before\n<!-- figures -->\n!\[[^\]]+\]\(results\/load\.svg\)\n.*\(results\/load\.md\).*\n<!-- end of figures -->\nafter$/s,
    'README has new figures');
like($readme, qr/Machine: this\s+one\./, '... and the conditions of their run');
unlike($readme, qr/^old$/m, '... and no old ones');


# COPY takes 2 s in the middle of its rounds, bulk_load 0.2 s.
my $svg = do { local (@ARGV, $/) = ("$directory/results/load.svg"); <> };
like($svg, qr/>10\.0×<.*>0\.20 s<.*>without keys<.*>test<.*>5,000 rows, 2\.0 MB</s, 'the chart has the ratio of medians');
unlike($svg, qr/with keys|pg_bulkload|CREATE INDEX/, '... and no bar that was not measured');
my $nothing = eval { Chart::svg($other) } // $@;
like($nothing, qr/no workload of the chart/, '... of a report without pg_bulk there is no chart');

done_testing();
