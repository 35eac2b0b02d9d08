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
use crate::program::defaults::Default;
use crate::program::projection::{self, Made};
use crate::rows::row::Rows;
use crate::rows::row::pump::RowOutcome;
use crate::server::attempt::attempt;
use crate::server::compat;
use crate::server::result_relation::ResultRelation;
use crate::server::row_violation::{RowViolation, set_checking};
use crate::server::slot::{Row, Slot};
use crate::server::stages::Stage;
use crate::server::unguarded::{self, guarded};

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
pub unsafe fn run(process: *mut Process) {
    // SAFETY: a plain frame, and a valid process; nothing in this frame has a destructor.
    unsafe {
        let memory = pg_sys::CurrentMemoryContext;
        if !(*process).rejects.keeps() {
            rows(process, memory, std::ptr::null_mut());
            return;
        }
        let (slot, per_tuple) = ((*process).executor.slot().as_ptr(), (*process).executor.context().memory());
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
        let mut whole = (*process).progress.stages.watch();
        let e = (*process).executor;
        let rows = &raw mut (*process).rows;
        let defaults = &raw mut (*process).recipe.defaults;
        let (slot, econtext, estate) = (e.slot().as_ptr(), e.context().as_ptr(), e.estate());
        let (per_tuple, target) = (e.context().memory(), e.relation());
        let arrays = e.arrays();
        let projection = match (*process).recipe.projection.as_mut() {
            Some(projection) => &raw mut *projection,
            None => std::ptr::null_mut(),
        };
        let fields = if projection.is_null() { arrays } else { (*projection).arrays() };
        let (mut query, mut join) = (None, std::ptr::null());
        match (*process).pull.as_ref() {
            Some(Pull::Query(own)) => query = Some(*own),
            Some(Pull::Join(own)) => {
                own.belong(process.cast(), fetch);
                join = &raw const *own;
            }
            None => (),
        }
        let at_once = (*process).stores_at_once();
        let as_tuple = (*process).stores_tuples();
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
            if let Some(query) = query {
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
                    true => (guarded(|| (*process).advance().or_raise()), std::ptr::null_mut()),
                    false => match (*process).advance_in_block(as_tuple) {
                        InBlock::Row => (RowOutcome::Row, std::ptr::null_mut()),
                        InBlock::Value(value) => (RowOutcome::Row, value),
                        InBlock::Not => (guarded(|| (*process).advance().or_raise()), std::ptr::null_mut()),
                        InBlock::NoMemory => guarded(|| error::out_of_memory().raise()),
                    },
                };
                if outcome == RowOutcome::End {
                    break;
                }
                if (*rows).has_queue() {
                    let mut watch = (*process).progress.stages.sample();
                    Rows::convert(rows, fields, econtext);
                    (*process).progress.stages.lap_sample(&mut watch, Stage::Convert);
                }
                if outcome == RowOutcome::Short {
                    if !projection.is_null() {
                        projection::convert_rest(rows, projection, econtext);
                    }
                    guarded(|| (*rows).check_missing().or_raise());
                }
                (*rows).context.is_converting = false;
                let mut made = match projection.is_null() {
                    true => Made::Row,
                    false if !value.is_null() => projection::make_of(projection, econtext, value),
                    false => projection::project(rows, projection, defaults, econtext, arrays, as_tuple),
                };
                if let Made::Tuple(tuple) = made {
                    match (*process).store_tuple(tuple) {
                        Ok(()) => {
                            forget_row();
                            continue;
                        }
                        Err(Unfit::Malformed) => guarded(raise_malformed),
                        Err(Unfit::Apart) => (),
                    }
                    projection::take_apart(projection, econtext, tuple, arrays);
                    made = Made::Row;
                } else if at_once && matches!(made, Made::Row) && (*process).store_at_once(Row::new(arrays, target)) {
                    forget_row();
                    continue;
                }
                if !matches!(made, Made::Row) {
                    if let Made::Bad(error) = made {
                        guarded(|| (*process).leave_out(Complaint::of_data(error)).or_raise());
                    } else {
                        (*process).progress.filtered += 1;
                    }
                    pg_sys::CurrentMemoryContext = memory;
                    clear();
                    continue;
                }
            }
            for default in &(*defaults).list {
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
            if !e.condition().is_null() {
                (*econtext).ecxt_scantuple = row;
                if !unguarded::exec_qual(e.condition(), econtext) {
                    (*process).progress.filtered += 1;
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
                (*process).rejects.pins.note(leaf);
                // Memory of messages about a row is freed with the row.
                pg_sys::CurrentMemoryContext = per_tuple;
                set_checking(violation, true);
                unguarded::ExecConstraints(relinfo, row, estate);
                set_checking(violation, false);
                (*process).rejects.pins.forget();
            }
            if e.is_leaf() {
                pg_sys::CurrentMemoryContext = per_tuple;
                set_checking(violation, true);
                unguarded::ExecPartitionCheck(relinfo, row, estate, true);
                set_checking(violation, false);
            }
            pg_sys::CurrentMemoryContext = memory;
            if (*process).keys.is_none() {
                let row = Row::new(Slot::from_raw(row).arrays(), leaf.relation());
                guarded(|| (*process).store(leaf, row).or_raise());
            } else {
                let table = guarded(|| (*process).take(leaf, Slot::from_raw(row)).or_raise());
                (*table).add(row);
            }
            clear();
        }
        pg_sys::CurrentMemoryContext = memory;
        (*process).progress.stages.lap(&mut whole, Stage::Rest);
    }
}

/// Guarded.
fn raise_malformed() {
    let message = "function return row and query-specified return row do not match";
    Error::new(Code::ERRCODE_DATATYPE_MISMATCH, message)
        .detail("The returned row does not end where the columns of its type do.")
        .raise();
}
