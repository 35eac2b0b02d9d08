
=pod

=head1 NAME

InsertDifferential - INSERT … SELECT from a foreign table compared with COPY of the same file

=head1 DESCRIPTION

A LoadDifferential whose loads are INSERTs, by 0, 1, 2 or 4 workers; in soak runs by
each number of them. inserting.sql does them; who wrote the rows is "direct", "core",
or "not asked" where the INSERT ran without EXPLAIN.

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
	# Of files that are long enough to be cut, some.
	return undef if length($case[1]) > 150 && $self->{share} < 1 && $self->random > 0.5;
	# By some number of workers, or by each, all else being the same.
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
