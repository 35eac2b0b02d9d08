//! Before and after the rows: what needs all of them, or must not be done in parallel mode.
//!
//! The leader locks every relation that a worker may write to, because a worker's locks end with it, long before the
//! transaction does.
//!
//! Indexes and row triggers learn of the rows when these are in the heap: the leader reads the new pages back, through
//! shared buffers, and tells its own rows by their xid and command. Until then no index knows of them, so nobody finds
//! what is not there yet.

use std::time::Instant;

use pg_bulk_format::page::MAX_TUPLES;
use pgrx::pg_sys;

use super::freeze;
use super::process::{Executor, Process};
use crate::error::Result;
use crate::load::report::{Counts, IndexReport};
use crate::pg::points::point;
use crate::pg::unguarded;

const NO_LOCK: pg_sys::LOCKMODE = pg_sys::NoLock.cast_signed();
const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;

fn is_partitioned(relation: pg_sys::Relation) -> bool {
    // SAFETY: an open relation.
    unsafe { (*(*relation).rd_rel).relkind.cast_unsigned() == pg_sys::RELKIND_PARTITIONED_TABLE }
}

/// The relations that rows of a target may go to, open, and locked to the end of the transaction. Guarded.
///
/// # Safety
/// An open relation that is locked.
pub unsafe fn lock_leaves(relation: pg_sys::Relation) -> Vec<pg_sys::Relation> {
    if !is_partitioned(relation) {
        return vec![relation];
    }
    let mode = pg_sys::RowExclusiveLock.cast_signed();
    // SAFETY: guarded calls; find_all_inheritors has locked what it returns.
    unsafe {
        let oids = unguarded::guard(|| unguarded::find_all_inheritors((*relation).rd_id, mode, std::ptr::null_mut()));
        let count = if oids.is_null() { 0 } else { (*oids).length };
        let open = |i| pg_sys::table_open(pg_sys::list_nth_oid(oids, i), NO_LOCK);
        let relations: Vec<_> = (0..count).map(open).collect();
        let (leaves, inner): (Vec<_>, Vec<_>) = relations.into_iter().partition(|&relation| !is_partitioned(relation));
        inner.into_iter().for_each(|relation| pg_sys::table_close(relation, NO_LOCK));
        leaves
    }
}

/// Close what [`lock_leaves`] opened; the locks stay. Guarded.
///
/// # Safety
/// The same relation, and what it gave.
pub unsafe fn close_leaves(relation: pg_sys::Relation, leaves: &[pg_sys::Relation]) {
    for &leaf in leaves.iter().filter(|&&leaf| leaf != relation) {
        // SAFETY: the caller vouches for it.
        unsafe { pg_sys::table_close(leaf, NO_LOCK) };
    }
}

/// What CopyFrom does before the first row. Guarded.
pub fn before_rows(executor: &Executor) {
    // SAFETY: guarded calls on the executor's own structures.
    unsafe {
        pg_sys::AfterTriggerBeginQuery();
        pg_sys::ExecBSInsertTriggers(executor.estate, executor.target);
        // An early answer where there is one; the check that counts comes after the rows.
        let relation = (*executor.target).ri_RelationDesc;
        check_serializable(relation);
    }
}

fn check_serializable(relation: pg_sys::Relation) {
    // SAFETY: an open relation.
    unsafe {
        unguarded::guard(|| {
            unguarded::CheckForSerializableConflictIn(relation, std::ptr::null_mut(), pg_sys::InvalidBlockNumber);
        });
    }
}

/// Tell the statistics collector of rows that were appended. Guarded.
pub fn count_rows(relation: pg_sys::Oid, rows: u64) {
    if rows == 0 {
        return;
    }
    // SAFETY: guarded calls on a relation that the leader has locked.
    unsafe {
        let relation = pg_sys::table_open(relation, NO_LOCK);
        pg_sys::pgstat_count_heap_insert(relation, rows.cast_signed());
        pg_sys::table_close(relation, NO_LOCK);
    }
}

/// What has to wait for the rows. Outside of parallel mode. Guarded.
pub fn after_rows(process: &mut Process, counts: &mut Counts) -> Result<()> {
    let executor = process.executor;
    for index in 0..process.traits.len() {
        let Some(&(oid, _)) = process.traits.get(index) else { continue };
        let heap = process.heaps.iter().find(|heap| heap.index == index);
        let start = process.start_of(index);
        let elsewhere = heap.map(|heap| heap.elsewhere.clone()).unwrap_or_default();
        // SAFETY: a relation that the leader has locked; all calls are guarded.
        unsafe {
            let relation = pg_sys::table_open(oid, NO_LOCK);
            check_serializable(relation);
            if process.stamp.frozen {
                freeze::set_visibility(relation, start);
            }
            point!("settle.indexes");
            let new = NewRows { relation, start, elsewhere, xmin: process.stamp.xmin, cid: process.stamp.cid };
            tell_about(&new, &executor, counts);
            pg_sys::table_close(relation, NO_LOCK);
        }
    }
    // SAFETY: guarded calls on the executor's own structures, as CopyFrom ends.
    unsafe {
        pg_sys::ExecASInsertTriggers(executor.estate, executor.target, std::ptr::null_mut());
        pg_sys::AfterTriggerEndQuery(executor.estate);
    }
    Ok(())
}

/// The rows that a load put into a relation.
struct NewRows {
    relation: pg_sys::Relation,
    /// They are in this block and behind it, ...
    start: u32,
    /// ... but for these.
    elsewhere: Vec<pg_sys::ItemPointerData>,
    xmin: u32,
    cid: u32,
}

/// Insert index entries for the new rows, and queue their triggers.
///
/// # Safety
/// A guarded frame; an open relation, and the load's executor state.
unsafe fn tell_about(new: &NewRows, executor: &Executor, counts: &mut Counts) {
    // SAFETY: guarded calls. The result relation is made as ExecInitPartitionInfo (execPartition.c) makes one, and is
    // the target's own where it is the target.
    unsafe {
        let old = pg_sys::MemoryContextSwitchTo((*executor.estate).es_query_cxt);
        let is_target = (*(*executor.target).ri_RelationDesc).rd_id == (*new.relation).rd_id;
        let relinfo = if is_target {
            executor.target
        } else {
            let relinfo = pg_sys::palloc0(size_of::<pg_sys::ResultRelInfo>()).cast::<pg_sys::ResultRelInfo>();
            (*relinfo).type_ = pg_sys::NodeTag::T_ResultRelInfo;
            pg_sys::InitResultRelInfo(relinfo, new.relation, 0, executor.target, 0);
            relinfo
        };
        let triggers = (*relinfo).ri_TrigDesc;
        let has_triggers = !triggers.is_null() && (*triggers).trig_insert_after_row;
        if (*(*new.relation).rd_rel).relhasindex || has_triggers {
            pg_sys::ExecOpenIndices(relinfo, false);
            let started = Instant::now();
            let slot = pg_sys::table_slot_create(new.relation, std::ptr::null_mut());
            new.for_each(slot, |slot| {
                let recheck = if (*relinfo).ri_NumIndices > 0 {
                    crate::pg::compat::insert_index_tuples(relinfo, slot, executor.estate)
                } else {
                    std::ptr::null_mut()
                };
                pg_sys::ExecARInsertTriggers(executor.estate, relinfo, slot, recheck, std::ptr::null_mut());
                pg_sys::MemoryContextReset((*executor.econtext).ecxt_per_tuple_memory);
            });
            pg_sys::ExecDropSingleTupleTableSlot(slot);
            let seconds = started.elapsed().as_secs_f64();
            for i in 0..usize::try_from((*relinfo).ri_NumIndices).unwrap_or(0) {
                let index = *(*relinfo).ri_IndexRelationDescs.add(i);
                let name = std::ffi::CStr::from_ptr((*(*index).rd_rel).relname.data.as_ptr());
                let name = name.to_string_lossy().into_owned();
                counts.indexes.push(IndexReport { name, method: "insert", seconds });
            }
            pg_sys::ExecCloseIndices(relinfo);
            (*relinfo).ri_NumIndices = 0;
        }
        pg_sys::MemoryContextSwitchTo(old);
    }
}

impl NewRows {
    /// Call `visit` with each row, in a slot for buffered tuples.
    ///
    /// # Safety
    /// A guarded frame, an open relation, and a slot for it.
    unsafe fn for_each(&self, slot: *mut pg_sys::TupleTableSlot, mut visit: impl FnMut(*mut pg_sys::TupleTableSlot)) {
        // SAFETY: guarded calls on an open relation; pages are looked at under a pin and a lock, rows under a pin: they are
        // ours, and nobody moves them before we commit.
        unsafe {
            let strategy = pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD);
            let end = pg_sys::RelationGetNumberOfBlocksInFork(self.relation, MAIN);
            for block in self.start..end {
                pgrx::check_for_interrupts!();
                self.visit_page(block, None, strategy, slot, &mut visit);
            }
            for tid in &self.elsewhere {
                let block = (u32::from(tid.ip_blkid.bi_hi) << 16) | u32::from(tid.ip_blkid.bi_lo);
                self.visit_page(block, Some(tid.ip_posid), strategy, slot, &mut visit);
            }
            pg_sys::FreeAccessStrategy(strategy);
        }
    }

    /// # Safety
    /// As [`NewRows::for_each`]; a block of the relation.
    unsafe fn visit_page(
        &self,
        block: u32,
        only: Option<u16>,
        strategy: pg_sys::BufferAccessStrategy,
        slot: *mut pg_sys::TupleTableSlot,
        visit: &mut impl FnMut(*mut pg_sys::TupleTableSlot),
    ) {
        // SAFETY: the caller vouches for it.
        unsafe {
            let normal = pg_sys::ReadBufferMode::RBM_NORMAL;
            let buffer = pg_sys::ReadBufferExtended(self.relation, MAIN, block, normal, strategy);
            pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE.cast_signed());
            let page = pg_sys::BufferGetPage(buffer);
            let mut own = [0u16; MAX_TUPLES];
            let mut count = 0;
            for offset in 1..=pg_sys::PageGetMaxOffsetNumber(page) {
                let id = pg_sys::PageGetItemId(page, offset);
                let tuple = pg_sys::PageGetItem(page, id).cast::<pg_sys::HeapTupleHeaderData>();
                let is_normal = (*id).lp_flags() == pg_sys::LP_NORMAL;
                if is_normal && self.is_ours(tuple) && only.is_none_or(|only| only == offset) && count < own.len() {
                    own[count] = offset;
                    count += 1;
                }
            }
            pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_UNLOCK.cast_signed());
            for &offset in own.iter().take(count) {
                let id = pg_sys::PageGetItemId(page, offset);
                let mut tuple = pg_sys::HeapTupleData {
                    t_len: (*id).lp_len(),
                    t_self: pg_sys::ItemPointerData {
                        ip_blkid: pg_sys::BlockIdData { bi_hi: (block >> 16) as u16, bi_lo: block as u16 },
                        ip_posid: offset,
                    },
                    t_tableOid: (*self.relation).rd_id,
                    t_data: pg_sys::PageGetItem(page, id).cast(),
                };
                pg_sys::ExecStoreBufferHeapTuple(&raw mut tuple, slot, buffer);
                visit(slot);
            }
            if let Some(clear) = (*(*slot).tts_ops).clear {
                unguarded::guard(|| clear(slot));
            }
            pg_sys::ReleaseBuffer(buffer);
        }
    }

    /// Did this load insert the tuple?
    ///
    /// # Safety
    /// A tuple's header.
    unsafe fn is_ours(&self, tuple: *const pg_sys::HeapTupleHeaderData) -> bool {
        // SAFETY: the caller vouches for it. A row of ours that nobody has deleted has no combo command id.
        unsafe {
            let heap = (*tuple).t_choice.t_heap;
            heap.t_xmin.into_inner() == self.xmin && heap.t_field3.t_cid == self.cid
        }
    }
}
