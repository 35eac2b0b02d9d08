
# A load at each of its points: it is canceled, terminated,
# killed, the server stops, a checkpoint begins. PG_BULK_SOAK=1 tries all
# of them; otherwise PG_BULK_SEED chooses some, and PG_BULK_TIMES more of them.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use List::Util qw(shuffle);
use Test::More;
use Time::HiRes qw(usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(sample seed);
use Faults;
use Points qw(point_names point_set point_clear);

note 'PG_BULK_SEED=' . seed();
srand(seed());

# Points of the load, and the processes that reach them.
my %who = (
	(map { $_ => ['leader'] } qw(load.begin load.first load.launched load.rows load.received load.finalize load.key load.finalized)),
	(map { $_ => ['worker'] } qw(worker.begin worker.end)));
my @points = grep { /^(append|chunk|load|worker|wide)\./ && !/^append\.(write|allocate)$/ && !/^load\.rebuil/ } point_names();
$who{$_} //= [ 'leader', 'worker' ] for @points;
# No interrupt is served at these points, and a checkpoint waits.
my %flagged = map { $_ => 1 }
	map { "append.$_" } qw(flagged log logged flushed written registered emptied);
my @places = map { my $point = $_; map { [ $point, $_ ] } @{ $who{$point} } } @points;
cmp_ok(scalar(grep { $flagged{$_} } @points), '==', keys %flagged, 'points have not lost their names');

my $faults = Faults->new('faults');
my $node   = $faults->node;
is($faults->trouble, '', 'without faults');

sub some
{
	my ($number, @cases) = @_;
	@cases = shuffle @cases;
	return @cases[ 0 .. sample($number, scalar @cases) - 1 ];
}

# Interrupts.
my @interrupts = map { [ @$_, 'pg_cancel_backend', 'leader' ], [ @$_, 'pg_terminate_backend', 'leader' ] } @places;
push @interrupts, map { [ @$_, 'pg_terminate_backend', 'worker' ] } grep { $_->[1] eq 'worker' } @places;
for my $case (some(24, @interrupts))
{
	my ($point, $who, $function, $whom) = @$case;
	my $name = "$point: $who waits, $function of $whom";
	my $load = $faults->bring($point, $who, 'wait');
	my $waits = $faults->wait_at($point);
	my $pid = $whom eq 'leader' ? $load->pid : $waits;
	$node->safe_psql('postgres', "SELECT $function($pid)");
	if ($flagged{$point})
	{
		usleep(50_000);
		ok(kill(0, $waits), "$name: goes on waiting");
		point_clear($node);
	}
	my $end = $load->end;
	# A worker may finish before it checks whether it was terminated.
	my $done = $flagged{$point} && $whom eq 'worker' && $end eq "1500|direct|2\n";
	ok($done || $end =~ /^(ERROR|FATAL): /, $name) or diag $end;
	is($faults->trouble($done ? 1500 : 0), '', "$name: leaves nothing");
}

# Crashes. Number of times that the server became ready.
sub starts { return scalar(() = slurp_file($node->logfile) =~ /database system is ready to accept connections/g); }
my @crashes = map { [ @$_, 'kill' ], [ @$_, 'stop' ] } @places;
for my $case (some(14, @crashes))
{
	my ($point, $who, $how) = @$case;
	my $name = "$point: $who, $how";
	my $starts = starts();
	my $load = $faults->bring($point, $who, $how eq 'kill' ? 'signal=9' : 'wait');
	if ($how eq 'stop')
	{
		$faults->wait_at($point);
		$node->stop('immediate');
		point_clear($node);
		$node->start;
	}
	like($load->end, qr/server closed the connection|terminating connection because of crash|immediate shutdown/, $name);
	point_clear($node);
	for (my $tries = 0; starts() == $starts && $tries < 3000; $tries++) { usleep(10_000); }
	is($faults->trouble, '', "$name: recovery");
}

# Checkpoints.
for my $place (some(10, @places))
{
	my ($point, $who) = @$place;
	my $name = "$point: $who waits, checkpoint";
	my $load = $faults->bring($point, $who, 'wait');
	$faults->wait_at($point);
	my $checkpoint = $faults->begin("CHECKPOINT; SELECT 'checkpoint done'");
	if ($flagged{$point})
	{
		ok(!$checkpoint->prints(qr/done/, 0.3), "$name: does not end");
		point_clear($node);
	}
	ok($checkpoint->prints(qr/done/, 10), "$name: ends");
	$checkpoint->end;
	point_clear($node);
	my $failed = $point eq 'append.emptied';
	like($load->end, $failed ? qr/^ERROR:  could not extend/ : qr/^1500\|direct\|2$/, "$name: the load goes on");
	$faults->crash;
	$node->start;
	is($faults->trouble($failed ? 0 : 1500), '', "$name: recovery");
}

$node->stop;
done_testing();
