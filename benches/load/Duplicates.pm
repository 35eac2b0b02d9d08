# The mode `duplicates`: the cost of duplicates, one in a hundred rows, compared with a file of as
# many rows without duplicates.
#
# Both rows of a duplicate key are equal, so the table's content does not depend on the one that is kept. The later one comes far
# behind the first, as in files that overlap.
package Duplicates;
use strict;
use warnings;
use Time::HiRes qw(time);
use Report;

my $EVERY = 99;
my $BEHIND = 100_000;
my @KINDS = ('no duplicates', 'keep_old', 'keep_new');

sub duplicates {
    my ($bench, $workload) = @_;
    return if !$workload->{index} || $workload->{unlogged} || $workload->{bad} || defined $workload->{held};
    my $server = $bench->{server};
    my ($with, $without) = map {"$workload->{path}.$_"} qw(twice once);
    write_files($workload->{path}, $workload->{rows}, $with, $without);
    $workload->reset;
    $server->query($workload->copy($without));
    my $expected = $workload->content;
    $bench->rounds(
        "$workload->{title}, duplicates",
        sub {
            my ($round, $kind) = @_;
            my $is_clean = $kind eq 'no duplicates';
            $workload->reset;
            my $session = $server->session;
            $session->ask("LOAD 'pg_bulk'");
            $session->ask("SELECT count(*) FROM (SELECT FROM $workload->{name} LIMIT 1) row");
            my $arguments = $workload->arguments($is_clean ? $workload->{path} : $with, $is_clean ? () : (on_duplicate => "\"$kind\""));
            my $begin = time;
            $session->ask("SELECT rows_loaded FROM bulk_load($arguments)");
            my $seconds = time - $begin;
            undef $session;
            local $workload->{expected} = $is_clean ? $workload->{expected} : $expected;
            $workload->check($kind);
            $bench->record($workload, mode => 'duplicates', case => '', rival => $kind, round => $round,
                figures => { seconds => $seconds });
        },
        @KINDS
    );
    unlink $with, $without;
}

# A file with the original number of rows, of which one in a hundred is a duplicate; and a file of these rows once each.
sub write_files {
    my ($path, $rows, $with, $without) = @_;
    open my $in, '<:raw', $path or die "$0: $path: $!\n";
    open my $twice, '>:raw', $with or die "$0: $with: $!\n";
    open my $once, '>:raw', $without or die "$0: $without: $!\n";
    chmod 0644, $with, $without;
    my ($number, $written, @later) = (0, 0);
    while ($written + @later < $rows and defined(my $line = <$in>)) {
        print $twice $line;
        print $once $line;
        ($number, $written) = ($number + 1, $written + 1);
        push @later, [$number, $line] if $number % $EVERY == 0;
        while (@later && $later[0][0] + $BEHIND <= $number) {
            print $twice (shift @later)->[1];
            $written++;
        }
    }
    print $twice $_->[1] for @later;
    close $_ or die "$0: $path: $!\n" for $twice, $once;
}

sub table {
    my ($figures) = @_;
    my $text = Report::header('1 % duplicates', 'median s', 'min–max s', 'no duplicates = 1');
    my %seconds;
    push @{ $seconds{ $_->{rival} } }, $_->{value} for @$figures;
    for my $kind (grep { $seconds{$_} } @KINDS) {
        my $ratio = $seconds{'no duplicates'} ? sprintf '%.2f', Report::median(@{ $seconds{$kind} }) / Report::median(@{ $seconds{'no duplicates'} }) : '';
        $text .= Report::line($kind, Report::seconds(@{ $seconds{$kind} }), $ratio);
    }
    return $text;
}

1;
