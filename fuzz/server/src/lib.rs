//! Fuzz targets that run within a server and compare results with the server's own functions.
//!
//! libFuzzer runs in the backend of a server in single-user mode, which calls it as an SQL function. It never returns:
//! at the end of its time, or at an input that fails, libFuzzer ends the process with its own exit status. So an input
//! costs only the function calls under test, and coverage of the decoders and page builders guides libFuzzer's choice
//! of inputs.
//!
//! ```text
//! tools/fuzz input        decoders of text fields, and the types' input functions (input.rs)
//! tools/fuzz receive      decoders of binary fields, and receive functions (receive.rs)
//! tools/fuzz heapam       pages, checked by verify_heapam (heapam.rs)
//! ```
//!
//! Inputs of `input` and `heapam` have the form of those of the targets `decode` and `page`, which run without a
//! server. An input that one target finds is also run by the other.
//!
//! The tricky point is panics. pgrx turns each error of the server into a panic, which the caller catches, but
//! libFuzzer's crate would abort at each panic. So the hook here only reports panics that are not errors of the server.
//! An uncaught one aborts.

use std::ffi::{CString, c_char, c_int};
use std::panic;
use std::sync::OnceLock;

use pgrx::prelude::*;

mod heapam;
mod input;
mod receive;
#[path = "../../../src/rows/trial_input.rs"]
mod trial_input;
#[path = "../../../src/server/compat/version.rs"]
#[allow(dead_code, reason = "what it says of other things than decoders")]
mod version;

pgrx::pg_module_magic!();

/// Runs one input.
type Target = fn(&[u8]);

static TARGET: OnceLock<Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(init: report_panics(), |input: &[u8]| if let Some(target) = TARGET.get() { target(input) });

fn report_panics() {
    panic::set_hook(Box::new(|panic| {
        if panic.payload_as_str().is_some() {
            eprintln!("{panic}");
        }
    }));
}

unsafe extern "C" {
    // FuzzerInterface.h
    fn LLVMFuzzerRunDriver(
        argc: *mut c_int,
        argv: *mut *mut *mut c_char,
        target: unsafe extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
}

unsafe extern "C" fn test_one_input(data: *const u8, size: usize) -> c_int {
    // SAFETY: libFuzzer's contract: `data` points to `size` bytes.
    unsafe { libfuzzer_sys::test_input_wrap(data, size) }
}

/// Runs libFuzzer with one of the targets and the arguments of its command line. Ends the process.
#[pg_extern]
fn fuzz(target: &str, arguments: Vec<String>) -> i32 {
    let target: Target = match target {
        "heapam" => heapam::run,
        "input" => input::run,
        "receive" => receive::run,
        _ => error!("there is no target {target}"),
    };
    TARGET.get_or_init(|| target);
    let arguments = std::iter::once("fuzz".to_owned()).chain(arguments);
    let arguments: Vec<CString> = arguments.filter_map(|argument| CString::new(argument).ok()).collect();
    let mut pointers: Vec<*mut c_char> = arguments.iter().map(|argument| argument.as_ptr().cast_mut()).collect();
    let mut argc = pointers.len() as c_int;
    pointers.push(std::ptr::null_mut());
    let mut argv = pointers.as_mut_ptr();
    // SAFETY: arguments as of a program's main function; they live until the process ends.
    unsafe { LLVMFuzzerRunDriver(&raw mut argc, &raw mut argv, test_one_input) }
}
