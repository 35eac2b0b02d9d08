//! The way of each row, in each process of a load.
//!
//! ```text
//!   chunk ─► advance ─► decode ─┬─────────────────────────────────────────────────► tuple ─► page ─► append
//!                               └─► input functions ─► projection ─► defaults ─► where ─► leaf ─► generated, checks ─┘
//!                                   (plain frame)
//! ```
//!
//! [`run`] is a plain frame: user code (input functions, defaults, the condition, constraints) is called from it, and its
//! errors keep all that they say. Rows that need none of it do not leave [`step`], which is one guard for many rows.
//!
//! The order of what is done to a row is that of CopyFrom (copyfrom.c).

mod pulled;

use pg_bulk_format::tuple::Unfit;
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use self::pulled::{fetch, next_of_join, next_of_query};
use super::defaults::Default;
use super::key_check::{self, Table};
use super::process::{END, InBlock, Process, ROW, SHORT};
use super::projection::{self, Made};
use crate::error::{self, Error, OrRaise};
use crate::load::rejects::Complaint;
use crate::pg::attempt::attempt;
use crate::pg::row::{RowArrays, Rows};
use crate::pg::row_violation::{RowViolation, judge};
use crate::pg::stages::Stage;
use crate::pg::unguarded::{self, Opaque};
use crate::pg::{compat, original};

/// Rows that are forgotten together.
const TOGETHER: u32 = 16;

/// # Safety
/// A valid process that nobody else uses.
#[pg_guard]
unsafe extern "C-unwind" fn step(process: *mut Process) -> i32 {
    // SAFETY: this function's contract covers the argument.
    unsafe { &mut *process }.advance().or_raise()
}

/// # Safety
/// As [`step`].
#[pg_guard]
unsafe extern "C-unwind" fn raise_missing(process: *mut Process) {
    // SAFETY: this function's contract covers the argument.
    unsafe { &mut (*process).rows }.check_missing().or_raise();
}

/// Put the row in the slot into the heap of a result relation.
///
/// # Safety
/// As [`step`], with a slot that fits the result relation.
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

/// Let the row in the slot, which goes to a result relation, be one whose keys are taken: of which table.
///
/// # Safety
/// As [`store`], with a process that has a check.
#[pg_guard]
unsafe extern "C-unwind" fn take(
    process: *mut Process,
    relinfo: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
) -> *mut Table {
    // SAFETY: this function's contract covers all arguments.
    unsafe { (&mut *process).take(relinfo, slot) }.or_raise()
}

/// Append all that is left.
///
/// # Safety
/// As [`step`].
#[pg_guard]
pub unsafe extern "C-unwind" fn finish(process: *mut Process) {
    // SAFETY: this function's contract covers the argument.
    unsafe { &mut *process }.finish().or_raise();
}

/// Leave out the row that an error of the executor's, or of a function's, is about.
///
/// # Safety
/// As [`step`], with the error.
#[pg_guard]
unsafe extern "C-unwind" fn leave_out(process: *mut Process, error: *mut pg_sys::ErrorData) {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        original::forget();
        (*process).pins.release();
        (&mut *process).reject(Complaint::of_data(error)).or_raise();
    }
}

/// The same rows once more, to find the one that was too many, after [`Process::look_again`]. Of a join, the scan's only.
///
/// # Safety
/// As [`run`].
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

/// Load the rows there are for this process, but for the pages that are not full in the end.
///
/// # Safety
/// A plain frame, with COPY's error context pushed. A valid process that nobody else uses.
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
            // Where errors are copied to.
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
            // The error goes with the row.
            leave_out(process, error);
            let e = (*process).executor;
            clear(e.slot, (*e.econtext).ecxt_per_tuple_memory);
        }
    }
}

/// # Safety
/// As [`run`].
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
                let Next { what, value } = match projection.is_null() {
                    true => Next::step(process),
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
                        projection::convert_rest(process, projection);
                    }
                    raise_missing(process);
                }
                (*rows).is_converting = false;
                let mut made = match projection.is_null() {
                    true => Made::Row,
                    false if !value.is_null() => projection::make_of(projection, e.econtext, value),
                    false => projection::project(process, projection, arrays, as_tuple),
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
                judge(violation, true);
                relinfo = unguarded::ExecFindPartition(e.mtstate, e.target, e.routing, slot, e.estate);
                judge(violation, false);
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
                // What is said of a row goes with it.
                pg_sys::CurrentMemoryContext = per_tuple;
                judge(violation, true);
                unguarded::ExecConstraints(relinfo, slot, e.estate);
                judge(violation, false);
                (*process).pins.forget();
            }
            if e.leaf {
                pg_sys::CurrentMemoryContext = per_tuple;
                judge(violation, true);
                unguarded::ExecPartitionCheck(relinfo, slot, e.estate, true);
                judge(violation, false);
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

/// Memory of rows of which nothing is needed any more.
struct Kept {
    memory: pg_sys::MemoryContext,
    /// What it takes when there is nothing in it.
    least: usize,
    rows: u32,
}

impl Kept {
    /// # Safety
    /// A context for rows, in which there is nothing.
    unsafe fn new(memory: pg_sys::MemoryContext) -> Kept {
        // SAFETY: this function's contract covers the argument.
        Kept { memory, least: unsafe { (*memory).mem_allocated }, rows: 0 }
    }

    /// Forget a row: some together, where they are small, since that takes as long for one as for many.
    ///
    /// # Safety
    /// A plain frame; the context, of which nothing is needed.
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

/// The next row.
struct Next {
    /// What a step ended with.
    what: i32,
    /// The row as one value, for the projection; else null.
    value: pg_sys::HeapTupleHeader,
}

impl Next {
    fn of(what: i32) -> Next {
        Next { what, value: std::ptr::null_mut() }
    }

    /// # Safety
    /// As [`step`], from a plain frame.
    unsafe fn step(process: *mut Process) -> Next {
        // SAFETY: this function's contract covers the argument.
        Next::of(unsafe { step(process) })
    }
}

/// Go to the next row, for a projection.
///
/// # Safety
/// A plain frame; a valid process with a projection. `as_tuple` says that it [stores tuples](Process::stores_tuples).
#[inline]
unsafe fn next_of_projection(process: *mut Process, as_tuple: bool) -> Next {
    // SAFETY: this function's contract covers the argument; nothing here has a destructor.
    unsafe {
        match (*process).advance_in_block(as_tuple) {
            InBlock::Row => Next::of(ROW),
            InBlock::Value(value) => Next { what: ROW, value },
            InBlock::Not => Next::step(process),
            InBlock::NoMemory => {
                raise_out_of_memory();
                Next::of(END)
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

/// Forget a row.
///
/// # Safety
/// A plain frame, a virtual slot, and the per-tuple context.
unsafe fn clear(slot: *mut pg_sys::TupleTableSlot, per_tuple: pg_sys::MemoryContext) {
    // SAFETY: this function's contract covers both arguments; what tts_virtual_clear (execTuples.c) does.
    unsafe {
        if let Some(clear) = (*(*slot).tts_ops).clear {
            clear(slot);
        }
        unguarded::MemoryContextReset(per_tuple);
    }
}

/// Evaluate the defaults that are expressions.
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
