
# RUST_BACKTRACE and RUST_LIB_BACKTRACE in the server's environment: no message
# of pg_bulk has a backtrace, and child processes get the variables as they were set.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $dir = PostgreSQL::Test::Utils::tempdir();

sub file
{
	my ($name, $content) = @_;
	append_to_file("$dir/$name", $content);
	chmod 0644, "$dir/$name";
	return "$dir/$name";
}
chmod 0755, $dir;
my $twice = file('twice.csv', join('', map { $_ . "\n" } 1 .. 3000, 7));
my $bad = file('bad.csv', join('', map { $_ . "\n" } 1 .. 50_000) . "x\n" . join('', map { $_ . "\n" } 1 .. 50_000));

# A backtrace has lines with numbers of frames, and lines that say where a frame's code is.
my $BACKTRACE = qr/^\s*\d+: .*(?:pgrx|std|core|pg_bulk|postgres|<unknown>)|^\s*at .*\.rs:\d+|stack backtrace|disabled backtrace/m;

# The error of each statement: of pg_bulk itself, of the server's code in a guarded call, and of another process.
my @ERRORS = (
	[ "SELECT bulk_load('$twice', 'keyed', '{\"lock\": \"share\", \"indexes\": \"rebuild\"}')", 'an index rebuild finds a duplicate', '23505' ],
	[ "SELECT bulk_load('$twice', 'keyed', '{\"lock\": \"share\", \"indexes\": \"merge\"}')", 'a merge finds a duplicate', '23505' ],
	[ "SELECT bulk_load('$twice', 'hashed', '{\"lock\": \"share\", \"indexes\": \"rebuild\"}')", 'an exclusion constraint is rebuilt by the server', '23P01' ],
	[ "SELECT bulk_load('$bad', 'plain', '{\"workers\": 2}')", 'a worker finds a bad number', '22P02' ],
	[ "SELECT bulk_load('$bad', 'no_such_table', '{\"workers\": 2}')", 'the server does not know the table', '42P01' ],
	[ "SELECT bulk_load('$bad', 'plain', '{\"no_such_option\": 2}')", 'an unknown option', '42601' ],
	[ "SELECT bulk_load('$dir/missing', 'plain')", 'no file', '58P01' ],
	[ "SELECT count(*) FROM bulk_read('$bad', '{}') AS t (a int)", 'a value of a file that is read', '22P02' ],
	[ "SELECT bulk_load(NULL, 'plain', '{\"query\": \"SELECT 1 / 0\"}')", 'an error of a query', '22012' ]);

my $number = 0;

sub try
{
	my ($what, $conf, %environment) = @_;
	my $node = PostgreSQL::Test::Cluster->new('backtraces' . ++$number);
	$node->init(extra => [ '-E', 'UTF8', '--locale=C.UTF-8' ]);
	$node->append_conf('postgresql.conf', "fsync = off\nmax_worker_processes = 16\nmax_parallel_workers = 16\npg_bulk.workers = 2\n$conf\n");
	{
		local %ENV = (%ENV, %environment);
		$node->start;
	}
	$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION pg_bulk;
CREATE TABLE keyed (a int PRIMARY KEY);
CREATE TABLE hashed (a int, EXCLUDE USING hash (a WITH =));
INSERT INTO hashed SELECT -generate_series(1, 10);
CREATE TABLE plain (a int);
SQL
	for my $error (@ERRORS)
	{
		my ($statement, $name, $state) = @$error;
		my (undef, undef, $said) = $node->psql('postgres', "\\set VERBOSITY verbose\n$statement");
		like($said, qr/ERROR:  $state:/, "$what: $name");
		unlike($said, $BACKTRACE, "$what: $name: no backtrace");
	}
	# The error of a job is in the log, too.
	my $job = $node->safe_psql('postgres', "SELECT bulk_enqueue('$twice', 'keyed', '{\"lock\": \"share\", \"indexes\": \"rebuild\"}')");
	is($node->safe_psql('postgres', "SELECT bulk_wait($job, '1min')"), 'failed', "$what: a job fails");
	unlike($node->safe_psql('postgres', "SELECT error_message FROM bulk_jobs WHERE job_id = $job"), $BACKTRACE, "$what: ... and shows no backtrace");
	unlike(slurp_file($node->logfile), $BACKTRACE, "$what: nor does the log");
	# The environment is unchanged for programs that the server starts after the library has been loaded.
	my $variables = 'echo $RUST_BACKTRACE,$RUST_LIB_BACKTRACE';
	my $expected = join(',', map { $environment{$_} // '' } qw(RUST_BACKTRACE RUST_LIB_BACKTRACE));
	is($node->safe_psql('postgres', "SELECT a FROM bulk_read('$variables', '{\"program\": true, \"delimiter\": \"|\"}') AS t (a text)"),
		$expected, "$what: programs find the variables as they were");
	$node->stop;
	return;
}

delete @ENV{qw(RUST_BACKTRACE RUST_LIB_BACKTRACE)};
try('RUST_BACKTRACE', '', RUST_BACKTRACE => '1');
try('preloaded', "shared_preload_libraries = 'pg_bulk'", RUST_BACKTRACE => 'full');
try('RUST_LIB_BACKTRACE', '', RUST_BACKTRACE => '0', RUST_LIB_BACKTRACE => '1');
try('preloaded, neither', "shared_preload_libraries = 'pg_bulk'");

done_testing();
