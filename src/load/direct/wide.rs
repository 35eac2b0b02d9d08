//! Wide rows: rows that TOAST must compress or store partly out of line.
//!
//! Each process compresses its own rows. Only the leader may store values out of line, since heap_insert refuses to
//! insert into a TOAST table in a worker. So workers send such rows to the leader after compression, each through its
//! own queue. The leader receives them between its own rows and while it waits. The shortened row goes to the leader's
//! pages; with logical decoding, core inserts the row.
//!
//! The tricky point is a possible deadlock. A worker waits for room in its queue, so the leader must not wait for that
//! worker without reading the queue. A worker sends only while it makes rows, when it holds neither the append lock nor
//! the current ticket. These are the only objects that the leader waits for without reading the queues.

use std::collections::VecDeque;
use std::ffi::c_void;

use pg_bulk_storage::tuple::MAX_TUPLE_SIZE;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::heap::{Heap, too_big};
use super::origin::{self, Origin, TidRange};
use crate::error::{Error, Result};
use crate::heap::append_lock::AppendLock;
use crate::heap::toast::Toaster;
use crate::rows::row::RowArrays;
use crate::server::points::point;

/// Size of a worker's queue in bytes.
pub const QUEUE: usize = 1 << 20;

/// Ranges of tuple positions in one message.
const RANGES: usize = 2000;

/// Header of a message in a queue. A multiple of MAXALIGN in length.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Envelope {
    relation: pg_sys::Oid,
    length: u32,
    kind: MessageKind,
    /// The tuple position of a row.
    position: u64,
}

/// Content of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum MessageKind {
    Row,
    Reject,
    Ranges,
    Anchors,
    EarlyEnds,
}

/// Wide rows of a process.
#[derive(Debug)]
pub struct Wide {
    role: Role,
    toaster: Toaster,
    /// Memory for one row.
    memory: pg_sys::MemoryContext,
}

/// Destination of rows whose values must be stored out of line.
#[derive(Debug)]
enum Role {
    /// The leader stores them at once. The queues are the workers'.
    Leader(VecDeque<*mut pg_sys::shm_mq_handle>),
    /// A worker sends them to the leader.
    Worker(*mut pg_sys::shm_mq_handle),
}

impl Wide {
    /// Wide rows of the leader. Guarded; the current memory context outlives it.
    pub fn leader() -> Wide {
        Wide::new(Role::Leader(VecDeque::new()))
    }

    /// Wide rows of a worker. Guarded; the current memory context outlives it.
    pub fn worker(queue: *mut pg_sys::shm_mq_handle) -> Wide {
        Wide::new(Role::Worker(queue))
    }

    fn new(role: Role) -> Wide {
        // SAFETY: a guarded call.
        let memory = unsafe {
            pg_sys::AllocSetContextCreateInternal(
                pg_sys::CurrentMemoryContext,
                c"pg_bulk wide row".as_ptr(),
                pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            )
        };
        Wide { role, toaster: Toaster::default(), memory }
    }

    /// Sets the queues of the workers that were started.
    pub fn set_queues(&mut self, queues: Vec<*mut pg_sys::shm_mq_handle>) {
        self.role = Role::Leader(queues.into());
    }

    /// In a worker: closes the queue, so that the leader receives its end. Guarded.
    pub fn detach(&mut self) {
        if let Role::Worker(queue) = self.role {
            // SAFETY: the queue is attached.
            unsafe { pg_sys::shm_mq_detach(queue) };
        }
    }

    /// Takes a wide row. A row that fits into no page is an error of its record. Guarded.
    ///
    /// # Safety
    /// The arrays are a row of the heap's relation.
    pub unsafe fn add(
        &mut self,
        heap: &mut Heap,
        arrays: RowArrays,
        origin: Origin,
        append_lock: &AppendLock,
    ) -> Result<()> {
        point!("wide.insert");
        // SAFETY: guarded calls; this function's contract covers the arrays. The row's memory is freed with the
        // context.
        unsafe {
            let old = pg_sys::MemoryContextSwitchTo(self.memory);
            let least = self.toaster.load(heap.relation(), arrays.values(), arrays.nulls());
            let fits = least <= MAX_TUPLE_SIZE;
            let stored = if fits { self.store(heap, origin, append_lock) } else { Err(too_big(least)) };
            pg_sys::MemoryContextSwitchTo(old);
            pg_sys::MemoryContextReset(self.memory);
            stored
        }
    }

    /// Stores the row that was loaded into the toaster. Guarded; in the row's memory context.
    ///
    /// # Safety
    /// The toaster contains a row of the heap's relation.
    unsafe fn store(&mut self, heap: &mut Heap, origin: Origin, append_lock: &AppendLock) -> Result<()> {
        let relation = heap.relation();
        let is_leader = matches!(self.role, Role::Leader(_));
        let elsewhere = (is_leader && !heap.is_logical()).then(|| heap.insert_options());
        // SAFETY: guarded calls; this function's contract covers the row.
        unsafe {
            let fits = self.toaster.shorten(relation, elsewhere);
            let (values, nulls) = (&mut self.toaster.values, &mut self.toaster.nulls);
            let tuple = pg_sys::heap_form_tuple((*relation).rd_att, values.as_mut_ptr(), nulls.as_mut_ptr());
            match self.role {
                _ if fits => heap.add_tuple(tuple, origin, append_lock),
                Role::Leader(_) => heap.insert(tuple, origin, (*self.memory).parent, append_lock),
                Role::Worker(queue) => {
                    let bytes = std::slice::from_raw_parts((*tuple).t_data.cast::<u8>(), (*tuple).t_len as usize);
                    send_bytes(queue, MessageKind::Row, (*relation).rd_id, origin.position, bytes)
                }
            }
        }
    }

    /// In a worker: sends a reject to the leader. Guarded.
    pub fn send_reject(&mut self, reject: &[u8]) -> Result<()> {
        let Role::Worker(queue) = self.role else { return Ok(()) };
        // SAFETY: the queue is attached.
        unsafe { send_bytes(queue, MessageKind::Reject, pg_sys::InvalidOid, 0, reject) }
    }

    /// In a worker: sends tuple positions of a relation's rows to the leader. Guarded.
    pub fn send_ranges(&mut self, relation: pg_sys::Oid, ranges: &[TidRange]) -> Result<()> {
        let Role::Worker(queue) = self.role else { return Ok(()) };
        for some in ranges.chunks(RANGES) {
            // SAFETY: the queue is attached.
            unsafe { send_bytes(queue, MessageKind::Ranges, relation, 0, origin::bytes_of(some)) }?;
        }
        Ok(())
    }

    /// In a worker: sends positions from which the file can be read again, or records that ended early, to the leader.
    /// Guarded.
    pub fn send_pairs(&mut self, kind: MessageKind, pairs: &[(u64, u64)]) -> Result<()> {
        let Role::Worker(queue) = self.role else { return Ok(()) };
        let bytes: Vec<u8> =
            pairs.iter().flat_map(|&(first, second)| [first, second]).flat_map(u64::to_ne_bytes).collect();
        for some in bytes.chunks(RANGES * 16) {
            // SAFETY: the queue is attached.
            unsafe { send_bytes(queue, kind, pg_sys::InvalidOid, 0, some) }?;
        }
        Ok(())
    }

    /// Is this process a worker?
    pub fn is_worker(&self) -> bool {
        matches!(self.role, Role::Worker(_))
    }

    /// Receives a message of a worker without waiting. Guarded.
    pub fn receive(&mut self) -> Received {
        let Role::Leader(queues) = &mut self.role else { return Received::Closed };
        // The queue that is read first moves to the end of the list.
        for _ in 0..queues.len() {
            let Some(queue) = queues.pop_front() else { break };
            let (mut length, mut data): (usize, *mut c_void) = (0, std::ptr::null_mut());
            // SAFETY: a guarded call on an attached queue.
            let result = unsafe { pg_sys::shm_mq_receive(queue, &raw mut length, &raw mut data, true) };
            if result != pg_sys::shm_mq_result::SHM_MQ_DETACHED {
                queues.push_back(queue);
            }
            match result {
                pg_sys::shm_mq_result::SHM_MQ_SUCCESS if length >= size_of::<Envelope>() => {
                    // SAFETY: `length` bytes of `send_bytes`, valid until the next call; queues align messages.
                    let (envelope, content) = unsafe {
                        let content = data.cast::<u8>().add(size_of::<Envelope>());
                        let content = std::ptr::slice_from_raw_parts(content, length - size_of::<Envelope>());
                        (data.cast::<Envelope>().read(), content)
                    };
                    return match envelope.kind {
                        MessageKind::Reject => Received::Reject(content),
                        MessageKind::Ranges => Received::Ranges(envelope.relation, content),
                        MessageKind::Anchors => Received::Anchors(content),
                        MessageKind::EarlyEnds => Received::EarlyEnds(content),
                        MessageKind::Row => Received::Row(envelope.relation, data),
                    };
                }
                _ => (),
            }
        }
        if queues.is_empty() { Received::Closed } else { Received::Nothing }
    }

    /// Stores a row that was received. Guarded.
    ///
    /// # Safety
    /// `message` is the last result of [`Wide::receive`], and the heap is of its relation.
    pub unsafe fn store_received(
        &mut self,
        heap: &mut Heap,
        message: *mut c_void,
        append_lock: &AppendLock,
    ) -> Result<()> {
        // SAFETY: this function's contract covers the message: an envelope, then a tuple with the same alignment.
        unsafe {
            let envelope = message.cast::<Envelope>().read();
            // The row is not between its neighbors any more, so it must not count as consecutive to any row.
            let origin = Origin { number: u64::MAX, position: envelope.position };
            let mut tuple = pg_sys::HeapTupleData {
                t_len: envelope.length,
                t_tableOid: (*heap.relation()).rd_id,
                t_data: message.add(size_of::<Envelope>()).cast(),
                ..Default::default()
            };
            let old = pg_sys::MemoryContextSwitchTo(self.memory);
            self.toaster.load_tuple(heap.relation(), &raw mut tuple);
            self.store(heap, origin, append_lock)?;
            pg_sys::MemoryContextSwitchTo(old);
            pg_sys::MemoryContextReset(self.memory);
        }
        Ok(())
    }
}

/// Sends a message to the leader; waits while the queue has no room. Guarded.
///
/// # Safety
/// The queue is attached.
unsafe fn send_bytes(
    queue: *mut pg_sys::shm_mq_handle,
    kind: MessageKind,
    relation: pg_sys::Oid,
    position: u64,
    bytes: &[u8],
) -> Result<()> {
    // SAFETY: a guarded call; the parts live until the message is sent.
    let sent = unsafe {
        let length = u32::try_from(bytes.len()).unwrap_or(0);
        let envelope = Envelope { relation, length, kind, position };
        let mut parts = [
            pg_sys::shm_mq_iovec { data: (&raw const envelope).cast(), len: size_of::<Envelope>() },
            pg_sys::shm_mq_iovec { data: bytes.as_ptr().cast(), len: bytes.len() },
        ];
        pg_sys::shm_mq_sendv(queue, parts.as_mut_ptr(), 2, false, true)
    };
    if sent != pg_sys::shm_mq_result::SHM_MQ_SUCCESS {
        let message = "could not send a row to the leader of the load";
        return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message));
    }
    Ok(())
}

/// A message from the workers' queues.
#[derive(Debug, Clone, Copy)]
pub enum Received {
    /// A row of this relation.
    Row(pg_sys::Oid, *mut c_void),
    /// A reject. Valid until the next call.
    Reject(*const [u8]),
    /// Tuple positions of this relation's rows. Valid until the next call.
    Ranges(pg_sys::Oid, *const [u8]),
    /// Positions from which the file can be read again. Valid until the next call.
    Anchors(*const [u8]),
    /// Records that ended early: file and offset, and length. Valid until the next call.
    EarlyEnds(*const [u8]),
    /// No message at the moment.
    Nothing,
    /// All queues are closed.
    Closed,
}
