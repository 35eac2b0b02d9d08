//! Handles of open relations and tuple descriptors.
//!
//! A [`Relation`] is an entry of the relation cache to which this process holds a reference as long as `'a`. The
//! reference keeps the entry at its address. An invalidation message rebuilds the entry in place, so accessors copy what
//! they return. The old tuple descriptor, if it has changed, is freed at the end of the transaction
//! (RememberToFreeTupleDescAtEOX, relcache.c), and no relation stays open longer. So a [`TupleDesc`] and its attributes
//! are valid as long as the relation's handle.
//!
//! This process also holds a lock of the relation, or a lock of the table of an index. So no other process changes its
//! columns, constraints or triggers, and this process changes none of a relation that it has open. Whoever opens a
//! relation takes the lock, or has it already ([`OpenRelation::locked`]).
//!
//! All accessors read memory, except those whose comment says that they are guarded. So plain frames may use them.

use std::ffi::{CStr, CString};

use pgrx::{PgList, pg_sys};

use super::call::calls;
use super::compat::{attributes, has_generated, is_virtual};
use super::handle::Handle;
use super::node::{Node, NodeList};
use super::server_text::from_server;

/// A relation that is open and locked as long as `'a`. Equal handles are of one relation.
pub type Relation<'a> = Handle<'a, pg_sys::RelationData>;

impl<'a> Relation<'a> {
    /// The relation's row of pg_class. No reference to it outlives an accessor.
    const fn form(&self) -> &pg_sys::FormData_pg_class {
        // SAFETY: an open relation has this row.
        unsafe { &*self.get().rd_rel }
    }

    pub const fn oid(self) -> pg_sys::Oid {
        self.get().rd_id
    }

    /// One of RELKIND_RELATION, …
    pub const fn kind(self) -> u8 {
        self.form().relkind.cast_unsigned()
    }

    pub const fn is_partitioned(self) -> bool {
        self.kind() == pg_sys::RELKIND_PARTITIONED_TABLE
    }

    pub const fn is_partition(self) -> bool {
        self.form().relispartition
    }

    /// One of RELPERSISTENCE_PERMANENT, …
    pub const fn persistence(self) -> u8 {
        self.form().relpersistence.cast_unsigned()
    }

    /// Whether it is a temporary relation of this session.
    pub const fn is_own_temporary(self) -> bool {
        self.get().rd_islocaltemp
    }

    /// Whether the relation is a temporary one of another session.
    pub const fn is_other_temporary(self) -> bool {
        self.persistence() == pg_sys::RELPERSISTENCE_TEMP && !self.get().rd_islocaltemp
    }

    pub const fn owner(self) -> pg_sys::Oid {
        self.form().relowner
    }

    /// The type of the rows.
    pub const fn row_type(self) -> pg_sys::Oid {
        self.form().reltype
    }

    pub const fn namespace(self) -> pg_sys::Oid {
        self.form().relnamespace
    }

    pub const fn toast_table(self) -> pg_sys::Oid {
        self.form().reltoastrelid
    }

    pub const fn has_indexes(self) -> bool {
        self.form().relhasindex
    }

    /// The relfilenode, which changes when the table is rewritten.
    pub const fn file(self) -> pg_sys::Oid {
        self.form().relfilenode
    }

    /// The references that this process holds, without that of the server for its own catalogs.
    pub fn references(self) -> i32 {
        self.get().rd_refcnt - i32::from(self.get().rd_isnailed)
    }

    /// Whether the number of rows has been estimated.
    pub const fn has_statistics(self) -> bool {
        self.form().reltuples >= 0.0
    }

    pub const fn access_method(self) -> pg_sys::Oid {
        self.form().relam
    }

    /// Returns the name, in the server's encoding.
    pub fn name(self) -> CString {
        text_of(&self.form().relname).to_owned()
    }

    /// Returns the name as text. Guarded.
    pub fn name_text(self) -> String {
        from_server(&self.name())
    }

    pub fn descriptor(self) -> TupleDesc<'a> {
        // SAFETY: an open relation has a descriptor, which is valid as long as the relation is open.
        unsafe { TupleDesc::from_raw(self.get().rd_att) }
    }

    // SAFETY: the relation is open. The lists are copies in the current memory context.
    calls! {
        /// Returns the OIDs of the indexes. Guarded.
        pub fn indexes(self) -> Vec<pg_sys::Oid> = RelationGetIndexList(self);
        /// Returns the OIDs of the extended statistics. Guarded.
        pub fn statistics(self) -> Vec<pg_sys::Oid> = RelationGetStatExtList(self);
        /// Returns copies of an index's expressions. Guarded.
        fn index_expressions(self) -> NodeList<'a> = RelationGetIndexExpressions(self);
        /// Returns a copy of an index's predicate. Guarded.
        fn index_predicate(self) -> NodeList<'a> = RelationGetIndexPredicate(self);
        /// Raises an error if a caller uses the relation, too: `command` is for the message. Guarded.
        pub fn check_unused(self, command: &CStr) = CheckTableNotInUse(self, command);
        /// Lets all processes read the entry of the relation cache again. Guarded.
        pub fn invalidate(self) = CacheInvalidateRelcache(self);
        /// Whether it is a system catalog. Guarded.
        pub fn is_system(self) -> bool = IsSystemRelation(self);
        /// Has this process a lock of the relation, or a stronger one? Guarded.
        pub fn has_lock(self, lock: u32, or_stronger: bool) -> bool
            = CheckRelationLockedByMe(self, (lock.cast_signed()), or_stronger);
        /// Raises an error if a publication needs a replica identity for a command. Guarded.
        pub fn check_replica_identity(self, command: pg_sys::CmdType::Type) = CheckCmdReplicaIdentity(self, command);
        /// Adds inserted rows to the statistics. Guarded.
        pub fn count_inserted(self, rows: i64) = pgstat_count_heap_insert(self, rows);
        /// Whether AFTER triggers of the relation are queued. Guarded.
        pub fn has_queued_triggers(self) -> bool = AfterTriggerPendingOnRel((self.oid()));
        /// The number of pages of the main fork. Guarded.
        pub fn pages(self) -> u32 = RelationGetNumberOfBlocksInFork(self, (pg_sys::ForkNumber::MAIN_FORKNUM));
        /// Returns the OIDs of the relation and of all its descendants, each of which gets this lock. Guarded.
        pub fn with_descendants(self, lock: u32) -> Vec<pg_sys::Oid>
            = find_all_inheritors((self.oid()), (lock.cast_signed()), (std::ptr::null_mut())) unguarded;
        /// Returns the partition constraint; empty without one, or if the relation is no partition. Guarded.
        pub fn partition_bound(self) -> NodeList<'a> = RelationGetPartitionQual(self) unguarded;
        /// Gives the predicate locks of an index to its table. Guarded.
        pub fn move_predicate_locks(self) = TransferPredicateLocksToHeapRelation(self) unguarded;
    }

    /// Returns the OIDs of the relations that this one is a partition of, directly or through others. Guarded.
    pub fn ancestors(self) -> Vec<pg_sys::Oid> {
        if self.form().relispartition { ancestors_of(self.oid()) } else { Vec::new() }
    }

    /// Returns copies of an index's expressions and of its predicate. Guarded.
    pub fn index_nodes(self) -> [NodeList<'a>; 2] {
        [self.index_expressions(), self.index_predicate()]
    }

    /// Has an index a predicate? Guarded.
    pub fn is_partial(self) -> bool {
        !self.index_predicate().is_empty()
    }

    /// What pg_index says of an index; None if the relation is no index.
    pub fn index(self) -> Option<IndexForm> {
        // SAFETY: an open relation's row of pg_index, or null. No reference to it outlives this function.
        unsafe { self.get().rd_index.as_ref() }.map(|form| IndexForm {
            table: form.indrelid,
            keys: usize::try_from(form.indnkeyatts).unwrap_or(0),
            is_unique: form.indisunique,
            is_exclusion: form.indisexclusion,
            is_immediate: form.indimmediate,
            is_primary: form.indisprimary,
            is_ready: form.indisready,
            is_valid: form.indisvalid,
            is_usable: form.indisvalid && form.indisready && form.indislive,
            checks_xmin: form.indcheckxmin,
            nulls_equal: form.indnullsnotdistinct,
        })
    }

    /// Has an index expressions or a predicate? Guarded.
    pub fn is_computed(self) -> bool {
        !self.index_nodes().into_iter().all(NodeList::is_empty)
    }

    /// Returns the numbers of the table's attributes in the keys of an index, 0 for an expression; empty if the relation
    /// is no index.
    pub fn key_columns(self) -> Vec<i16> {
        // SAFETY: an open index has its row of pg_index, whose array has a number for each key.
        self.index()
            .map_or_else(Vec::new, |form| unsafe { (*self.get().rd_index).indkey.values.as_slice(form.keys).to_vec() })
    }

    /// The foreign keys of a table, whose arrays have `nkeys` elements. Guarded.
    pub fn foreign_keys(self) -> Vec<pg_sys::ForeignKeyCacheInfo> {
        // SAFETY: a guarded call returns a list of these nodes, which are copied at once.
        unsafe {
            let keys = PgList::<pg_sys::ForeignKeyCacheInfo>::from_pg(pg_sys::RelationGetFKeyList(self.as_ptr()));
            keys.iter_ptr().map(|key| *key).collect()
        }
    }
}

// SAFETY: the first function looks into the catalogs, and the others open relations, which `Drop` or `close` closes.
calls! {
    /// The relations that a partition belongs to, directly or through others. Guarded.
    pub fn ancestors_of(oid: pg_sys::Oid) -> Vec<pg_sys::Oid> = get_partition_ancestors(oid) unguarded;
    fn opened(oid: pg_sys::Oid, lock: u32) -> Relation<'static> = relation_open(oid, (lock.cast_signed()));
    fn opened_if_there(oid: pg_sys::Oid, lock: u32) -> Option<Relation<'static>> = try_relation_open(oid, (lock.cast_signed()));
    fn opened_named(name: Node<'_, pg_sys::RangeVar>, lock: u32) -> Relation<'static>
        = table_openrv(name, (lock.cast_signed()));
    fn referenced(oid: pg_sys::Oid) -> Option<Relation<'static>> = RelationIdGetRelation(oid);
}

/// What pg_index says of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexForm {
    pub table: pg_sys::Oid,
    pub keys: usize,
    pub is_unique: bool,
    pub is_exclusion: bool,
    pub is_immediate: bool,
    pub is_primary: bool,
    pub is_ready: bool,
    pub is_valid: bool,
    /// Valid, ready and live.
    pub is_usable: bool,
    /// Older snapshots must not use the index.
    pub checks_xmin: bool,
    /// NULLS NOT DISTINCT
    pub nulls_equal: bool,
}

/// A relation that is closed when this value is dropped. For guarded frames. After an error, the end of the transaction
/// closes the relation.
#[derive(Debug)]
pub struct OpenRelation {
    relation: Relation<'static>,
    /// The lock that was taken with the relation, or NoLock.
    lock: u32,
    releases_lock: bool,
}

impl OpenRelation {
    /// Opens a relation of any kind, and keeps the lock. Guarded.
    pub fn open(oid: pg_sys::Oid, lock: u32) -> OpenRelation {
        OpenRelation { relation: opened(oid, lock), lock, releases_lock: false }
    }

    /// Opens the table or view that a statement names, and keeps the lock. Guarded.
    pub fn named(name: Node<'_, pg_sys::RangeVar>, lock: u32) -> OpenRelation {
        OpenRelation { relation: opened_named(name, lock), lock, releases_lock: false }
    }

    /// Opens a relation of which this process has a lock. Guarded.
    pub fn locked(oid: pg_sys::Oid) -> OpenRelation {
        OpenRelation::open(oid, pg_sys::NoLock)
    }

    /// Opens a relation, and keeps the lock. None if the relation does not exist. Guarded.
    pub fn find(oid: pg_sys::Oid, lock: u32) -> Option<OpenRelation> {
        opened_if_there(oid, lock).map(|relation| OpenRelation { relation, lock, releases_lock: false })
    }

    /// Releases the lock with the relation, if it was taken with it.
    pub fn releasing(mut self) -> OpenRelation {
        self.releases_lock = true;
        self
    }

    /// Leaves the relation open.
    pub fn keep(self) -> pg_sys::Relation {
        std::mem::ManuallyDrop::new(self).relation.as_ptr()
    }

    pub fn get(&self) -> Relation<'_> {
        self.relation
    }
}

impl Drop for OpenRelation {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let released = if self.releases_lock { self.lock } else { pg_sys::NoLock };
            // SAFETY: a guarded call; opened by this value, whose handles have ended.
            unsafe { pg_sys::relation_close(self.relation.as_ptr(), released.cast_signed()) }
        }
    }
}

/// A relation that is open until `close`, or the end of the transaction. No destructor closes it, so a memory context may
/// drop this value.
#[derive(Debug)]
pub struct KeptRelation(Relation<'static>);

impl KeptRelation {
    /// Opens a relation of any kind, and keeps the lock. Guarded.
    pub fn open(oid: pg_sys::Oid, lock: u32) -> KeptRelation {
        KeptRelation(std::mem::ManuallyDrop::new(OpenRelation::open(oid, lock)).relation)
    }

    /// Opens a relation of which this process has a lock. Guarded.
    pub fn locked(oid: pg_sys::Oid) -> KeptRelation {
        KeptRelation::open(oid, pg_sys::NoLock)
    }

    /// Takes a reference to a relation; None if the relation does not exist. This process has a lock of the relation, or
    /// of the table of an index. Guarded.
    pub fn referenced(oid: pg_sys::Oid) -> Option<KeptRelation> {
        referenced(oid).map(KeptRelation)
    }

    pub fn get(&self) -> Relation<'_> {
        self.0
    }

    /// Closes the relation, and keeps the lock. Guarded.
    pub fn close(self) {
        drop(OpenRelation { relation: self.0, lock: pg_sys::NoLock, releases_lock: false });
    }
}

/// A tuple descriptor that is valid, and does not change, as long as `'a`.
pub type TupleDesc<'a> = Handle<'a, pg_sys::TupleDescData>;

impl<'a> TupleDesc<'a> {
    // SAFETY: the descriptors are made in the current memory context.
    calls! {
        /// A copy of the descriptor of a row type. Guarded; in the current memory context, which outlives the handle.
        pub fn of_type(type_oid: pg_sys::Oid, typmod: i32) -> TupleDesc<'a> = lookup_rowtype_tupdesc_copy(type_oid, typmod);
        /// A copy without constraints. Guarded; in the current memory context, which outlives the handle.
        pub fn copied<'b>(self) -> TupleDesc<'b> = CreateTupleDescCopy(self);
        /// A copy with constraints, and with the values of columns that a row is too short for. Otherwise as
        /// [`TupleDesc::copied`].
        pub fn copied_with_constraints<'b>(self) -> TupleDesc<'b> = CreateTupleDescCopyConstr(self);
        fn find(row: Node<'_>, descriptor: &mut Option<TupleDesc<'a>>) -> u32
            = get_expr_result_type(row, (std::ptr::null_mut()), descriptor);
    }

    /// The descriptor of the rows that an expression of a composite type returns; None if it returns any rows. Guarded.
    pub fn of_expression(row: Node<'a>) -> Option<TupleDesc<'a>> {
        let mut descriptor = None;
        TupleDesc::find(row, &mut descriptor);
        descriptor
    }

    /// The descriptor of rows with these columns. Guarded; in the current memory context, which outlives the handle.
    pub fn of_columns<'n>(columns: impl Iterator<Item = (&'n CStr, pg_sys::Oid)>) -> TupleDesc<'a> {
        let columns: Vec<_> = columns.take(pg_sys::MaxTupleAttributeNumber as usize).collect();
        // SAFETY: guarded calls on a descriptor made here, with attributes that it has; names are copied.
        unsafe {
            let descriptor = pg_sys::CreateTemplateTupleDesc(i32::try_from(columns.len()).unwrap_or(0));
            for (number, (name, type_oid)) in (1..=pg_sys::AttrNumber::MAX).zip(columns) {
                pg_sys::TupleDescInitEntry(descriptor, number, name.as_ptr(), type_oid, -1, 0);
            }
            TupleDesc::from_raw(descriptor)
        }
    }

    /// The type of the rows; RECORDOID if it has no name.
    pub fn row_type(self) -> pg_sys::Oid {
        self.get().tdtypeid
    }

    /// The number of attributes, including dropped ones.
    pub fn len(self) -> usize {
        usize::try_from(self.get().natts).unwrap_or(0)
    }

    /// The number of references that are counted; negative if none are.
    pub fn pins(self) -> i32 {
        self.get().tdrefcount
    }

    fn all(self) -> &'a [pg_sys::FormData_pg_attribute] {
        // SAFETY: a valid descriptor has an array of this many attributes, which do not change.
        unsafe { std::slice::from_raw_parts(attributes(self.as_ptr()), self.len()) }
    }

    /// Returns the attribute with this index, from 0.
    pub fn attribute(self, index: usize) -> Option<&'a pg_sys::FormData_pg_attribute> {
        self.all().get(index)
    }

    /// Iterates over all attributes, including dropped ones.
    pub fn attributes(self) -> impl ExactSizeIterator<Item = &'a pg_sys::FormData_pg_attribute> + Clone {
        self.all().iter()
    }

    /// Iterates over the attributes that are not dropped.
    pub fn live(self) -> impl Iterator<Item = &'a pg_sys::FormData_pg_attribute> + Clone {
        self.attributes().filter(|attribute| !attribute.attisdropped)
    }

    /// The CHECK constraints, defaults and missing values; None without any.
    fn constraints(self) -> Option<&'a pg_sys::TupleConstr> {
        // SAFETY: a valid descriptor has these, or null; they change no more.
        unsafe { self.get().constr.as_ref() }
    }

    /// Whether there are generated columns of any kind.
    pub fn has_generated(self) -> bool {
        self.constraints().is_some_and(has_generated)
    }

    /// Whether a virtual column has a NOT NULL constraint. Only ExecConstraints can check it, since the stored row has
    /// NULL.
    pub fn has_virtual_not_null(self) -> bool {
        self.attributes().any(|one| one.attnotnull && is_virtual(one))
    }

    /// Parses the CHECK constraints, each with its name. Guarded.
    pub fn checks(self) -> impl Iterator<Item = (&'a CStr, Node<'a>)> {
        let all = self.constraints();
        let count = all.map_or(0, |all| usize::from(all.num_check));
        all.into_iter().flat_map(move |all| {
            // SAFETY: a valid descriptor has this many constraints, each with two strings; a guarded call.
            (0..count).filter_map(move |i| unsafe {
                let check = &*all.check.add(i);
                Some((CStr::from_ptr(check.ccname), Node::read(check.ccbin)?))
            })
        })
    }

    /// Parses the defaults and the expressions of generated columns, each with its attribute. Guarded.
    pub fn defaults(self) -> impl Iterator<Item = (&'a pg_sys::FormData_pg_attribute, Node<'a>)> {
        let all = self.constraints();
        let count = all.map_or(0, |all| usize::from(all.num_defval));
        all.into_iter().flat_map(move |all| {
            (0..count).filter_map(move |i| {
                // SAFETY: a valid descriptor has this many defaults, which are strings; a guarded call.
                let (number, expression) = unsafe {
                    let default = &*all.defval.add(i);
                    (default.adnum, Node::read(default.adbin)?)
                };
                Some((self.attribute(usize::try_from(number - 1).ok()?)?, expression))
            })
        })
    }
}

/// A name up to its NUL; empty if it has none.
fn text_of(name: &pg_sys::NameData) -> &CStr {
    // SAFETY: characters are bytes.
    let bytes = unsafe { &*std::ptr::from_ref(&name.data).cast::<[u8; pg_sys::NAMEDATALEN as usize]>() };
    CStr::from_bytes_until_nul(bytes).unwrap_or_default()
}

/// The name of an attribute, in the server's encoding.
pub fn name_of(attribute: &pg_sys::FormData_pg_attribute) -> &CStr {
    text_of(&attribute.attname)
}

/// Returns the name of an attribute as text. Guarded.
pub fn attribute_name(attribute: &pg_sys::FormData_pg_attribute) -> String {
    from_server(name_of(attribute))
}
