# The time of a load by stage, from pg_bulk.log_timing: for `profile`, and for the mode `serial`, which measures the parts of a
# load that only one process at a time can do.
#
# The tricky point is the serial stages. The holder of the append lock appends a batch of pages (`extend`, `log`, `flush`,
# `write`), and the process with the next ticket cuts a chunk off the file (`cut`). Both run beside each other and beside the
# parallel work of all processes, so the slower one bounds the load, not their sum. Only the leader works before and after the rows.
package Stages;
use strict;
use warnings;
use List::Util qw(max min sum0 uniq);
use Report;
use Rival;
use Workload;

my @APPEND = ('extend', 'log', 'flush', 'write');
# The same stages as a pipeline of batches: while one is flushed, the next one is logged.
my %TURNS = (log => ['log'], flush => ['flush'], write => [ 'extend', 'write' ]);
my @PROCESSES = (1, 2, 3, 8, 16, 64);
my @WAITS = ('wait to cut', 'wait to append');

# Runs one load. Returns seconds by stage and by phase, {stages => {name => s}, phases => …, order => {stages => [names], …}},
# and the figures of the load.
sub of_load {
    my ($bench, $rival, $workload, %how) = @_;
    my $server = $bench->{server};
    my $log = $server->log;
    my $figures = $rival->load($workload, %how,
        before_each => sub { $_[0]->ask('SET pg_bulk.log_timing = on; SET client_min_messages = warning') });
    my $text = join '', $server->log($log);
    my %seconds;
    for my $kind (qw(phases stages)) {
        my ($list) = $text =~ /^\s+$kind(?: of all processes)?: (.*)$/m or die "$0: the log has no $kind:\n$text";
        while ($list =~ /(\w[a-z ]*?) ([0-9.]+) s/g) { push @{ $seconds{order}{$kind} }, $1; $seconds{$kind}{$1} = $2 }
    }
    return (\%seconds, $figures);
}

# With one, two and three processes, into a table whose file is new, and into one that has rows and is in use.
sub serial {
    my ($bench, $workload) = @_;
    return if $workload->{bad};
    for my $rows (@{ $bench->{scale} }) {
        for my $table ([ 'new file' ], [ 'in use', more => $rows ]) {
            my ($case, @more) = @$table;
            $workload->has_room($rows) or next;
            my $other = Workload->new($bench, %$workload{qw(name index unlogged)}, rows => @more ? 1000 : $rows, @more);
            # The longest files; one at a time suffices.
            $other->discard if $other->{path} ne $workload->{path};
            $other->begin;
            $bench->rounds(
                "$workload->{title}, serial, $rows rows, $case",
                sub {
                    my ($round, $rival) = @_;
                    my ($seconds, $figures) = of_load($bench, $rival, $other);
                    my %figures = (%$figures, cores => $bench->{cores});
                    for my $kind (qw(stages phases)) {
                        $figures{"$kind $_"} = $seconds->{$kind}{$_} for keys %{ $seconds->{$kind} };
                    }
                    $bench->record({ %$other, title => $workload->{title} }, mode => 'serial', case => $case,
                        rival => $rival->{name}, round => $round, figures => \%figures);
                },
                $bench->rivals($other, qw(bulk_load_0 bulk_load_1 bulk_load_2 bulk_load_share))
            );
            $other->end;
        }
    }
    $workload->make_table;
}

# Seconds by bound, medians; `work` is that of all processes without their waits.
sub parts {
    my ($figures) = @_;
    my $of = sub { my ($name) = @_; my @values = Report::values_of($figures, $name); return @values ? Report::median(@values) : 0 };
    my %waits = map { ("stages $_" => 1) } @WAITS;
    my @stages = uniq grep {/^stages /} map { $_->{figure} } @$figures;
    my %parts = (
        seconds => $of->('seconds'), processes => $of->('workers') + 1, cores => $of->('cores'),
        cut => $of->('stages cut'), turns => { map { my $turn = $_; $turn => sum0(map { $of->("stages $_") } @{ $TURNS{$turn} }) } keys %TURNS },
        append => sum0(map { $of->("stages $_") } @APPEND), flush => $of->('stages flush'),
        waits => sum0(map { $of->($_) } keys %waits), work => sum0(map { $of->($_) } grep { !$waits{$_} } @stages),
    );
    $parts{around} = max(0, $parts{seconds} - $of->('phases rows'));
    return \%parts;
}

# The expected time for this number of processes, from the parts of a load by one process: the parallel work, unless
# a serial stage takes longer; and the time before and after the rows.
sub expected {
    my ($one, $at_work) = @_;
    return $one->{around} + max($one->{work} / $at_work, $one->{append}, $one->{cut});
}

# The model's predictions for other machines, from the largest load: the rate of a number of processes, each with a core
# of its own; the stage that bounds it; and the bound if the append were a pipeline. All but the processes' shares of the parallel
# work is assumed to take as long as with one process.
sub model {
    my ($figures) = @_;
    my $rows = max(map { $_->{rows} } @$figures);
    my $text = '';
    for my $case (uniq map { $_->{case} } @$figures) {
        my @of_case = grep { $_->{rows} == $rows && $_->{case} eq $case } @$figures;
        my %parts = map { my $rival = $_; $rival => parts([grep { $_->{rival} eq $rival } @of_case]) } Report::rivals_of(\@of_case);
        my ($one, $more) = @parts{qw(bulk_load_0 bulk_load_1)};
        next if !$one || !$more;
        my $megabytes = $of_case[0]{bytes} / 1e6;
        for my $processes (@PROCESSES) {
            my %own = (work => $one->{work} / $processes);
            $own{cut} = $more->{cut} if $processes > 1;
            my @columns = map {
                my %bounds = (%own, %$_);
                my ($bound) = sort { $bounds{$b} <=> $bounds{$a} || $a cmp $b } keys %bounds;
                my $rate = $megabytes / max(1e-9, $one->{around} + $bounds{$bound});
                $bound = 'around the rows' if $one->{around} > $bounds{$bound};
                (sprintf('%.0f', $rate), $bound, sprintf('%.1f', 1e7 / $rate / 3600))
            } { append => $one->{append} }, $one->{turns};
            $text .= Report::line($case, $processes, @columns);
        }
    }
    return $text
        && Report::header('table', 'processes', 'MB/s', 'bound by', '10 TB, h', 'log, flush, write in turns: MB/s', 'bound by', '10 TB, h')
        . $text;
}

# The serial parts of the largest load by one process, their rates, and the number of processes that saturates them.
sub turns {
    my ($figures) = @_;
    my $rows = max(map { $_->{rows} } @$figures);
    my $text = '';
    for my $case (uniq map { $_->{case} } @$figures) {
        my $of = sub { my ($rival) = @_; return grep { $_->{rows} == $rows && $_->{case} eq $case && $_->{rival} eq $rival } @$figures };
        my @one = $of->('bulk_load_0') or next;
        my $work = parts(\@one)->{work};
        # A single process does not search for the ends of chunks.
        my @turns = [ cut => stage([$of->('bulk_load_1')], 'cut') ];
        push @turns, map { [ $_ => stage(\@one, $_) ] } @APPEND;
        push @turns, [ 'append, all of it' => parts(\@one)->{append} ], [ 'around the rows' => parts(\@one)->{around} ];
        $text .= Report::line($case, $_->[0], sprintf('%.3f', $_->[1]), sprintf('%.1f', 1e9 * $_->[1] / $rows),
            sprintf('%.0f', $one[0]{bytes} / 1e6 / $_->[1]), $_->[0] =~ /^around/ ? '' : sprintf('%.1f', $work / $_->[1]))
            for grep { $_->[1] > 0 } @turns;
    }
    return $text && Report::header('table', 'turn', 's', 'ns a row', 'MB/s of the file', 'full at processes') . $text;
}

sub stage { my ($figures, $name) = @_; my @values = Report::values_of($figures, "stages $name"); return @values ? Report::median(@values) : 0 }

sub table {
    my ($figures) = @_;
    my ($turns, $model) = (turns($figures), model($figures));
    return measured($figures) . ($turns && "\nWhat only one process does at a time:\n\n$turns")
        . ($model && "\nThe model, for so many cores:\n\n$model");
}

sub measured {
    my ($figures) = @_;
    my $text = Report::header('rows', 'table', 'load', 'median s', 'min–max s', 'expected s', 'around the rows s',
        'work of all s', 'cut s', 'append s', 'of which flush s', 'waits s', 'append / work', 'cut MB/s', 'append MB/s',
        'append is full at processes');
    for my $rows (uniq map { $_->{rows} } @$figures) {
        for my $case (uniq map { $_->{case} } @$figures) {
            my @of_case = grep { $_->{rows} == $rows && $_->{case} eq $case } @$figures;
            my $one;
            for my $rival (Report::rivals_of(\@of_case)) {
                my @of_rival = grep { $_->{rival} eq $rival } @of_case;
                my $parts = parts(\@of_rival);
                $one //= $parts if $parts->{processes} == 1;
                my $megabytes = $of_rival[0]{bytes} / 1e6;
                my $rate = sub { my ($seconds) = @_; return $seconds > 0 ? sprintf('%.0f', $megabytes / $seconds) : '' };
                my $expected = $one ? expected($one, min(@$parts{qw(processes cores)})) : undef;
                $text .= Report::line(
                    Report::grouped($rows), $case, Rival::label($rival), Report::seconds(Report::values_of(\@of_rival, 'seconds')),
                    defined $expected ? sprintf('%.3f', $expected) : '',
                    map({ sprintf '%.3f', $parts->{$_} } qw(around work)),
                    map({ $parts->{$_} > 0 ? sprintf '%.3f', $parts->{$_} : '' } qw(cut append flush waits)),
                    $parts->{work} > 0 ? sprintf('%.2f', $parts->{append} / $parts->{work}) : '',
                    map({ $rate->($parts->{$_}) } qw(cut append)),
                    $parts->{append} > 0 ? sprintf('%.1f', $parts->{work} / $parts->{append}) : ''
                );
            }
        }
    }
    return $text;
}

1;
