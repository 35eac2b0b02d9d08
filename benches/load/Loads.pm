# The modes that ask how long a load takes, and how much it logs: `load`, `variants` and `scale`.
package Loads;
use strict;
use warnings;
use Rival;
use Workload;

# What the server is set to, and whether the table's file is new in the loading transaction. WAL is logged for the
# latter unless wal_level is minimal; then the file is synced at commit.
my @VARIANTS = (
    { case => 'truncate', truncate => 1, settings => [] },
    {   case => 'truncate, wal_level minimal', truncate => 1,
        settings => ['wal_level = minimal', 'max_wal_senders = 0'] },
    { case => 'wal_level logical', settings => ['wal_level = logical'] },
    { case => 'wal_compression pglz', settings => ['wal_compression = pglz'] },
);

sub loads {
    my ($bench, $workload) = @_;
    # Workers 7 is more than most machines have cores for: not a way to be fast.
    my @rivals = $bench->rivals($workload, grep { $_ ne 'bulk_load_7' } @Rival::NAMES);
    time_loads($bench, $workload, "$workload->{title}, load", { mode => 'load' }, {}, @rivals);
}

sub variants {
    my ($bench, $workload) = @_;
    my $server = $bench->{server};
    my @rivals = $bench->rivals($workload, qw(copy bulk_load));
    for my $variant (@VARIANTS) {
        $server->vary(@{ $variant->{settings} });
        time_loads($bench, $workload, "$workload->{title}, $variant->{case}",
            { mode => 'variants', case => $variant->{case} }, { truncate => $variant->{truncate} }, @rivals);
    }
    $server->vary;
}

# The same rows in files of several lengths: does a row always cost the same?
sub scale {
    my ($bench, $workload) = @_;
    for my $rows (@{ $bench->{scale} }) {
        # Twice the file, its pages, its WAL, and a floor of the same size.
        my $bytes = $workload->{bytes} / $workload->{rows} * $rows;
        if ($bytes * 7 > $bench->free_bytes) {
            $bench->remark("$workload->{title}: no room on the disk for $rows rows, left out of the cost per row");
            next;
        }
        my $other = Workload->new($bench, name => $workload->{name}, rows => $rows, index => $workload->{index});
        $other->begin;
        time_loads($bench, $other, "$other->{title}, $rows rows", { mode => 'scale', case => $rows }, {},
            $bench->rivals($other, qw(copy bulk_load floor)));
        $other->end;
    }
    $workload->make_table;
}

sub time_loads {
    my ($bench, $workload, $title, $what, $how, @rivals) = @_;
    $bench->rounds(
        $title,
        sub {
            my ($round, $rival) = @_;
            my $figures = $rival->load($workload, %$how);
            $bench->record($workload, %$what, rival => $rival->{name}, round => $round, figures => $figures);
        },
        @rivals
    );
}

1;
