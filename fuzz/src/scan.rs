//! The results of the kernels at each level, compared with the scalar level, and the survey of a range, compared with
//! the search through all of its bytes.
//!
//! [`super::reader`] tests the reader, which rarely passes unusual bytes to the kernels. Here they get any bytes.

use pg_bulk_text::chunk::BLOCK;
use pg_bulk_text::dialect::Eol;
use pg_bulk_text::scan::{Batch, Carry, CutState, Level, Needles, Scanner};

use super::reader::{chosen, dialect};

/// Length of the head, in bytes.
pub const HEAD: usize = 8;

/// Splits, counts and cuts one input. Dialects without kernels are skipped.
pub fn run(input: &[u8]) {
    let Some((&[flags, delimiter, quote, escape, markers, eol, blocks, fields], data)) =
        input.split_first_chunk::<HEAD>()
    else {
        return;
    };
    let Some(dialect) = dialect([flags, delimiter, quote, escape, markers]) else { return };
    let Some(needles) = Needles::new(&dialect, chosen(&[Eol::Nl, Eol::CrNl, Eol::Cr], eol)) else { return };
    let fields = 1 + usize::from(fields) % 66;
    let scalar = Scanner::new(needles, Level::Scalar);
    let (tally, batch) = (scalar.tally(data, 0, fields), split(&scalar, data));
    let ranges = || data.chunks(BLOCK * (1 + usize::from(blocks) % 8));
    let cuts = cuts(&scalar, ranges());
    for level in Level::available() {
        let scanner = Scanner::new(needles, level);
        assert_eq!(scanner.tally(data, 0, fields), tally, "{level:?}, {fields} fields, {dialect:?}");
        assert_eq!(split(&scanner, data), batch, "{level:?}, {dialect:?}");
        assert_eq!(self::cuts(&scanner, ranges()), cuts, "{level:?}, {dialect:?}");
    }
}

/// Ends of the fields and records of a batch, the start of the next record, and whether that record is odd.
type Split = (Vec<u32>, Vec<(u32, u32)>, usize, bool);

fn split(scanner: &Scanner, data: &[u8]) -> Vec<Split> {
    let mut batches = Vec::new();
    // Small, so that a file takes several.
    let mut batch = Batch::new(64, 64);
    let mut from = 0;
    loop {
        scanner.split(data, from, &mut batch);
        let records: Vec<_> = batch.records[..batch.len].iter().map(|end| (end.fields, end.next)).collect();
        let fields = records.last().map_or(0, |&(fields, _)| fields as usize);
        assert!(batch.resume >= from && batch.resume <= data.len(), "from {from} to {}", batch.resume);
        assert!(records.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1), "in order");
        batches.push((batch.ends[..fields].to_vec(), records, batch.resume, batch.odd));
        if batch.odd || batch.resume == from {
            return batches;
        }
        from = batch.resume;
    }
}

/// Cuts each range, behind the bytes before it, and alone.
fn cuts<'a>(scanner: &Scanner, ranges: impl Iterator<Item = &'a [u8]>) -> Vec<CutState> {
    let mut cuts = Vec::new();
    let mut carry = Carry::default();
    for range in ranges {
        let survey = scanner.survey(range);
        assert_eq!(scanner.is_plain(&survey), range.iter().all(|byte| (1..128).contains(byte)));
        assert!(scanner.has_backslash(&survey) || !range.contains(&b'\\'));
        for before in [Carry::default(), carry] {
            let mut state = CutState::behind(before);
            scanner.cut(range, &mut state);
            assert_eq!(scanner.cut_surveyed(range, &survey, before), state, "behind {before:?}");
            cuts.push(state);
            carry = state.carry();
        }
    }
    cuts
}
