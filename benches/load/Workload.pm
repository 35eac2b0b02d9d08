# A workload: its file, its table, and what the table must hold after a load.
#
# `load/<name>.sql` has the table, the options that read the file in COPY's words, and the indexes; `generate` writes
# the file. Files stay for the next run, halves (for two COPYs at once) only as long as the workload is measured.
#
# The tricky point is what "the same rows" means. After each load the rows are compared with those of one COPY by number
# and by a checksum that does not depend on their order; verify_heapam must find nothing to say about the pages, nor
# bt_index_check about the indexes. The first difference ends the run.
package Workload;
use strict;
use warnings;
use Digest::MD5;

# new($bench, name =>, rows =>, index =>)
sub new {
    my ($class, $bench, %self) = @_;
    my $self = bless { %self, bench => $bench, title => $self{name} . ($self{index} ? '+index' : '') }, $class;
    $self->read_definition;
    $self->make_file;
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
    ($self->{table}, $self->{indexes}) = split /^-- indexes\n/m, $text;
}

# The file, generated unless it is there. The stamp beside it, written last, names its size and the generator, so that
# neither half a file nor one of an older generator is taken for it.
sub make_file {
    my ($self) = @_;
    my $bench = $self->{bench};
    my $path = "$bench->{server}{base}/$self->{name}-$self->{rows}.data";
    my $program = $bench->target('release/generate');
    open my $binary, '<:raw', $program or die "$0: $program: $!\n";
    my $generator = Digest::MD5->new->addfile($binary)->hexdigest;
    my $known = '';
    if (open my $stamp, '<', "$path.stamp") { $known = <$stamp> // '' }
    if ($known ne "$generator " . (-s $path // '')) {
        $bench->note("generating $self->{name}, $self->{rows} rows");
        unlink "$path.stamp";
        $bench->command('sh', '-c', '"$0" "$@" >/dev/null', $program, @$self{qw(name rows)}, $path);
        chmod 0644, $path;
        open my $stamp, '>', "$path.stamp" or die "$0: $path.stamp: $!\n";
        print $stamp "$generator ", -s $path;
        close $stamp or die "$0: $path.stamp: $!\n";
    }
    @$self{qw(path bytes)} = ($path, -s $path);
}

# The file in two halves, cut behind a record. No generated value holds a line end.
sub halves {
    my ($self) = @_;
    my @halves = map { "$self->{path}.half$_" } 1, 2;
    if (!$self->{cut}) {
        open my $file, '<:raw', $self->{path} or die "$0: $self->{path}: $!\n";
        seek $file, int($self->{bytes} / 2), 0;
        <$file>;
        $self->{cut} = tell $file;
        $self->{bench}->command('sh', '-c', 'head -c "$1" "$0" >"$2" && tail -c +"$(($1 + 1))" "$0" >"$3"',
            $self->{path}, $self->{cut}, @halves);
        chmod 0644, @halves;
    }
    return @halves;
}

# Makes the table and loads it once by COPY, which warms the page cache and tells which rows must be there.
sub begin {
    my ($self) = @_;
    my $bench = $self->{bench};
    $bench->note("$self->{title}, $self->{rows} rows: what to expect");
    $self->make_table;
    $bench->{server}->query($self->copy($self->{path}));
    $self->{expected} = $self->content;
    my ($rows) = $self->{expected} =~ /^([0-9]+)/;
    $self->agree('the number of rows that COPY loads', $rows, $self->{rows});
    $self->{heap} = $self->heap_bytes;
}

# The table anew, and the foreign tables that read the file.
sub make_table {
    my ($self) = @_;
    my ($bench, $name) = @$self{qw(bench name)};
    my $server = $bench->{server};
    my @readers = $bench->rivals($self, qw(file_fdw bulk_fdw));
    $server->query((map { 'DROP FOREIGN TABLE IF EXISTS ' . $_->foreign_table($self) } @readers),
        "DROP TABLE IF EXISTS $name", $self->{table}, $self->{index} ? $self->{indexes} : ());
    my $columns = $self->columns(q(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod)));
    my $options = 'filename ' . quote($self->{path}) . ", $self->{options}";
    $server->query('CREATE FOREIGN TABLE ' . $_->foreign_table($self)
            . " ($columns) SERVER $_->{server} OPTIONS ($options)") for @readers;
}

sub end {
    my ($self) = @_;
    $self->{bench}{server}->query("TRUNCATE $self->{name}", 'CHECKPOINT');
}

# Also if the run is cut short. Halves that another workload has made of the same file are its own.
sub DESTROY { my ($self) = @_; unlink $self->halves if $self->{cut} }

sub heap_bytes { my ($self) = @_; return $self->{bench}{server}->query("SELECT pg_relation_size('$self->{name}')") }

# COPY of a file into the table.
sub copy {
    my ($self, $path) = @_;
    return "COPY $self->{name} FROM " . quote($path) . " WITH ($self->{options})";
}

# A call of bulk_load: its answer is rows | writer | workers | notes. Values of %more are JSON.
sub bulk_load {
    my ($self, %more) = @_;
    my %options = ($self->{options} =~ /(\w+) '((?:[^']|'')*)'/g);
    $_ = '"' . s/''/'/gr =~ s/(["\\])/\\$1/gr . '"' for values %options;
    %options = (%options, %more);
    my $json = '{' . join(', ', map { "\"$_\": $options{$_}" } sort keys %options) . '}';
    return 'SELECT rows_loaded, writer, workers, array_to_string(notes, \' \') FROM bulk_load('
        . join(', ', map { quote($_) } $self->{path}, $self->{name}, $json) . ')';
}

sub quote { my ($text) = @_; return "'" . $text =~ s/'/''/gr . "'" }

# An expression over pg_attribute for each column of the table, separated by commas.
sub columns {
    my ($self, $expression) = @_;
    return scalar $self->{bench}{server}->query("SELECT string_agg($expression, ', ' ORDER BY attnum) FROM pg_attribute"
            . " WHERE attrelid = '$self->{name}'::regclass AND attnum > 0");
}

# What must be equal after two loads of the same file: the number of rows and the sum of their hashes. Rows that others
# inserted meanwhile have negative ids.
sub content {
    my ($self) = @_;
    return scalar $self->{bench}{server}->query('SELECT count(*), sum(hashtextextended(t::text, 0)::numeric)'
            . " FROM $self->{name} t WHERE $self->{sum} >= 0");
}

# Fails unless the table is what it must be after a load by $rival.
sub check {
    my ($self, $rival) = @_;
    my ($server, $name) = ($self->{bench}{server}, $self->{name});
    $self->agree("the content after $rival", scalar $self->content, $self->{expected});
    my $complaints = $server->query("SELECT blkno, offnum, msg FROM verify_heapam('$name') LIMIT 3");
    $self->agree("verify_heapam after $rival", $complaints, '');
    # A B-tree must be sound and know every row of the heap.
    $server->query("SELECT bt_index_check(indexrelid, true) FROM pg_index WHERE indrelid = '$name'::regclass");
}

sub agree {
    my ($self, $what, $found, $expected) = @_;
    $found eq $expected
        or die "$0: $self->{title}: $what is wrong, its time does not count:\n  found    $found\n"
        . "  expected $expected\n";
}

1;
