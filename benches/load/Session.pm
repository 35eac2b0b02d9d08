# A psql that stays connected: one session, to which statements are sent. A statement runs without the caller until its answer is read, so
# several sessions can run statements at the same time.
#
#   my $session = Session->new($psql, @options);
#   $session->send('COPY ...');            returns at once
#   $session->is_done                      true once the answer is complete
#   my @lines = $session->wait;            waits for it
#   my @lines = $session->ask('SELECT 1'); both
#
# The tricky point is the end of an answer: after each statement, psql prints a line that
# no answer contains. psql exits at the first error (which it has printed on stderr), and so does the run.
package Session;
use strict;
use warnings;
use IPC::Open2;

my $END = '-- done --';

sub new {
    my ($class, @psql) = @_;
    my $pid = open2(my $answer, my $input, @psql, qw(-X -q -A -t -v ON_ERROR_STOP=1));
    $input->autoflush(1);
    return bless { pid => $pid, answer => $answer, input => $input, buffer => '', statement => '' }, $class;
}

sub send {
    my ($self, $statement) = @_;
    # An unread answer would be mistaken for this statement's.
    $self->wait if length $self->{statement};
    $self->{statement} = $statement;
    print { $self->{input} } "$statement;\n\\echo $END\n";
}

sub is_done {
    my ($self) = @_;
    while ($self->{buffer} !~ /^\Q$END\E\n/m) {
        my $bits = '';
        vec($bits, fileno $self->{answer}, 1) = 1;
        return '' if !select($bits, undef, undef, 0);
        $self->read;
    }
    return 1;
}

sub wait {
    my ($self) = @_;
    $self->read while $self->{buffer} !~ s/^(.*?)^\Q$END\E\n//ms;
    $self->{statement} = '';
    return split /\n/, $1;
}

sub ask {
    my ($self, $statement) = @_;
    $self->send($statement);
    my @lines = $self->wait;
    return wantarray ? @lines : join "\n", @lines;
}

sub read {
    my ($self) = @_;
    sysread($self->{answer}, $self->{buffer}, 1 << 16, length $self->{buffer})
        or die "$0: failed: $self->{statement}\n";
}

sub DESTROY {
    my ($self) = @_;
    local ($?, $!);
    close $self->{input};
    close $self->{answer};
    waitpid $self->{pid}, 0;
}

1;
