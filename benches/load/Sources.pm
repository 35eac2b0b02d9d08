# The mode `sources`: loads from other sources than one plain file. A compressed copy is compared with the decompressor alone, on one
# core, and with the load of the plain file: no load can be much shorter than the longer of these two. psql's \copy runs with
# pg_bulk.copy on and off. A thousand files of 100 kB are loaded by a pattern, and by a COPY of each.
#
# In this mode, a figure's rival describes the way of loading.
package Sources;
use strict;
use warnings;
use File::Path qw(make_path remove_tree);
use List::Util qw(max);
use Time::HiRes qw(time);
use Report;
use Workload;

my $PLAIN = 'the plain file';
my %SUFFIX = (gzip => 'gz', zstd => 'zst');

sub sources {
    my ($bench, $workload) = @_;
    return if $workload->{index} || $workload->{unlogged} || $workload->{bad};
    for my $program (sort keys %SUFFIX) {
        if (system("command -v $program >/dev/null") != 0) {
            $bench->remark("$program: not installed");
            next;
        }
        compressed($bench, $workload, $program);
    }
    by_client($bench, $workload);
    many($bench, $workload);
}

sub compressed {
    my ($bench, $workload, $program) = @_;
    my $copy = "$workload->{path}.$SUFFIX{$program}";
    $bench->note("$workload->{title}: compressing by $program");
    $bench->command('sh', '-c', "$program -c \"\$0\" >\"\$1\" && chmod a+r \"\$1\"", $workload->{path}, $copy);
    my $processor = first_processor();
    compare($bench, $workload, $program,
        ["$program -dc" => undef, sub { $bench->command('taskset', '-c', $processor, 'sh', '-c', "$program -dc \"\$0\" >/dev/null", $copy) }],
        [$PLAIN => \&loader, bulk_load($workload, $workload->{path})],
        ["its copy by $program" => \&loader, bulk_load($workload, $copy)]);
    unlink $copy;
}

# The first processor that the process may use. zstd uses threads for I/O, and is compared as a program on one core.
sub first_processor {
    open my $status, '<', '/proc/self/status' or die "/proc/self/status: $!\n";
    my ($first) = map { /^Cpus_allowed_list:\s*(\d+)/ ? $1 : () } <$status>;
    return $first // 0;
}

sub by_client {
    my ($bench, $workload) = @_;
    my $copy = "\\copy $workload->{name} from " . Workload::quote($workload->{path}) . " with ($workload->{options})";
    compare($bench, $workload, '\copy',
        map { my $how = $_; ["pg_bulk.copy = $how" => sub { my $s = loader(@_); $s->ask("SET pg_bulk.copy = $how"); $s }, $copy] } qw(off on));
}

# The number of files for the available bytes, a thousand at most.
sub many {
    my ($bench, $workload) = @_;
    my $directory = "$bench->{server}{base}/many";
    remove_tree($directory);
    make_path($directory);
    $bench->command('sh', '-c', 'head -c 100000000 "$0" | head -n -1 | split -C 100000 -d -a 4 - "$1/"; chmod -R a+rX "$1"',
        $workload->{path}, $directory);
    my @files = glob "$directory/*";
    my @copies = map { $workload->copy($_) } @files;
    $workload->reset;
    $bench->{server}->query(@copies);
    local $workload->{expected} = $workload->content;
    compare($bench, $workload, @files . ' files of 100 kB',
        ['a COPY of each' => \&opener, join ";\n", @copies],
        ['a pattern' => \&loader, bulk_load($workload, "$directory/*")]);
    remove_tree($directory);
}

sub bulk_load {
    my ($workload, $path) = @_;
    return 'SELECT rows_loaded FROM bulk_load(' . $workload->arguments($path) . ')';
}

# A session that has the table open.
sub opener {
    my ($bench, $workload) = @_;
    my $session = $bench->{server}->session;
    $session->ask("SELECT count(*) FROM (SELECT FROM $workload->{name} LIMIT 1) row");
    return $session;
}

# ... and pg_bulk loaded.
sub loader {
    my $session = opener(@_);
    $session->ask("LOAD 'pg_bulk'");
    return $session;
}

# Each case is [name, function that creates a session, a statement for it], or [name, undef, function to call].
sub compare {
    my ($bench, $workload, $case, @each) = @_;
    $bench->rounds(
        "$workload->{title}, $case",
        sub {
            my ($round, $one) = @_;
            my ($name, $connect, $what) = @$one;
            $workload->reset if $connect;
            my $session = $connect && $connect->($bench, $workload);
            my $begin = time;
            $connect ? $session->ask($what) : $what->();
            my $seconds = time - $begin;
            undef $session;
            $workload->check("$name, $case") if $connect;
            $bench->record($workload, mode => 'sources', case => $case, rival => $name, round => $round,
                figures => { seconds => $seconds });
        },
        @each
    );
}

sub table {
    my ($figures) = @_;
    my $text = Report::header('source', 'what', 'median s', 'min–max s', 'against the first one, or the longer one of two');
    my (%cases, @cases);
    for (@$figures) {
        push @cases, $_->{case} if !$cases{ $_->{case} };
        my $case = $cases{ $_->{case} } //= { names => [], seconds => {} };
        push @{ $case->{names} }, $_->{rival} if !$case->{seconds}{ $_->{rival} };
        push @{ $case->{seconds}{ $_->{rival} } }, $_->{value};
    }
    for my $case (@cases) {
        my $of_case = $cases{$case}{seconds};
        # The order rotates, so the first run has the order of the list.
        my @names = @{ $cases{$case}{names} };
        my %median = map { $_ => Report::median(@{ $of_case->{$_} }) } @names;
        for my $i (0 .. $#names) {
            my $against = '';
            $against = sprintf '%.2f of its time', $median{ $names[$i] } / max(@median{ @names[0, 1] }) if @names == 3 && $i == 2;
            $against = sprintf '%.2f×', $median{ $names[0] } / $median{ $names[1] } if @names == 2 && $i == 1;
            $text .= Report::line($case, $names[$i], Report::seconds(@{ $of_case->{ $names[$i] } }), $against);
        }
    }
    return $text;
}

1;
