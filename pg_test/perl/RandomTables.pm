
=pod

=head1 NAME

RandomTables - random tables with indexes, and batches of rows to load into them

=head1 SYNOPSIS

  srand(17);
  print random_case(3);    # SQL for psql, after model.sql; prints what is wrong

=head1 DESCRIPTION

A case is a table, its indexes, existing rows, some of them
dead, and some batches. Each batch is loaded with options of its own, and all
content is checked afterwards. All randomness is rand(), which the caller seeds.

There are few keys, so many rows have equal ones; and equal values often have
different spellings.

=cut

package RandomTables;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

use Options qw(sql_string);
use Soup qw(pick);

our @EXPORT_OK = qw(random_case);

sub chance { return rand() < $_[0]; }

# Values by their numbers, with several spellings for some. Numbers
# that are congruent modulo a few thousand may be the same value.
my %values = (
	'int2' => sub { $_[0] % 20_000 - 50 },
	'int4' => sub { ($_[0] * 7919) % 1_000_003 - 1000 },
	'int8' => sub { (($_[0] * 7919) % 1_000_003 - 500_000) * 4_294_967_297 },
	'positive' => sub { $_[0] },
	'oid' => sub { 4_294_967_295 - $_[0] },
	'uuid' => sub { sprintf '%08x-0000-4000-8000-%012x', $_[0] * 2_654_435_761 % 4_294_967_296, $_[0] },
	'date' => sub { sprintf '%04d-%02d-%02d', 1000 + $_[0] % 7000, 1 + $_[0] % 12, 1 + $_[0] % 28 },
	'timestamptz' => sub { $_[0] ? sprintf('20%02d-03-%02d 12:00:0%d+%02d', $_[0] / 280 % 100, 1 + $_[0] % 28, $_[0] / 28 % 10, pick(0, 0, 2)) : pick('infinity', '-infinity') },
	'float8' => sub { $_[0] < 4 ? (pick('0', '-0', '0.0'), 'NaN', '-Infinity', 'Infinity')[ $_[0] ] : ($_[0] - 300) . pick('', '.0', 'e0') },
	'float4' => sub { $_[0] < 3 ? (pick('0', '-0'), 'NaN', 'Infinity')[ $_[0] ] : $_[0] / 4 },
	'numeric' => sub { $_[0] == 1 ? 'NaN' : $_[0] / 10 . pick('', '', $_[0] % 10 ? '0' : '.00') },
	'bool' => sub { $_[0] % 2 ? 't' : 'f' },
	'"char"' => sub { chr(97 + $_[0] % 26) },
	'mood' => sub { (qw(sad ok happy wild calm odd even low high none))[ $_[0] % 10 ] },
	'bytea' => sub { '\\x' . unpack('H*', word($_[0])) },
	'interval' => sub { $_[0] . pick(' days', ' days 00:00:00') },
	'int4[]' => sub { '{' . join(',', $_[0] % 3, $_[0], (7) x ($_[0] % 5)) . '}' },
	'int4range' => sub { $_[0] % 7 ? '[' . $_[0] . ',' . ($_[0] + 1 + $_[0] % 3) . ')' : 'empty' },
	'jsonb' => sub { sprintf pick('{"a": %1$d, "b": "%2$s"}', '{"b":"%2$s","a":%1$d}'), $_[0], $_[0] % 10 },
	'inet' => sub { sprintf '10.%d.%d.%d', $_[0] % 3, $_[0] / 256 % 256, $_[0] % 256 },
	'char(12)' => sub { word($_[0]) . pick('', ' ', '   ') },
	'varchar' => \&word,
	'text' => \&word,
	'text COLLATE "C"' => \&word,
	'text COLLATE icu' => \&word,
	'text COLLATE caseless' => sub { my $word = word($_[0]); return pick($word, uc $word, ucfirst $word) });

# Letters whose collation order differs from their byte order.
my @letters = (qw(a b c d B Z z), "\xc3\xa9", "\xc3\x9f", "\xe6\x97\xa5", ' ', '-', '1');

sub word
{
	my ($number) = @_;
	return '' if $number == 0;
	my $word = '';
	for (my $rest = $number * 2_654_435_761 % 1_000_003; $rest > 0; $rest = int($rest / @letters))
	{
		$word .= $letters[ $rest % @letters ];
	}
	return $word . $number;
}

# Types that can be part of any B-tree key; those that are frequent in files occur more often.
my @key_types = ((qw(int4 int8 text uuid), 'text COLLATE "C"', 'text COLLATE "C"', 'text COLLATE icu') x 2, sort keys %values);

# Types whose keys the load collects.
my @native_types = (qw(int2 int4 int8 oid uuid date timestamptz float8 float4 bool bytea), '"char"', ('text COLLATE "C"') x 3);

sub is_text { return $_[0]{type} =~ /^(text|varchar)/; }

sub case_columns
{
	my ($case) = @_;
	my @columns;
	for my $i (1 .. 2 + rand 5)
	{
		my $column = {
			name   => "c$i",
			type   => pick($case->{native} ? @native_types : @key_types),
			domain => pick(3, 30, 300, 300, 3000, 100_000),
			nulls  => pick(0, 0, 0.05, 0.4),
		};
		# Values that an index compresses, and values that are too long for it.
		$column->{wide} = pick(100, 700, 1500) if is_text($column) && chance(0.12);
		push @columns, $column;
	}
	return @columns;
}

sub value
{
	my ($column) = @_;
	return undef if rand() < $column->{nulls};
	my $number = int rand $column->{domain};
	my $value = $values{ $column->{type} }->($number);
	if ($column->{wide})
	{
		my $width = ($number * 31) % $column->{wide};
		# Half of them are incompressible.
		$value .= $number % 2 ? 'w' x $width : join '', map { chr(97 + ($number * $_ * 7 + $_ * $_ % 11) % 26) } 1 .. $width;
	}
	return $value;
}

sub rows_file
{
	my ($case, $format, $first, $count, @order) = @_;
	my @lines;
	# Ascending keys are frequent in files.
	my $ascending = chance(0.15);
	my %columns = map { $_->{name} => $_ } @{ $case->{columns} };
	for my $i (0 .. $count - 1)
	{
		my @fields;
		for my $name (@order)
		{
			my $column = $columns{$name};
			my $value = $name eq 'n' ? $first + $i
			  : $ascending && $column->{type} =~ /^int[48]$/ && !$column->{wide} ? $first + $i
			  : value($column);
			if ($format eq 'csv')
			{
				push @fields, defined $value ? '"' . ($value =~ s/"/""/gr) . '"' : '';
			}
			else
			{
				push @fields, defined $value ? ($value =~ s/\\/\\\\/gr) : '\\N';
			}
		}
		push @lines, join($format eq 'csv' ? ',' : "\t", @fields) . "\n";
	}
	return join '', @lines;
}

# A key column of an index: its text in CREATE INDEX, and in ON CONFLICT.
sub key_column
{
	my ($case, $plain, @candidates) = @_;
	my $column = pick(@candidates);
	my $expression = $column->{name};
	my $modifier = '';
	if (!$plain && !$case->{native} && chance(0.12))
	{
		$expression = $column->{type} eq 'int4' ? "(abs($column->{name}) % 100)"
		  : $column->{type} eq 'text COLLATE "C"' ? "lower($column->{name})"
		  : $column->{type} eq 'numeric' ? "(-$column->{name})"
		  : $expression;
	}
	if (!$plain && !$case->{native} && is_text($column) && $column->{type} !~ /caseless/)
	{
		$modifier = pick(('') x 6, ' COLLATE "C"', ' COLLATE icu', ' text_pattern_ops');
		$modifier = '' if $modifier =~ /ops/ && $column->{type} eq 'varchar';
	}
	my $order = $plain ? '' : pick(('') x 4, ' DESC', ' DESC NULLS LAST', ' NULLS FIRST');
	return { name => $expression, conflict => "$expression$modifier", index => "$expression$modifier$order", column => $column };
}

sub storage
{
	my @parameters;
	push @parameters, 'fillfactor = ' . pick(10, 30, 50, 70, 100) if chance(0.3);
	push @parameters, 'deduplicate_items = off' if chance(0.15);
	return @parameters ? ' WITH (' . join(', ', @parameters) . ')' : '';
}

# An index, or a constraint that has one. ON CONFLICT can distinguish the unique indexes.
sub add_index
{
	my ($case, $unique) = @_;
	my $name = 'i' . @{ $case->{indexes} };
	my @columns = @{ $case->{columns} };
	my $constraint = $unique && chance(0.4);
	my @keys;
	# Unique indexes of a partitioned table include its partition key.
	push @keys, key_column($case, 1, grep { $_->{name} eq 'c0' } @columns) if $unique && $case->{partitioned};
	push @keys, key_column($case, $constraint, @columns) for 1 .. pick(1, 1, 1, 2, 2, 3);
	my %seen;
	@keys = grep { !$seen{ $_->{name} }++ } @keys;
	my $key = join ',', sort keys %seen;
	return if $unique && $case->{keys}{$key}++;
	my $include = chance($case->{native} ? 0.05 : 0.15) ? ' INCLUDE (' . join(', ', map { $_->{name} } (pick(@columns))) . ')' : '';
	my $index = { name => $name, unique => $unique, deferrable => 0 };
	my $nulls = $unique && chance(0.2) ? ' NULLS NOT DISTINCT' : '';
	my $list = join ', ', map { $_->{index} } @keys;
	my $predicate = '';
	if ($constraint)
	{
		my $primary = !$case->{primary} && chance(0.5) && !grep { $_->{column}{nulls} } @keys;
		$case->{primary} = 1 if $primary;
		my $deferrable = !$primary && chance(0.12) ? pick(' DEFERRABLE', ' DEFERRABLE INITIALLY DEFERRED') : '';
		$index->{deferrable} = 1 if $deferrable;
		my $kind = $primary ? 'PRIMARY KEY' : "UNIQUE$nulls";
		$index->{statement} = "ALTER TABLE SCHEMA.t ADD CONSTRAINT $name $kind ($list)$include" . storage() . $deferrable;
		$index->{conflict} = "ON CONSTRAINT $name";
	}
	else
	{
		$predicate = ' WHERE ' . pick('n % 3 <> 0', "$keys[0]{column}{name} IS NOT NULL") if chance($case->{native} ? 0.03 : 0.15);
		$index->{statement} = 'CREATE' . ($unique ? ' UNIQUE' : '') . " INDEX $name ON SCHEMA.t ($list)$include$nulls" . storage() . $predicate;
		$index->{conflict} = '(' . join(', ', map { $_->{conflict} } @keys) . ")$predicate";
	}
	push @{ $case->{indexes} }, $index;
	return;
}

# Other access methods beside the B-trees.
sub add_other
{
	my ($case) = @_;
	my $name = 'i' . @{ $case->{indexes} };
	my $column = pick(@{ $case->{columns} });
	my ($type, $of) = ($column->{type}, $column->{name});
	if ($type eq 'int4range' && !$case->{partitioned} && chance(0.5))
	{
		push @{ $case->{indexes} }, { name => $name, unique => 0, deferrable => 0, exclusion => 1,
			statement => "ALTER TABLE SCHEMA.t ADD CONSTRAINT $name EXCLUDE USING gist ($of WITH &&)" };
		return;
	}
	my $using = $type eq 'int4range' ? "gist ($of)" : $type eq 'jsonb' || $type eq 'int4[]' ? "gin ($of)"
	  : $type =~ /^(int|float|date|time|uuid|numeric)/ ? pick("hash ($of)", "brin ($of)") : "hash ($of)";
	return if $type =~ /char|mood/ && $using =~ /brin/;
	push @{ $case->{indexes} }, { name => $name, unique => 0, deferrable => 0, statement => "CREATE INDEX $name ON SCHEMA.t USING $using" };
	return;
}

sub case_table
{
	my ($case) = @_;
	my @columns = @{ $case->{columns} };
	my @all = map { "$_->{name} $_->{type}" } { name => 'n', type => 'int4 NOT NULL' }, @columns;
	my @statements;
	my $fillfactor = chance(0.25) ? ' WITH (fillfactor = ' . pick(10, 40, 80) . ')' : '';
	my $list = join ', ', @all;
	if ($case->{partitioned})
	{
		my $hash = chance(0.5);
		push @statements, "CREATE TABLE SCHEMA.t ($list) PARTITION BY " . ($hash ? 'HASH' : 'RANGE') . ' (c0)';
		my @bounds = $hash ? map { "FOR VALUES WITH (MODULUS 2, REMAINDER $_)" } 0, 1 : ('FOR VALUES FROM (MINVALUE) TO (3)', 'DEFAULT');
		push @statements, "CREATE TABLE SCHEMA.p0 PARTITION OF SCHEMA.t $bounds[0]$fillfactor";
		# Its attributes have other numbers than the parent's.
		push @statements, 'CREATE TABLE SCHEMA.p1 (gone int, ' . join(', ', reverse @all) . ')',
		  'ALTER TABLE SCHEMA.p1 DROP gone', "ALTER TABLE SCHEMA.t ATTACH PARTITION SCHEMA.p1 $bounds[1]";
	}
	else
	{
		my $kind = chance(0.08) ? 'UNLOGGED ' : '';
		my $dropped = chance(0.3);
		splice @all, 1 + rand @all, 0, 'gone text' if $dropped;
		$list = join ', ', @all;
		push @statements, "CREATE ${kind}TABLE SCHEMA.t ($list)$fillfactor";
		push @statements, 'ALTER TABLE SCHEMA.t DROP gone' if $dropped;
	}
	return @statements;
}

sub add_constraint
{
	my ($index) = @_;
	return sprintf "INSERT INTO constraints VALUES (%s, %s, %s);\n", sql_string($index->{name}), sql_string($index->{statement}),
	  $index->{deferrable} ? 'true' : 'false';
}

sub both { return map { 'SELECT on_both(' . sql_string($_) . ");\n" } @_; }

# Dead entries, and entries of rows that were updated.
sub damage
{
	my ($case) = @_;
	my $column = pick(@{ $case->{columns} });
	my $set = pick('n = n', "$column->{name} = $column->{name}", "$column->{name} = (SELECT max($column->{name}::text)::"
		  . ($column->{type} =~ s/ COLLATE.*//r) . ' FROM SCHEMA.t)');
	$set = 'n = n' if $column->{name} eq 'c0' || $column->{type} =~ /bool|char|jsonb|mood/;
	my @statements = (
		'DELETE FROM SCHEMA.t WHERE n % ' . pick(1, 2, 3, 7) . ' = 0',
		"UPDATE SCHEMA.t SET $set WHERE n % " . pick(1, 3, 17) . ' = ' . pick(0, 1));
	my @chosen = grep { chance(0.5) } @statements;
	my @sql = both(@chosen);
	push @sql, "VACUUM ours.t;\n" if chance(0.15);
	# Searches mark entries that they find dead.
	push @sql, "SELECT faults('ours.t');\n" if chance(0.2) && !$case->{partitioned};
	return @sql;
}

sub batch_sql
{
	my ($case, $function, $first, $count, @arguments) = @_;
	my $format = pick('text', 'csv');
	my @order = ('n', map { $_->{name} } @{ $case->{columns} });
	@order = reverse @order if chance(0.2);
	my $content = rows_file($case, $format, $first, $count, @order);
	my $names = join ', ', @order;
	return ($format, \@order, "SELECT $function(" . join(', ', @arguments, "\$content\$$content\$content\$", "'FORMAT $format'", "'$names'"));
}

sub load_options
{
	my ($case, $format, $order) = @_;
	my %options = (format => $format, columns => $order, writer => 'direct', workers => pick(0, 1, 2, 2, 3));
	$options{indexes} = pick(qw(auto insert merge merge merge merge rebuild rebuild));
	$options{lock} = 'share' if chance($options{indexes} eq 'insert' ? 0.2 : 0.8);
	$options{truncate} = 'true' if chance(0.1);
	$options{on_error} = 'table' if chance(0.3);
	my @arbiters = grep { $_->{unique} && !$_->{deferrable} } @{ $case->{indexes} };
	my $conflict = '';
	if (@arbiters && chance(0.75))
	{
		my $arbiter = pick(@arbiters);
		$options{on_duplicate} = pick('keep_old', 'keep_new');
		$options{conflict_index} = $arbiter->{name};
		$conflict = $arbiter->{conflict};
	}
	return ($conflict, \%options);
}

sub json
{
	my ($options) = @_;
	return '{' . join(', ', map {
		my $value = $options->{$_};
		"\"$_\": " . (ref $value ? '[' . join(', ', map { "\"$_\"" } @$value) . ']' : $value =~ /^(\d+|true|false)$/ ? $value : "\"$value\"");
	} sort keys %$options) . '}';
}

sub random_case
{
	my ($number) = @_;
	my $case = { indexes => [], keys => {}, native => chance(0.5), partitioned => chance(0.15) };
	$case->{columns} = [ case_columns($case) ];
	unshift @{ $case->{columns} }, { name => 'c0', type => 'int4', domain => pick(3, 300), nulls => 0 } if $case->{partitioned};
	$_->{type} eq 'positive' and $_->{domain} = pick(3, 300) for @{ $case->{columns} };
	my @sql = ("CALL begin_case();\n");
	my @table = case_table($case);
	add_index($case, chance(0.5)) for 1 .. 1 + rand 4;
	add_other($case) if chance(0.25);
	# Indexes that exist from the start, and indexes that are created on existing rows.
	my ($early, @late) = (chance(0.5));
	@late = grep { !$_->{unique} && !$_->{exclusion} && !$early } @{ $case->{indexes} };
	my %is_late = map { $_->{name} => 1 } @late;
	# Tables and loads into them in one transaction.
	my $whole = chance(0.12);
	my $create = join '', both(@table), map { ($_->{unique} || $_->{exclusion} ? add_constraint($_) : (), both($_->{statement})) }
	  grep { !$is_late{ $_->{name} } } @{ $case->{indexes} };
	my $big = chance(0.02);
	my $first = 1_000_000;
	my $some = sub { return 1 + int rand pick($big ? (4000, 12_000) : (4, 60, 400, 400)); };
	push @sql, "BEGIN;\n" if $whole;
	push @sql, $create;
	unless ($whole || chance(0.25))
	{
		my (undef, undef, $fill) = batch_sql($case, 'fill', 1000, $some->());
		push @sql, "$fill);\n", damage($case);
	}
	push @sql, both(map { $_->{statement} } @late);
	for my $batch (1 .. pick(1, 2, 2, 3, 4))
	{
		my $chunk_size = pick('64', '64', '256', '1kB', '256kB');
		my $memory = pick('64MB', '64MB', '1MB');
		push @sql, "SET pg_bulk.chunk_size = '$chunk_size'; SET maintenance_work_mem = '$memory';\n";
		my ($format, $order, $call) = batch_sql($case, 'batch', $first, $some->(), $first);
		my ($conflict, $options) = load_options($case, $format, $order);
		my $nested = chance(0.3) ? 'true' : 'false';
		my $load = "$call, " . sql_string($conflict) . ', ' . sql_string(json($options)) . ", $nested);\n";
		# A load that is rolled back, and a load of a table that another session reads.
		my $alone = !$whole || $batch > 1;
		if ($alone && chance(0.08))
		{
			$load = "BEGIN;\n${load}ROLLBACK;\nSELECT differences('rolled back');\nSELECT faults(leaf) FROM leaves() leaf;\n";
		}
		elsif ($alone && !$options->{truncate} && chance(0.06))
		{
			$load = "BEGIN;\nDECLARE c CURSOR FOR SELECT FROM ours.t ORDER BY $case->{columns}[0]{name};\nMOVE c;\n${load}COMMIT;\n";
		}
		push @sql, $load;
		push @sql, "COMMIT;\n" if $whole && $batch == 1;
		push @sql, damage($case) if chance(0.5);
		$first += 1_000_000;
	}
	push @sql, "CALL end_case($number);\n";
	return join '', @sql;
}

1;
