# The output of `run`: every single figure as tab-separated values. From these alone it makes a Markdown page with a section for each
# workload and a table for each mode, and a part of README.md. So the figures of several runs can be joined (`load/join`).
#
# Medians are shown with their extremes, because the times on a machine with few cores vary by a fifth from run to run: a
# difference within this range means nothing. A ratio is one of medians. For durations that must not be long (a wait, a
# checkpoint) the maximum of all rounds is shown, too.
package Report;
use strict;
use warnings;
use List::Util qw(any first max min uniq);
use Compare;
use Duplicates;
use Filters;
use Formats;
use Readme;
use Rival;
use Sources;
use Stages;
use Wal;

my %TABLES = (
    load => \&loads, append => \&loads, parts => \&loads, variants => \&variants, scale => \&scale,
    latency => \&latency, checkpoint => \&checkpoints, memory => \&memory, scan => \&scans, insert => \&inserts,
    sources => \&Sources::table, duplicates => \&Duplicates::table,
    filters => \&Filters::table, formats => \&Formats::table,
    compare => \&Compare::table, serial => \&Stages::table, wal => \&Wal::table,
);
my @ORDER = qw(compare load duplicates append insert sources filters formats parts variants scale serial wal latency checkpoint memory scan);
my @COLUMNS = qw(workload rows bytes mode case rival round figure value);

# A report: the run's conditions, as lines of Markdown, and the figures. Other facts are figures whose value
# is a text: `absent`, for a rival that cannot load a workload, and `remark`.
sub new {
    my ($class, $preamble, $figures) = @_;
    return bless { preamble => $preamble, figures => $figures }, $class;
}

# The report of a complete run.
sub of {
    my ($class, $preamble, $bench) = @_;
    my @figures = @{ $bench->{figures} };
    my @text = map { my $w = $_; map { [$w, $_, 'absent', $bench->{absent}{$w}{$_}] } sort keys %{ $bench->{absent}{$w} } }
        sort keys %{ $bench->{absent} };
    push @text, map { ['', '', 'remark', $_] } sort keys %{ $bench->{remarks} };
    push @figures, map { my %figure; @figure{@COLUMNS} = ($_->[0], 0, 0, '', '', $_->[1], 0, $_->[2], $_->[3]); \%figure } @text;
    return $class->new($preamble, \@figures);
}

# Joins several reports: all figures, and each of the conditions once.
sub join_all {
    my ($class, @reports) = @_;
    my @lines = map { @{ $_->{preamble} } } @reports;
    my @preamble = map { my $kind = $_; uniq grep { $_ =~ $kind } @lines } qr/^# /, qr/^    /, qr/^- /;
    return $class->new(\@preamble, [map { @{ $_->{figures} } } @reports]);
}

sub tsv {
    my ($self) = @_;
    return join '', (map {"#$_\n"} @{ $self->{preamble} }), join("\t", @COLUMNS) . "\n",
        map { join("\t", @$_{@COLUMNS}) . "\n" } @{ $self->{figures} };
}

sub from_tsv {
    my ($class, $path) = @_;
    open my $file, '<', $path or die "$0: $path: $!\n";
    chomp(my @lines = <$file>);
    my @preamble = map { s/^#//r } grep {/^#/} @lines;
    my (undef, @rows) = grep { !/^#/ } @lines;
    my @figures = map { my %figure; @figure{@COLUMNS} = split /\t/, $_, -1; \%figure } @rows;
    return $class->new(\@preamble, \@figures);
}

# The figures with all of these properties.
sub figures {
    my ($self, %properties) = @_;
    return grep { my $figure = $_; !any { $figure->{$_} ne $properties{$_} } keys %properties } @{ $self->{figures} };
}

sub markdown {
    my ($self, $picture) = @_;
    my @preamble = @{ $self->{preamble} };
    my @lines = map { my $kind = $_; ((grep { $_ =~ $kind } @preamble), '') } qr/^# /, qr/^    /, qr/^- /;
    my @remarks = map {"- $_->{value}"} $self->figures(figure => 'remark');
    # Remarks about the machine or about this pg_bulk are shown once, others with the workload.
    my %nowhere = map { Rival::label($_->{rival}) . ": $_->{value}" => 1 }
        grep { is_everywhere($_) } $self->figures(figure => 'absent');
    push @remarks, map {"- $_"} sort keys %nowhere;
    unshift @remarks, $self->spread;
    push @lines, @remarks, '' if @remarks;
    push @lines, "![seconds of each way of loading, by workload]($picture)", '' if defined $picture;
    return join "\n", @lines, map { $self->section($_) } uniq map { $_->{workload} } grep { length $_->{mode} } @{ $self->{figures} };
}

# The range of the times of the same load: one sentence, if there is more than one round.
sub spread {
    my ($self) = @_;
    my %seconds = $self->seconds_of_loads;
    my %spread = map { @{ $seconds{$_} } > 1 ? ($_ => (max(@{ $seconds{$_} }) - min(@{ $seconds{$_} })) / median(@{ $seconds{$_} })) : () }
        keys %seconds;
    return if !%spread;
    my ($worst) = sort { $spread{$b} <=> $spread{$a} || $a cmp $b } keys %spread;
    my ($workload, $mode, $case, $rival) = split /\t/, $worst;
    my $where = join ', ', grep { length } $workload, $mode eq 'load' ? '' : $mode, $case, Rival::known($rival) ? Rival::label($rival) : $rival;
    return sprintf '- Spread: from the shortest to the longest time of the same load are %.0f %% of the median for the half of them,'
        . ' and %.0f %% at worst (%s). %d loads.', 100 * median(values %spread), 100 * $spread{$worst}, $where, scalar keys %spread;
}

# The seconds of each load, by workload, mode, case and rival, separated by tabs. The mode `memory` has no times, since
# its measuring takes time.
sub seconds_of_loads {
    my ($self) = @_;
    my %seconds;
    for my $figure (grep { $_->{mode} ne 'memory' } $self->figures(figure => 'seconds')) {
        my $load = join "\t", @$figure{qw(workload mode case rival)};
        $load .= "\t$figure->{rows}" if $figure->{mode} =~ /^(?:scale|serial)$/;
        push @{ $seconds{$load} }, $figure->{value};
    }
    return %seconds;
}

# Writes the page, the figures and the picture; with $readme, also into README.md.
sub save {
    my ($self, $bench, $out, $name, $readme) = @_;
    write_file("$out/$name.tsv", $self->tsv);
    my $picture;
    if ($self->figures(mode => 'load', figure => 'seconds')) {
        $bench->command($bench->target('release/plot'), "$out/$name.tsv", "$out/$name.png");
        $picture = "$name.png";
    }
    write_file("$out/$name.md", $self->markdown($picture));
    Readme::show($self, $bench->{root}, $out, $name) if $readme;
}

sub write_file {
    my ($path, $text) = @_;
    open my $file, '>', $path or die "$0: $path: $!\n";
    print $file $text;
    close $file or die "$0: $path: $!\n";
}

# The values of a figure with all of these properties.
sub values_of {
    my ($figures, $name, %properties) = @_;
    return map { $_->{value} }
        grep {
            my $figure = $_;
            $figure->{figure} eq $name && !grep { $figure->{$_} ne $properties{$_} } keys %properties
        } @$figures;
}

sub is_everywhere { my ($absent) = @_; return $absent->{value} =~ /^not (?:installed|there)/ }

sub section {
    my ($self, $title) = @_;
    my @all = grep { length $_->{mode} } $self->figures(workload => $title);
    my $text = "## $title\n";
    # These modes have sizes of their own, or none.
    my ($usual) = grep { $_->{mode} !~ /^(?:scale|serial|wal)$/ } @all;
    $text = sprintf "## %s: %s rows, %s MB\n", $title, grouped($usual->{rows}), megabytes($usual->{bytes}) if $usual;
    for my $mode (@ORDER) {
        my @figures = grep { $_->{mode} eq $mode } @all;
        my $table = @figures ? $TABLES{$mode}->(\@figures, \@all) : '';
        $text .= "\n$table" if length $table;
    }
    my %absent = map { $_->{rival} => $_->{value} } grep { !is_everywhere($_) } $self->figures(workload => $title, figure => 'absent');
    my @absent = grep { defined $absent{$_} } @Rival::NAMES;
    $text .= "\nNot there: " . join('; ', map { Rival::label($_) . ": $absent{$_}" } @absent) . ".\n" if @absent;
    return $text;
}

# The rivals of these figures, in the usual order.
sub rivals_of {
    my ($figures) = @_;
    my %there = map { $_->{rival} => 1 } @$figures;
    return grep { $there{$_} } @Rival::NAMES;
}

# The reference for a time: COPY's or, if COPY cannot read the file, that of COPY of the good rows.
sub reference {
    my ($seconds) = @_;
    return $seconds->{copy} // $seconds->{copy_good};
}

# Times and resources: memory only if the mode `memory` was requested.
sub loads {
    my ($figures, $all) = @_;
    my %seconds = map { $_ => [values_of($figures, 'seconds', rival => $_)] } rivals_of($figures);
    my $indexed = any { $_ > 0 } values_of($figures, 'index_bytes');
    my @titles = ('load', 'median s', 'min–max s', 'COPY = 1', $indexed ? 'COPY, CREATE INDEX = 1' : (), 'two COPYs = 1',
        $seconds{floor} ? 'times the floor' : (), 'MB/s', 'CPU s', 'WAL MB', 'heap MB', $indexed ? 'indexes MB' : (),
        'largest process MB', 'its own MB');
    my @lines;
    for my $rival (rivals_of($figures)) {
        my $median = median(@{ $seconds{$rival} });
        my @of_rival = grep { $_->{rival} eq $rival } @$figures;
        my @watched = map { max(values_of($all, $_, mode => 'memory', rival => $rival)) } qw(largest largest_own);
        push @lines, [
            label($figures, $rival), seconds(@{ $seconds{$rival} }), speed(reference(\%seconds), $median),
            $indexed ? speed($seconds{copy_then_index}, $median) : (), speed($seconds{two_copies}, $median),
            $seconds{floor} ? times_the_floor($seconds{floor}, $median) : (),
            sprintf('%.0f', $figures->[0]{bytes} / 1e6 / $median),
            some('%.2f', values_of(\@of_rival, 'cpu')),
            (map { some_megabytes(values_of(\@of_rival, $_)) } qw(wal_bytes heap_bytes), $indexed ? 'index_bytes' : ()),
            map { some_megabytes(grep { defined } $_) } @watched
        ];
    }
    # Columns without values, or without a reference, are left out.
    my @there = grep { my $column = $_; any { length $_->[$column] } @lines } 0 .. $#titles;
    return join '', header(@titles[@there]), map { line(@$_[@there]) } @lines;
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
    my $text = header('memory, MB', 'load s', 'processes', 'largest, shared buffers included', 'its own', 'own, all together');
    for my $rival (rivals_of($figures)) {
        my %worst = map { $_ => max(values_of($figures, $_, rival => $rival)) } qw(processes largest largest_own own);
        $text .= line(Rival::label($rival), sprintf('%.3f', median(values_of($figures, 'seconds', rival => $rival))),
            $worst{processes}, map { megabytes($worst{$_}) } qw(largest largest_own own));
    }
    return $text;
}

sub scans { return through_wrappers(@_, 'scan', sub {"`SELECT $_[0]`"}, sub { $_[0] }) }

sub inserts { return through_wrappers(@_, 'stored', sub { $_[0] }, sub { Rival::label($_[0]) =~ s/.*, (?=file|bulk)//r }) }

# The results of file_fdw and other wrappers.
sub through_wrappers {
    my ($figures, undef, $title, $name, $by) = @_;
    my $text = header($title, 'by', 'median s', 'min–max s', 'file_fdw = 1', 'MB/s');
    for my $case (uniq map { $_->{case} } @$figures) {
        my @of_case = grep { $_->{case} eq $case } @$figures;
        my @file_fdw = values_of(\@of_case, 'seconds', rival => 'file_fdw');
        for my $rival (rivals_of(\@of_case)) {
            my @seconds = values_of(\@of_case, 'seconds', rival => $rival);
            $text .= line($name->($case), $by->($rival), seconds(@seconds), speed(\@file_fdw, median(@seconds)),
                sprintf('%.0f', $figures->[0]{bytes} / 1e6 / median(@seconds)));
        }
    }
    return $text;
}

# ---- Parts of tables ------------------------------------------------------------------------------------------------

# Text is aligned to the left, numbers to the right.
sub header {
    my @titles = @_;
    my %left = map { $_ => 1 } 'load', 'stage, all processes', 'phase', 'server and table', 'scan', 'stored', 'by', 'single INSERTs during', 'CHECKPOINT during',
        'memory, MB', 'table', 'log', 'turn', 'bound by', 'source', 'what', '1 % duplicates';
    return line(@titles) . '|' . join('|', map { $left{$_} ? '---' : '--:' } @titles) . "|\n";
}

sub line { return '| ' . join(' | ', @_) . " |\n" }

# A rival's name, its number of processes if the name does not contain it, and the index strategies.
sub label {
    my ($figures, $rival) = @_;
    my $label = Rival::label($rival);
    my @workers = uniq values_of($figures, 'workers', rival => $rival);
    my @threads = uniq values_of($figures, 'threads', rival => $rival);
    $label .= ", workers @workers by default" if $rival eq 'bulk_load' && @workers;
    $label .= ", @threads threads" if @threads;
    my @methods = uniq grep { length } values_of($figures, 'indexes', rival => $rival);
    $label .= ', indexes: ' . join ' or ', @methods if @methods;
    return $label;
}

# A median and the extremes.
sub seconds {
    my @seconds = @_;
    return (sprintf('%.3f', median(@seconds)), sprintf('%.3f–%.3f', min(@seconds), max(@seconds)));
}

# A median and the maximum, in milliseconds.
sub worst_ms { my @seconds = @_; return map { sprintf '%.1f', $_ * 1e3 } median(@seconds), max(@seconds) }

# The reference's median divided by this one.
sub speed {
    my ($reference, $median) = @_;
    return $reference && @$reference ? sprintf('%.2f×', median(@$reference) / $median) : '';
}

sub times_the_floor { my ($floor, $median) = @_; return $floor ? sprintf('%.2f', $median / median(@$floor)) : '' }

sub median { my @sorted = sort { $a <=> $b } @_; return ($sorted[$#sorted / 2] + $sorted[@sorted / 2]) / 2 }

# The median, if there are values.
sub some { my ($format, @values) = @_; return @values ? sprintf $format, median(@values) : '' }

sub some_megabytes { my @values = @_; return @values ? megabytes(median(@values)) : '' }

sub grouped { my $number = reverse $_[0]; $number =~ s/([0-9]{3})(?=[0-9])/$1,/g; return scalar reverse $number }

sub megabytes { return sprintf '%.1f', $_[0] / 1e6 }

1;
