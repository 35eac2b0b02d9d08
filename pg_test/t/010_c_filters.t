
# Filters in C whose returned tuples a load stores unchanged if possible: the stored bytes equal COPY's.
# A returned tuple that does not have the table's row type is refused, whatever type it claims.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Load qw(healthy indexes_find load_server);

my $node = load_server('c_filters');
my $directory = PostgreSQL::Test::Utils::tempdir('c_filters');
chmod 0755, $directory;
my $library = "$directory/filters.so";
my $headers = $node->config_data('--includedir-server');
system('cc', '-O2', '-shared', '-fPIC', "-I$headers", '-o', $library, "$ENV{PG_ABS_SRCDIR}/filters/filters.c") == 0 or die 'cc';

sub filter
{
	my ($name, $arguments, $result) = @_;
	return "CREATE FUNCTION filter_$name($arguments) RETURNS $result LANGUAGE c STABLE PARALLEL SAFE AS '$library', 'filter_$name';\n";
}
my $row = 'int, text, timestamp';
$node->safe_psql('postgres', <<"SQL" . join '', map({ filter($_, $row, 't') } qw(same some none one_row shorter greedy children)),
CREATE TABLE t (id int, info text, at timestamp);
CREATE TABLE wanted (LIKE t);
CREATE TABLE two (a int, b text);
CREATE TYPE altered AS (a int, b text);
CREATE FUNCTION tuples(relation regclass) RETURNS TABLE (infomask int, infomask2 int, hoff int, bits text, data bytea) LANGUAGE sql AS \$\$
	SELECT t_infomask & (15 | 2048), t_infomask2, t_hoff, t_bits, CASE WHEN t_infomask & 4 = 0 THEN t_data END
	FROM generate_series(0, pg_relation_size(\$1) / 8192 - 1) block, heap_page_items(get_raw_page(\$1::text, block::int)) \$\$;
-- The numbers of tuples of each that the other lacks.
CREATE FUNCTION differ(a regclass, b regclass) RETURNS text LANGUAGE sql AS \$\$
	SELECT concat_ws('+', (SELECT count(*) FROM (SELECT * FROM tuples(a) EXCEPT ALL SELECT * FROM tuples(b)) x),
		(SELECT count(*) FROM (SELECT * FROM tuples(b) EXCEPT ALL SELECT * FROM tuples(a)) x), (SELECT count(*) FROM tuples(a)) > 0) \$\$;
-- NULLs, and values that are empty, short, long, compressed and out of line.
COPY (SELECT i, CASE WHEN i % 7 = 0 THEN NULL WHEN i % 1001 = 0 THEN repeat(md5(i::text), 90) WHEN i % 1013 = 0 THEN (SELECT string_agg(md5((i + j)::text), '') FROM generate_series(1, 200) j)
		ELSE left(repeat(md5(i::text), 5), i % 160) END, CASE WHEN i % 5 < 4 THEN timestamp '2024-01-01' + i * interval '1 s' END FROM generate_series(1, 40000) i) TO '$directory/rows' (FORMAT csv);
COPY (SELECT i, 'x' || i, NULL FROM generate_series(1, 9) i) TO '$directory/few' (FORMAT csv);
SQL
	filter('picky', $row, 't'), filter('record', 'int, text', 'record'), filter('altering', 'int, text', 'altered'), filter('liar', 'int, text', 'two'),
	"CREATE TABLE later (id int, info text); INSERT INTO later VALUES (0); ALTER TABLE later ADD at date DEFAULT '2020-02-02';
"
	  . filter('shorter', 'int, text', 'later'));

# The result of a load, or the error.
sub load
{
	my ($file, $target, $filter, %more) = @_;
	my $options = join ', ', "\"format\": \"csv\", \"filter\": \"filter_$filter\"", map { "\"$_\": $more{$_}" } sort grep { $_ ne 'before' } keys %more;
	my ($status, $out, $err) = $node->psql('postgres', "SET pg_bulk.chunk_size = '64kB'; TRUNCATE $target;" . ($more{before} // '')
			. "SELECT rows_loaded, rows_rejected, rows_filtered, writer, workers FROM bulk_load('$file', '$target', '{$options}')");
	return $status == 0 ? $out : $err;
}

# Byte for byte.
for my $workers (0, 2)
{
	my @workers = (workers => $workers);
	$node->safe_psql('postgres', "TRUNCATE wanted; COPY wanted FROM '$directory/rows' (FORMAT csv)");
	is(load("$directory/rows", 't', 'same', @workers), "40000|0|0|direct|$workers", "the same rows, $workers workers");
	is($node->safe_psql('postgres', "SELECT differ('t', 'wanted')"), '0+0+t', '... and the same tuples');
	$node->safe_psql('postgres', "TRUNCATE wanted; COPY wanted FROM '$directory/rows' (FORMAT csv) WHERE id % 10 <> 3");
	is(load("$directory/rows", 't', 'some', @workers), "36000|0|4000|direct|$workers", 'some rows');
	is($node->safe_psql('postgres', "SELECT differ('t', 'wanted')"), '0+0+t', '... and their tuples');
	is(load("$directory/rows", 't', 'some', @workers, skip => 5, limit => 10, where => '"id > 20"'), '10|0|16|direct|0', 'a limit')
	  if $workers == 0;
}
healthy($node, 'tuples of a filter');

# Filters that take the table's row: it is stored unchanged if the filter returns it.
$node->safe_psql('postgres', filter('whole', 't', 't') . filter('whole_some', 't', 't') . filter('whole_anew', 't', 't'));
for my $workers (0, 2)
{
	my @workers = (workers => $workers);
	$node->safe_psql('postgres', "TRUNCATE wanted; COPY wanted FROM '$directory/rows' (FORMAT csv)");
	for my $filter (qw(whole whole_anew))
	{
		is(load("$directory/rows", 't', $filter, @workers), "40000|0|0|direct|$workers", "the same rows of rows: $filter, $workers workers");
		is($node->safe_psql('postgres', "SELECT differ('t', 'wanted')"), '0+0+t', '... and the same tuples');
	}
	$node->safe_psql('postgres', "TRUNCATE wanted; COPY wanted FROM '$directory/rows' (FORMAT csv) WHERE id % 10 <> 3");
	is(load("$directory/rows", 't', 'whole_some', @workers), "36000|0|4000|direct|$workers", 'some rows of rows');
	is($node->safe_psql('postgres', "SELECT differ('t', 'wanted')"), '0+0+t', '... and their tuples');
}
# NOT NULL where there are NULLs in other columns; rows of all NULLs.
$node->safe_psql('postgres', "CREATE TABLE half_rows (id int NOT NULL, info text, at timestamp);" . filter('whole', 'half_rows', 'half_rows')
		. "COPY (SELECT CASE WHEN i < 900 THEN i END, NULL, NULL FROM generate_series(1, 900) i) TO '$directory/null' (FORMAT csv);");
is(load("$directory/rows", 'half_rows', 'whole(half_rows)', workers => 0), '40000|0|0|direct|0', 'NULL and NOT NULL');
is($node->safe_psql('postgres', "TRUNCATE wanted; COPY wanted FROM '$directory/rows' (FORMAT csv); SELECT differ('half_rows', 'wanted')"), '0+0+t', '... and the same tuples');
like(load("$directory/null", 'half_rows', 'whole(half_rows)'), qr/null value in column "id" of relation "half_rows" violates not-null constraint.*CONTEXT:  COPY half_rows, line 900/s, 'NOT NULL of rows');
healthy($node, 'tuples of rows');

# Keys come from the returned tuples.
$node->safe_psql('postgres', 'CREATE TABLE keyed (id int PRIMARY KEY, info text, at timestamp); CREATE INDEX ON keyed (at, id)');
is(load("$directory/rows", 'keyed', 'same', workers => 2), '40000|0|0|direct|2', 'indexes');
indexes_find($node, 'keyed', 'rows of a filter');
healthy($node, 'indexes of a filter\'s rows');

# NOT NULL is checked on the returned rows.
$node->safe_psql('postgres', 'CREATE TABLE full_rows (id int, info text, at timestamp NOT NULL)');
like(load("$directory/few", 'full_rows', 'same'), qr/null value in column "at" of relation "full_rows" violates not-null constraint.*CONTEXT:  COPY full_rows, line 1/s, 'NOT NULL');

# An error keeps its fields and its line, or is survived.
like(load("$directory/few", 't', 'picky'), qr/ERROR:  not 7\nDETAIL:  Of all numbers\.\nHINT:  Try 8\.\nCONTEXT:  a function in C\nCOPY t, line 7/, 'an error');
is(load("$directory/few", 't', 'picky', on_error => '"table"'), '8|1|0|direct|0', '... survived');
is($node->safe_psql('postgres', 'SELECT line_number, sqlstate, message FROM bulk_rejects'), '7|22023|not 7', '... and told');
is($node->safe_psql('postgres', "SELECT string_agg(id::text, ',' ORDER BY id) FROM t"), '1,2,3,4,5,6,8,9', '... and the others are in');

# Memory that belongs to the function is not changed.
is(load("$directory/rows", 't', 'one_row', workers => 0), '40000|0|0|direct|0', 'one row, always');
is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT (id, info, at)), min(id) FROM t"), '40000|1|1', '... is what is stored');

# Fewer columns than the row type has: the others are NULL.
is(load("$directory/rows", 't', 'shorter(int,text,timestamp)', workers => 0), '40000|0|0|direct|0', 'fewer columns');
is($node->safe_psql('postgres', 'SELECT count(*), count(info) > 0, count(at), sum(id) FROM t'), '40000|t|0|800020000', '... are filled up');
healthy($node, 'fewer columns');
$node->safe_psql('postgres', "COPY (SELECT i, 'x' FROM generate_series(1, 9) i) TO '$directory/two' (FORMAT csv)");
is(load("$directory/two", 'later', 'shorter(int,text)'), '9|0|0|direct|0', 'fewer columns, of which one was added with a default');
is($node->safe_psql('postgres', 'SELECT count(*), sum(id), count(info), min(at), max(at) FROM later'), '9|45|9|2020-02-02|2020-02-02', '... are filled up with it');

# Rows whose type no longer matches.
my $mismatch = qr/ERROR:  function return row and query-specified return row do not match\nDETAIL:  Returned type bigint at ordinal position 2, but query expects text\.\nCONTEXT:  COPY two, line/;
like(load("$directory/few", 'two', 'record', before => "COPY (SELECT i, 'x' FROM generate_series(1, 9) i) TO '$directory/two' (FORMAT csv);"), qr/extra data/, 'a file of too many columns');
like(load("$directory/two", 'two', 'record'), qr/$mismatch 5/, 'a record that becomes another');
is(load("$directory/two", 'two', 'record', limit => 4), '4|0|0|direct|0', '... later');
like(load("$directory/two", 'two', 'liar', workers => 0), qr/ERROR:  function return row and query-specified return row do not match\nDETAIL:  The returned row does not end where the columns of its type do\.\nCONTEXT:  COPY two, line 5/, 'a row of another type that says that it is of this one');
like(load("$directory/two", 'two', 'altering'), qr/$mismatch 2/, 'a type that becomes another');

# Memory is freed with each row.
is(load("$directory/rows", 't', 'greedy', limit => 500), '500|0|0|direct|0', 'large rows do not pile up');
is(load("$directory/rows", 't', 'children', limit => 500), '500|0|0|direct|0', '... nor what rows leave in contexts of their own');

# Cancellation.
my ($status, undef, $err) = $node->psql('postgres', q(SET statement_timeout = '500ms'; SELECT bulk_load('yes 1,x,', 't', '{"program": true, "format": "csv", "filter": "filter_none"}')), timeout => 60);
like($err, qr/canceling statement due to statement timeout/, 'a filter that returns nothing is interrupted');

done_testing();
