
=pod

=head1 NAME

UserCode - loads during which a user's function does something to the target

=head1 SYNOPSIS

  my $matrix = UserCode->new($node);
  $matrix->add(place => 'where', action => 'delete undone', kind => 'plain', way => 'auto');
  $matrix->run;
  is($matrix->verdict($_), '', $_->{name}) for $matrix->cells;

=head1 DESCRIPTION

A cell is a I<place> where user code runs during a load, an I<action> of that
code, a I<kind> of table, a I<way> of loading and a I<file>. Each cell makes
schema C<m> anew, loads 1,000 rows and describes the resulting state: rows,
definitions, amcheck's messages, orphans, calls of the AFTER ROW trigger, notes
of the action, SQLSTATE. The user code acts once, at the row whose id is
FIRES_AT: row 1 to 100 are in the heap by then, in each way.

A cell has a I<label>. With C<unsafe>, the functions are wrongly labeled STABLE or
IMMUTABLE, and PARALLEL UNSAFE: the direct writer must leave
them to the server, and actions find rows by indexes. With C<restricted>, the
label PARALLEL RESTRICTED is wrong, too, and users must not set it: these cells
test how the direct writer copes with it. Actions find rows by
sequential scans there, since rows are in no index before the load's end.

The oracles are ways, too: C<copy> is COPY, C<select> the server's own INSERT of
the same rows. A cell must have the description of C<copy> or, if COPY has no
such place, that of C<select>. Actions with C<either> change the treatment of
later rows. The number of later rows depends on the number of rows that COPY
collects before it inserts them: there both descriptions are accepted.

All cells run in few psql sessions. A cell without a description hung
or crashed the server; the other cells run in another session.

=cut

package UserCode;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use File::Spec::Functions qw(rel2abs);
use JSON::PP ();
use Test::More;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(write_bytes);
use Restart qw(comes_back);

our @EXPORT_OK = qw(places actions ways kinds files is_possible gate_of has_label oracle_of);

use constant ROWS => 1000;
use constant FIRES_AT => 700;
# Cells in one session.
use constant SESSION => 200;

# The body of m.act(), which acts at its first call. It is VOLATILE; the functions that call it are not.
my $acts = 'PERFORM m.act()';
# Functions of a row's number that act at one number.
my $functions = <<"SQL";
CREATE FUNCTION m.f_bool(i int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN IF i = @{[FIRES_AT]} THEN $acts; END IF; RETURN true; END \$\$;
CREATE FUNCTION m.f_int(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN IF i = @{[FIRES_AT]} THEN $acts; END IF; RETURN i; END \$\$;
SQL
my $compare = <<"SQL";
CREATE FUNCTION m.f_cmp(a int, b int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN IF @{[FIRES_AT]} IN (a, b) THEN $acts; END IF; RETURN btint4cmp(a, b); END \$\$;
CREATE OPERATOR CLASS m.ops FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 m.f_cmp(int, int);
SQL

sub trigger
{
	my ($when, $level, $at) = @_;
	my $body = $at ? "IF NEW.id = " . FIRES_AT . " THEN $acts; END IF;" : "$acts;";
	my $result = $when eq 'BEFORE' && $level eq 'ROW' ? 'NEW' : 'NULL';
	return "CREATE FUNCTION m.f_trigger() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN $body RETURN $result; END \$\$;\n"
	  . "CREATE TRIGGER place $when INSERT ON m.t FOR EACH $level EXECUTE FUNCTION m.f_trigger();\n";
}

=pod

A place has

=over

=item before, after: SQL before and after CREATE TABLE

=item id: the type of column id; more: further columns; key: the partition key

=item where: the condition that calls the function, in each way that has conditions

=item options: of bulk_load

=item list: the SELECT list of INSERT ... SELECT

=item ways: the ways that have such a place, if not all

=item gate: C<kept out> if the function keeps rows out of the direct writer, C<let in> if it does not, C<by label> if it does unless it is
labeled PARALLEL SAFE or PARALLEL RESTRICTED

=item locked: the server calls the function while it holds a lock on a page of the index. A function that writes to this index waits for itself,
under COPY too, and an exception block releases the lock: few actions are possible

=back

=cut

my $all = 'id, p, d, note';
my %places = (
	'where' => { where => 'm.f_bool(id)', gate => 'by label' },
	'filter' => {
		after => 'CREATE FUNCTION m.f_filter(id int, p int, d date, note text) RETURNS m.t LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM m.f_bool(id); RETURN ROW(id, p, d, note)::m.t; END $$;',
		oracle => { where => 'm.f_bool(id)' }, options => { filter => 'm.f_filter', columns => undef }, ways => [qw(auto buffered direct)], gate => 'by label' },
	'query' => { list => 'm.f_int(id), p, d, note', oracle => { where => 'm.f_bool(id)' },
		options => { query => 'SELECT m.f_int(id), p, d, note FROM (SELECT id, p, d::date AS d, note FROM matrix.staging OFFSET 0) s' }, ways => [qw(auto buffered direct)], gate => 'by label' },
	'column expression' => { oracle => { where => 'm.f_bool(id)' },
		options => { columns => [ 'x', 'p', 'd', 'note', { name => 'id', expr => 'm.f_int(x::int)' } ] }, ways => [qw(auto buffered direct)], gate => 'by label' },
	'default' => {
		before => "CREATE SEQUENCE m.called; CREATE FUNCTION m.f_default() RETURNS int LANGUAGE plpgsql STABLE AS \$\$ BEGIN IF nextval('m.called') = @{[FIRES_AT]} THEN $acts; END IF; RETURN 1; END \$\$;",
		more => ', x int DEFAULT m.f_default()', gate => 'by label' },
	'generated column' => { more => ', x int GENERATED ALWAYS AS (m.f_int(id)) STORED', gate => 'by label' },
	'check' => { more => ', CHECK (m.f_bool(id))', gate => 'by label' },
	'domain' => { before => 'CREATE DOMAIN m.positive AS int CHECK (m.f_bool(VALUE));', id => 'm.positive', gate => 'by label' },
	'condition of a trigger' => { after => "CREATE FUNCTION m.f_trigger() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN RETURN NULL; END \$\$;
		CREATE TRIGGER place AFTER INSERT ON m.t FOR EACH ROW WHEN (m.f_bool(NEW.id)) EXECUTE FUNCTION m.f_trigger();", gate => 'kept out' },
	'before statement trigger' => { after => trigger('BEFORE', 'STATEMENT', 0), gate => 'let in' },
	'before row trigger' => { after => trigger('BEFORE', 'ROW', 1), gate => 'kept out' },
	'after row trigger' => { after => trigger('AFTER', 'ROW', 1), gate => 'let in' },
	'after statement trigger' => { after => trigger('AFTER', 'STATEMENT', 0), gate => 'let in' },
	'index expression' => { after => 'CREATE INDEX t_place ON m.t (m.f_int(id));', gate => 'by label' },
	'index predicate' => { after => 'CREATE INDEX t_place ON m.t (p) WHERE m.f_bool(id);', gate => 'by label' },
	'operator class of a B-tree' => { locked => 1, before => $compare, after => 'CREATE INDEX t_place ON m.t (id m.ops);', gate => 'by label' },
	'operator class of a hash index' => {
		before => "CREATE FUNCTION m.f_hash(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN IF i = @{[FIRES_AT]} THEN $acts; END IF; RETURN hashint4(i); END \$\$;
			CREATE OPERATOR CLASS m.hash_ops FOR TYPE int USING hash AS OPERATOR 1 =, FUNCTION 1 m.f_hash(int);",
		after => 'CREATE INDEX t_place ON m.t USING hash (id m.hash_ops);', gate => 'by label' },
	'exclusion constraint' => { locked => 1,
		before => "CREATE FUNCTION m.f_equal(a int, b int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN IF @{[FIRES_AT]} IN (a, b) THEN $acts; END IF; RETURN a = b; END \$\$;
			CREATE OPERATOR m.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = m.f_equal, COMMUTATOR = OPERATOR(m.===));
			CREATE OPERATOR CLASS m.equal_ops FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 m.===, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 btint4cmp(int, int);",
		after => 'ALTER TABLE m.t ADD CONSTRAINT place EXCLUDE USING btree (id m.equal_ops WITH OPERATOR(m.===));', kinds => [qw(plain empty)], gate => 'by label' },
	'partition key' => { key => '(m.f_int(id))', kinds => ['parts'], gate => 'by label' },
	'operator class of a partition key' => { before => $compare, key => 'id m.ops', kinds => ['parts'], gate => 'by label' },
	'cast' => {
		before => 'CREATE TYPE m.wrapped AS (id int); CREATE FUNCTION m.f_cast(w m.wrapped) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN m.f_int((w).id); END $$; CREATE CAST (m.wrapped AS int) WITH FUNCTION m.f_cast(m.wrapped) AS ASSIGNMENT;',
		oracle => { where => 'm.f_bool(id)' }, list => 'ROW(id)::m.wrapped, p, d, note',
		options => { columns => [ 'x', 'p', 'd', 'note', { name => 'id', expr => 'ROW(x::int)::m.wrapped' } ] }, ways => [qw(auto buffered direct insert)], gate => 'by label' },
	'select list' => { oracle => { where => 'm.f_bool(id)' }, list => 'm.f_int(id), p, d, note', ways => ['insert', 'ctas'], gate => 'by label' },
	# Because of its domain the server reads all fields one by one; the input function of a range compares its bounds.
	'input of a field' => { before => "$compare CREATE TYPE m.span AS RANGE (subtype = int, subtype_opclass = m.ops);", more => ', x m.span', file => 'spans', gate => 'by label' },
	'operator of a foreign key' => {
		before => "CREATE SEQUENCE m.called; CREATE FUNCTION m.f_equal(a int, b int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN IF nextval('m.called') = @{[FIRES_AT]} THEN $acts; END IF; RETURN a = b; END \$\$;
			CREATE OPERATOR m.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = m.f_equal, COMMUTATOR = OPERATOR(m.===));
			CREATE OPERATOR CLASS m.equal_ops FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 m.===, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 btint4cmp(int, int);
			CREATE TABLE m.other_parent (id int NOT NULL); CREATE UNIQUE INDEX ON m.other_parent (id m.equal_ops); INSERT INTO m.other_parent SELECT generate_series(1, 10); ANALYZE m.other_parent;",
		after => 'ALTER TABLE m.t ADD CONSTRAINT place FOREIGN KEY (p) REFERENCES m.other_parent (id);', gate => 'let in' },
);

=pod

An action is SQL of PL/pgSQL. C<< <table> >> stands for its table: the
target, or one of two leaves. The first leaf has rows of the load by then,
and the second one gets its first row later.

=cut

my %actions = (
	'nothing' => 'NULL;',
	'delete undone' => "BEGIN DELETE FROM m.t; RAISE EXCEPTION 'undo'; EXCEPTION WHEN raise_exception THEN NULL; END;",
	'delete kept' => 'DELETE FROM m.t WHERE id <= 100;',
	'delete undone, then kept' => "BEGIN DELETE FROM m.t; RAISE EXCEPTION 'undo'; EXCEPTION WHEN raise_exception THEN NULL; END; DELETE FROM m.t WHERE id <= 50;",
	'update undone' => "BEGIN UPDATE m.t SET note = note || '!'; RAISE EXCEPTION 'undo'; EXCEPTION WHEN raise_exception THEN NULL; END;",
	'update kept' => "UPDATE m.t SET note = note || '!' WHERE id <= 100;",
	'update of keys undone' => "BEGIN UPDATE m.t SET id = id - 100000, p = 11 - p WHERE id <= 100; RAISE EXCEPTION 'undo'; EXCEPTION WHEN raise_exception THEN NULL; END;",
	'update of keys kept' => 'UPDATE m.t SET id = id - 100000, p = 11 - p WHERE id <= 100;',
	'insert undone' => "BEGIN INSERT INTO m.t ($all) VALUES (100001, 1, '2024-01-01', 'x'), (-100001, 2, '2024-01-01', 'x'); RAISE EXCEPTION 'undo'; EXCEPTION WHEN raise_exception THEN NULL; END;",
	'insert kept' => "INSERT INTO m.t ($all) VALUES (100001, 1, '2024-01-01', 'x'), (-100001, 2, '2024-01-01', 'x');",
	'insert of an orphan' => "INSERT INTO m.t ($all) VALUES (100001, 99, '2024-01-01', 'x');",
	'insert of a later key' => "INSERT INTO m.t ($all) VALUES (950, 1, '2024-01-01', 'x');",
	'lock kept' => 'PERFORM FROM m.t WHERE id <= 100 FOR UPDATE;',
	'lock undone' => "BEGIN PERFORM FROM m.t FOR UPDATE; RAISE EXCEPTION 'undo'; EXCEPTION WHEN raise_exception THEN NULL; END;",
	'lock of another strength' => 'PERFORM FROM m.t WHERE id <= 100 FOR KEY SHARE; BEGIN PERFORM FROM m.t WHERE id <= 100 FOR UPDATE; END;',
	'delete of parents undone' => "BEGIN DELETE FROM m.parent WHERE id = 10; RAISE EXCEPTION 'undo'; EXCEPTION WHEN OTHERS THEN NULL; END;",
	'subtransactions' => "FOR i IN 1 .. 100 LOOP BEGIN INSERT INTO m.log VALUES ('sub'); PERFORM 1 / (i % 2); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP;",
	'error' => "RAISE EXCEPTION USING ERRCODE = 'UC001';",
	'truncate' => 'TRUNCATE <table>;',
	'truncate undone' => "BEGIN TRUNCATE <table>; RAISE EXCEPTION 'undo'; EXCEPTION WHEN raise_exception THEN NULL; END;",
	'reindex table' => 'REINDEX TABLE <table>;',
	'reindex index' => 'REINDEX INDEX <index>;',
	'cluster' => 'CLUSTER <table> USING <name>;',
	'create index' => 'CREATE INDEX made ON <table> (p);',
	'drop index' => 'DROP INDEX <index>;',
	'add column' => "ALTER TABLE m.t ADD y int DEFAULT 7;",
	'drop column' => 'ALTER TABLE m.t DROP note;',
	'change type' => 'ALTER TABLE m.t ALTER note TYPE varchar(10);',
	'add check' => 'ALTER TABLE <table> ADD CONSTRAINT made CHECK (id < 800);',
	'add check not valid' => 'ALTER TABLE <table> ADD CONSTRAINT made CHECK (id < 800) NOT VALID;',
	'add foreign key' => 'ALTER TABLE <table> ADD CONSTRAINT made FOREIGN KEY (p) REFERENCES m.parent;',
	'drop foreign key' => 'ALTER TABLE m.t DROP CONSTRAINT t_p_fkey;',
	'disable triggers' => 'ALTER TABLE <table> DISABLE TRIGGER USER;',
	'set unlogged' => 'ALTER TABLE <table> SET UNLOGGED;',
	'set fillfactor' => 'ALTER TABLE <table> SET (fillfactor = 20);',
	'rename' => 'ALTER TABLE m.t RENAME TO renamed;',
	'drop table' => 'DROP TABLE <table>;',
	'attach partition' => { sql => "CREATE TABLE m.t_4 (LIKE m.t); ALTER TABLE m.t ATTACH PARTITION m.t_4 FOR VALUES FROM (5000) TO (6000);", kinds => ['parts'] },
	'detach partition' => { sql => 'ALTER TABLE m.t DETACH PARTITION <table>;', kinds => [ 'first leaf', 'later leaf' ] },
	'create partition' => { sql => 'CREATE TABLE m.t_4 PARTITION OF m.t FOR VALUES FROM (5000) TO (6000);', kinds => ['parts'] },
	'create trigger' => { sql => 'CREATE TRIGGER made AFTER INSERT ON <table> FOR EACH ROW EXECUTE FUNCTION m.fire();', either => 1 },
	'create before trigger' => { sql => 'CREATE TRIGGER made BEFORE INSERT ON <table> FOR EACH ROW EXECUTE FUNCTION m.skip();', either => 1, refused => 55000 },
	'create rule' => 'CREATE RULE made AS ON INSERT TO m.t DO INSTEAD NOTHING;',
	'create policy' => 'ALTER TABLE m.t ENABLE ROW LEVEL SECURITY; CREATE POLICY made ON m.t WITH CHECK (false);',
	'load into the table' => '<load>;',
	'load into the table undone' => "BEGIN <load>; RAISE EXCEPTION 'undo'; EXCEPTION WHEN raise_exception THEN NULL; END;",
	'constraints immediate' => 'SET CONSTRAINTS ALL IMMEDIATE;',
	'constraints deferred' => 'SET CONSTRAINTS ALL DEFERRED;',
	'constraints deferred undone' => "BEGIN SET CONSTRAINTS ALL DEFERRED; RAISE EXCEPTION 'undo'; EXCEPTION WHEN raise_exception THEN NULL; END;",
	'set datestyle' => { sql => "PERFORM set_config('datestyle', 'ISO, DMY', false);", either => 1 },
	'set datestyle undone' => "BEGIN PERFORM set_config('datestyle', 'ISO, DMY', false); RAISE EXCEPTION 'undo'; EXCEPTION WHEN raise_exception THEN NULL; END;",
	'set other settings' => "PERFORM set_config('search_path', 'pg_catalog', false), set_config('pg_bulk.direct_insert', 'off', false), set_config('pg_bulk.memory_limit', '2MB', false), set_config('pg_bulk.workers', '3', false), set_config('maintenance_work_mem', '1MB', false), set_config('row_security', 'off', false);",
	'set replication role' => { sql => "PERFORM set_config('session_replication_role', 'replica', false);", either => 1, refused => 55000 },
);
for my $action (values %actions)
{
	$action = { sql => $action } unless ref $action;
}

my @kinds = ('plain', 'empty', 'parts', 'first leaf', 'later leaf');
my @ways = ('auto', 'buffered', 'direct', 'job', 'insert', 'takeover', 'ctas');
my @files = ('good', 'orphans', 'late parents');

sub places { return sort keys %places; }
sub actions { return sort keys %actions; }
sub kinds { return @kinds; }
sub ways { return @ways; }
sub files { return @files; }
sub gate_of { return $places{ $_[0] }{gate}; }
# Whether the label of a place's functions decides.
sub has_label { return gate_of($_[0]) eq 'by label'; }
sub is_kept_out { my ($cell) = @_; return gate_of($cell->{place}) eq 'kept out' || has_label($cell->{place}) && $cell->{label} eq 'unsafe'; }
sub is_parts { return $_[0] !~ /^(?:plain|empty)$/; }
sub is_among { my ($one, $list) = @_; return !defined $list || grep { $_ eq $one } @$list; }

# Whether there is such a cell.
sub is_possible
{
	my (%cell) = @_;
	my ($place, $action, $kind, $way, $file) = ($places{ $cell{place} }, $actions{ $cell{action} }, @cell{ 'kind', 'way', 'file' });
	my @ways = $place->{ways} ? @{ $place->{ways} } : ('auto', 'buffered', 'direct', 'insert', 'takeover', $cell{place} eq 'where' ? 'ctas' : ());
	push @ways, 'job' if grep { $_ eq 'auto' } @ways;
	return 0 unless grep { $_ eq $way } @ways;
	return 0 unless is_among($kind, $action->{kinds}) && is_among(is_parts($kind) ? 'parts' : $kind, $place->{kinds});
	return 0 if $place->{locked} && $cell{action} !~ /^(?:nothing|error|set datestyle|set other settings)$/;
	return 0 if $kind =~ /leaf/ && $action->{sql} !~ /<(?:table|index)>/;
	# COPY opens a leaf when its first row comes, and sees the new trigger.
	# The load holds the leaf open. So do COPY and INSERT with the first leaf.
	return 0 if $kind eq 'later leaf' && $cell{action} =~ /^create .*trigger$/;
	# A scan converts some fields of a record after a condition has let it pass, under the settings of that time.
	return 0 if $cell{action} eq 'set datestyle' && $way =~ /insert|ctas/ && $place->{ways} || $way eq 'ctas' && $cell{action} eq 'set datestyle';
	# The statement creates the table.
	return 0 if $way eq 'ctas' && ($kind ne 'empty' || $file ne 'good');
	return 0 if $way eq 'job' && $file eq 'late parents';
	return 0 if defined $place->{file} && ($file ne 'good' || $way eq 'insert');
	# Files that violate a foreign key are combined with actions on rows, locks and constraints only.
	return 0 if $file ne 'good' && ($cell{action} !~ /^(?:nothing|delete|update|insert|lock|constraints|load|truncate)/ || $kind =~ /empty|leaf/);
	return 1;
}

# The way whose outcome is expected.
sub oracle_of
{
	my (%cell) = @_;
	return $cell{way} if $cell{way} =~ /^(?:copy|select|select ctas)$/;
	return 'select ctas' if $cell{way} eq 'ctas';
	return $cell{way} eq 'insert' ? 'select' : 'copy';
}

# Settings for the label C<restricted>. The number of the load's rows that a non-VOLATILE function sees depends on chance: COPY has
# collected some, and the direct writer has pages that are not appended. But both have these rows in the heap, if not in the indexes.
sub settings { return (enable_indexscan => 'off', enable_bitmapscan => 'off', enable_indexonlyscan => 'off'); }

sub new
{
	my ($class, $node) = @_;
	my $self = bless { node => $node, directory => rel2abs(PostgreSQL::Test::Utils::tempdir('user_code')), runs => {}, order => [], cells => [] }, $class;
	chmod 0755, $self->{directory};
	my $long = 'x' x 170;
	my $row = sub { my ($id, $p) = @_; return sprintf "%d,%d,%02d/%02d/2024,%d %s", $id, $p // $id % 10 + 1, $id % 12 + 1, $id % 11 + 1, $id, $long; };
	write_bytes("$self->{directory}/good", join '', map { $row->($_) . "\n" } 1 .. ROWS);
	write_bytes("$self->{directory}/orphans", join '', map { $row->($_, $_ == 50 || $_ == 720 ? 99 : undef) . "\n" } 1 .. ROWS);
	write_bytes("$self->{directory}/spans", join '', map { $row->($_) . ",\"[1,$_]\"\n" } 1 .. ROWS);
	write_bytes("$self->{directory}/nested", join '', map { $row->($_) . "\n" } 200_001 .. 200_003);
	$node->safe_psql('postgres', slurp_file("$ENV{PG_ABS_SRCDIR}/perl/user_code.sql"));
	for my $file ('good', 'orphans')
	{
		$node->safe_psql('postgres', "CREATE TABLE matrix.$file (id int, p int, d text, note text); COPY matrix.$file FROM '$self->{directory}/$file' (FORMAT csv)");
	}
	$node->safe_psql('postgres', 'ALTER TABLE matrix.good RENAME TO staging; ANALYZE matrix.staging, matrix.orphans');
	return $self;
}

# Adds the cell, its oracles, and those cells that these need.
sub add
{
	my ($self, %cell) = @_;
	$cell{file} //= 'good';
	$cell{label} //= 'unsafe';
	die join ' ', %cell unless is_possible(%cell);
	push @{ $self->{cells} }, \%cell;
	$self->add_run(%cell);
	$self->add_run(%cell, way => $_) for $self->oracles(\%cell);
	$self->add_run(%$_) for refused_of(\%cell);
	$cell{name} = join ', ', @cell{ 'place', 'action', 'kind', 'way', 'file', 'label' }, defined $cell{workers} ? "$cell{workers} workers" : ();
	return;
}

sub cells { return @{ $_[0]{cells} }; }

# The ways whose outcomes are accepted.
sub oracles
{
	my ($self, $cell) = @_;
	my $first = oracle_of(%$cell);
	# COPY opens the indexes before such a trigger runs, INSERT at the first row.
	# COPY opens leaves when the first row has come, or when it inserts its collected rows.
	my $is_early = $cell->{kind} eq 'later leaf' || $cell->{place} eq 'before statement trigger' && $cell->{action} =~ /index|^reindex/;
	return $first eq 'select ctas' ? ($first) : $actions{ $cell->{action} }{either} || $is_early ? ('copy', 'select') : ($first);
}

# The load opens a leaf before COPY would, so the server refuses
# changes to it. Then the outcome is as without the change.
sub refused_of
{
	my ($cell) = @_;
	return $cell->{kind} eq 'later leaf' ? ({ %$cell, action => 'nothing', kind => 'parts', way => oracle_of(%$cell) }) : ();
}

sub key_of
{
	my ($cell) = @_;
	my $is_oracle = $cell->{way} =~ /^(?:copy|select)/;
	return join '|', @$cell{ 'place', 'action', 'kind', 'way', 'file', 'label' }, $is_oracle ? '' : $cell->{workers} // '';
}

sub add_run
{
	my ($self, %cell) = @_;
	my $key = key_of(\%cell);
	return if $self->{runs}{$key};
	$self->{runs}{$key} = { cell => \%cell };
	push @{ $self->{order} }, $key;
	return;
}

sub quoted { my ($text) = @_; $text =~ s/'/''/g; return "'$text'"; }

# The SQL of a cell.
sub script_of
{
	my ($self, $cell) = @_;
	my ($place, $action) = ($places{ $cell->{place} }, $actions{ $cell->{action} });
	my ($kind, $way, $file) = @$cell{ 'kind', 'way', 'file' };
	my $is_oracle = $way =~ /^(?:copy|select)/;
	my $parts = is_parts($kind);
	my $leaf = $kind eq 'first leaf' ? '_1' : $kind eq 'later leaf' ? '_3' : '';
	my $nested = $is_oracle ? "COPY m.t ($all) FROM '$self->{directory}/nested' (FORMAT csv)"
	  : "PERFORM public.bulk_load('$self->{directory}/nested', 'm.t', '{\"format\": \"csv\", \"columns\": [\"id\", \"p\", \"d\", \"note\"]}')";
	my $index = $leaf ? "t${leaf}_id_idx" : 't_id';
	my $body = $action->{sql} =~ s/<table>/m.t$leaf/gr =~ s/<index>/m.$index/gr =~ s/<name>/$index/gr =~ s/<load>/$nested/gr;
	# A failing statement is recorded; otherwise it ends the load.
	my $noted = $cell->{action} eq 'error' || $cell->{raises} ? $body : "BEGIN $body EXCEPTION WHEN OTHERS THEN INSERT INTO m.log VALUES (SQLSTATE); END;";
	my $key = $parts ? $place->{key} // 'id' : undef;
	my ($id, $more) = ($place->{id} // 'int', $place->{more} // '');
	my $with = 'WITH (fillfactor = 50)';
	my $unique = $parts && $place->{key} ? '' : 'UNIQUE';
	my $is_new = $way =~ /ctas/;
	my $script = "CREATE SCHEMA m; CREATE TABLE m.log (note text); CREATE SEQUENCE m.acted; CREATE SEQUENCE m.fired;\n"
	  . "CREATE TABLE m.parent (id int PRIMARY KEY); INSERT INTO m.parent SELECT generate_series(1, 11);\n"
	  . "CREATE FUNCTION m.act() RETURNS void LANGUAGE plpgsql AS \$act\$ BEGIN IF nextval('m.acted') > 1 THEN RETURN; END IF; $noted INSERT INTO m.log VALUES ('acted'); END \$act\$;\n"
	  . "CREATE FUNCTION m.fire() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN PERFORM nextval('m.fired'); RETURN NULL; END \$\$;\n"
	  . "CREATE FUNCTION m.skip() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN PERFORM nextval('m.fired'); IF NEW.id % 2 = 0 THEN RETURN NULL; END IF; RETURN NEW; END \$\$;\n"
	  . "$functions " . ($place->{before} // '') . "\n";
	if (!$is_new)
	{
		$script .= "CREATE TABLE m.t (id $id NOT NULL, p int, d date, note text$more)" . ($key ? " PARTITION BY RANGE ($key)" : " $with") . ";\n";
		$script .= "CREATE TABLE m.t_1 PARTITION OF m.t FOR VALUES FROM (MINVALUE) TO (500) $with; CREATE TABLE m.t_2 PARTITION OF m.t FOR VALUES FROM (500) TO (900) $with;\n"
		  . "CREATE TABLE m.t_3 PARTITION OF m.t FOR VALUES FROM (900) TO (5000) $with; CREATE TABLE m.t_9 PARTITION OF m.t FOR VALUES FROM (6000) TO (MAXVALUE) $with;\n" if $parts;
		my $old = $more =~ /DEFAULT/ ? ', x' : '';
		my $values = $old ? ', 0' : '';
		$script .= "INSERT INTO m.t ($all$old) SELECT i, 1, '2024-01-01', 'old'$values FROM generate_series(-20, -1) i;\n" if $kind ne 'empty';
		$script .= "INSERT INTO m.t ($all$old) SELECT i, 1, '2024-01-01', 'old'$values FROM unnest('{1001,6001}'::int[]) i;\n" if $parts;
		$script .= "CREATE $unique INDEX t_id ON m.t (id); CREATE INDEX t_p ON m.t ((p + 0)); ALTER TABLE m.t ADD FOREIGN KEY (p) REFERENCES m.parent DEFERRABLE;\n"
		  . "CREATE TRIGGER after_row AFTER INSERT ON m.t FOR EACH ROW EXECUTE FUNCTION m.fire();\n";
	}
	$script .= ($place->{after} // '') . "\n";
	if (has_label($cell->{place}))
	{
		$script =~ s/\b(IMMUTABLE|STABLE) AS\b/$1 PARALLEL \U$cell->{label}\E AS/g;
		$script .= "SET enable_seqscan = off; SET enable_indexscan = on; SET enable_bitmapscan = on;\n" if $cell->{label} eq 'unsafe';
	}
	$script .= "SET pg_bulk.workers = $cell->{workers};\n" if defined $cell->{workers};
	my $staging = 'matrix.' . ($file eq 'good' ? 'staging' : 'orphans');
	my $path = "$self->{directory}/" . ($place->{file} // ($file eq 'good' ? 'good' : 'orphans'));
	my $of_place = $is_oracle ? { %$place, %{ $place->{oracle} // {} } } : $place;
	my $where = $of_place->{where} ? " WHERE $of_place->{where}" : '';
	my $columns = $place->{file} ? "$all, x" : $all;
	my $statement;
	if ($way eq 'copy' || $way eq 'takeover')
	{
		$script .= "SET pg_bulk.copy = on; SET pg_bulk.copy_min_size = 0;\n" if $way eq 'takeover';
		$statement = "COPY m.t ($columns) FROM '$path' (FORMAT csv)$where";
	}
	elsif ($way =~ /^(?:select|insert|select ctas|ctas)$/)
	{
		my $source = $staging;
		my $list = $place->{list} // $all;
		if (!$is_oracle)
		{
			$source = 'm.f';
			$script .= "CREATE FOREIGN TABLE m.f (id int, p int, d date, note text) SERVER bulk_files OPTIONS (filename '$path', format 'csv');\n";
		}
		else
		{
			# A scan converts all fields of a record before it evaluates expressions over them.
			$source = "(SELECT id, p, d::date AS d, note FROM $staging OFFSET 0) s";
		}
		$list .= ", format('[1,%s]', id)::m.span" if $place->{file};
		# An oracle whose list does not call the function calls it in a condition.
		my $condition = $place->{list} ? $place->{where} : $of_place->{where};
		$where = $condition ? " WHERE $condition" : '';
		$statement = $is_new ? "CREATE TABLE m.t AS SELECT $list FROM $source$where" : "INSERT INTO m.t ($columns) SELECT $list FROM $source$where";
	}
	else
	{
		my %options = (format => 'csv', columns => [ split /, /, $columns ], $way eq 'job' ? () : (writer => $way), defined $cell->{workers} ? (workers => $cell->{workers}) : (), $place->{where} ? (where => $place->{where}) : (), %{ $place->{options} // {} });
		delete $options{columns} unless defined $options{columns};
		delete $options{format} if $options{query};
		$options{query} =~ s/matrix\.staging/$staging/ if $options{query};
		my $arguments = join ', ', $options{query} ? 'NULL' : quoted($path), "'m.t'", quoted(JSON::PP->new->canonical->encode(\%options));
		$statement = "SELECT 'writer', writer, array_to_string(notes, ' ') FROM bulk_load($arguments)";
		if ($way eq 'job')
		{
			return "$script\\echo LOADS\nSELECT bulk_enqueue($arguments) AS job \\gset\nSELECT bulk_wait(:job, '60s') AS status \\gset\n"
			  . "SELECT coalesce(error_sqlstate, '00000') AS state, coalesce(error_message, '') AS message FROM bulk_jobs WHERE job_id = :job \\gset\n"
			  . "\\echo STATE :state\n\\echo MESSAGE :message\nRESET ALL;\nSELECT matrix.outcome();\nDROP SCHEMA m CASCADE;\n";
		}
	}
	if ($file eq 'late parents')
	{
		$statement = "BEGIN;\n$statement;\n\\echo STATE :SQLSTATE\nINSERT INTO m.parent VALUES (99);\nCOMMIT";
	}
	return "$script\\echo LOADS\n$statement;\n\\echo STATE :SQLSTATE\n\\echo MESSAGE :LAST_ERROR_MESSAGE\nRESET ALL;\nSELECT matrix.outcome();\nDROP SCHEMA m CASCADE;\n";
}

# Runs all cells that have not run yet.
sub run
{
	my ($self) = @_;
	my @all = grep { !defined $self->{runs}{$_}{outcome} } @{ $self->{order} };
	while (my @left = splice @all, 0, SESSION)
	{
		$self->run_some(@left);
		note scalar(@all), ' are left';
	}
	return;
}

sub run_some
{
	my ($self, @left) = @_;
	my $node = $self->{node};
	while (@left)
	{
		my ($stdout, $stderr) = ('', '');
		my $script = "\\set VERBOSITY verbose\n\\unset LAST_ERROR_MESSAGE\n";
		$script .= "\\echo CELL $_\n\\warn CELL $_\n" . $self->script_of($self->{runs}{ $left[$_] }{cell}) . "\\echo END $_\n" for 0 .. $#left;
		$node->psql('postgres', $script, stdout => \$stdout, stderr => \$stderr, on_error_stop => 0, timeout => 3000);
		my (%said, $number);
		for (split /^/, $stderr) { if (/^(?:psql:.*?: )?CELL (\d+)$/) { $number = $1; } elsif (defined $number) { $said{$number} .= $_; } }
		my $began = -1;
		my $is_loaded;
		for (split /^/, $stdout)
		{
			my $run = $began >= 0 ? $self->{runs}{ $left[$began] } : undef;
			if (/^CELL (\d+)$/) { ($began, $is_loaded) = ($1, 0); }
			elsif (/^LOADS$/) { $is_loaded = 1; }
			elsif (/^END \d+$/)
			{
				$run->{outcome} = delete $run->{so_far} // '';
				# The triggers that had fired before one of them failed depend on the order in which processes append.
				$run->{outcome} =~ s/^fired.*\n//m if $run->{outcome} !~ /\ASTATE 00000$/m;
				$run->{said} = $said{$began} // '';
			}
			elsif (/^writer\|(\w+)\|(.*)$/) { @$run{ 'writer', 'notes' } = ($1, $2); }
			elsif (/^MESSAGE (.*)$/) { $run->{message} = $1; }
			elsif ($is_loaded) { $run->{so_far} .= $_; }
		}
		last if $began == $#left && defined $self->{runs}{ $left[$began] }{outcome};
		my $at = $began < 0 ? 0 : $began;
		my $run = $self->{runs}{ $left[$at] };
		@$run{ 'outcome', 'said' } = ('the session ended', $said{$at} // $stderr) if !defined $run->{outcome};
		comes_back($node) or die 'the server does not come back';
		$node->safe_psql('postgres', 'DROP SCHEMA IF EXISTS m CASCADE');
		splice @left, 0, $at + 1;
	}
	return;
}

# The complaint about a cell, or an empty string.
sub verdict
{
	my ($self, $cell) = @_;
	my $run = $self->{runs}{ key_of($cell) };
	my @wrong;
	my @oracles = map { $self->{runs}{ key_of({ %$cell, way => $_ }) } } $self->oracles($cell);
	my $is_refused = $cell->{way} eq 'direct' && $run->{outcome} =~ /^STATE 0A000$/m;
	if ($is_refused)
	{
		push @wrong, 'the direct writer is refused' if !is_kept_out($cell);
	}
	# An error that says so is right, too, where the function should not have been let in.
	elsif ($actions{ $cell->{action} }{refused} && ($cell->{label} eq 'restricted' || !has_label($cell->{place})) && $run->{outcome} =~ /\ASTATE $actions{ $cell->{action} }{refused}$/m)
	{
		push @wrong, "a load that failed left rows: $run->{outcome}" unless $cell->{way} eq 'ctas' || $run->{outcome} =~ /^t: rows (?:0|20|22) /m;
	}
	elsif (!grep { $_ eq $run->{outcome} } (map { $_->{outcome} } @oracles), map { $self->{runs}{ key_of($_) }{outcome} =~ s/^log acted/log 55006 x 1, acted/mr } refused_of($cell))
	{
		push @wrong, "-- as is right:\n$oracles[0]{outcome}-- but:\n$run->{outcome}";
	}
	if (defined $run->{writer})
	{
		my $expected = is_kept_out($cell) || $cell->{way} eq 'buffered' ? 'buffered' : 'direct';
		push @wrong, "the writer is $run->{writer}" if $run->{writer} ne $expected;
		push @wrong, 'no note says why the writer is buffered' if $expected eq 'buffered' && $cell->{way} eq 'auto' && $run->{notes} eq '';
	}
	return join "\n", @wrong;
}

# The expected outcome of a cell.
sub oracle { my ($self, $cell) = @_; return $self->{runs}{ key_of({ %$cell, way => oracle_of(%$cell) }) }{outcome}; }
# The outcomes of the oracles.
sub oracles_run { my ($self) = @_; return grep { $_->{cell}{way} =~ /^(?:copy|select)/ } values %{ $self->{runs} }; }
sub said_of { my ($self, $cell) = @_; return $self->{runs}{ key_of($cell) }{said}; }

1;
