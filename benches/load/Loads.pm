# The modes that measure a load's time and WAL: `load`, `append`, `parts`, `variants` and `scale`.
package Loads;
use strict;
use warnings;
use Rival;
use Workload;

# The server's settings, and whether the table's file is new in the loading transaction. A new file is logged
# unless wal_level is minimal; then the file is synced at commit.
my @MINIMAL = ('wal_level = minimal', 'max_wal_senders = 0');
my @VARIANTS = (
    { case => 'truncate', truncate => 1 },
    { case => 'wal_level minimal', settings => \@MINIMAL },
    { case => 'truncate, wal_level minimal', truncate => 1, settings => \@MINIMAL },
    { case => 'checksums', checksums => 1 },
    { case => 'checksums, truncate', checksums => 1, truncate => 1 },
    { case => 'checksums, wal_level minimal', checksums => 1, settings => \@MINIMAL },
    { case => 'checksums, truncate, wal_level minimal', checksums => 1, truncate => 1, settings => \@MINIMAL },
    { case => 'wal_level logical', settings => ['wal_level = logical'] },
    { case => 'wal_compression pglz', settings => ['wal_compression = pglz'] },
);

sub loads {
    my ($bench, $workload) = @_;
    time_loads($bench, $workload, "$workload->{title}, load", { mode => 'load' }, {},
        $bench->rivals($workload, @Rival::USUAL));
}

# A quarter more rows and, except with SIZE=small, a thousand more, into a table that has the file's rows already.
sub append {
    my ($bench, $workload) = @_;
    if ($workload->{bad} || $workload->{unlogged}) {
        $bench->note("$workload->{title}: nothing is appended to it");
        return;
    }
    # A thousand rows take as long to prepare as more, and the result does not depend on the size.
    my @more = (int($workload->{rows} / 4), $bench->{size} eq 'small' ? () : 1000);
    for my $more (@more) {
        my $other = Workload->new($bench, %$workload{qw(name rows index)}, more => $more);
        $other->begin;
        time_loads($bench, $other, "$other->{title}", { mode => 'append' }, {},
            $bench->rivals($other, @Rival::USUAL));
        $other->end;
    }
}

# The file in four parts: concurrent COPYs, and jobs in the queue.
sub parts {
    my ($bench, $workload) = @_;
    return if $workload->{bad};
    time_loads($bench, $workload, "$workload->{title}, parts", { mode => 'parts' }, {},
        $bench->rivals($workload, qw(copy two_copies four_copies bulk_load bulk_enqueue four_jobs)));
}

sub variants {
    my ($bench, $workload) = @_;
    my $server = $bench->{server};
    my @rivals = $bench->rivals($workload, qw(copy bulk_load));
    my $checksums = '';
    for my $variant (@VARIANTS) {
        my $wanted = $variant->{checksums} // '';
        $server->query("TRUNCATE $workload->{name}") if $wanted ne $checksums;
        $server->vary($variant->{settings} // [], $wanted ne $checksums ? ($wanted ? '--enable' : '--disable') : ());
        $checksums = $wanted;
        time_loads($bench, $workload, "$workload->{title}, $variant->{case}",
            { mode => 'variants', case => $variant->{case} }, { truncate => $variant->{truncate} }, @rivals);
    }
    $server->vary([], $checksums ? '--disable' : ());
}

# The same rows in files of several lengths, by several processes: the time for one row should be constant.
sub scale {
    my ($bench, $workload) = @_;
    return if $workload->{bad};
    for my $rows (@{ $bench->{scale} }) {
        $workload->has_room($rows) or next;
        my $other = Workload->new($bench, %$workload{qw(name index unlogged)}, rows => $rows);
        $other->begin;
        time_loads($bench, $other, "$other->{title}, $rows rows", { mode => 'scale', case => $rows }, {},
            $bench->rivals($other, qw(copy bulk_load bulk_load_0 bulk_load_1 bulk_load_2 floor)));
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
            my $figures = $bench->try($workload, $rival, sub { $rival->load($workload, %$how) }) or return;
            $bench->record($workload, %$what, rival => $rival->{name}, round => $round, figures => $figures);
        },
        @rivals
    );
}

1;
