
=pod

=head1 NAME

Differential - a scan by bulk_fdw and a load by bulk_load compared with COPY of the same file

=head1 SYNOPSIS

  my $suite = Differential->new($node, 'postgres', seed => 42);
  $suite->add('lone CR', "a\rb\n", ['a text'], { format => 'csv' });
  $suite->run;

=head1 DESCRIPTION

A case is one file, one set of options, one list of columns. add() queues the
cases of a suite, and run() writes them to one psql session, one statement
each. comparison.sql compares in the server, and returns only the
disagreements. Each statement has a timeout. A case without a row in C<done>
hung or crashed the server. After a crash the other cases run in a new session.

Cases with the same label make one TAP result.

PG_BULK_FDW=file_fdw replaces bulk_fdw by file_fdw. Since file_fdw uses COPY's
code, every comparison must then hold. Options that only bulk_fdw has are left
out, and so are loads.
PG_BULK_SEED sets the seed, PG_BULK_SOAK=1 runs all chunk sizes, both writers for
each case and all grids, which takes days; PG_BULK_TIMES=3 runs three times as
many random cases as without it.

=cut

package Differential;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use File::Basename qw(dirname);
use File::Spec::Functions qw(rel2abs);
use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Options qw(sql_string text_columns column_name copy_options scan_options scan_columns load_options);
use Restart qw(comes_back);

our @EXPORT_OK = qw(bulk_fdw soak sample seed start_server escaped write_bytes install_wrapper);

use constant CHUNK_GUC => 'pg_bulk.chunk_size';
use constant CHUNK_SIZES => (1, 2, 3, 7, 63, 64, 65, 127, 4096);

# More reports would add little.
use constant MISMATCHES_SHOWN => 3;

sub bulk_fdw { return ($ENV{PG_BULK_FDW} // 'bulk_fdw') eq 'bulk_fdw'; }
sub soak     { return $ENV{PG_BULK_SOAK} // 0; }

# The number of random cases: usually $usual times PG_BULK_TIMES, at most all possible ones, and all of them with PG_BULK_SOAK.
sub sample
{
	my ($usual, $all) = @_;
	my $number = $usual * ($ENV{PG_BULK_TIMES} // 1);
	return soak() || $number > $all ? $all : $number;
}

my $seed = $ENV{PG_BULK_SEED} // 20240229;
sub seed { return $seed; }

# A server with UTF8 databases and a locale that sorts and folds by bytes. It
# restarts after a crash, so that one bad case does not end the run.
sub start_server
{
	my ($name) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	delete $ENV{RUST_BACKTRACE};    # it would add backtraces to DETAIL
	$node->init(extra => [ '-E', 'UTF8', '--locale=C.UTF-8' ]);
	$node->append_conf('postgresql.conf', <<'CONF');
restart_after_crash = on
log_statement = none
log_min_error_statement = panic
log_min_messages = fatal
autovacuum = off
max_locks_per_transaction = 256
CONF
	$node->start;
	return $node;
}

# Server bulk_files, of the extension or of its substitute.
sub install_wrapper
{
	my ($node, $database) = @_;
	$node->safe_psql(
		$database,
		bulk_fdw()
		? 'CREATE EXTENSION pg_bulk'
		: 'CREATE EXTENSION file_fdw; CREATE SERVER bulk_files FOREIGN DATA WRAPPER file_fdw');
	return;
}

sub new
{
	my ($class, $node, $database, %how) = @_;
	my $self = bless {
		node => $node,
		database => $database,
		encoding => $how{encoding} // 'UTF8',
		directory => rel2abs(PostgreSQL::Test::Utils::tempdir("bulk_$database")),
		cases => [],
		labels => [],
		paths => {},
		next_id => 1,
		accepted => 0,
		rejected => 0,
		scans => 0,
		shared => 0,
	}, $class;
	install_wrapper($node, $database);
	$node->safe_psql($database, slurp_file(dirname(__FILE__) . '/comparison.sql'));
	return $self;
}

# Bytes in a readable form, for reports.
sub escaped
{
	my ($bytes, $limit) = @_;
	$limit //= 800;
	my $rest = length($bytes) - $limit;
	$bytes = substr($bytes, 0, $limit) if $rest > 0;
	$bytes =~ s/\\/\\\\/g;
	$bytes =~ s/\n/\\n/g;
	$bytes =~ s/\r/\\r/g;
	$bytes =~ s/\t/\\t/g;
	$bytes =~ s/([^\x20-\x7e])/sprintf('\\x%02x', ord($1))/ge;
	return $bytes . ($rest > 0 ? " ... ($rest bytes more)" : '');
}

sub write_bytes
{
	my ($path, $bytes) = @_;
	open my $file, '>:raw', $path or die "$path: $!";
	print $file $bytes;
	close $file or die "$path: $!";
	return;
}

# The default, and a sample of the small sizes: those that cut a file of this
# length into several chunks, but not into a hundred thousand.
sub chunk_sizes
{
	my ($self, $length) = @_;
	return (0) unless bulk_fdw();
	my @fit = grep { $length / $_ < 20_000 } CHUNK_SIZES;
	return (0, @fit) if soak();
	@fit = grep { $_ <= $length } @fit;
	my @sample;
	push @sample, splice(@fit, int(rand(@fit)), 1) while @fit && @sample < 2;
	return (0, sort { $a <=> $b } @sample);
}

# Files with equal content are written once.
sub path_of
{
	my ($self, $bytes) = @_;
	return $self->{paths}{$bytes} if exists $self->{paths}{$bytes};
	my $path = sprintf('%s/%05d.data', $self->{directory}, scalar keys %{ $self->{paths} });
	write_bytes($path, $bytes);
	$self->{paths}{$bytes} = $path;
	return $path;
}

=pod

=head1 METHODS

=head2 add(label, bytes, columns, options, ...)

Options map a COPY option to its value, or force_null and force_not_null to the
columns they name. Further: C<typed> compares stored values, C<settings> is a
list of GUC names and values, C<client_encoding>, C<chunks>. C<oracle> is
{ bytes, options } that COPY reads instead, for options that COPY lacks. Then
only the rows are compared unless C<compare_errors>.

=cut

sub add
{
	my ($self, $label, $bytes, $columns, $options, %more) = @_;
	$columns = text_columns($columns) unless ref $columns;
	my $oracle = $more{oracle};
	my $case = {
		id => $self->{next_id}++,
		label => $label,
		bytes => $bytes,
		columns => $columns,
		options => $options,
		chunks => $more{chunks} // [ $self->chunk_sizes(length $bytes) ],
		settings => $more{settings} // [],
		client_encoding => $more{client_encoding} // $self->{encoding},
		typed => $more{typed} ? 'true' : 'false',
		rows_only => $oracle && !$more{compare_errors} ? 'true' : 'false',
		path => $self->path_of($bytes),
	};
	$case->{copy_path} = $oracle && defined $oracle->{bytes} ? $self->path_of($oracle->{bytes}) : $case->{path};
	$case->{copy_options} = $oracle && $oracle->{options} || $options;
	push @{ $self->{cases} }, $case;
	return $case->{id};
}

=pod

=head2 expect_accepted(ids)

Fails if COPY does not load the files of these cases.

=cut

sub expect_accepted
{
	my ($self, @ids) = @_;
	$self->{must_accept}{$_} = 1 for grep { defined } @ids;
	return;
}

sub insert_case
{
	my ($self, $case) = @_;
	my @columns = @{ $case->{columns} };
	my $loaded = '';
	# A list cannot be empty, nor a table have 1601 columns; such tables keep the heap's order.
	if (@columns && @columns < 1000)
	{
		$loaded = '(' . join(', ', map { column_name($_) } @columns) . ')';
		push @columns, q{"ordinal in the file" int8 DEFAULT nextval('ordinals')};
	}
	return 'INSERT INTO cases VALUES ('
	  . join(', ',
		$case->{id},
		sql_string($case->{copy_path}),
		sql_string($case->{path}),
		sql_string(copy_options($case->{copy_options})),
		sql_string(scan_options($case->{path}, $case->{options})),
		sql_string(join(', ', @columns)),
		sql_string($loaded),
		sql_string(scan_columns($case->{columns}, $case->{options})),
		# Without a list of columns the table has only those of the file.
		bulk_fdw() ? load_options($loaded ? $case->{columns} : [], $case->{options}) : 'NULL',
		soak() ? "'{buffered,direct}'" : $case->{id} % 2 ? "'{direct}'" : "'{buffered}'",
		"'{" . join(',', @{ $case->{chunks} }) . "}'",
		sql_string($case->{client_encoding}),
		'ARRAY[' . join(', ', map { sql_string($_) } @{ $case->{settings} }) . ']::text[]',
		$case->{typed},
		$case->{rows_only})
	  . ");\n";
}

# Runs cases in one session; returns stderr.
sub run_session
{
	my ($self, @cases) = @_;
	my $script = "SET client_min_messages = error;\nSET statement_timeout = '60s';\n";
	$script .= "SET synchronous_commit = on;\n";
	my $pending = 0;
	for my $case (@cases)
	{
		$script .= sprintf("SELECT compare_case(%d, '%s');\n", $case->{id}, CHUNK_GUC);
		$script .= "VACUUM pg_catalog.pg_class, pg_catalog.pg_attribute, pg_catalog.pg_type, pg_catalog.pg_depend;\n"
		  if ++$pending % 500 == 0;
	}
	my ($status, $stdout, $stderr) =
	  $self->{node}->psql($self->{database}, $script, on_error_stop => 0, timeout => soak() ? 14_400 : 1800);
	return $stderr;
}

sub describe
{
	my ($self, $case) = @_;
	my $text = 'file: ' . escaped($case->{bytes}) . "\n";
	$text .= "columns: " . join(', ', @{ $case->{columns} }[ 0 .. ($#{ $case->{columns} } < 9 ? $#{ $case->{columns} } : 9) ]) . "\n";
	$text .= 'options: ' . copy_options($case->{options}) . "\n";
	$text .= "client_encoding: $case->{client_encoding}\n";
	$text .= "settings: @{ $case->{settings} }\n" if @{ $case->{settings} };
	return $text;
}

# The disagreements of the queued cases, by case.
sub disagreements
{
	my ($self) = @_;
	my @cases = @{ $self->{cases} };
	my ($node, $database) = ($self->{node}, $self->{database});
	my %found;

	$node->safe_psql($database, join('', "BEGIN;\nTRUNCATE cases;\n", map({ $self->insert_case($_) } @cases), "COMMIT;\n"));
	my @left = @cases;
	while (@left)
	{
		my $stderr = $self->run_session(@left);
		# After a crash the server recovers.
		comes_back($node) or BAIL_OUT('the server does not come back');
		my %done = map { $_ => 1 } split /\n/, $node->safe_psql($database, 'SELECT id FROM done');
		my @not_done = grep { !$done{ $_->{id} } } @left;
		last unless @not_done;
		if ($stderr =~ /server closed the connection|connection to server was lost/)
		{
			push @{ $found{ $not_done[0]{id} } }, "THE SERVER CRASHED\n$stderr";
			shift @not_done;
			@left = @not_done;
		}
		else
		{
			push @{ $found{ $_->{id} } }, "the comparison did not finish\n" . substr($stderr, 0, 2000) for @not_done;
			last;
		}
	}

	my $rows = $node->safe_psql($database,
		q{SELECT case_id, chunk_size, encode(as_bytes(what), 'hex'), encode(copy_said, 'hex'), encode(scan_said, 'hex') FROM mismatches ORDER BY 1, 2});
	for my $row (split /\n/, $rows)
	{
		my ($id, $chunk, $what, $copy, $scan) = split /\|/, $row, 5;
		push @{ $found{$id} },
		    pack('H*', $what) . "\n"
		  . "chunk size: " . ($chunk || 'default') . "\n"
		  . 'COPY: ' . said($copy) . "\n"
		  . 'pg_bulk: ' . said($scan) . "\n";
	}
	for my $id (split /\n/, $node->safe_psql($database, 'SELECT id FROM done WHERE NOT accepted'))
	{
		push @{ $found{$id} }, "COPY does not accept the file\n" if $self->{must_accept}{$id};
	}
	my ($accepted, $rejected, $scans, $shared) = split /\|/,
	  $node->safe_psql($database,
		q{SELECT count(*) FILTER (WHERE accepted), count(*) FILTER (WHERE NOT accepted), coalesce(sum(scans), 0), coalesce(sum(shared), 0) FROM done});
	$self->{accepted} += $accepted;
	$self->{rejected} += $rejected;
	$self->{scans} += $scans;
	$self->{shared} += $shared;
	$node->safe_psql($database, 'TRUNCATE cases, done, mismatches');
	$self->{cases} = [];
	return \%found;
}

sub said
{
	my $bytes = pack('H*', $_[0]);
	return join("\n      ", map { escaped($_) } split /\n/, $bytes);
}

=pod

=head2 run

Compares all queued cases; one TAP result for each label.

=cut

sub run
{
	my ($self) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my (%by_label, @labels);
	for my $case (@{ $self->{cases} })
	{
		push @labels, $case->{label} unless $by_label{ $case->{label} };
		push @{ $by_label{ $case->{label} } }, $case;
	}
	my $found = $self->disagreements;
	for my $label (@labels)
	{
		my @bad = grep { $found->{ $_->{id} } } @{ $by_label{$label} };
		ok(!@bad, $label) and next;
		diag(sprintf('%d of %d cases disagree', scalar @bad, scalar @{ $by_label{$label} }));
		for my $case (@bad[ 0 .. ($#bad < MISMATCHES_SHOWN ? $#bad : MISMATCHES_SHOWN - 1) ])
		{
			my $reports = $found->{ $case->{id} };
			diag($self->describe($case) . $reports->[0]
				  . (@$reports > 1 ? '(and ' . (@$reports - 1) . " more chunk sizes or findings)\n" : ''));
		}
	}
	return;
}

=pod

=head2 expect_disagreement(label, pattern, bytes, columns, options, ...)

Tests the comparison itself: a case that must be reported, with a message that
matches the pattern.

=cut

sub expect_disagreement
{
	my ($self, $label, $pattern, @case) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $id = $self->add($label, @case);
	my $case = $self->{cases}[-1];
	my $found = $self->disagreements;
	my $report = $found->{$id} ? $self->describe($case) . $found->{$id}[0] : 'no disagreement';
	like($report, $pattern, $label);
	return;
}

# Totals so far: files that COPY accepted, files that it rejected, compared scans, scans planned with workers.
sub totals { return @{ $_[0] }{qw(accepted rejected scans shared)}; }

1;
