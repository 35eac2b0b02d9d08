//! The loop over rows, in each process of a load.
//!
//! ```text
//!   chunk ─► advance ─► decode ─┬─────────────────────────────────────────────────► tuple ─► page ─► append
//!                               └─► input functions ─► projection ─► defaults ─► where ─► leaf ─► generated, checks ─┘
//!                                   (plain frame)
//! ```
//!
//! [`run`] is a plain frame. It calls user-defined code (input functions, defaults, the condition, constraints), whose
//! errors keep all their fields. Rows without user-defined code stay within [`step`], which takes many rows in one
//! guard.
//!
//! The steps for each row are in the order of CopyFrom (copyfrom.c).

mod pulled;

use pg_bulk_format::tuple::Unfit;
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use self::pulled::{fetch, next_of_join, next_of_query};
use super::defaults::Default;
use super::key_check::{self, CheckedTable};
use super::process::project;
use super::process::{END, InBlock, Process, ROW, SHORT};
use crate::error::{self, Error, OrRaise};
use crate::load::rejects::Complaint;
use crate::pg::attempt::attempt;
use crate::pg::row::{RowArrays, Rows};
use crate::pg::row_violation::{RowViolation, set_checking};
use crate::pg::stages::Stage;
use crate::pg::unguarded::{self, Opaque};
use crate::pg::{compat, original};
use crate::program::projection::{self, Made};

/// Rows whose memory is reset together.
const TOGETHER: u32 = 16;

/// # Safety
/// A valid process that is not in use elsewhere.
#[pg_guard]
unsafe extern "C-unwind" fn step(process: *mut Process) -> i32 {
    // SAFETY: this function's contract covers the argument.
    unsafe { &mut *process }.advance().or_raise()
}

/// # Safety
/// See [`step`].
#[pg_guard]
unsafe extern "C-unwind" fn raise_missing(process: *mut Process) {
    // SAFETY: this function's contract covers the argument.
    unsafe { &mut (*process).rows }.check_missing().or_raise();
}

/// Puts the row in the slot into the heap of a result relation.
///
/// # Safety
/// See [`step`]; the slot fits the result relation.
#[pg_guard]
unsafe extern "C-unwind" fn store(
    process: *mut Process,
    relinfo: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
) {
    // SAFETY: this function's contract covers the argument.
    let process = unsafe { &mut *process };
    if process.last_leaf.0 != relinfo {
        // SAFETY: as above.
        let relation = unsafe { (*relinfo).ri_RelationDesc };
        process.last_leaf = (relinfo, process.open_heap(relation).or_raise());
    }
    // SAFETY: a slot with the leaf's descriptor and valid arrays.
    let arrays = unsafe { RowArrays { values: (*slot).tts_values, nulls: (*slot).tts_isnull } };
    process.add(process.last_leaf.1, arrays).or_raise();
}

/// Gives the row in the slot its position. Returns the table of the result relation's keys.
///
/// # Safety
/// See [`store`]; the process has a check.
#[pg_guard]
unsafe extern "C-unwind" fn take(
    process: *mut Process,
    relinfo: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
) -> *mut CheckedTable {
    // SAFETY: this function's contract covers all arguments.
    unsafe { (&mut *process).take(relinfo, slot) }.or_raise()
}

/// Appends all rows that are left.
///
/// # Safety
/// See [`step`].
#[pg_guard]
pub unsafe extern "C-unwind" fn finish(process: *mut Process) {
    // SAFETY: this function's contract covers the argument.
    unsafe { &mut *process }.finish().or_raise();
}

/// Rejects the row about which the executor or a function raised an error.
///
/// # Safety
/// See [`step`]; the error was caught.
#[pg_guard]
unsafe extern "C-unwind" fn leave_out(process: *mut Process, error: *mut pg_sys::ErrorData) {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        original::forget();
        (*process).pins.release();
        (&mut *process).reject(Complaint::of_data(error)).or_raise();
    }
}

/// Reads the rows again to find the record that exceeded the limit, after [`Process::look_again`]. In a join, only the
/// scan runs.
///
/// # Safety
/// See [`run`].
pub unsafe extern "C-unwind" fn run_again(process: *mut Process) {
    // SAFETY: this function's contract covers the process; nothing in this frame has a destructor.
    unsafe {
        if (*process).join.is_none() {
            run(process);
            return;
        }
        let memory = pg_sys::CurrentMemoryContext;
        let of_record = (*(*process).fields).ecxt_per_tuple_memory;
        let mut filtered = 0;
        unguarded::MemoryContextReset(of_record);
        while fetch(process.cast(), &raw mut filtered) {
            unguarded::MemoryContextReset(of_record);
        }
        pg_sys::CurrentMemoryContext = memory;
    }
}

/// Loads this process's rows, except for partial pages at the end.
///
/// # Safety
/// A plain frame, with COPY's error context pushed. A valid process that is not in use elsewhere.
pub unsafe extern "C-unwind" fn run(process: *mut Process) {
    // SAFETY: this function's contract covers the process; nothing in this frame has a destructor.
    unsafe {
        let memory = pg_sys::CurrentMemoryContext;
        (*process).memory = memory;
        if !(*process).rejects.keeps() {
            rows(process.cast());
            return;
        }
        let mut callback = pg_sys::ErrorContextCallback::default();
        let mut violation = std::mem::MaybeUninit::<RowViolation>::uninit();
        RowViolation::push(&raw mut callback, violation.as_mut_ptr());
        (*process).violation = violation.as_mut_ptr();
        loop {
            // Errors are copied to this context.
            pg_sys::CurrentMemoryContext = (*(*process).executor.econtext).ecxt_per_tuple_memory;
            let error = attempt(rows, process.cast());
            if error.is_null() {
                pg_sys::error_context_stack = callback.previous;
                (*process).violation = std::ptr::null_mut();
                return;
            }
            pg_sys::CurrentMemoryContext = memory;
            if !violation.assume_init_mut().is_of_row(error) {
                (*process).violation = std::ptr::null_mut();
                unguarded::ReThrowError(error);
            }
            // The record is rejected, and the error is freed with the row's memory.
            leave_out(process, error);
            let e = (*process).executor;
            clear(e.slot, (*e.econtext).ecxt_per_tuple_memory);
        }
    }
}

/// # Safety
/// See [`run`].
unsafe extern "C-unwind" fn rows(process: Opaque) {
    // SAFETY: this function's contract covers the process; nothing in this frame has a destructor.
    unsafe {
        let process = process.cast::<Process>();
        let mut whole = (*process).stages.watch();
        let e = (*process).executor;
        let rows = &raw mut (*process).rows;
        let memory = (*process).memory;
        let violation = (*process).violation;
        let per_tuple = (*e.econtext).ecxt_per_tuple_memory;
        let arrays = RowArrays { values: (*e.slot).tts_values, nulls: (*e.slot).tts_isnull };
        let projection = match (*process).projection.as_mut() {
            Some(projection) => &raw mut *projection,
            None => std::ptr::null_mut(),
        };
        let fields = if projection.is_null() { arrays } else { (*projection).arrays() };
        let join = match (*process).join.as_ref() {
            Some(join) => {
                join.belong(process.cast(), fetch);
                &raw const *join
            }
            None => std::ptr::null(),
        };
        let at_once = (*process).stores_at_once();
        let as_tuple = (*process).stores_tuples();
        let mut kept = Kept::new(per_tuple);
        loop {
            pg_sys::CurrentMemoryContext = per_tuple;
            if !(*process).query.is_null() {
                if !next_of_query(process, arrays) {
                    break;
                }
            } else if !join.is_null() {
                if !next_of_join(process, join, arrays) {
                    break;
                }
            } else {
                (*rows).is_converting = true;
                let NextRow { what, value } = match projection.is_null() {
                    true => NextRow::step(process),
                    false => next_of_projection(process, as_tuple),
                };
                if what == END {
                    break;
                }
                if (*rows).has_queue() {
                    let mut watch = (*process).stages.sample();
                    Rows::convert(rows, fields, e.econtext);
                    (*process).stages.lap_sample(&mut watch, Stage::Convert);
                }
                if what == SHORT {
                    if !projection.is_null() {
                        project::convert_rest(process, projection);
                    }
                    raise_missing(process);
                }
                (*rows).is_converting = false;
                let mut made = match projection.is_null() {
                    true => Made::Row,
                    false if !value.is_null() => projection::make_of(projection, e.econtext, value),
                    false => project::project(process, projection, arrays, as_tuple),
                };
                if let Made::Tuple(tuple) = made {
                    match (*process).store_tuple(tuple) {
                        Ok(()) => {
                            kept.forget_row();
                            continue;
                        }
                        Err(Unfit::Malformed) => raise_malformed(),
                        Err(Unfit::Apart) => (),
                    }
                    projection::take_apart(projection, e.econtext, tuple, arrays);
                    made = Made::Row;
                } else if at_once && matches!(made, Made::Row) && (*process).store_at_once(arrays) {
                    kept.forget_row();
                    continue;
                }
                if !matches!(made, Made::Row) {
                    if let Made::Bad(error) = made {
                        leave_out(process, error);
                    } else {
                        (*process).filtered += 1;
                    }
                    pg_sys::CurrentMemoryContext = memory;
                    clear(e.slot, per_tuple);
                    continue;
                }
            }
            evaluate_defaults(process, arrays);
            let mut slot = e.slot;
            (*slot).tts_flags &= !(pg_sys::TTS_FLAG_EMPTY as u16);
            (*slot).tts_nvalid = (*(*slot).tts_tupleDescriptor).natts as _;
            (*slot).tts_tableOid = (*(*e.target).ri_RelationDesc).rd_id;
            pg_sys::CurrentMemoryContext = memory;
            if !e.condition.is_null() {
                (*e.econtext).ecxt_scantuple = slot;
                if !unguarded::exec_qual(e.condition, e.econtext) {
                    (*process).filtered += 1;
                    clear(e.slot, per_tuple);
                    continue;
                }
            }
            let mut relinfo = e.target;
            if !e.routing.is_null() {
                set_checking(violation, true);
                relinfo = unguarded::ExecFindPartition(e.mtstate, e.target, e.routing, slot, e.estate);
                set_checking(violation, false);
                let map = compat::root_to_leaf(relinfo, e.estate);
                if !map.is_null() {
                    slot = unguarded::execute_attr_map_slot((*map).attrMap, slot, (*relinfo).ri_PartitionTupleSlot);
                }
                (*slot).tts_tableOid = (*(*relinfo).ri_RelationDesc).rd_id;
            }
            let constraints = (*(*(*relinfo).ri_RelationDesc).rd_att).constr;
            if !constraints.is_null() {
                if (*constraints).has_generated_stored {
                    unguarded::ExecComputeStoredGenerated(relinfo, e.estate, slot, pg_sys::CmdType::CMD_INSERT);
                }
                (*process).pins.note(relinfo);
                // Memory of messages about a row is freed with the row.
                pg_sys::CurrentMemoryContext = per_tuple;
                set_checking(violation, true);
                unguarded::ExecConstraints(relinfo, slot, e.estate);
                set_checking(violation, false);
                (*process).pins.forget();
            }
            if e.leaf {
                pg_sys::CurrentMemoryContext = per_tuple;
                set_checking(violation, true);
                unguarded::ExecPartitionCheck(relinfo, slot, e.estate, true);
                set_checking(violation, false);
            }
            pg_sys::CurrentMemoryContext = memory;
            if (*process).keys.is_null() {
                store(process, relinfo, slot);
            } else {
                let table = take(process, relinfo, slot);
                key_check::add(table, slot);
            }
            clear(e.slot, per_tuple);
        }
        pg_sys::CurrentMemoryContext = memory;
        (*process).stages.lap(&mut whole, Stage::Rest);
    }
}

/// Memory of rows that are not needed any more.
struct Kept {
    memory: pg_sys::MemoryContext,
    /// Bytes of the empty context.
    least: usize,
    rows: u32,
}

impl Kept {
    /// # Safety
    /// The context is for rows and is empty.
    unsafe fn new(memory: pg_sys::MemoryContext) -> Kept {
        // SAFETY: this function's contract covers the argument.
        Kept { memory, least: unsafe { (*memory).mem_allocated }, rows: 0 }
    }

    /// Counts a row to be freed. Small rows are freed together, since one reset takes as long for many rows as for one.
    ///
    /// # Safety
    /// A plain frame; nothing in the context is needed.
    #[inline]
    unsafe fn forget_row(&mut self) {
        self.rows += 1;
        // SAFETY: this function's contract covers the context.
        unsafe {
            let memory = &*self.memory;
            let has_more =
                memory.mem_allocated > self.least || !memory.firstchild.is_null() || !memory.reset_cbs.is_null();
            if self.rows >= TOGETHER || has_more {
                self.rows = 0;
                unguarded::MemoryContextReset(self.memory);
            }
        }
    }
}

/// Result of going to the next row.
struct NextRow {
    /// Result of the step: [`END`], [`ROW`] or [`SHORT`].
    what: i32,
    /// The row as one value, for the projection; else null.
    value: pg_sys::HeapTupleHeader,
}

impl NextRow {
    fn of(what: i32) -> NextRow {
        NextRow { what, value: std::ptr::null_mut() }
    }

    /// # Safety
    /// See [`step`]; called from a plain frame.
    unsafe fn step(process: *mut Process) -> NextRow {
        // SAFETY: this function's contract covers the argument.
        NextRow::of(unsafe { step(process) })
    }
}

/// Goes to the next row, for a projection.
///
/// # Safety
/// A plain frame; a valid process with a projection. `as_tuple`: it [stores tuples](Process::stores_tuples).
#[inline]
unsafe fn next_of_projection(process: *mut Process, as_tuple: bool) -> NextRow {
    // SAFETY: this function's contract covers the argument; nothing here has a destructor.
    unsafe {
        match (*process).advance_in_block(as_tuple) {
            InBlock::Row => NextRow::of(ROW),
            InBlock::Value(value) => NextRow { what: ROW, value },
            InBlock::Not => NextRow::step(process),
            InBlock::NoMemory => {
                raise_out_of_memory();
                NextRow::of(END)
            }
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn raise_malformed() {
    let message = "function return row and query-specified return row do not match";
    Error::new(Code::ERRCODE_DATATYPE_MISMATCH, message)
        .detail("The returned row does not end where the columns of its type do.")
        .raise();
}

#[pg_guard]
unsafe extern "C-unwind" fn raise_out_of_memory() {
    error::out_of_memory().raise();
}

/// Frees a row.
///
/// # Safety
/// A plain frame, a virtual slot, and the per-tuple context.
unsafe fn clear(slot: *mut pg_sys::TupleTableSlot, per_tuple: pg_sys::MemoryContext) {
    // SAFETY: this function's contract covers both arguments; the slot's own tts_virtual_clear (execTuples.c).
    unsafe {
        if let Some(clear) = (*(*slot).tts_ops).clear {
            clear(slot);
        }
        unguarded::MemoryContextReset(per_tuple);
    }
}

/// Evaluates the defaults that are expressions.
///
/// # Safety
/// A plain frame; a valid process, and the arrays of its slot.
unsafe fn evaluate_defaults(process: *mut Process, arrays: RowArrays) {
    // SAFETY: this function's contract covers the argument. Evaluating a default does not change the list.
    unsafe {
        let list = &raw const (*process).defaults.list;
        for at in 0..(*list).len() {
            if let Default::Expression { attribute, state, expands } = *(*list).as_ptr().add(at) {
                let mut is_null = false;
                let value = unguarded::exec_eval_expr(state, (*process).executor.econtext, &raw mut is_null);
                let value = if expands && !is_null { unguarded::read_only(value) } else { value };
                arrays.set(attribute, (!is_null).then_some(value));
            }
        }
    }
}
