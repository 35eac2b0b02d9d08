//! Executor state that checks and routes the rows of a load, in the leader and in each worker. Set up as in CopyFrom
//! (copyfrom.c).

use pgrx::pg_sys;

use crate::rows::row::RowArrays;
use crate::server::compat;
use crate::server::expression::Expression;
use crate::server::memory_context::MemoryContext;
use crate::server::relation::Relation;
use crate::server::result_relation::new_result_relation;
use crate::server::slot::{ExprContext, Slot};
use crate::server::unguarded;

/// Executor state of a load's target.
#[derive(Debug, Clone, Copy)]
pub struct Executor {
    pub estate: *mut pg_sys::EState,
    pub target: *mut pg_sys::ResultRelInfo,
    pub econtext: *mut pg_sys::ExprContext,
    /// A virtual slot with the target's descriptor.
    pub slot: *mut pg_sys::TupleTableSlot,
    /// For partitioned tables, else null.
    pub mtstate: *mut pg_sys::ModifyTableState,
    pub routing: *mut pg_sys::PartitionTupleRouting,
    /// The where option, or null.
    pub condition: *mut pg_sys::ExprState,
    /// ExecConstraints must check the target's rows.
    pub checks: bool,
    /// The target is a leaf of a partitioned table, and is loaded directly.
    pub leaf: bool,
    pub generated: bool,
}

impl Executor {
    /// The arrays of the target's row.
    pub fn arrays(&self) -> RowArrays<'static> {
        // SAFETY: the slot lives as long as the executor's state.
        unsafe { Slot::from_raw(self.slot) }.arrays()
    }

    /// The context for the target's rows.
    pub fn context(&self) -> ExprContext<'static> {
        // SAFETY: the context lives as long as the executor's state.
        unsafe { ExprContext::from_raw(self.econtext) }
    }

    /// Number of the target's attributes.
    pub fn attributes(&self) -> usize {
        // SAFETY: as above.
        unsafe { usize::try_from((*(*self.slot).tts_tupleDescriptor).natts).unwrap_or(0) }
    }

    /// The memory context of the state, which is deleted with it.
    pub fn memory(&self) -> MemoryContext {
        // SAFETY: as above.
        unsafe { MemoryContext::of_query(self.estate) }
    }

    /// The target.
    pub fn relation(&self) -> Relation<'static> {
        // SAFETY: the state has a result relation, which is open as long as the state is.
        unsafe { Relation::from_raw((*self.target).ri_RelationDesc) }
    }

    /// Does no row need a step of the executor?
    pub fn is_idle(&self) -> bool {
        !(self.checks || self.generated || self.leaf) && self.routing.is_null() && self.condition.is_null()
    }
}

/// Makes the executor state for an open relation.
///
/// `inserted`: the attributes that rows give values to; `condition`: the where option's expression or null;
/// `instrument`: the figures to measure for triggers. Guarded; allocates in the current memory context.
pub fn set_up(relation: Relation<'_>, inserted: &[i16], condition: *mut pg_sys::Node, instrument: i32) -> Executor {
    // SAFETY: the handle of an open, locked relation.
    unsafe { make(relation, inserted, condition, instrument, std::ptr::null_mut()) }
}

/// Makes the executor state, with the partitions of `directory`, or with the current ones if it is null.
///
/// # Safety
/// The directory is null, or of another executor state that is freed after the last
/// use of this one. Guarded.
unsafe fn make(
    relation: Relation<'_>,
    inserted: &[i16],
    condition: *mut pg_sys::Node,
    instrument: i32,
    directory: pg_sys::PartitionDirectory,
) -> Executor {
    // SAFETY: guarded calls; nodes are made in the current context.
    unsafe {
        let estate = pg_sys::CreateExecutorState();
        (*estate).es_instrument = instrument;
        (*estate).es_partition_directory = directory;
        let old = pg_sys::MemoryContextSwitchTo((*estate).es_query_cxt);
        compat::init_range_table(estate, relation.as_ptr(), inserted);
        let target = new_result_relation();
        pg_sys::ExecInitResultRelation(estate, target, 1);
        compat::check_valid_result_rel(target);
        // makeNode starts from zeroed memory, too.
        let mtstate = pg_sys::palloc0(size_of::<pg_sys::ModifyTableState>()).cast::<pg_sys::ModifyTableState>();
        (*mtstate).ps.type_ = pg_sys::NodeTag::T_ModifyTableState;
        (*mtstate).ps.state = estate;
        (*mtstate).operation = pg_sys::CmdType::CMD_INSERT;
        (*mtstate).mt_nrels = 1;
        (*mtstate).resultRelInfo = target;
        (*mtstate).rootResultRelInfo = target;
        let partitioned = relation.is_partitioned();
        let routing = if partitioned {
            unguarded::guard(|| unguarded::ExecSetupPartitionTupleRouting(estate, relation.as_ptr()))
        } else {
            std::ptr::null_mut()
        };
        let condition = if condition.is_null() {
            std::ptr::null_mut()
        } else {
            pg_sys::ExecInitQual(condition.cast(), &raw mut (*mtstate).ps)
        };
        let descriptor = relation.descriptor();
        let slot = Slot::make(descriptor).as_ptr();
        let constraints = (*descriptor.as_ptr()).constr;
        let (checks, generated) = constraints.as_ref().map_or((false, false), |own| {
            (own.num_check > 0 || descriptor.has_virtual_not_null(), own.has_generated_stored)
        });
        let econtext = pg_sys::MakePerTupleExprContext(estate);
        pg_sys::MemoryContextSwitchTo(old);
        let leaf = (*(*relation.as_ptr()).rd_rel).relispartition && !partitioned;
        Executor { estate, target, econtext, slot, mtstate, routing, condition, checks, leaf, generated }
    }
}

/// Makes the state again for rows that are read again after an error.
///
/// The error may have stopped any expression in the middle ([`Expression::renew`]). The first state is neither used nor
/// torn down any more, because an error ends the load. Rows are routed as before. Guarded; allocates in the current
/// memory context.
pub fn set_up_again(executor: &Executor, inserted: &[i16]) -> Executor {
    // SAFETY: the executor's own structures.
    unsafe {
        let relation = executor.relation();
        let (instrument, directory) = ((*executor.estate).es_instrument, (*executor.estate).es_partition_directory);
        let again = make(relation, inserted, std::ptr::null_mut(), instrument, directory);
        let mut condition = Expression::from_raw(executor.condition);
        condition.iter_mut().for_each(Expression::renew);
        Executor { condition: condition.map_or(std::ptr::null_mut(), Expression::as_ptr), ..again }
    }
}

/// Frees the executor state. Guarded.
///
/// # Safety
/// Neither this state nor a copy of it is used any more.
pub unsafe fn tear_down(executor: &Executor) {
    // SAFETY: guarded calls on what `set_up` made, in the order of CopyFrom.
    unsafe {
        if !executor.routing.is_null() {
            unguarded::guard(|| unguarded::ExecCleanupTupleRouting(executor.mtstate, executor.routing));
        }
        pg_sys::ExecResetTupleTable((*executor.estate).es_tupleTable, false);
        pg_sys::ExecDropSingleTupleTableSlot(executor.slot);
        pg_sys::ExecCloseResultRelations(executor.estate);
        pg_sys::ExecCloseRangeTableRelations(executor.estate);
        pg_sys::FreeExecutorState(executor.estate);
    }
}
