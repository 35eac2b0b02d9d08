//! Rows that do not go to pages as they are: those that TOAST must shorten or store in part elsewhere.
//!
//! Only the leader may insert such a row (heap_insert refuses in a worker). So workers send theirs to the leader, each
//! through a queue of its own, and the leader takes them between its own rows, and while it waits.
//!
//! The tricky point is who waits for whom. A worker waits for room in its queue; the leader must then not wait for that
//! worker without looking into the queue. It does not: a worker sends only while it makes rows, when it holds neither
//! the baton nor the turn, and these are all that the leader waits for with its eyes closed.

use std::ffi::c_void;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::heap::Heap;
use crate::error::{Error, Result};
use crate::pg::baton::Baton;
use crate::pg::row::RowArrays;

/// Size of a worker's queue.
pub const QUEUE: usize = 1 << 20;

/// What goes before a tuple in a queue. As long as MAXALIGN wants it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Envelope {
    relation: pg_sys::Oid,
    length: u32,
}

/// Where wide rows go.
#[derive(Debug)]
pub enum Wide {
    /// Into the heap, at once. The queues are the workers'.
    Leader { queues: Vec<*mut pg_sys::shm_mq_handle>, memory: pg_sys::MemoryContext },
    /// To the leader.
    Worker { queue: *mut pg_sys::shm_mq_handle },
}

impl Wide {
    /// The leader's. Guarded; allocates in the current memory context.
    pub fn leader() -> Wide {
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
        Wide::Leader { queues: Vec::new(), memory }
    }

    /// Take a row that a heap did not. Guarded.
    ///
    /// # Safety
    /// The arrays are a row of the heap's relation.
    pub unsafe fn add(&mut self, heap: &mut Heap, arrays: RowArrays, baton: &Baton) -> Result<()> {
        match self {
            Wide::Leader { memory, .. } => {
                // SAFETY: guarded calls; the caller vouches for the arrays. What the row needs is freed with it.
                unsafe {
                    let old = pg_sys::MemoryContextSwitchTo(*memory);
                    let tuple = pg_sys::heap_form_tuple((*heap.relation).rd_att, arrays.values, arrays.nulls);
                    heap.insert(tuple, (**memory).parent, baton)?;
                    pg_sys::MemoryContextSwitchTo(old);
                    pg_sys::MemoryContextReset(*memory);
                }
                Ok(())
            }
            Wide::Worker { queue } => {
                // SAFETY: guarded calls; the parts live until the message is sent, which waits if it must.
                let sent = unsafe {
                    let tuple = pg_sys::heap_form_tuple((*heap.relation).rd_att, arrays.values, arrays.nulls);
                    let envelope = Envelope { relation: (*heap.relation).rd_id, length: (*tuple).t_len };
                    let mut parts = [
                        pg_sys::shm_mq_iovec { data: (&raw const envelope).cast(), len: size_of::<Envelope>() },
                        pg_sys::shm_mq_iovec { data: (*tuple).t_data.cast(), len: (*tuple).t_len as usize },
                    ];
                    let sent = pg_sys::shm_mq_sendv(*queue, parts.as_mut_ptr(), 2, false, true);
                    pg_sys::heap_freetuple(tuple);
                    sent
                };
                if sent != pg_sys::shm_mq_result::SHM_MQ_SUCCESS {
                    let message = "could not send a row to the leader of the load";
                    return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message));
                }
                Ok(())
            }
        }
    }

    /// The next row that a worker sent: relation, length, tuple. `None` if there is none at the moment. Guarded.
    pub fn receive(&mut self) -> Received {
        let Wide::Leader { queues, .. } = self else { return Received::Closed };
        let mut open = false;
        for queue in queues.iter_mut().filter(|queue| !queue.is_null()) {
            let (mut length, mut data): (usize, *mut c_void) = (0, std::ptr::null_mut());
            // SAFETY: a guarded call on an attached queue.
            let result = unsafe { pg_sys::shm_mq_receive(*queue, &raw mut length, &raw mut data, true) };
            match result {
                pg_sys::shm_mq_result::SHM_MQ_SUCCESS if length >= size_of::<Envelope>() => {
                    // SAFETY: a message of `length` bytes, valid until the next call; queues align messages.
                    return Received::Row(unsafe { data.cast::<Envelope>().read() }.relation, data, length);
                }
                pg_sys::shm_mq_result::SHM_MQ_DETACHED => *queue = std::ptr::null_mut(),
                _ => open = true,
            }
        }
        if open { Received::Nothing } else { Received::Closed }
    }

    /// Insert a row that was received. Guarded.
    ///
    /// # Safety
    /// `message` and `length` are what [`Wide::receive`] said last.
    pub unsafe fn insert(&mut self, heap: &mut Heap, message: *mut c_void, length: usize, baton: &Baton) -> Result<()> {
        let Wide::Leader { memory, .. } = self else { return Ok(()) };
        // SAFETY: the caller vouches for the message, which is an envelope and a tuple; the tuple is copied, for
        // heap_insert writes its header.
        unsafe {
            let old = pg_sys::MemoryContextSwitchTo(*memory);
            let tuple_length = length - size_of::<Envelope>();
            let tuple =
                pg_sys::palloc0(size_of::<pg_sys::HeapTupleData>() + 8 + tuple_length).cast::<pg_sys::HeapTupleData>();
            let data = tuple.cast::<u8>().add(size_of::<pg_sys::HeapTupleData>().next_multiple_of(8));
            std::ptr::copy_nonoverlapping(message.cast::<u8>().add(size_of::<Envelope>()), data, tuple_length);
            (*tuple).t_len = u32::try_from(tuple_length).unwrap_or(0);
            (*tuple).t_tableOid = (*heap.relation).rd_id;
            (*tuple).t_data = data.cast();
            heap.insert(tuple, (**memory).parent, baton)?;
            pg_sys::MemoryContextSwitchTo(old);
            pg_sys::MemoryContextReset(*memory);
        }
        Ok(())
    }
}

/// What was in the workers' queues.
#[derive(Debug, Clone, Copy)]
pub enum Received {
    /// A row of this relation: a message and its length.
    Row(pg_sys::Oid, *mut c_void, usize),
    /// Nothing at the moment.
    Nothing,
    /// Nothing, and nothing will come.
    Closed,
}
