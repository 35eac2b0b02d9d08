# The mode `filters`: loads with a function that returns each row unchanged, compared with the load without one. A function in SQL is
# inlined. Functions in C and PL/pgSQL are called, with the fields or with the row as an argument. The resulting rows are checked as
# usual, since they are the same.
#
# In this mode, a figure's rival is the function's language.
package Filters;
use strict;
use warnings;
use FindBin;
use Time::HiRes qw(time);
use Report;
use Sources;

my $PLAIN = 'none';
# A function with field arguments builds a row; one with a row argument only returns it.
my %BODY = (
    C               => ['c', 'filter_same'],
    SQL             => ['sql', sub { "SELECT $_[0] WHERE \$1 IS NOT NULL OR \$1 IS NULL" }],
    'PL/pgSQL'      => ['plpgsql', sub { "BEGIN RETURN ($_[0]); END" }],
    'C, row'        => ['c', 'filter_whole'],
    'SQL, row'      => ['sql', sub {"SELECT \$1 WHERE \$1.$_[1] IS NOT NULL OR \$1.$_[1] IS NULL"}],
    'PL/pgSQL, row' => ['plpgsql', sub {'BEGIN RETURN $1; END'}],
);

sub filters {
    my ($bench, $workload) = @_;
    return if $workload->{bad};
    my $server = $bench->{server};
    my @types = split /\|/, $server->query(
        "SELECT string_agg(format_type(atttypid, NULL), '|' ORDER BY attnum) FROM pg_attribute"
            . " WHERE attrelid = '$workload->{name}'::regclass AND attnum > 0 AND NOT attisdropped");
    my $arguments = join ', ', @types;
    my $first = $server->query("SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = '$workload->{name}'::regclass AND attnum = 1");
    my $columns = join ', ', map {"\$$_"} 1 .. @types;
    my @languages = sort keys %BODY;
    my %takes = map { $_ => /row/ ? $workload->{name} : $arguments } @languages;
    my %name = map { $_ => 'filter_' . $BODY{$_}[0] . (/row/ ? '_row' : '') } @languages;
    my $library = library($bench);
    $server->query(map {
        my ($language, $body) = @{ $BODY{$_} };
        my $text = ref $body ? '$body$' . $body->($columns, $first) . '$body$' : "'$library', '$body'";
        "CREATE FUNCTION $name{$_}($takes{$_}) RETURNS $workload->{name} LANGUAGE $language IMMUTABLE PARALLEL SAFE AS $text";
    } @languages);
    $bench->rounds(
        "$workload->{title}, filters",
        sub {
            my ($round, $language) = @_;
            my %more = $language eq $PLAIN ? () : (filter => "\"$name{$language}\"");
            $workload->reset;
            my $session = Sources::loader($bench, $workload);
            my $begin = time;
            $session->ask('SELECT rows_loaded FROM bulk_load(' . $workload->arguments($workload->{path}, %more) . ')');
            my $seconds = time - $begin;
            undef $session;
            $workload->check("filter: $language");
            $bench->record($workload, mode => 'filters', rival => $language, round => $round, figures => { seconds => $seconds });
        },
        $PLAIN, @languages
    );
    $server->query(map {"DROP FUNCTION $name{$_}"} @languages);
}

# The tests' filters, compiled for the server, in a directory that it can read.
sub library {
    my ($bench) = @_;
    my $server = $bench->{server};
    my $path = "$server->{base}/filters.so";
    chomp(my $headers = qx("$bench->{bindir}/pg_config" --includedir-server));
    system('cc', '-O2', '-shared', '-fPIC', "-I$headers", '-o', $path, "$FindBin::RealBin/../../pg_test/filters/filters.c") == 0 or die "$0: cc\n";
    chmod 0755, $path;
    return $path;
}

sub table {
    my ($figures) = @_;
    my $text = Report::header('filter', 'median s', 'min–max s', 'of the time without');
    my (%seconds, @names);
    for (@$figures) {
        push @names, $_->{rival} if !$seconds{ $_->{rival} };
        push @{ $seconds{ $_->{rival} } }, $_->{value};
    }
    for my $name (@names) {
        my $ratio = '';
        $ratio = sprintf '%.2f', Report::median(@{ $seconds{$name} }) / Report::median(@{ $seconds{$PLAIN} }) if $name ne $PLAIN;
        $text .= Report::line($name, Report::seconds(@{ $seconds{$name} }), $ratio);
    }
    return $text;
}

1;
