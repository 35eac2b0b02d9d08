# The mode `formats`: the same rows as JSON lines, as records of fixed length and in COPY's binary format, compared with the
# workload's own file. For the binary format, COPY is timed, too. The server writes the files from the rows that COPY has loaded.
#
# In this mode, a figure's rival is the format. In a record of fixed length each column has the width of its longest value, and is
# blank if it is NULL.
package Formats;
use strict;
use warnings;
use Time::HiRes qw(time);
use Report;
use Sources;
use Workload;

my $OWN = 'its own';

sub formats {
    my ($bench, $workload) = @_;
    return if $workload->{bad} || $workload->{index} || $workload->{unlogged};
    my $server = $bench->{server};
    my $name = $workload->{name};
    my %path = map { $_ => "$server->{base}/cluster/$name.$_" } qw(json fixed binary);
    $workload->reset;
    $server->query($workload->copy($workload->{path}));
    my @columns = split /\|/, $server->query(
        "SELECT string_agg(attname, '|' ORDER BY attnum) FROM pg_attribute WHERE attrelid = '$name'::regclass AND attnum > 0 AND NOT attisdropped");
    my @lengths = split /\|/, $server->query('SELECT ' . join(', ', map {"greatest(max(octet_length(\"$_\"::text)), 1)"} @columns) . " FROM $name");
    my $record = join ' || ', map {"rpad(coalesce(\"$columns[$_]\"::text, ''), $lengths[$_])"} 0 .. $#columns;
    # No value contains these two bytes, so each line is one value.
    my $bare = q{(FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02')};
    $server->query("COPY (SELECT row_to_json(t) FROM $name t) TO " . Workload::quote($path{json}) . " $bare",
        "COPY (SELECT $record FROM $name) TO " . Workload::quote($path{fixed}) . " $bare",
        "COPY $name TO " . Workload::quote($path{binary}) . ' (FORMAT binary)');
    my $places = join ', ', map {"{\"column\": \"$columns[$_]\", \"length\": $lengths[$_], \"nullif\": \"\"}"} 0 .. $#columns;
    my %options = (json => '"format": "json"', binary => '"format": "binary"', fixed => "\"format\": \"fixed\", \"columns\": [$places]");
    my $load = sub {
        return 'SELECT rows_loaded FROM bulk_load(' . join(', ', map { Workload::quote($_) } $path{ $_[0] }, $name, "{$options{$_[0]}}") . ')';
    };
    my @each = (
        [ $OWN, $workload->{bytes}, 'SELECT rows_loaded FROM bulk_load(' . $workload->arguments($workload->{path}) . ')' ],
        (map { [ $_, -s $path{$_}, $load->($_) ] } sort keys %path),
        [ 'binary, by COPY', -s $path{binary}, "COPY $name FROM " . Workload::quote($path{binary}) . ' (FORMAT binary)' ]);
    $bench->rounds(
        "$workload->{title}, formats",
        sub {
            my ($round, $one) = @_;
            my ($format, $bytes, $what) = @$one;
            $workload->reset;
            my $session = Sources::loader($bench, $workload);
            my $begin = time;
            $session->ask($what);
            my $seconds = time - $begin;
            undef $session;
            $workload->check("format: $format");
            $bench->record($workload, mode => 'formats', rival => $format, round => $round, figures => { seconds => $seconds, bytes => $bytes });
        },
        @each
    );
    unlink values %path;
}

sub table {
    my ($figures) = @_;
    my $text = Report::header('format', 'MB', 'median s', 'min–max s', 'its own = 1');
    my (%seconds, %bytes, @names);
    for (@$figures) {
        if ($_->{figure} eq 'bytes') { $bytes{ $_->{rival} } = $_->{value}; next }
        push @names, $_->{rival} if !$seconds{ $_->{rival} };
        push @{ $seconds{ $_->{rival} } }, $_->{value};
    }
    for my $name (@names) {
        my $ratio = Report::median(@{ $seconds{$name} }) / Report::median(@{ $seconds{$OWN} });
        $text .= Report::line($name, sprintf('%.0f', $bytes{$name} / 1e6), Report::seconds(@{ $seconds{$name} }), sprintf '%.2f', $ratio);
    }
    return $text;
}

1;
