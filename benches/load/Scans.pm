# The mode `scan`: a file is read through each foreign data wrapper, without a load.
package Scans;
use strict;
use warnings;
use Time::HiRes qw(time);

sub scans {
    my ($bench, $workload) = @_;
    # Indexes and UNLOGGED make no difference for a file; bad rows do.
    return if $workload->{index} || $workload->{unlogged} || $workload->{bad};
    my $server = $bench->{server};
    my @wrappers = $bench->rivals($workload, qw(file_fdw bulk_fdw bulk_fdw_serial));
    my @scans = ('count(*)', "sum($workload->{sum})", $workload->columns(q('count(' || quote_ident(attname) || ')')));
    # The table has the file's rows, from any earlier load.
    my %answer = map { $_ => scalar $server->query("SELECT $_ FROM $workload->{name}") } @scans;
    for my $scan (@scans) {
        $bench->rounds(
            "$workload->{title}, scan",
            sub {
                my ($round, $wrapper) = @_;
                my $table = $wrapper->foreign_table($workload);
                my $serial = $wrapper->{name} eq 'bulk_fdw_serial' ? 'SET max_parallel_workers_per_gather = 0' : undef;
                my ($seconds, $found) = timed($server, $table, "SELECT $scan FROM $table", $serial);
                $workload->agree("SELECT $scan by $wrapper->{name}", $found, $answer{$scan});
                $bench->record($workload, mode => 'scan', case => short($scan), rival => $wrapper->{name},
                    round => $round, figures => { seconds => $seconds });
            },
            @wrappers
        );
    }
}

# Returns the seconds and the answer of a statement. The session has read a row of the table before, and has loaded the JIT library. The
# server loads it once in a session, in 20 ms, for a costly plan with expressions, so for parallel counts and not for serial ones.
sub timed {
    my ($server, $table, $statement, $setting) = @_;
    my $session = $server->session;
    $session->ask($setting) if defined $setting;
    $session->ask('SET jit_above_cost = 0');
    $session->ask("SELECT count(*) FROM (SELECT FROM $table LIMIT 1) row");
    $session->ask('RESET jit_above_cost');
    my $begin = time;
    my $answer = $session->ask($statement);
    return (time - $begin, $answer);
}

# A select list of all columns is shown as its first and its last one.
sub short { my ($scan) = @_; return $scan =~ /^([^,]+), .*, ([^,]+)$/ ? "$1, …, $2" : $scan }

1;
