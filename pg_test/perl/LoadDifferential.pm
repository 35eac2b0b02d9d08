
=pod

=head1 NAME

LoadDifferential - a load by bulk_load compared with COPY of the same file

=head1 DESCRIPTION

A Differential whose cases are loaded: each once, into a table of some kind, by
some number of workers, in chunks of some size, by a statement or in a
subtransaction. These are random, and depend on the seed. loading.sql
compares; amcheck checks every table.

C<share> is the fraction of the small cases that run.

=cut

package LoadDifferential;

use strict;
use warnings FATAL => 'all';

use parent -norequire, 'Differential';

use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;

use Differential qw(soak seed);

# Each with its frequency.
my @traits = (
	filled => 0.5,
	checked => 0.3,
	generated => 0.2,
	indexed => 0.3,
	trigger => 0.2,
	partitioned => 0.25,
	dropped => 0.25,
	fillfactor => 0.1,
	child => 0.1,
	unlogged => 0.1,
	temporary => 0.1);

# Traits that cannot be combined.
my %excluded = (partitioned => [qw(dropped fillfactor child unlogged temporary)], temporary => [qw(child unlogged)], child => ['unlogged']);

my @workers = (0, 1, 2, 2, 4);
my @chunk_sizes = (0, 64, 64, 64, 128, 192, 1024);

sub new
{
	my ($class, $node, $database, %how) = @_;
	my $self = $class->SUPER::new($node, $database, %how);
	$self->{share} = $how{share} // 1;
	# A random generator of its own, so that its draws do not change the files.
	$self->{random} = seed();
	$node->safe_psql($database, slurp_file(dirname(__FILE__) . '/loading.sql'));
	return $self;
}

sub random
{
	my ($self) = @_;
	$self->{random} = ($self->{random} * 1103515245 + 12345) % 2147483648;
	return ($self->{random} >> 8) / 8388608;
}

sub one_of
{
	my ($self, @list) = @_;
	return $list[ int($self->random * @list) ];
}

sub chunk_sizes { return (0); }

sub add
{
	my ($self, $label, $bytes, $columns, @more) = @_;
	# Only files of some length are read in chunks. (undef, since this may be in a list.)
	return undef if $self->random > (length($bytes) > 150 ? 1 : $self->{share});
	# COPY's transaction is another one, with another current time.
	if (ref $columns && "@$columns" =~ /\b(date|time\w*)\b/)
	{
		my $constant = "@$columns" =~ /\btime(tz)?\b/ ? 'allballs' : 'epoch';
		$bytes =~ s/\bnow\b/$constant/g;
	}
	my $id = $self->SUPER::add($label, $bytes, $columns, @more);
	my $case = $self->{cases}[-1];
	my %has;
	my @columns = @{ $case->{columns} };
	# The column that the traits use exists only then.
	if (@columns && @columns < 1000)
	{
		for (my $i = 0; $i < @traits; $i += 2)
		{
			$has{ $traits[$i] } = 1 if $self->random < $traits[ $i + 1 ];
		}
		for my $trait (sort keys %excluded)
		{
			delete @has{ @{ $excluded{$trait} } } if $has{$trait};
		}
	}
	my $length = length $case->{bytes};
	$case->{load} = {
		traits => [ sort keys %has ],
		workers => $self->one_of(@workers),
		# A long file in small chunks takes long, and tests no more than a short one.
		chunk_size => $self->one_of(grep { !$_ || $length / $_ < 500 } @chunk_sizes),
		writer => $self->one_of(('direct') x 16, ('auto') x 3, 'buffered'),
		called => $self->one_of(qw(top sub sub new)),
	};
	return $id;
}

sub insert_case
{
	my ($self, $case) = @_;
	my $load = $case->{load};
	return $self->SUPER::insert_case($case)
	  . 'INSERT INTO loads VALUES ('
	  . join(', ',
		$case->{id},
		"'{" . join(',', @{ $load->{traits} }) . "}'",
		$load->{workers},
		$load->{chunk_size},
		"'$load->{writer}'",
		"'$load->{called}'")
	  . ");\n";
}

sub run_session
{
	my ($self, @cases) = @_;
	my $script = "SET client_min_messages = error;\nSET statement_timeout = '60s';\n";
	my $pending = 0;
	for my $case (@cases)
	{
		my $id = $case->{id};
		$script .= "CALL begin_case($id);\n";
		# Not \gexec: after it, psql of 17 has lost the error.
		$script .=
		  $case->{load}{called} eq 'top' ? "SELECT load_statement($id) AS statement \\gset\n:statement;\n" : "CALL load_case($id);\n";
		$script .= "CALL end_case($id, :'SQLSTATE', :'LAST_ERROR_MESSAGE');\n";
		$script .= "VACUUM pg_catalog.pg_class, pg_catalog.pg_attribute, pg_catalog.pg_type, pg_catalog.pg_depend, pg_catalog.pg_index;\n"
		  if ++$pending % 200 == 0;
	}
	my ($status, $stdout, $stderr) =
	  $self->{node}->psql($self->{database}, $script, on_error_stop => 0, timeout => soak() ? 14_400 : 1800);
	return $stderr;
}

sub disagreements
{
	my ($self) = @_;
	my $found = $self->SUPER::disagreements;
	$self->{node}->safe_psql($self->{database}, 'TRUNCATE loads');
	return $found;
}

sub describe
{
	my ($self, $case) = @_;
	my $load = $case->{load};
	return $self->SUPER::describe($case)
	  . "target: @{ $load->{traits} }\n"
	  . "$load->{workers} workers, chunk size $load->{chunk_size}, writer $load->{writer}, called: $load->{called}\n";
}

# [ writer, workers, number of loads ], of completed loads.
sub census
{
	my ($self) = @_;
	return map { [ split /\|/ ] } split /\n/,
	  $self->{node}->safe_psql($self->{database}, 'SELECT writer, workers, count(*) FROM census WHERE writer IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2');
}

1;
