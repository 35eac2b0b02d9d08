//! The executor's node of a scan.
//!
//! The server passes a [`ScanNode`] to the callbacks of this wrapper, one call at a time. The node has a plan and an
//! executor state, from before BeginForeignScan until after EndForeignScan. Its `fdw_state` is null, or the [`Scan`]
//! that BeginForeignScan has made; the query's memory context drops that. Nothing else uses the node and its scan during
//! the call, so the handle cannot be copied.

use std::marker::PhantomData;

use pgrx::pg_sys;

use super::owns;
use super::scan::Scan;
use crate::rows::row::RowArrays;
use crate::server::callback::Argument;
use crate::server::compat;
use crate::server::memory_context::MemoryContext;
use crate::server::node::{Node, NodeList};
use crate::server::relation::Relation;
use crate::server::slot::{ExprContext, Slot};

/// A node of this wrapper, which nothing else uses as long as `'a`.
#[derive(Debug)]
#[repr(transparent)]
pub struct ScanNode<'a>(Node<'a, pg_sys::ForeignScanState>, PhantomData<&'a mut Scan>);

// SAFETY: the server passes a valid node, whose state only this wrapper's callbacks set, to one callback at a time.
unsafe impl Argument for ScanNode<'_> {
    type Raw = *mut pg_sys::ForeignScanState;
}

impl<'a> ScanNode<'a> {
    /// A begun node; None if it is not one of this wrapper. Loads ask about it between two callbacks, in which alone it has
    /// other handles.
    pub fn of(node: Node<'a, pg_sys::ForeignScanState>) -> Option<ScanNode<'a>> {
        owns(node.routines()).then_some(ScanNode(node, PhantomData))
    }

    /// The scan; None if it has not begun, as after a bare EXPLAIN.
    pub fn scan(&mut self) -> Option<&mut Scan> {
        // SAFETY: `fdw_state` is null or a scan that nothing else uses.
        unsafe { self.0.fdw_state.cast::<Scan>().as_mut() }
    }

    pub fn begin(&mut self, scan: Scan) {
        let node = self.0.as_ptr();
        // SAFETY: nothing else uses the node, and the memory of its query outlives it.
        unsafe {
            (*node).fdw_state = std::ptr::from_mut(MemoryContext::of_query((*node).ss.ps.state).keep(scan)).cast()
        };
    }

    pub fn estate(&self) -> Node<'a, pg_sys::EState> {
        self.0.state().estate()
    }

    /// The arrays of the scan's slot, the context of its expressions, and the foreign table. Guarded.
    ///
    /// # Safety
    /// They are not used after EndForeignScan.
    pub unsafe fn parts(&self) -> (RowArrays<'static>, ExprContext<'static>, Relation<'static>) {
        let scan = self.0.ss;
        // SAFETY: until then the node has a slot and a context, and the executor has the relation open.
        unsafe {
            let arrays = Slot::from_raw(scan.ss_ScanTupleSlot).arrays();
            let relation = Relation::from_raw(self.relation().as_ptr());
            (arrays, ExprContext::from_raw(scan.ps.ps_ExprContext), relation)
        }
    }

    pub fn is_parallel_aware(&self) -> bool {
        self.0.plan().scan.plan.parallel_aware
    }

    /// The wrapper's data in the plan.
    pub fn private(&self) -> NodeList<'a> {
        self.0.plan().private()
    }

    /// The range table index of the table of a scan that returns aggregates. Guarded.
    pub fn aggregated_table(&self) -> i32 {
        // SAFETY: a guarded call on the plan's set.
        unsafe { pg_sys::bms_next_member(self.0.plan().fs_relids, -1) }
    }

    /// The foreign table. Guarded.
    pub fn relation(&self) -> Relation<'a> {
        let own = self.0.ss.ss_currentRelation;
        // SAFETY: the executor has the relation open and locked until the query ends. A scan without a relation of its own
        // has the index of its table.
        unsafe {
            if own.is_null() {
                return compat::range_table_relation(self.estate(), self.aggregated_table().cast_unsigned());
            }
            Relation::from_raw(own)
        }
    }

    /// Takes the conditions, so that the executor finds none; null if there are none.
    pub fn take_qual(&mut self) -> *mut pg_sys::ExprState {
        // SAFETY: nothing else uses the node.
        unsafe { std::mem::replace(&mut (*self.0.as_ptr()).ss.ps.qual, std::ptr::null_mut()) }
    }
}
