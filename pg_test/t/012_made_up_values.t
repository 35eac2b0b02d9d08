
# Made-up fields, which native decoders read as the types' input functions do: the
# inputs of perl/Values.pm, spliced and changed inside the server
# (src/pg/decoding_trial.rs), millions of them.
#
# PG_BULK_SECONDS says how long it goes on, PG_BULK_SEED where from.

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
# The function is in no release.
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
SQL

# The types that have a decoder, with what is known of their inputs.
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

$node->stop;
done_testing();
