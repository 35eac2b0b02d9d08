//! Fuzz targets within a server: its own functions say what is right.
//!
//! libFuzzer runs in a backend, of a server in single-user mode, which calls it as an SQL function and never returns from it:
//! at the end of its time, or at an input that fails, libFuzzer ends the process, with its own status. So an input costs no
//! more than the calls that it is for, and the decoders and page builders that it reaches are what guides the next one.
//!
//! ```text
//! tools/fuzz input        decoders, and what the types' input functions return (input.rs)
//! tools/fuzz receive      those of binary fields, and receive functions (receive.rs)
//! tools/fuzz heapam       pages, and what verify_heapam says of them (heapam.rs)
//! ```
//!
//! Inputs are those of the targets outside of servers, `decode` and `page`, as far as there are such: what one finds is tried by the other.
//!
//! The tricky point is panics: pgrx makes one of each error of the server's, to be caught by whoever asked for it, and libFuzzer's crate
//! would abort at all of them. So only what is no error of the server's is told here, and aborts where nobody has caught it.

use std::ffi::{CString, c_char, c_int};
use std::panic;
use std::sync::OnceLock;

use pgrx::prelude::*;

mod heapam;
mod input;
mod receive;
#[path = "../../../src/pg/trial_input.rs"]
mod trial_input;
#[path = "../../../src/pg/compat/version.rs"]
#[allow(dead_code, reason = "what it says of other things than decoders")]
mod version;

pgrx::pg_module_magic!();

/// What is done with an input.
type Target = fn(&[u8]);

static TARGET: OnceLock<Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(init: tell_panics(), |input: &[u8]| if let Some(target) = TARGET.get() { target(input) });

fn tell_panics() {
    panic::set_hook(Box::new(|told| {
        if told.payload_as_str().is_some() {
            eprintln!("{told}");
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
    // SAFETY: libFuzzer's promise: so many bytes.
    unsafe { libfuzzer_sys::test_input_wrap(data, size) }
}

/// libFuzzer with one of the targets, and such arguments as its programs take. Ends the process.
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
    // SAFETY: arguments as a program has them, which are there for as long as it runs.
    unsafe { LLVMFuzzerRunDriver(&raw mut argc, &raw mut argv, test_one_input) }
}
