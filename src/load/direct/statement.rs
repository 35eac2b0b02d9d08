//! The INSERT that a load executes, in the server's executor state.
//!
//! A load has its own executor state with its own result relations. It takes two things from the statement's state. The
//! first is the columns that the statement names: an error shows their values to a role that may insert but not read.
//! The second is the instrumentation of triggers, for EXPLAIN and auto_explain. At the end, the figures of the load's
//! result relations are added to the statement's.

use pgrx::{PgList, pg_sys};

use super::executor::Executor;
use crate::load::Load;

/// A statement that is being executed.
#[derive(Debug, Clone, Copy)]
pub struct Statement {
    estate: *mut pg_sys::EState,
    /// The statement's result relation.
    target: *mut pg_sys::ResultRelInfo,
}

/// The columns that the statement or the file gives values to.
pub fn inserted_by(load: &Load) -> Vec<i16> {
    load.statement.map_or_else(|| load.mapping.attributes().collect(), |statement| statement.inserted())
}

impl Statement {
    /// Takes the target at this place of the range table. Guarded.
    ///
    /// # Safety
    /// The state of the execution outlives the statement; the target is locked.
    pub unsafe fn begin(estate: *mut pg_sys::EState, place: pg_sys::Index) -> Statement {
        // SAFETY: this function's contract covers both arguments; the executor closes what it opens here.
        unsafe {
            let old = pg_sys::MemoryContextSwitchTo((*estate).es_query_cxt);
            let target = result_relation();
            pg_sys::ExecInitResultRelation(estate, target, place);
            pg_sys::MemoryContextSwitchTo(old);
            Statement { estate, target }
        }
    }

    /// The figures to measure (`InstrumentOption`).
    pub fn instrument(&self) -> i32 {
        // SAFETY: the state outlives the statement.
        unsafe { (*self.estate).es_instrument }
    }

    /// The columns that the statement names. Guarded.
    pub fn inserted(&self) -> Vec<i16> {
        let mut inserted = Vec::new();
        // SAFETY: guarded calls on the state and one of its result relations.
        unsafe {
            let columns = pg_sys::ExecGetInsertedCols(self.target, self.estate);
            let mut member = pg_sys::bms_next_member(columns, -1);
            while member >= 0 {
                inserted.extend(i16::try_from(member + pg_sys::FirstLowInvalidHeapAttributeNumber));
                member = pg_sys::bms_next_member(columns, member);
            }
        }
        inserted
    }

    /// Adds the trigger figures of the load's result relations. Guarded.
    ///
    /// # Safety
    /// `executor` is the state of this statement's load, with all its relations open.
    pub unsafe fn add_triggers(&self, executor: &Executor) {
        if self.instrument() == 0 {
            return;
        }
        // SAFETY: this function's contract covers the load; the executor's own lists. ExecCloseResultRelations closes
        // the relations that are opened here.
        unsafe {
            let old = pg_sys::MemoryContextSwitchTo((*self.estate).es_query_cxt);
            let load = &*executor.estate;
            let target = (*self.target).ri_RelationDesc;
            let lists = [
                load.es_opened_result_relations,
                load.es_tuple_routing_result_relations,
                load.es_trig_target_relations,
            ];
            for list in lists {
                for from in PgList::<pg_sys::ResultRelInfo>::from_pg(list).iter_ptr() {
                    let relid = (*(*from).ri_RelationDesc).rd_id;
                    if relid == (*target).rd_id {
                        copy_triggers(from, self.target);
                        continue;
                    }
                    // A partition. With a second table in the list, EXPLAIN prints table names.
                    let partition = result_relation();
                    let relation = pg_sys::table_open(relid, pg_sys::NoLock.cast_signed());
                    let no_root = std::ptr::null_mut();
                    pg_sys::InitResultRelInfo(partition, relation, 0, no_root, self.instrument());
                    copy_triggers(from, partition);
                    let others = &raw mut (*self.estate).es_trig_target_relations;
                    *others = pg_sys::lappend(*others, partition.cast());
                }
            }
            pg_sys::MemoryContextSwitchTo(old);
        }
    }
}

/// A zeroed result relation. Guarded; allocates in the current memory context.
fn result_relation() -> *mut pg_sys::ResultRelInfo {
    // SAFETY: zeroed memory is what makeNode starts from.
    unsafe {
        let relation = pg_sys::palloc0(size_of::<pg_sys::ResultRelInfo>()).cast::<pg_sys::ResultRelInfo>();
        (*relation).type_ = pg_sys::NodeTag::T_ResultRelInfo;
        relation
    }
}

/// # Safety
/// Both result relations are of one relation.
unsafe fn copy_triggers(from: *const pg_sys::ResultRelInfo, to: *mut pg_sys::ResultRelInfo) {
    // SAFETY: an array of instruments has an element for each trigger.
    unsafe {
        let (source, goal) = ((*from).ri_TrigInstrument, (*to).ri_TrigInstrument);
        let count =
            |relation: *const pg_sys::ResultRelInfo| (*relation).ri_TrigDesc.as_ref().map_or(0, |t| t.numtriggers);
        let count = usize::try_from(count(from).min(count(to))).unwrap_or(0);
        if !source.is_null() && !goal.is_null() {
            goal.copy_from_nonoverlapping(source, count);
        }
    }
}
