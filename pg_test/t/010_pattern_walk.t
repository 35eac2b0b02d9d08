
# During the search for a pattern or directory, interrupts are served at each step. Entries that cannot be
# read or compared are an error.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";

use Test::More;
use File::Spec::Functions qw(rel2abs);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use Differential qw(install_wrapper start_server write_bytes);
use Points qw(point_set point_clear);

my $node = start_server('walk');
install_wrapper($node, 'postgres');
my $directory = rel2abs(PostgreSQL::Test::Utils::tempdir('walk'));
chmod 0755, $directory;
mkdir "$directory/many";
write_bytes("$directory/many/$_.csv", "$_\n") for 1 .. 200;
mkdir "$directory/$_" for 'closed', 'among', 'among/closed';
$node->safe_psql('postgres', <<SQL);
CREATE TABLE t (a int);
CREATE FOREIGN TABLE f (a int) SERVER bulk_files OPTIONS (filename '$directory/many/*.csv', format 'csv');
SQL

# The outcome of loading a name.
sub outcome
{
	my ($name) = @_;
	my ($status, $out, $err) = $node->psql('postgres', "SELECT rows_loaded FROM bulk_load('$directory/$name', 't', '{\"format\": \"csv\"}')");
	$err =~ s/^psql:<stdin>:\d+: //mg;
	$err =~ s/\Q$directory/DIRECTORY/g;
	return $status == 0 ? $out : $err;
}

is(outcome('many/*.csv'), '200', 'a pattern');
is(outcome('many'), '200', 'a directory');

# A cancel request comes at the 101st step. The 150th step would fail: the search must not reach it.
for my $case ([ 'many/*.csv', 'pattern.entry', 'pattern.match', 22, qr/could not compare "\d+\.csv" with the pattern "\*\.csv"/ ],
	[ '**/*.csv', 'pattern.entry', 'pattern.read', 5, qr{could not open directory "DIRECTORY/many": Input/output error} ],
	[ 'many/*.csv', 'pattern.entry', 'pattern.read', 5, qr{could not open directory "DIRECTORY/many": Input/output error} ],
	[ 'many', 'directory.entry', 'directory.read', 5, qr{could not open directory "DIRECTORY/many": Input/output error} ],
	[ 'many/*.csv', 'files.entry', 'files.stat', 5, qr{could not stat file "DIRECTORY/many/\d+\.csv": Input/output error} ],
	[ 'many', 'files.entry', 'files.stat', 5, qr{could not stat file "DIRECTORY/many/\d+\.csv": Input/output error} ])
{
	my ($name, $step, $call, $errno, $error) = @$case;
	point_set($node, $call, "errno=$errno after=150");
	like(outcome($name), qr/^ERROR:  $error/, "$name: an error at $call");
	point_set($node, $step, 'signal=2 after=100 once');
	like(outcome($name), qr/^ERROR:  canceling statement due to user request/, "$name: canceled at $step");
	point_clear($node, $_) for $call, $step;
}
point_set($node, 'pattern.match', 'errno=22');
like(($node->psql('postgres', 'SELECT count(*) FROM f'))[2], qr/could not compare/, 'a scan');
point_clear($node, 'pattern.match');
is($node->safe_psql('postgres', 'SELECT count(*) FROM f'), '200', '... and again');

# Directories that the server may not read.
chmod 0, "$directory/closed", "$directory/among/closed";
for my $name ('closed', 'closed/*', 'among/*/*.csv')
{
	like(outcome($name), qr{^ERROR:  could not open directory "DIRECTORY/[a-z/]*closed": Permission denied}, "$name: closed");
}
chmod 0755, "$directory/closed", "$directory/among/closed";

done_testing();
