//! The load that an INSERT is.

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{pg_guard, pg_sys};

use super::insertion::Insertion;
use crate::error::OrRaise;
use crate::guc::{self, DirectInsert};
use crate::load::direct::{Nodes, Statement};
use crate::load::options::LoadOptions;
use crate::load::target::{Kind, Target};
use crate::load::{Load, Writer, direct, finish, load_context, memory_context, source, summary, write};
use crate::pg::source::Location;

/// What has become of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    pub rows: u64,
    pub filtered: u64,
    pub rejected: u64,
    pub bytes: u64,
    pub pages: u64,
    pub workers: usize,
    /// The table was empty, and nobody else could use it meanwhile.
    pub exclusively: bool,
}

/// Do it.
///
/// # Safety
/// A plain frame, in the execution of the statement, or of one that creates the table; tables are locked, and it has been
/// judged. `nodes` make rows of the target, if they are not stored as they are; `statement` is what the executor knows of an
/// INSERT.
pub unsafe fn run(
    insertion: *const Insertion,
    nodes: *const Nodes,
    statement: Option<Statement>,
    outcome: *mut Outcome,
) {
    // SAFETY: the caller vouches for the insertion; the load is used by one step at a time.
    unsafe {
        let caller = pg_sys::CurrentMemoryContext;
        let load = begin(insertion);
        (*load).statement = statement;
        pg_sys::CurrentMemoryContext = (*load).memory;
        open(load, insertion, nodes);
        (*outcome).exclusively = renew(load);
        let mut context = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(load_context),
            arg: load.cast(),
        };
        pg_sys::error_context_stack = &raw mut context;
        write(load.cast());
        pg_sys::error_context_stack = context.previous;
        finish(load);
        pg_sys::CurrentMemoryContext = caller;
        end(load, outcome);
    }
}

/// # Safety
/// As [`run`].
#[pg_guard]
unsafe extern "C-unwind" fn begin(insertion: *const Insertion) -> *mut Load {
    // SAFETY: the caller vouches for the insertion. The load is dropped with its memory context.
    unsafe {
        let insertion = &*insertion;
        let options = LoadOptions::of_foreign_table(insertion.foreign).or_raise();
        let path = match &options.location {
            Location::File(path) | Location::Program(path) => path.clone(),
        };
        let mut target = Target::open(insertion.target, &options).or_raise();
        target.close();
        let memory = memory_context();
        let load = Load { writer: Writer::Direct, ..Load::new(options, path, target, memory) };
        PgMemoryContexts::For(memory).leak_and_drop_on_delete(load)
    }
}

/// # Safety
/// As [`run`], with a load that has begun and whose memory context is current.
#[pg_guard]
unsafe extern "C-unwind" fn open(load: *mut Load, insertion: *const Insertion, nodes: *const Nodes) {
    // SAFETY: the caller vouches for all of them; guarded calls on a table that is locked.
    unsafe {
        let (load, insertion) = (&mut *load, &*insertion);
        load.target.reopen();
        let no_lock = pg_sys::NoLock.cast_signed();
        let foreign = pg_sys::table_open(insertion.foreign, no_lock);
        load.mapping = insertion.mapping(foreign);
        pg_sys::table_close(foreign, no_lock);
        load.projection = nodes.as_ref().copied();
        if let Some(nodes) = load.projection {
            nodes.complete(&mut load.mapping);
        }
        load.rows = Some(source::open_rows(load.target.relation, &load.options, Some(&load.mapping)).or_raise());
        load.begin_rows();
    }
}

/// Give an empty table a new file, as a call of bulk_load would, if that is asked for.
///
/// # Safety
/// As [`run`], with a load whose table and file are open.
#[pg_guard]
unsafe extern "C-unwind" fn renew(load: *mut Load) -> bool {
    // SAFETY: the caller vouches for it; nobody but the load and its statement refers to the table, or it is left alone.
    unsafe {
        let load = &mut *load;
        let size = load.rows.as_ref().and_then(|rows| rows.stream().size());
        guc::direct_insert() == DirectInsert::Exclusive
            && load.target.kind == Kind::Plain
            && size.unwrap_or(0) >= direct::WORTH_EXCLUSIVE
            && direct::renew(load.target.relation, 1 + i32::from(load.statement.is_some())).or_raise()
    }
}

/// # Safety
/// As [`run`], with a load that is done. The current memory context is not the load's.
#[pg_guard]
unsafe extern "C-unwind" fn end(load: *mut Load, outcome: *mut Outcome) {
    // SAFETY: the caller vouches for both; deleting the context drops the load.
    unsafe {
        {
            let load = &mut *load;
            let counts = &load.counts;
            *outcome = Outcome {
                rows: counts.loaded,
                filtered: counts.filtered,
                rejected: counts.rejected,
                bytes: counts.bytes_read,
                pages: counts.pages,
                workers: counts.workers,
                exclusively: (*outcome).exclusively,
            };
            load.took = load.began.elapsed();
            if guc::log_timing() {
                summary::log(load);
            }
        }
        pg_sys::MemoryContextDelete((*load).memory);
    }
}
