#!/usr/bin/env perl
#
# Two builds that differ, and two that do not.
use strict;
use warnings;
use FindBin;
use List::Util qw(sum0);
use Test::More;
use lib "$FindBin::RealBin/..";
use Compare;

# By hand: of the 20 orders of three and three values, one has
# all of the second on top, and two have at most one win less.
is(Compare::chance([ 1, 2, 3 ], [ 4, 5, 6 ]), 1 / 20, 'all on top');
is(Compare::chance([ 1, 2, 4 ], [ 3, 5, 6 ]), 2 / 20, 'all but one');
is(Compare::chance([ 4, 5, 6 ], [ 1, 2, 3 ]), 1, 'none');
is(Compare::chance([1], [2]), 1 / 2, 'one and one');
cmp_ok(abs(Compare::chance([ 1 .. 9 ], [ 1 .. 9 ]) - 0.5), '<', 0.02, 'the same values');

# Times within a range of a tenth, from a deterministic generator.
my $state = 1;
sub random { $state = ($state * 16807) % 2147483647; return $state / 2147483647 }
sub sample { my ($second) = @_; return [ map { $second * (0.95 + 0.1 * random()) } 1 .. 11 ] }

my %found = (slower => 0, faster => 0, '' => 0);
$found{ Compare::verdict(sample(1), sample(1)) }++ for 1 .. 300;
cmp_ok($found{''}, '>=', 299, 'equal builds are equal');
%found = (slower => 0, faster => 0, '' => 0);
$found{ Compare::verdict(sample(1), sample(1.1)) }++ for 1 .. 100;
cmp_ok($found{slower}, '>=', 95, 'a tenth slower is seen');
is($found{faster}, 0, '... and never taken for faster');
is(Compare::verdict([ map { 1.1 + $_ / 1000 } 1 .. 11 ], [ map { 1 + $_ / 1000 } 1 .. 11 ]), 'faster', 'a tenth faster');
is(Compare::verdict([ map { 1 + $_ / 1e6 } 1 .. 11 ], [ map { 1.01 + $_ / 1e6 } 1 .. 11 ]), '',
    'a hundredth is not worth a word, however sure it is');
is(Compare::verdict([ (1) x 10, 9 ], [ 9, (1) x 10 ]), '', 'one slow load among eleven is none of the build');
is(Compare::verdict([ 1 .. 5 ], [ 11 .. 15 ]), '', 'five rounds show nothing');

# Two runs.
ok(Compare::agree([ 1, 1.2, 1.1 ], [ 1.15, 1.4, 1.3 ]), 'spreads that overlap agree');
ok(Compare::agree([ 1, 1.001, 1.002 ], [ 1.01, 1.011, 1.012 ]), '... and so does what differs by a hundredth');
ok(!Compare::agree([ 1, 1.2, 1.1 ], [ 1.25, 1.4, 1.3 ]), 'but not more than that');
ok(!Compare::agree([ 1.25, 1.4, 1.3 ], [ 1, 1.2, 1.1 ]), '... either way');

done_testing();
