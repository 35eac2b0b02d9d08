//! The executor's node of a scan.
//!
//! The server passes a [`ScanNode`] to the callbacks of this wrapper, one call at a time. The node has a plan and an
//! executor state, from before BeginForeignScan until after EndForeignScan. Its `fdw_state` is null, or the [`Scan`]
//! that BeginForeignScan has made; the query's memory context drops that. Nothing else uses the node and its scan during
//! the call, so the handle cannot be copied.

use std::marker::PhantomData;
use std::ptr::NonNull;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::pg_sys;

use super::scan::Scan;
use crate::rows::row::RowArrays;
use crate::server::callback::Argument;
use crate::server::compat;
use crate::server::node::{Node, NodeList};
use crate::server::relation::Relation;
use crate::server::slot::{ExprContext, Slot};

/// A node of this wrapper that is valid, and that nothing else uses, as long as `'a`.
#[derive(Debug)]
pub struct ScanNode<'a>(NonNull<pg_sys::ForeignScanState>, PhantomData<&'a mut pg_sys::ForeignScanState>);

// SAFETY: the server passes a valid node, whose state only this wrapper's callbacks set.
unsafe impl Argument for ScanNode<'_> {
    type Raw = *mut pg_sys::ForeignScanState;

    unsafe fn of(raw: Self::Raw) -> Self {
        // SAFETY: the server passes its node to one callback at a time.
        unsafe { ScanNode::from_raw(raw) }
    }
}

impl<'a> ScanNode<'a> {
    /// # Safety
    /// A node of this wrapper that is not null. Nothing else uses it or its scan as long as this handle is used.
    pub const unsafe fn from_raw(node: *mut pg_sys::ForeignScanState) -> ScanNode<'a> {
        // SAFETY: the caller has a pointer that is not null.
        ScanNode(unsafe { NonNull::new_unchecked(node) }, PhantomData)
    }

    const fn node(&self) -> &pg_sys::ForeignScanState {
        // SAFETY: the node is valid.
        unsafe { self.0.as_ref() }
    }

    const fn plan(&self) -> &pg_sys::ForeignScan {
        // SAFETY: a node of a foreign scan has such a plan.
        unsafe { &*self.node().ss.ps.plan.cast() }
    }

    /// The scan; None if it has not begun, as after a bare EXPLAIN.
    pub const fn scan(&mut self) -> Option<&mut Scan> {
        // SAFETY: `fdw_state` is null or a scan that nothing else uses.
        unsafe { self.node().fdw_state.cast::<Scan>().as_mut() }
    }

    pub fn begin(&mut self, scan: Scan) {
        let scan = PgMemoryContexts::For(self.estate().es_query_cxt).leak_and_drop_on_delete(scan);
        // SAFETY: nothing else uses the node.
        unsafe { self.0.as_mut() }.fdw_state = scan.cast();
    }

    pub fn estate(&self) -> Node<'a, pg_sys::EState> {
        // SAFETY: a node has an executor state, which outlives it.
        unsafe { Node::from_raw(self.node().ss.ps.state).unwrap_unchecked() }
    }

    /// The context of the scan's expressions.
    ///
    /// # Safety
    /// It is not used after EndForeignScan.
    pub const unsafe fn econtext(&self) -> ExprContext<'static> {
        // SAFETY: a scan's node has a context until then.
        unsafe { ExprContext::from_raw(self.node().ss.ps.ps_ExprContext) }
    }

    pub const fn is_parallel_aware(&self) -> bool {
        self.plan().scan.plan.parallel_aware
    }

    /// The wrapper's data in the plan.
    pub const fn private(&self) -> NodeList<'a> {
        // SAFETY: this wrapper has put lists and null pointers into the list.
        unsafe { NodeList::from_raw(self.plan().fdw_private) }
    }

    /// The range table index of the table of a scan that returns aggregates. Guarded.
    pub fn aggregated_table(&self) -> i32 {
        // SAFETY: a guarded call on the plan's set.
        unsafe { pg_sys::bms_next_member(self.plan().fs_relids, -1) }
    }

    /// The foreign table. Guarded.
    pub fn relation(&self) -> Relation<'a> {
        let own = self.node().ss.ss_currentRelation;
        // SAFETY: the executor has the relation open and locked until the query ends. A scan without a relation of its own
        // has the index of its table.
        unsafe {
            if own.is_null() {
                return compat::range_table_relation(self.estate(), self.aggregated_table().cast_unsigned());
            }
            Relation::from_raw(own)
        }
    }

    /// The arrays of the scan's slot.
    ///
    /// # Safety
    /// They are not used after EndForeignScan.
    pub unsafe fn arrays(&self) -> RowArrays<'static> {
        // SAFETY: a node has a slot until then.
        unsafe { Slot::from_raw(self.node().ss.ss_ScanTupleSlot) }.arrays()
    }

    /// Takes the conditions, so that the executor finds none; null if there are none.
    pub const fn take_qual(&mut self) -> *mut pg_sys::ExprState {
        // SAFETY: nothing else uses the node.
        std::mem::replace(&mut unsafe { self.0.as_mut() }.ss.ps.qual, std::ptr::null_mut())
    }
}
