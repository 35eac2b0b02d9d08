
=pod

=head1 NAME

InsertDifferential - INSERT … SELECT from a foreign table compared with COPY of the same file

=head1 DESCRIPTION

A LoadDifferential whose loads are INSERTs, with 0, 1, 2 or 4 workers; in soak runs with
each number of them. inserting.sql runs them. The writer is "direct", "core",
or "not asked" if the INSERT ran without EXPLAIN.

=cut

package InsertDifferential;

use strict;
use warnings FATAL => 'all';

use parent -norequire, 'LoadDifferential';

use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;

use Differential qw(soak);

my @workers = (0, 1, 2, 4);

sub new
{
	my ($class, $node, $database, %how) = @_;
	my $self = $class->SUPER::new($node, $database, %how);
	$node->safe_psql($database, slurp_file(dirname(__FILE__) . '/inserting.sql'));
	return $self;
}

sub add
{
	my ($self, @case) = @_;
	# Only some of the files that are long enough to be cut.
	return undef if length($case[1]) > 150 && $self->{share} < 1 && $self->random > 0.5;
	# With a random number of workers, or with each number, and all other options equal.
	my $random = $self->{random};
	my $id;
	for my $workers (soak() ? @workers : undef)
	{
		$self->{random} = $random;
		$id = $self->SUPER::add(@case) // return undef;
		$self->{cases}[-1]{load}{workers} = $workers // $self->one_of(@workers);
	}
	return $id;
}

1;
