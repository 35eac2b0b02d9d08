//! Executor state that checks and routes the rows of a load, in the leader and in each worker. Set up as in CopyFrom
//! (copyfrom.c).
//!
//! The INSERT that a load executes, in the server's executor state.
//!
//! A load has its own executor state with its own result relations. It takes two things from the statement's state. The
//! first is the columns that the statement names: an error shows their values to a role that may insert but not read.
//! The second is the instrumentation of triggers, for EXPLAIN and auto_explain. At the end, the figures of the load's
//! result relations are added to the statement's.

use pgrx::{PgList, pg_sys};

use crate::heap::leaves::partitions;
use crate::load::Load;
use crate::rows::row::RowArrays;
use crate::server::column_set::ColumnSet;
use crate::server::expression::Expression;
use crate::server::memory_context::MemoryContext;
use crate::server::node::{Node, NodeList};
use crate::server::relation::{OpenRelation, Relation};
use crate::server::result_relation::{ResultRelation, new_result_relation};
use crate::server::slot::{ExprContext, Slot};
use crate::server::{compat, unguarded};

/// Executor state of a load's target. A handle: valid until [`tear_down`], which is unsafe.
#[derive(Debug, Clone, Copy)]
pub struct Executor {
    estate: *mut pg_sys::EState,
    target: ResultRelation,
    context: ExprContext<'static>,
    slot: Slot<'static>,
    mtstate: *mut pg_sys::ModifyTableState,
    routing: *mut pg_sys::PartitionTupleRouting,
    condition: Option<Expression>,
    /// ExecConstraints must check the target's rows.
    checks: bool,
    leaf: bool,
    generated: bool,
}

impl Executor {
    /// Returns the pointer for functions of the server.
    #[inline(always)]
    pub const fn estate(&self) -> *mut pg_sys::EState {
        self.estate
    }

    #[inline(always)]
    pub const fn target(&self) -> ResultRelation {
        self.target
    }

    /// The context for the target's rows.
    #[inline(always)]
    pub const fn context(&self) -> ExprContext<'static> {
        self.context
    }

    /// A virtual slot with the target's descriptor.
    #[inline(always)]
    pub const fn slot(&self) -> Slot<'static> {
        self.slot
    }

    /// For partitioned tables, else null.
    #[inline(always)]
    pub const fn routing(&self) -> (*mut pg_sys::ModifyTableState, *mut pg_sys::PartitionTupleRouting) {
        (self.mtstate, self.routing)
    }

    /// The where option.
    #[inline(always)]
    pub const fn condition(&self) -> Option<Expression> {
        self.condition
    }

    /// The target is a leaf of a partitioned table, and is loaded directly.
    #[inline(always)]
    pub const fn is_leaf(&self) -> bool {
        self.leaf
    }

    /// The arrays of the target's row.
    pub fn arrays(&self) -> RowArrays<'static> {
        self.slot.arrays()
    }

    /// Number of the target's attributes.
    pub fn attributes(&self) -> usize {
        self.slot.descriptor().len()
    }

    /// The memory context of the state, which is deleted with it.
    pub fn memory(&self) -> MemoryContext {
        // SAFETY: the state is valid until `tear_down`, as this handle is.
        unsafe { MemoryContext::of_query(self.estate) }
    }

    /// The target.
    pub fn relation(&self) -> Relation<'static> {
        self.target.relation()
    }

    /// Does no row need a step of the executor?
    pub fn is_idle(&self) -> bool {
        !(self.checks || self.generated || self.leaf) && self.routing.is_null() && self.condition.is_none()
    }

    /// Fixes the partitions that rows go to, even if another session attaches more.
    ///
    /// The executor looks at a partition's own partitions only when the first row comes for them. Guarded.
    pub fn pin_partitions(&self) {
        // SAFETY: the state is valid.
        let directory = unsafe { (*self.estate).es_partition_directory };
        if !self.relation().is_partitioned() || directory.is_null() {
            return;
        }
        for inner in partitions(self.relation()).1 {
            let inner = OpenRelation::open(inner, pg_sys::RowExclusiveLock);
            // SAFETY: a guarded call on the state's directory, which keeps the relation open.
            unsafe { pg_sys::PartitionDirectoryLookup(directory, inner.get().as_ptr()) };
        }
    }
}

/// Makes the executor state for an open relation.
///
/// `inserted`: the attributes that rows give values to; `conditions`: those of the where option; `instrument`: the figures
/// to measure for triggers. Guarded; allocates in the current memory context.
pub fn set_up(relation: Relation<'_>, inserted: &[i16], conditions: NodeList<'static>, instrument: i32) -> Executor {
    make(relation, inserted, conditions, instrument, None)
}

/// Makes the executor state, with the partitions of another state, or with the current ones.
fn make(
    relation: Relation<'_>,
    inserted: &[i16],
    conditions: NodeList<'static>,
    instrument: i32,
    other: Option<&Executor>,
) -> Executor {
    // SAFETY: guarded calls; nodes are made in the current context. The other state is never freed ([`set_up_again`]).
    unsafe {
        let estate = pg_sys::CreateExecutorState();
        (*estate).es_instrument = instrument;
        if let Some(other) = other {
            (*estate).es_partition_directory = (*other.estate).es_partition_directory;
        }
        let memory = MemoryContext::of_query(estate);
        let entered = memory.enter();
        compat::init_range_table(Node::from_raw(estate).unwrap_unchecked(), relation, inserted);
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
        let condition = Expression::conditions(conditions);
        let descriptor = relation.descriptor();
        let slot = Slot::make(descriptor);
        let constraints = (*descriptor.as_ptr()).constr;
        let (checks, generated) = constraints.as_ref().map_or((false, false), |own| {
            (own.num_check > 0 || descriptor.has_virtual_not_null(), own.has_generated_stored)
        });
        let context = ExprContext::from_raw(pg_sys::MakePerTupleExprContext(estate));
        drop(entered);
        let leaf = relation.is_partition() && !partitioned;
        let (target, slot) = (ResultRelation::from_raw(target), Slot::from_raw(slot.as_ptr()));
        Executor { estate, target, context, slot, mtstate, routing, condition, checks, leaf, generated }
    }
}

/// Makes the state again for rows that are read again after an error.
///
/// The error may have stopped any expression in the middle ([`Expression::renew`]). The first state is neither used nor
/// torn down any more, because an error ends the load. Rows are routed as before. Guarded; allocates in the current
/// memory context.
pub fn set_up_again(executor: &Executor, inserted: &[i16]) -> Executor {
    // SAFETY: the state is valid.
    let instrument = unsafe { (*executor.estate).es_instrument };
    let mut condition = executor.condition;
    condition.iter_mut().for_each(Expression::renew);
    let again = make(executor.relation(), inserted, NodeList::EMPTY, instrument, Some(executor));
    Executor { condition, ..again }
}

/// Frees the executor state. Guarded.
///
/// # Safety
/// Neither this state nor a copy of it is used any more, nor a state that [`set_up_again`] has made of it.
pub unsafe fn tear_down(executor: &Executor) {
    // SAFETY: guarded calls on what `set_up` made, in the order of CopyFrom.
    unsafe {
        if !executor.routing.is_null() {
            unguarded::guard(|| unguarded::ExecCleanupTupleRouting(executor.mtstate, executor.routing));
        }
        pg_sys::ExecResetTupleTable((*executor.estate).es_tupleTable, false);
        pg_sys::ExecDropSingleTupleTableSlot(executor.slot.as_ptr());
        pg_sys::ExecCloseResultRelations(executor.estate);
        pg_sys::ExecCloseRangeTableRelations(executor.estate);
        pg_sys::FreeExecutorState(executor.estate);
    }
}

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
        // SAFETY: a guarded call on the state and one of its result relations.
        unsafe { ColumnSet::from_raw(pg_sys::ExecGetInsertedCols(self.target.as_ptr(), self.estate)) }
            .numbers()
            .collect()
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
