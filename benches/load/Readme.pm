# The figures that README.md shows: between two marks, the chart of one report and the conditions of its run.
package Readme;
use strict;
use warnings;
use Chart;
use File::Spec;
use Text::Wrap;

my ($BEGIN, $END) = ('<!-- figures -->', '<!-- end of figures -->');
# Settings that the caption names; the report has all of them.
my @SETTINGS = qw(shared_buffers wal_level fsync);

# Writes NAME.svg into $out, and the link to it into README.md.
sub show {
    my ($report, $root, $out, $name) = @_;
    my $path = "$root/README.md";
    open my $file, '<', $path or die "$0: $path: $!\n";
    my $text = do { local $/; <$file> };
    Report::write_file("$out/$name.svg", Chart::svg($report));
    my $figures = figures($report, File::Spec->abs2rel("$out/$name", $root));
    $text =~ s/^\Q$BEGIN\E\n.*?^\Q$END\E$/$BEGIN\n$figures$END/ms or die "$0: README.md has no place for figures\n";
    Report::write_file($path, $text);
}

sub figures {
    my ($report, $path) = @_;
    my @preamble = map { s/^- //r } @{ $report->{preamble} };
    my $named = sub { my ($pattern) = @_; return map {/$pattern/} @preamble };
    my ($rounds) = $named->(qr/^Rounds: (\d+)/);
    my ($machine) = $named->(qr/^Machine: (.+)/);
    my @software = ($named->(qr/^Server: (PostgreSQL \S+)/), map {"pg_bulk at $_"} $named->(qr/^pg_bulk: (commit \S+)/));
    my %settings = map {/(\S+) = (\S+)/} map { split /; / } $named->(qr/^Settings: (.+)/);
    my @settings = map { defined $settings{$_} ? "`$_ = $settings{$_}`" : () } @SETTINGS;
    my $caption = join ' ', 'Medians of one run' . (defined $rounds ? " with $rounds rounds." : '.'), "[All its figures and settings]($path.md).",
        (defined $machine ? "Machine: $machine." : ()), (@software ? "Software: @{[join ', ', @software]}." : ()),
        (@settings ? "Settings: @{[join ', ', @settings]}." : ()), 'The files were in the page cache.',
        map {"$_."} $named->(qr/^(The cluster was .*?)[.:]/);
    local ($Text::Wrap::columns, $Text::Wrap::huge, $Text::Wrap::break) = (130, 'overflow', qr/ /);
    return "![times as fast as COPY, by workload]($path.svg)\n\n" . Text::Wrap::wrap('', '', $caption) . "\n";
}

1;
