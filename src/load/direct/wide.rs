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

use pg_bulk_storage::tuple::MAX_TUPLE_SIZE;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::heap::{Heap, too_big};
use super::origin::{self, Origin, TidRange};
use crate::error::{Error, Result};
use crate::heap::append_lock::AppendLock;
use crate::heap::toast::{Toaster, WideRow};
use crate::server::memory_context::MemoryContext;
use crate::server::points::point;
use crate::server::slot::Row;
use crate::server::team::{Receipt, Receiver, Sender};

/// Size of a worker's queue in bytes.
pub const QUEUE: usize = 1 << 20;

/// Ranges of tuple positions in one message.
const RANGES: usize = 2000;

/// Header of a message in a queue.
#[derive(Debug, Clone, Copy)]
struct Envelope {
    kind: MessageKind,
    relation: pg_sys::Oid,
    /// The tuple position of a row.
    position: u64,
}

/// Bytes of an envelope: three numbers. A multiple of MAXALIGN, because the tuple of a row follows.
const ENVELOPE: usize = 24;

/// Content of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    Row,
    Reject,
    Ranges,
    Anchors,
    EarlyEnds,
}

impl MessageKind {
    const ALL: [MessageKind; 5] =
        [MessageKind::Row, MessageKind::Reject, MessageKind::Ranges, MessageKind::Anchors, MessageKind::EarlyEnds];
}

impl Envelope {
    fn write(self) -> [[u8; 8]; 3] {
        [self.kind as u64, u64::from(self.relation.to_u32()), self.position].map(u64::to_ne_bytes)
    }

    /// The envelope of a message, and its content.
    fn read(message: &[u8]) -> Option<(Envelope, &[u8])> {
        let (envelope, content) = message.split_first_chunk::<ENVELOPE>()?;
        let number = |index: usize| envelope.as_chunks::<8>().0.get(index).map(|bytes| u64::from_ne_bytes(*bytes));
        let kind = *MessageKind::ALL.get(usize::try_from(number(0)?).ok()?)?;
        let relation = pg_sys::Oid::from_u32(u32::try_from(number(1)?).ok()?);
        Some((Envelope { kind, relation, position: number(2)? }, content))
    }
}

/// Wide rows of a process.
#[derive(Debug)]
pub struct Wide {
    role: Role,
    toaster: Toaster,
    /// Memory for one row.
    memory: MemoryContext,
}

/// Destination of rows whose values must be stored out of line.
#[derive(Debug)]
enum Role {
    /// The leader stores them at once. The queues are the workers'; the last one is that of the last message.
    Leader(VecDeque<Receiver>),
    /// A worker sends them to the leader. None once the queue is closed.
    Worker(Option<Sender>),
}

impl Wide {
    /// Wide rows of the leader. Guarded; the current memory context outlives it.
    pub fn leader() -> Wide {
        Wide::new(Role::Leader(VecDeque::new()))
    }

    /// Wide rows of a worker. Guarded; the current memory context outlives it.
    pub fn worker(queue: Sender) -> Wide {
        Wide::new(Role::Worker(Some(queue)))
    }

    fn new(role: Role) -> Wide {
        Wide { role, toaster: Toaster::default(), memory: MemoryContext::current().child(c"pg_bulk wide row") }
    }

    /// Sets the queues of the workers that were started.
    pub fn set_queues(&mut self, queues: VecDeque<Receiver>) {
        self.role = Role::Leader(queues);
    }

    /// In a worker: closes the queue, so that the leader receives its end. Guarded.
    pub fn detach(&mut self) {
        if let Role::Worker(queue) = &mut self.role
            && let Some(queue) = queue.take()
        {
            queue.detach();
        }
    }

    /// Takes a wide row. A row that fits into no page is an error of its record. Guarded.
    pub fn add(&mut self, heap: &mut Heap, row: Row<'_>, origin: Origin, append_lock: &AppendLock) -> Result<()> {
        point!("wide.insert");
        let entered = self.memory.enter();
        let (row, least) = self.toaster.load(row);
        let fits = least <= MAX_TUPLE_SIZE;
        let stored = if fits { self.role.store(row, heap, origin, append_lock) } else { Err(too_big(least)) };
        drop(entered);
        self.forget_row();
        stored
    }

    /// Frees the memory of the row. Guarded.
    fn forget_row(&self) {
        // SAFETY: a guarded call; the row is stored, and nothing else is in the context.
        unsafe { pg_sys::MemoryContextReset(self.memory.as_ptr()) };
    }

    /// In a worker: sends a reject to the leader. Guarded.
    pub fn send_reject(&mut self, reject: &[u8]) -> Result<()> {
        self.role.send(MessageKind::Reject, pg_sys::InvalidOid, 0, reject)
    }

    /// In a worker: sends tuple positions of a relation's rows to the leader. Guarded.
    pub fn send_ranges(&mut self, relation: pg_sys::Oid, ranges: &[TidRange]) -> Result<()> {
        let send = |some| self.role.send(MessageKind::Ranges, relation, 0, origin::bytes_of(some));
        ranges.chunks(RANGES).try_for_each(send)
    }

    /// In a worker: sends positions from which the file can be read again, or records that ended early, to the leader.
    /// Guarded.
    pub fn send_pairs(&mut self, kind: MessageKind, pairs: &[(u64, u64)]) -> Result<()> {
        let bytes: Vec<u8> =
            pairs.iter().flat_map(|&(first, second)| [first, second]).flat_map(u64::to_ne_bytes).collect();
        bytes.chunks(RANGES * 16).try_for_each(|some| self.role.send(kind, pg_sys::InvalidOid, 0, some))
    }

    /// Is this process a worker?
    pub fn is_worker(&self) -> bool {
        matches!(self.role, Role::Worker(_))
    }

    /// Receives a message of a worker without waiting. Guarded.
    pub fn receive(&mut self) -> Received {
        let Role::Leader(queues) = &mut self.role else { return Received::Closed };
        for _ in 0..queues.len() {
            // The queue that is read moves to the end of the list.
            queues.rotate_left(1);
            let Some(queue) = queues.back_mut() else { break };
            match queue.receive() {
                Receipt::Closed => drop(queues.pop_back()),
                Receipt::Nothing => (),
                Receipt::Message => {
                    if let Some((Envelope { kind, relation, .. }, _)) = Envelope::read(queue.message()) {
                        return Received::Message(kind, relation);
                    }
                }
            }
        }
        if queues.is_empty() { Received::Closed } else { Received::Nothing }
    }

    fn message(&self) -> Option<(Envelope, &[u8])> {
        let Role::Leader(queues) = &self.role else { return None };
        Envelope::read(queues.back()?.message())
    }

    /// The content of the message that was received last.
    pub fn content(&self) -> &[u8] {
        self.message().map_or(&[], |(_, content)| content)
    }

    /// Stores the row that was received last. The heap is of its relation. Guarded.
    pub fn store_received(&mut self, heap: &mut Heap, append_lock: &AppendLock) -> Result<()> {
        let Wide { role, toaster, memory } = self;
        let Role::Leader(queues) = &*role else { return Ok(()) };
        let message = queues.back().and_then(|queue| Envelope::read(queue.message()));
        let is_of_heap =
            |envelope: &Envelope| envelope.kind == MessageKind::Row && envelope.relation == heap.relation().oid();
        let Some((envelope, tuple)) = message.filter(|(envelope, _)| is_of_heap(envelope)) else {
            return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, "a worker of the load has sent no row of the table"));
        };
        // The row is not between its neighbors any more, so it must not count as consecutive to any row.
        let origin = Origin { number: u64::MAX, position: envelope.position };
        let entered = memory.enter();
        // SAFETY: a worker has formed this tuple of the relation. It is in the queue, with its alignment, until the next
        // message is received.
        let row = unsafe { toaster.load_tuple(heap.relation(), tuple) };
        role.store(row, heap, origin, append_lock)?;
        drop(entered);
        self.forget_row();
        Ok(())
    }
}

impl Role {
    /// Stores a row that was loaded into the toaster. Guarded; in the row's memory context.
    fn store(&self, mut row: WideRow<'_>, heap: &mut Heap, origin: Origin, append_lock: &AppendLock) -> Result<()> {
        let is_leader = matches!(self, Role::Leader(_));
        let fits = row.shorten((is_leader && !heap.is_logical()).then(|| heap.insert_options()));
        let tuple = row.form();
        if fits {
            heap.add_tuple(tuple, origin, append_lock)
        } else if is_leader {
            heap.insert(tuple, origin, append_lock)
        } else {
            let tuple = tuple.of(heap.relation())?;
            self.send(MessageKind::Row, heap.relation().oid(), origin.position, tuple.bytes())
        }
    }

    /// In a worker: sends a message to the leader; waits while the queue has no room. Guarded.
    fn send(&self, kind: MessageKind, relation: pg_sys::Oid, position: u64, content: &[u8]) -> Result<()> {
        let Role::Worker(queue) = self else { return Ok(()) };
        let envelope = Envelope { kind, relation, position }.write();
        if queue.as_ref().is_some_and(|queue| queue.send([envelope.as_flattened(), content])) {
            return Ok(());
        }
        Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, "could not send a row to the leader of the load"))
    }
}

/// Result of [`Wide::receive`].
#[derive(Debug, Clone, Copy)]
pub enum Received {
    /// A message, about this relation if it is about one.
    Message(MessageKind, pg_sys::Oid),
    /// No message at the moment.
    Nothing,
    /// All queues are closed.
    Closed,
}
