
# COPY FROM STDIN as a load, message by message: a correct or incorrect client gets the same with pg_bulk.copy on and off.
# The state after a client is gone, canceled, or terminated. pg_dump and pg_restore; the view of other sessions; the time.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use File::Spec::Functions qw(rel2abs);
use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Load qw(healthy load_server numbers_file rows_of standby_equal standby_of kinds make_tables);
use Wire;

my $directory = rel2abs(PostgreSQL::Test::Utils::tempdir('client'));
chmod 0755, $directory;
my $node = load_server('client', shared_preload_libraries => 'pg_bulk,pg_stat_statements', session_preload_libraries => '',
	allows_streaming => 1, 'pg_bulk.copy_min_size' => 0, log_min_messages => 'debug1');
$node->safe_psql('postgres', 'CREATE EXTENSION pg_stat_statements; CREATE TABLE t (a int PRIMARY KEY, b text)');

# The log's new lines about the code that ran COPYs.
my $logged = -s $node->logfile;
sub takers
{
	my $text = slurp_file($node->logfile, $logged);
	$logged = -s $node->logfile;
	return join ' ', $text =~ /COPY "\w+" is (not done|done) by pg_bulk/g;
}

my $least = 0;

# The same conversation, with pg_bulk.copy off and on: the messages, and the table's rows. Cases that are not about the least
# size are also tried with its default.
sub same_talk
{
	my ($name, $talk, $who) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my (%said, %takers);
	for my $mode ('off', 'on', $least ? () : 'few')
	{
		my $size = $mode eq 'few' ? '64kB' : $least;
		my $copy = $mode eq 'off' ? 'off' : 'on';
		$node->safe_psql('postgres', 'TRUNCATE t');
		takers();
		my $wire = Wire->new($node, "SET pg_bulk.copy = $copy", "SET pg_bulk.copy_min_size = '$size'");
		$said{$mode} = $talk->($wire);
		$wire->close;
		$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type IN ('client backend', 'parallel worker')") or die;
		$said{$mode} .= "\n" . $node->safe_psql('postgres', 'TABLE t');
		$takers{$mode} = takers();
	}
	is($said{on}, $said{off}, $name);
	$who //= 'done';
	like($takers{on}, qr/^($who)$/, "$name: a load");
	is($said{few}, $said{off}, "$name, if few rows are core's") if !$least;
	return $said{on};
}
my $copy = 'COPY t FROM STDIN';

like(same_talk('all is well', sub { my ($w) = @_; $w->query($copy); my $g = $w->wait_for('G'); $w->data("1\tx\n"); $w->data("2\ty\n"); $w->done; $g . $w->answer }),
	qr/^G 0000020000.*C COPY 2\|Z I\n1\|x\n2\|y/s, 'it is well');
same_talk('bytes in pieces', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); for my $byte (split //, "1\tx\n2\ty\n") { $w->data($byte); usleep(2000) } $w->data(''); $w->done; $w->answer });
same_talk('no bytes', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->done; $w->answer });
same_talk('large messages', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); for my $i (0 .. 9) { $w->data(join '', map { ($i * 20000 + $_) . "\trow $_\n" } 1 .. 20000) } $w->done; $w->answer });
same_talk('a message with several rows and a half', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->data("1\tx\n2\ty\n3\t"); $w->data("z\n"); $w->done; $w->answer });
same_talk('data behind the marker', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->data("1\tx\n\\.\n2\ty\nnonsense\n"); $w->data("more\n"); $w->done; $w->answer });
same_talk('the marker in CSV', sub { my ($w) = @_; $w->query("$copy csv"); $w->wait_for('G'); $w->data("1,x\n\\.\n2,y\nnonsense\n"); $w->data("more\n"); $w->done; $w->answer });
same_talk('the marker behind data', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->data("1\tx\n2\ty\\.\n3\tz\n"); $w->done; $w->answer });
same_talk('a failure behind the marker', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->data("1\tx\n\\.\n"); $w->fail('it rains'); $w->answer });
like(same_talk('a failure', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->data("1\tx\n2"); $w->fail('it rains'); $w->answer }),
	qr/C57014 MCOPY from stdin failed: it rains WCOPY t, line 2\|Z I/, 'it says so');
same_talk('a failure at once', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->fail('it rains'); $w->answer });
same_talk('a failure without an end', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->message('f', 'it rains'); $w->answer });
same_talk('a failure at once in another encoding', sub { my ($w) = @_; $w->query("SET client_encoding = 'latin1'"); $w->answer; $w->query($copy); $w->wait_for('G'); $w->fail("it r\xe4ins"); $w->answer });
same_talk('another message at once', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->query('SELECT 1'); $w->answer });
same_talk('a message of a wrong length at once', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->bytes('d' . pack('N', 2)); $w->answer });
same_talk('a client that goes at once', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->close; '' });
same_talk('a bad row before a failure', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->data("1\tx\nz\ty\n"); $w->fail('it rains'); $w->answer });
same_talk('a bad row, and then data', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->data("1\tx\nz\ty\n"); my $e = $w->wait_for('E'); $w->data("2\tx\n"); $w->done; $e . $w->answer });
same_talk('a bad row, while the client waits', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->data("1\tx\n"); $w->data("z\ty\n"); my $e = $w->wait_for('E'); $w->fail('so'); $e . $w->answer });
same_talk('Flush and Sync', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->sync; $w->data("1\tx\n"); $w->flush; $w->sync; $w->data("2\tx\n"); $w->flush; $w->done; $w->answer });
like(same_talk('another message', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->data("1\tx\n"); usleep(50_000); $w->query('SELECT 1'); $w->answer }),
	qr/C08P01 Munexpected message type 0x51 during COPY from stdin WCOPY t, line 2/, 'it says which');
same_talk('a message of a wrong length', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->bytes('d' . pack('N', 2)); $w->answer });
same_talk('two statements', sub { my ($w) = @_; $w->query("$copy; $copy; SELECT 1"); my $g = $w->wait_for('G'); $w->data("1\tx\n"); $w->done; $g .= $w->wait_for('G'); $w->data("2\tx\n"); $w->done; $g . $w->answer }, 'done done');
same_talk('two statements, the first fails', sub { my ($w) = @_; $w->query("$copy; $copy"); $w->wait_for('G'); $w->data("x\n"); $w->done; $w->answer });
same_talk('extended', sub { my ($w) = @_; $w->extended($copy); $w->flush; my $g = $w->wait_for('G'); $w->data("1\tx\n"); $w->done; $w->sync; $g . $w->answer });
same_talk('extended, with a Sync too many', sub { my ($w) = @_; $w->extended($copy); $w->sync; my $g = $w->wait_for('G'); $w->data("1\tx\n"); $w->done; $w->sync; $g . $w->answer });
same_talk('extended, a bad row', sub { my ($w) = @_; $w->extended($copy); $w->flush; $w->wait_for('G'); $w->data("x\ty\n"); $w->done; $w->extended('SELECT 1'); $w->sync; my $e = $w->answer; $w->query('SELECT 2'); $e . $w->answer });
same_talk('a pipeline', sub { my ($w) = @_; $w->extended("INSERT INTO t VALUES (0, 'before')"); $w->extended($copy); $w->data("1\tx\n"); $w->done; $w->extended("INSERT INTO t VALUES (2, 'after')"); $w->sync; $w->answer });
same_talk('in a transaction', sub { my ($w) = @_; my $all = ''; for my $q ('BEGIN', 'SAVEPOINT s') { $w->query($q); $all .= $w->answer } $w->query($copy); $w->wait_for('G'); $w->data("x\n"); $w->done; $all .= $w->answer; $w->query('ROLLBACK TO s'); $all .= $w->answer;
	$w->query($copy); $w->wait_for('G'); $w->data("1\tx\n"); $w->done; $all .= $w->answer; $w->query('COMMIT'); $all . $w->answer }, 'done done');
same_talk('a client that goes', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->data("1\tx\n"); $w->close; '' });
same_talk('a client that goes in the middle of a message', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->bytes('d' . pack('N', 1000) . "1\tx\n"); $w->close; '' });
like(slurp_file($node->logfile), qr/unexpected EOF on client connection with an open transaction\n.*?CONTEXT:  COPY t, line 2/, 'the log says so');

# Core runs a COPY of few rows if their end arrives with them.
$least = 1000;
my @rows = ("1\tx\n", "2\ty\n");
sub at_once { my ($w, $query, $bytes, @more) = @_; $w->query($query); my $g = $w->wait_for('G'); $w->bytes(join '', map { $_->[0] . pack('N', 4 + length $_->[1]) . $_->[1] } [ 'd', $bytes ], @more); return $g . $w->answer; }
my @done = ([ 'c', '' ]);
like(same_talk('few rows', sub { at_once($_[0], $copy, join('', @rows), @done) }, 'not done'), qr/C COPY 2\|Z I\n1\|x\n2\|y$/, 'they are there');
same_talk('few rows and a condition', sub { at_once($_[0], "COPY t (b, a) FROM STDIN csv WHERE a > 1", "x,1\ny,2\n", @done) }, 'not done');
same_talk('few rows, and the marker', sub { at_once($_[0], $copy, "1\tx\n2\ty\n\\.\n", @done) }, 'not done');
same_talk('few rows, and the marker behind data', sub { at_once($_[0], $copy, "1\tx\n2\ty\\.\n", @done) }, 'not done');
same_talk('few rows, and more behind the marker', sub { at_once($_[0], $copy, "1\tx\n2\ty\\.\n3\tz\n", @done) }, 'done');
same_talk('no row', sub { at_once($_[0], $copy, '', @done) }, 'not done');
same_talk('few rows, of which one is bad', sub { at_once($_[0], $copy, "1\tx\nz\ty\n", @done) }, 'not done');
same_talk('few rows with equal keys', sub { at_once($_[0], $copy, "1\tx\n1\ty\n", @done) }, 'not done');
same_talk('few rows and a failure', sub { at_once($_[0], $copy, "1\tx\n", [ 'f', "it rains\0" ]) }, 'done');
same_talk('more than a few rows', sub { at_once($_[0], $copy, join('', map { "$_\trow\n" } 1 .. 200), @done) }, 'done');
same_talk('few rows of a client that takes its time', sub { my ($w) = @_; $w->query($copy); $w->wait_for('G'); $w->data($rows[0]); usleep(50_000); $w->data($rows[1]); $w->done; $w->answer }, 'done');
same_talk('few rows in a pipeline', sub { my ($w) = @_; $w->extended($copy); $w->data($rows[0]); $w->done; $w->extended("INSERT INTO t VALUES (2, 'after')"); $w->sync; $w->answer }, 'done|not done');
$least = 0;

# Cancellation and termination from other sessions.
sub pid_of { my ($w) = @_; $w->query('SELECT pg_backend_pid()'); return $w->answer =~ /D (?:0001)(?:[0-9a-f]{8})([0-9a-f]+)/ ? pack('H*', $1) : die; }
my $locks = q{SELECT string_agg(mode, ' ' ORDER BY mode) FROM pg_locks WHERE relation = 't'::regclass};
same_talk('cancelled while it waits', sub { my ($w) = @_; my $pid = pid_of($w); $w->query($copy); $w->wait_for('G'); $w->data("1\tx\n"); usleep(50_000);
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)"); my $early = $w->next_message(0.2) // 'gone'; $w->data("2\tx\n"); my $e = $w->answer; $w->done; "$early $e" });
same_talk('statement_timeout', sub { my ($w) = @_; $w->query("SET statement_timeout = '50ms'"); $w->answer; $w->query($copy); $w->wait_for('G'); $w->data("1\tx\n"); usleep(100_000); $w->data("2\tx\n"); my $e = $w->answer; $w->done; $e });
same_talk('terminated while it waits', sub { my ($w) = @_; my $pid = pid_of($w); $w->query($copy); $w->wait_for('G'); $w->data("1\tx\n"); usleep(50_000);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)"); $w->answer });
same_talk('terminated before it has anything', sub { my ($w) = @_; my $pid = pid_of($w); $w->query($copy); $w->wait_for('G'); usleep(50_000); $node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)"); $w->answer });
like(same_talk('cancelled before it has anything', sub { my ($w) = @_; my $pid = pid_of($w); $w->query($copy); $w->wait_for('G'); usleep(50_000); $node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)"); $w->data("1\tx\n"); my $e = $w->answer =~ s/line 1: "[^"]*"/line 1/r; $w->done; $e }),
	qr/WCOPY t, line 1/, 'it says where');
like(same_talk('what is seen of it before it has anything', sub { my ($w) = @_; my $pid = pid_of($w); $w->query($copy); $w->wait_for('G'); usleep(50_000);
	my $seen = $node->safe_psql('postgres', "$locks; SELECT command, type, bytes_processed, relid::regclass FROM pg_stat_progress_copy"); $w->done; $seen . $w->answer }), qr/^RowExclusiveLock\nCOPY FROM\|PIPE\|0\|tC COPY 0/, 'as of any COPY');
like(same_talk('what is seen of it', sub { my ($w) = @_; my $pid = pid_of($w); $w->query("$copy WHERE a > 1"); $w->wait_for('G'); $w->data("1\tx\n2\tx\n"); usleep(50_000);
	my $seen = $node->safe_psql('postgres', "$locks; SELECT command, type, bytes_total, relid::regclass FROM pg_stat_progress_copy; SELECT wait_event_type, wait_event, state FROM pg_stat_activity WHERE pid = $pid; SELECT count(*) FROM t");
	$w->data("3\tx\n"); $w->done; $seen . $w->answer }), qr/^RowExclusiveLock\nCOPY FROM\|PIPE\|0\|t\nClient\|ClientRead\|active\n0C COPY 2/, 'as of any COPY');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_progress_copy; SELECT count(*) FROM bulk_history"), "0\n0", 'nothing is left of it');

# Other sessions read and write meanwhile, and wait for equal keys.
{
	my $w = Wire->new($node, 'SET pg_bulk.copy = on');
	$w->query($copy);
	$w->wait_for('G');
	$w->data(join '', map { "$_\trow\n" } 1000 .. 1100);
	is($node->safe_psql('postgres', "SET lock_timeout = '5s'; INSERT INTO t VALUES (999, 'other'); SELECT count(*) FROM t WHERE a >= 999"), '1', 'others go on');
	$w->done;
	is($w->answer, 'C COPY 101|Z I', '... and so does it');
	$w->close;
}

# Statistics count as usual.
takers();
$node->safe_psql('postgres', 'SELECT pg_stat_statements_reset()');
$node->psql('postgres', "SET pg_bulk.copy = on;\nCOPY t FROM PROGRAM 'seq 2000 2009' (NULL 'x') WHERE a > 2004;\n", on_error_stop => 0);
$node->psql('postgres', "CREATE TABLE n (a int); SET pg_bulk.copy = on;\nCOPY n FROM PROGRAM 'seq 1 10' WHERE a > 4;\n");
like(takers(), qr/done$/, 'a COPY from a program');
is($node->safe_psql('postgres', "SELECT calls, rows FROM pg_stat_statements WHERE query LIKE 'COPY n%'"), '1|6', 'pg_stat_statements counts it');
is($node->safe_psql('postgres', "SELECT n_tup_ins, n_live_tup FROM pg_stat_user_tables WHERE relname = 'n'"), '6|6', 'the statistics, too');

# In functions, and in sessions that load the library themselves.
$node->safe_psql('postgres', "SET pg_bulk.copy = on; DO \$\$ BEGIN FOR i IN 1 .. 3 LOOP COPY n FROM PROGRAM 'seq 3'; END LOOP; END \$\$");
is(takers(), 'done done done', 'in a function');
is($node->safe_psql('postgres', 'SELECT count(*) FROM n'), '15', '... it has rows');

# A failure has COPY's messages.
for my $mode ('off', 'on')
{
	my ($code, $out, $err) = $node->psql('postgres', "SET pg_bulk.copy = $mode; COPY n FROM PROGRAM 'seq 2; exit 3'");
	like($err, qr/ERROR:  program "seq 2; exit 3" failed\nDETAIL:  child process exited with exit code 3/, "$mode: a program that fails");
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM n'), '15', '... nothing of it stays');

# Tables of all types, from large files and clients; a standby; pg_dump and pg_restore.
my @tables = kinds();
make_tables($node, @tables);
my $standby = standby_of($node, 'standby');
numbers_file("$directory/rows", 1, 30_000);
takers();
for my $table (@tables)
{
	$node->safe_psql('postgres', "SET pg_bulk.copy = on;\nSET pg_bulk.chunk_size = '8kB';\nCOPY $table (id, word, at) FROM '$directory/rows' csv WHERE id <= 20000;\n\\copy $table (id, word, at) from '$directory/rows' csv where id > 20000\n");
	is(takers(), 'done done', "$table: loads");
	is($node->safe_psql('postgres', "SELECT count(*), sum(id) FROM $table WHERE id > 0"), '30000|450015000', "$table: all rows");
}
healthy($node, 'after COPYs');
standby_equal($node, $standby, @tables);
$standby->stop;
$node->safe_psql('postgres', q{CREATE TABLE referring (id int REFERENCES keyed, n numeric[], j jsonb, b bytea, e text); INSERT INTO referring SELECT i, ARRAY[i, NULL], json_build_object('a', i), decode(md5(i::text), 'hex'), E'\\\\N\t\r\n' || i FROM generate_series(1, 5000) i;
	CREATE VIEW seen AS SELECT * FROM referring; CREATE MATERIALIZED VIEW kept AS SELECT * FROM referring; SELECT lo_from_bytea(0, 'large')});
# The extensions must not be restored with their tables' owners.
my $dump = "$directory/dump";
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, 'postgres' ], 'pg_dump');
my %restored;
for my $mode ('off', 'on')
{
	$node->safe_psql('postgres', "CREATE DATABASE restored_$mode");
	$node->safe_psql('postgres', "ALTER DATABASE restored_$mode SET pg_bulk.copy = $mode");
	takers();
	$node->command_ok([ 'pg_restore', '-j2', '-d', "restored_$mode", $dump ], "pg_restore, $mode");
	my $done = () = takers() =~ /\bdone/g;
	cmp_ok($done, $mode eq 'on' ? '>' : '==', $mode eq 'on' ? 5 : 0, "... $done loads");
	my ($out, $err) = run_command([ 'pg_dump', '-d', $node->connstr("restored_$mode") ]);
	# psql's \restrict key differs from run to run.
	$restored{$mode} = $out =~ s/^\\(un)?restrict .*\n//mgr;
	is($node->safe_psql("restored_$mode", 'CREATE EXTENSION IF NOT EXISTS amcheck; SELECT count(*) FROM pg_class c, verify_heapam(c.oid) v WHERE relkind = \'r\''), '0', '... sound heaps');
	$node->command_ok([ 'pg_amcheck', '--heapallindexed', '-d', "restored_$mode" ], '... and indexes');
}
ok($restored{on} eq $restored{off}, 'equal databases');
cmp_ok(length $restored{on}, '>', 1_000_000, '... which are large');

done_testing();
