
# COPY FROM as a load. Each case runs with pg_bulk.copy off and on, from a file, a program and a client, and results must
# be equal: rows in their order, command tag, error with all fields, NOTICEs. A DEBUG1 message tells which code ran it, and why.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use File::Spec::Functions qw(rel2abs);
use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(write_bytes);
use Load qw(healthy load_server numbers_file standby_equal standby_of);

my $directory = rel2abs(PostgreSQL::Test::Utils::tempdir('copy'));
chmod 0755, $directory;
my $node = load_server('copy', shared_preload_libraries => 'pg_bulk,pg_stat_statements', session_preload_libraries => '',
	allows_streaming => 1, 'pg_bulk.copy_min_size' => 0, max_prepared_transactions => 2);
$node->safe_psql('postgres', 'CREATE EXTENSION pg_stat_statements; CREATE ROLE limited; CREATE ROLE filtered; GRANT pg_read_server_files, pg_execute_server_program TO filtered');

# Statements that create the table t, columns and options of the COPY, the
# data, and the expected writer: LOAD, or a part of the reason against it.
use constant LOAD => '';
my $plain = 'CREATE TABLE t (a int, b text, c date)';
my $key = 'CREATE TABLE t (a int PRIMARY KEY, b text, c date)';
my $three = "1\tone\t2001-01-01\n2\t\\N\t\\N\n3\tthree\\tx\t2003-03-03\n";
my $three_csv = "1,one,2001-01-01\n2,,\n3,\"th\"\"ree,\n\",2003-03-03\n";
my $log = q{CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '% % % %', TG_NAME, TG_OP, TG_LEVEL, NEW; RETURN NEW; END $$;};
my $noisy = q{CREATE FUNCTION noisy() RETURNS boolean IMMUTABLE PARALLEL RESTRICTED LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'evaluated'; RETURN true; END $$;};
my $leaf_locks = q{SELECT relation::regclass::text, mode FROM pg_locks WHERE relation::regclass::text ~ '^t[0-9]$' ORDER BY 1, 2};
my @cases = (
	# Formats and options.
	[ $plain, '', '', $three, LOAD ],
	[ $plain, '', 'csv', $three_csv, LOAD ],
	[ $plain, '', '(FORMAT csv)', $three_csv, LOAD ],
	[ $plain, '', "(FORMAT 'CSV')", $three_csv, 'The options are invalid' ],
	[ $plain, '', "(FORMAT csv, HEADER, DELIMITER ';', NULL 'nil', QUOTE '''', ESCAPE '\\')", "a;b;c\n1;'x\\'y';nil\n", LOAD ],
	[ $plain, '', 'csv header', "x\n$three_csv", LOAD ],
	[ $plain, '', '(FORMAT csv, HEADER match)', "a,b,c\n$three_csv", LOAD ],
	[ $plain, '', '(FORMAT csv, HEADER MATCH)', "a,x,c\n$three_csv", LOAD ],
	[ $plain, '', '(HEADER match)', "a\tb\n$three", LOAD ],
	[ $plain, '', '(HEADER 1)', "x\n$three", LOAD ],
	[ $plain, '', '(HEADER 2)', $three, 'The options are invalid' ],
	[ $plain, '', "(HEADER '1')", $three, 'The options are invalid' ],
	[ $plain, '', '(HEADER off, FREEZE off)', $three, LOAD ],
	[ $plain, '', '(FORMAT csv, FORCE_NULL (b), FORCE_NOT_NULL (a))', "1,\"\",\n", LOAD ],
	[ $plain, '', '(FORMAT csv, FORCE_NOT_NULL (b))', "1,,\n", LOAD ],
	[ $plain, '(a)', '(FORMAT csv, FORCE_NULL (b))', "1\n", 'The data cannot be read' ],
	[ $plain, '', '(FORCE_NULL (b))', "1\n", 'The data cannot be read|The options are invalid' ],
	[ $plain, '', '(FORMAT csv, FORCE_NULL (b, b))', "1,,\n", 'An option names a column twice' ],
	[ $plain, '', '(FORMAT csv, FORCE_NOT_NULL (b, c, b))', "1,,\n", 'An option names a column twice' ],
	[ $plain, '', "(DELIMITER 'ab')", $three, 'The options are invalid' ],
	[ $plain, '', "(DELIMITER E'\\n')", $three, 'The options are invalid' ],
	[ $plain, '', "(NULL '')", "1\tx\t\n\tx\t\n", LOAD ],
	[ $plain, '', '(FORMAT text, FORMAT csv)', $three, 'An option is given twice' ],
	[ $plain, '', '(FORMAT binary)', $three, 'The format is binary' ],
	[ $plain, '', '(nonsense)', $three, 'The COPY has the option nonsense' ],
	[ $plain, '', '(compression)', $three, 'The COPY has the option compression|An option is given twice' ],
	[ $plain, '', '(skip 1)', $three, 'The COPY has the option skip' ],
	[ $plain, '', '(ON_ERROR ignore)', $three, 'The COPY has the option on_error' ],
	[ $plain, '', "(ENCODING 'latin1')", "1\t\xe4\\xe4\t\\N\n", LOAD ],
	[ $plain, '', "(ENCODING 'sql_ascii')", "1\t\xc3\xa4\t\\N\n", LOAD ],
	[ $plain, '', "(ENCODING 'nonsense')", $three, 'The options are invalid' ],
	[ $plain, '', "(ENCODING 'mule_internal')", $three, LOAD . '|The data cannot be read' ],
	[ $plain, '(b, a)', '', "x\t1\ny\t2\n", LOAD ],
	[ $plain, '(b, a, b)', '', "x\t1\n", 'The list of columns is invalid' ],
	[ $plain, '(b, x)', '', "x\t1\n", 'The list of columns is invalid' ],
	[ 'CREATE TABLE t ()', '', '', "\n\n", LOAD ],
	[ 'CREATE TABLE t ()', '', '', "x\n", LOAD ],

	# Data.
	[ $plain, '', '', '', LOAD ],
	[ $plain, '', '', $three =~ s/\n/\r\n/gr, LOAD ],
	[ $plain, '', '', "1\ta\t\\N\n2\tb\t\\N", LOAD ],
	[ $plain, '', '', "1\ta\t\\N\n\\.\nnonsense\n", LOAD ],
	[ $plain, '', '', "1\ta\t\\N\n2\tb\t\\N\\.\n3\n", LOAD ],
	[ $plain, '', '', "1\ta\t\\N\n\\.x\n", LOAD ],
	[ $plain, '', 'csv', "1,a,\n\\.\nnonsense\n", LOAD ],
	[ $plain, '', 'csv', "1,a,\n2,\\.,\n\"\\.\"\n", LOAD ],
	[ $plain, '', '', "\xef\xbb\xbf1\ta\t\\N\n", LOAD ],
	[ $plain, '', '', "1\ta\t\\N\n2\r\n", LOAD ],
	[ $plain, '', '', "1\ta\t\\N\nx\ty\tz\n", LOAD ],
	[ $plain, '', '', "1\ta\t\\N\n2\tb\n", LOAD ],
	[ $plain, '', '', "1\ta\t\\N\n2\tb\t\\N\t4\n", LOAD ],
	[ $plain, '', 'csv', "1,a,\n2,\"b,\n", LOAD ],
	[ $plain, '', '', "1\ta\t\\N\n2\tb\xff\t\\N\n", LOAD ],
	[ $plain, '', '', "1\ta\t\\N\n2\t\\377\t\\N\n", LOAD ],
	[ $plain, '', '', "1\ta\t\\N\n2\tb\t2001-02-30\n", LOAD ],
	[ $plain, '', '', "1\t" . ('long ' x 5000) . "\t\\N\n", LOAD ],
	[ $plain, '', '', "1\t" . ('long ' x 50) . "\t\\N\nx" . ('long ' x 50) . "\t\\N\n", LOAD ],
	[ $plain, '', '', join('', map { "$_\trow $_\t2001-01-01\n" } 1 .. 3000), LOAD ],
	[ $plain, '', '', join('', map { "$_\trow $_\t2001-01-01\n" } 1 .. 30000) . "x\n", LOAD ],

	# WHERE.
	[ $plain, '', 'WHERE a > 1', $three, LOAD ],
	[ $plain, '', "(FORMAT csv) WHERE b IS NOT NULL AND a % 2 = 1", $three_csv, LOAD ],
	[ $plain, '', 'WHERE x > 1', $three, undef ],
	[ $plain, '', 'WHERE a', $three, undef ],
	[ $plain, '', 'WHERE 1 / (a - 2) > 0', $three, LOAD ],
	[ $plain, '', 'WHERE a IN (SELECT 1)', $three, undef ],
	[ $plain, '', 'WHERE max(a) > 1', $three, undef ],
	[ "$plain; CREATE FUNCTION f(int) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM t) < 2; END'", '', 'WHERE f(a)', $three, 'The condition calls a volatile function' ],
	[ "$plain; CREATE SEQUENCE s", '', "WHERE nextval('s') > 1", $three, 'The condition calls nextval' ],
	[ 'CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a + 1) STORED)', '', 'WHERE b > 1', "1\n", undef ],
	[ $plain, '', 'WHERE t IS NOT NULL', $three, LOAD ],

	# Constraints and indexes.
	[ $key, '', '', $three, LOAD ],
	[ "$key; INSERT INTO t VALUES (2)", '', '', $three, LOAD ],
	[ $key, '', '', $three . "2\tagain\t\\N\n4\n", undef ],
	[ $key, '', '', "1\ta\t\\N\n\\N\tb\t\\N\n", LOAD ],
	[ 'CREATE TABLE t (a int CHECK (a < 3), b text, c date)', '', '', $three, LOAD ],
	[ 'CREATE TABLE t (a int CONSTRAINT odd CHECK (a <> lastval()), b text, c date)', '', '', $three, 'The constraint "odd" calls a volatile function' ],
	[ 'CREATE DOMAIN small AS int CHECK (VALUE < 3); CREATE TABLE t (a small, b text, c date)', '', '', $three, LOAD ],
	[ "$plain; CREATE UNIQUE INDEX u ON t (lower(b)) WHERE a > 1; CREATE INDEX ON t USING gin ((ARRAY[a])); CREATE INDEX ON t USING brin (c)", '', '', $three . "4\tTHREE\\tX\t\\N\n", LOAD ],
	[ 'CREATE TABLE t (a int, b text, c date, EXCLUDE USING btree (a WITH =))', '', '', $three . "3\t\\N\t\\N\n", LOAD ],
	[ "CREATE TABLE r (a int PRIMARY KEY); INSERT INTO r VALUES (1), (2); CREATE TABLE t (a int REFERENCES r, b text, c date)", '', '', $three, LOAD ],
	[ "CREATE TABLE r (a int PRIMARY KEY); INSERT INTO r VALUES (1), (2); CREATE TABLE t (a int REFERENCES r DEFERRABLE INITIALLY DEFERRED, b text, c date)", '', '', $three, LOAD ],
	[ 'CREATE TABLE t (a int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, b text, c date)', '', '', $three . "1\t\\N\t\\N\n", LOAD ],

	# Defaults.
	[ "CREATE TABLE t (a int, b text DEFAULT 'd', c date DEFAULT current_date)", '(a)', '', "1\n2\n", LOAD ],
	[ 'CREATE TABLE t (a serial, b text, c bigint GENERATED ALWAYS AS IDENTITY)', '(b)', '', "x\ny\nz\n", LOAD ],
	[ 'CREATE TABLE t (a serial, b text, c bigint GENERATED ALWAYS AS IDENTITY)', '', '', "7\tx\t8\n", LOAD ],
	[ "CREATE SEQUENCE s; CREATE TABLE t (a int DEFAULT nextval('s'), b text, c int DEFAULT nextval('s'))", '(b)', '', "x\ny\n", 'Two columns take their defaults from the same sequence' ],
	[ "CREATE SEQUENCE s; SELECT nextval('s'); CREATE TABLE t (a int DEFAULT currval('s'), b text)", '(b)', '', "x\n", 'The default of column "a" calls a volatile function' ],
	[ 'CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a + 1) STORED, c int)', '', '', "1\t2\n", LOAD ],
	[ 'CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a + 1) STORED, c int)', '(a, b)', '', "1\t2\n", 'The list of columns is invalid' ],
	[ "$plain; ALTER TABLE t DROP b, ADD d text DEFAULT 'd'", '', '', "1\t\\N\tx\n", LOAD ],

	# Triggers and rules.
	[ "$log $plain; CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION log()", '', '', $three, 'has BEFORE or INSTEAD OF row triggers' ],
	[ "$log $plain; CREATE TRIGGER x AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION log(); CREATE TRIGGER y AFTER INSERT ON t EXECUTE FUNCTION log()", '', '', $three, LOAD ],
	[ "$log $plain; CREATE TRIGGER x AFTER INSERT ON t FOR EACH ROW WHEN (NEW.a > 1) EXECUTE FUNCTION log()", '', '', $three, LOAD ],
	[ "$log $plain; CREATE TRIGGER x BEFORE INSERT ON t EXECUTE FUNCTION log()", '', '', $three, 'The table has a BEFORE statement trigger' ],
	[ "$log $plain; CREATE TRIGGER x AFTER INSERT ON t REFERENCING NEW TABLE AS n EXECUTE FUNCTION log()", '', '', $three, 'has an INSERT trigger with a transition table' ],
	[ "$plain; CREATE RULE r AS ON INSERT TO t DO INSTEAD NOTHING", '', '', $three, 'has rules on INSERT' ],

	# Types of tables.
	[ 'CREATE TEMP TABLE t (a int PRIMARY KEY, b text, c date)', '', '', $three, LOAD ],
	[ 'CREATE UNLOGGED TABLE t (a int PRIMARY KEY, b text, c date)', '', '', $three, LOAD ],
	[ 'CREATE TABLE t (a int, b text, c date) PARTITION BY LIST (a); CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1, 3); CREATE TABLE t2 PARTITION OF t DEFAULT', '', '', $three, LOAD ],
	[ 'CREATE TABLE t (a int, b text, c date) PARTITION BY LIST (a); CREATE TABLE t1 (c date, a int, b text); ALTER TABLE t ATTACH PARTITION t1 FOR VALUES IN (1, 3)', '', '', $three, LOAD ],
	[ 'CREATE TABLE p (a int, b text, c date) PARTITION BY LIST (a); CREATE TABLE t PARTITION OF p FOR VALUES IN (1, 3)', '', '', $three, LOAD ],
	[ "$log CREATE TABLE t (a int, b text, c date) PARTITION BY LIST (a); CREATE TABLE t1 PARTITION OF t DEFAULT; CREATE TRIGGER x BEFORE INSERT ON t1 FOR EACH ROW EXECUTE FUNCTION log()", '', '', $three, 'Table "t1" has BEFORE or INSTEAD OF row triggers' ],
	# If core copies, partitions that get no row are not locked.
	[ "$log CREATE TABLE t (a int) PARTITION BY LIST (a); CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1); CREATE TABLE t2 PARTITION OF t DEFAULT; CREATE TABLE t0 PARTITION OF t FOR VALUES IN (0); CREATE TRIGGER x BEFORE INSERT ON t2 FOR EACH ROW EXECUTE FUNCTION log(); BEGIN", '', '', "1\n", 'Table "t2" has BEFORE or INSTEAD OF row triggers', "$leaf_locks; COMMIT" ],
	[ 'CREATE TABLE o (a int, b text, c date); CREATE VIEW t AS SELECT * FROM o', '', '', $three, 'The target is not a table' ],
	[ 'CREATE SEQUENCE t', '', '', $three, 'The target is not a table' ],
	[ 'CREATE TABLE o (a int)', '', '', $three, undef ],
	[ 'CREATE TABLE p (a int, b text, c date); CREATE TABLE t () INHERITS (p)', '', '', $three, LOAD ],

	# Privileges.
	[ "$plain; GRANT ALL ON SCHEMA c TO filtered; GRANT INSERT ON t TO filtered; SET ROLE filtered", '', '', $three, LOAD ],
	[ "$plain; GRANT ALL ON SCHEMA c TO filtered; GRANT INSERT (a, b) ON t TO filtered; SET ROLE filtered", '(a, b)', '', "1\tx\n", LOAD ],
	[ "$plain; GRANT ALL ON SCHEMA c TO filtered; GRANT INSERT (a, b) ON t TO filtered; SET ROLE filtered", '', '', $three, undef ],
	[ "$plain; GRANT ALL ON SCHEMA c TO filtered; GRANT INSERT ON t TO filtered; SET ROLE filtered", '', 'WHERE a > 1', $three, undef ],
	[ "$plain; GRANT ALL ON SCHEMA c TO limited; GRANT INSERT ON t TO limited; SET ROLE limited", '', '', $three, undef ],
	[ "$plain; ALTER TABLE t ENABLE ROW LEVEL SECURITY; GRANT ALL ON SCHEMA c TO filtered; GRANT INSERT ON t TO filtered; SET ROLE filtered", '', '', $three, 'Row-level security applies' ],
	[ "$plain; ALTER TABLE t ENABLE ROW LEVEL SECURITY; GRANT ALL ON SCHEMA c TO filtered; GRANT INSERT ON t TO filtered; SET ROLE filtered; SET row_security = off", '', '', $three, undef ],
	[ "$plain; GRANT ALL ON SCHEMA c TO filtered; GRANT INSERT ON t TO filtered; SET ROLE filtered", '', 'WHERE true', $three, LOAD ],
	[ "$plain; GRANT ALL ON SCHEMA c TO filtered; GRANT INSERT ON t TO filtered; SET ROLE filtered", '', 'WHERE t IS NOT NULL', $three, undef ],

	# Expressions that are evaluated beforehand are evaluated once, and not for a role that may not insert.
	[ "$plain; $noisy", '', '(FORMAT binary) WHERE noisy()', $three, 'The format is binary' ],
	[ "$plain; $noisy $log CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION log()", '', 'WHERE noisy()', $three, 'has BEFORE or INSTEAD OF row triggers' ],
	[ "$noisy CREATE TABLE t (a int, b boolean DEFAULT noisy()); GRANT ALL ON SCHEMA c TO filtered; SET ROLE filtered", '(a)', '', "1\n", undef ],

	# Transactions; statements after BEGIN end with the case.
	[ "BEGIN; $key", '', 'FREEZE', $three, LOAD, 'COMMIT' ],
	[ "$key; BEGIN; TRUNCATE t", '', 'csv FREEZE', $three_csv, LOAD, 'COMMIT' ],
	[ "$key; BEGIN", '', 'FREEZE', $three, 'The table does not meet the conditions of FREEZE', 'COMMIT' ],
	[ "$key; BEGIN; TRUNCATE t; SAVEPOINT s", '', 'FREEZE', $three, 'The table does not meet the conditions of FREEZE', 'COMMIT' ],
	[ "BEGIN; $key; DECLARE d CURSOR FOR TABLE t; FETCH d", '', '', $three, LOAD, 'FETCH d; COMMIT' ],
	[ "$key; BEGIN; INSERT INTO t VALUES (9); DECLARE d CURSOR FOR TABLE t; FETCH d", '', '', $three, LOAD, 'FETCH d; COMMIT' ],
	[ "$key; BEGIN; SAVEPOINT s", '', '', $three, LOAD, 'ROLLBACK TO s; COMMIT' ],
	[ "$key; BEGIN READ ONLY", '', '', $three, 'The transaction is read-only', 'COMMIT' ],
	[ "$key; BEGIN ISOLATION LEVEL SERIALIZABLE", '', '', $three, LOAD, 'COMMIT' ],
	[ "$key; BEGIN", '', '', $three, LOAD, "PREPARE TRANSACTION 'x'; COMMIT PREPARED 'x'" ],
	[ "CREATE TEMP TABLE t (a int, b text, c date) ON COMMIT DELETE ROWS; BEGIN", '', '', $three, LOAD, 'SELECT count(*) FROM t; COMMIT' ]);

# The session's output for the script of all cases, by case: stdout, stderr, and the code that ran the COPY.
my @sources = ('client', 'file', 'program');
sub session
{
	my ($mode) = @_;
	my $script = "\\set VERBOSITY verbose\n\\set SHOW_CONTEXT always\nSET pg_bulk.copy = $mode;\n";
	for my $number (0 .. $#cases)
	{
		my ($table, $columns, $options, undef, undef, $after) = @{ $cases[$number] };
		my $path = "$directory/$number";
		my %from = (client => "\\copy t $columns FROM '$path' $options", file => "COPY t $columns FROM '$path' $options;",
			program => "COPY t $columns FROM PROGRAM 'cat $path' $options;");
		for my $source (@sources)
		{
			$script .= "\\echo CASE $number $source\n\\warn CASE $number $source\nSET client_min_messages = error;\nSET client_encoding = utf8;\n"
			  . "CREATE SCHEMA c; SET search_path = c, public;\n$table;\nSET client_min_messages = debug1;\n$from{$source}\n"
			  . "SET client_min_messages = notice;\n" . ($after ? "$after;\n" : '') . "RESET ROLE;\nRESET row_security;\n\\echo rows\nTABLE t;\nSELECT last_value, is_called FROM t_a_seq;\nSET client_min_messages = error;\n"
			  . "SELECT c.relname, v FROM pg_class c, public.verify_heapam(c.oid) v WHERE relkind = 'r' AND relnamespace = to_regnamespace('c');\n"
			  . "SELECT public.bt_index_parent_check(c.oid, true, true) FROM pg_class c JOIN pg_am m ON m.oid = relam WHERE amname = 'btree' AND c.relkind = 'i' AND relnamespace = to_regnamespace('c');\n"
			  . "SELECT mode FROM pg_locks WHERE relation = to_regclass('t') AND mode LIKE '%Exclusive%';\n"
			  . "DROP TABLE IF EXISTS pg_temp.t; DROP SCHEMA c CASCADE;\n";
		}
	}
	my ($stdout, $stderr) = ('', '');
	$node->psql('postgres', $script, stdout => \$stdout, stderr => \$stderr, on_error_stop => 0);
	my (%out, %said, %who);
	my $case = '';
	for (split /^/, $stdout)
	{
		$case = $1 if /^CASE (.*)/;
		$out{$case} .= $_;
	}
	my $debug = 0;
	for (split /^/, $stderr)
	{
		s/^psql:\S+: //;
		$case = $1 if /^CASE (.*)/;

		# A DEBUG message is removed with its context: a new WAL segment may be created at any write.
		$debug = $1 eq 'DEBUG' if /^([A-Z]+):  [0-9A-Z]{5}: / or /^(CASE) /;
		if (/COPY "t" is (not done|done) by pg_bulk(?:: (.*))?/)
		{
			$who{$case} = $2 // '';
			next;
		}
		$said{$case} .= $_ unless $debug or /^LOCATION:/;
	}
	return (\%out, \%said, \%who);
}
write_bytes("$directory/$_", $cases[$_][3]) for 0 .. $#cases;
my ($core_out, $core_said, $core_who) = session('off');
my ($out, $said, $who) = session('on');
is(scalar keys %$core_who, 0, 'with pg_bulk.copy off, nobody asks');
for my $number (0 .. $#cases)
{
	my ($table, $columns, $options, undef, $expected) = @{ $cases[$number] };
	for my $source (@sources)
	{
		my $case = "$number $source";
		my $name = "$case: $table $columns $options" =~ s/\s+/ /gr;
		is(($out->{$case} // '') . ($said->{$case} // ''), ($core_out->{$case} // '') . ($core_said->{$case} // ''), $name);
		next unless defined $expected;
		my $done = $who->{$case} // 'nobody was asked';
		if ($expected eq LOAD) { is($done, '', "$case: a load"); }
		else { like($done, qr/$expected/, "$case: why not"); }
	}
}

# The where clause of bulk_load requires no more privileges than COPY's.
write_bytes("$directory/numbers", "1\n2\n");
$node->safe_psql('postgres', 'CREATE TABLE filled (a int); GRANT INSERT ON filled TO filtered');
my (undef, $loaded) = $node->psql('postgres', qq{SET ROLE filtered; SELECT rows_loaded FROM bulk_load('$directory/numbers', 'filled', '{"where": "true"}')});
is($loaded, '2', 'a condition that reads no column wants no right to read');
my (undef, undef, $err) = $node->psql('postgres', qq{SET ROLE filtered; SELECT * FROM bulk_load('$directory/numbers', 'filled', '{"where": "a > 1"}')});
like($err, qr/permission denied for table filled/, '... and one that reads a column does');

# Invalid options are refused before a program starts. Otherwise the next statement would have to wait for the program.
$node->safe_psql('postgres', 'CREATE TABLE two (a int, b text)');
my $ran = "$directory/ran";
for my $case (
	[ "COPY two (a) FROM PROGRAM 'touch $ran' (FORMAT csv, FORCE_NULL (b))", '42P10' ],
	[ qq{SELECT bulk_load('touch $ran', 'two', '{"program": true, "format": "csv", "columns": ["a"], "force_null": ["b"]}')}, '42P10' ],
	[ qq{SELECT bulk_load('touch $ran', 'two', '{"program": true, "format": "binary", "encoding": "latin1"}')}, '0A000' ],
	[ qq{SELECT * FROM bulk_read('touch $ran', '{"program": true, "format": "csv", "force_null": ["b"]}') AS t (a int)}, '42P10' ])
{
	my ($statement, $sqlstate) = @$case;
	my (undef, undef, $told) = $node->psql('postgres', "\\set VERBOSITY sqlstate\nSET pg_bulk.copy = on;\n$statement;\nSELECT;\n", on_error_stop => 0);
	like($told, qr/ERROR:  $sqlstate/, "refused: $statement");
	ok(!-e $ran, '... and the program has not been run');
}
$node->safe_psql('postgres', "SET pg_bulk.copy = on; COPY two (a) FROM PROGRAM 'touch $ran'");
ok(-e $ran, '... which another COPY runs');

# ... and before a pipe is opened, whose writer would later have no reader.
{
	my $pipe = "$directory/refused";
	system('mkfifo', '-m', '644', $pipe) == 0 or die;
	defined(my $writer = fork) or die;
	exec 'sh', '-c', "echo 5 > '$pipe'" or die if !$writer;
	select undef, undef, undef, 0.1;
	my $late;
	$node->psql('postgres', "SET pg_bulk.copy = on;\nCOPY two (a) FROM '$pipe' (FORMAT csv, FORCE_NULL (b));\nCOPY two (a) FROM '$pipe';\n",
		on_error_stop => 0, timeout => 10, timed_out => \$late);
	ok(!$late, 'a pipe is not opened for a COPY that is refused');
	kill 'KILL', $writer if $late;
	waitpid $writer, 0;
	is($node->safe_psql('postgres', 'SELECT sum(a) FROM two'), '5', '... but read by the next one');
}

$node->append_conf('postgresql.conf', "pg_bulk.allowed_directories = '/nowhere'");
$node->reload;
$node->poll_query_until('postgres', "SELECT setting = '/nowhere' FROM pg_settings WHERE name = 'pg_bulk.allowed_directories'") or die;

# If pg_bulk may not read the file, the server itself runs the COPY, with its own locks.
$node->safe_psql('postgres', 'CREATE TABLE p (a int) PARTITION BY LIST (a); CREATE TABLE t1 PARTITION OF p FOR VALUES IN (1, 2); CREATE TABLE t2 PARTITION OF p DEFAULT');
is($node->safe_psql('postgres', "SET pg_bulk.copy = on; BEGIN; COPY p FROM '$directory/numbers'; $leaf_locks"), 't1|RowExclusiveLock', 'a file that is not below an allowed directory');

# pg_bulk does not open a pipe that it may not read: its writer would get SIGPIPE.
{
	my $pipe = "$directory/pipe";
	system('mkfifo', '-m', '644', $pipe) == 0 or die;
	defined(my $writer = fork) or die;
	exec 'sh', '-c', "printf '3\\n4\\n' > '$pipe'" or die if !$writer;
	select undef, undef, undef, 0.1;
	# A pipe that is left out is reported, and its writer is not disturbed.
	$node->safe_psql('postgres', "CREATE FOREIGN TABLE of_pipe (a int) SERVER bulk_files OPTIONS (filename '$pipe')");
	for my $statement ('TABLE of_pipe', 'EXPLAIN ANALYZE TABLE of_pipe', "SELECT * FROM bulk_load('$pipe', 'filled')")
	{
		my (undef, undef, $said) = $node->psql('postgres', $statement);
		like($said, qr/is not below a directory of pg_bulk\.allowed_directories/, "$statement: a pipe that is not below an allowed directory");
	}
	my $late;
	$node->psql('postgres', "SET pg_bulk.copy = on; COPY filled FROM '$pipe'", timeout => 10, timed_out => \$late);
	ok(!$late, 'a pipe that is not below an allowed directory');
	kill 'KILL', $writer if $late;
	waitpid $writer, 0;
	is($node->safe_psql('postgres', 'SELECT sum(a) FROM filled'), '10', '... is read by the server');
}

# Libraries that were loaded before would not see a COPY that is a load.
my $copy = "COPY filled FROM '$directory/numbers'";
my $seen = "SELECT calls, rows FROM pg_stat_statements WHERE query ~ '^COPY filled'";
sub copied { my (undef, undef, $said) = $node->psql('postgres', "$_[0]SET pg_bulk.copy = on; SET client_min_messages = debug1; $copy"); return $said; }
$node->append_conf('postgresql.conf', "pg_bulk.allowed_directories = ''");
$node->reload;
$node->poll_query_until('postgres', "SELECT setting = '' FROM pg_settings WHERE name = 'pg_bulk.allowed_directories'") or die;
$node->safe_psql('postgres', 'SELECT pg_stat_statements_reset()');
like(copied(''), qr/is done by pg_bulk/, 'the library is loaded before another one');
is($node->safe_psql('postgres', $seen), '1|2', '... which sees the statement');
for my $order ('pg_stat_statements,pg_bulk', 'pg_stat_statements')
{
	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$order'");
	$node->restart;
	$node->safe_psql('postgres', 'SELECT pg_stat_statements_reset()');
	like(copied("LOAD 'pg_bulk'; "), qr/not done by pg_bulk: A library that was loaded earlier/, "$order: the library is loaded after it");
	is($node->safe_psql('postgres', $seen), '1|2', '... which sees the statement, too');
}

# Preloaded by sessions: for a database, for a role, or by the connection's options.
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
my $done = "SET client_min_messages = debug1; $copy";
(undef, undef, $said) = $node->psql('postgres', "SET pg_bulk.copy = on; $done");
unlike($said, qr/by pg_bulk/, 'without the library, the server does it');
$node->safe_psql('postgres', "ALTER DATABASE postgres SET session_preload_libraries = 'pg_bulk'; ALTER DATABASE postgres SET pg_bulk.copy = on");
(undef, undef, $said) = $node->psql('postgres', $done);
like($said, qr/is done by pg_bulk/, 'the library is preloaded by sessions of a database');
(undef, undef, $said) = $node->psql('postgres', $done,
	connstr => $node->connstr('postgres') . " options='-c session_preload_libraries='");
unlike($said, qr/by pg_bulk/, '... unless a connection wants none');
$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET ALL');
(undef, undef, $said) = $node->psql('postgres', $done, connstr => $node->connstr('postgres') . " options='-c session_preload_libraries=pg_bulk -c pg_bulk.copy=on'");
like($said, qr/is done by pg_bulk/, '... or one wants it');
healthy($node, 'after COPYs in sessions that preload the library');
$node->stop;
done_testing();
