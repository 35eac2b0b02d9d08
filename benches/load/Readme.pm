# The figures that README.md shows: between two marks, the chart of one report and the conditions of its run.
package Readme;
use strict;
use warnings;
use File::Spec;
use List::Util qw(uniq);

my ($BEGIN, $END) = ('<!-- figures -->', '<!-- end of figures -->');

sub show {
    my ($report, $root, $out, $name) = @_;
    my $path = "$root/README.md";
    open my $file, '<', $path or die "$0: $path: $!\n";
    my $text = do { local $/; <$file> };
    my $figures = figures($report, File::Spec->abs2rel("$out/$name", $root));
    $text =~ s/^\Q$BEGIN\E\n.*?^\Q$END\E$/$BEGIN\n$figures$END/ms or die "$0: README.md has no place for figures\n";
    Report::write_file($path, $text);
}

sub figures {
    my ($report, $path) = @_;
    my @loads = $report->figures(figure => 'seconds');
    my $text = "From [$path.md]($path.md), which has machine, versions, settings, every rival and the exact command; medians."
        . "\n\n![seconds of each way of loading, by workload]($path.png)\n\n"
        . Report::header('load', 'COPY s', 'two COPYs s', 'COPY, then CREATE INDEX s', 'bulk_load s', 'with `lock` `share` s',
        'COPY / bulk_load');
    for my $title (uniq map { $_->{workload} } grep { $_->{mode} =~ /^(?:load|append)$/ } @loads) {
        my @figures = grep { $_->{workload} eq $title && $_->{mode} =~ /^(?:load|append)$/ } @loads;
        my %median = map {
            my @seconds = Report::values_of(\@figures, 'seconds', rival => $_);
            @seconds ? ($_ => Report::median(@seconds)) : ()
        } @Rival::NAMES;
        my $copy = $median{copy} // $median{copy_good};
        next if !defined $median{bulk_load} || !defined $copy;
        $text .= Report::line(
            "`$title`, " . Report::grouped($figures[0]{rows}) . ' rows, ' . Report::megabytes($figures[0]{bytes}) . ' MB',
            map({ defined ? sprintf '%.3f', $_ : '' } $copy, @median{qw(two_copies copy_then_index bulk_load bulk_load_share)}),
            sprintf('%.1f×', $copy / $median{bulk_load})
        );
    }
    return $text;
}

1;
