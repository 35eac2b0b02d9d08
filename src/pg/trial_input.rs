//! What a type's input function, or its receive function, makes of one field: what native decoders are compared with.
//!
//! Not in releases. Decoders on trial call it in a server of the tests (decoding_trial.rs, receiving_trial.rs), and so do
//! fuzz targets, which include this file (fuzz/server): it knows no more of the project than pgrx.

use std::ffi::{CString, c_char};
use std::panic::AssertUnwindSafe;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::pg_sys;
use pgrx::pg_sys::PgTryBuilder;

/// A type's input function, or the one that receives.
pub struct Input {
    function: pg_sys::FmgrInfo,
    typioparam: pg_sys::Oid,
    typmod: i32,
    length: i16,
    by_value: bool,
    /// For what it makes of one field.
    memory: PgMemoryContexts,
}

impl Input {
    /// # Safety
    /// Guarded; a type that is there.
    pub unsafe fn new(oid: pg_sys::Oid, typmod: i32) -> Input {
        let (mut id, mut typioparam) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
        // SAFETY: a catalog lookup that fills what it is given.
        unsafe { pg_sys::getTypeInputInfo(oid, &raw mut id, &raw mut typioparam) };
        // SAFETY: its function.
        unsafe { Input::of(oid, typmod, id, typioparam) }
    }

    /// # Safety
    /// Guarded; a type that is there, and has a receive function.
    pub unsafe fn received(oid: pg_sys::Oid, typmod: i32) -> Input {
        let (mut id, mut typioparam) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
        // SAFETY: a catalog lookup that fills what it is given.
        unsafe { pg_sys::getTypeBinaryInputInfo(oid, &raw mut id, &raw mut typioparam) };
        // SAFETY: its function.
        unsafe { Input::of(oid, typmod, id, typioparam) }
    }

    /// # Safety
    /// Guarded; a type that is there, and a function of it.
    unsafe fn of(oid: pg_sys::Oid, typmod: i32, id: pg_sys::Oid, typioparam: pg_sys::Oid) -> Input {
        let mut function = pg_sys::FmgrInfo::default();
        let (mut length, mut by_value) = (0, false);
        // SAFETY: catalog lookups that fill what they are given.
        unsafe {
            pg_sys::fmgr_info(id, &raw mut function);
            pg_sys::get_typlenbyval(oid, &raw mut length, &raw mut by_value);
        }
        Input { function, typioparam, typmod, length, by_value, memory: PgMemoryContexts::new("decoding trial") }
    }

    /// The bytes of a value. Those of one by value are what the server looks at.
    ///
    /// # Safety
    /// A value of this type.
    pub unsafe fn bytes(&self, datum: pg_sys::Datum) -> Vec<u8> {
        let length = usize::try_from(self.length).ok();
        match length {
            Some(length) if self.by_value => {
                // As store_att_byval writes it; all of it must be as DatumGet… and …GetDatum leave it.
                (datum.value() as u64).to_ne_bytes().into_iter().take(length.max(8)).collect()
            }
            // SAFETY: this function's contract covers the value; a varlena says how long it is.
            _ => unsafe {
                let address = datum.cast_mut_ptr::<u8>();
                let length = length.unwrap_or_else(|| pgrx::varsize_any(address.cast()));
                std::slice::from_raw_parts(address, length).to_vec()
            },
        }
    }

    /// What the input function makes of a field, or says of it.
    pub fn read(&self, field: &[u8]) -> Result<Vec<u8>, String> {
        let text = CString::new(field).map_err(|_| "a NUL".to_owned())?;
        // SAFETY: the function gets a string; what it returns is copied before it goes.
        self.call(|| unsafe {
            let text = text.as_ptr().cast_mut();
            let datum = pg_sys::InputFunctionCall(self.function(), text, self.typioparam, self.typmod);
            Ok(self.bytes(datum))
        })
    }

    /// What the receive function makes of a field, which it must take all of, or says of it.
    pub fn receive(&self, field: &[u8]) -> Result<Vec<u8>, String> {
        let len = i32::try_from(field.len()).map_err(|_| "too long".to_owned())?;
        let mut field = [field, &[0]].concat();
        let data = field.as_mut_ptr().cast::<c_char>();
        // SAFETY: the function gets a buffer that ends in a zero byte; what it returns is copied before it goes.
        self.call(|| unsafe {
            let mut buffer = pg_sys::StringInfoData { data, len, maxlen: len + 1, cursor: 0 };
            let datum = pg_sys::ReceiveFunctionCall(self.function(), &raw mut buffer, self.typioparam, self.typmod);
            if buffer.cursor == buffer.len { Ok(self.bytes(datum)) } else { Err("bytes are left".to_owned()) }
        })
    }

    fn function(&self) -> *mut pg_sys::FmgrInfo {
        (&raw const self.function).cast_mut()
    }

    /// With memory that goes with the next call. An error of the server's is what the function says; the transaction ends, or
    /// the next call needs nothing that this one has left open.
    fn call(&self, read: impl FnOnce() -> Result<Vec<u8>, String>) -> Result<Vec<u8>, String> {
        // SAFETY: a context of ours, which nobody has put anything into but the call before.
        let before = unsafe {
            pg_sys::MemoryContextReset(self.memory.value());
            pg_sys::MemoryContextSwitchTo(self.memory.value())
        };
        let done = PgTryBuilder::new(AssertUnwindSafe(read)).catch_others(|error| Err(format!("{error:?}"))).execute();
        // SAFETY: the context that was there before.
        unsafe { pg_sys::MemoryContextSwitchTo(before) };
        done
    }
}
