
=pod

=head1 NAME

Schedule - random actions of one of several sessions on shared tables, and the expected final content

=head1 SYNOPSIS

  my $schedule = Schedule->new(node => $node, number => 3, seed => $seed, directory => $dir);
  $schedule->step while time < $end;
  print $schedule->troubles;
  my $rows = $schedule->rows;    # {table}{id} = word

=head1 DESCRIPTION

A session owns the ids that are its number modulo 100, which is less than 50, and
records its rows in each table. Its jobs' rows have separate ids, 50 more,
since the time of their arrival is unknown. A step is one transaction of one to four statements: loads of
each kind, changes, savepoints. After each statement the session counts and sums
its rows, by a sequential scan and by an index, and compares this with its
records. Each session also has a table of its own, which it truncates, too.

If a session is killed during its transaction, a row in the table C<ledger>
shows whether the transaction was committed: each one writes this row first. The
queue shows whether a job is done; C<settle> accounts for its rows when the queue
is idle.

Errors that interference can cause are expected; each other error is a failure.

=cut

package Schedule;

use strict;
use warnings FATAL => 'all';

use IO::Compress::Gzip qw(gzip);
use Time::HiRes qw(usleep);
use PostgreSQL::Test::Utils;

use Differential qw(write_bytes);
use Options qw(sql_string);

use constant SESSIONS => 100;
# An advisory lock: sessions that keep a snapshot hold it shared, sessions that rewrite a table hold it exclusively.
use constant REWRITES => 11;

my @shared = ('plain', 'keyed', 'parts', 'toasted');

sub new
{
	my ($class, %self) = @_;
	my @tables = (@shared, "own_$self{number}");
	my $self = bless { %self, tables => \@tables, next => 0, file => 0, rows => { map { $_ => {} } @tables }, troubles => [], jobs => [], did => {} }, $class;
	srand($self{seed} * 1009 + $self{number});
	return $self;
}

# All tables, for this number of sessions.
sub create
{
	my ($class, $sessions) = @_;
	my $own = join '', map { "CREATE TABLE own_$_ (id int PRIMARY KEY, word text);\nCREATE INDEX own_${_}_word ON own_$_ (word);\n" } 1 .. $sessions;
	return $own . <<'SQL';
CREATE TABLE ledger (session int, step int, PRIMARY KEY (session, step));
CREATE TABLE plain (id int, word text);
CREATE TABLE keyed (id int PRIMARY KEY, word text);
CREATE INDEX keyed_word ON keyed (word COLLATE "C");
CREATE INDEX keyed_brin ON keyed USING brin (id);
CREATE TABLE parts (id int, word text, PRIMARY KEY (id)) PARTITION BY HASH (id);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE toasted (id int PRIMARY KEY, word text,
	long text GENERATED ALWAYS AS (CASE WHEN id % 31 = 0 THEN repeat(word, 300) END) STORED);
ALTER TABLE toasted ALTER long SET STORAGE EXTERNAL;
CREATE INDEX toasted_lower ON toasted (lower(word)) WHERE id % 2 = 0;
SQL
}

sub tables { return @{ $_[0]{tables} }; }
sub troubles { return @{ $_[0]{troubles} }; }
sub rows { return $_[0]{rows}; }
sub did { return $_[0]{did}; }

sub one_of { return $_[ int rand @_ ]; }

# A file of new rows, of some kilobytes or a few hundred, and of old ones if they are to be replaced.
sub batch
{
	my ($self, $pending, $table, $old, $residue) = @_;
	my $count = one_of(1, 10, 100, 1000, 1000, 5000, 20000);
	my %rows;
	if ($old)
	{
		my @ids = keys %{ $pending->{$table} };
		$rows{ one_of(@ids) } = 'new ' . int rand 1e6 for 1 .. (@ids ? one_of(1, 5, 50) : 0);
	}
	$rows{ $self->{next}++ * SESSIONS + ($residue // $self->{number}) } = 'word ' . int rand 1e6 for 1 .. $count;
	my $path = "$self->{directory}/$self->{number}." . ($self->{file}++ % 20);
	my @ids = one_of(0, 1) ? (sort { $a <=> $b } keys %rows) : keys %rows;
	return ($path, join('', map { "$_,$rows{$_}\n" } @ids), \%rows);
}

# Writes the rows as a file, a compressed one, or several that match a pattern. Returns the path.
sub write_source
{
	my ($self, $path, $content) = @_;
	# Files of an earlier batch.
	unlink glob("$path.part.*");
	my $how = one_of('plain', 'plain', 'compressed', 'pattern', 'compressed pattern');
	my $squeeze = sub { my ($bytes) = @_; return $bytes if $how !~ /compressed/; gzip(\$bytes, \my $compressed) or die; return $compressed; };
	$self->{doing}{"source $how"}++;
	if ($how !~ /pattern/)
	{
		write_bytes($path, $squeeze->($content));
		return $path;
	}
	my @lines = split /^/, $content;
	my $parts = one_of(1, 2, 3);
	# If there are fewer lines than parts, some parts are empty.
	my @edges = map { int($_ * @lines / $parts) } 0 .. $parts;
	write_bytes("$path.part.$_", $squeeze->(join '', @lines[ $edges[$_] .. $edges[ $_ + 1 ] - 1 ])) for 0 .. $parts - 1;
	return "$path.part.*";
}

sub load_options
{
	my ($self, %more) = @_;
	my $lock = rand() < 0.3 ? one_of('online', 'share', 'share') : '';
	my %options = (format => 'csv', workers => one_of('0', '1', '2'), indexes => one_of('auto', 'auto', 'insert', $lock eq 'share' ? ('merge', 'rebuild') : ()),
		($lock ? (lock => $lock) : ()), columns => [ 'id', 'word' ], %more);
	my $json = join ', ', map { my $value = $options{$_}; "\"$_\": " . (ref $value ? '[' . join(', ', map { "\"$_\"" } @$value) . ']' : "\"$value\"") } sort keys %options;
	return "'{$json}'";
}

# One statement, and its effect on the rows.
sub statement
{
	my ($self, $pending) = @_;
	my $table = one_of($self->tables);
	my $what = one_of('load', 'load', 'load', 'insert', 'insert', 'copy', 'keep_new', 'keep_old', 'duplicate', 'update', 'delete', 'values', 'job');
	$what = 'load' if $table eq 'plain' and $what =~ /keep|duplicate/;
	# It removes the existing rows; a job's rows would be removed, too.
	$what = 'truncate' if $table =~ /^own/ and ($what eq 'job' or $what eq 'load' and rand() < 0.5);
	$self->{doing}{"$what $table"}++;
	my $mine = $pending->{$table};
	if ($what =~ /^(load|truncate|copy|insert|job)$/)
	{
		my ($path, $content, $rows) = $self->batch($pending, $table, 0, $what eq 'job' ? $self->{number} + 50 : undef);
		if ($what eq 'job')
		{
			# Its file must stay.
			$path = "$self->{directory}/job.$self->{number}.$self->{next}";
			push @{ $self->{queued} }, { table => $table, rows => $rows, path => $path };
		}
		else
		{
			%$mine = () if $what eq 'truncate';
			@$mine{ keys %$rows } = values %$rows;
		}
		if ($what eq 'copy') { write_bytes($path, $content); }
		else { $path = $self->write_source($path, $content); }
		$self->{queued}[-1]{path} = $path if $what eq 'job';
		return "SELECT 'job', bulk_enqueue(${\sql_string($path)}, '$table', " . $self->load_options . ', max_attempts => 50)' if $what eq 'job';
		return "COPY $table (id, word) FROM ${\sql_string($path)} (FORMAT csv)" if $what eq 'copy';
		return "ALTER FOREIGN TABLE source_$self->{number} OPTIONS (SET filename ${\sql_string($path)});\nINSERT INTO $table SELECT * FROM source_$self->{number}" if $what eq 'insert';
		return "SELECT rows_loaded FROM bulk_load(${\sql_string($path)}, '$table', " . $self->load_options($what eq 'truncate' ? (truncate => 'true') : ()) . ')';
	}
	if ($what =~ /^(keep_new|keep_old|duplicate)$/)
	{
		my ($path, $content, $rows) = $self->batch($pending, $table, 1);
		$path = $self->write_source($path, $content);
		my @old = grep { exists $mine->{$_} } keys %$rows;
		if ($what eq 'duplicate')
		{
			return if !@old;
			return "DO \$do\$ BEGIN PERFORM bulk_load(${\sql_string($path)}, '$table', ${\$self->load_options}); RAISE 'it was loaded'; EXCEPTION WHEN unique_violation THEN END \$do\$";
		}
		my %rows = %$rows;
		delete @rows{@old} if $what eq 'keep_old';
		@$mine{ keys %rows } = values %rows;
		return "SELECT rows_loaded FROM bulk_load(${\sql_string($path)}, '$table', " . $self->load_options(on_duplicate => $what, indexes => 'auto') . ')';
	}
	if ($what eq 'values')
	{
		my $id = $self->{next}++ * SESSIONS + $self->{number};
		$mine->{$id} = 'one';
		return "INSERT INTO $table (id, word) VALUES ($id, 'one')";
	}
	# Changes a part of the session's rows: one residue class of their numbers.
	my ($divisor, $rest) = (one_of(3, 7, 20), int rand 3);
	my @ids = grep { int($_ / SESSIONS) % $divisor == $rest } keys %$mine;
	my $where = "WHERE id % ${\SESSIONS} = $self->{number} AND id / ${\SESSIONS} % $divisor = $rest";
	if ($what eq 'delete')
	{
		delete @$mine{@ids};
		return "DELETE FROM $table $where";
	}
	my $word = 'changed ' . int rand 1e6;
	@$mine{@ids} = ($word) x @ids;
	return "UPDATE $table SET word = '$word' $where";
}

# The session's rows in a table: their number, and sums of their ids and words.
sub sums
{
	my ($rows) = @_;
	my ($ids, $lengths) = (0, 0);
	for my $id (keys %$rows) { my $word = $rows->{$id}; $ids += $id; $lengths += length($word) * ($id % 1009); }
	return join '|', scalar keys %$rows, $ids, $lengths;
}

sub sums_sql
{
	my ($table, $number) = @_;
	return "SELECT count(*), coalesce(sum(id), 0), coalesce(sum(length(word) * (id % 1009)), 0) FROM $table" . (defined $number ? " WHERE id % ${\SESSIONS} = $number" : '');
}

sub check
{
	my ($self, $pending, $expected) = @_;
	my $table = one_of($self->tables);
	push @$expected, "$table " . sums($pending->{$table});
	my $way = one_of("SET LOCAL enable_seqscan = off;\nSET LOCAL enable_bitmapscan = off;\n", "SET LOCAL enable_seqscan = on;\n");
	return "$way\\echo check $table\n${\sums_sql($table, $self->{number})};\n";
}

# One transaction.
sub step
{
	my ($self) = @_;
	my $step = $self->{steps}++;
	my $pending = { map { $_ => { %{ $self->{rows}{$_} } } } $self->tables };
	$self->{queued} = [];
	$self->{doing} = {};
	my @expected;
	my $script = "\\set ON_ERROR_STOP 1\n\\set VERBOSITY verbose\nSET client_min_messages = warning;\nLOAD 'pg_bulk';\nSET pg_bulk.copy = on;\nSET pg_bulk.copy_min_size = 0;\n"
	  . "SET lock_timeout = '20s';\n";
	my $isolation = one_of('', '', ' ISOLATION LEVEL REPEATABLE READ');
	# For an older snapshot, a table that ALTER TABLE has rewritten is empty: sessions that keep one prevent rewrites.
	$script .= "DO 'BEGIN PERFORM pg_advisory_lock_shared(${\REWRITES}); END';\n" if $isolation;
	$script .= "BEGIN$isolation;\nINSERT INTO ledger VALUES ($self->{number}, $step);\n";
	for (1 .. one_of(1, 1, 2, 4))
	{
		my $back = rand() < 0.2;
		my ($kept, @queued) = ({ map { $_ => { %{ $pending->{$_} } } } $self->tables }, @{ $self->{queued} });
		my $sql = $self->statement($pending) // next;
		$script .= $back ? "SAVEPOINT s;\n$sql;\nROLLBACK TO s;\n" : "$sql;\n";
		($pending, $self->{queued}) = ($kept, \@queued) if $back;
		$script .= $self->check($pending, \@expected);
	}
	my $end = one_of('COMMIT', 'COMMIT', 'COMMIT', 'ROLLBACK');
	my $queues = @{ $self->{queued} };
	if (!$queues && rand() < 0.05)
	{
		$script .= "PREPARE TRANSACTION 's$self->{number}';\n$end PREPARED 's$self->{number}';\n\\echo ended\n";
	}
	else { $script .= "$end;\n\\echo ended\n"; }
	my ($out, $err) = ('', '');
	# A psql that finds no server does not read its input, and IPC::Run then dies.
	my $late;
	eval { $self->{node}->psql('postgres', $script, stdout => \$out, stderr => \$err, on_error_stop => 0, timeout => 180, timed_out => \$late); 1; } or $err .= "no connection to the server: $@";
	push @{ $self->{troubles} }, "$script\nsession $self->{number}, step $step did not end" if $late;

	my @seen;
	my @lines = split /\n/, $out;
	for my $i (0 .. $#lines) { push @seen, "$1 " . ($lines[ $i + 1 ] // '') if $lines[$i] =~ /^check (.*)/; }
	my $ended = @lines && $lines[-1] eq 'ended';
	for my $i (0 .. $#seen)
	{
		next if $seen[$i] eq $expected[$i] or ($i == $#seen and !$ended);
		push @{ $self->{troubles} }, "$script\nsession $self->{number}, step $step sees $seen[$i] for $expected[$i]";
		last;
	}
	my $committed = $ended && $end eq 'COMMIT';
	if (!$ended)
	{
		$self->{did}{ $err =~ /(?:ERROR|FATAL):  (\w{5}): / ? $1 : 'connection' }++;
		push @{ $self->{troubles} }, "$script\nsession $self->{number}, step $step: $err" if !expected_error($err);
		$committed = $self->was_committed($step);
	}
	else
	{
		$self->{did}{$end}++;
		$self->{did}{$_} += $self->{doing}{$_} for keys %{ $self->{doing} };
	}
	return if !$committed;
	$self->{rows} = $pending;
	push @{ $self->{jobs} }, @{ $self->{queued} };
	return;
}

# Is it an error that a schedule may cause? These are: a cancel request, termination by an administrator, a crash of another
# process, a server that starts or stops, too many connections, a lock timeout, a deadlock, and a concurrent change.
sub expected_error
{
	my ($err) = @_;
	return 1 if $err =~ /(?:ERROR|FATAL):  (57014|57P01|57P02|57P03|40P01|40001|55P03|53300)/;
	# The error of a client whose server was terminated or crashed.
	return $err =~ /server closed the connection|connection to server|could not connect|terminating connection|no connection to the server/ && $err !~ /ERROR:  (?!57)/;
}

sub ask
{
	my ($self, $sql) = @_;
	my ($status, $out) = eval { $self->{node}->psql('postgres', $sql, on_error_stop => 0) };
	return ($status // 1, $out // '');
}

sub was_committed
{
	my ($self, $step) = @_;
	for (1 .. 1000)
	{
		# A prepared transaction is ended here in the same way.
		my ($status, $out) = $self->ask("SELECT count(*) FROM pg_prepared_xacts WHERE gid = 's$self->{number}'");
		if ($status == 0)
		{
			$self->ask("ROLLBACK PREPARED 's$self->{number}'") if $out;
			($status, $out) = $self->ask("SELECT (SELECT count(*) FROM pg_prepared_xacts WHERE gid = 's$self->{number}'), count(*) FROM ledger WHERE session = $self->{number} AND step = $step");
			return $1 if $status == 0 && $out =~ /^0\|(\d)/;
		}
		usleep(300_000);
	}
	die "session $self->{number}: the server does not come back";
}

# Accounts for the rows that jobs have loaded, by the queue's status of their files: called when the queue is idle.
sub settle
{
	my ($self, $status) = @_;
	for my $job (@{ $self->{jobs} })
	{
		my $ended = $status->{ $job->{path} } // 'unknown';
		push @{ $self->{troubles} }, "session $self->{number}: the job of $job->{path} is $ended" if $ended !~ /^(succeeded|failed|canceled)$/;
		$self->{did}{"job $ended"}++;
		@{ $self->{rows}{ $job->{table} } }{ keys %{ $job->{rows} } } = values %{ $job->{rows} } if $ended eq 'succeeded';
	}
	return;
}

1;
