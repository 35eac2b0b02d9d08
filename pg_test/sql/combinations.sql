--
-- Combinations of formats, filters, and the functions that refine field texts.
--
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS amcheck;
RESET client_min_messages;
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema combinations
\i :helpers
\set ECHO all
\pset tuples_only
\pset format unaligned
-- The rows that a load creates from bytes, or its error, and the rejects.
CREATE FUNCTION rows_of(target regclass, data bytea, options jsonb) RETURNS SETOF text LANGUAGE plpgsql SET client_min_messages = warning AS $$
DECLARE
	result record;
	con text;
	state text;
	message text;
BEGIN
	EXECUTE format('TRUNCATE %s', target);
	SELECT * INTO result FROM bulk_load(data, target, options);
	RETURN QUERY EXECUTE format('SELECT x::text FROM %s x', target);
	RETURN QUERY SELECT format('rejected: line %s, %s, %s', line_number, raw_line, r.message) FROM bulk_rejects r WHERE r.load_id = result.load_id ORDER BY line_number;
	RETURN QUERY SELECT 'corrupt: ' || v::text FROM public.verify_heapam(target) v;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, con = PG_EXCEPTION_CONTEXT;
	RETURN NEXT concat_ws(' | ', state, message, substring(con FROM '^COPY [^\n]*'));
END $$;
-- Arguments of a filter for which a record has no field get their defaults, also when field texts are refined.
CREATE TABLE pair (a text, b text);
CREATE FUNCTION called(a text, b text DEFAULT 'x') RETURNS pair LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN ROW(a, b)::pair; END $$;
CREATE FUNCTION taken(a text, b text DEFAULT 'x') RETURNS pair LANGUAGE sql IMMUTABLE AS 'SELECT a, b';
SELECT f, o, array_agg(r) FROM unnest('{called,taken}'::text[]) f, unnest('{"{}","{\"trim\": \"both\"}","{\"encoding_errors\": \"replace\"}","{\"null_if\": \"five\"}","{\"trim\": \"both\", \"writer\": \"buffered\"}"}'::jsonb[]) o,
	rows_of('pair', E'one , two\n3\nfour,five\n6\n', jsonb_build_object('format', 'csv', 'filter', f) || o) r GROUP BY f, o ORDER BY f, o;
-- Without quotes there are no escapes, with blanks around a field or without.
SELECT rows_of('pair', E' C:\\\\new , \\\\xff\nC:\\\\new,\\\\0\n', '{"format": "csv", "quote": "none", "trim": "both"}');
SELECT rows_of('pair', E' a\\\\tb ||\\\\N\n', '{"delimiter": "||", "trim": "both"}');
SELECT rows_of('pair', E' a | b |\nc|\nd|e\n', '{"format": "csv", "delimiter": "|", "trailing_delimiter": true, "trim": "both"}');
SELECT rows_of('pair', E'a|b|\nc\n', '{"format": "csv", "delimiter": "|", "trailing_delimiter": true, "filter": "called"}');
-- The default marker surrounded by blanks, for a column without a default.
SELECT rows_of('pair', E'a, D \n', '{"format": "csv", "default": "D", "trim": "both"}');
SELECT error_of($$SELECT * FROM bulk_read('printf "a, D \n"', '{"program": true, "format": "csv", "default": "D", "trim": "both"}') AS t (a text, b text)$$);
ALTER TABLE pair ALTER b SET DEFAULT 'given';
SELECT rows_of('pair', E'a, D \n', '{"format": "csv", "default": "D", "trim": "both"}');
-- Lines of JSON are verified, and converted.
SELECT rows_of('pair', '\x7b2261223a22ff227d0a', '{"format": "json"}');
SELECT rows_of('pair', '\x7b2261223a22ff227d0a7b2261223a2262227d0a', '{"format": "json", "on_error": "table"}');
SELECT rows_of('pair', '\x7b2261223a22e9227d0a', '{"format": "json", "encoding": "latin1"}');
-- Field texts of JSON values are refined, too.
CREATE TABLE typed (id int PRIMARY KEY, day date, amount numeric, rest jsonb);
SELECT rows_of('typed', '{"id": 1, "day": "31.12.2023", "amount": "1.234,5", "more": [1]}
{"id": "-", "day": "-", "amount": 7}
{"day": "-", "id": 3, "amount": "1.5"}', '{"format": "json", "on_error": "table", "columns": [{"column": "id", "null_if": "-"}, {"column": "day", "date_format": "DD.MM.YYYY", "null_if": ["-"]}, {"column": "amount", "decimal": ",", "thousands": "."}, {"column": "rest", "rest": true}]}');
-- Skipped lines are not records, in every count.
SELECT rows_of('typed', E'{"id": 1}\n\n{"id": 2}\n{"id": 1}\n', '{"format": "json"}');
SELECT rows_of('typed', E'{"id": 1}\n\n{"id": 2}\n  \n{"id": 1}\n', '{"format": "json", "on_error": "table", "on_duplicate": "keep_old"}');
SELECT rows_of('typed', E'{"id": 1}\n\n{"id": 2}\n{"id": 1}\n', '{"format": "json", "on_error": "table", "on_duplicate": "keep_new", "writer": "direct"}');
-- Combinations without a meaning are errors.
CREATE FUNCTION whole(id int, more text) RETURNS typed LANGUAGE sql IMMUTABLE AS 'SELECT id, NULL::date, NULL::numeric, NULL::jsonb';
SELECT rows_of('typed', '{"id": 1, "x": 2}', '{"format": "json", "filter": "whole", "columns": ["id", {"column": "more", "rest": true}]}');
SELECT rows_of('typed', '{"id": 1, "x": 2}', '{"format": "json", "filter": "whole", "columns": ["id", {"column": "more", "key": "x"}]}');
SELECT o, rows_of('pair', '', o) FROM unnest('{"{\"format\": \"binary\", \"quote\": \"none\"}","{\"format\": \"binary\", \"trailing_delimiter\": true}","{\"format\": \"binary\", \"trim\": \"both\"}","{\"format\": \"binary\", \"null_if\": \"x\"}","{\"format\": \"binary\", \"encoding_errors\": \"replace\"}","{\"format\": \"binary\", \"columns\": [\"a\", {\"column\": \"b\", \"nullif\": \"x\"}]}","{\"format\": \"json\", \"trim\": \"both\"}","{\"format\": \"json\", \"encoding_errors\": \"replace\"}","{\"format\": \"json\", \"quote\": \"none\"}","{\"format\": \"json\", \"trailing_delimiter\": true}","{\"format\": \"json\", \"columns\": [{\"column\": \"a\", \"trim\": \"left\"}]}","{\"format\": \"fixed\", \"trailing_delimiter\": true, \"columns\": [{\"column\": \"a\", \"length\": 1}]}"}'::jsonb[]) o;
SELECT error_of($$SELECT * FROM bulk_load(NULL, 'pair', '{"query": "VALUES (1, 2)", "filter": "called"}')$$);
SELECT error_of($$SELECT * FROM bulk_load(NULL, 'pair', '{"query": "VALUES (1, 2)", "columns": [{"column": "a", "null_if": "1"}, "b"]}')$$);
SELECT error_of($$SELECT * FROM bulk_load(NULL, 'pair', '{"query": "VALUES (1, 2)", "trim": "both"}')$$);
\set ECHO none
SET client_min_messages = warning;
DROP SCHEMA combinations CASCADE;
