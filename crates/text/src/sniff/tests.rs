//! Small inputs of each kind of file.

use proptest::prelude::*;

use super::dialect::{GivenOptions, detect};
use super::each_record;
use super::finding::{Finding, Oddity};
use super::tokens::{Ends, Kind, Syntax};
use super::trial::Trial;
use crate::dialect::{Dialect, EndMarker, Eol, Format};
use crate::fixed::Trim;
use crate::separator::Separator;

fn given() -> GivenOptions {
    GivenOptions {
        format: None,
        delimiter: None,
        quote: None,
        escape: None,
        trailing: None,
        trim: None,
        default: None,
        skip_blank_lines: None,
        comment: None,
        lenient_quotes: None,
        line_end: None,
        null: None,
        end_marker: EndMarker::Until17,
    }
}

fn find(sample: &str) -> Finding {
    detect(sample.as_bytes(), true, &given())
}

/// The dialect in short: format, delimiter, quote, escape, and the options that are set.
fn of(sample: &str) -> String {
    let found = find(sample);
    let d = &found.dialect;
    let mut short = match d.format {
        Format::Csv => format!("{:?} {} {}", d.separator, d.quote as char, d.escape as char),
        Format::Unquoted => format!("{:?} none", d.separator),
        _ => format!("{:?} text", d.separator),
    };
    let mut add = |is: bool, name: &str| {
        if is {
            short = format!("{short} {name}");
        }
    };
    add(d.lenient_quotes, "lenient");
    add(d.skip_blank_lines, "blank");
    add(d.trailing, "trailing");
    add(found.trim == Trim::Both, "trim");
    add(!d.comment.is_empty(), &format!("comment {}", d.comment.escape_ascii()));
    add(d.line_end.is_some(), &format!("{:?}", d.line_end));
    short
}

/// The place of the table in short: width, records in front, behind, short, long.
fn place(sample: &str) -> [usize; 5] {
    let found = find(sample);
    let odd = |oddity| found.odd.iter().filter(|odd| odd.oddity == oddity).count();
    [found.width, found.ahead, odd(Oddity::Behind), odd(Oddity::Short), odd(Oddity::Long)]
}

#[test]
fn delimiters() {
    for (sample, expected) in [
        ("", r#""," " ""#),
        ("a\n", r#""," " ""#),
        ("a,b,c\n", r#""," " ""#),
        ("a,b\n1,2\n", r#""," " ""#),
        ("a;b\n1,5;2,5\n", r#"";" " ""#),
        ("1,5;2,5\n1,5;2,5\n", r#"";" " ""#),
        ("a|b\n1|2\n", r#""|" " ""#),
        ("a\tb\n1\t2\n", r#""\t" " ""#),
        ("a b c\n1 2 3\n4 5 6\n", r#"" " " ""#),
        ("a#b#c\n1#2#3\n4#5#6\n", r##""#" " ""##),
        ("a+b+c\n1+2+3\n4+5+6\n", r#""+" " ""#),
        ("a~b~c\n1~2~3\n4~5~6\n", r#""~" " ""#),
        ("a^b^c\n1^2^3\n4^5^6\n", r#""^" " ""#),
        ("a*b*c\n1*2*3\n4*5*6\n", r#""*" " ""#),
        ("a\u{1}b\n1\u{1}2\n", r#""\x01" " ""#),
        ("a\u{1f}b\n1\u{1f}2\n", r#""\x1f" " ""#),
        ("a||b||c\n1||2||3\n4||5||6\n", r#""||" " ""#),
        ("a::b::c\n1::2::3\n4::5::6\n", r#""::" " ""#),
        ("a~|~b~|~c\n1~|~2~|~3\n4~|~5~|~6\n", r#""~|~" " ""#),
        // An empty column in each line.
        ("a,,b\n1,,2\n", r#""," " ""#),
        ("52.5 13.4\n51.1 12.3\n", r#"" " " ""#),
        ("root:x:0:0\nbin:x:1:1\nme:x:2:2\n", r#"":" " ""#),
        ("\0\u{1}\u{1}x\n\0\u{1}\u{1}y\n", r#""," " ""#),
        ("\u{feff}a;b\r\n1;2\r\n", r#"";" " ""#),
        ("a,b\r1,2\r", r#""," " ""#),
        // Punctuation of texts.
        ("id,what\n1,Total; Estimate; All\n2,Total; Error; All\n3,Name\n", r#""," " ""#),
        ("a, b, c\n1, 2, 3\n4, 5, 6\n", r#""," " " trim"#),
        // Lists within fields, below names that have no such delimiter.
        ("col1,col2\n1;2;3,4;5;6\na;b;c,d;e;f\n", r#""," " ""#),
        ("list;n\n1,5,2;3,4,7\n2,6,3;9,1,4\n", r#"";" " ""#),
        ("Values 2020\n1;2,5\n3;4,5\n", r#"";" " ""#),
    ] {
        assert_eq!(of(sample), expected, "{sample:?}");
    }
}

#[test]
fn single_columns() {
    for (sample, expected) in [
        ("10:00:00\n11:00:00\n", r#""," " ""#),
        ("2024-01-01 10:00:00\n2024-01-01 11:00:00\n", r#""," " ""#),
        ("{\"a\": 1, \"b\": 2}\n{\"a\": 1, \"b\": 2}\n", r#""\x02" none"#),
        ("one\ntwo\n", r#""," " ""#),
        ("hello world\nthis is text\nmore of it, really\n", r#""\t" " ""#),
        // A character within each value.
        ("a@b.de\nc@d.de\nx.y@z.org\n", r#""," " ""#),
        ("http://a.de/?a=1&b=2\nhttp://b.de/?a=3&b=4\n", r#""," " ""#),
        ("https://a.de:80/x\nhttps://b.de:81/y\n", r#""," " ""#),
        ("00:1A:2B:3C:4D:5E\n00:1A:2B:3C:4D:5F\n", r#""," " ""#),
        ("23 Sep 2011\n24 Oct 2011\n25 Nov 2012\n", r#""," " ""#),
        ("5 kg\n7 kg\n12 kg\n", r#""," " ""#),
        ("Full Name\nJohn Smith\nMary Jones\nAda Lovelace\n", r#""," " ""#),
        ("C&A\nH&M\nAT&T\n", r#""," " ""#),
        ("@joe\n@jane\n", r#""," " ""#),
        ("C#\nF#\nG#\n", r#""," " ""#),
    ] {
        assert_eq!((of(sample).as_str(), find(sample).width), (expected, 1), "{sample:?}");
    }
}

#[test]
fn quotes() {
    for (sample, expected) in [
        ("'a,b',c\n'd',e\n", r#""," ' '"#),
        ("a,it's\nb,it's\n", r#""," " ""#),
        ("a,'x','y'\nb,'Men's','z'\nc,'u','v'\n", r#""," ' ' lenient"#),
        ("1,2,3\n4,'a,b',5\n", r#""," ' '"#),
        ("ID, Test\n1, \"line 1\"\n2, \"the \"\" line\"\n3, \"the \\\" line\"\n", r#"", " " " lenient"#),
        ("`a,b`,`c`\n`d`,`e`\n", r#""," ` `"#),
        ("a,[\"x\"]\nb,\n", r#""," none"#),
        ("a,5\"\nb,6\"\n", r#""," none"#),
        ("a\t5\"\n1\t2\n3\t4\n", r#""\t" none"#),
        // Raw quotes: the lines are complete without them.
        ("ns\ttitle\n0\t!\n0\t\"\n0\tabc\n0\t\"def\n0\tghi\n0\tjkl\n", r#""\t" none"#),
        ("0\t\"\n0\tabc\n0\tdef\"\n0\tghi\n0\tjkl\n", r#""\t" none"#),
        // Stray quotes among proper ones.
        ("a,b\n1,\"x,y\"\n2,\"z,w\"\n\"3,\"q,r\"\n4,\"s,t\"\n5,\"u,v\"\n", r#""," " " lenient"#),
        ("\"bla\",1\n\"bla\"x,2\n\"b\",3\n", r#""," " " lenient"#),
        ("id;len\n1;5\" pipe\n2;\"a;b\"\n3;x\n", r#"";" " " lenient"#),
        // COPY's quotes within a field.
        ("a,x\"1,2\"\nb,x\n", r#""," " ""#),
        ("k, v\n\"a\", \"x, y\"\n\"b\", \"z\"\n", r#""," " " trim"#),
        ("\"a\nb\",1\n\"c\",2\n", r#""," " ""#),
        ("id,comment\n1,x\n2,\"A table:\na|b|c\n1|2|3\n\"\n", r#""," " ""#),
    ] {
        assert_eq!(of(sample), expected, "{sample:?}");
    }
    let sample = "a,b\n".repeat(100) + "\"a,b\n" + &"a,b\n".repeat(1000);
    assert_eq!(of(&sample), r#""," none"#);
}

#[test]
fn escapes() {
    for (sample, expected) in [
        ("a,b,c\n1,\"some \\\"escaped\\\" value\",2\n3,\"\\\"\\\"\\\"\",4\n", r#""," " \"#),
        ("1,\"{\\\"a\\\": 1, \\\"b\\\": [1,2]}\"\n", r#""," " \"#),
        ("1,\"say \\\"hi\\\"\"\n", r#""," " \"#),
        ("\"a\\\"b,c\",d\ne,f\n", r#""," " \"#),
        ("\"C:\\\",d\ne,f\n", r#""," " ""#),
        ("a,\"x \"\"y\"\"\"\nb,\"z\"\n", r#""," " ""#),
        // Format text.
        ("a\t\\N\n1\t2\n", r#""\t" text"#),
        ("a\tC:\\\\x\n1\t2\n", r#""\t" text"#),
        ("a|\\N\n1|2\n", r#""|" text"#),
        ("1\\,2,x\n3\\,4,y\n", r#""," text"#),
        ("a\tC:\\temp\nb\tD:\\new\n", r#""\t" " ""#),
    ] {
        assert_eq!(of(sample), expected, "{sample:?}");
    }
}

#[test]
fn lines_that_are_no_records() {
    for (sample, expected) in [
        ("a,b\n1,2\n\n", r#""," " " blank"#),
        ("\"a\";\"b\";\"c\"\n\"1\";\"2\";\"3\"\n\n", r#"";" " " blank"#),
        ("a\n\n1\n", r#""," " ""#),
        ("a,b\n1,2\n# note\n3,4\n", r##""," " " comment #"##),
        ("# of x\n1\n2\n", r#""," " ""#),
        ("# of x\nYear\n2\n", r##""," " " comment #"##),
        ("#\n1\n2\n", r##""," " " comment #"##),
        ("# a, b\n#\n\nYear,Make\n1997,Ford\n", r##""," " " blank comment #"##),
        ("#a;b\n1;2\n", r#"";" " ""#),
        // Values begin with the mark.
        ("id,x\n#1,a\n#2,b\n", r#""," " ""#),
        ("a,b\n1,2\n// it's \"\n3,4\n", r#""," none comment //"#),
        ("a,b,c\n1,2,3\n--\n4,5,6\n", r#""," " " comment --"#),
    ] {
        assert_eq!(of(sample), expected, "{sample:?}");
    }
}

#[test]
fn line_ends() {
    for (sample, expected) in [
        ("a,b\r\n1,\"x\ny\"\r\n2,z\r\n", None),
        ("a,b\r\n1,x\ny\r\n2,z\r\n3,w\r\n", Some(Eol::CrNl)),
        ("a,b\n1,x\ry\n2,z\n3,w\n", Some(Eol::Nl)),
        ("a,b\n1,2\r\n3,4\n5,6\r\n", Some(Eol::Any)),
    ] {
        assert_eq!(find(sample).dialect.line_end, expected, "{sample:?}");
    }
}

#[test]
fn tables_have_places() {
    for (sample, expected) in [
        ("a,b\n1,2\n", [2, 0, 0, 0, 0]),
        ("Report\na,b,c\n1,2,3\n1,2,3\n1,2,3\n", [3, 1, 0, 0, 0]),
        ("Report\n\nof today\na;b;c\n1;2;3\n1;2;3\n1;2;3\n", [3, 2, 0, 0, 0]),
        ("Overseas travel,,\nPeriod: Q1,,\nName,Trip,Cost\nA,Rome,1\nB,Oslo,2\n", [3, 2, 0, 0, 0]),
        ("Made, by a, b\ncm,T\n1,2\n3,4\n5,6\n", [2, 1, 0, 0, 0]),
        ("a,b,c\nBob,Rome\nx,4\ny,z\n", [3, 0, 0, 3, 0]),
        ("T,,,\nyyyy,mm, ,x\n1,2,3,4\n,2,,\n,3,,\n", [4, 1, 0, 0, 0]),
        ("T,,,\n,,2012,2013\nA,B,C,D\nx,1,2,3\ny,1,2,3\n", [4, 1, 0, 0, 0]),
        ("T,,,\n,,3,2013\n1,B,C,D\nx,1,2,3\ny,1,2,3\n", [4, 0, 0, 0, 0]),
        ("178,13,a\n1,2,3,4,5\n6,7,8,9,10\n1,1,1,1,1\n", [5, 1, 0, 0, 0]),
        ("a,b,c\n1,2,3\n4,5,6\n7,8,9\nTotal: 5\nSource: x, y\n", [3, 0, 2, 0, 0]),
        ("a,b,c\n1,2\n3,4,5,6\n", [3, 0, 0, 1, 1]),
        ("x,y,z\n1,2\n3,4\n5,6\n", [3, 0, 0, 3, 0]),
        ("a,b\n1,2\n1,2,3\n1,2\n1,2\n1,2\n", [2, 0, 0, 0, 1]),
        ("clean!\nid,of,name,size\n1,a,b,67\n2,3,c,n/a,x\n3,22,d,83\n4,,e,60\n5\n", [4, 1, 1, 0, 1]),
        // Too few rows are below a title.
        ("1\n2,3\n", [2, 0, 0, 1, 0]),
        ("1\n1,2\n1,2\n", [2, 0, 0, 1, 0]),
        ("Aldi,,\nLidl,3,4\nRewe,4,5\nSpar,5,6\n", [3, 0, 0, 0, 0]),
        // Of several tables, the largest.
        ("k,v\n1,2\n\na,b,c\n1,2,3\n4,5,6\n7,8,9\n1,2,3\n", [3, 2, 0, 0, 0]),
        // A first row that lacks fields, among others that do, is no title.
        ("a\n1,2,3\n1\n1,2\n1,2,3\n1,2,3\n", [3, 0, 0, 3, 0]),
    ] {
        assert_eq!(place(sample), expected, "{sample:?}");
    }
    assert_eq!(of("a,b\n1,2,\n3,4,\n"), r#""," " " trailing"#);
    assert_eq!(of("1|abc|\n2|def|\n3|ghi|\n"), r#""|" " " trailing"#);
    assert_eq!(of("a,b,\n1,2,\n3,4,5\n"), r#""," " ""#);
    let found = find("a,b\n\"x\ny\",2\n3\n");
    let odd: Vec<_> = found.odd.iter().map(|odd| (odd.line, odd.fields, odd.oddity)).collect();
    assert_eq!(odd, [(4, 1, Oddity::Behind)]);
}

#[test]
fn explicit_options_stay() {
    let colon = GivenOptions { delimiter: Some(Separator::byte(b':')), ..given() };
    assert_eq!(detect(b"a:b\n1:2\n", true, &colon).dialect.delimiter, b':');
    assert_eq!(detect(b"a,b\n1,2\n", true, &colon).dialect.delimiter, b':');
    let long = GivenOptions { delimiter: Separator::new(b"::"), ..given() };
    assert_eq!(detect(b"a::b\n1::2\n", true, &long).dialect.separator.bytes(), b"::");
    let text = GivenOptions { format: Some(Format::Text), ..given() };
    assert_eq!(detect(b"a,b\n1,2\n", true, &text).dialect.delimiter, b',');
    assert_eq!(detect(b"a,b\n1,2\n", true, &text).dialect.format, Format::Text);
    let null = GivenOptions { null: Some(b"NA".to_vec()), ..given() };
    assert_eq!(detect(b"a,b\n1,NA\n", true, &null).dialect.null, b"NA");
    // Also without quoted fields.
    let escape = GivenOptions { escape: Some(b'\\'), ..given() };
    assert_eq!(detect(b"a,b\n1,2\n", true, &escape).dialect.escape, b'\\');
    assert_eq!(detect(b"{\"a\": 1}\n{\"a\": 2}\n", true, &escape).dialect.escape, b'\\');
    let quote = GivenOptions { quote: Some(b'\''), ..given() };
    assert_eq!(detect(b"\"a\",\"b\"\n", true, &quote).dialect.quote, b'\'');
    let others = GivenOptions {
        skip_blank_lines: Some(false),
        comment: Some(b"%".to_vec()),
        lenient_quotes: Some(false),
        line_end: Some(Eol::CrNl),
        ..given()
    };
    let dialect = detect(b"a,b\r\n\r\n%\r\n\"x\"y,\"z\nz\"\r\n# 1\r\n", true, &others).dialect;
    assert!(!dialect.skip_blank_lines && !dialect.lenient_quotes);
    assert_eq!((dialect.comment.as_slice(), dialect.line_end), (&b"%"[..], Some(Eol::CrNl)));
}

proptest! {
    /// Without stray quotes, trials read the records that the reader of loads reads.
    #[test]
    fn trials_read_as_loads_do(parts in prop::collection::vec(0usize..9, 0..40), escape in 0usize..2, end in 0usize..3) {
        let end = ["\n", "\r\n", "\r"][end];
        let sample: String = parts.iter().map(|&part| ["a", ",", "\"", "\"\"", "\\\"", "\\\\", "b", end, ",\""][part]).collect();
        let escape = [b'"', b'\\'][escape];
        let separator = Separator::byte(b',');
        let syntax = Syntax {
            separator, quote: Some(b'"'), escape, ends: Ends::ANY, comment: Vec::new(), backslash: false, toggles: false,
        };
        let trial = Trial::whole_of(sample.as_bytes(), true, syntax);
        if trial.quotes.strays() + trial.quotes.padded == 0 && !trial.lost {
            let dialect = Dialect {
                format: Format::Csv, delimiter: b',', separator, quote: b'"', escape, null: Vec::new(), ..Dialect::lines(None)
            };
            let mut widths = Vec::new();
            let read = each_record(sample.as_bytes(), true, &dialect, |_, fields| {
                widths.push(fields);
                true
            });
            // Line ends within quotes differ from those of lines only if the first one is in quotes.
            prop_assert!(!read.failed, "{:?}", sample);
            let rows = trial.rows.iter().filter(|row| row.kind != Kind::Comment);
            prop_assert_eq!(rows.map(|row| row.width).collect::<Vec<_>>(), widths, "{:?}", sample);
        }
    }
}
