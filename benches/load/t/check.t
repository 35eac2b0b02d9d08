#!/usr/bin/env perl
#
# No time without a check: permitted and wrong states after a load are told apart. Requires an installed pg_bulk.
use strict;
use warnings;
use Cwd qw(realpath);
use FindBin;
use Test::More;
use lib "$FindBin::RealBin/..";
use Bench;
use Rival;
use Workload;

my $root = realpath("$FindBin::RealBin/../../..");
my $bench = Bench->with_server($ENV{PG_CONFIG} || 'pg_config', root => $root, here => "$root/benches/load", rounds => 1,
    rivals => [@Rival::NAMES], with_bulk => 1, user => $ENV{BENCH_USER} || 'postgres', threads => 2, beside => '-check');
my $server = $bench->{server};
my $main = $$;
END { my $status = $?; eval { $server->stop } if $main && $$ == $main && $server->{socket}; $? = $status }
chdir $root or die $!;
$bench->prepare;

sub fails {
    my ($what, $pattern, $name) = @_;
    ok(!eval { $what->(); 1 }, $name);
    like($@, $pattern, '... and says so');
}

my $workload = Workload->new($bench, name => 'test', rows => 3000, index => 1);
$workload->begin;
my $load = sub { my ($name) = @_; return Rival->new($bench, $name)->load($workload) };
for my $name (qw(copy copy_then_index two_copies bulk_load bulk_enqueue file_fdw bulk_fdw)) {
    my $figures = $load->($name);
    cmp_ok($figures->{seconds}, '>', 0, "$name loads, and its content is right");
    cmp_ok($figures->{index_bytes}, '>', 8192, '... with its index');
}
# Errors that a loader could make, applied to a correct table.
my $broken = sub {
    my ($name, $pattern, @statements) = @_;
    $load->('bulk_load');
    $server->query(@statements);
    fails(sub { $workload->check('a rival') }, $pattern, $name);
};
my $content = qr/the content after a rival is wrong/;
$broken->('a row is missing', $content, 'DELETE FROM test WHERE id = 1234');
$broken->('a row is there twice', $content, 'ALTER TABLE test DROP CONSTRAINT test_pkey',
    'INSERT INTO test SELECT * FROM test WHERE id = 1234');
$workload->make_table;
$broken->('a value is another one', $content,
    q(UPDATE test SET crt_time = crt_time + interval '1 microsecond' WHERE id = 1234));
$broken->('two values have changed places', $content,
    'UPDATE test SET info = (SELECT info FROM test t WHERE t.id = 1234 + 1235 - test.id) WHERE id IN (1234, 1235)');
$broken->('an index is missing', qr/the number of indexes after a rival is wrong/,
    'ALTER TABLE test DROP CONSTRAINT test_pkey');
$workload->make_table;

my $rival = Rival->new($bench, 'bulk_load');
fails(sub { $rival->judge($workload, '2999|0|direct|0||') }, qr/number of rows/, 'a load that counts fewer rows');
fails(sub { $rival->judge($workload, '3000|1|direct|0||') }, qr/number of bad rows/, '... or finds bad ones');
$workload->{rows} = $workload->{good_rows} = 300_000;
fails(sub { $rival->judge($workload, '300000|0|buffered|0|[]|{"for a reason"}') }, qr/the writer of bulk_load \(for a reason\)/,
    'a load by the other writer');
is_deeply([ $rival->judge($workload, '300000|0|direct|2|[{"why": "few", "method": "rebuild"}, {"method": "insert"}, {"method": "insert"}]|{}') ],
    [ 2, 'insert, rebuild' ], 'how indexes came by the rows');
fails(sub { $rival->judge($workload, '300000|0|buffered|0|[]|{once,"a \\"b\\" | c, d"}') }, qr/the writer of bulk_load \(once a "b" \| c, d\)/,
    'notes of any kind');
@$workload{qw(rows good_rows)} = (3000, 3000);
$workload->end;

# For a file with bad rows, all good ones must be there, and no others.
my $bad = Workload->new($bench, name => 'bad10', rows => 3000);
$bad->begin;
cmp_ok($bad->{good_rows}, '<', 2900, 'bad rows are in the file');
cmp_ok(Rival->new($bench, $_)->load($bad)->{seconds}, '>', 0, "$_ leaves them out") for qw(bulk_load bulk_load_table bulk_fdw);
$bad->end;

# An append finds the same table each time.
my $more = Workload->new($bench, name => 'test', rows => 3000, index => 1, more => 500);
$more->begin;
for my $name (qw(copy bulk_load bulk_load_share copy)) {
    cmp_ok(Rival->new($bench, $name)->load($more)->{seconds}, '>', 0, "$name appends to what was there");
}
$more->reset;
is($server->query('SELECT count(*), max(id) FROM test'), '3000|3000', 'and what it has added is gone');
$more->end;

done_testing();
