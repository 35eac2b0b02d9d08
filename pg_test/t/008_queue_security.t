
# The queue and hostile users: owners of tables and of databases,
# and roles that probe for files.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use Time::HiRes qw(time usleep);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Queue;

my $queue = Queue->new('queue');
my $node = $queue->node;
my $three = $queue->numbers('three', 1 .. 3);

# Functions and operators that try to be called by another role. Each call is recorded.
my $EVIL = <<'SQL';
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
CREATE TABLE evil.caught (who text, what text);
GRANT INSERT ON evil.caught TO PUBLIC;
CREATE FUNCTION evil.catch(what text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO evil.caught VALUES (current_user, what);
	RETURN true;
END $$;
CREATE FUNCTION evil.int8_eq(bigint, bigint) RETURNS boolean LANGUAGE sql AS $$ SELECT evil.catch('=') $$;
CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.int8_eq);
CREATE FUNCTION evil.oid_eq(oid, oid) RETURNS boolean LANGUAGE sql AS $$ SELECT evil.catch('=') $$;
CREATE OPERATOR evil.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = evil.oid_eq);
CREATE FUNCTION evil.text_eq(text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT evil.catch('=') $$;
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.text_eq);
CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT pg_catalog.now() WHERE evil.catch('clock') $$;
CREATE FUNCTION evil.pg_has_role(oid, oid, text) RETURNS boolean LANGUAGE sql AS $$ SELECT evil.catch('role') $$;
CREATE FUNCTION evil.least(double precision, integer) RETURNS double precision LANGUAGE sql AS $$ SELECT 1 WHERE evil.catch('least') $$;
CREATE TABLE evil.bulk_queue (job_id bigint, status text, attempt int);
CREATE TABLE evil.bulk_queue_state (paused boolean);
INSERT INTO evil.bulk_queue_state VALUES (true);
CREATE TABLE evil.pg_extension (oid oid, extnamespace oid);
SQL

# A table's owner has a trigger that tries everything in the loading session.
$queue->sql(<<'SQL');
CREATE ROLE mallory LOGIN;
CREATE ROLE loader LOGIN IN ROLE pg_read_server_files;
CREATE ROLE friend LOGIN;
GRANT friend TO loader;
GRANT CREATE ON DATABASE postgres TO mallory;
GRANT CREATE ON SCHEMA public TO mallory;
SQL
$queue->sql("SET ROLE mallory;\n$EVIL");
$queue->sql(<<'SQL');
SET ROLE mallory;
CREATE TABLE lure (a int);
GRANT INSERT, SELECT ON lure TO loader;
CREATE TABLE tried (what text, outcome text);
GRANT INSERT ON tried TO PUBLIC;
CREATE FUNCTION attack() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	statement text;
BEGIN
	FOREACH statement IN ARRAY ARRAY[
		'SET search_path = pg_temp, evil, public, pg_catalog',
		'CREATE TEMPORARY TABLE bulk_queue (job_id bigint, status text, attempt int, rows_loaded bigint)',
		'CREATE TEMPORARY TABLE bulk_queue_state (paused boolean)',
		'CREATE TEMPORARY TABLE bulk_loads (load_id bigint)',
		'SELECT pg_advisory_unlock_all()',
		'UPDATE public.bulk_queue SET status = ''succeeded''',
		'INSERT INTO public.bulk_queue_state VALUES (true)',
		'SELECT public.bulk_pause()',
		'SELECT setval(''public.bulk_load_id_seq'', 1)',
		'RESET SESSION AUTHORIZATION',
		'SET SESSION AUTHORIZATION postgres',
		'RESET ROLE',
		'SET ROLE postgres',
		'SET default_transaction_isolation = serializable',
		'SET default_transaction_read_only = on',
		'SET synchronous_commit = off',
		'SET row_security = off',
		'SET ROLE friend']
	LOOP
		BEGIN
			EXECUTE statement;
			INSERT INTO public.tried VALUES (statement, current_user || ' ' || session_user);
		EXCEPTION WHEN OTHERS THEN
			INSERT INTO public.tried VALUES (statement, SQLSTATE);
		END;
	END LOOP;
	RETURN NULL;
END $$;
CREATE TRIGGER attack AFTER INSERT ON lure FOR EACH STATEMENT EXECUTE FUNCTION attack();
CREATE FUNCTION later() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.tried VALUES ('later', current_user || ' ' || session_user || ' ' || current_setting('synchronous_commit'));
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER later AFTER INSERT ON lure DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (new.a OPERATOR(pg_catalog.=) 1)
	EXECUTE FUNCTION later();
SQL
my ($job) = $queue->sql("SET ROLE loader; SELECT bulk_enqueue('$three', 'lure')");
is($queue->ends($job), 'succeeded', 'a load under attack') or diag $queue->sql("SELECT error_message FROM bulk_jobs WHERE job_id = $job");
is($queue->sql("SELECT status, attempt, rows_loaded, (SELECT count(*) FROM lure) FROM bulk_queue WHERE job_id = $job"), 'succeeded|1|3|3', '... says what is true');
is($queue->sql("SELECT rows_loaded, owner FROM bulk_history WHERE load_id = $job"), '3|loader', '... also in the history');
is($queue->sql("SELECT count(*), bool_or(paused) FROM bulk_queue_state"), '1|f', '... and the queue is as it was');
my %tried = map { split /\|/, $_, 2 } split /\n/, $queue->sql('SELECT * FROM tried');
is($tried{"UPDATE public.bulk_queue SET status = 'succeeded'"}, '42501', 'nobody writes to the queue');
is($tried{'SELECT public.bulk_pause()'}, '42501', '... or pauses it');
is($tried{'SET SESSION AUTHORIZATION postgres'}, '42501', '... or becomes somebody else');
is($tried{'SET ROLE postgres'}, '42501', '... at all');
is($tried{'RESET SESSION AUTHORIZATION'}, 'loader loader', 'the job is its owner');
is($tried{'RESET ROLE'}, 'loader loader', '... and stays it');
is($tried{'SELECT pg_advisory_unlock_all()'}, 'loader loader', 'advisory locks are not what it depends on');
is($tried{'SET ROLE friend'}, 'friend loader', 'what the owner may do, he may');
# From 18 on, a deferred trigger runs as the role that was active when the row was inserted.
is($tried{later}, ($node->pg_version >= 18 ? 'loader' : 'friend') . ' loader off', '... also at the very end');
is($queue->sql("SELECT string_agg(DISTINCT who || ' ' || what, ', ') FROM evil.caught WHERE who NOT IN ('loader', 'friend', 'mallory')"), '', 'nobody else was caught')
	or diag $queue->sql('SELECT DISTINCT * FROM evil.caught');

# The same with a check, a domain, an index expression, and in a failing attempt.
$queue->sql(<<'SQL');
SET ROLE mallory;
TRUNCATE tried;
CREATE FUNCTION harmless(a int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('search_path', 'evil, pg_catalog', false);
	PERFORM set_config('session_authorization', 'postgres', false);
	RETURN true;
EXCEPTION WHEN OTHERS THEN
	RETURN a < 3;
END $$;
CREATE DOMAIN harmless_int AS int CHECK (public.harmless(value));
CREATE TABLE bait (a harmless_int);
CREATE TABLE checked (a int CHECK (public.harmless(a)));
GRANT INSERT ON bait, checked TO loader;
SQL
for my $table ('bait', 'checked')
{
	my ($job) = $queue->sql("SET ROLE loader; SELECT bulk_enqueue('$three', '$table')");
	is($queue->ends($job), 'failed', "$table: fails");
	is($queue->sql("SELECT attempt, error_sqlstate, owner FROM bulk_jobs WHERE job_id = $job"), '1|23514|loader', '... and says so');
}
is($queue->sql("SELECT count(*) FROM evil.caught WHERE who NOT IN ('loader', 'friend', 'mallory')"), 0, 'nobody was caught');

# All other places for a table owner's code: each one tries everything, and records the current user.
$queue->sql(<<'SQL');
SET ROLE mallory;
CREATE TABLE places (place text, who text);
GRANT INSERT ON places TO PUBLIC;
CREATE FUNCTION spring(place text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	statement text;
BEGIN
	FOREACH statement IN ARRAY ARRAY[
		'SET search_path = pg_temp, evil, public, pg_catalog',
		'CREATE TEMPORARY TABLE bulk_queue (job_id bigint, status text, attempt int)',
		'CREATE TEMPORARY TABLE bulk_loads (load_id bigint)',
		'SELECT pg_advisory_unlock_all()',
		'UPDATE public.bulk_queue SET status = NULL',
		'SELECT public.bulk_pause()',
		'SET SESSION AUTHORIZATION postgres',
		'SET ROLE postgres',
		'SET default_transaction_read_only = on',
		'SET synchronous_commit = off',
		'SET lock_timeout = 1',
		'SET ROLE friend']
	LOOP
		BEGIN
			EXECUTE statement;
		EXCEPTION WHEN OTHERS THEN
			NULL;
		END;
	END LOOP;
	INSERT INTO public.places VALUES (place, current_user || ' ' || session_user);
END $$;
CREATE FUNCTION trap(a int, place text) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS $$
BEGIN
	PERFORM public.spring(place);
	RETURN a;
END $$;
CREATE FUNCTION trap_later(place text) RETURNS int LANGUAGE sql VOLATILE AS $$ SELECT public.trap(1, place) $$;
CREATE DOMAIN trap_int AS int CHECK (public.trap(value, 'domain') > 0);
CREATE DOMAIN trap_field AS int CHECK (public.trap(value, 'input function') > 0);
CREATE TYPE trap_row AS (n trap_field);
CREATE TABLE traps (a int CHECK (public.trap(a, 'check') > 0), d trap_int, r trap_row, b int DEFAULT public.trap_later('default'),
	g int GENERATED ALWAYS AS (public.trap(a, 'generated')) STORED) PARTITION BY LIST (public.trap(a, 'partition key'));
CREATE TABLE trap_leaf PARTITION OF traps DEFAULT;
CREATE INDEX ON traps (public.trap(a, 'index')) WHERE public.trap(a, 'predicate') > 0;
GRANT INSERT ON traps TO loader;
TRUNCATE places;
SQL
my $trapped = $queue->path('trapped');
append_to_file($trapped, "$_\t$_\t($_)\n") for 1 .. 3;
($job) = $queue->sql("SET ROLE loader; SELECT bulk_enqueue('$trapped', 'traps', '{\"columns\": [\"a\", \"d\", \"r\"]}')");
is($queue->ends($job), 'succeeded', 'code in every place') or diag $queue->sql("SELECT error_message FROM bulk_jobs WHERE job_id = $job");
is($queue->sql("SELECT status, attempt, rows_loaded, (SELECT count(*) FROM traps), (SELECT bool_or(paused) FROM bulk_queue_state) FROM bulk_queue WHERE job_id = $job"),
	'succeeded|1|3|3|f', '... does no harm');
is($queue->sql("SELECT string_agg(DISTINCT place, ', ' ORDER BY place) FROM places"),
	'check, default, domain, generated, index, input function, partition key, predicate', '... though it was run');
is($queue->sql("SELECT string_agg(DISTINCT who, ', ') FROM places WHERE who NOT LIKE '% loader' OR who LIKE 'postgres%'"), '', '... by the owner of the job');
is($queue->sql("SELECT count(*) FROM evil.caught WHERE who NOT IN ('loader', 'friend', 'mallory')"), 0, '... and nobody else was caught');

# The owner of a job calls, reads and writes all functions and tables of the queue.
$queue->sql('SELECT bulk_pause(); CREATE TABLE all_his (a int); GRANT INSERT ON all_his TO loader');
my ($his, $hers) = map { $queue->sql("SET ROLE $_; SELECT bulk_enqueue('$three', 'all_his', run_at => now() + interval '1 day')") } 'postgres', 'loader';
my $bad_line = $queue->numbers('bad line', 1, 'x');
$queue->sql("SELECT bulk_load('$bad_line', 'all_his', '{\"on_error\": \"table\"}')");
my $others = "SELECT (SELECT string_agg(q::text, ',' ORDER BY job_id) FROM bulk_queue q WHERE owner_name <> 'loader'), (SELECT bool_and(paused) FROM bulk_queue_state),
	(SELECT string_agg(l::text, ',' ORDER BY load_id, attempt) FROM bulk_loads l WHERE owner_name <> 'loader'),
	(SELECT string_agg(r::text, ',' ORDER BY load_id, line_number) FROM bulk_reject r WHERE owner <> 'loader'::regrole)";
my $before = $queue->sql($others);
$queue->sql('CREATE TABLE calls (call text, outcome text); GRANT INSERT, SELECT ON calls TO loader');
my $calls = <<'SQL';
SET ROLE loader;
SET client_min_messages = error;
DO $$
DECLARE
	statement text;
	result text;
BEGIN
	FOR statement IN
		-- Functions, with every combination of a few values for each argument.
		WITH RECURSIVE members AS (
			SELECT p.oid, p.proname, p.proargtypes::oid[] AS types FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
			WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
				AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_bulk')
		), candidates (type, value) AS (
			VALUES ('bigint'::regtype::oid, '<his>'), ('bigint'::regtype, '<hers>'), ('bigint'::regtype, '0'), ('text'::regtype, quote_literal('<file>')),
				('regclass'::regtype, quote_literal('all_his')), ('regclass'::regtype, quote_literal('bulk_queue')), ('regclass'::regtype, quote_literal('bulk_jobs')),
				('jsonb'::regtype, quote_literal('{}')), ('jsonb'::regtype, quote_literal('{"truncate": true}')),
				('integer'::regtype, '1'), ('timestamptz'::regtype, quote_literal('infinity')), ('interval'::regtype, quote_literal('0')),
				('oid'::regtype, '10'), ('name'::regtype, quote_literal('postgres')), ('text[]'::regtype, quote_literal('{}')),
				('anyelement'::regtype, 'NULL')
		), calls (proname, types, arguments) AS (
			SELECT proname, types, ARRAY[]::text[] FROM members
			UNION ALL
			SELECT proname, types, arguments || value FROM calls
			JOIN (SELECT type, value || '::' || CASE type WHEN 'anyelement'::regtype THEN 'bulk_jobs' ELSE type::regtype::text END FROM candidates
				UNION ALL SELECT DISTINCT type, 'NULL' FROM candidates WHERE type <> 'anyelement'::regtype) c (type, value)
				ON c.type = types[cardinality(arguments)]
			WHERE cardinality(arguments) < cardinality(types)
		)
		SELECT format('SELECT string_agg(f::text, %L) FROM public.%I(%s) f', ',', proname, array_to_string(arguments, ', ')) FROM calls
		WHERE cardinality(arguments) = cardinality(types)
		UNION ALL
		-- Tables and views.
		SELECT format(template, c.oid::regclass, (SELECT attname FROM pg_attribute a WHERE a.attrelid = c.oid AND attnum = 1))
		FROM pg_depend d JOIN pg_class c ON c.oid = d.objid,
			unnest(ARRAY['SELECT count(*) FROM %s', 'INSERT INTO %1$s (%2$I) VALUES (NULL)', 'UPDATE %1$s SET %2$I = NULL', 'DELETE FROM %s',
				'TRUNCATE %s', 'LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', 'ALTER TABLE %s RENAME TO mine', 'DROP TABLE %s', 'DROP VIEW %s',
				'CREATE TRIGGER t BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION public.bulk_keep_local()', 'SELECT setval(%1$L, 1)']) template
		WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
			AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_bulk')
	LOOP
		BEGIN
			IF statement LIKE 'SELECT%' THEN
				EXECUTE statement INTO result;
			ELSE
				EXECUTE statement;
				result := NULL;
			END IF;
			result := 'done: ' || coalesce(result, 'null');
		EXCEPTION WHEN OTHERS THEN
			result := SQLSTATE;
		END;
		INSERT INTO calls VALUES (statement, result);
	END LOOP;
END $$;
SQL
$calls =~ s/<his>/$his/g;
$calls =~ s/<hers>/$hers/g;
$calls =~ s/<file>/$three/g;
$queue->sql($calls);
is($queue->sql($others), $before, "whatever the owner of a job calls, what is others' stays as it is");
cmp_ok($queue->sql('SELECT count(*) FROM calls'), '>', 100, '... and he has called a lot');
is($queue->sql("SELECT string_agg(call, '; ' ORDER BY call) FROM calls WHERE call !~ 'public\\.' AND outcome LIKE 'done%'"),
	'SELECT count(*) FROM bulk_history; SELECT count(*) FROM bulk_jobs; SELECT count(*) FROM bulk_load_files; SELECT count(*) FROM bulk_once; SELECT count(*) FROM bulk_rejects', '... he reads the views, and nothing else');
is($queue->sql("SELECT string_agg(DISTINCT outcome, ' ') FROM calls WHERE call ~ 'bulk_(wait|cancel|retry)\\($his:'"), '42704', "... does not get at others' jobs");
is($queue->sql("SELECT string_agg(DISTINCT outcome, ' ') FROM calls WHERE call ~ 'bulk_(pause|resume)'"), '42501', '... nor at the queue');
like($queue->sql("SELECT string_agg(DISTINCT outcome, ' ') FROM calls WHERE call ~ 'bulk_cancel\\($hers:'"), qr/done: true/, '... but at his own');
$queue->sql("SELECT bulk_cancel(job_id) FROM bulk_jobs WHERE status = 'queued'");
$queue->sql('SELECT bulk_resume()');

# The owner's own settings.
$queue->sql("ALTER ROLE loader SET default_transaction_isolation = 'repeatable read'; ALTER ROLE loader SET default_transaction_read_only = on;
	ALTER ROLE loader SET synchronous_commit = off; ALTER ROLE loader SET role = friend; ALTER ROLE loader SET search_path = evil;
	CREATE TABLE seen (a int, who text DEFAULT current_user || ' ' || current_setting('transaction_isolation') || ' ' || current_setting('synchronous_commit'));
	GRANT INSERT ON seen TO loader");
($job) = $queue->sql("SET ROLE loader; SELECT bulk_enqueue('$three', 'seen', '{\"columns\": [\"a\"]}')");
is($queue->ends($job), 'succeeded', 'settings of the owner');
is($queue->sql('SELECT DISTINCT who FROM seen'), 'loader read committed on', '... do not make something else of the job');

# The owner of a database.
$queue->sql('CREATE ROLE landlord LOGIN; CREATE DATABASE den OWNER landlord');
$queue->sql('CREATE EXTENSION pg_bulk; CREATE TABLE t (a int); GRANT INSERT ON t TO loader', 'den');
$queue->sql("SET ROLE landlord;\n$EVIL", 'den');
$queue->sql("ALTER DATABASE den OWNER TO landlord; SET ROLE landlord; ALTER DATABASE den SET search_path = evil, pg_catalog;
	ALTER DATABASE den SET role = landlord; ALTER DATABASE den SET default_transaction_read_only = on;
	ALTER DATABASE den SET default_transaction_isolation = 'serializable'; ALTER DATABASE den SET lock_timeout = 1");
($job) = $node->safe_psql('den', "SET ROLE loader; SET search_path = public; BEGIN READ WRITE; SELECT bulk_enqueue('$three', 't'); COMMIT");
my $answer;
for (1 .. 300)
{
	$answer = $node->safe_psql('den', "RESET ROLE; SET SESSION AUTHORIZATION postgres; SET ROLE postgres;
		SELECT status, owner, rows_loaded, error_message FROM public.bulk_jobs");
	last if $answer =~ /succeeded|failed/;
	usleep(50_000);
}
is($answer, 'succeeded|loader|3|', 'a job in a hostile database');
is($node->safe_psql('den', 'SET ROLE postgres; SELECT DISTINCT who, what FROM evil.caught'), '', '... in which nobody was caught');

# Files.
$queue->sql('ALTER ROLE loader RESET ALL; CREATE ROLE nobody LOGIN; GRANT INSERT ON t TO nobody, loader');
for my $path ($three, $queue->path('not there'), '/proc/self/environ', '/')
{
	like(($node->psql('postgres', "SET ROLE nobody; SELECT bulk_enqueue('$path', 't')"))[2],
		qr/^psql:\S+ ERROR:  permission denied to load from a file\nDETAIL:  Only roles with privileges of the "pg_read_server_files" role/m, "no right, no knowledge: $path");
}
like(($node->psql('postgres', "SET ROLE loader; SELECT bulk_enqueue('true', 't', '{\"program\": true}')"))[2],
	qr/permission denied to load from an external program/, 'programs need a right of their own');
my $allowed = $queue->path('allowed');
mkdir $allowed;
chmod 0755, $allowed;
symlink $three, "$allowed/link";
symlink '/proc/self/environ', "$allowed/environment";
my $inside = $queue->numbers('allowed/inside', 1 .. 3);
$queue->sql("LOAD 'pg_bulk'; ALTER SYSTEM SET pg_bulk.allowed_directories = '$allowed'");
$node->reload;
usleep(200_000);
my $fifo = $queue->pipe('fifo');
for my $case ([ $inside, 'succeeded', '' ], [ $fifo, 'failed', '42501' ], [ $three, 'failed', '42501' ], [ "$allowed/link", 'failed', '42501' ],
	[ "$allowed/environment", 'failed', '42501' ], [ "$allowed/../three", 'failed', '42501' ], [ '/dev/zero', 'failed', '42501' ],
	[ '/proc/self/mem', 'failed', '42501' ],
	# Its files are read, and links among them lead out.
	[ $allowed, 'failed', '42501' ])
{
	my ($path, $status, $sqlstate) = @$case;
	($job) = $queue->sql("SET ROLE loader; SELECT bulk_enqueue('$path', 't')");
	is($queue->ends($job), $status, "allowed_directories: $path");
	is($queue->sql("SELECT error_sqlstate FROM bulk_jobs WHERE job_id = $job"), $sqlstate, '... and why');
}
is($queue->sql('SELECT count(*) FROM t'), 3, 'one file was loaded');

# A role that may not see a job cannot wait for it by other means either.
($job) = $queue->sql("SET ROLE loader; SELECT bulk_enqueue('$inside', 't', run_at => now() + interval '1 day')");
for my $call ("bulk_wait($job, '10 seconds')", "bulk_cancel($job)", "bulk_retry($job)")
{
	like(($node->psql('postgres', "SET ROLE nobody; SELECT $call"))[2], qr/job $job does not exist/, "somebody else's job: $call");
}
is($queue->status($job), 'queued', '... and it is as it was');
is($queue->sql("SET ROLE friend; SELECT count(*) FROM bulk_jobs"), 0, 'a role that is granted sees nothing');
is($queue->sql("SELECT bulk_cancel($job)"), 't', 'a superuser may');
# The owner of the extension's schema may rename it, and create another one in its place, while a dispatcher runs.
$node->safe_psql('postgres', 'CREATE DATABASE renamed OWNER mallory');
$node->safe_psql('renamed', "CREATE EXTENSION pg_bulk; CREATE SCHEMA kept; CREATE TABLE kept.numbers (a int)");
my $delayed = $node->safe_psql('renamed',
	"SELECT bulk_enqueue('$inside', 'kept.numbers', run_at => clock_timestamp() + interval '2 seconds')");
usleep(500_000);
$node->safe_psql('renamed', <<'SQL');
SET ROLE mallory;
ALTER SCHEMA public RENAME TO hidden;
CREATE SCHEMA public;
CREATE TABLE public.bulk_queue (job_id bigint, status text, attempt int);
CREATE TABLE public.bulk_queue_state (paused boolean);
SQL
is($node->safe_psql('renamed', "SELECT hidden.bulk_wait($delayed, '30 seconds')"), 'succeeded', 'a renamed schema is followed');
is($node->safe_psql('renamed', 'SELECT count(*), (SELECT count(*) FROM public.bulk_queue) FROM kept.numbers'), '3|0', '... and its place left alone');
is($node->safe_psql('renamed', 'SELECT count(*) FROM hidden.bulk_history'), 1, '... also by the history');
unlike(slurp_file($node->logfile), qr/column "\w+" does not exist/, '... nor was it looked at');

$node->stop;
done_testing();
