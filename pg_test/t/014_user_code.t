
# User code that does something to the target while a load runs: every place of such code, every action, every way into
# the table. Each combination must have COPY's result. See perl/UserCode.pm, and docs/internals/user_code.md for the places.
#
# The default set has every place and every action with every way. PG_BULK_SEED sets another seed, PG_BULK_TIMES=3 takes three times as
# many combinations, PG_BULK_SOAK=1 all, PG_BULK_CELLS those whose names match: 'where, delete undone, plain, auto'.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use List::Util qw(shuffle);
use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(seed soak);
use Load qw(load_server);
use UserCode qw(actions files gate_of has_label is_possible kinds oracle_of places ways);

# Combinations of each place with each way, besides those that have every action.
use constant EACH => 3;

my $node = load_server('user_code', shared_preload_libraries => 'pg_bulk', log_statement => 'none', log_min_error_statement => 'panic',
	log_min_messages => 'fatal', client_min_messages => 'warning', statement_timeout => '60s', 'pg_bulk.memory_limit' => '1MB', 'pg_bulk.chunk_size' => '16kB', UserCode::settings());
my $matrix = UserCode->new($node);

# All combinations, in an order of the seed. The number of available workers is random.
srand(seed());
my @all;
for my $place (places())
{
	for my $action (actions())
	{
		for my $kind (kinds())
		{
			for my $way (ways())
			{
				for my $file (files())
				{
					my %cell = (place => $place, action => $action, kind => $kind, way => $way, file => $file, workers => 2 * int rand 2, label => unpack('%32C*', "$place$action$kind$way$file") % 2 ? 'restricted' : 'unsafe');
					$cell{label} = 'unsafe' unless has_label($place);
					push @all, \%cell if is_possible(%cell);
				}
			}
		}
	}
}
my @cells;
if (my $pattern = $ENV{PG_BULK_CELLS})
{
	@cells = grep { join(', ', @$_{ 'place', 'action', 'kind', 'way', 'file', 'label' }) =~ /$pattern/ } @all;
}
elsif (soak())
{
	@cells = @all;
}
else
{
	my (%of_action, %of_place);
	my $each = EACH * ($ENV{PG_BULK_TIMES} // 1);
	for my $cell (shuffle @all)
	{
		my $is_wanted = !$of_action{"$cell->{action}|$cell->{way}"};
		$is_wanted ||= ($of_place{"$cell->{place}|$cell->{way}"} // 0) < $each;
		next unless $is_wanted;
		push @cells, $cell;
		$of_action{"$cell->{action}|$cell->{way}"}++;
		$of_place{"$cell->{place}|$cell->{way}"}++;
	}
}
note 'PG_BULK_SEED=' . seed() . ': ' . @cells . ' of ' . @all . ' cells';
$matrix->add(%$_) for @cells;
$matrix->run;

# The page of docs/internals lists exactly the places that have combinations.
my $page = slurp_file("$ENV{PG_ABS_SRCDIR}/data/user_code.md");
my %gates = $page =~ /^\| ([a-zA-Z -]+?) \| .* \| ([^|]+?) \|$/mg;
delete $gates{place};
is(join("\n", sort keys %gates), join("\n", sort(places())), 'the places of docs/internals/user_code.md');
like($gates{$_}, qr/^\Q${\gate_of($_)}\E/, "the gate of $_ on that page") for places();

my (%ran, $failures);
for my $cell ($matrix->cells)
{
	$ran{$_}++ for @$cell{ 'place', 'action', 'way' };
	$ran{"$cell->{place}, $cell->{label}"}++;
	my $verdict = $matrix->verdict($cell);
	next if $verdict eq '';
	# More failures would add little.
	last if ++$failures > 50;
	fail($cell->{name});
	diag("$verdict\n", $matrix->said_of($cell) // '');
}
is($failures // 0, 0, scalar($matrix->cells) . ' cells leave what COPY leaves');
unless ($ENV{PG_BULK_CELLS})
{
	is(join(', ', grep { !$ran{$_} } places(), actions(), ways()), '', 'each place, each action and each way has a cell');
	is(join(', ', grep { my $place = $_; has_label($place) && grep { !$ran{"$place, $_"} } 'unsafe', 'restricted' } places()), '', 'each place whose functions have labels has cells of both');
	# An action that does nothing tests nothing. An orphan may end a load before its function acts.
	is(join("\n", map { join("|", @{ $_->{cell} }{ "place", "action", "kind", "way" }) . ": $_->{outcome}" } grep { $_->{cell}{file} eq "good" && $_->{outcome} !~ /^acts t$/m } $matrix->oracles_run), '', 'in each cell the function has acted');
}

$node->stop;
done_testing();
