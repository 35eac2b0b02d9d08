
# Power failures: after a load that was committed, after a checkpoint behind it,
# and during one. Data that was not durable is lost; committed rows must not be.
# The loader writes pages past shared buffers, creates new files, and
# builds indexes. All must be durable in time: by WAL, by
# the next checkpoint's fsync, or, if they are not logged, at COMMIT.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Load qw(begin_session checksums_ok healthy kinds load_server load_sql make_tables numbers_file rows_of);
use PowerLoss;

my $directory = PostgreSQL::Test::Utils::tempdir('power_loss');
chmod 0755, $directory;
my @files = map { "$directory/$_" } 0 .. 2;
# More rows than go through shared buffers.
numbers_file($files[$_], $_ * 20_000 + 1, $_ * 20_000 + 20_000) for 0 .. 2;
numbers_file("$directory/many", 100_001, 180_000);
my @tables = kinds();

for my $wal_level ('replica', 'minimal')
{
	my $node = load_server($wal_level, fsync => 'on', wal_level => $wal_level, max_wal_senders => 0, wal_skip_threshold => 0,
		allows_streaming => 0, full_page_writes => 'on', min_parallel_table_scan_size => 0);
	my $power = PowerLoss->new($node);
	$node->stop;
	$power->start;
	make_tables($node, @tables);
	$node->safe_psql('postgres', "CREATE FOREIGN TABLE source (id int, word text, at timestamp) SERVER bulk_files OPTIONS (filename '$files[2]', format 'csv')");
	# Pages that are changed after a checkpoint's redo point.
	$node->safe_psql('postgres', 'CHECKPOINT');

	my %unsafe;
	my $fails = sub {
		my ($name, @extra) = @_;
		my @expected = map { rows_of($node, $_) } @tables, @extra;
		my ($lost, $unsafe) = $power->fail(1);
		$unsafe{$name} = $unsafe;
		$power->start;
		my @seen = map { rows_of($node, $_) } @tables, @extra;
		is_deeply(\@seen, \@expected, "$wal_level, $name: what was committed is there");
		healthy($node, "$wal_level, $name");
	};

	# Into files with rows; then new files, with rebuilt indexes.
	$node->safe_psql('postgres', join ";\n", map { load_sql($files[0], $_, workers => 2) } @tables);
	$fails->('a load');
	$node->safe_psql('postgres', join(";\n", map { load_sql($files[1], $_, workers => 2) } @tables) . ";\nCHECKPOINT");
	$fails->('a load and a checkpoint');
	$node->safe_psql('postgres', join ";\n", map { load_sql($files[0], $_, workers => 2, truncate => 'true') } @tables);
	$fails->('a load into new files');
	$node->safe_psql('postgres', join(";\n", map { load_sql($files[0], $_, workers => 2, truncate => 'true') } @tables) . ";\nCHECKPOINT");
	$fails->('a load into new files and a checkpoint');
	# Index files that are merged, while the table keeps its file.
	$node->safe_psql('postgres', load_sql($files[1], 'keyed', lock => 'share', indexes => 'merge'));
	$fails->('merged indexes');
	$node->safe_psql('postgres', load_sql($files[2], 'toasted', lock => 'share', indexes => 'merge') . ";\nCHECKPOINT");
	$fails->('merged indexes and a checkpoint');
	# By INSERT, and into a table of the same transaction.
	$node->safe_psql('postgres', 'INSERT INTO plain SELECT * FROM source; BEGIN; CREATE TABLE made AS SELECT * FROM source; CREATE TABLE keyed_too (LIKE keyed INCLUDING ALL); INSERT INTO keyed_too SELECT * FROM source; COMMIT');
	$fails->('INSERT and CREATE TABLE AS', 'made', 'keyed_too');

	# A checkpoint in the middle of a load, whose pages are in no buffer:
	# recovery begins after them. And the power fails during a load.
	for my $rest (slurp_file($files[2]), undef)
	{
		my $name = defined $rest ? 'a checkpoint in the middle' : 'during a load';
		my $fifo = "$directory/fifo.$wal_level." . ($rest // '') =~ s/\W.*//sr;
		system('mkfifo', '-m', '644', $fifo) == 0 or die 'mkfifo';
		# Otherwise the page that the first rows fill would be in a buffer, whose write requests an fsync of the file.
		$node->safe_psql('postgres', 'TRUNCATE plain; CHECKPOINT');
		my ($pid, $finish) = begin_session($node, load_sql($fifo, 'plain', workers => 0));
		open my $writer, '>', $fifo or die $fifo;
		print $writer slurp_file("$directory/many");
		$writer->flush;
		$node->poll_query_until('postgres', "SELECT pg_relation_size('plain') > 2000000") or die;
		$node->safe_psql('postgres', 'CHECKPOINT; DROP TABLE IF EXISTS behind; CREATE TABLE behind AS SELECT 1');
		print $writer $rest // '';
		close $writer if defined $rest;
		is(($finish->())[1], '', "$name: loaded") if defined $rest;
		$fails->("$wal_level, $name" =~ s/.*, //r);
		close $writer if !defined $rest;
		$finish->() if !defined $rest;
	}
	note "pages that could be lost:\n", map { "  $_: $unsafe{$_}\n" } sort keys %unsafe;
	cmp_ok($unsafe{'a load'}, '>', 0, "$wal_level: there was something to lose");
	$node->stop;
	$power->start;
	checksums_ok($node);
	$node->stop;
}
done_testing();
