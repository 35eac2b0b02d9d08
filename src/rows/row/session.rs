//! Decoders that follow the session's settings.
//!
//! A decoder is made for the current settings. Between two rows other code runs and may change settings: a trigger, or
//! the client that fetches from a cursor. So scans and buffered loads call [`Rows::follow_settings`] before each row,
//! and the call must be nearly free.

use pg_bulk_types::convert::Decoder;
use pgrx::pg_sys;

use super::Rows;
use crate::rows::column;

/// Settings of the session that decoders depend on, by pointer and number, so that they are cheap to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionMark {
    time_zone: *mut pg_sys::pg_tz,
    interval_style: i32,
}

impl SessionMark {
    #[inline(always)]
    pub(super) fn now() -> SessionMark {
        // SAFETY: reads two settings of this backend.
        unsafe { SessionMark { time_zone: pg_sys::session_timezone, interval_style: pg_sys::IntervalStyle } }
    }
}

impl Rows {
    /// Make the decoders again if TimeZone or IntervalStyle have changed since they were made. True in that case: rows
    /// are then no longer decoded together, until the caller asks for that again.
    #[inline]
    pub fn follow_settings(&mut self) -> bool {
        let now = SessionMark::now();
        let changed = now != self.values.session_mark;
        if changed {
            self.values.session_mark = now;
            let session = column::session(self.stream.charset());
            let known = self
                .layout
                .known
                .as_mut()
                .or_else(|| self.layout.first_header.as_mut().map(|first| &mut first.columns));
            let columns = self.layout.columns.iter_mut().chain(known.into_iter().flatten());
            for column in columns.filter(|column| !column.ignored && !column.input.is_receive) {
                column.decoder = Decoder::for_type(column.type_oid.to_u32(), column.input.typmod, &session);
            }
            (self.values.block, self.values.decoded) = (None, None);
        }
        changed
    }
}
