
=pod

=head1 NAME

Engines - servers with other extensions, and the ways of loading rows into a table there

=head1 SYNOPSIS

  my $server = Engines->new('beside', shared_preload_libraries => 'timescaledb', session_preload_libraries => 'pg_bulk');
  my $file = $server->write('rows.csv', "1,one\n");
  for my $way (ways())
  {
	my ($loaded, $error) = $server->into($way, $file, 'table');
  }

=head1 DESCRIPTION

Each way is compared with COPY into a table that is created by the same statements.

=cut

package Engines;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use File::Spec::Functions qw(rel2abs);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

our @EXPORT_OK = qw(extension ways);

# Whether the extension's library is part of the tested installation.
sub extension
{
	my ($library) = @_;
	return -e "$ENV{PG_BULK_PKGLIBDIR}/$library.so";
}

# The ways of loading rows into a table. The first one is the server's own.
sub ways { return ('COPY', 'bulk_load', 'bulk_load with workers', 'job', 'INSERT SELECT', 'prepared INSERT', 'taken COPY'); }

sub new
{
	my ($class, $name, %how) = @_;
	delete $ENV{RUST_BACKTRACE};
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(extra => [ '-E', 'UTF8', '--locale=C.UTF-8' ]);
	my %settings = (fsync => 'off', autovacuum => 'off', max_worker_processes => 20, log_statement => 'none', listen_addresses => "'127.0.0.1'",
		'pg_bulk.copy_min_size' => 0, %how);
	$node->append_conf('postgresql.conf', join '', map { "$_ = " . ($settings{$_} =~ /^[\w.']+$/ ? $settings{$_} : "'$settings{$_}'") . "\n" } sort keys %settings);
	my $self = bless { node => $node, directory => rel2abs(PostgreSQL::Test::Utils::tempdir($name)), database => 'postgres' }, $class;
	chmod 0755, $self->{directory};
	return $self;
}

sub node { return $_[0]{node}; }
sub start { my ($self) = @_; $self->{node}->start; return $self; }
sub sql { my ($self, $sql) = @_; return $self->{node}->safe_psql($self->{database}, $sql); }

# The statement's output, and the first error that it raises: SQLSTATE and message.
sub try
{
	my ($self, $sql) = @_;
	my ($out, $err) = ('', '');
	$self->{node}->psql($self->{database}, "\\set VERBOSITY verbose\n$sql", stdout => \$out, stderr => \$err, on_error_stop => 1);
	my ($error) = $err =~ /(?:ERROR|FATAL):\s+(.*)/;
	$self->{complaint} = $err;
	return ($out, $error // '');
}

# All messages of the last try.
sub complaint { return $_[0]{complaint}; }

sub write
{
	my ($self, $name, @rows) = @_;
	my $path = "$self->{directory}/$name";
	append_to_file($path, join '', @rows);
	chmod 0644, $path;
	return $path;
}

# Loads rows of a CSV file into a table or a view, in the given way. Returns the number of rows if this way reports one, and the error.
# An INSERT reads the file through a foreign table with the columns in $self->{columns}.
sub into
{
	my ($self, $way, $path, $table, %options) = @_;
	my $options = join ', ', '"format": "csv"', map { qq("$_": $options{$_}) } sort keys %options;
	if ($way eq 'COPY' || $way eq 'taken COPY')
	{
		my $on = $way eq 'COPY' ? 'off' : 'on';
		my (undef, $error) = $self->try("LOAD 'pg_bulk'; SET pg_bulk.copy = $on; COPY $table FROM '$path' (FORMAT csv)");
		return ('', $error);
	}
	if ($way =~ /^bulk_load/)
	{
		my $workers = $way =~ /workers/ ? 2 : 0;
		return $self->try("SELECT rows_loaded FROM bulk_load('$path', '$table', '{$options, \"workers\": $workers}')");
	}
	if ($way eq 'job')
	{
		my ($job, $refused) = $self->try("SELECT bulk_enqueue('$path', '$table', '{$options}')");
		return ('', $refused) if $refused ne '';
		my ($row) = $self->try("SELECT bulk_wait($job, '60s')");
		($row) = $self->try("SELECT rows_loaded || '', coalesce(error_sqlstate || ': ' || error_message, '') FROM bulk_jobs WHERE job_id = $job");
		return split /\|/, $row, 2;
	}
	my $foreign = "CREATE FOREIGN TABLE pg_temp.ft ($self->{columns}) SERVER bulk_files OPTIONS (filename '$path', format 'csv')";
	# The second execution counts.
	my $insert = $way eq 'prepared INSERT' ? "PREPARE p AS INSERT INTO $table SELECT * FROM ft; EXPLAIN EXECUTE p; EXECUTE p" : "INSERT INTO $table SELECT * FROM ft";
	my (undef, $error) = $self->try("$foreign; $insert");
	return ('', $error);
}

1;
