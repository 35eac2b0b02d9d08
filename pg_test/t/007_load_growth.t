
# Index strategy append adds whole leaves behind the last one while other sessions use the index: a session that uses
# the same keys or the same leaf waits, or the load notices it. Between the look at the end of
# the index and its lock, and under the lock, other sessions insert, load, delete, vacuum
# and read. A standby has the same pages.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use IPC::Run ();
use Test::More;
use File::Spec::Functions qw(rel2abs);
use Time::HiRes qw(usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Load qw(begin_session checksums_ok healthy load_server load_sql numbers_file standby_equal standby_of);
use Points qw(point_clear point_set point_taken point_wait);

my $directory = rel2abs(PostgreSQL::Test::Utils::tempdir('files'));
my $primary = load_server('primary', wal_consistency_checking => 'all', autovacuum => 'off');
my $standby = standby_of($primary, 'standby');
$primary->safe_psql('postgres', 'CREATE TABLE grows (id int PRIMARY KEY, word text, at timestamp); CREATE TABLE seen (id int)');

# A load of these numbers. The table begins with 10,000.
sub load
{
	my ($first, $last) = @_;
	my $file = "$directory/$first-$last";
	numbers_file($file, $first, $last);
	return load_sql($file, 'grows');
}
$primary->safe_psql('postgres', load(1, 10_000));
sub rows { return $primary->safe_psql('postgres', 'SELECT count(*), max(id) FROM grows'); }
sub afterwards
{
	my ($rows, $name) = @_;
	is(rows(), $rows, $name);
	healthy($primary, $name);
	standby_equal($primary, $standby, 'grows');
	return;
}

# Other sessions run statements while a load waits at a point; the caller says how many of them must wait for it.
sub meanwhile
{
	my ($point, $load, $waits, @others) = @_;
	point_set($primary, $point, 'wait');
	my (undef, $end) = begin_session($primary, $load);
	my ($pid) = point_wait($primary, $point);
	point_set($primary, $point, "wait pid=$pid");
	my @sessions = map { [ begin_session($primary, $_) ] } @others;
	if ($waits)
	{
		$primary->poll_query_until('postgres', "SELECT count(*) = $waits FROM pg_stat_activity WHERE wait_event_type IN ('LWLock', 'BufferPin', 'Buffer')")
		  or die 'nobody waits';
		point_clear($primary);
	}
	my @results = $waits ? () : map { [ $_->[1]->() ] } @sessions;
	point_clear($primary);
	my ($out, $err) = $end->();
	@results = map { [ $_->[1]->() ] } @sessions if $waits;
	return ("$out$err", map { $_->[0] . $_->[1] } @results);
}

# The last leaf is locked.
my ($result, @results) = meanwhile('leaf.grow', load(10_001, 14_000), 2, 'INSERT INTO grows VALUES (12000)', 'INSERT INTO grows VALUES (20000)');
is($result, "4000\n", 'the end is locked: the load');
like($results[0], qr/ERROR:  duplicate key value violates unique constraint "grows_pkey"/, '... who wants one of its keys');
is($results[1], '', '... who wants a place behind them');
afterwards('14001|20000', '... afterwards');

# The last leaf was only looked at.
($result, @results) = meanwhile('leaf.looked', load(20_001, 24_000), 0, 'INSERT INTO grows VALUES (22000)');
is($results[0], '', 'the end was looked at: a key of the load comes first');
like($result, qr/ERROR:  duplicate key value violates unique constraint "grows_pkey"\nDETAIL:  Key \(id\)=\(22000\) already exists/, '... the load');
afterwards('14002|22000', '... afterwards');
($result, @results) = meanwhile('leaf.looked', load(22_001, 26_000), 0, 'INSERT INTO grows VALUES (30000)');
is($result, "4000\n", '... another place is taken: the load');
afterwards('18003|30000', '... afterwards');
($result, @results) = meanwhile('leaf.looked', load(30_001, 34_000), 0, load(40_001, 60_000));
is("$result@results", "4000\n20000\n", '... leaves come first: the loads');
afterwards('42003|60000', '... afterwards');
($result, @results) = meanwhile('leaf.looked', load(60_001, 64_000), 0, 'DELETE FROM grows WHERE id > 45000', 'VACUUM grows');
is($result, "4000\n", '... rows are gone: the load');
$primary->safe_psql('postgres', 'VACUUM grows');
is(rows(), '31003|64000', '... afterwards');
healthy($primary, '... afterwards');

# No page can be had: there is no free page, or free pages are
# used up and extending fails, when the load has added some.
for my $case ('leaf.page', 'leaf.extend after=5')
{
	my ($point, $after) = split / /, $case;
	point_set($primary, $point, ($after // '') . ' error once');
	my (undef, undef, $err) = $primary->psql('postgres', load(64_001, 120_000));
	like($err, qr/ERROR:.*$point/, "an error while pages are made: $point");
	point_clear($primary);
}
is($primary->safe_psql('postgres', 'INSERT INTO grows VALUES (64001); ' . load(64_002, 70_000)), '5999', '... nothing is locked');
$primary->safe_psql('postgres', 'VACUUM grows');
afterwards('37003|70000', '... afterwards');

# A reader that has read up to the end also reads the added rows.
my $first = 70_001;
for my $case ('the reader commits first', 'the load commits first', 'an insertion behind the load')
{
	my ($reader, $writer) = map { $primary->background_psql('postgres', on_error_stop => 0) } 1 .. 2;
	$reader->query_safe('BEGIN ISOLATION LEVEL SERIALIZABLE; SET enable_seqscan = off; SET enable_bitmapscan = off');
	$writer->query_safe('BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM seen');
	is($reader->query("SELECT count(*) FROM grows WHERE id >= $first"), '0', "serializable: $case");
	my $load = load($first, $first + 3999);
	is($case =~ /behind/ ? $primary->safe_psql('postgres', $load) : $writer->query($load), '4000', '... the load');
	$writer->query_safe('INSERT INTO grows VALUES (99999)') if $case =~ /behind/;
	$reader->query_safe('INSERT INTO seen VALUES (1)');
	$_->query('COMMIT') for $case =~ /reader/ ? ($reader, $writer) : ($writer, $reader);
	like(join('', map { $_->{stderr} // '' } $reader, $writer), qr/could not serialize access/, '... one of them fails');
	$_->quit for $reader, $writer;
	$primary->safe_psql('postgres', 'DELETE FROM grows WHERE id > 70000; TRUNCATE seen');
	$first += 4000;
}

# VACUUM has left a leaf that is alone on its level: searches begin there until core has split it.
$primary->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS pageinspect; CREATE TABLE alone (id int PRIMARY KEY, word text, at timestamp); INSERT INTO alone SELECT generate_series(1, 20000)');
$primary->safe_psql('postgres', 'DELETE FROM alone WHERE id < 19990; VACUUM alone');
is($primary->safe_psql('postgres', q{SELECT fastlevel < level FROM bt_metap('alone_pkey')}), 't', 'a leaf that is alone');
numbers_file("$directory/alone", 20_001, 40_000);
is($primary->safe_psql('postgres', load_sql("$directory/alone", 'alone')), '20000', '... the load');
is($primary->safe_psql('postgres', q{SELECT fastlevel = level FROM bt_metap('alone_pkey')}), 't', '... searches begin at the root');
$primary->safe_psql('postgres', 'DELETE FROM alone WHERE id % 10000 > 100');
# If this VACUUM never ended, it could not be canceled.
my $vacuum = IPC::Run::start([ 'psql', '-XAtqc', 'VACUUM alone', '-d', $primary->connstr('postgres') ], IPC::Run::timeout(30));
ok($vacuum->finish, '... VACUUM ends');

# Two such loads at once, repeatedly.
my @sessions = map
{
	my $odd = $_;
	[ begin_session($primary, join '; ', map { load_sql("$directory/odd$odd-$_", 'grows') } 1 .. 6) ]
} map
{
	my $odd = $_;
	for my $part (1 .. 6)
	{
		my $from = 100_000 + $part * 10_000;
		append_to_file("$directory/odd$odd-$part", join '', map { ($_ * 2 + $odd) . ",word,\n" } $from / 2 .. $from / 2 + 4_999);
	}
	$odd
} 0, 1;
is(join('', map { my ($out, $err) = $_->[1]->(); "$out$err" } @sessions), "5000\n" x 12, 'two at once');
afterwards('97003|169999', '... afterwards');
checksums_ok($primary);
$standby->stop;
$primary->stop;
done_testing();
