//! Wrappers of PostgreSQL's C functions, on which the rest of the extension is built.
//!
//! Rules of this folder:
//!
//! * **Two kinds of frames.** A *guarded* function has `#[pg_guard]`, or is called by one that has. It may own Rust
//!   values: an `ereport` in C code becomes a panic, unwinds the function, and is raised again at the guard. A *plain*
//!   function is an `extern "C-unwind"` callback, or is called by one outside any guard. C code that it calls may
//!   `longjmp` over it, so it owns nothing that has a destructor. Plain functions call C functions through
//!   [`unguarded`].
//! * User-defined code (input functions, default expressions, quals) is called from plain frames: its errors keep all
//!   their fields, and a row costs no `sigsetjmp`.
//! * After an error, nothing here depends on `Drop`: descriptors belong to the server's lists, and memory is freed by
//!   callbacks of memory contexts.
//! * All code that depends on the server version is in [`compat`].

pub mod attempt;
pub mod background;
pub mod buf_file;
pub mod build_id;
pub mod call;
pub mod callback;
pub mod changed;
pub mod column_set;
pub mod commit;
pub mod compat;
pub mod copy_errors;
pub mod custom_scan;
pub mod database;
pub mod elsewhere;
pub mod explain;
pub mod expression;
pub mod failure;
pub mod function;
pub mod handle;
pub mod holder;
pub mod icu_collator;
pub mod index_functions;
pub mod index_tuple;
pub mod jsonb;
pub mod lock;
pub mod locked_page;
pub mod look;
pub mod lookup;
pub mod memory_context;
pub mod node;
pub mod option_value;
pub mod original;
pub mod own_table;
pub mod owner;
pub mod plain_code;
pub mod planner;
pub mod points;
pub mod progress;
pub mod refusal;
pub mod relation;
pub mod result_relation;
pub mod role;
pub mod row_violation;
pub mod section;
pub mod sent;
pub mod sequence;
pub mod sequence_default;
pub mod server_text;
pub mod session_state;
pub mod shared_files;
pub mod shared_words;
pub mod slot;
pub mod spi;
pub mod sql_value;
pub mod stages;
pub mod statement;
pub mod team;
pub mod tuple_layout;
pub mod tuplestore;
pub mod unguarded;
pub mod usage;
pub mod user_code;
pub mod violation;
pub mod worker_errors;
