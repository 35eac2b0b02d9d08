//! Fills columns that have no field of the record.
//!
//! They follow the columns with fields. Their [`Taken`] gives the value: a part of the line, the file's name or a part
//! of it, the line number, a default, or NULL. A column whose field is missing at the record's end is filled here too.
//!
//! Values that are text are handled like fields: by the native decoder, or by the queue if it cannot convert them.

use super::queue::What;
use super::{RowArrays, Rows};
use crate::rows::column::Taken;
use crate::rows::line_parts::LineParts;
use crate::rows::objects::Given;
use crate::rows::ragged::ShortRows;

impl Rows {
    /// Fill columns whose fields the record lacks, where a record may lack them: with the default, or NULL.
    #[cold]
    pub fn fill(&mut self, wanted: &[usize], arrays: RowArrays<'_>) {
        if self.is_short() {
            return;
        }
        let fields = self.layout.fields;
        for &i in wanted.iter().take_while(|&&i| i < fields) {
            let Some(column) = self.layout.columns.get(i) else { break };
            if column.default.is_some() && self.layout.short_rows != ShortRows::Null {
                self.values.push(i, What::Default);
            } else {
                self.values.set_null(i, column, arrays);
            }
        }
    }

    /// Fill the columns without a field.
    #[inline(never)]
    pub fn take_others(&mut self, wanted: &[usize], arrays: RowArrays<'_>) {
        let fields = self.layout.fields;
        if let Some(remark) = self.layout.parts.as_ref().and_then(LineParts::remark) {
            self.remark_once(remark);
        }
        for &i in wanted.iter().filter(|&&i| i >= fields) {
            let Some(column) = self.layout.columns.get(i) else { break };
            let start = self.values.strings.len();
            match column.taken {
                Taken::Field => continue,
                Taken::Part if self.layout.binary.is_some() => {
                    self.decode_field(i, arrays);
                    continue;
                }
                Taken::Part => {
                    let line = self.stream.reader.raw_line().unwrap_or_default();
                    let given = self.layout.parts.as_mut().map_or(Given::Null, |parts| parts.value(i, line));
                    match given {
                        Given::Missing if column.default.is_some() => self.values.push(i, What::Default),
                        Given::Missing | Given::Null => self.values.set_null(i, column, arrays),
                        Given::Value(value) if column.refinement.is_some() => {
                            self.values.strings.extend_from_slice(value);
                            self.values.convert_refined(i, column, start, arrays);
                        }
                        Given::Value(value) => self.values.convert(i, column, Some(value), start, arrays),
                    }
                    continue;
                }
                Taken::FileName => self.values.strings.extend_from_slice(&self.file_name),
                Taken::Hive => match self.layout.directories.value(i) {
                    Some(value) => self.values.strings.extend_from_slice(value),
                    None => {
                        self.values.set_null(i, column, arrays);
                        continue;
                    }
                },
                Taken::LineNumber => {
                    self.stream.reader.store_line_number();
                    self.values.strings.extend(self.stream.reader.line_number().to_string().into_bytes());
                }
                Taken::Default => {
                    self.values.push(i, What::Default);
                    continue;
                }
                Taken::Null => {
                    self.values.set_null(i, column, arrays);
                    continue;
                }
            }
            self.values.convert(i, column, None, start, arrays);
        }
    }
}
