# Loaders that are external programs: pg_bulkload, timescaledb-parallel-copy, pgloader. They are measured if they are
# installed, with a typical user's command. The bench does not build them.
#
# A file that a program cannot read is left out, with a reason. A program that fails is left out from then on, and the report says so:
# a broken installation of an external program must not prevent all figures.
package Programs;
use strict;
use warnings;

# The path of the program, if it is found; for pg_bulkload, only together with its extension.
sub find {
    my ($bench, $name) = @_;
    my $program = $name =~ /^pg_bulkload/ ? 'pg_bulkload' : $name =~ tr/_/-/r;
    return $bench->{programs}{$program} //= do {
        my ($found) = grep { -x } map {"$_/$program"} $bench->{bindir}, split /:/, $ENV{PATH} // '';
        undef $found if $program eq 'pg_bulkload' && !-e "$bench->{sharedir}/extension/pg_bulkload.control";
        $found // '';
    };
}

# See Rival::lacks.
sub lacks {
    my ($name, $bench, $workload) = @_;
    return 'not installed' if !length find($bench, $name);
    return $bench->{failed}{$name} if defined $bench->{failed}{$name};
    # In a run that tried it with `customer`, bt_index_check found TIDs of equal keys out of order: a wrong result has no time.
    return 'leaves B-trees of a table with rows out of order' if defined $workload->{held} && $workload->{index} && $name =~ /^pg_bulkload/;
    return '' if $workload->{bad} || defined $workload->{held} && $name !~ /^pg_bulkload/;
    my $csv = $workload->{options} =~ /\bformat 'csv'/;
    return 'reads no text format but CSV' if !$csv && $name =~ /^pg_bulkload/;
    return 'cuts files at every line end' if $workload->{name} eq 'documents' && $name =~ /^timescaledb/;
    return undef;
}

# Runs a program; the time ends when the program does.
sub run {
    my ($rival, @command) = @_;
    my $bench = $rival->{bench};
    return if system('sh', '-c', '"$0" "$@" >/dev/null', @command) == 0;
    $bench->{failed}{ $rival->{name} } = 'failed when it was tried';
    die "$rival->{name} failed: @command\n";
}

sub option {
    my ($workload, $name) = @_;
    my ($value) = $workload->{options} =~ /\b$name '([^']*)'/;
    return $value;
}

sub pg_bulkload {
    my ($writer) = @_;
    return sub {
        my ($rival, $workload) = @_;
        my ($null, $delimiter) = map { option($workload, $_) } qw(null delimiter);
        my @options = ('TYPE=CSV', "WRITER=$writer", defined $null ? "NULL=$null" : (),
            defined $delimiter ? "DELIMITER=$delimiter" : ());
        run($rival, find($rival->{bench}, 'pg_bulkload'), '-d', $rival->{bench}{server}->database, '-i',
            $workload->{path}, '-O', $workload->{name}, map { ('-o', $_) } @options);
    };
}

sub timescaledb_parallel_copy {
    my ($rival, $workload) = @_;
    my ($bench, $csv) = ($rival->{bench}, $workload->{options} =~ /\bformat 'csv'/);
    my $null = option($workload, 'null');
    run($rival, find($bench, $rival->{name}),
        '--connection', "host=$ENV{PGHOST} port=$ENV{PGPORT} user=$ENV{PGUSER} sslmode=disable",
        '--db-name', $bench->{server}->database, '--table', $workload->{name}, '--file', $workload->{path},
        '--workers', 2, '--split', option($workload, 'delimiter') // ($csv ? ',' : "\t"),
        '--copy-options', ($csv ? 'CSV' : '') . (defined $null ? " NULL '$null'" : ''));
}

sub pgloader {
    my ($rival, $workload) = @_;
    my ($bench, $csv) = ($rival->{bench}, $workload->{options} =~ /\bformat 'csv'/);
    my $delimiter = option($workload, 'delimiter') // ($csv ? ',' : '\t');
    my $null = option($workload, 'null') // ($csv ? '' : '\N');
    my $quotes = $csv ? q(fields optionally enclosed by '"', fields escaped by double-quote,) : 'fields not enclosed,';
    my $target = "postgresql://$ENV{PGUSER}\@unix:$ENV{PGHOST}:$ENV{PGPORT}/" . $bench->{server}->database;
    my $script = "$bench->{server}{base}/pgloader.load";
    open my $file, '>', $script or die "$0: $script: $!\n";
    print $file "LOAD CSV FROM '$workload->{path}' INTO $target TARGET TABLE public.$workload->{name}\n"
        . "WITH $quotes fields terminated by '$delimiter', null if '$null', workers = 2, concurrency = 1;\n";
    close $file or die "$0: $script: $!\n";
    run($rival, find($bench, 'pgloader'), '--on-error-stop', $script);
}

1;
