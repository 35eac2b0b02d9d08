
# Random fields, which native decoders read as the types' input functions do: the
# inputs of perl/Values.pm, spliced and changed inside the server
# (src/rows/decoding_trial.rs), millions of them. And random binary fields, which are
# read as receive functions read them (src/rows/receiving_trial.rs).
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
use Options qw(sql_string);
# Releases do not have this function.
use Points qw(point_names);
use Values qw(type_inputs setting_groups prerequisites);

my $seconds = $ENV{PG_BULK_SECONDS} // 4;
note 'PG_BULK_SEED=' . seed() . " PG_BULK_SECONDS=$seconds";
point_names();
my $node = load_server('made_up_values', log_min_error_statement => 'panic');
$node->safe_psql('postgres', prerequisites());
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION decoding_trial(samples text[], type oid, typmod int4, seed int8, fields int8) RETURNS int8
AS 'pg_bulk', 'bulk_decoding_trial' LANGUAGE c STRICT;
CREATE FUNCTION receiving_trial(samples bytea[], type oid, typmod int4, seed int8, fields int8) RETURNS int8
AS 'pg_bulk', 'bulk_receiving_trial' LANGUAGE c STRICT;
SQL

# The types with a decoder, and facts about their inputs.
my @types;
for my $entry (type_inputs())
{
	my ($type, $settings, $inputs) = @$entry;
	my $typmod = $node->safe_psql('postgres', "CREATE TEMP TABLE t (c $type); SELECT atttypid || ' ' || atttypmod FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum = 1");
	my $samples = 'ARRAY[' . join(',', map { sql_string($_) } grep { length($_) < 400 && !/\0/ } @$inputs) . ']::text[]';
	push @types, { name => $type, type => (split / /, $typmod)[0], typmod => (split / /, $typmod)[1], settings => $settings, samples => $samples };
}

sub trial
{
	my ($type, $group, $seed, $fields) = @_;
	my $sets = join '', map { "SET $_->[0] = " . sql_string($_->[1]) . ";\n" } pairs_of($group);
	return $node->psql('postgres', $sets . "SELECT decoding_trial($type->{samples}, $type->{type}, $type->{typmod}, $seed, $fields)", on_error_die => 0);
}

sub pairs_of
{
	my ($group) = @_;
	return map { [ @$group[ 2 * $_, 2 * $_ + 1 ] ] } 0 .. @$group / 2 - 1;
}

my ($round, $tried, %sure, @wrong) = (0, 0);
my $end = time + $seconds;
do
{
	for my $type (@types)
	{
		for my $group (setting_groups($type->{settings}))
		{
			next if defined $sure{ $type->{name} } && $sure{ $type->{name} } < 0;
			my $seed = seed() * 1_000_003 + $round++;
			my ($status, $stdout, $stderr) = trial($type, $group, $seed, 2000);
			if ($status)
			{
				push @wrong, "$type->{name}, seed $seed, settings @$group: $stderr";
				$sure{ $type->{name} } //= 0;
				next;
			}
			$sure{ $type->{name} } = $stdout < 0 ? -1 : ($sure{ $type->{name} } // 0) + $stdout;
			$tried += 2000 if $stdout >= 0;
		}
	}
} while (time < $end && !@wrong);
is(join("\n", @wrong), '', 'decoders read fields as the input functions do');
my @silent = grep { !$sure{$_} } sort keys %sure;
is("@silent", '', 'every decoder has been sure of something');
note "$tried fields: ", join ', ', map { "$_ $sure{$_}" } grep { $sure{$_} > 0 } sort keys %sure;

# Types of binary fields with a decoder, and expressions for edge cases.
my $strings = q{'', 'a', 'abc', 'abcd', 'ab  ', '\xc3a4', '\xc3a4c3b6c3bc', '\xe282ac', '\xf09f9880', '\x00', '\xff'};
my @received = (
	[ 'bool', q{'\x00', '\x01', '\xff'} ],
	[ 'int2', q{int2send(0::int2), int2send(-1::int2), int2send((-32768)::int2)} ],
	[ 'int4', q{int4send(0), int4send(-1), int4send(2147483647)} ],
	[ 'int8', q{int8send(0), int8send(-1), int8send(9223372036854775807)} ],
	[ 'oid', q{int4send(0), int4send(-1)} ],
	[ 'float4', q{float4send('NaN'), float4send('-0'), float4send('1e-45')} ],
	[ 'float8', q{float8send('NaN'), float8send('-0'), float8send('5e-324'), float8send('-Infinity')} ],
	[ 'bytea', $strings ],
	[ 'uuid', q{decode(md5('a'), 'hex'), decode(repeat('00', 16), 'hex')} ],
	[ 'date', q{date_send('infinity'), date_send('-infinity'), date_send('4714-11-24 BC'), date_send('5874897-12-31'), date_send('2000-01-01')} ],
	[ 'time', q{time_send('00:00'), time_send('24:00'), time_send('23:59:59.999999')} ],
	(map { [ $_, q{timestamp_send('infinity'), timestamp_send('-infinity'), timestamp_send('4714-11-24 00:00:00 BC'), timestamp_send('294276-12-31 23:59:59.999999'), timestamp_send('1999-12-31')} ] }
		'timestamp', 'timestamptz', 'timestamp(6)'),
	(map { [ $_, $strings ] } 'text', 'varchar', 'varchar(3)', 'char(4)', 'bpchar'));
my ($received, %was_sure, @differing) = (0);
$end = time + $seconds / 4;
do
{
	for my $entry (@received)
	{
		my ($type, $samples) = @$entry;
		for my $encoding ('utf8', 'latin1', 'sjis')
		{
			my $seed = seed() * 1_000_003 + $round++;
			my ($status, $stdout, $stderr) = $node->psql('postgres',
				"CREATE TEMP TABLE t (c $type); SET client_encoding = $encoding;
				SELECT receiving_trial(ARRAY[$samples]::bytea[], atttypid, atttypmod, $seed, 5000) FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum = 1",
				on_error_die => 0);
			push @differing, "$type, seed $seed, $encoding: $stderr" if $status;
			$was_sure{$type} += $status ? 0 : $stdout;
			$received += 5000;
		}
	}
} while (time < $end && !@differing);
is(join("\n", @differing), '', 'decoders read binary fields as receive functions do');
is("@{[ grep { $was_sure{$_} <= 0 } sort keys %was_sure ]}", '', 'every decoder of binary fields has been sure of something');
note "$received binary fields: ", join ', ', map { "$_ $was_sure{$_}" } sort keys %was_sure;

$node->stop;
done_testing();
