
# Random tables of all types of columns, whose rows a load stores as COPY does,
# byte for byte. Columns have every length and alignment. Values are NULL,
# compressed or stored out of line, and rows fill a page.
# heap_page_items has equal results after COPY and after a load, and
# verify_heapam finds no error. (006_load_model.t tests the indexes.)
#
# PG_BULK_SECONDS sets the duration, PG_BULK_SEED the seed.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(seed);
use Load qw(load_server);
use Soup qw(pick);
use Values qw(prerequisites);

my $seconds = $ENV{PG_BULK_SECONDS} // 5;
note 'PG_BULK_SEED=' . seed() . " PG_BULK_SECONDS=$seconds";
my $node = load_server('made_up_tables', wal_level => 'replica', wal_consistency_checking => 'all', log_min_error_statement => 'panic');
$node->safe_psql('postgres', prerequisites());

# The types of columns, each with an expression that computes a value from r, a number between 0 and 1.
my @kinds = (
	[ 'int2', '(r * 60000 - 30000)::int2' ], [ 'int4', '(r * 4e9 - 2e9)::int4' ], [ 'int8', '(r * 1.8e19 - 9e18)::int8' ], [ 'bool', 'r < 0.5' ],
	[ '"char"', 'chr(33 + (r * 90)::int)::"char"' ], [ 'float4', '(r * 1e6)::float4' ], [ 'float8', 'r * 1e9' ], [ 'numeric', '(r * 1e12)::numeric' ],
	[ 'numeric(12,3)', 'r::numeric * 100000' ], [ 'name', "left(md5(r::text), (r * 32)::int)::name" ], [ 'uuid', 'md5(r::text)::uuid' ], [ 'date', "date '2000-01-01' + (r * 9000)::int" ],
	[ 'timetz', "timetz '00:00+02' + r * interval '1 day'" ], [ 'interval', "r * interval '1000 days'" ], [ 'timestamptz', "timestamptz '2000-01-01' + r * interval '20 years'" ],
	[ 'macaddr', "('08:00:2b:01:02:' || lpad(to_hex((r * 255)::int), 2, '0'))::macaddr" ], [ 'macaddr8', "'08:00:2b:01:02:03:04:05'::macaddr8" ], [ 'point', 'point(r, -r)' ], [ 'box', 'box(point(r, 0), point(1, r))' ],
	[ 'tid', "format('(%s,%s)', (r * 1e6)::int, 1 + (r * 200)::int)::tid" ], [ 'inet', "('10.0.0.' || (r * 255)::int)::inet" ], [ 'bit(13)', '(r * 8191)::int::bit(13)' ], [ 'varbit', '(r * 8191)::int::bit(13)::varbit' ],
	[ 'int4[]', 'array_fill((r * 100)::int, ARRAY[(r * 50)::int])' ], [ 'int8range', 'int8range((r * 100)::int8, 101)' ], [ 'pair', "ROW((r * 100)::int, left(md5(r::text), (r * 20)::int))::pair" ], [ 'positive', '1 + (r * 100)::int' ],
	[ 'jsonb', "jsonb_build_object('a', r, 'b', repeat('x', (r * 200)::int))" ], [ 'char(140)', "left(md5(r::text), (r * 30)::int)" ], [ 'path', "path '[(0,0),(1,1)]'" ], [ 'pg_lsn', "('0/' || to_hex((r * 1e9)::int))::pg_lsn" ],
	map({ my $most = $_; [ 'text', "left(repeat(md5(r::text), 1 + $most / 32), (r * $most)::int)" ] } 10, 126, 130, 140, 600, 2000, 2100),
	# Neither compressible nor short.
	map({ my $most = $_; [ 'bytea', "(SELECT decode(string_agg(md5((r + i)::text), ''), 'hex') FROM generate_series(0, (r * $most / 16)::int) i)" ] } 100, 500, 2000, 9000));

my @storages = qw(PLAIN MAIN EXTERNAL EXTENDED);

# The stored bytes of each row, without transaction and command.
# An out-of-line value is a pointer, with an OID of its own.
my $compare = <<'SQL';
CREATE FUNCTION tuples(relation regclass) RETURNS TABLE (infomask int, infomask2 int, hoff int, bits text, data bytea) LANGUAGE sql AS
$$ SELECT t_infomask & (15 | 2048), t_infomask2, t_hoff, t_bits, CASE WHEN t_infomask & 4 = 0 THEN t_data END
   FROM generate_series(0, pg_relation_size($1) / 8192 - 1) block, heap_page_items(get_raw_page($1::text, block::int)) $$;
SQL
$node->safe_psql('postgres', $compare);

# SQL for psql, with the variable `file`. It prints complaints, then the number of rows.
sub random_table
{
	my ($number) = @_;
	srand(seed() * 1_000_003 + $number);
	my @columns;
	for my $i (1 .. pick(1, 2, 5, 12, 40))
	{
		my ($type, $value) = @{ pick(@kinds) };
		push @columns, { name => "c$i", type => $type, value => ($value =~ s/\br\b/r$i/gr), nulls => pick(0, 0, 0.05, 0.5, 0.97) };
	}
	# Otherwise values long enough for TOAST would be rare.
	@{ $columns[-1] }{qw(type value)} = ('bytea', ($kinds[-1][1] =~ s/\br\b/r@{[ scalar @columns ]}/gr)) if rand() < 0.3;
	my @all = map { "$_->{name} $_->{type}" } @columns;
	my $dropped = rand() < 0.3;
	splice @all, rand @all, 0, 'gone int' if $dropped;
	my $fillfactor = rand() < 0.4 ? ' WITH (fillfactor = ' . pick(10, 35, 70, 99) . ')' : '';
	my @create = ('CREATE TABLE TARGET (' . join(', ', @all) . ")$fillfactor");
	push @create, 'ALTER TABLE TARGET DROP gone' if $dropped;
	for my $column (@columns)
	{
		push @create, "ALTER TABLE TARGET ALTER $column->{name} SET STORAGE " . pick(@storages) if $column->{type} =~ /^(text|bytea|jsonb)/ && rand() < 0.4;
	}
	my $create = join '', map { my $table = $_; map { s/TARGET/$table/r . ";\n" } @create } qw(copied loaded);
	my $values = join ', ', map { "CASE WHEN random() >= $_->{nulls} THEN $_->{value} END" } @columns;
	my $numbers = join ', ', map { "random() AS r$_" } 1 .. @columns;
	my ($start, $count, $chunk_size, $workers) = (rand, int rand pick(20, 300, 1500), pick('64', '1kB', '256kB'), pick(0, 0, 1, 2));
	my $truncate = rand() < 0.3 ? ', "truncate": true' : '';
	return "SELECT setseed($start) \\gset\n$create" .
		compared("SELECT $values FROM (SELECT $numbers FROM generate_series(1, $count)) numbers", $chunk_size, qq("workers": $workers$truncate));
}

# Loads the rows of a query into both tables. COPY and the load may
# fail with the same error: for a row that is too large for a page.
sub compared
{
	my ($query, $chunk_size, $options) = @_;
	return <<"SQL";
COPY ($query) TO :'file';
SET pg_bulk.chunk_size = '$chunk_size';
\\set ON_ERROR_STOP 0
COPY copied FROM :'file';
\\set copied :SQLSTATE
SELECT rows_loaded FROM bulk_load(:'file', 'loaded', '{"writer": "direct", $options}') \\gset
\\set loaded :SQLSTATE
\\set ON_ERROR_STOP 1
SELECT 'states: ' || :'copied' || ', ' || :'loaded' WHERE :'copied' <> :'loaded';
SELECT 'heap: ' || heap::text FROM verify_heapam('loaded', check_toast => true) heap;
SELECT 'rows: ' || count(*) FROM ((SELECT copied::text FROM copied EXCEPT ALL SELECT loaded::text FROM loaded)
	UNION ALL (SELECT loaded::text FROM loaded EXCEPT ALL SELECT copied::text FROM copied)) d HAVING count(*) > 0;
SELECT 'tuples: ' || count(*) || ' ' || min(d::text) FROM ((SELECT * FROM tuples('copied') EXCEPT ALL SELECT * FROM tuples('loaded'))
	UNION ALL (SELECT * FROM tuples('loaded') EXCEPT ALL SELECT * FROM tuples('copied'))) d HAVING count(*) > 0 AND :'copied' = '00000';
SELECT count(*), count(*) FILTER (WHERE infomask & 4 <> 0), :'loaded' FROM tuples('loaded');
DROP TABLE copied, loaded;
SQL
}

my ($tables, $rows, $external, $failed, @complaints) = (0, 0, 0, 0);
my $path = $node->basedir . '/made_up.data';

# Values that are longer than a TOAST pointer only because of their 4-byte header, which a tuple shortens, beside a value that
# makes the row too long, and stays inline.
my $columns = '(long text, wide bytea, middle text, range int8range)';
my $storage = join '', map { "CREATE TABLE $_ $columns;\nALTER TABLE $_ ALTER long SET STORAGE MAIN, ALTER wide SET STORAGE PLAIN;\n" } qw(copied loaded);
my $short = $storage . compared("SELECT repeat(md5(i::text), 40), decode(repeat(md5(i::text), 60), 'hex'), repeat('x', 18 + i % 8), int8range(i, 101) FROM generate_series(1, 100) i",
	'1kB', '"workers": 0');
is($node->safe_psql('postgres', "\\set file '$path'\n$short"), '100|24|00000', 'a value is as long as it is in a tuple');
my $end = time + $seconds;
do
{
	my $number = $tables++;
	my ($status, $stdout, $stderr) = $node->psql('postgres', "\\set file '$path'\n" . random_table($number), on_error_die => 0);
	my ($r, $e, $state) = $stdout =~ /^(\d+)\|(\d+)\|(\w+)\z/;
	if (!defined $r || $status)
	{
		push @complaints, "PG_BULK_SEED=" . seed() . " table $number: $stdout\n$stderr\n" . random_table($number);
		$node->psql('postgres', 'DROP TABLE IF EXISTS copied, loaded');
	}
	else
	{
		$rows += $r;
		$external += $e;
		$failed++ if $state ne '00000';
	}
} while (time < $end && @complaints < 3);
is(join("\n", @complaints), '', 'a load stores what COPY stores');
note "$tables tables, $rows rows, $external with values elsewhere; $failed that no page takes";
cmp_ok($rows, '>', $tables * 10, 'of which there are many');
cmp_ok($external, '>', 0, '... some with values elsewhere') if $tables > 15;
$node->stop;
done_testing();
