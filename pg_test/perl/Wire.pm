
=pod

=head1 NAME

Wire - a client that sends each message of the protocol separately

=head1 SYNOPSIS

  my $wire = Wire->new($node, 'SET pg_bulk.copy = on');
  $wire->query('COPY t FROM STDIN');
  $wire->wait_for('G');
  $wire->data("1\tx\n");
  $wire->done;
  is($wire->answer, 'C COPY 1|Z I');

=head1 DESCRIPTION

The protocol of version 3, over a server's socket, without a password. A received
message is shown as its type byte and its content: for errors the fields,
without file, line and function.

=cut

package Wire;

use strict;
use warnings FATAL => 'all';

use IO::Select;
use IO::Socket::UNIX;

use constant WAIT_SECONDS => 60;

sub new
{
	my ($class, $node, @statements) = @_;
	my $path = $node->host . '/.s.PGSQL.' . $node->port;
	my $socket = IO::Socket::UNIX->new(Peer => $path) or die "$path: $!";
	my $self = bless { socket => $socket, input => '', log => [] }, $class;
	my $user = getpwuid($<);
	my $body = pack('N', 196608) . "user\0$user\0database\0postgres\0\0";
	$self->bytes(pack('N', 4 + length $body) . $body);
	$self->answer;
	for my $statement (@statements)
	{
		$self->query($statement);
		my $answer = $self->answer;
		die $answer if $answer =~ /^E|\|E/;
	}
	return $self;
}

sub bytes
{
	my ($self, $bytes) = @_;
	local $SIG{PIPE} = 'IGNORE';
	my $done = 0;
	while ($done < length $bytes)
	{
		my $n = syswrite($self->{socket}, $bytes, length($bytes) - $done, $done) or return;
		$done += $n;
	}
	return;
}

sub message { my ($self, $kind, $body) = @_; return $self->bytes($kind . pack('N', 4 + length $body) . $body); }
sub query { return $_[0]->message('Q', "$_[1]\0"); }
sub data { return $_[0]->message('d', $_[1]); }
sub done { return $_[0]->message('c', ''); }
sub fail { return $_[0]->message('f', "$_[1]\0"); }
sub sync { return $_[0]->message('S', ''); }
sub flush { return $_[0]->message('H', ''); }

# Parses, binds and executes an unnamed statement.
sub extended
{
	my ($self, $query) = @_;
	$self->message('P', "\0$query\0" . pack('n', 0));
	$self->message('B', "\0\0" . pack('nnn', 0, 0, 0));
	return $self->message('E', "\0" . pack('N', 0));
}

sub close { my ($self) = @_; CORE::close $self->{socket}; return; }

# The next message as text, undef if the connection is closed.
sub next_message
{
	my ($self, $seconds) = @_;
	while (1)
	{
		if (length $self->{input} >= 5)
		{
			my ($kind, $length) = unpack 'aN', $self->{input};
			if (length $self->{input} > $length)
			{
				my $body = substr $self->{input}, 5, $length - 4;
				substr($self->{input}, 0, $length + 1) = '';
				return told($kind, $body);
			}
		}
		my ($ready) = IO::Select->new($self->{socket})->can_read($seconds // WAIT_SECONDS);
		return 'nothing' unless $ready;
		my $n = sysread $self->{socket}, $self->{input}, 65536, length $self->{input};
		return unless $n;
	}
}

sub told
{
	my ($kind, $body) = @_;
	if ($kind eq 'E' || $kind eq 'N')
	{
		return join ' ', $kind, map { /^[FLRV]/ ? () : $_ } split /\0/, $body;
	}
	return "C " . $body =~ s/\0//r if $kind eq 'C';
	return "$kind $body" if $kind eq 'Z';
	return "$kind " . unpack('H*', $body) if $kind =~ /[GDT]/;
	return $kind;
}

# Messages up to ReadyForQuery or the end of the connection, without parameter statuses.
sub answer
{
	my ($self) = @_;
	my @all;
	while (1)
	{
		my $message = $self->next_message;
		if (!defined $message) { push @all, 'gone'; last; }
		push @all, $message unless $message =~ /^[SKR]/;
		last if $message =~ /^Z/ || $message eq 'nothing';
	}
	return join '|', @all;
}

# Messages up to one of a type; dies if it does not come.
sub wait_for
{
	my ($self, $kind) = @_;
	my @all;
	while (1)
	{
		my $message = $self->next_message // die "gone before $kind: @all";
		die "nothing before $kind: @all" if $message eq 'nothing';
		push @all, $message;
		return join '|', @all if $message =~ /^$kind/;
	}
	return;
}

1;
