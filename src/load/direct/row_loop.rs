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

use pg_bulk_storage::tuple::Unfit;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use self::pulled::{fetch, next_of_join, next_of_query};
use super::process::{InBlock, Process, Pull};
use crate::error::{self, Error, OrRaise};
use crate::load::rejects::Complaint;
use crate::program::defaults::{Default, Defaults};
use crate::program::projection::{self, Made};
use crate::rows::row::pump::RowOutcome;
use crate::rows::row::{RowArrays, Rows};
use crate::server::attempt::attempt;
use crate::server::row_violation::{RowViolation, set_checking};
use crate::server::slot::Slot;
use crate::server::stages::Stage;
use crate::server::unguarded::{self, Opaque, guarded};
use crate::server::{compat, original};

/// Rows whose memory is reset together.
const TOGETHER: u32 = 16;

/// Makes rows until one needs a step outside of the guard.
///
/// # Safety
/// A plain frame; a valid process that is not in use elsewhere.
unsafe fn step(process: *mut Process) -> RowOutcome {
    // SAFETY: this function's contract covers the frame and the process.
    unsafe { guarded(|| (*process).advance().or_raise()) }
}

/// Appends all rows that are left.
///
/// # Safety
/// See [`step`].
pub unsafe fn finish(process: *mut Process) {
    // SAFETY: as in `step`.
    unsafe { guarded(|| (*process).finish().or_raise()) }
}

/// Rejects the row about which the executor or a function raised an error.
///
/// # Safety
/// See [`step`]; the error was caught.
unsafe fn leave_out(process: *mut Process, error: *mut pg_sys::ErrorData) {
    // SAFETY: as in `step`; pins were noted for a row of an open relation.
    unsafe {
        guarded(|| {
            original::forget();
            (*process).rejects.pins.release();
            (*process).reject(Complaint::of_data(error)).or_raise();
        });
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
        if (*process).join().is_none() {
            run(process);
            return;
        }
        let memory = pg_sys::CurrentMemoryContext;
        let of_record = (*process).recipe.fields.memory();
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
        let mut run = Run { process, memory, violation: std::ptr::null_mut() };
        if !(*process).rejects.keeps() {
            rows((&raw mut run).cast());
            return;
        }
        let mut callback = pg_sys::ErrorContextCallback::default();
        let mut violation = std::mem::MaybeUninit::<RowViolation>::uninit();
        RowViolation::push(&raw mut callback, violation.as_mut_ptr());
        run.violation = violation.as_mut_ptr();
        loop {
            // Errors are copied to this context.
            pg_sys::CurrentMemoryContext = (*(*process).executor.econtext).ecxt_per_tuple_memory;
            let error = attempt(|| rows((&raw mut run).cast()));
            if error.is_null() {
                pg_sys::error_context_stack = callback.previous;
                return;
            }
            pg_sys::CurrentMemoryContext = memory;
            if !violation.assume_init_mut().is_of_row(error) {
                unguarded::ReThrowError(error);
            }
            // The record is rejected, and the error is freed with the row's memory.
            leave_out(process, error);
            let e = (*process).executor;
            clear(e.slot, (*e.econtext).ecxt_per_tuple_memory);
        }
    }
}

/// Arguments of [`rows`].
struct Run {
    process: *mut Process,
    /// The memory context in which [`run`] was called.
    memory: pg_sys::MemoryContext,
    /// The error filter if rejects are kept; else null.
    violation: *mut RowViolation,
}

/// # Safety
/// See [`run`], for the process of a [`Run`].
unsafe extern "C-unwind" fn rows(run: Opaque) {
    // SAFETY: this function's contract covers the process; nothing in this frame has a destructor.
    unsafe {
        let Run { process, memory, violation } = *run.cast::<Run>();
        let mut whole = (*process).progress.stages.watch();
        let e = (*process).executor;
        let rows = &raw mut (*process).rows;
        let defaults = &raw mut (*process).recipe.defaults;
        let per_tuple = (*e.econtext).ecxt_per_tuple_memory;
        let arrays = e.arrays();
        let projection = match (*process).recipe.projection.as_mut() {
            Some(projection) => &raw mut *projection,
            None => std::ptr::null_mut(),
        };
        let fields = if projection.is_null() { arrays } else { (*projection).arrays() };
        let (mut query, mut join) = (std::ptr::null_mut(), std::ptr::null());
        match (*process).pull.as_ref() {
            Some(Pull::Query(own)) => query = *own,
            Some(Pull::Join(own)) => {
                own.belong(process.cast(), fetch);
                join = &raw const *own;
            }
            None => (),
        }
        let at_once = (*process).stores_at_once();
        let as_tuple = (*process).stores_tuples();
        let mut kept = Kept::new(per_tuple);
        loop {
            pg_sys::CurrentMemoryContext = per_tuple;
            if !query.is_null() {
                if !next_of_query(process, query, arrays) {
                    break;
                }
            } else if !join.is_null() {
                if !next_of_join(process, join, arrays) {
                    break;
                }
            } else {
                (*rows).context.is_converting = true;
                let (outcome, value) = match projection.is_null() {
                    true => (step(process), std::ptr::null_mut()),
                    false => next_of_projection(process, as_tuple),
                };
                if outcome == RowOutcome::End {
                    break;
                }
                if (*rows).has_queue() {
                    let mut watch = (*process).progress.stages.sample();
                    Rows::convert(rows, fields, e.econtext);
                    (*process).progress.stages.lap_sample(&mut watch, Stage::Convert);
                }
                if outcome == RowOutcome::Short {
                    if !projection.is_null() {
                        projection::convert_rest(rows, projection, e.econtext);
                    }
                    guarded(|| (*rows).check_missing().or_raise());
                }
                (*rows).context.is_converting = false;
                let mut made = match projection.is_null() {
                    true => Made::Row,
                    false if !value.is_null() => projection::make_of(projection, e.econtext, value),
                    false => projection::project(rows, projection, defaults, e.econtext, arrays, as_tuple),
                };
                if let Made::Tuple(tuple) = made {
                    match (*process).store_tuple(tuple) {
                        Ok(()) => {
                            kept.forget_row();
                            continue;
                        }
                        Err(Unfit::Malformed) => guarded(raise_malformed),
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
                        (*process).progress.filtered += 1;
                    }
                    pg_sys::CurrentMemoryContext = memory;
                    clear(e.slot, per_tuple);
                    continue;
                }
            }
            evaluate_defaults(defaults, e.econtext, arrays);
            let mut slot = e.slot;
            (*slot).tts_flags &= !(pg_sys::TTS_FLAG_EMPTY as u16);
            (*slot).tts_nvalid = (*(*slot).tts_tupleDescriptor).natts as _;
            (*slot).tts_tableOid = (*(*e.target).ri_RelationDesc).rd_id;
            pg_sys::CurrentMemoryContext = memory;
            if !e.condition.is_null() {
                (*e.econtext).ecxt_scantuple = slot;
                if !unguarded::exec_qual(e.condition, e.econtext) {
                    (*process).progress.filtered += 1;
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
                (*process).rejects.pins.note(relinfo);
                // Memory of messages about a row is freed with the row.
                pg_sys::CurrentMemoryContext = per_tuple;
                set_checking(violation, true);
                unguarded::ExecConstraints(relinfo, slot, e.estate);
                set_checking(violation, false);
                (*process).rejects.pins.forget();
            }
            if e.leaf {
                pg_sys::CurrentMemoryContext = per_tuple;
                set_checking(violation, true);
                unguarded::ExecPartitionCheck(relinfo, slot, e.estate, true);
                set_checking(violation, false);
            }
            pg_sys::CurrentMemoryContext = memory;
            if (*process).keys.is_none() {
                let arrays = Slot::from_raw(slot).arrays();
                guarded(|| (*process).store(relinfo, arrays).or_raise());
            } else {
                let table = guarded(|| (*process).take(relinfo, slot).or_raise());
                (*table).add(slot);
            }
            clear(e.slot, per_tuple);
        }
        pg_sys::CurrentMemoryContext = memory;
        (*process).progress.stages.lap(&mut whole, Stage::Rest);
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

/// Goes to the next row, for a projection. Also returns the row as one value, or null.
///
/// # Safety
/// A plain frame; a valid process with a projection. `as_tuple`: it [stores tuples](Process::stores_tuples).
#[inline]
unsafe fn next_of_projection(process: *mut Process, as_tuple: bool) -> (RowOutcome, pg_sys::HeapTupleHeader) {
    // SAFETY: this function's contract covers the argument; nothing here has a destructor.
    unsafe {
        match (*process).advance_in_block(as_tuple) {
            InBlock::Row => (RowOutcome::Row, std::ptr::null_mut()),
            InBlock::Value(value) => (RowOutcome::Row, value),
            InBlock::Not => (step(process), std::ptr::null_mut()),
            InBlock::NoMemory => guarded(|| error::out_of_memory().raise()),
        }
    }
}

/// Guarded.
fn raise_malformed() {
    let message = "function return row and query-specified return row do not match";
    Error::new(Code::ERRCODE_DATATYPE_MISMATCH, message)
        .detail("The returned row does not end where the columns of its type do.")
        .raise();
}

/// Frees a row.
///
/// # Safety
/// A plain frame, a virtual slot, and the per-tuple context.
unsafe fn clear(slot: *mut pg_sys::TupleTableSlot, per_tuple: pg_sys::MemoryContext) {
    // SAFETY: the slot's own tts_virtual_clear (execTuples.c) is called, with a valid slot.
    unsafe {
        unguarded::clear_virtual(slot);
        unguarded::MemoryContextReset(per_tuple);
    }
}

/// Evaluates the defaults that are expressions.
///
/// # Safety
/// A plain frame; the defaults, the context and the arrays of the target's row.
unsafe fn evaluate_defaults(defaults: *const Defaults, econtext: *mut pg_sys::ExprContext, arrays: RowArrays) {
    // SAFETY: this function's contract covers the frame; evaluating a default does not change the list.
    unsafe {
        for default in &(*defaults).list {
            if let Default::Expression { attribute, state, expands } = *default {
                let value = state.value(econtext);
                let value = value.map(|value| if expands { unguarded::read_only(value) } else { value });
                arrays.set(attribute, value);
            }
        }
    }
}
