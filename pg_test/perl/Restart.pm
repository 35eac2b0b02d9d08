
=pod

=head1 NAME

Restart - servers that restart after a crash

=head1 SYNOPSIS

  kill 'KILL', $pid;
  ok(comes_back($node), 'the server comes back');

=head1 DESCRIPTION

When a process is killed, the postmaster ends all others and starts them again. A C<psql> that is refused meanwhile may exit before it
has read its query: C<poll_query_until> dies of that.

=cut

package Restart;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Utils;

our @EXPORT_OK = qw(comes_back);

# Waits until a server answers; returns false if this takes too long.
sub comes_back
{
	my ($node) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	while (time < $end)
	{
		my ($status, $stdout) = eval { $node->psql('postgres', 'SELECT true', timeout => 60) };
		return 1 if defined $status && $status == 0 && $stdout eq 't';
		usleep(50_000);
	}
	return 0;
}

1;
