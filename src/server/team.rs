//! A team: a leader and parallel workers in its transaction, which do one task together.
//!
//! ```text
//!   leader:  Image ─► Team::new ─► launch ─┬─► (work) ─► wait ─► finish
//!   worker:                                └─► Worker::join ─► (work) ─► end
//! ```
//!
//! What the processes share is a [`Task`] and arrays that it names. The leader puts the arrays together in an [`Image`],
//! so each of them is declared once, in the task. The processes take [`Portions`] of the work until none is left. The
//! processes of a parallel scan share [`Memory`] of the executor in the same way.
//!
//! Between `new` and `finish` the transaction is in parallel mode: it assigns no transaction id, advances no command
//! counter and updates no row. After an error, the end of the transaction or subtransaction stops the workers and
//! releases the memory, so dropping a [`Team`] does nothing. Neither a team nor a worker has a destructor: plain frames
//! may own them.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use pgrx::pg_sys;

use super::build_id::{build_id, check_build};
use super::call::calls;
use super::database::process_number;
use super::handle::Handle;
use super::usage::{Cpu, WorkerUsage};
use crate::error::{OrRaise, Result, out_of_memory};

/// Keys of the objects in shared memory.
const KEY_MEMORY: u64 = 1;
const KEY_USAGES: u64 = 2;
const KEY_QUEUES: u64 = 3;
/// `BUFFERALIGN` (c.h)
const BUFFER_ALIGN: usize = 32;
/// `MAXALIGN` (c.h): the alignment of all memory of the server.
const MOST_ALIGN: usize = 8;

/// A value in shared memory.
///
/// # Safety
/// The value means the same in each process: it holds no pointer and no reference. Until it is shared, it may be moved
/// as bytes.
pub unsafe trait Shareable: Sync + 'static {}

macro_rules! numbers {
    ($($type:ty),*) => {
        // SAFETY: numbers.
        $(unsafe impl Shareable for $type {})*
    };
}
numbers!(u8, u64, usize, AtomicU64, pg_sys::Instrumentation);

/// What the processes of a team share, beside its arrays.
///
/// # Safety
/// As for [`Shareable`]. The library exports [`WORKER`](Task::WORKER), which joins a team of this type.
pub unsafe trait Task: Shareable {
    /// Name of the worker's entry point.
    const WORKER: &'static CStr;
    /// Bytes of a queue from each worker to the leader; 0 without queues.
    const QUEUE: usize = 0;
}

/// An element of shared memory that one process uses at a time, by an agreement of the processes.
#[derive(Debug)]
#[repr(transparent)]
pub struct Exclusive<E>(UnsafeCell<E>);

// SAFETY: it only gives out pointers.
unsafe impl<E> Sync for Exclusive<E> {}
// SAFETY: `E` is shareable.
unsafe impl<E: Shareable> Shareable for Exclusive<E> {}

impl<E> Exclusive<E> {
    pub fn new(element: E) -> Exclusive<E> {
        Exclusive(UnsafeCell::new(element))
    }

    /// The elements themselves.
    pub fn pointer(elements: &[Exclusive<E>]) -> *mut [E] {
        std::ptr::from_ref(elements) as *mut [E]
    }
}

/// A reference to shared memory that exists as long as this and its copies are used.
#[derive(Debug)]
pub struct SharedRef<T: ?Sized>(NonNull<T>);

impl<T: ?Sized> SharedRef<T> {
    /// # Safety
    /// The value stays in its place as long as this and its copies are used.
    pub const unsafe fn new(shared: &T) -> SharedRef<T> {
        SharedRef(NonNull::from_ref(shared))
    }
}

impl<T: ?Sized> From<&'static T> for SharedRef<T> {
    fn from(shared: &'static T) -> SharedRef<T> {
        SharedRef(NonNull::from_ref(shared))
    }
}

impl<T: ?Sized> Clone for SharedRef<T> {
    fn clone(&self) -> SharedRef<T> {
        *self
    }
}

impl<T: ?Sized> Copy for SharedRef<T> {}

impl<T: ?Sized> Deref for SharedRef<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the value exists, and was given as a reference: all of it that changes are atomics and locks.
        unsafe { self.0.as_ref() }
    }
}

/// Portions of the work, which the processes take in order.
#[derive(Debug)]
pub struct Portions {
    next: AtomicUsize,
    count: usize,
}

impl Portions {
    pub fn new(count: usize) -> Portions {
        Portions { next: AtomicUsize::new(0), count }
    }

    /// A portion for this process alone; none if all are taken.
    pub fn take(&self) -> Option<usize> {
        let portion = self.next.fetch_add(1, Relaxed);
        (portion < self.count).then_some(portion)
    }
}

/// An array in the shared memory of a team.
#[derive(Debug)]
pub struct Array<E> {
    image: u64,
    start: usize,
    len: usize,
    of: PhantomData<fn() -> E>,
}

impl<E> Clone for Array<E> {
    fn clone(&self) -> Array<E> {
        *self
    }
}

impl<E> Copy for Array<E> {}

/// The arrays of a team, to be copied into shared memory.
#[derive(Debug)]
pub struct Image {
    /// Differs from that of any other image in shared memory.
    id: u64,
    bytes: Vec<MaybeUninit<u8>>,
}

impl Image {
    pub fn new() -> Image {
        static IMAGES: AtomicU32 = AtomicU32::new(0);
        let number = u64::from(IMAGES.fetch_add(1, Relaxed));
        Image { id: u64::from(std::process::id()) << 32 | number, bytes: Vec::new() }
    }

    /// Adds an array. Guarded.
    pub fn array<E: Shareable>(&mut self, elements: impl IntoIterator<Item = E>) -> Array<E> {
        const { assert!(align_of::<E>() <= MOST_ALIGN && !std::mem::needs_drop::<E>()) };
        let elements = elements.into_iter();
        let start = self.bytes.len().next_multiple_of(MOST_ALIGN);
        // There may be millions: memory that is not there is an error of the load, and does not abort the process.
        let bytes = elements.size_hint().0.saturating_mul(size_of::<E>()).saturating_add(MOST_ALIGN);
        self.bytes.try_reserve(bytes).map_err(|_| out_of_memory()).or_raise();
        self.bytes.resize(start, MaybeUninit::zeroed());
        let mut len = 0;
        for element in elements {
            // SAFETY: all bytes of a value.
            let bytes = unsafe { std::slice::from_raw_parts((&raw const element).cast(), size_of::<E>()) };
            self.bytes.extend_from_slice(bytes);
            len += 1;
        }
        Array { image: self.id, start, len, of: PhantomData }
    }
}

/// The beginning of the shared memory, and in every build the build id first. The arrays follow.
#[derive(Debug)]
#[repr(C)]
struct Head<T> {
    build: u64,
    image: u64,
    task: T,
}

/// Shared memory as a process sees it: a task and its arrays.
#[derive(Debug)]
pub struct Memory<T>(*const Head<T>);

impl<T: Shareable> Memory<T> {
    /// Bytes of memory for a task with these arrays.
    pub fn size(image: &Image) -> usize {
        const { assert!(align_of::<Head<T>>() == MOST_ALIGN && !std::mem::needs_drop::<T>()) };
        size_of::<Head<T>>() + image.bytes.len()
    }

    /// Write a task.
    ///
    /// # Safety
    /// The memory has the size, is aligned for any type, and stays as long as the result is used. No
    /// other process reads it yet.
    pub unsafe fn write(place: *mut c_void, image: Image, task: T) -> Memory<T> {
        let head = place.cast::<Head<T>>();
        // SAFETY: the memory has room for the head and the arrays, and no other user yet.
        unsafe {
            head.write(Head { build: build_id(), image: image.id, task });
            head.add(1).cast::<MaybeUninit<u8>>().copy_from_nonoverlapping(image.bytes.as_ptr(), image.bytes.len());
        }
        Memory(head)
    }

    /// The task that another process has written. Fails if that runs another build.
    ///
    /// # Safety
    /// [`Memory::write`] has written a task of this type; the memory stays as long as the result is used.
    pub unsafe fn read(place: *mut c_void) -> Result<Memory<T>> {
        // SAFETY: the build id comes first in every build, and the rest is read only after the builds are found equal.
        check_build(unsafe { place.cast::<u64>().read() })?;
        Ok(Memory(place.cast()))
    }

    fn head(&self) -> &Head<T> {
        // SAFETY: `write` and `read` have found a task there, and it stays.
        unsafe { &*self.0 }
    }

    pub fn task(&self) -> &T {
        &self.head().task
    }

    /// An array of the task; empty for one of another task.
    pub fn slice<E: Shareable>(&self, array: Array<E>) -> &[E] {
        if array.image != self.head().image {
            return &[];
        }
        // SAFETY: `Image::array` has put these elements there.
        unsafe { std::slice::from_raw_parts(self.0.add(1).cast::<u8>().add(array.start).cast(), array.len) }
    }
}

/// A context of parallel workers that is not destroyed.
type Context = Handle<'static, pg_sys::ParallelContext>;

// SAFETY: a context that is not destroyed, with its shared memory.
calls! {
    fn launch_workers(context: Context) = LaunchParallelWorkers(context);
    fn wait_for_workers(context: Context) = WaitForParallelWorkersToFinish(context);
}

/// The leader's side of a team.
#[derive(Debug)]
pub struct Team<T> {
    context: Context,
    memory: Memory<T>,
    usages: *mut WorkerUsage,
    queues: *mut u8,
    /// Workers whose usage is not counted yet.
    uncounted: usize,
}

impl<T> Deref for Team<T> {
    type Target = Memory<T>;

    fn deref(&self) -> &Memory<T> {
        &self.memory
    }
}

impl<T: Task> Team<T> {
    /// Enter parallel mode, for a task of at most `workers` workers. Guarded. Errors of workers are raised with the
    /// error context of this call.
    pub fn new(image: Image, workers: usize, task: T) -> Team<T> {
        let Ok(team) = Team::prepare(image, workers, |_| Ok::<T, Infallible>(task));
        team
    }

    /// Like [`Team::new`], but makes the task when the number of workers is known: zero if there is no dynamic shared
    /// memory. If that fails, parallel mode ends.
    pub fn prepare<E>(
        image: Image,
        workers: usize,
        task: impl FnOnce(usize) -> std::result::Result<T, E>,
    ) -> std::result::Result<Team<T>, E> {
        let objects = [
            (KEY_MEMORY, Memory::<T>::size(&image)),
            (KEY_USAGES, workers * size_of::<WorkerUsage>()),
            (KEY_QUEUES, workers * T::QUEUE),
        ];
        // SAFETY: guarded calls on a context that stays valid in parallel mode. The objects have their sizes, and are
        // aligned for any type; no other process reads them yet.
        unsafe {
            pg_sys::EnterParallelMode();
            // A worker starts no workers.
            let workers = if process_number() == 0 { i32::try_from(workers).unwrap_or(0) } else { 0 };
            let context = pg_sys::CreateParallelContext(c"$libdir/pg_bulk".as_ptr(), T::WORKER.as_ptr(), workers);
            // shm_toc_estimate_chunk and shm_toc_estimate_keys (shm_toc.h)
            for (_, len) in objects {
                (*context).estimator.space_for_chunks += len.next_multiple_of(BUFFER_ALIGN);
                (*context).estimator.number_of_keys += 1;
            }
            pg_sys::InitializeParallelDSM(context);
            let workers = usize::try_from((*context).nworkers).unwrap_or(0);
            let task = match task(workers) {
                Ok(task) => task,
                Err(error) => {
                    pg_sys::DestroyParallelContext(context);
                    pg_sys::ExitParallelMode();
                    return Err(error);
                }
            };
            let [memory, usages, queues] = objects.map(|(key, len)| {
                let space = pg_sys::shm_toc_allocate((*context).toc, len);
                pg_sys::shm_toc_insert((*context).toc, key, space);
                space
            });
            let memory = Memory::write(memory, image, task);
            let usages = usages.cast::<WorkerUsage>();
            (0..workers).for_each(|i| usages.add(i).write(WorkerUsage::default()));
            let queues = queues.cast::<u8>();
            for i in (0..workers).filter(|_| T::QUEUE > 0) {
                let queue = pg_sys::shm_mq_create(queues.add(i * T::QUEUE).cast(), T::QUEUE);
                pg_sys::shm_mq_set_receiver(queue, pg_sys::MyProc);
            }
            Ok(Team { context: Context::from_raw(context), memory, usages, queues, uncounted: 0 })
        }
    }

    /// Start the workers, and return the number of those started. Guarded.
    pub fn launch(&mut self) -> usize {
        launch_workers(self.context);
        self.uncounted = self.launched();
        self.uncounted
    }

    /// Number of workers that were started.
    pub fn launched(&self) -> usize {
        usize::try_from(self.context.get().nworkers_launched).unwrap_or(0)
    }

    /// Attach to the queues of the workers that were started, to receive from them. Guarded.
    ///
    /// # Safety
    /// No receiver, and no message of one, is used after [`Team::finish`] or [`Team::destroy`].
    pub unsafe fn queues(&self) -> VecDeque<Receiver> {
        let attach = |i: usize| {
            // SAFETY: `prepare` has made the queues, one for each worker. With the handle of its worker, the receiver
            // notices the death of the worker.
            unsafe {
                let worker = (*self.context.get().worker.add(i)).bgwhandle;
                let segment = self.context.get().seg;
                let queue = pg_sys::shm_mq_attach(self.queues.add(i * T::QUEUE).cast(), segment, worker);
                Receiver { queue, message: &[] }
            }
        };
        (0..self.launched()).filter(|_| T::QUEUE > 0).map(attach).collect()
    }

    /// Wait until the workers have finished, raise their errors, and add their usage to this process's. Returns the CPU
    /// usage that was not returned before. The shared memory stays. Guarded.
    pub fn wait(&mut self) -> Cpu {
        wait_for_workers(self.context);
        let ended = std::mem::take(&mut self.uncounted);
        // SAFETY: there is an element for each worker, and these workers have ended.
        WorkerUsage::add_up(unsafe { std::slice::from_raw_parts_mut(self.usages, ended) })
    }

    /// Stop the workers at once, and stay in parallel mode, for a transaction that is going to fail. The shared memory
    /// is released. Guarded.
    pub fn destroy(self) {
        // SAFETY: a guarded call on a valid context, which is not used any more.
        unsafe { pg_sys::DestroyParallelContext(self.context.as_ptr()) };
    }

    /// Wait for the workers and leave parallel mode. The shared memory is released. Guarded.
    pub fn finish(self) {
        wait_for_workers(self.context);
        self.destroy();
        // SAFETY: a guarded call, which ends the parallel mode that `prepare` began.
        unsafe { pg_sys::ExitParallelMode() };
    }
}

/// A worker's side of a team.
#[derive(Debug)]
pub struct Worker<T: 'static> {
    /// Stays until this process ends.
    memory: &'static Memory<T>,
    segment: *mut pg_sys::dsm_segment,
    toc: *mut pg_sys::shm_toc,
    /// The number of the process: 1 for the first worker.
    pub number: usize,
}

impl<T> Deref for Worker<T> {
    type Target = Memory<T>;

    fn deref(&self) -> &Memory<T> {
        self.memory
    }
}

impl<T: Task> Worker<T> {
    pub fn task(&self) -> &'static T {
        self.memory.task()
    }

    /// An array of the task; empty for one of another task.
    pub fn slice<E: Shareable>(&self, array: Array<E>) -> &'static [E] {
        self.memory.slice(array)
    }

    /// Begin a worker's part, and its usage. Fails if the leader runs another build. Guarded.
    ///
    /// # Safety
    /// The arguments of the entry point [`Task::WORKER`], which ParallelWorkerMain calls in a transaction with the
    /// leader's xid.
    pub unsafe fn join(segment: *mut pg_sys::dsm_segment, toc: *mut pg_sys::shm_toc) -> Result<Worker<T>> {
        // SAFETY: guarded calls; the leader has inserted the key, and its memory stays until this process ends.
        unsafe {
            pg_sys::InstrStartParallelQuery();
            let memory = Box::leak(Box::new(Memory::read(pg_sys::shm_toc_lookup(toc, KEY_MEMORY, false))?));
            let number = usize::try_from(pg_sys::ParallelWorkerNumber).unwrap_or(0) + 1;
            Ok(Worker { memory, segment, toc, number })
        }
    }

    /// Attach to this worker's queue, to send to the leader. Guarded.
    pub fn queue(&self) -> Sender {
        const { assert!(T::QUEUE > 0) };
        // SAFETY: guarded calls; the leader has made a queue for each worker.
        unsafe {
            let queues = pg_sys::shm_toc_lookup(self.toc, KEY_QUEUES, false).cast::<u8>();
            let queue = queues.add((self.number - 1) * T::QUEUE).cast::<pg_sys::shm_mq>();
            pg_sys::shm_mq_set_sender(queue, pg_sys::MyProc);
            Sender(pg_sys::shm_mq_attach(queue, self.segment, std::ptr::null_mut()))
        }
    }

    /// End a worker's part, and report its usage. Guarded.
    pub fn end(&self) {
        // SAFETY: a guarded call; the element is this worker's own, and the leader reads it after the worker has ended.
        unsafe {
            let usages = pg_sys::shm_toc_lookup(self.toc, KEY_USAGES, false).cast::<WorkerUsage>();
            (*usages.add(self.number - 1)).end();
        }
    }
}

/// A worker's end of its queue to the leader.
#[derive(Debug)]
pub struct Sender(*mut pg_sys::shm_mq_handle);

impl Sender {
    /// Send a message of two parts; waits while the queue has no room. False if the leader is gone. Guarded.
    pub fn send(&self, parts: [&[u8]; 2]) -> bool {
        let mut parts = parts.map(|part| pg_sys::shm_mq_iovec { data: part.as_ptr().cast(), len: part.len() });
        // SAFETY: a guarded call on an attached queue; the parts live until the message is sent.
        let sent = unsafe { pg_sys::shm_mq_sendv(self.0, parts.as_mut_ptr(), 2, false, true) };
        sent == pg_sys::shm_mq_result::SHM_MQ_SUCCESS
    }

    /// Close the queue, so that the leader receives its end. Guarded.
    pub fn detach(self) {
        // SAFETY: a guarded call on an attached queue.
        unsafe { pg_sys::shm_mq_detach(self.0) };
    }
}

/// The leader's end of a worker's queue. Used only until the team ends, which releases the memory.
#[derive(Debug)]
pub struct Receiver {
    queue: *mut pg_sys::shm_mq_handle,
    /// The last message, in memory of the queue.
    message: *const [u8],
}

/// Result of [`Receiver::receive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    Message,
    /// No message at the moment.
    Nothing,
    /// The worker has closed the queue, or is gone.
    Closed,
}

impl Receiver {
    /// Receive a message without waiting. Guarded.
    pub fn receive(&mut self) -> Receipt {
        let (mut length, mut data): (usize, *mut c_void) = (0, std::ptr::null_mut());
        self.message = &[];
        // SAFETY: a guarded call on an attached queue.
        let result = unsafe { pg_sys::shm_mq_receive(self.queue, &raw mut length, &raw mut data, true) };
        match result {
            pg_sys::shm_mq_result::SHM_MQ_SUCCESS => {
                self.message = std::ptr::slice_from_raw_parts(data.cast(), length);
                Receipt::Message
            }
            pg_sys::shm_mq_result::SHM_MQ_DETACHED => Receipt::Closed,
            _ => Receipt::Nothing,
        }
    }

    /// The last message, at a multiple of MAXALIGN.
    pub fn message(&self) -> &[u8] {
        // SAFETY: valid until the next call of `receive`.
        unsafe { &*self.message }
    }
}

/// Register `function`, to be called with `argument` before the context's shared memory is detached, when the workers
/// are gone. False if there is no shared memory and so no worker. Guarded.
///
/// # Safety
/// A valid context, initialized; a function that raises nothing, and that may be called with the argument until then.
pub unsafe fn at_detach(
    context: *mut pg_sys::ParallelContext,
    function: unsafe extern "C-unwind" fn(*mut pg_sys::dsm_segment, pg_sys::Datum),
    argument: *mut c_void,
) -> bool {
    // SAFETY: a guarded call on an initialized context; the function raises nothing.
    unsafe {
        if (*context).seg.is_null() {
            return false;
        }
        pg_sys::on_dsm_detach((*context).seg, Some(function), pg_sys::Datum::from(argument));
    }
    true
}
