# A workload: its file, its table, and the expected content of the table after a load.
#
# `load/<name>.sql` has the table, COPY's options for the file, and the indexes; `generate` writes
# the file. Files stay for the next run. Parts of them (for several COPYs at once) stay only while the workload is measured.
#
# A name can have suffixes: `+index` and `+unlogged`, as in test+index. With `more`, the table has the
# rows of the file already, and this number of rows is loaded in addition. The table is then in a database of its own, which is
# copied for each load, so that each load finds the same pages and indexes.
#
# The tricky point is the meaning of "the same rows". After each load the rows are compared with those of one COPY by number
# and by a checksum that does not depend on their order; verify_heapam must find no error in the pages, and
# bt_index_check none in the indexes. The first difference ends the run. For a file with bad rows, COPY loads a copy
# without them.
package Workload;
use strict;
use warnings;
use Digest::MD5;

# new($bench, name =>, rows =>, index =>, unlogged =>, more =>)
sub new {
    my ($class, $bench, %self) = @_;
    my $self = bless { %self, bench => $bench, files => {} }, $class;
    $self->{title} = join '', $self->{name}, $self->{index} ? '+index' : '', $self->{unlogged} ? '+unlogged' : '';
    $self->read_definition;
    if (defined $self->{more}) {
        $self->{held} = $self->{rows};
        $self->{rows} = $self->{more};
        $self->{title} .= ', ' . $self->{more} =~ s/(?<=[0-9])(?=(?:[0-9]{3})+$)/,/gr . ' rows more';
    }
    $self->{path} = $self->file($self->{rows}, 1 + ($self->{held} // 0));
    $self->{bytes} = -s $self->{path};
    return $self;
}

sub read_definition {
    my ($self) = @_;
    my $name = $self->{name};
    open my $file, '<', "$self->{bench}{here}/$name.sql" or die "$0: $name.sql: $!\n";
    my $text = do { local $/; <$file> };
    ($self->{options}) = $text =~ /^-- options: (.+)$/m or die "$0: $name.sql tells no options\n";
    ($self->{sum})     = $text =~ /^-- sum: (\w+)$/m    or die "$0: $name.sql tells no column to sum\n";
    ($self->{wide})    = $text =~ /^-- wide: (\w+)$/m;
    ($self->{generator}) = $text =~ /^-- file: (\w+)$/m;
    $self->{generator} //= $name;
    $self->{bad} = $text =~ /^-- bad rows$/m;
    ($self->{table}, $self->{indexes}) = split /^-- indexes\n/m, $text;
    $self->{table} =~ s/^CREATE TABLE/CREATE UNLOGGED TABLE/m if $self->{unlogged};
}

# A file of rows from number $first on, generated unless it exists. The stamp beside it, written last, has its
# size and the generator, so that neither a partial file nor one of an older generator is used.
sub file {
    my ($self, $rows, $first, @options) = @_;
    my $bench = $self->{bench};
    my $path = join '-', "$bench->{server}{base}/$self->{generator}", $rows, $first > 1 ? $first : (),
        map { s/^--//r } @options;
    $path .= '.data';
    my $program = $bench->target('release/generate');
    open my $binary, '<:raw', $program or die "$0: $program: $!\n";
    my $generator = Digest::MD5->new->addfile($binary)->hexdigest;
    my $known = '';
    if (open my $stamp, '<', "$path.stamp") { $known = <$stamp> // '' }
    if ($known ne "$generator " . (-s $path // '')) {
        $bench->note("generating $self->{generator}, $rows rows");
        unlink "$path.stamp";
        $bench->command('sh', '-c', '"$0" "$@" >/dev/null', $program, $self->{generator}, $rows, $path, '--start-id',
            $first, @options);
        chmod 0644, $path;
        open my $stamp, '>', "$path.stamp" or die "$0: $path.stamp: $!\n";
        print $stamp "$generator ", -s $path;
        close $stamp or die "$0: $path.stamp: $!\n";
    }
    return $path;
}

# The file in consecutive parts.
sub parts {
    my ($self, $count) = @_;
    my $done = 0;
    my @parts;
    for my $part (1 .. $count) {
        my $upto = int($self->{rows} * $part / $count);
        push @parts, $self->file($upto - $done, 1 + ($self->{held} // 0) + $done) if $upto > $done;
        $done = $upto;
    }
    $self->{files}{$_} = 1 for @parts;
    return @parts;
}

# Creates the table and loads it once by COPY, which warms the page cache and determines the expected rows.
sub begin {
    my ($self) = @_;
    my $bench = $self->{bench};
    $bench->note("$self->{title}, $self->{rows} rows: what to expect");
    $self->make_base if defined $self->{held};
    $self->make_table if !defined $self->{held};
    $self->reset;
    $self->{good_path} = $self->{bad} ? $self->file($self->{rows}, 1, '--good') : $self->{path};
    $bench->{server}->query($self->copy($self->{good_path}));
    $self->{expected} = $self->content;
    my ($rows) = $self->{expected} =~ /^([0-9]+)/;
    $self->{good_rows} = $rows - ($self->{held} // 0);
    $self->agree('the number of rows that COPY loads', $self->{good_rows}, $self->{rows}) if !$self->{bad};
    $self->{heap} = $self->heap_bytes;
}

# The base table for `more`, in a database of its own. No session is connected to it when it is copied.
sub make_base {
    my ($self) = @_;
    my ($bench, $more) = @$self{qw(bench more)};
    my $server = $bench->{server};
    $self->drop_databases;
    $server->query("CREATE DATABASE bench_base");
    local $server->{database} = 'bench_base';
    $bench->create_extensions;
    $self->make_table;
    $server->query($self->copy($self->file($self->{held}, 1)));
    $server->query("VACUUM ANALYZE $self->{name}");
}

sub drop_databases {
    my ($self) = @_;
    my $server = $self->{bench}{server};
    local $server->{database} = 'postgres';
    $server->query(map { "DROP DATABASE IF EXISTS $_ (FORCE)" } qw(bench_base bench_copy));
}

# The table in the state before each load: empty, in a file that is not new; or with the base rows, and its
# indexes in shared buffers, as those of a table in use are.
sub reset {
    my ($self) = @_;
    my $server = $self->{bench}{server};
    if (!defined $self->{held}) {
        $server->query("TRUNCATE $self->{name}", 'CHECKPOINT');
        return;
    }
    # Copies files, and does not log pages one by one; 14 has no other strategy, and no option for it.
    my $strategy = $self->{bench}{major} >= 15 ? 'STRATEGY file_copy' : '';
    {
        local $server->{database} = 'postgres';
        $server->query('DROP DATABASE IF EXISTS bench_copy (FORCE)',
            "CREATE DATABASE bench_copy TEMPLATE bench_base $strategy");
    }
    $server->{database} = 'bench_copy';
    $server->query("SELECT sum(pg_prewarm(indexrelid)) FROM pg_index WHERE indrelid = '$self->{name}'::regclass",
        'CHECKPOINT');
}

# Creates the table again, and the foreign tables that read the file.
sub make_table {
    my ($self, $without_indexes) = @_;
    my ($bench, $name) = @$self{qw(bench name)};
    my $server = $bench->{server};
    my @readers = grep { defined $_->{server} } $bench->rivals($self, qw(file_fdw bulk_fdw bulk_fdw_serial bulk_fdw_direct bulk_fdw_exclusive));
    $server->query((map { 'DROP FOREIGN TABLE IF EXISTS ' . $_->foreign_table($self) } @readers),
        "DROP TABLE IF EXISTS $name", $self->{table}, $self->{index} && !$without_indexes ? $self->{indexes} : ());
    my $columns = $self->columns(q(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod)));
    my $options = 'filename ' . quote($self->{path}) . ", $self->{options}";
    $options .= ", on_error 'ignore'" if $self->{bad};
    $server->query('CREATE FOREIGN TABLE ' . $_->foreign_table($self)
            . " ($columns) SERVER $_->{server} OPTIONS ($options)") for @readers;
}

sub end {
    my ($self) = @_;
    my $server = $self->{bench}{server};
    if (defined $self->{held}) {
        $self->drop_databases;
        delete $server->{database};
        return;
    }
    $server->query("TRUNCATE $self->{name}", 'CHECKPOINT');
}

# Not kept for the next run: the file is removed with the workload.
sub discard { my ($self) = @_; $self->{files}{ $self->{path} } = 1 }

# Also if the run is interrupted.
sub DESTROY {
    my ($self) = @_;
    unlink $_, "$_.stamp" for keys %{ $self->{files} };
}

# Whether the disk has space for the file with this number of rows, its
# pages, its WAL, and a floor of the same size; if not, a remark is added.
sub has_room {
    my ($self, $rows) = @_;
    my $bench = $self->{bench};
    return 1 if $self->{bytes} / $self->{rows} * $rows * 7 <= $bench->free_bytes;
    $bench->remark("$self->{title}: no room on the disk for $rows rows, left out of the cost per row");
    return '';
}

sub heap_bytes { my ($self) = @_; return $self->{bench}{server}->query("SELECT pg_relation_size('$self->{name}')") }

sub index_bytes { my ($self) = @_; return $self->{bench}{server}->query("SELECT pg_indexes_size('$self->{name}')") }

# Runs COPY of a file into the table.
sub copy {
    my ($self, $path, $more) = @_;
    return "COPY $self->{name} FROM " . quote($path) . " WITH ($self->{options}" . ($more // '') . ')';
}

# The arguments of bulk_load and bulk_enqueue. Values of %more are JSON.
sub arguments {
    my ($self, $path, %more) = @_;
    my %options = ($self->{options} =~ /(\w+) '((?:[^']|'')*)'/g);
    $_ = '"' . s/''/'/gr =~ s/(["\\])/\\$1/gr . '"' for values %options;
    $options{on_error} = '"ignore"' if $self->{bad};
    %options = (%options, %more);
    my $json = '{' . join(', ', map { "\"$_\": $options{$_}" } sort keys %options) . '}';
    return join ', ', map { quote($_) } $path, $self->{name}, $json;
}

# A call of bulk_load: its answer is rows | rejected | writer | workers | indexes | notes, unformatted. In a new session, planning
# an expression over them would take half as long as loading a thousand rows.
sub bulk_load {
    my ($self, %more) = @_;
    return 'SELECT rows_loaded, rows_rejected, writer, workers, indexes, notes FROM bulk_load('
        . $self->arguments($self->{path}, %more) . ')';
}

# Enqueues files, and waits for the jobs: the answer is a status for each.
sub bulk_enqueue {
    my ($self, @paths) = @_;
    my $enqueue = join ', ', map { 'bulk_enqueue(' . $self->arguments($paths[$_]) . ") AS job$_" } 0 .. $#paths;
    my $wait = join ', ', map {"bulk_wait(:job$_)"} 0 .. $#paths;
    return "SELECT $enqueue \\gset\nSELECT $wait";
}

sub quote { my ($text) = @_; return "'" . $text =~ s/'/''/gr . "'" }

# An expression over pg_attribute for each column of the table, separated by commas.
sub columns {
    my ($self, $expression) = @_;
    return scalar $self->{bench}{server}->query("SELECT string_agg($expression, ', ' ORDER BY attnum) FROM pg_attribute"
            . " WHERE attrelid = '$self->{name}'::regclass AND attnum > 0");
}

# The data that must be equal after two loads of the same file: the number of rows and the sum of their hashes. Rows that other
# sessions inserted meanwhile have negative ids.
sub content {
    my ($self) = @_;
    return scalar $self->{bench}{server}->query('SELECT count(*), sum(hashtextextended(t::text, 0)::numeric)'
            . " FROM $self->{name} t WHERE $self->{sum} >= 0");
}

# Fails unless the table is as expected after a load by $rival.
sub check {
    my ($self, $rival) = @_;
    my ($server, $name) = ($self->{bench}{server}, $self->{name});
    $self->agree("the content after $rival", scalar $self->content, $self->{expected});
    my $complaints = $server->query("SELECT blkno, offnum, msg FROM verify_heapam('$name') LIMIT 3");
    $self->agree("verify_heapam after $rival", $complaints, '');
    # A B-tree must exist, be valid, and have every row of the heap.
    my ($valid) = $server->query("SELECT count(*) FROM (SELECT bt_index_check(indexrelid, true) FROM pg_index"
            . " WHERE indrelid = '$name'::regclass AND indisvalid) valid");
    my $wanted = $self->{index} ? () = $self->{indexes} =~ /^(?:ALTER|CREATE)/mg : 0;
    $self->agree("the number of indexes after $rival", $valid, $wanted);
}

sub agree {
    my ($self, $what, $found, $expected) = @_;
    $found eq $expected
        or die "$0: $self->{title}: $what is wrong, its time does not count:\n  found    $found\n"
        . "  expected $expected\n";
}

1;
