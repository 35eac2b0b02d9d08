//! The loop over rows, in each process of a load.
//!
//! ```text
//!   pump ─► record ─► row ─┬─────────────────────────────────────────────────────────────► tuple ─► page ─► append
//!                          └─► input functions ─► projection ─► defaults ─► where ─► leaf ─► generated, checks ─┘
//!                              (plain frame)
//! ```
//!
//! [`run`] is a plain frame. It calls user-defined code (input functions, defaults, the condition, constraints), whose
//! errors keep all their fields. Rows without user-defined code stay within the [pump](crate::rows::row::pump), whose
//! sink, the [`Writer`](super::process::Writer), takes many rows in one guard.
//!
//! The steps for each row are in the order of CopyFrom (copyfrom.c).

use pg_bulk_storage::tuple::Unfit;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::join::{self, Join};
use super::process::{Beginning, InBlock, Process, Pull};
use crate::error::{self, Error, OrRaise};
use crate::load::query::Query;
use crate::load::rejects::Complaint;
use crate::program::defaults::Default;
use crate::program::projection::{self, Made};
use crate::rows::row::pump::{RowOutcome, next_row};
use crate::rows::row::{RowArrays, Rows};
use crate::server::attempt::attempt;
use crate::server::compat;
use crate::server::result_relation::ResultRelation;
use crate::server::row_violation::{RowViolation, set_checking};
use crate::server::slot::{Row, Slot};
use crate::server::stages::Stage;
use crate::server::unguarded::{self, Opaque, guarded};

/// Rows whose memory is reset together.
const TOGETHER: u32 = 16;

/// Reads the rows again to find the record that exceeded the limit, after [`Process::look_again`]. In a join, only the
/// scan runs.
///
/// # Safety
/// See [`run`].
pub unsafe fn run_again(process: *mut Process) {
    // SAFETY: a plain frame, and a valid process; nothing in this frame has a destructor.
    unsafe {
        if (*process).join().is_none() {
            run(process);
            return;
        }
        let memory = pg_sys::CurrentMemoryContext;
        let of_record = (*process).writer.recipe.fields.memory();
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
pub unsafe fn run(process: *mut Process) {
    // SAFETY: a plain frame, and a valid process; nothing in this frame has a destructor.
    unsafe {
        let memory = pg_sys::CurrentMemoryContext;
        let executor = (*process).writer.executor;
        if !(*process).writer.rejects.keeps() {
            rows(process, memory, std::ptr::null_mut());
            return;
        }
        let (slot, per_tuple) = (executor.slot().as_ptr(), executor.context().memory());
        RowViolation::watch(|violation| {
            loop {
                // Errors are copied to this context.
                pg_sys::CurrentMemoryContext = per_tuple;
                let error = attempt(|| rows(process, memory, violation));
                if error.is_null() {
                    return;
                }
                pg_sys::CurrentMemoryContext = memory;
                if !(*violation).is_of_row(error) {
                    unguarded::ReThrowError(error);
                }
                // The record is rejected, and the error is freed with the row's memory.
                guarded(|| (*process).leave_out(Complaint::of_data(error)).or_raise());
                unguarded::clear_virtual(slot);
                unguarded::MemoryContextReset(per_tuple);
            }
        });
    }
}

/// Makes and stores rows. `memory`: the memory context of [`run`]; `violation`: the error filter if rejects are kept, else
/// null.
///
/// # Safety
/// See [`run`].
unsafe fn rows(process: *mut Process, memory: pg_sys::MemoryContext, violation: *mut RowViolation) {
    // SAFETY: a plain frame, and a valid process; nothing in this frame has a destructor. The context for rows is empty, and
    // what is in it ends with its row.
    unsafe {
        let (rows, policy) = (&raw mut (*process).rows, &raw mut (*process).policy);
        let writer = &raw mut (*process).writer;
        let mut whole = (*writer).progress.stages.watch();
        let e = (*writer).executor;
        let (slot, econtext, estate) = (e.slot().as_ptr(), e.context().as_ptr(), e.estate());
        let (per_tuple, target) = (e.context().memory(), e.relation());
        let arrays = e.arrays();
        let (mut query, mut join) = (None, std::ptr::null());
        match (*writer).pull.as_ref() {
            Some(Pull::Query(own)) => query = Some(*own),
            Some(Pull::Join(own)) => {
                own.belong(process.cast(), fetch);
                join = &raw const *own;
            }
            None => (),
        }
        let at_once = (*writer).stores_at_once();
        let as_tuple = (*writer).stores_tuples();
        let clear = || {
            unguarded::clear_virtual(slot);
            unguarded::MemoryContextReset(per_tuple);
        };
        let least = (*per_tuple).mem_allocated;
        let mut kept = 0;
        // Counts a row to be freed. Small rows are freed together, since one reset takes as long for many rows as for one.
        let mut forget_row = || {
            kept += 1;
            let memory = &*per_tuple;
            let has_more = memory.mem_allocated > least || !memory.firstchild.is_null() || !memory.reset_cbs.is_null();
            if kept >= TOGETHER || has_more {
                kept = 0;
                unguarded::MemoryContextReset(per_tuple);
            }
        };
        loop {
            pg_sys::CurrentMemoryContext = per_tuple;
            if query.is_some() || !join.is_null() {
                let more = match query {
                    Some(query) => next_of_query(process, query, arrays),
                    None => next_of_join(process, join, arrays),
                };
                if !more {
                    break;
                }
                // A guard for each row is expensive.
                if (*writer).recipe.defaults.sets() {
                    guarded(|| (*writer).recipe.defaults.set(arrays).or_raise());
                }
            } else {
                let Some(mut made) = next_of_file(process, as_tuple) else { break };
                if let Made::Tuple(tuple) = made {
                    match (*process).store_tuple(tuple) {
                        Ok(()) => {
                            forget_row();
                            continue;
                        }
                        Err(Unfit::Malformed) => guarded(raise_malformed),
                        Err(Unfit::Apart) => (),
                    }
                    projection::take_apart((*writer).recipe.projection_in_place(), econtext, tuple, arrays);
                    made = Made::Row;
                } else if at_once && matches!(made, Made::Row) && (*process).store_at_once(Row::new(arrays, target)) {
                    forget_row();
                    continue;
                }
                if !matches!(made, Made::Row) {
                    if let Made::Bad(error) = made {
                        guarded(|| (*process).leave_out(Complaint::of_data(error)).or_raise());
                    } else {
                        (*writer).progress.filtered += 1;
                    }
                    pg_sys::CurrentMemoryContext = memory;
                    clear();
                    continue;
                }
            }
            for default in &(*writer).recipe.defaults.list {
                if let Default::Expression { attribute, state, expands } = *default {
                    let value = state.value(econtext);
                    let value = value.map(|value| if expands { unguarded::read_only(value) } else { value });
                    arrays.set(attribute, value);
                }
            }
            let mut row = slot;
            (*row).tts_flags &= !(pg_sys::TTS_FLAG_EMPTY as u16);
            (*row).tts_nvalid = (*(*row).tts_tupleDescriptor).natts as _;
            (*row).tts_tableOid = target.oid();
            pg_sys::CurrentMemoryContext = memory;
            if let Some(condition) = e.condition() {
                (*econtext).ecxt_scantuple = row;
                if !unguarded::exec_qual(condition.as_ptr(), econtext) {
                    (*writer).progress.filtered += 1;
                    clear();
                    continue;
                }
            }
            let mut relinfo = e.target().as_ptr();
            let (mtstate, routing) = e.routing();
            if !routing.is_null() {
                set_checking(violation, true);
                relinfo = unguarded::ExecFindPartition(mtstate, relinfo, routing, row, estate);
                set_checking(violation, false);
                let map = compat::root_to_leaf(relinfo, estate);
                if !map.is_null() {
                    row = unguarded::execute_attr_map_slot((*map).attrMap, row, (*relinfo).ri_PartitionTupleSlot);
                }
                (*row).tts_tableOid = (*(*relinfo).ri_RelationDesc).rd_id;
            }
            let leaf = ResultRelation::from_raw(relinfo);
            let constraints = (*(*(*relinfo).ri_RelationDesc).rd_att).constr;
            if !constraints.is_null() {
                if (*constraints).has_generated_stored {
                    unguarded::ExecComputeStoredGenerated(relinfo, estate, row, pg_sys::CmdType::CMD_INSERT);
                }
                (*writer).rejects.pins.note(leaf);
                // Memory of messages about a row is freed with the row.
                pg_sys::CurrentMemoryContext = per_tuple;
                set_checking(violation, true);
                unguarded::ExecConstraints(relinfo, row, estate);
                set_checking(violation, false);
                (*writer).rejects.pins.forget();
            }
            if e.is_leaf() {
                pg_sys::CurrentMemoryContext = per_tuple;
                set_checking(violation, true);
                unguarded::ExecPartitionCheck(relinfo, row, estate, true);
                set_checking(violation, false);
            }
            pg_sys::CurrentMemoryContext = memory;
            if (*writer).keys.is_none() {
                let row = Row::new(Slot::from_raw(row).arrays(), leaf.relation());
                guarded(|| (*writer).store(leaf, row, &mut *rows, &mut *policy).or_raise());
            } else {
                let slot = Slot::from_raw(row);
                let table = guarded(|| (*writer).take(leaf, slot, &mut *rows, &mut *policy).or_raise());
                (*table).add(row);
            }
            clear();
        }
        pg_sys::CurrentMemoryContext = memory;
        (*writer).progress.stages.lap(&mut whole, Stage::Rest);
    }
}

/// Makes the target's attributes of the next record, without defaults that are expressions. None at the end. `as_tuple`:
/// the process [stores tuples](super::process::Writer::stores_tuples).
///
/// # Safety
/// A plain frame; a valid process, whose memory for a row is current and empty.
#[inline(always)]
unsafe fn next_of_file(process: *mut Process, as_tuple: bool) -> Option<Made> {
    // SAFETY: a plain frame, and a valid process; nothing here has a destructor.
    unsafe {
        let (rows, writer) = (&raw mut (*process).rows, &raw mut (*process).writer);
        (*rows).context.is_converting = true;
        let projection = (*writer).recipe.projection_in_place();
        if projection.is_null() {
            return next_record(process).then_some(Made::Row);
        }
        let executor = (*writer).executor;
        let econtext = executor.context().as_ptr();
        match (*process).advance_in_block(as_tuple) {
            InBlock::Row => (*rows).context.is_converting = false,
            InBlock::Value(value) => {
                (*rows).context.is_converting = false;
                return Some(projection::make_of(projection, econtext, value));
            }
            InBlock::Not if next_record(process) => (),
            InBlock::Not => return None,
            InBlock::NoMemory => guarded(|| error::out_of_memory().raise()),
        }
        let defaults = &raw mut (*writer).recipe.defaults;
        Some(projection::project(rows, projection, defaults, econtext, executor.arrays(), as_tuple))
    }
}

/// Goes to the next record that needs steps of its own, and converts the fields that are read first. False at the end.
///
/// # Safety
/// A plain frame; a valid process, whose memory for fields is current and empty.
#[inline(always)]
unsafe fn next_record(process: *mut Process) -> bool {
    // SAFETY: a plain frame, and a valid process; nothing here has a destructor.
    unsafe {
        let (rows, writer) = (&raw mut (*process).rows, &raw mut (*process).writer);
        let outcome = guarded(|| next_row(&mut *rows, &mut (*process).policy, &mut *writer).or_raise());
        if outcome == RowOutcome::End {
            return false;
        }
        let econtext = (*writer).recipe.fields.as_ptr();
        if (*rows).has_queue() {
            let mut watch = (*rows).stream.stages.sample();
            Rows::convert(rows, (*writer).fields(), econtext);
            (*rows).stream.stages.lap_sample(&mut watch, Stage::Convert);
        }
        if outcome == RowOutcome::Short {
            let projection = (*writer).recipe.projection_in_place();
            if !projection.is_null() {
                projection::convert_rest(rows, projection, econtext);
            }
            guarded(|| (*rows).check_missing().or_raise());
        }
        (*rows).context.is_converting = false;
        true
    }
}

/// Guarded.
fn raise_malformed() {
    let message = "function return row and query-specified return row do not match";
    Error::new(Code::ERRCODE_DATATYPE_MISMATCH, message)
        .detail("The returned row does not end where the columns of its type do.")
        .raise();
}

/// Makes the target's attributes of the query's next row, without defaults. False at the end of
/// the query or of the limit.
///
/// # Safety
/// A plain frame; a valid process that has this query, and the arrays of its slot.
unsafe fn next_of_query(process: *mut Process, query: &Query, arrays: RowArrays) -> bool {
    // SAFETY: a plain frame, and a valid process; nothing here has a destructor.
    unsafe {
        let (rows, writer) = (&raw mut (*process).rows, &raw mut (*process).writer);
        unguarded::check_for_interrupts();
        if (*process).policy.limit_left == Some(0) {
            return false;
        }
        if (*writer).progress.ends_round() {
            guarded(|| (*writer).show(&*rows));
        }
        // Errors of the query itself are not about one of its rows.
        (*rows).context.is_quiet = true;
        let more = query.next(arrays);
        (*rows).context.is_quiet = false;
        if more {
            (*rows).count_row_of_query();
        }
        more
    }
}

/// Makes the target's attributes of a join's next row, without defaults. False at the end.
///
/// # Safety
/// A plain frame; a valid process that has this join, and the arrays of its slot.
unsafe fn next_of_join(process: *mut Process, join: *const Join, arrays: RowArrays) -> bool {
    // SAFETY: a plain frame, and a valid process; nothing here has a destructor.
    unsafe {
        // Errors of the plan itself are not about a line of the file.
        (*process).rows.context.is_quiet = true;
        let more = join::next(join, arrays);
        // Rows that were spilled to disk come after all lines have been read.
        (*process).rows.context.is_quiet = more && (*join).has_read_all();
        more
    }
}

/// Makes the next record that passes the scan's conditions a row of the foreign table, for the plan above. False at the
/// end. Adds the number of records that did not pass to `filtered`.
///
/// # Safety
/// A plain frame; a valid [`Process`] with a join, whose memory for fields is empty; no other reference to the number
/// is in use.
unsafe fn fetch(process: Opaque, filtered: *mut u64) -> bool {
    // SAFETY: this function's contract covers the process and the number; nothing in this frame has a destructor.
    unsafe {
        let process = process.cast::<Process>();
        let (rows, writer) = (&raw mut (*process).rows, &raw mut (*process).writer);
        let projection = (*writer).recipe.projection_in_place();
        if projection.is_null() {
            return false;
        }
        let (econtext, memory) = ((*writer).recipe.fields.as_ptr(), (*writer).recipe.fields.memory());
        loop {
            pg_sys::CurrentMemoryContext = memory;
            ((*rows).context.is_quiet, (*rows).context.is_converting) = (false, true);
            if !next_record(process) {
                (*rows).context.is_quiet = true;
                if (*writer).records > 0 {
                    return false;
                }
                let Some(Beginning { begin, leader, memory }) = (*process).beginning.take() else { return false };
                // Memory of the workers' state must stay as long as the workers.
                pg_sys::CurrentMemoryContext = memory;
                begin(leader);
                (*writer).records = u64::MAX;
                continue;
            }
            let passes = projection::passes(rows, projection, econtext);
            (*rows).context.is_quiet = true;
            if passes {
                return true;
            }
            (*writer).progress.filtered += 1;
            *filtered += 1;
            unguarded::MemoryContextReset(memory);
        }
    }
}
