//! Calls a type's input or receive function for one field, for comparison with native decoders.
//!
//! Not in release builds. Tests of decoders in a server call it (decoding_trial.rs, receiving_trial.rs), and so do fuzz
//! targets, which include this file (fuzz/server). So it uses nothing of the project, only pgrx.

use std::ffi::{CStr, CString, c_char};
use std::panic::AssertUnwindSafe;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::pg_sys;
use pgrx::pg_sys::PgTryBuilder;

/// A type's input function, or its receive function.
pub struct Input {
    function: pg_sys::FmgrInfo,
    typioparam: pg_sys::Oid,
    typmod: i32,
    is_received: bool,
    length: i16,
    by_value: bool,
    /// Memory for the result of one call.
    memory: PgMemoryContexts,
}

impl Input {
    /// The input function of a type. Guarded.
    pub fn new(oid: pg_sys::Oid, typmod: i32) -> Input {
        Input::of(oid, typmod, false)
    }

    /// The receive function of a type. Guarded; raises an error if it has none.
    pub fn received(oid: pg_sys::Oid, typmod: i32) -> Input {
        Input::of(oid, typmod, true)
    }

    fn of(oid: pg_sys::Oid, typmod: i32, is_received: bool) -> Input {
        let (mut id, mut typioparam) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
        let mut function = pg_sys::FmgrInfo::default();
        let (mut length, mut by_value) = (0, false);
        let find = if is_received { pg_sys::getTypeBinaryInputInfo } else { pg_sys::getTypeInputInfo };
        // SAFETY: catalog lookups that fill their arguments.
        unsafe {
            find(oid, &raw mut id, &raw mut typioparam);
            pg_sys::fmgr_info(id, &raw mut function);
            pg_sys::get_typlenbyval(oid, &raw mut length, &raw mut by_value);
        }
        Input {
            function,
            typioparam,
            typmod,
            is_received,
            length,
            by_value,
            memory: PgMemoryContexts::new("decoding trial"),
        }
    }

    /// The bytes of a value. For a pass-by-value type, those of the datum.
    ///
    /// # Safety
    /// A value of this type.
    pub unsafe fn bytes(&self, datum: pg_sys::Datum) -> Vec<u8> {
        let length = usize::try_from(self.length).ok();
        match length {
            Some(length) if self.by_value => {
                // As store_att_byval writes them; all bytes must be as the DatumGet… and …GetDatum macros leave them.
                (datum.value() as u64).to_ne_bytes().into_iter().take(length.max(8)).collect()
            }
            // SAFETY: this function's contract covers the value; a varlena has its length in its header.
            _ => unsafe {
                let address = datum.cast_mut_ptr::<u8>();
                let length = match self.length {
                    -2 => CStr::from_ptr(address.cast()).to_bytes_with_nul().len(),
                    _ => length.unwrap_or_else(|| pgrx::varsize_any(address.cast())),
                };
                std::slice::from_raw_parts(address, length).to_vec()
            },
        }
    }

    /// Returns the bytes of the input function's result, or its error.
    pub fn read(&self, field: &[u8]) -> Result<Vec<u8>, String> {
        if self.is_received {
            return Err("a receive function".to_owned());
        }
        let text = CString::new(field).map_err(|_| "a NUL".to_owned())?;
        // SAFETY: the function gets a string; its result is copied before it is freed.
        self.call(|| unsafe {
            let text = text.as_ptr().cast_mut();
            let datum = pg_sys::InputFunctionCall(self.function(), text, self.typioparam, self.typmod);
            Ok(self.bytes(datum))
        })
    }

    /// Returns the bytes of the receive function's result, or its error. It must take all bytes.
    pub fn receive(&self, field: &[u8]) -> Result<Vec<u8>, String> {
        if !self.is_received {
            return Err("an input function".to_owned());
        }
        let len = i32::try_from(field.len()).map_err(|_| "too long".to_owned())?;
        let mut field = [field, &[0]].concat();
        let data = field.as_mut_ptr().cast::<c_char>();
        // SAFETY: the function gets a buffer that ends in a zero byte; its result is copied before it is freed.
        self.call(|| unsafe {
            let mut buffer = pg_sys::StringInfoData { data, len, maxlen: len + 1, cursor: 0 };
            let datum = pg_sys::ReceiveFunctionCall(self.function(), &raw mut buffer, self.typioparam, self.typmod);
            if buffer.cursor == buffer.len { Ok(self.bytes(datum)) } else { Err("bytes are left".to_owned()) }
        })
    }

    fn function(&self) -> *mut pg_sys::FmgrInfo {
        (&raw const self.function).cast_mut()
    }

    /// Call a function in memory that the next call frees. A server error becomes the result. The caller then ends the
    /// transaction, or the next call uses nothing that this one may have left open.
    fn call(&self, read: impl FnOnce() -> Result<Vec<u8>, String>) -> Result<Vec<u8>, String> {
        // SAFETY: this value owns the context, which has only the memory of the previous call; the context that was current
        // before.
        unsafe {
            pg_sys::MemoryContextReset(self.memory.value());
            let before = pg_sys::MemoryContextSwitchTo(self.memory.value());
            let read = PgTryBuilder::new(AssertUnwindSafe(read));
            let done = read.catch_others(|error| Err(format!("{error:?}"))).execute();
            pg_sys::MemoryContextSwitchTo(before);
            done
        }
    }
}
