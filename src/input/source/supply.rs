//! Bytes that are in the database, not in a file: a value of type bytea, or a large object.
//!
//! There is no descriptor. Compressed bytes are decompressed in the reading process, like a program's output, and only
//! one process reads. A large object is read in portions by the server's own function, which checks privileges
//! (`lo_get`). All portions are read in the snapshot of the moment when it was opened, so concurrent changes have no
//! effect.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::rc::Rc;

use pgrx::{check_for_interrupts, pg_sys};

use crate::error::Result;
use crate::server::role::require_execute;

/// lo_get(oid, bigint, integer) (pg_proc.dat)
const LO_GET: u32 = 3459;

/// The bytes of a value, which must stay in place while they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(&'static [u8]);

impl Bytes {
    /// No bytes.
    pub const NONE: Bytes = Bytes(&[]);

    /// The bytes of a datum. Guarded; allocates in the current memory context.
    ///
    /// # Safety
    /// A datum of type bytea. It and the current memory context outlive the result.
    pub unsafe fn of_datum(value: pg_sys::Datum) -> Bytes {
        // SAFETY: the datum is a bytea; once detoasted, its header has its length.
        unsafe {
            let value = pg_sys::pg_detoast_datum_packed(value.cast_mut_ptr());
            Bytes(std::slice::from_raw_parts(pgrx::vardata_any(value).cast(), pgrx::varsize_any_exhdr(value)))
        }
    }
}

/// A large object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargeObject {
    oid: pg_sys::Oid,
    name: CString,
}

impl LargeObject {
    pub fn new(oid: pg_sys::Oid) -> LargeObject {
        let name = CString::new(format!("large object {}", oid.to_u32())).unwrap_or_default();
        LargeObject { oid, name }
    }

    /// Its name in messages.
    pub fn name(&self) -> &CStr {
        &self.name
    }

    /// Raise the server's error if it does not exist or the current user may not read it. Guarded.
    pub fn check(&self) {
        // OidFunctionCall does not check the privilege to execute the function.
        require_execute(LO_GET.into(), pg_sys::ObjectType::OBJECT_FUNCTION);
        portion(self.oid, 0, None, &mut []);
    }
}

/// Read bytes of a large object from a position on, in this snapshot or in the active one. Returns their number. Guarded.
fn portion(object: pg_sys::Oid, position: u64, snapshot: Option<pg_sys::Snapshot>, buffer: &mut [u8]) -> usize {
    let position = i64::try_from(position).unwrap_or(i64::MAX);
    let count = i32::try_from(buffer.len()).unwrap_or(i32::MAX);
    // SAFETY: guarded calls of a built-in function, with arguments of its declared types. `Supply::of_object` took the
    // snapshot, which is still active. The value is valid until it is freed, and is no longer than was requested.
    unsafe {
        let arguments = [pg_sys::Datum::from(object), pg_sys::Datum::from(position), pg_sys::Datum::from(count)];
        let [object, position, count] = arguments;
        let no_collation = pg_sys::InvalidOid;
        if let Some(snapshot) = snapshot {
            pg_sys::PushActiveSnapshot(snapshot);
        }
        let value = pg_sys::OidFunctionCall3Coll(LO_GET.into(), no_collation, object, position, count);
        if snapshot.is_some() {
            pg_sys::PopActiveSnapshot();
        }
        let value = value.cast_mut_ptr::<pg_sys::varlena>();
        let count = pgrx::varsize_any_exhdr(value).min(buffer.len());
        buffer.as_mut_ptr().copy_from_nonoverlapping(pgrx::vardata_any(value).cast(), count);
        pg_sys::pfree(value.cast());
        count
    }
}

/// Where the bytes are.
#[derive(Debug, Clone, Copy)]
enum Of {
    Value(Bytes),
    /// A large object in a snapshot.
    Object(pg_sys::Oid, pg_sys::Snapshot),
}

/// Bytes with one position, which all copies of the struct share.
#[derive(Debug, Clone)]
pub struct Supply {
    of: Of,
    position: Rc<Cell<u64>>,
}

impl Supply {
    pub fn of_bytes(bytes: Bytes) -> Supply {
        Supply { of: Of::Value(bytes), position: Rc::default() }
    }

    /// Read a large object as it is now. Guarded; the active snapshot must stay active as long as bytes are read.
    pub fn of_object(object: &LargeObject) -> Supply {
        object.check();
        // SAFETY: a guarded call.
        let snapshot = unsafe { pg_sys::GetActiveSnapshot() };
        Supply { of: Of::Object(object.oid, snapshot), position: Rc::default() }
    }

    /// Go back to the first byte.
    pub fn rewind(&self) {
        self.position.set(0);
    }

    /// Read the next bytes; none at the end. Guarded, and interruptible.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        check_for_interrupts!();
        let position = self.position.get();
        let count = match self.of {
            Of::Value(Bytes(bytes)) => {
                let from = usize::try_from(position).unwrap_or(usize::MAX);
                let left = bytes.get(from..).unwrap_or_default();
                let count = left.len().min(buffer.len());
                buffer.iter_mut().zip(left).for_each(|(to, from)| *to = *from);
                count
            }
            Of::Object(object, snapshot) => portion(object, position, Some(snapshot), buffer),
        };
        self.position.set(position + count as u64);
        Ok(count)
    }
}
