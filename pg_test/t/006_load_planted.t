
# Faults are planted into B-trees that a load has built: TIDs of equal keys in the
# wrong order, a posting list without its last TID, a page without its high key,
# a leaf without a downlink. Each of the checks that other tests rely on must find each
# fault. These are amcheck, the comparison with an index that the server builds, and, except
# for a wrong order, an index scan compared with a sequential scan.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use File::Spec::Functions qw(rel2abs);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(write_bytes);
use Load qw(entries_complaints entries_complete);

use constant { PAGE => 8192, SPECIAL => 8176, HEADER => 24, ALTERNATIVE_TID => 0x2000, IS_POSTING => 0x2000, COUNT => 0x0fff, INCOMPLETE_SPLIT => 0x80 };

# Without checksums, which would detect the changes first. From 18 on initdb enables them by default.
my $node = PostgreSQL::Test::Cluster->new('planted');
delete $ENV{RUST_BACKTRACE};
$node->init(extra => [ '-E', 'UTF8', '--locale=C.UTF-8', $node->pg_version >= 18 ? '--no-data-checksums' : () ]);
$node->append_conf('postgresql.conf', "fsync = off\nautovacuum = off\nlog_min_messages = fatal\nlog_min_error_statement = panic\nlog_statement = none\n");
$node->start;

# The planted faults, by type of key; and amcheck's message for each.
my %faults = (
	order    => qr/item order invariant violated|could not find tuple using search from root/,
	posting  => qr/lacks matching index tuple/,
	high_key => qr/lacks matching index tuple|high key|down-link|downlink|invariant violated/,
	leaf     => qr/lacks matching index tuple|left link\/right link pair|high key|downlink|down-link/,
	none     => undef);
my %kinds = (fixed => 'n', bytes => 'w', other => 'x');
my %storage = (order => 'WITH (deduplicate_items = off)');

my $session = "\\getenv data PGB_DATA\nSET client_min_messages = warning;\nSET search_path = planted, public;\n";
my $create = '';
for my $kind (sort keys %kinds)
{
	$create .= "CREATE INDEX ${kind}_$_ ON t ($kinds{$kind}) " . ($storage{$_} // '') . ";\n" for sort keys %faults;
}
my $file = rel2abs(PostgreSQL::Test::Utils::tempdir('files')) . '/rows';
chmod 0755, $file =~ s{/rows$}{}r;
write_bytes($file, join '', map { my $key = $_ * 7919 % 10_007 % 900; "$key,word $key,Word $key\n" } 1 .. 6000);
is($node->safe_psql('postgres', <<"SQL"), 'rebuild from load|' . keys(%kinds) * keys(%faults), 'a load builds all indexes');
CREATE EXTENSION pg_bulk; CREATE EXTENSION amcheck; CREATE EXTENSION pageinspect;
\\set schema planted
\\getenv data PGB_DATA
\\set helpers :data '/helpers.sql'
\\o /dev/null
\\i :helpers
\\set helpers :data '/index_helpers.sql'
\\i :helpers
\\o
CREATE TABLE t (n int, w text COLLATE "C", x text COLLATE "en-x-icu");
$create
CREATE FUNCTION pages(index regclass) RETURNS text LANGUAGE sql AS \$\$
	SELECT md5(string_agg(concat(s, i), E'\\n' ORDER BY block)) FROM generate_series(1, pg_relation_size(index) / 8192 - 1) block,
		public.bt_page_stats(index::text, block) s, LATERAL (SELECT string_agg(item::text, E'\\n') AS i FROM public.bt_page_items(index::text, block) item) i
\$\$;
SELECT concat_ws(' from ', i ->> 'method', i ->> 'from'), count(*)
FROM bulk_load('$file', 't', '{"format": "csv", "indexes": "rebuild", "truncate": true}'), jsonb_array_elements(indexes) i GROUP BY 1;
SQL

sub at16 { return unpack 'v', substr($_[0], $_[1], 2); }
sub at32 { return unpack 'V', substr($_[0], $_[1], 4); }

sub items
{
	my ($page) = @_;
	return map { my $pointer = at32($page, HEADER + 4 * $_); { place => HEADER + 4 * $_, at => $pointer & 0x7fff } } 0 .. (at16($page, 12) - HEADER) / 4 - 1;
}

# Removes an item's line pointer from a page.
sub without
{
	my ($page, $item) = @_;
	my $end = at16($page, 12);
	my $rest = substr($page, $item->{place} + 4, $end - $item->{place} - 4);
	substr($page, $item->{place}, length $rest) = $rest;
	substr($page, 12, 2) = pack 'v', $end - 4;
	return $page;
}

# The TIDs of a tuple that is a posting list.
sub list_of
{
	my ($page, $item) = @_;
	my $number = at16($page, $item->{at} + 4);
	return at16($page, $item->{at} + 6) & ALTERNATIVE_TID && $number & IS_POSTING ? $number & COUNT : 0;
}

# Changes to the pages of an index.
my %plant = (
	none  => sub { },
	order => sub
	{
		my ($pages) = @_;
		# The first two items after the high key, which have equal keys: each key occurs several times.
		my (undef, $one, $two) = items($pages->[1]);
		my @tids = map { substr $pages->[1], $_->{at}, 6 } $one, $two;
		die 'not two keys that are equal' unless substr($pages->[1], $one->{at} + 8, 8) eq substr($pages->[1], $two->{at} + 8, 8);
		substr($pages->[1], $one->{at}, 6) = $tids[1];
		substr($pages->[1], $two->{at}, 6) = $tids[0];
	},
	posting => sub
	{
		my ($pages) = @_;
		my ($item) = grep { list_of($pages->[1], $_) > 2 } items($pages->[1]) or die 'no posting list';
		substr($pages->[1], $item->{at} + 4, 2) = pack 'v', at16($pages->[1], $item->{at} + 4) - 1;
	},
	high_key => sub
	{
		my ($pages) = @_;
		die 'one leaf' if at32($pages->[1], SPECIAL + 4) == 0;
		$pages->[1] = without($pages->[1], (items($pages->[1]))[0]);
	},
	leaf => sub
	{
		my ($pages) = @_;
		my $lost = at32($pages->[1], SPECIAL + 4);
		my $next = at32($pages->[$lost], SPECIAL + 4) or die 'two leaves';
		substr($pages->[1], SPECIAL + 4, 4) = pack 'V', $next;
		substr($pages->[$next], SPECIAL, 4) = pack 'V', 1;
		my $root = at32($pages->[0], HEADER + 8);
		# A block number is stored as two halves, the higher one first.
		my ($item) = grep { at16($pages->[$root], $_->{at}) * 65_536 + at16($pages->[$root], $_->{at} + 2) == $lost } items($pages->[$root]) or die 'no downlink';
		$pages->[$root] = without($pages->[$root], $item);
	});

my %paths;
for my $line (split /\n/, $node->safe_psql('postgres', "SELECT relname, pg_relation_filepath(oid) FROM pg_class WHERE relkind = 'i' AND relnamespace = 'planted'::regnamespace"))
{
	my ($name, $path) = split /\|/, $line;
	$paths{$name} = $node->data_dir . "/$path";
}
$node->stop;
for my $name (sort keys %paths)
{
	my ($kind, $fault) = split /_/, $name, 2;
	open my $index, '+<:raw', $paths{$name} or die "$paths{$name}: $!";
	my $content = do { local $/ = undef; <$index> };
	my @pages = unpack '(a8192)*', $content;
	$plant{$fault}->(\@pages);
	is(join('', @pages) eq $content, $fault eq 'none', "$name: planted");
	seek $index, 0, 0;
	print $index join('', @pages);
	close $index or die $!;
}
$node->start;

my %complaints;
for my $line (split /\n/, $node->safe_psql('postgres', "${session}SELECT faults('t')"))
{
	my ($name, $complaint) = $line =~ /^(\w+): (.*)$/ or die $line;
	push @{ $complaints{$name} }, $complaint;
}
for my $kind (sort keys %kinds)
{
	for my $fault (sort keys %faults)
	{
		my $name = "${kind}_$fault";
		my @found = @{ $complaints{$name} // [] };
		my ($amcheck) = grep { !/ by index, / } @found;
		my ($scan) = grep { / by index, / } @found;
		if (defined $faults{$fault})
		{
			like($amcheck // '', $faults{$fault}, "$name: amcheck finds it");
		}
		else
		{
			is($amcheck, undef, "$name: amcheck finds nothing");
		}
		is(defined $scan, $fault !~ /none|order/, "$name: a scan finds other rows, or not");
		my ($status, $same) = $node->psql('postgres', $session . "CREATE INDEX again ON t ($kinds{$kind}) " . ($storage{$fault} // '')
			  . "; SELECT pages('$name') = pages('again'); DROP INDEX again;");
		is($status == 0 && $same eq 't', $fault eq 'none', "$name: an index of the server's is the same, or not");
	}
}

# Rare states that are no faults: an index of an older server, and one that a crash left in the middle of a split. The first
# is not merged, since its tuples have no order among equal keys; the second loses no entry.
write_bytes($file, join '', map { my $key = $_ * 2; "$key,word $key,Word $key\n" } 1 .. 6000);
my $odd = "$file.odd";
write_bytes($odd, join '', map { my $key = $_ * 2 - 1; "$key,word $key,Word $key\n" } 1 .. 6000);
my $load = sub { return "SELECT string_agg(concat_ws(' ', i ->> 'index', i ->> 'method', i ->> 'workers'), ', ' ORDER BY i ->> 'index')
	FROM bulk_load('$_[0]', 'halved', '{\"format\": \"csv\", \"lock\": \"share\", \"indexes\": \"$_[1]\", \"workers\": $_[2]}'), jsonb_array_elements(indexes) i;"; };
my $at = sub { my ($name) = @_; return $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('planted.$name')"); };
sub change
{
	my (%changes) = @_;
	my %files = map { $_ => $at->($_) } keys %changes;
	$node->stop;
	for my $name (sort keys %changes)
	{
		open my $index, '+<:raw', $files{$name} or die "$files{$name}: $!";
		my @pages = unpack '(a8192)*', do { local $/ = undef; <$index> };
		$changes{$name}->(\@pages);
		seek $index, 0, 0;
		print $index join('', @pages);
		close $index or die $!;
	}
	$node->start;
	return;
}
# The second leaf's downlink is missing, and a flag on the first leaf says so.
sub halve
{
	my ($pages) = @_;
	my $lost = at32($pages->[1], SPECIAL + 4) or die 'one leaf';
	substr($pages->[1], SPECIAL + 12, 2) = pack 'v', at16($pages->[1], SPECIAL + 12) | INCOMPLETE_SPLIT;
	my $root = at32($pages->[0], HEADER + 8);
	my ($item) = grep { at16($pages->[$root], $_->{at}) * 65_536 + at16($pages->[$root], $_->{at} + 2) == $lost } items($pages->[$root]) or die 'no downlink';
	$pages->[$root] = without($pages->[$root], $item);
	return;
}
# Version 3, which does not record whether equal keys have equal images.
sub age
{
	my ($pages) = @_;
	substr($pages->[0], HEADER + 4, 4) = pack 'V', 3;
	substr($pages->[0], HEADER + 40, 1) = "\0";
	return;
}
$node->safe_psql('postgres', "${session}CREATE TABLE halved (n int, w text COLLATE \"C\", x text); CREATE UNIQUE INDEX narrow ON halved (n); CREATE INDEX bytes ON halved (w); CREATE UNIQUE INDEX older ON halved (n DESC)");
for my $workers (0, 2)
{
	$node->safe_psql('postgres', "${session}TRUNCATE halved; " . $load->($file, 'merge', 0));
	change(narrow => \&halve, bytes => \&halve, older => \&age);
	is($node->safe_psql('postgres', "$session SELECT string_agg(concat_ws(' ', name, (bt_page_stats(name, 1)).btpo_flags & @{[INCOMPLETE_SPLIT]} > 0), ', ') FROM unnest('{bytes,narrow,older}'::text[]) name;
		SELECT (bt_metap('older')).version"), "bytes t, narrow t, older f\n3", 'splits are incomplete, and an index is an old one');
	like($node->safe_psql('postgres', "${session}SET pg_bulk.chunk_size = '16kB'; " . $load->($odd, 'merge', $workers)),
		$workers ? qr/^bytes merge, narrow merge( \d)?, older insert$/ : qr/^bytes merge, narrow merge, older insert$/, "$workers workers: indexes are merged, but for the old one");
	like($node->safe_psql('postgres', "${session}SELECT bt_index_parent_check('narrow', true, true), bt_index_parent_check('bytes', true, true), bt_index_parent_check('older', true);
		SELECT faults('halved')"), qr/^\|\|\nolder: .* "older" can each be found by an independent index search$/, '... and nothing is wrong with them, but that amcheck cannot look at all of the old one');
}

# A row is missing in an index of another access method, or with a condition:
# the search that random schedules use must find each of these faults.
$node->safe_psql('postgres', <<"SQL");
CREATE TABLE entries (n int, w text, a text[]);
INSERT INTO entries SELECT i, 'word ' || i, string_to_array('word ' || i || ' both', ' ') FROM generate_series(1, 500) i;
CREATE INDEX entries_hash ON entries USING hash (w);
CREATE INDEX entries_gin ON entries USING gin (a);
CREATE INDEX entries_some ON entries (n) WHERE length(w) > 6;
CREATE INDEX entries_hash_some ON entries USING hash (n) WHERE length(w) > 6;
SQL
is(join(' ', entries_complete($node, 'nothing planted')), 'entries_gin entries_hash entries_hash_some entries_some', '... each is looked at');
for my $index ('hash', 'gin', 'some', 'hash_some')
{
	$node->safe_psql('postgres', "UPDATE pg_index SET indisready = false WHERE indexrelid = 'entries_$index'::regclass");
	$node->safe_psql('postgres', "INSERT INTO entries VALUES (600, 'word 600', '{0a,0b}')");
	$node->safe_psql('postgres', "UPDATE pg_index SET indisready = true WHERE indexrelid = 'entries_$index'::regclass");
	like(entries_complaints($node), qr/WARNING:  index entries_$index finds [0-9]+ rows of [0-9]+/, "a row that is missing in $index is found");
	$node->safe_psql('postgres', "REINDEX INDEX entries_$index; DELETE FROM entries WHERE n = 600");
}
$node->stop;
done_testing();
