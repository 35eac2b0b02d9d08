# The mode `compare`: two builds of pg_bulk, each in a server of its own, load the same files in turn. What got slower beyond
# noise is flagged.
#
# The tricky point is what noise is. A machine's slow minute hits both builds alike, since they take turns and the order
# rotates; what is left is judged by ranks, which a single slow load hardly moves: the chance that the new build's times
# would rank so high if it were as fast as the base (Mann and Whitney's test, one-sided, exact). Below one in a thousand, and
# with medians that differ by more than 3 %, a load counts as slower, or as faster. So a run of twenty loads raises a false
# alarm once in fifty runs at most, and a difference that nobody would notice is none.
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

# The build that is installed and the one of BASE, under these names.
my @BUILDS = qw(this base);

sub compare {
    my ($bench, $workload) = @_;
    my %server = (this => $bench->{server}, base => $bench->{base_server});
    my %known = map { $_ => 1 } @RIVALS;
    my @rivals = grep { $known{$_} } @{ $bench->{rivals} };
    on($bench, $server{base}, sub { $workload->begin });
    # One of each that does not count, so that no build is the first to touch anything.
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

# How the builds compare: one entry for each load.
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

# Whether two samples of the same load agree: their spreads have something in common, or nobody would notice the difference.
sub agree {
    my ($first, $second) = @_;
    return 1 if max(@$first) >= min(@$second) && max(@$second) >= min(@$first);
    my $ratio = Report::median(@$second) / Report::median(@$first);
    return $ratio <= $NOTICED && $ratio >= 1 / $NOTICED;
}

# The chance that, of two samples from the same distribution, the second ranks as high against the first as it does.
sub chance {
    my ($first, $second) = @_;
    my $wins = 0;
    for my $x (@$second) { $wins += $x > $_ ? 1 : $x == $_ ? 0.5 : 0 for @$first }
    # How many orders of n and m values have so many wins of the second: a new greatest value is the second's, and wins
    # over all n, or the first's.
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
