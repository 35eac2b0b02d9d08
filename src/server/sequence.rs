//! Takes ids from a sequence, a range at a time.
//!
//! nextval is refused while the transaction is in parallel mode, in the leader too: each session caches ids that
//! workers do not share. And the server has no function that takes many ids at once. This module does the part of
//! nextval that needs no cache: the change of the sequence's page. One change takes a whole range. No other process or
//! session gets an id of that range, so ranges and nextval may be used side by side.
//!
//! A load uses it for columns whose default is a [`super::sequence_default::SequenceDefault`]:
//!
//! ```text
//!   leader, before parallel mode   SequenceDefault::recognise(expression)        is the default supported?
//!                                  SequenceDefault::open() ─► Sequence           lock, privileges, transaction id
//!                                  Sequence::parameters() ─► shared memory
//!   worker                         Sequence::attach(parameters)
//!   process that cuts the chunk    Sequence::take(rows at most) ─► IdRange       in chunk order; plain data
//!   process that makes its rows    Sequence::next_id(range) ─► SequenceDefault::datum(id)
//! ```
//!
//! A range may have more ids than the chunk has rows. The remaining ids are a gap, as after an error. A range may also
//! have fewer ids than were requested. That is an error only for the row that needs the next id, so `next_id` raises
//! it. Two columns with the same sequence take separate ranges; nextval would number them alternately.
//!
//! **The page and WAL.** nextval logs a state of the sequence that is up to 32 ids ahead of the page. `log_cnt` is the
//! number of ids that it may still return without logging. A range always logs the new state of the page itself: last
//! value at the range's end, `log_cnt` 0. This record replaces any state that an earlier one has logged, and `log_cnt`
//! 0 makes the next nextval log again. So after a crash, and on a standby, the sequence continues behind the range. As
//! with nextval, ids become durable when the WAL is flushed at the commit of the transaction that used them. A logged
//! sequence makes the transaction take a transaction id for that, before parallel mode.
//!
//! **Unused ids.** If the sequence still stands at the end of a range, no later id has been taken. Then the unused ids
//! of the range can be [given back](Sequence::give_back): the sequence then stands behind the last id used.
//!
//! **The session.** currval and lastval do not change; they belong to nextval. Ids that nextval has cached in a session
//! (`CACHE`) stay in that session's cache, and it uses them first.
//!
//! All functions are guarded, except that `next_id` calls nothing of the server and may run anywhere.

use super::relation::{OpenRelation, Relation};
use pg_bulk_storage::id_range::{IdRange, Position, Rule};
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::compat;
use super::database::{assign_transaction, require_writes};
use super::lookup::{CatalogForm, CatalogRow};
use super::role::privileges;
use super::team::Shareable;
use crate::error::{Error, Result};

/// `SEQ_MAGIC` (sequence.c), in the special area of a sequence's page.
const MAGIC: u32 = 0x1717;
/// `XLOG_SEQ_LOG` (sequence.h).
const XLOG_SEQ_LOG: u8 = 0;

/// `FormData_pg_sequence`, which has no binding.
#[repr(C)]
struct SequenceForm {
    seqrelid: pg_sys::Oid,
    seqtypid: pg_sys::Oid,
    seqstart: i64,
    seqincrement: i64,
    seqmax: i64,
    seqmin: i64,
    seqcache: i64,
    seqcycle: bool,
}

// SAFETY: the cache has rows of pg_sequence.
unsafe impl CatalogForm for SequenceForm {
    const CACHE: pg_sys::SysCacheIdentifier::Type = pg_sys::SysCacheIdentifier::SEQRELID;
}

/// `FormData_pg_sequence_data`: the columns of the one tuple of a sequence.
#[repr(C)]
struct Data {
    last_value: i64,
    log_cnt: i64,
    is_called: bool,
}

/// Length of the columns without trailing padding, which is not part of the tuple.
const DATA_LENGTH: usize = std::mem::offset_of!(Data, is_called) + 1;

/// The tuple on a sequence's page.
struct PageTuple {
    header: pg_sys::HeapTupleHeader,
    length: usize,
    data: *mut Data,
}

/// What a worker needs to use a sequence that the leader has opened.
#[derive(Debug, Clone, Copy)]
pub struct Parameters {
    oid: pg_sys::Oid,
    pub rule: Rule,
    temporary: bool,
}

// SAFETY: numbers.
unsafe impl Shareable for Parameters {}

/// A sequence that is locked by this process until the transaction ends.
#[derive(Debug)]
pub struct Sequence {
    parameters: Parameters,
    name: String,
    /// The user lacks the privilege; taking an id raises the error.
    denied: bool,
}

impl Sequence {
    /// Lock the sequence against changes of its parameters. With `check_rights`, the current user must have the
    /// privilege to use it. As in nextval, that error is raised for the first id, since there may be no row that needs
    /// one. The sequence of an identity column needs no privilege.
    ///
    /// To be called before parallel mode: a logged sequence makes the transaction take an id.
    pub fn open(oid: pg_sys::Oid, check_rights: bool) -> Result<Sequence> {
        let relation = OpenRelation::open(oid, pg_sys::RowExclusiveLock);
        let relation = relation.get();
        let name = name_of(relation);
        if relation.kind() != pg_sys::RELKIND_SEQUENCE {
            return Err(Error::new(Code::ERRCODE_WRONG_OBJECT_TYPE, format!("\"{name}\" is not a sequence")));
        }
        let rights = pg_sys::ACL_USAGE | pg_sys::ACL_UPDATE;
        let denied = check_rights && privileges(oid, rights) != pg_sys::AclResult::ACLCHECK_OK;
        if !relation.is_own_temporary() {
            require_writes(c"nextval()");
        }
        if compat::needs_wal(relation) {
            assign_transaction();
        }
        let temporary = relation.persistence() == pg_sys::RELPERSISTENCE_TEMP;
        Ok(Sequence { parameters: Parameters { oid, rule: rule_of(oid)?, temporary }, name, denied })
    }

    /// In a worker, open a sequence that the leader has opened and that [can be shared](Sequence::is_shareable).
    pub fn attach(parameters: &Parameters) -> Result<Sequence> {
        if parameters.temporary {
            let message = "cannot access temporary tables during a parallel operation";
            return Err(Error::new(Code::ERRCODE_INVALID_TRANSACTION_STATE, message));
        }
        // The relation is still a sequence, because the leader has it locked.
        let name = name_of(OpenRelation::open(parameters.oid, pg_sys::RowExclusiveLock).get());
        Ok(Sequence { parameters: *parameters, name, denied: false })
    }

    /// The parameters for [`Sequence::attach`].
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Can workers use it? Not a temporary one, whose pages are in the leader's local buffers. Nor one without the
    /// privilege: chunks take ids in advance, so the error could come without a row.
    pub fn is_shareable(&self) -> bool {
        !self.parameters.temporary && !self.denied
    }

    /// Take the next `n` ids, or as many as are left, and return the position before them. No other process gets these
    /// ids.
    pub fn take(&self, n: u64) -> Result<(IdRange, Position)> {
        if self.denied {
            let message = format!("permission denied for sequence {}", self.name);
            return Err(Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message));
        }
        // The relation is opened each time, because its storage may be replaced between two ranges.
        self.take_from(OpenRelation::locked(self.parameters.oid).get(), n)
    }

    /// Give back the unused ids of a range, if the sequence still stands at the range's end, so that the next caller
    /// gets them. `before` is the position if only the used ids had been taken. Does nothing for a sequence with CYCLE,
    /// whose position proves nothing.
    pub fn give_back(&self, range: &IdRange, before: Position) -> Result<()> {
        let Some(end) = range.last_id().filter(|_| !self.parameters.rule.cycle) else { return Ok(()) };
        self.on_page(OpenRelation::locked(self.parameters.oid).get(), |position| {
            ((), (position.is_called && position.last_value == end).then_some(before))
        })
    }

    /// The position of the sequence, and the number of ids left before it ends or cycles.
    fn position(&self) -> Result<(Position, u64)> {
        let relation = OpenRelation::locked(self.parameters.oid);
        let position = self.on_page(relation.get(), |position| (position, None))?;
        let rule = Rule { cycle: false, ..self.parameters.rule };
        Ok((position, IdRange::after(position, &rule, u64::MAX).left()))
    }

    /// Are `n` ids left before the sequence ends or cycles?
    pub fn has_room(&self, n: u64) -> Result<bool> {
        self.position().map(|(_, left)| left >= n)
    }

    /// The page part of nextval_internal.
    fn take_from(&self, relation: Relation<'_>, n: u64) -> Result<(IdRange, Position)> {
        if compat::needs_wal(relation) {
            // The commit of a transaction with an id flushes WAL and waits for standbys. Here and not below, because it
            // may fail.
            assign_transaction();
        }
        self.on_page(relation, |position| {
            let range = IdRange::after(position, &self.parameters.rule, n);
            ((range, position), range.last_id().map(|last_value| Position { last_value, is_called: true }))
        })
    }

    /// Locks the sequence's page, and writes the position that `change` returns beside its result. The transaction has an
    /// id if that is logged.
    fn on_page<T>(&self, relation: Relation<'_>, change: impl FnOnce(Position) -> (T, Option<Position>)) -> Result<T> {
        // SAFETY: guarded calls on an open relation. After an error, the transaction releases the buffer.
        unsafe {
            let buffer = pg_sys::ReadBuffer(relation.as_ptr(), 0);
            pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_EXCLUSIVE.cast_signed());
            let done = self.page_tuple(buffer).map(|tuple| {
                let position = Position { last_value: (*tuple.data).last_value, is_called: (*tuple.data).is_called };
                let (done, new) = change(position);
                if let Some(new) = new {
                    advance(relation, buffer, &tuple, new, compat::needs_wal(relation));
                }
                done
            });
            pg_sys::UnlockReleaseBuffer(buffer);
            done
        }
    }

    /// Read the tuple like `read_seq_tuple`, and check what that only asserts. Nothing is written here.
    unsafe fn page_tuple(&self, buffer: pg_sys::Buffer) -> Result<PageTuple> {
        const SIZE: usize = pg_sys::BLCKSZ as usize;
        // SAFETY: a locked buffer holds a page, which always has a header. Each offset is checked before use.
        unsafe {
            let page = pg_sys::BufferGetPage(buffer).cast::<u8>();
            let page_header = page.cast::<pg_sys::PageHeaderData>();
            let special = usize::from((*page_header).pd_special);
            let magic =
                if special <= SIZE - size_of::<u32>() { page.add(special).cast::<u32>().read_unaligned() } else { 0 };
            if magic != MAGIC {
                let message = format!("bad magic number in sequence \"{}\": {magic:08X}", self.name);
                return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message));
            }
            let item = (*page_header).pd_linp.as_ptr().read();
            let (offset, length) = (item.lp_off() as usize, item.lp_len() as usize);
            let header = page.add(offset.min(SIZE)).cast::<pg_sys::HeapTupleHeaderData>();
            let fits = item.lp_flags() == pg_sys::LP_NORMAL
                && offset.is_multiple_of(align_of::<Data>())
                && length >= size_of::<pg_sys::HeapTupleHeaderData>()
                && offset + length <= special;
            let hoff = if fits { usize::from((*header).t_hoff) } else { 0 };
            if !fits || !hoff.is_multiple_of(align_of::<Data>()) || hoff + DATA_LENGTH > length {
                let message = format!("sequence \"{}\" has no valid tuple", self.name);
                return Err(Error::new(Code::ERRCODE_DATA_CORRUPTED, message));
            }
            Ok(PageTuple { header, length, data: header.byte_add(hoff).cast() })
        }
    }

    /// The next id of a range that was taken from this sequence.
    #[inline]
    pub fn next_id(&self, range: &mut IdRange) -> Result<i64> {
        match range.next() {
            Some(id) => Ok(id),
            None => Err(self.no_more_ids(range)),
        }
    }

    #[cold]
    fn no_more_ids(&self, range: &IdRange) -> Error {
        let (name, rule) = (&self.name, &self.parameters.rule);
        let (end, value) = if rule.increment > 0 { ("maximum", rule.max) } else { ("minimum", rule.min) };
        if range.is_short() {
            let message = format!("nextval: reached {end} value of sequence \"{name}\" ({value})");
            Error::new(Code::ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED, message)
        } else {
            let message = format!("load needs more values of sequence \"{name}\" than it has reserved");
            Error::new(Code::ERRCODE_INTERNAL_ERROR, message)
        }
    }
}

/// Write the position to the sequence's page and to WAL.
///
/// # Safety
/// A guarded frame; `tuple` is in `buffer`, which is pinned and exclusively locked; if `logged`, the transaction has
/// an id.
unsafe fn advance(relation: Relation<'_>, buffer: pg_sys::Buffer, tuple: &PageTuple, position: Position, logged: bool) {
    // SAFETY: this function's contract covers page and tuple, whose offset was checked. In the critical section nothing
    // allocates or panics, and an error of the server is a PANIC, as in nextval.
    unsafe {
        let page_header = pg_sys::BufferGetPage(buffer).cast::<pg_sys::PageHeaderData>();
        let mut locator = compat::locator(relation);
        pg_sys::CritSectionCount += 1;
        pg_sys::MarkBufferDirty(buffer);
        // SELECT FOR UPDATE was once possible on a sequence; its traces must be removed (read_seq_tuple).
        let fields = &raw mut (*tuple.header).t_choice.t_heap;
        if (*fields).t_xmax != pg_sys::InvalidTransactionId {
            (*fields).t_xmax = pg_sys::InvalidTransactionId;
            (*tuple.header).t_infomask &= !(pg_sys::HEAP_XMAX_COMMITTED as u16);
            (*tuple.header).t_infomask |= pg_sys::HEAP_XMAX_INVALID as u16;
        }
        (*tuple.data).last_value = position.last_value;
        (*tuple.data).is_called = position.is_called;
        (*tuple.data).log_cnt = 0;
        if logged {
            // seq_redo rebuilds the whole page from xl_seq_rec, which is the locator, and the tuple.
            pg_sys::XLogBeginInsert();
            pg_sys::XLogRegisterBuffer(0, buffer, pg_sys::REGBUF_WILL_INIT as u8);
            compat::xlog_register_data((&raw mut locator).cast(), size_of_val(&locator));
            compat::xlog_register_data(tuple.header.cast(), tuple.length);
            let lsn = pg_sys::XLogInsert(pg_sys::RmgrIds::RM_SEQ_ID as u8, XLOG_SEQ_LOG);
            (*page_header).pd_lsn = pg_sys::PageXLogRecPtr { xlogid: (lsn >> 32) as u32, xrecoff: lsn as u32 };
        }
        pg_sys::CritSectionCount -= 1;
    }
}

fn name_of(relation: Relation<'_>) -> String {
    relation.name().to_string_lossy().into_owned()
}

/// The parameters in pg_sequence.
fn rule_of(oid: pg_sys::Oid) -> Result<Rule> {
    let Some(row) = CatalogRow::<SequenceForm>::find(oid) else {
        let message = format!("cache lookup failed for sequence {}", oid.to_u32());
        return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message));
    };
    Ok(Rule { increment: row.seqincrement, min: row.seqmin, max: row.seqmax, cycle: row.seqcycle })
}
