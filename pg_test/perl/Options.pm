
=pod

=head1 NAME

Options - columns and COPY's options as SQL spells them

=head1 DESCRIPTION

Options are a hash from COPY's names to values; force_null and force_not_null
name a list of columns. COPY, CREATE FOREIGN TABLE and bulk_load write them differently. The
output is ASCII for any input bytes, so that the encoding of the session
that sends it does not matter.

=cut

package Options;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

our @EXPORT_OK = qw(sql_string text_columns column_name copy_options scan_options scan_columns load_options);

# An E'' literal of bytes; the statement around it stays ASCII.
sub sql_string
{
	my ($bytes) = @_;
	$bytes =~ s/([\\'])/\\$1/g;
	$bytes =~ s/([^\x20-\x7e])/sprintf('\\x%02x', ord($1))/ge;
	return "E'$bytes'";
}

# n columns a, b, c ... (c27 and on) of type text
sub text_columns
{
	my ($n) = @_;
	return [ map { ($_ <= 26 ? chr(96 + $_) : "c$_") . ' text' } 1 .. $n ];
}

sub column_name { return $_[0] =~ /^("[^"]+"|\S+)/ ? $1 : die "column: $_[0]"; }

# Options in COPY's syntax, and in that of a foreign table, where the columns
# that force_null and force_not_null list have the option themselves.
sub copy_options
{
	my ($options) = @_;
	my @list;
	for my $name (sort keys %$options)
	{
		my $value = $options->{$name};
		push @list, ref $value ? "$name (" . join(', ', @$value) . ')' : "$name " . sql_string($value);
	}
	return @list ? '(' . join(', ', @list) . ')' : "(format 'text')";
}

sub scan_options
{
	my ($path, $options) = @_;
	return '('
	  . join(', ',
		'filename ' . sql_string($path),
		map { "$_ " . sql_string($options->{$_}) } grep { !ref $options->{$_} } sort keys %$options)
	  . ')';
}

sub scan_columns
{
	my ($columns, $options) = @_;
	my @list;
	for my $column (@$columns)
	{
		my $name = column_name($column);
		my @forced = grep { ref $options->{$_} && grep { $_ eq $name } @{ $options->{$_} } } sort keys %$options;
		push @list, $column . (@forced ? ' OPTIONS (' . join(', ', map { "$_ 'true'" } @forced) . ')' : '');
	}
	return join(', ', @list);
}

# Options as an expression for the jsonb argument of bulk_load. A list becomes an array.
sub load_options
{
	my ($columns, $options) = @_;
	my @list = map { s/^"(.*)"$/$1/sr } map { column_name($_) } @$columns;
	my $array = sub { return 'to_jsonb(ARRAY[' . join(', ', map { sql_string(s/^"(.*)"$/$1/sr) } @_) . ']::text[])' };
	my @pairs = @list ? ("'columns', " . $array->(@list)) : ();
	for my $name (sort keys %$options)
	{
		my $value = $options->{$name};
		my $names = ref $value ? $value : $name =~ /^force/ && $value ne '*' ? [ split /, */, $value ] : undef;
		push @pairs, "'$name', " . ($names ? $array->(@$names) : sql_string($value) . '::text');
	}
	return 'jsonb_build_object(' . join(', ', @pairs) . ')';
}

1;
