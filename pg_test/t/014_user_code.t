use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::RealBin/../perl";
use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);
use Load qw(load_server);
use UserCode qw(places actions kinds ways files is_possible);
my $node = load_server('user_code', wal_level => 'replica', shared_preload_libraries => 'pg_bulk', log_statement => 'none', log_min_error_statement => 'panic',
	log_min_messages => 'fatal', client_min_messages => 'warning', statement_timeout => '60s', 'pg_bulk.memory_limit' => '1MB', 'pg_bulk.chunk_size' => '16kB');
my $matrix = UserCode->new($node);
my $filter = $ENV{CELLS} // '.';
for my $place (places()) { for my $action (actions()) { for my $kind (kinds()) { for my $way (ways()) { for my $file (files()) {
	my %cell = (place => $place, action => $action, kind => $kind, way => $way, file => $file);
	next unless is_possible(%cell) && join(', ', @cell{qw(place action kind way file)}) =~ /$filter/;
	$matrix->add(%cell);
}}}}}
my $t = time;
$matrix->run;
diag scalar(keys %{$matrix->{runs}}), " runs ", time - $t;

my %n;
open my $o, '>', '/tmp/matrix_cells' or die $!;
for my $cell ($matrix->cells) { my $v = $matrix->verdict($cell); my $run = $matrix->{runs}{UserCode::key_of($cell)}; 
 print $o "=== $cell->{name}\n$v\n", ($v =~ /-- but/ ? "SAID ".($run->{said} // '') : ''), "\n" if $v ne ''; }
for my $key (@{$matrix->{order}}) { my $run=$matrix->{runs}{$key}; print $o "NOT REACHED $key $run->{outcome} $run->{said}\n" if $run->{cell}{way} =~ /^(copy|select)/ && $run->{outcome} !~ /^acts t/m; }
ok(1);
$node->stop;
done_testing();
