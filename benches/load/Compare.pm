# The mode `compare`: two builds of pg_bulk, each in a server of its own, load the same files alternately. Loads that became slower beyond
# noise are flagged.
#
# The tricky point is noise. The builds alternate and their order rotates, so a slow minute of the machine affects both
# alike. The rest is tested by ranks, on which a single slow load has little effect: Mann and Whitney's test,
# one-sided, exact. It gives the probability that the new build's times rank this high although it is as fast as the base.
# A load counts as slower or faster if that is below one in a thousand, and the medians differ by more than 3 %. So a run
# of twenty loads raises a false alarm in one of fifty runs at most, and small differences do not count.
package Compare;
use strict;
use warnings;
use List::Util qw(max min);
use Report;
use Rival;
use Workload;

my $CHANCE = 0.001;
my $NOTICED = 1.03;
my @RIVALS = qw(bulk_load bulk_load_0 bulk_fdw);

# The installed build and the build of BASE, by these names.
my @BUILDS = qw(this base);

sub compare {
    my ($bench, $workload) = @_;
    my %server = (this => $bench->{server}, base => $bench->{base_server});
    my %known = map { $_ => 1 } @RIVALS;
    my @rivals = grep { $known{$_} } @{ $bench->{rivals} };
    on($bench, $server{base}, sub { $workload->begin });
    # One warm-up load of each, so that no build is the first one to touch files and tables.
    my @turns = map { my $rival = $_; map { { rival => $rival, build => $_ } } @BUILDS } @rivals;
    for my $turn (@turns) {
        on($bench, $server{ $turn->{build} }, sub { Rival->new($bench, $turn->{rival})->load($workload) });
    }
    $bench->rounds(
        "$workload->{title}, compare",
        sub {
            my ($round, $turn) = @_;
            on($bench, $server{ $turn->{build} }, sub {
                my $figures = Rival->new($bench, $turn->{rival})->load($workload);
                $bench->record($workload, mode => 'compare', case => $turn->{build}, rival => $turn->{rival},
                    round => $round, figures => $figures);
            });
        },
        @turns
    );
    on($bench, $server{base}, sub { $workload->end });
}

# With one of the servers.
sub on {
    my ($bench, $server, $what) = @_;
    local $bench->{server} = $server;
    local $ENV{PGHOST} = $server->{socket};
    return $what->();
}

# The result of the comparison: one entry for each load.
sub verdicts {
    my ($figures) = @_;
    my @verdicts;
    for my $rival (Report::rivals_of($figures)) {
        my ($this, $base) = map { [Report::values_of($figures, 'seconds', rival => $rival, case => $_)] } @BUILDS;
        push @verdicts, { rival => $rival, this => $this, base => $base, verdict => verdict($base, $this) };
    }
    return @verdicts;
}

# 'slower', 'faster' or ''.
sub verdict {
    my ($base, $this) = @_;
    my $ratio = Report::median(@$this) / Report::median(@$base);
    return 'slower' if $ratio > $NOTICED && chance($base, $this) < $CHANCE;
    return 'faster' if $ratio < 1 / $NOTICED && chance($this, $base) < $CHANCE;
    return '';
}

# Whether two samples of the same load agree: their ranges overlap, or the difference is too small to count.
sub agree {
    my ($first, $second) = @_;
    return 1 if max(@$first) >= min(@$second) && max(@$second) >= min(@$first);
    my $ratio = Report::median(@$second) / Report::median(@$first);
    return $ratio <= $NOTICED && $ratio >= 1 / $NOTICED;
}

# The probability that, of two samples from the same distribution, the second ranks at least as high against the first.
sub chance {
    my ($first, $second) = @_;
    my $wins = 0;
    for my $x (@$second) { $wins += $x > $_ ? 1 : $x == $_ ? 0.5 : 0 for @$first }
    # The number of orders of n and m values with this number of wins of the second. The greatest value is either the second's,
    # and wins over all n, or the first's.
    my ($n, $m) = (scalar @$first, scalar @$second);
    my @ways = map { [ [1] ] } 0 .. $n;
    for my $i (0 .. $n) {
        for my $j (0 .. $m) {
            next if $i == 0 && $j == 0;
            my @sum = (0) x ($i * $j + 1);
            if ($j > 0) { my $of = $ways[$i][ $j - 1 ]; $sum[$_ + $i] += $of->[$_] for 0 .. $#$of }
            if ($i > 0) { my $of = $ways[ $i - 1 ][$j]; $sum[$_] += $of->[$_] for 0 .. $#$of }
            $ways[$i][$j] = \@sum;
        }
    }
    my ($as_high, $all) = (0, 0);
    for my $count (0 .. $n * $m) {
        $all += $ways[$n][$m][$count];
        $as_high += $ways[$n][$m][$count] if $count >= $wins;
    }
    return $as_high / $all;
}

sub table {
    my ($figures) = @_;
    my $text = Report::header('load', 'base, median s', 'min–max s', 'this, median s', 'min–max s', 'this / base',
        'chance', 'verdict');
    for my $found (verdicts($figures)) {
        my ($base, $this) = @$found{qw(base this)};
        $text .= Report::line(Rival::label($found->{rival}), Report::seconds(@$base), Report::seconds(@$this),
            sprintf('%.3f', Report::median(@$this) / Report::median(@$base)), sprintf('%.4f', chance($base, $this)),
            $found->{verdict} eq 'slower' ? '**slower**' : $found->{verdict});
    }
    return $text;
}

1;
