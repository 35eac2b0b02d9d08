//! The INSERT that a load is, as the server's executor knows it.
//!
//! A load has an executor state of its own, with its own result relations. Two things are asked of the statement's: which
//! columns it names, for an error shows them to who may insert but not read; and, by EXPLAIN and auto_explain, how often
//! its triggers were called and how long they took. What the load's result relations know of that is added to the
//! statement's in the end.

use pgrx::{PgList, pg_sys};

use super::executor::Executor;
use crate::load::Load;

/// A statement that is being executed.
#[derive(Debug, Clone, Copy)]
pub struct Statement {
    estate: *mut pg_sys::EState,
    /// Its result relation.
    target: *mut pg_sys::ResultRelInfo,
}

/// The columns that whoever loads gives values to.
pub fn inserted_by(load: &Load) -> Vec<i16> {
    load.statement.map_or_else(|| load.mapping.attributes().collect(), |statement| statement.inserted())
}

impl Statement {
    /// Of the target at this place of the range table. Guarded.
    ///
    /// # Safety
    /// The state of the execution, which outlives the statement; the target is locked.
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

    /// What is to be measured (`InstrumentOption`).
    pub fn instrument(&self) -> i32 {
        // SAFETY: the state outlives the statement.
        unsafe { (*self.estate).es_instrument }
    }

    /// The columns that it names. Guarded.
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

    /// Add what the load's result relations know of their triggers. Guarded.
    ///
    /// # Safety
    /// The executor state of the load that the statement is, with all its relations open.
    pub unsafe fn add_triggers(&self, executor: &Executor) {
        if self.instrument() == 0 {
            return;
        }
        // SAFETY: this function's contract covers the load; the executor's own lists. Relations that are opened here are closed by
        // ExecCloseResultRelations.
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
                    // A partition. EXPLAIN names tables as soon as there is one.
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

/// Guarded; allocates in the current memory context.
fn result_relation() -> *mut pg_sys::ResultRelInfo {
    // SAFETY: zeroed memory is what makeNode starts from.
    unsafe {
        let relation = pg_sys::palloc0(size_of::<pg_sys::ResultRelInfo>()).cast::<pg_sys::ResultRelInfo>();
        (*relation).type_ = pg_sys::NodeTag::T_ResultRelInfo;
        relation
    }
}

/// # Safety
/// Two result relations of one relation.
unsafe fn copy_triggers(from: *const pg_sys::ResultRelInfo, to: *mut pg_sys::ResultRelInfo) {
    // SAFETY: there is an instrument for each trigger, where there are any.
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
