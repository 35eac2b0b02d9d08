//! The INSERT that a load executes, in the server's executor state.
//!
//! A load has its own executor state with its own result relations. It takes two things from the statement's state. The
//! first is the columns that the statement names: an error shows their values to a role that may insert but not read.
//! The second is the instrumentation of triggers, for EXPLAIN and auto_explain. At the end, the figures of the load's
//! result relations are added to the statement's.

use pgrx::{PgList, pg_sys};

use super::executor::Executor;
use crate::load::Load;
use crate::server::memory_context::MemoryContext;
use crate::server::relation::OpenRelation;
use crate::server::result_relation::{ResultRelation, new_result_relation};

/// A statement that is being executed.
#[derive(Debug, Clone, Copy)]
pub struct Statement {
    /// The state of the execution, which outlives the statement.
    estate: *mut pg_sys::EState,
    /// The statement's result relation.
    target: ResultRelation,
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
        // SAFETY: a guarded call on the state, which closes the relation at its end.
        unsafe {
            let _memory = MemoryContext::of_query(estate).enter();
            let target = new_result_relation();
            pg_sys::ExecInitResultRelation(estate, target, place);
            Statement { estate, target: ResultRelation::from_raw(target) }
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
            let columns = pg_sys::ExecGetInsertedCols(self.target.as_ptr(), self.estate);
            let mut member = pg_sys::bms_next_member(columns, -1);
            while member >= 0 {
                inserted.extend(i16::try_from(member + pg_sys::FirstLowInvalidHeapAttributeNumber));
                member = pg_sys::bms_next_member(columns, member);
            }
        }
        inserted
    }

    /// Adds the trigger figures of the result relations of this statement's load, which are all open. Guarded.
    pub fn add_triggers(&self, executor: &Executor) {
        if self.instrument() == 0 {
            return;
        }
        // SAFETY: the states of the statement and of its load, and their own lists of result relations; guarded calls.
        // ExecCloseResultRelations closes the relations that are opened here.
        unsafe {
            let _memory = MemoryContext::of_query(self.estate).enter();
            let load = &*executor.estate();
            let lists = [
                load.es_opened_result_relations,
                load.es_tuple_routing_result_relations,
                load.es_trig_target_relations,
            ];
            for list in lists {
                for from in PgList::<pg_sys::ResultRelInfo>::from_pg(list).iter_ptr() {
                    let from = ResultRelation::from_raw(from);
                    let relid = from.relation().oid();
                    if relid == self.target.relation().oid() {
                        from.copy_instruments(self.target);
                        continue;
                    }
                    // A partition. With a second table in the list, EXPLAIN prints table names.
                    let partition = new_result_relation();
                    let relation = OpenRelation::locked(relid).keep();
                    pg_sys::InitResultRelInfo(partition, relation, 0, std::ptr::null_mut(), self.instrument());
                    from.copy_instruments(ResultRelation::from_raw(partition));
                    let others = &raw mut (*self.estate).es_trig_target_relations;
                    *others = pg_sys::lappend(*others, partition.cast());
                }
            }
        }
    }
}
