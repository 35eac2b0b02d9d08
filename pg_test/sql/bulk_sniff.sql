--
-- bulk_sniff: detects the format and the columns of a file. Its answers are tried: the table is created, and COPY and bulk_load fill it.
--
\set ECHO none
\getenv data PGB_DATA
\set helpers :data '/helpers.sql'
\set schema bulk_sniff
\i :helpers
SET client_min_messages = warning;
SET timezone = 'UTC';
-- The result of bulk_sniff for a file, without the file's path.
CREATE FUNCTION sniffed(name text, options jsonb DEFAULT '{}') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	s record;
	c jsonb;
	r jsonb;
BEGIN
	SELECT * INTO s FROM bulk_sniff(data_path(name), options);
	RETURN NEXT without_path(concat_ws(' ', s.format, to_json(s.delimiter), to_json(s.quote), to_json(s.escape), CASE WHEN s.header THEN 'header' ELSE 'no header' END,
		s.encoding, s.details ->> 'line_end', s.details ->> 'compression', s.rows || ' rows', CASE WHEN (s.details -> 'complete')::boolean THEN 'complete' ELSE 'sample' END, s.details -> 'options'));
	FOR c IN SELECT * FROM jsonb_array_elements(s.details -> 'columns') LOOP
		RETURN NEXT concat('  ', c -> 'name', ' ', c ->> 'type', CASE WHEN (c -> 'nullable')::boolean THEN ' NULL' END);
		FOR r IN SELECT * FROM jsonb_array_elements(c -> 'ruled_out') LOOP
			RETURN NEXT without_path(concat('    not ', r ->> 'type', ': ' || (r ->> 'file'), ' line ' || (r ->> 'line'), ' byte ' || (r ->> 'byte_offset'), ' ', r -> 'value'));
		END LOOP;
	END LOOP;
	FOR c IN SELECT * FROM jsonb_array_elements(s.details -> 'notes') LOOP
		RETURN NEXT without_path('  note ' || (c #>> '{}'));
	END LOOP;
END $$;
-- Loads a file by COPY, bulk_load and a foreign table, as bulk_sniff describes the whole file. One line: the types, the rows, the differences, and
-- the number of values, of types that keep every character, that differ from the file.
CREATE FUNCTION loads(name text, options jsonb DEFAULT '{}') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	s record;
	copy_options text;
	types text;
	kept text;
	differ bigint;
	lost bigint := 0;
	loaded bigint;
BEGIN
	SELECT * INTO s FROM bulk_sniff(data_path(name), options || '{"sample": "all", "table": "by_copy"}');
	DROP VIEW IF EXISTS scanned;
	DROP TABLE IF EXISTS by_copy, by_load, as_text;
	DROP FOREIGN TABLE IF EXISTS by_scan;
	EXECUTE s.details ->> 'create_table';
	CREATE TABLE by_load (LIKE by_copy);
	SELECT string_agg(format('%I text', c ->> 'name'), ', '), string_agg(c ->> 'type', ' ') INTO kept, types FROM jsonb_array_elements(s.details -> 'columns') c;
	EXECUTE format('CREATE TABLE as_text (%s)', kept);
	SELECT string_agg(CASE WHEN key = 'force_null' THEN (SELECT format('FORCE_NULL (%s)', string_agg(quote_ident(x), ', ')) FROM jsonb_array_elements_text(value) x)
		ELSE format('%s %L', upper(key), CASE WHEN value = '"none"' THEN E'\x01' ELSE value #>> '{}' END) END, ', ') INTO copy_options FROM jsonb_each(s.details -> 'options') WHERE key NOT IN ('compression', 'columns');
	-- COPY does not have all options.
	IF EXISTS (SELECT FROM jsonb_object_keys(s.details -> 'options') key WHERE key NOT IN ('format', 'delimiter', 'quote', 'escape', 'null', 'header', 'encoding', 'force_null', 'compression')) THEN
		PERFORM bulk_load(data_path(name), 'by_copy', (s.details -> 'options') || '{"writer": "buffered"}');
		PERFORM bulk_load(data_path(name), 'as_text', (s.details -> 'options') - 'columns' || '{"writer": "buffered"}');
	ELSE
		EXECUTE format('COPY by_copy FROM %L (%s)', data_path(name), copy_options);
		EXECUTE format('COPY as_text FROM %L (%s)', data_path(name), copy_options);
	END IF;
	SELECT rows_loaded INTO loaded FROM bulk_load(data_path(name), 'by_load', s.details -> 'options');
	EXECUTE replace(s.details ->> 'create_foreign_table', 'CREATE FOREIGN TABLE by_copy', 'CREATE FOREIGN TABLE by_scan');
	-- A foreign table gives type text to columns that other sessions might read in another way. This session reads them alike.
	SELECT string_agg(format('%I::%s', c ->> 'name', c ->> 'type'), ', ') INTO kept FROM jsonb_array_elements(s.details -> 'columns') c;
	EXECUTE format('CREATE VIEW scanned AS SELECT %s FROM by_scan', kept);
	SELECT count(*) INTO differ FROM (
		(SELECT t::text FROM by_copy t EXCEPT ALL SELECT t::text FROM by_load t) UNION ALL (SELECT t::text FROM by_load t EXCEPT ALL SELECT t::text FROM by_copy t)
		UNION ALL (SELECT t::text FROM by_copy t EXCEPT ALL SELECT t::text FROM scanned t) UNION ALL (SELECT t::text FROM scanned t EXCEPT ALL SELECT t::text FROM by_copy t)) x;
	FOR kept IN SELECT c ->> 'name' FROM jsonb_array_elements(s.details -> 'columns') c WHERE c ->> 'type' IN ('integer', 'bigint', 'numeric', 'uuid', 'text', 'json') AND NOT s.details -> 'options' ? 'columns' LOOP
		EXECUTE format('SELECT $1 + count(*) FROM (SELECT lower(%1$I::text) FROM by_copy EXCEPT ALL SELECT lower(btrim(%1$I)) FROM as_text) x', kept)
			INTO lost USING lost;
	END LOOP;
	RETURN format('%s: %s rows, %s sampled, %s differ, %s lost, complete %s', types, loaded, s.rows, differ, lost, s.details -> 'complete');
END $$;
\set ECHO all
\pset tuples_only
\pset format unaligned
SELECT pg_get_function_arguments(oid), pg_get_function_result(oid), provolatile, proparallel, proisstrict FROM pg_proc WHERE proname = 'bulk_sniff';
CALL write_file('sniff.csv', E'id,name,born,paid,ok,plz,note\n1,one,2020-01-02,1.50,t,01067,\n2,"t,wo",,3,f,80331,x\n4000000000,,2021-12-31,0.5,true,10115,\n');
SELECT sniffed('sniff.csv');
SELECT loads('sniff.csv');
SELECT details ->> 'create_table' FROM bulk_sniff(data_path('sniff.csv'), '{"table": "sniffed_orders"}') \gexec
\d sniffed_orders
SELECT without_path(details ->> 'create_foreign_table') FROM bulk_sniff(data_path('sniff.csv'), '{"table": "bulk_sniff.\"Orders\""}');
DO $$ BEGIN EXECUTE (SELECT details ->> 'create_foreign_table' FROM bulk_sniff(data_path('sniff.csv'), '{"table": "bulk_sniff.\"Orders\""}')); END $$;
SELECT * FROM "Orders" ORDER BY 1;
SELECT details -> 'options' AS options FROM bulk_sniff(data_path('sniff.csv')) \gset
SELECT rows_loaded FROM bulk_load(data_path('sniff.csv'), 'sniffed_orders', :'options');
-- Dialects.
CALL write_file('sniff_semi.csv', E'k;wert\r\n1;1,5\r\n2;2,25\r\n');
SELECT sniffed('sniff_semi.csv');
SELECT loads('sniff_semi.csv');
CALL write_file('sniff.tsv', E'1\t\\N\tC:\\\\x\n2\tb\t\\tc\n');
SELECT sniffed('sniff.tsv');
SELECT loads('sniff.tsv');
CALL write_file('sniff_pipe.txt', E'a_id|b\n1|x\n2|\n');
SELECT sniffed('sniff_pipe.txt');
CALL write_file('sniff_cr.csv', E'a,b\r1,x\r2,y\r');
SELECT sniffed('sniff_cr.csv');
SELECT loads('sniff_cr.csv');
CALL write_file('sniff_quote.csv', E'''a,b'',1\n''it''''s'',2\n');
SELECT sniffed('sniff_quote.csv');
SELECT loads('sniff_quote.csv');
CALL write_file('sniff_escape.csv', E'"a\\"b,c",1\n"d",2\n');
SELECT sniffed('sniff_escape.csv');
SELECT loads('sniff_escape.csv');
CALL write_file('sniff_lines.csv', E'id,text\n1,"one\ntwo"\n2,"three"\n');
SELECT sniffed('sniff_lines.csv');
SELECT loads('sniff_lines.csv');
CALL write_file('sniff.jsonl', E'{"a": 1, "b": "x,y"}\n{"a": 2, "b": null}\n');
SELECT sniffed('sniff.jsonl');
SELECT sniffed('sniff.jsonl', '{"format": "csv"}');
CALL write_file('sniff_unclosed.csv', E'size,n\n5" pipe,1\n3 pipe,2\n4 pipe,3\n');
SELECT sniffed('sniff_unclosed.csv');
SELECT loads('sniff_unclosed.csv');
CALL write_file('sniff_times.txt', E'10:00:00\n11:30:00\n');
SELECT sniffed('sniff_times.txt');
-- Explicit options override detection.
SELECT sniffed('sniff.csv', '{"header": false}') LIMIT 3;
SELECT sniffed('sniff_semi.csv', '{"delimiter": ",", "header": 1}');
SELECT sniffed('sniff_pipe.txt', '{"format": "text", "null": "x", "compression": "none", "encoding": "LATIN1"}');
-- Types, and the values that rule them out.
CALL write_file('sniff_types.csv', E'i,b,n,d,e,ts,tz,t,u,j,a,day,zero,plus,long\n'
	'1,3000000000,1.5,1e5,2020-01-01,2020-01-01 10:00,2020-01-01T10:00:00Z,10:00,a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,{},NO,03/04/2020,007,+491,123456789012345678901\n'
	'-2147483648,-9223372036854775808,12345678901234567890.5,NaN,0001-01-01,2020-01-02,2020-01-01 10:00:00+02,23:59:59.999999,A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A12,"[1, ""x""]",YES,04/03/2020,123,+492,1\n');
SELECT sniffed('sniff_types.csv');
SELECT loads('sniff_types.csv');
CALL write_file('sniff_bad.csv', E'i,d,z,j,u,f,ts\n1,2020-01-31,1,"{""a"": 1}",a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,1.5,2020-01-01 10:00:00\n'
	'99999999999999999999,2020-02-30,01,"{""a"": }",x,1e999,2020-01-01 10:00:00.1234567\n');
SELECT sniffed('sniff_bad.csv');
SELECT loads('sniff_bad.csv');
CALL write_file('sniff_us.csv', E'd\n03/04/2020\n12/31/2020\n');
SELECT sniffed('sniff_us.csv');
SET datestyle = 'ISO, DMY';
SELECT sniffed('sniff_us.csv');
SELECT loads('sniff_us.csv');
RESET datestyle;
-- A date with the year last and a number above 12 proves the order of day and month for all columns of date types. Other values prove nothing.
CALL write_file('sniff_order.csv', E'same,among,iso,proved,stamp,late\n'
	'04/04/2024,04/04/2024,2024-04-13,04/04/2024,2024-01-31 10:00,13:00\n05/05/2024,03/04/2024,03/04/2024,03/04/2024,03/04/2024 10:00,12:00\n05/05/2024,03/04/2024,2024-04-05,12/31/2024,2024-01-31,12:00\n');
SELECT sniffed('sniff_order.csv');
SELECT loads('sniff_order.csv');
-- A later reader of the foreign table may have other settings than the session that sniffed.
SELECT without_path(details ->> 'create_foreign_table') FROM bulk_sniff(data_path('sniff_order.csv'));
SELECT without_path(details ->> 'create_foreign_table') FROM bulk_sniff(data_path('sniff_types.csv'));
-- Values whose output differs from the text of the file.
CALL write_file('sniff_lossy.csv', E'zero,leap,code,letters,words,arrays\n-0,23:59:60,t,t,true,"{1,2},{3,4}"\n1,10:00:00,T,F,True,"{1,2},{3,4}"\n');
SELECT sniffed('sniff_lossy.csv');
SELECT loads('sniff_lossy.csv');
CALL write_file('sniff_local_quotes.csv', E'"id","d"\n"1",""\n"2","13/04/2024"\n');
SET datestyle = 'ISO, DMY';
SELECT loads('sniff_local_quotes.csv');
RESET datestyle;
CALL write_file('sniff_empty_quotes.csv', E'"id","n"\n"1",""\n"","x"\n"3",""\n');
SELECT sniffed('sniff_empty_quotes.csv');
SELECT loads('sniff_empty_quotes.csv');
-- Names.
CALL write_file('sniff_names.csv', E'id,id,,select,ctid,Größe,"a""b",' || repeat('ü', 40) || E'\n1,2,3,4,5,6,7,8\n');
SELECT sniffed('sniff_names.csv');
SELECT loads('sniff_names.csv');
SELECT details ->> 'create_table' FROM bulk_sniff(data_path('sniff_names.csv'));
-- Empty files and other degenerate ones.
CALL write_file('sniff_0.csv', '');
SELECT sniffed('sniff_0.csv');
SELECT details ->> 'create_table' FROM bulk_sniff(data_path('sniff_0.csv'));
CALL write_file('sniff_1.csv', 'one line');
SELECT sniffed('sniff_1.csv');
SELECT loads('sniff_1.csv');
CALL write_file('sniff_header.csv', E'user_id,name\n');
SELECT sniffed('sniff_header.csv');
SELECT loads('sniff_header.csv');
CALL write_file('sniff_header.csv', E'user_a,x\nuser_b,y\n');
SELECT sniffed('sniff_header.csv');
CALL write_file('sniff_header.csv', E'x,NA\ny,5\nz,6\n');
SELECT sniffed('sniff_header.csv');
CALL write_file('sniff_header.csv', E'x,€5\ny,5\nz,6\n');
SELECT sniffed('sniff_header.csv');
-- The last of several header lines has the names.
CALL write_file('sniff_header.csv', E'report of,,today\na,b,c\n1,2,3\n');
SELECT sniffed('sniff_header.csv', '{"header": 2}');
CALL write_file('sniff_header.csv', repeat('x', 3000) || E',b\n1,2\n');
SELECT sniffed('sniff_header.csv', '{"header": true, "sample": "1kB"}');
SELECT x FROM sniffed('sniff_header.csv', '{"header": 2, "sample": 3004}') WITH ORDINALITY s (x, n) WHERE n = 1 OR x LIKE '  note%';
CALL write_file('sniff_blank.csv', E'\n\n');
SELECT sniffed('sniff_blank.csv');
SELECT loads('sniff_blank.csv');
CALL write_bytes('sniff_bom.csv', '\xefbbbf69642c6e0a312c780a');
SELECT sniffed('sniff_bom.csv');
CALL write_file('sniff_ragged.csv', E'a,b\n1,2\n1\n1,2,3\n3,4\n5,6\n7,8\n9,10\n');
SELECT sniffed('sniff_ragged.csv');
-- Files that a load cannot read, or only in part, have notes. The encoding is found.
CALL write_bytes('sniff_nul.csv', decode('612c620a3100322c330a', 'hex'));
SELECT sniffed('sniff_nul.csv');
CALL write_bytes('sniff_latin.csv', decode('612c620a312ce90a', 'hex'));
SELECT sniffed('sniff_latin.csv');
SELECT sniffed('sniff_latin.csv', '{"encoding": "LATIN1"}');
SELECT loads('sniff_latin.csv', '{"encoding": "LATIN1"}');
-- Encodings by evidence: the one that is found, and whether the loaded table has the text.
CREATE FUNCTION sniffed_encoding(encoding name, content text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	s record;
	loaded text;
BEGIN
	CALL write_bytes('sniff_encoding.csv', convert_to(E'n,t\n1,' || content || E'\n', encoding));
	SELECT * INTO s FROM bulk_sniff(data_path('sniff_encoding.csv'), '{"table": "encoded"}');
	EXECUTE s.details ->> 'create_table';
	PERFORM bulk_load(data_path('sniff_encoding.csv'), 'encoded', s.details -> 'options');
	SELECT t INTO loaded FROM encoded;
	DROP TABLE encoded;
	RETURN concat_ws(' ', encoding, 'is read as', s.encoding, 'option', s.details #>> '{options,encoding}', loaded = content);
END $$;
SELECT sniffed_encoding('UTF8', 'Málaga Köln');
SELECT sniffed_encoding('LATIN1', 'Málaga Köln');
SELECT sniffed_encoding('WIN1252', '“naïve” 5 €');
SELECT sniffed_encoding('LATIN2', 'Příliš žluťoučký kůň úpěl ďábelské ódy');
SELECT sniffed_encoding('WIN1251', 'Съешь же ещё этих мягких французских булок да выпей чаю');
SELECT sniffed_encoding('KOI8R', 'Съешь же ещё этих мягких французских булок да выпей чаю');
SELECT sniffed_encoding('GBK', '我能吞下玻璃而不伤身体 在这里 中国人民');
SELECT sniffed_encoding('BIG5', '我能吞下玻璃而不傷身體 在這裡 中國人民');
SELECT sniffed_encoding('SJIS', '私はガラスを食べられます。それは私を傷つけません。');
SELECT sniffed_encoding('EUC_JP', '私はガラスを食べられます。それは私を傷つけません。');
SELECT sniffed_encoding('EUC_KR', '나는 유리를 먹을 수 있어요. 그래도 아프지 않아요');
-- UTF-8 with a few invalid bytes stays UTF-8, and a note has the line. The first byte beyond ASCII may come late.
CALL write_bytes('sniff_mixed.csv', convert_to(E'a,b\n1,Málaga Köln Zürich\n2,x', 'UTF8') || '\xe9' || convert_to(E'\n3,y\n', 'UTF8'));
SELECT sniffed('sniff_mixed.csv');
CALL write_bytes('sniff_late.csv', convert_to(E'a,b\n' || repeat(E'1,x\n', 200000) || '2,Köln' || E'\n', 'LATIN1'));
SELECT encoding, rows, details -> 'complete', details -> 'notes' FROM bulk_sniff(data_path('sniff_late.csv'));
SELECT encoding, rows > 0, details -> 'complete', details -> 'notes' FROM bulk_sniff(data_path('sniff_late.csv'), '{"sample": "100kB"}');
-- A file in the client's encoding reads the same in another session only if the statement names the encoding.
SET client_encoding = 'LATIN1';
SELECT encoding, details -> 'options', without_path(details ->> 'create_foreign_table') FROM bulk_sniff(data_path('sniff_latin.csv'));
SELECT details -> 'options' FROM bulk_sniff(data_path('sniff.csv'));
SELECT details -> 'options' FROM bulk_sniff(data_path('sniff_latin.csv'), '{"encoding": "LATIN2"}');
RESET client_encoding;
CALL write_bytes('sniff_binary', decode(repeat('7f454c4602010100ff00fe0a', 100), 'hex'));
SELECT sniffed('sniff_binary');
CALL write_file('sniff_never.csv', E'a,"b\x01\n1,2\n');
SELECT sniffed('sniff_never.csv');
CALL write_file('sniff_ends.csv', E'a,b\n1,2\r3,4\n');
SELECT sniffed('sniff_ends.csv');
CALL write_file('sniff_wide.csv', repeat('1,', 4999) || E'1\n');
SELECT rows, columns, details -> 'notes' FROM bulk_sniff(data_path('sniff_wide.csv'));
CALL write_file('sniff_wide.csv', repeat('1,', 1599) || E'1\n' || repeat('x,', 1599) || E'y\n');
SELECT rows, columns, details #>> '{columns,1599,name}', details #> '{columns,1599,ruled_out}' FROM bulk_sniff(data_path('sniff_wide.csv'));
CALL write_file('sniff_huge.csv', E'a,' || repeat('x', 3000000));
SELECT sniffed('sniff_huge.csv', '{"sample": "1MB"}');
SELECT format, delimiter, rows, details -> 'complete', columns FROM bulk_sniff(data_path('sniff_huge.csv'), '{"sample": "all"}');
-- Samples. Only the last line is not a number; quotes hide it from a search for line ends.
DO $$
DECLARE
	content text := (SELECT string_agg(i || ',"w, ' || i || E'\nx",' || i % 7, E'\n') FROM generate_series(1, 200000) i);
BEGIN
	CALL write_file('sniff_large.csv', E'id,word,n\n' || content || E'\n200001,x,many\n');
END $$;
SELECT details #>> '{columns,2,type}', rows, details -> 'complete' FROM bulk_sniff(data_path('sniff_large.csv'), '{"sample": 100000}');
SELECT details #>> '{columns,2,type}', details #>> '{columns,2,ruled_out,0,byte_offset}' IS NOT NULL, details #>> '{columns,0,type}', rows > 50000, details -> 'complete', details -> 'notes' FROM bulk_sniff(data_path('sniff_large.csv'), '{"sample": "3MB"}');
SELECT details #> '{columns,2}', details #>> '{columns,0,type}', rows, details -> 'complete', details -> 'notes' FROM bulk_sniff(data_path('sniff_large.csv'), '{"sample": "all"}');
SELECT loads('sniff_large.csv');
-- Generated files: columns of values of all kinds, written by COPY in random dialects. When bulk_sniff has read the whole file, no type that it names
-- fails on it. If it detects another dialect than COPY wrote, lines may have more or fewer fields than others; then there is a note.
\set ECHO none
CREATE TABLE made_up AS SELECT ARRAY['1', '-5', '007', '0', '1.5', '1e5', 'NaN', 'Infinity', '2020-01-01', '2020-02-30', '03/04/2020', '13/04/2020', '12/31/2020', '10:00', '25:00', '24:00:00', '23:59:60',
	'2020-01-01T10:00:00Z', '2020-01-01 10:00:00', '2020-01-01 10:00:00+02', '2020-01-01 10:00:00 +99', 't', 'false', 'no', '{"a": 1}', '[', '{}', '[1,]', '{"a": "\u0000"}', '{"a": 1e1000}', '"', 'a b', ' 12 ',
	'', NULL, '9999999999', '12345678901234567890', repeat('9', 140000), '0x1F', '1_000', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '\N', '\.', 'x''y', 'ü', '1;2', '1|2', 'a' || E'\n' || 'b', '-', '+1', '.5', '-.5', '5.',
	'1e400', '1e-400', '0001-01-01 BC', '294277-01-01', '5874898-01-01', '0000-01-01', '2020-13-01', '9999-12-31 23:59:59.999999', '294276-12-31 23:59:59.999999', '12:00 PM', '13:00 PM', '1/1/0001', '2020-1-1', 'null', '00:00',
	'-0', '2147483648', '-2147483649', '9223372036854775808', '[[1], {"b": []}]', '"quoted"', 'today', 'now', 'epoch', 'a,b', '2020-03-29 02:30', '2020/01/01', '1-2-2020', '99:99'] AS pool;
CREATE FUNCTION made_up_column(c int) RETURNS text LANGUAGE sql AS $$
	SELECT format('(ARRAY[%s])[1 + floor(random() * %s)::int] AS %I', string_agg(quote_nullable(pool[1 + floor(random() * cardinality(pool))::int]) || '::text', ', '), 2 + c % 3, 'column ' || c)
	FROM made_up, generate_series(1, 2 + c % 3)
$$;
CREATE FUNCTION made_up_files(number int) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	columns text;
	dialect text;
	said text;
	tried int := 0;
BEGIN
	FOR i IN 1 .. number LOOP
		-- Each column has two, three or four values.
		SELECT string_agg(made_up_column(c), ', ') INTO columns FROM generate_series(1, 1 + (i * 7) % 5) c;
		dialect := (ARRAY['FORMAT csv', 'FORMAT csv, HEADER', $d$FORMAT csv, DELIMITER ';', HEADER$d$, $d$FORMAT csv, FORCE_QUOTE *, HEADER$d$, 'FORMAT text', $d$FORMAT csv, DELIMITER E'\t'$d$,
			$d$FORMAT csv, QUOTE ''''$d$, $d$FORMAT csv, ESCAPE '\', FORCE_QUOTE *$d$, $d$FORMAT text, DELIMITER '|'$d$])[1 + i % 9];
		EXECUTE format('COPY (SELECT %s FROM generate_series(1, %s)) TO %L (%s)', columns, 1 + i % 23, data_path('sniff_made_up'), dialect);
		BEGIN
			said := loads('sniff_made_up');
			tried := tried + 1;
			IF said !~ ' 0 differ, \d+ lost, complete t$' THEN
				RETURN NEXT format('%s %s: %s', i, dialect, said);
			END IF;
		EXCEPTION WHEN OTHERS THEN
			said := SQLERRM;
			IF NOT EXISTS (SELECT FROM bulk_sniff(data_path('sniff_made_up'), '{"sample": "all"}') WHERE details ->> 'notes' LIKE '%a load fails there%') THEN
				RETURN NEXT left(format('%s %s: %s', i, dialect, said), 300);
			END IF;
		END;
	END LOOP;
	RETURN NEXT format('more than half of them loaded: %s', tried > number / 2);
END $$;
SELECT setseed(0.5) AS seed \gset
\set ECHO all
SELECT made_up_files(40);
-- Compressed files, programs, several files.
SELECT ending, format, delimiter, header, details ->> 'compression', rows, details -> 'complete', details -> 'columns' FROM unnest('{gz,zst,lz4,bz2,xz}'::text[]) ending, LATERAL bulk_sniff(data_path('compressed/many.' || ending), '{"sample": "all"}') ORDER BY ending;
SELECT rows < 2000, details -> 'complete' FROM bulk_sniff(data_path('compressed/many.gz'), '{"sample": "1kB"}');
-- complete is true only if the sample includes the last byte.
CALL write_file('sniff_budget.csv', E'a,b\n1,x\n2,y\n');
\! gzip -nc "$PGB_DATA/sniff_budget.csv" > "$PGB_DATA/sniff_budget.gz"
SELECT bytes, file.details -> 'complete', zip.details -> 'complete', program.details -> 'complete', program.rows FROM unnest('{11,12,13}'::int[]) bytes, jsonb_build_object('header', true, 'sample', bytes) given,
	LATERAL bulk_sniff(data_path('sniff_budget.csv'), given) file, LATERAL bulk_sniff(data_path('sniff_budget.gz'), given) zip, LATERAL bulk_sniff('printf "a,b\n1,x\n2,y\n"', given || '{"program": true}') program;
-- Memory that the server's functions used is freed.
CREATE FUNCTION contexts() RETURNS SETOF bigint LANGUAGE plpgsql AS $$ BEGIN RETURN QUERY SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'bulk_sniff values'; END $$;
SELECT contexts FROM (SELECT bulk_sniff(data_path('sniff.csv')) AS sniffed, contexts()) x WHERE sniffed IS NOT NULL;
SELECT rows, details -> 'complete', details ->> 'create_table', details -> 'options' FROM bulk_sniff('printf "a;b_c\n1;x\n2;y\n"', '{"program": true}');
SELECT rows > 0, details -> 'complete' FROM bulk_sniff('yes 1,2', '{"program": true, "sample": "64kB"}');
SELECT error_of($$SELECT * FROM bulk_sniff('exit 3', '{"program": true}')$$);
CALL write_file('sniff_many.1.csv', E'id,name\n1,one\n');
CALL write_file('sniff_many.2.csv', E'name,id\ntwo,2\n');
CALL write_file('sniff_many.3.csv', E'id,name\nx,three\n');
CALL write_file('sniff_many.4.csv', '');
SELECT sniffed('sniff_many.[124].csv');
SELECT sniffed('sniff_many.*.csv');
-- File names are bytes, not text.
\! mkdir -p -m 777 "$PGB_DATA/sniff_bytes" && printf '1\n' > "$PGB_DATA/sniff_bytes/a.csv" && printf 'x\n' > "$PGB_DATA/sniff_bytes/$(printf 'b\377').csv"
SELECT sniffed('sniff_bytes');
\! printf '1,2\n' > "$PGB_DATA/sniff_bytes/$(printf 'b\377').csv"
SELECT sniffed('sniff_bytes');
\! rm -rf "$PGB_DATA/sniff_bytes"
-- Options.
SELECT error_of($$SELECT * FROM bulk_sniff(data_path('sniff.csv'), '{"limit": 1}')$$);
SELECT error_of($$SELECT * FROM bulk_sniff(data_path('sniff.csv'), '{"delimeter": ";"}')$$);
SELECT error_of($$SELECT * FROM bulk_sniff(data_path('sniff.csv'), '{"sample": "some"}')$$);
SELECT error_of($$SELECT * FROM bulk_sniff(data_path('sniff.csv'), '{"sample": 0}')$$);
-- An end marker with text behind it; without text, there is no note.
CREATE TABLE marked (id int, what text);
CALL write_file('sniff_marked.csv', E'id,what\n1,a\n2,b\n\\.\n3,c\n4,d\n');
SELECT s.rows, s.details ->> 'notes' ~ 'line 4 ends the data' AS sniffed, l.rows_loaded, array_to_string(l.notes, ' ') ~ 'behind it was not read, in 1 line \(line 4\)' AS loaded
FROM unnest('{direct,buffered}'::text[]) w, bulk_sniff(data_path('sniff_marked.csv')) s, bulk_load(data_path('sniff_marked.csv'), 'marked', jsonb_build_object('format', 'csv', 'header', true, 'writer', w, 'on_error', 'table')) l
WHERE current_setting('server_version_num')::int < 180000
UNION ALL SELECT 2, true, 2, true FROM generate_series(1, 2) WHERE current_setting('server_version_num')::int >= 180000;
CALL write_file('sniff_marked.txt', repeat(E'1\ta\n', 40) || E'\\.\n3\tc\n');
SELECT sniffed('sniff_marked.txt', '{"format": "text"}');
SET pg_bulk.chunk_size = '64';
SELECT rows_loaded, notes FROM bulk_load(data_path('sniff_marked.txt'), 'marked', '{"format": "text", "workers": 2}');
-- The marker ends a chunk.
CALL write_file('sniff_marked.txt', repeat(E'1\ta\n', 46) || E'10\ta\n\\.\n' || repeat(E'3\tc\n', 100));
SELECT w, rows_loaded, notes FROM unnest(ARRAY[0, 2]) w, bulk_load(data_path('sniff_marked.txt'), 'marked', jsonb_build_object('format', 'text', 'workers', w));
RESET pg_bulk.chunk_size;
-- Programs, as far as they were read, and scans.
SELECT rows_loaded, notes FROM bulk_load($$printf '1\ta\n\\.\n3\tc\n'$$, 'marked', '{"program": true, "format": "text"}');
CREATE FOREIGN TABLE marked_file (id int, what text) SERVER bulk_files OPTIONS (filename '');
DO $$ BEGIN EXECUTE format('ALTER FOREIGN TABLE marked_file OPTIONS (SET filename %L)', data_path('sniff_marked.txt')); END $$;
SELECT count(*) FROM marked_file WHERE what > '';
CALL write_file('sniff_marked.txt', E'1\ta\n\\.\n \n');
SELECT count(*) FROM marked_file WHERE what > '';
SELECT sniffed('sniff_marked.txt', '{"format": "text"}');
SELECT notes FROM bulk_load(data_path('sniff_marked.txt'), 'marked', '{"format": "text"}');
-- Given options of the format are kept, and the others are found.
CALL write_file('sniff_given.csv', E'id||what||\n1|| "a" ||\n2|| none ||\n');
SELECT sniffed('sniff_given.csv', o::jsonb) FROM unnest(ARRAY['{"delimiter": "||"}', '{"delimiter": "||", "trailing_delimiter": true}', '{"delimiter": "||", "trailing_delimiter": false}', '{"trailing_delimiter": true, "trim": "left"}', '{"delimiter": "||", "quote": "none", "trim": "none", "default": " none "}', '{"delimiter": "|", "quote": "none"}']) o;
SELECT error_of($$SELECT * FROM bulk_sniff(data_path('sniff.csv'), '{"delimiter": ",,", "format": "text", "trim": "up"}')$$);
SELECT rows_loaded FROM bulk_create(data_path('sniff_given.csv'), 'sniff_given', '{"delimiter": "||", "trailing_delimiter": true, "quote": "none", "trim": "both"}');
TABLE sniff_given;
SELECT error_of($$SELECT * FROM bulk_sniff(data_path('sniff.csv'), '{"delimiter": "\""}')$$);
SELECT error_of($$SELECT * FROM bulk_sniff(data_path('sniff.csv'), '{"format": "text", "quote": "x"}')$$);
SELECT error_of($$SELECT * FROM bulk_sniff(data_path('sniff.csv'), '{"table": "a.b.c.d"}')$$);
SELECT error_of($$SELECT * FROM bulk_sniff(data_path('sniff.csv'), '{"server": "bulk_files"}')$$);
SELECT error_of($$SELECT * FROM bulk_sniff(data_path('sniff.csv'), '[]')$$);
SELECT error_of($$SELECT * FROM bulk_sniff(NULL)$$);
SELECT error_of($$SELECT * FROM bulk_sniff('', NULL)$$);
SELECT error_of($$SELECT * FROM bulk_sniff(data_path('sniff_missing'))$$);
-- Lines in front of a table, which loads and foreign tables skip, but not in front of several files; and quotes within values.
CALL write_file('sniff_front.csv', E'Report of today\n\n# of 3\nid;name;paid\n1;"x\n# y";1.5\n2;z;2\n3;;3\n4;;\n');
SELECT sniffed('sniff_front.csv');
DO $$ BEGIN EXECUTE (SELECT details ->> 'create_foreign_table' FROM bulk_sniff(data_path('sniff_front.csv'), '{"table": "front", "sample": "all"}')); END $$;
SELECT * FROM front;
SELECT rows_loaded FROM bulk_load(data_path('sniff_front.csv'), 'made_of_front', '{"create": true}');
SELECT * FROM made_of_front;
SELECT sniffed('sniff_front.csv', '{"header": false}');
SELECT sniffed('sniff_front.csv', '{"header": 3}');
CALL write_file('sniff_front.1', E'#\n1,2\n3,4\n');
CALL write_file('sniff_front.2', E'1,2\n3,4\n');
SELECT sniffed('sniff_front.1');
SELECT sniffed('sniff_front.[12]');
-- A row whose first value begins with a mark of comments is no comment.
CALL write_file('sniff_marks.csv', E'id,text\n1,a\n2,b\n#3,c,d\n4,d\n5,e\n');
SELECT sniffed('sniff_marks.csv');
-- Where one column has decimal commas, points of another one may separate thousands.
CALL write_file('sniff_points.csv', E'a;b\n1.234;1,5\n12.500;2,25\n');
SELECT sniffed('sniff_points.csv');
-- Quotes behind the bytes from which the dialect is found; blanks that are removed; the caller's trim.
SELECT string_agg(format(E'%s\t%s', i, CASE i WHEN 9000 THEN '"alpha' WHEN 9900 THEN 'beta"' ELSE repeat('x', 40) END), E'\n') AS late FROM generate_series(1, 9999) i \gset
CALL write_file('sniff_late.csv', E'id\tname\n' || :'late');
SELECT jsonb_array_elements_text(details -> 'notes') FROM bulk_sniff(data_path('sniff_late.csv'), '{"sample": "all"}');
CALL write_file('sniff_blanks.csv', E'a, b\n1, x\n2, y\n3, z\n');
SELECT jsonb_array_elements_text(details -> 'notes') FROM bulk_sniff(data_path('sniff_blanks.csv'));
SELECT rows_loaded FROM bulk_create(data_path('sniff_blanks.csv'), 'blanks', '{"trim": "none"}');
SELECT to_json(t) FROM blanks t LIMIT 1;
-- Given lenient_quotes, the file has quotes.
CALL write_file('sniff_lenient.csv', E'a,b\n1,"Rome\n2,Bern\n');
SELECT sniffed('sniff_lenient.csv', '{"lenient_quotes": true}');
-- Options of quotes are those of CSV, also of an empty file and of a JSON object.
CALL write_file('sniff_empty.csv', '');
CALL write_file('sniff_object.csv', E'{"a":1}\n');
SELECT sniffed(f, o::jsonb) FROM unnest('{sniff_empty.csv,sniff_object.csv}'::text[]) f, unnest(ARRAY['{"quote": "''"}', '{"lenient_quotes": true}']) o;
SELECT rows_loaded FROM bulk_create(data_path('sniff_empty.csv'), 'nothing', '{"lenient_quotes": true}');
-- Given words for NULL have no type, and there are no others.
CALL write_file('sniff_nulls.csv', E'id,amount,day,note\n1,x,2024-01-31,NA\n2,5,"a, ""b"" c",1\n3,7,x,1\n4,7,x,NA\n');
SELECT sniffed('sniff_nulls.csv', '{"null_if": ["x", "a, \"b\" c"], "sample": "all"}');
DO $$ BEGIN EXECUTE (SELECT details ->> 'create_foreign_table' FROM bulk_sniff(data_path('sniff_nulls.csv'), '{"null_if": ["x", "a, \"b\" c"], "table": "with_nulls"}')); END $$;
SELECT to_json(t) FROM with_nulls t;
SELECT rows_loaded FROM bulk_create(data_path('sniff_nulls.csv'), 'made_with_nulls', '{"null_if": ["x", "a, \"b\" c"]}');
SELECT to_json(t) FROM made_with_nulls t;
SELECT sniffed('sniff_nulls.csv', '{"null_if": "x"}');
CALL write_file('sniff_nulls.json', E'{"a": "x", "b": -9}\n{"a": "2024-01-31", "b": 1}\n');
SELECT sniffed('sniff_nulls.json', '{"null_if": ["x", "-9"]}');
SELECT error_of($$SELECT * FROM bulk_sniff(data_path('sniff_nulls.csv'), '{"null_if": ["x", 5]}')$$);
-- A text above a column of numbers is its name, though it begins as a comment.
CALL write_file('sniff_sign.csv', E'# of x\n1\n2\n');
SELECT sniffed('sniff_sign.csv');
-- Amounts are text, and a note has the first one. Numbers with leading zeros are no amounts, nor are words.
CALL write_file('sniff_amounts.csv', E'a,b,c,d,e\n6,12%,"1,234.50 EUR",007,$5\n$5.00,13%,7 EUR,008,six\n');
SELECT sniffed('sniff_amounts.csv');
CALL write_file('sniff_inner.csv', E'12" disk,7\n5" disk,["a"]\n');
SELECT sniffed('sniff_inner.csv');
SELECT loads('sniff_inner.csv');
-- bulk_sniff requires the same privileges as a load.
CREATE SERVER sniff_server FOREIGN DATA WRAPPER bulk_fdw;
DO $$ BEGIN EXECUTE format('ALTER SERVER sniff_server OPTIONS (ADD directory %L)', current_setting('test.dir')); END $$;
SELECT rows, without_path(details ->> 'create_foreign_table'), details -> 'options' FROM bulk_sniff('sniff_semi.csv', '{"server": "sniff_server"}');
SELECT error_of($$SELECT * FROM bulk_sniff('../sniff_semi.csv', '{"server": "sniff_server"}')$$);
CREATE ROLE regress_bulk_sniff;
GRANT USAGE ON SCHEMA bulk_sniff TO regress_bulk_sniff;
SET ROLE regress_bulk_sniff;
SELECT error_of($$SELECT * FROM bulk_sniff(data_path('sniff.csv'))$$);
SELECT error_of($$SELECT * FROM bulk_sniff(data_path('sniff_missing'))$$);
SELECT error_of($$SELECT * FROM bulk_sniff('true', '{"program": true}')$$);
SELECT error_of($$SELECT * FROM bulk_sniff('sniff_semi.csv', '{"server": "sniff_server"}')$$);
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER sniff_server TO regress_bulk_sniff;
SET ROLE regress_bulk_sniff;
SELECT rows FROM bulk_sniff('sniff_semi.csv', '{"server": "sniff_server"}');
RESET ROLE;
SET client_min_messages = warning;
DROP SERVER sniff_server CASCADE;
REVOKE USAGE ON SCHEMA bulk_sniff FROM regress_bulk_sniff;
DROP ROLE regress_bulk_sniff;
DROP SCHEMA bulk_sniff CASCADE;
