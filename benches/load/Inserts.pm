# The mode `insert`: INSERT … SELECT from a foreign table, with other queries than all rows unchanged.
#
# The stored rows are compared with those of the same SELECT from the table that COPY has loaded.
package Inserts;
use strict;
use warnings;
use Time::HiRes qw(time);
use Rival;

# The SELECT from a table, by case: one row in ten, with two computed columns; all rows.
sub selects {
    my ($workload) = @_;
    my ($number, $text) = @$workload{qw(sum wide)};
    return (
        'INSERT of 10 %, two columns computed' => [ 1, "*, ${number}::bigint * 2 AS twice, upper($text) AS upper", " WHERE $number % 10 = 3" ],
        'CREATE TABLE AS' => [ 0, '*', '' ],
    );
}

sub inserts {
    my ($bench, $workload) = @_;
    return if $workload->{index} || $workload->{unlogged} || $workload->{bad} || !defined $workload->{wide};
    my $server = $bench->{server};
    my @rivals = $bench->rivals($workload, qw(file_fdw bulk_fdw bulk_fdw_direct));
    my $target = "$workload->{name}_stored";
    my %selects = selects($workload);
    # The bench's own table is the reference, and is empty after the loads.
    $workload->reset;
    $server->query($workload->copy($workload->{path}));
    for my $case (sort keys %selects) {
        my ($is_insert, $list, $where) = @{ $selects{$case} };
        my $content = "SELECT count(*), sum(hashtextextended(t::text, 0)::numeric) FROM";
        my $expected = $server->query("$content (SELECT $list FROM $workload->{name}$where) t");
        $bench->rounds(
            "$workload->{title}, $case",
            sub {
                my ($round, $rival) = @_;
                $server->query("DROP TABLE IF EXISTS $target",
                    $is_insert ? "CREATE TABLE $target AS SELECT $list FROM $workload->{name} WITH NO DATA" : (), 'CHECKPOINT');
                my $table = $rival->foreign_table($workload);
                my $select = "SELECT $list FROM $table$where";
                my $statement = $is_insert ? "INSERT INTO $target $select" : "CREATE TABLE $target AS $select";
                my $session = $server->session;
                $session->ask("LOAD 'pg_bulk'") if Rival::needs_pg_bulk($rival->{name});
                $session->ask("SELECT count(*) FROM (SELECT FROM $table LIMIT 1) row");
                if (Rival::needs_pg_bulk($rival->{name}) && $is_insert) {
                    $rival->choose_insert($session, $statement);
                } elsif (Rival::needs_pg_bulk($rival->{name})) {
                    $session->ask('SET pg_bulk.direct_insert = ' . ($rival->{name} eq 'bulk_fdw_direct' ? 'on' : 'off'));
                }
                my $begin = time;
                $session->ask($statement);
                my $seconds = time - $begin;
                undef $session;
                $workload->agree("what $rival->{name} stored, $case", scalar $server->query("$content $target t"), $expected);
                my $complaints = $server->query("SELECT blkno, offnum, msg FROM verify_heapam('$target') LIMIT 3");
                $workload->agree("verify_heapam after $rival->{name}, $case", $complaints, '');
                $bench->record($workload, mode => 'insert', case => $case, rival => $rival->{name}, round => $round,
                    figures => { seconds => $seconds });
            },
            @rivals
        );
    }
    $server->query("DROP TABLE IF EXISTS $target");
}

1;
