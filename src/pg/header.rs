//! Header lines: whether they name the columns, or what they name.

use pg_bulk_format::reader::Value;

use super::encoding::verify_in_server_encoding;
use super::row::Rows;
use super::stream::Advance;
use crate::error::{self, Result};

impl Rows {
    /// `HEADER MATCH`.
    pub(super) fn check_header(&mut self) -> Result<()> {
        if !self.match_header {
            return Ok(());
        }
        if !self.reader().dialect().is_csv() && self.reader().record().has_escapes() {
            self.check_escapes()?;
        }
        let reader = &self.stream.reader;
        // A table without columns has lines without fields.
        let fields = if self.columns.is_empty() && reader.raw_line() == Some(&[]) { 0 } else { reader.fields() };
        if self.columns.is_empty() && fields > 0 {
            return Err(error::extra_data());
        }
        if fields != self.columns.len() {
            return Err(error::header_fields(fields, self.columns.len()));
        }
        for (i, column) in self.columns.iter().enumerate() {
            self.unescaped.clear();
            let name = match reader.value(i) {
                Value::Null | Value::Default => {
                    let null = String::from_utf8_lossy(&reader.dialect().null).into_owned();
                    let got = format!("null value (\"{null}\")");
                    return Err(error::header_mismatch(i + 1, &got, &column.display_name()));
                }
                Value::Plain(name) => name,
                Value::Escaped(raw) => {
                    reader.unescape(raw, &mut self.unescaped);
                    &self.unescaped
                }
            };
            if name != column.name.as_bytes() {
                let got = format!("\"{}\"", String::from_utf8_lossy(name));
                return Err(error::header_mismatch(i + 1, &got, &column.display_name()));
            }
        }
        Ok(())
    }

    /// The fields of the first header line; None if the file ends before. To be called before the first
    /// [`Rows::advance`], of a stream whose header's fields are wanted; the columns may be unknown yet. A field that is
    /// the NULL marker has no name. Guarded.
    pub fn header_names(&mut self) -> Result<Option<Vec<Option<Vec<u8>>>>> {
        if self.stream.advance()? != Advance::Header {
            return Ok(None);
        }
        let reader = &self.stream.reader;
        let mut names = Vec::with_capacity(reader.fields());
        for i in 0..reader.fields() {
            names.push(match reader.value(i) {
                Value::Null | Value::Default => None,
                Value::Plain(name) => Some(name.to_vec()),
                Value::Escaped(raw) => {
                    self.unescaped.clear();
                    if reader.unescape(raw, &mut self.unescaped) {
                        verify_in_server_encoding(&self.unescaped);
                    }
                    Some(self.unescaped.clone())
                }
            });
        }
        Ok(Some(names))
    }
}
