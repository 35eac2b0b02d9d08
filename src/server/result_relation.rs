//! Result relations of an executor state: the relations that its statement writes to.
//!
//! A [`ResultRelation`] is valid until its executor state is freed, which is unsafe: the code that frees the state answers
//! for all handles. Its relation is open and locked as long. Its triggers and their instruments are copies that belong to the
//! executor state.

use std::cell::Cell;
use std::ffi::c_char;

use pgrx::pg_sys;

use super::handle::Handle;
use super::relation::Relation;
use super::unguarded as c;
use crate::error::Result;

/// A result relation of an executor state that is not freed.
pub type ResultRelation = Handle<'static, pg_sys::ResultRelInfo>;

impl ResultRelation {
    /// The partitioned table to which rows for this relation are routed.
    pub fn root(self) -> Option<ResultRelation> {
        // SAFETY: a result relation of the same executor state, or null.
        unsafe { Handle::or_null(self.get().ri_RootResultRelInfo) }
    }

    pub fn relation(self) -> Relation<'static> {
        // SAFETY: the relation is open until the executor state is freed.
        unsafe { Relation::from_raw(self.get().ri_RelationDesc) }
    }

    /// Opens the indexes. With `searched`, also prepares searches for conflicting rows. Guarded.
    ///
    /// # Safety
    /// No handle of an index that was open before is used any more.
    pub unsafe fn open_indexes(self, searched: bool) {
        self.close_indexes();
        // SAFETY: a result relation without open indexes; the closure owns nothing.
        unsafe { c::guard(|| c::ExecOpenIndices(self.as_ptr(), searched)) }
    }

    /// Closes the indexes, if there are open ones. Guarded.
    fn close_indexes(self) {
        // SAFETY: a guarded call, which closes what ExecOpenIndices has opened.
        unsafe {
            if self.get().ri_NumIndices > 0 {
                pg_sys::ExecCloseIndices(self.as_ptr());
                (*self.as_ptr()).ri_NumIndices = 0;
            }
        }
    }

    /// The open indexes that the executor sees, each with its IndexInfo.
    pub fn indexes(self) -> Vec<(Relation<'static>, *mut pg_sys::IndexInfo)> {
        // SAFETY: the executor's lists have `ri_NumIndices` elements: open indexes, or null, and their infos.
        let at = |i| unsafe {
            let index = *self.get().ri_IndexRelationDescs.add(i);
            (!index.is_null()).then(|| (Relation::from_raw(index), *self.get().ri_IndexRelationInfo.add(i)))
        };
        (0..usize::try_from(self.get().ri_NumIndices).unwrap_or(0)).filter_map(at).collect()
    }

    /// The result relation's own copies of the triggers.
    fn own_triggers(&self) -> &[Cell<pg_sys::Trigger>] {
        let Some(all) = self.trigger_desc() else { return &[] };
        // SAFETY: a valid result relation has an array of `numtriggers` triggers. A cell is like its value.
        unsafe { std::slice::from_raw_parts(all.triggers.cast(), usize::try_from(all.numtriggers).unwrap_or(0)) }
    }

    fn trigger_desc(&self) -> Option<&pg_sys::TriggerDesc> {
        // SAFETY: a valid result relation has triggers, or null.
        unsafe { self.get().ri_TrigDesc.as_ref() }
    }

    /// The triggers, whose numbers are their places. Copies.
    pub fn triggers(self) -> Vec<pg_sys::Trigger> {
        self.own_triggers().iter().map(Cell::get).collect()
    }

    /// Sets in which sessions a trigger fires, for this result relation only.
    pub fn enable_trigger(self, number: usize, enabled: c_char) {
        if let Some(trigger) = self.own_triggers().get(number) {
            trigger.set(pg_sys::Trigger { tgenabled: enabled, ..trigger.get() });
        }
    }

    /// The instruments of the triggers; empty without EXPLAIN.
    fn instruments(&self) -> &[Cell<pg_sys::Instrumentation>] {
        let all = self.get().ri_TrigInstrument;
        if all.is_null() {
            return &[];
        }
        // SAFETY: a valid result relation has an instrument for each trigger. A cell is like its value.
        unsafe { std::slice::from_raw_parts(all.cast(), self.own_triggers().len()) }
    }

    /// Runs a step as a trigger for EXPLAIN: it takes the time of the trigger, and returns the number of calls beside its
    /// result. Guarded.
    pub fn as_trigger<T>(self, number: usize, step: impl FnOnce() -> Result<(T, u64)>) -> Result<T> {
        let Some(instrument) = self.instruments().get(number) else { return step().map(|(result, _)| result) };
        // SAFETY: guarded calls on an instrument.
        unsafe {
            pg_sys::InstrStartNode(instrument.as_ptr());
            let (result, calls) = step()?;
            pg_sys::InstrStopNode(instrument.as_ptr(), calls as f64);
            Ok(result)
        }
    }

    /// Copies the figures of the triggers to another result relation of the same relation.
    pub fn copy_instruments(self, to: ResultRelation) {
        self.instruments().iter().zip(to.instruments()).for_each(|(source, goal)| goal.set(source.get()));
    }

    /// Are there row triggers for updates, such as those of foreign keys that refer to the table?
    pub fn has_update_triggers(self) -> bool {
        self.trigger_desc().is_some_and(|triggers| triggers.trig_update_after_row)
    }
}

/// `makeNode(ResultRelInfo)`. Guarded; allocates in the current memory context.
pub fn new_result_relation() -> *mut pg_sys::ResultRelInfo {
    // SAFETY: zeroed memory is what makeNode starts from.
    unsafe {
        let relation = pg_sys::palloc0(size_of::<pg_sys::ResultRelInfo>()).cast::<pg_sys::ResultRelInfo>();
        (*relation).type_ = pg_sys::NodeTag::T_ResultRelInfo;
        relation
    }
}
