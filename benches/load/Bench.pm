# A run: what it was asked for, and every figure it has found.
#
# A figure is one number: {mode, workload, rows, bytes, case, rival, round, figure, value}. The case tells apart what a
# mode does to one rival: which scan, which setting of the server. Modes record figures, Report.pm makes tables of them;
# neither knows of the other.
package Bench;
use strict;
use warnings;
use POSIX qw(strftime);

# new(root =>, here =>, server =>, rounds =>, ...)
sub new {
    my ($class, %self) = @_;
    return bless { %self, figures => [], remarks => {} }, $class;
}

# A path below cargo's target directory.
sub target {
    my ($self, $path) = @_;
    my $target = $ENV{CARGO_TARGET_DIR} || 'target';
    return ($target =~ m{^/} ? $target : "$self->{root}/$target") . "/$path";
}

sub command { my ($self, @command) = @_; system(@command) == 0 or die "$0: failed: @command\n" }

sub note { my ($self, @words) = @_; print STDERR strftime('%H:%M:%S', localtime), " @words\n" }

# Room on the disk that the server's data and the files are on.
sub free_bytes {
    my ($self) = @_;
    my $base = $self->{server}{base};
    my (undef, $line) = qx(df -Pk "$base");
    return (split ' ', $line)[3] * 1024;
}

# Something to be told beside the tables, once.
sub remark { my ($self, $remark) = @_; $self->{remarks}{$remark} = 1 }

# record($workload, mode =>, case =>, rival =>, round =>, figures => {name => value})
sub record {
    my ($self, $workload, %what) = @_;
    my $figures = delete $what{figures};
    for my $figure (sort keys %$figures) {
        push @{ $self->{figures} }, {
            workload => $workload->{title}, rows => $workload->{rows}, bytes => $workload->{bytes}, case => '',
            %what, figure => $figure, value => $figures->{$figure},
        };
    }
}

# The rivals among these that were asked for and can load the workload.
sub rivals {
    my ($self, $workload, @names) = @_;
    my %wanted = map { $_ => 1 } @{ $self->{rivals} };
    return grep { $_->can_load($workload) } map { Rival->new($self, $_) } grep { $wanted{$_} } @names;
}

# Calls $what with each of the list, as often as there are rounds. The order rotates from round to round, so that a slow
# minute of the machine hits all of them alike.
sub rounds {
    my ($self, $title, $what, @list) = @_;
    for my $round (1 .. $self->{rounds}) {
        $self->note("$title: round $round of $self->{rounds}");
        $what->($round, $list[($_ + $round - 1) % @list]) for 0 .. $#list;
    }
}

1;
