//! Errors, and the only place that passes them to `ereport`.
//!
//! Code below the callbacks returns `Result<_, Error>`; a callback raises it. An error has no CONTEXT lines: the
//! callbacks push an error context callback, as COPY does, and the server calls it (`rows::context`).

use std::backtrace::Backtrace;
use std::env;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode as Code};

/// An error to be raised or reported.
#[derive(Debug)]
pub struct Error {
    code: Code,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    /// The error is about one record, and the caller may continue with the next one.
    record: bool,
}

pub type Result<T> = std::result::Result<T, Error>;

/// Is this SQLSTATE, as a number, of class 22: a wrong format, or a bad value?
pub fn is_data_exception(code: i32) -> bool {
    // ERRCODE_TO_CATEGORY (utils/elog.h)
    code & 0xfff == Code::ERRCODE_DATA_EXCEPTION as i32
}

impl Error {
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), detail: None, hint: None, record: false }
    }

    /// Marks the error as one about a single record, after which the caller may continue.
    pub fn about_record(mut self) -> Error {
        self.record = true;
        self
    }

    pub fn is_about_record(&self) -> bool {
        self.record
    }

    pub fn sqlstate(&self) -> Code {
        self.code
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn code(mut self, code: Code) -> Error {
        self.code = code;
        self
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Error {
        self.detail = Some(detail.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// `message` followed by ": " and the words for `error`, with the SQLSTATE of `errcode_for_file_access`.
    pub fn file_access(message: &str, error: &std::io::Error) -> Error {
        let code = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES | libc::EROFS) => Code::ERRCODE_INSUFFICIENT_PRIVILEGE,
            Some(libc::ENOENT) => Code::ERRCODE_UNDEFINED_FILE,
            Some(libc::EEXIST) => Code::ERRCODE_DUPLICATE_FILE,
            Some(libc::ENOTDIR | libc::EISDIR | libc::ENOTEMPTY) => Code::ERRCODE_WRONG_OBJECT_TYPE,
            Some(libc::ENOSPC) => Code::ERRCODE_DISK_FULL,
            Some(libc::ENFILE | libc::EMFILE) => Code::ERRCODE_INSUFFICIENT_RESOURCES,
            Some(libc::EIO) => Code::ERRCODE_IO_ERROR,
            _ => Code::ERRCODE_INTERNAL_ERROR,
        };
        // std appends the number to strerror's words; core does not.
        let words = error.to_string();
        let words = words.split(" (os error").next().unwrap_or_default();
        Error::new(code, format!("{message}: {words}"))
    }

    /// Reports it as a PANIC, which stops the server.
    pub fn raise_panic(self) {
        ErrorReport::new(self.code, self.message, "pg_bulk").report(PgLogLevel::PANIC);
    }

    /// Reports it as a WARNING. Guarded.
    pub fn warn(self) {
        self.report(PgLogLevel::WARNING);
    }

    /// Reports it as a NOTICE. Guarded.
    pub fn notice(self) {
        self.report(PgLogLevel::NOTICE);
    }

    /// Raises it. Rust frames up to the guard are unwound.
    #[expect(clippy::unreachable, reason = "the server does not come back from it")]
    pub fn raise(self) -> ! {
        self.report(PgLogLevel::ERROR);
        unreachable!("an ERROR does not return")
    }

    fn report(self, level: PgLogLevel) {
        let mut report = ErrorReport::new(self.code, self.message, "pg_bulk");
        if let Some(detail) = self.detail {
            report = report.set_detail(detail);
        }
        if let Some(hint) = self.hint {
            report = report.set_hint(hint);
        }
        report.report(level);
    }
}

/// Returns the value, or raises the error.
pub trait OrRaise<T> {
    fn or_raise(self) -> T;
}

impl<T> OrRaise<T> for Result<T> {
    #[inline]
    fn or_raise(self) -> T {
        match self {
            Ok(value) => value,
            Err(error) => error.raise(),
        }
    }
}

/// Out of memory for a record.
pub fn out_of_memory() -> Error {
    Error::new(Code::ERRCODE_OUT_OF_MEMORY, "out of memory")
}

/// This variable has precedence over RUST_BACKTRACE.
const VARIABLE: &str = "RUST_LIB_BACKTRACE";

/// Keeps backtraces out of messages. pgrx appends one to the DETAIL of an error that passes one of its guards, if
/// RUST_BACKTRACE or RUST_LIB_BACKTRACE is set in the server's environment. A client cannot use a backtrace, which also
/// shows addresses of the server's process.
///
/// The standard library reads these variables when the first backtrace is captured, and remembers the answer. So this
/// function captures one while RUST_LIB_BACKTRACE is 0, and then restores the environment. Programs that the server
/// starts find the original variables. So do other libraries in Rust: each has a standard library of its own.
///
/// Called when the library is loaded, before anything can fail. Background workers and parallel
/// workers load the library, too, or are forked from a postmaster that has loaded it.
pub fn forbid_backtraces() {
    let before = env::var_os(VARIABLE);
    let is_set = before.is_some() || env::var_os("RUST_BACKTRACE").is_some();
    if is_set {
        // SAFETY: no other thread reads the environment now. A server process loads libraries in its only thread, and
        // sets variables itself when a session begins (pg_perm_setlocale, pg_locale.c). Loads start the threads of this
        // library later.
        unsafe { env::set_var(VARIABLE, "0") };
    }
    drop(Backtrace::capture());
    if is_set {
        // SAFETY: as above.
        unsafe {
            match before {
                Some(value) => env::set_var(VARIABLE, value),
                None => env::remove_var(VARIABLE),
            }
        }
    }
}
