//! Checks pages with verify_heapam.
//!
//! Rows of an input are put onto pages as in the target `page`, which checks each byte. The pages then become blocks of
//! a table. For that time, the table's descriptor in the relation cache is replaced by one with the columns of these
//! rows. Creating a table for each input would take a hundred times as long.
//!
//! The types of the columns are created beforehand (tools/fuzz): one for each length, alignment and storage that a row
//! can have.

use std::cell::RefCell;
use std::collections::HashMap;

use pg_bulk_storage::page::PAGE_SIZE;
use pg_bulk_storage::tuple::Attribute;
use pg_bulk_fuzz::page::{Look, attributes, run_for};
use pgrx::pg_sys;
use pgrx::prelude::*;

thread_local! {
    static TYPES: RefCell<HashMap<String, pg_sys::Oid>> = RefCell::new(HashMap::new());
}

/// Makes pages of the rows of one input and checks them with verify_heapam.
pub fn run(input: &[u8]) {
    let Some(attributes) = attributes(input) else { return };
    let mut blocks = 0;
    // SAFETY: within a function that the server has called, in a transaction; the table exists, and no other process
    // has it open.
    unsafe {
        let relation = pg_sys::table_open(oid_of("pages", "regclass"), pg_sys::AccessExclusiveLock as i32);
        let mut put_pages = |first: u32, pages: &[u8]| {
            for (number, page) in pages.chunks(PAGE_SIZE).enumerate() {
                put(relation, first + number as u32, page);
                blocks = first + number as u32 + 1;
            }
        };
        let xmin = pg_sys::GetCurrentTransactionId().into_inner();
        run_for(input, &attributes, Look { xmin, first_block: Some(0), pages: &mut put_pages });
        let own = std::mem::replace(&mut (*relation).rd_att, descriptor(&attributes));
        let found = verify(blocks);
        pg_sys::FreeTupleDesc(std::mem::replace(&mut (*relation).rd_att, own));
        pg_sys::table_close(relation, pg_sys::NoLock as i32);
        assert_eq!(found, None, "of {blocks} blocks with {attributes:?}");
    }
}

/// Returns the errors that verify_heapam finds in the first `blocks` blocks.
fn verify(blocks: u32) -> Option<String> {
    let last = i64::from(blocks.checked_sub(1)?);
    let query = "SELECT string_agg(format('block %s, line pointer %s, attribute %s: %s', blkno, offnum, attnum, msg), chr(10)) \
        FROM verify_heapam('pages', startblock => 0, endblock => $1)";
    Spi::get_one_with_args(query, &[last.into()]).unwrap_or_else(|error| Some(error.to_string()))
}

/// Writes a page to a block.
///
/// # Safety
/// In a transaction; `page` is a whole page, and `block` is an existing block or the first one behind the end.
unsafe fn put(relation: pg_sys::Relation, block: u32, page: &[u8]) {
    // SAFETY: this function's contract; a buffer that is pinned and locked has room for a page.
    unsafe {
        let fork = pg_sys::ForkNumber::MAIN_FORKNUM;
        let is_new = block >= pg_sys::RelationGetNumberOfBlocksInFork(relation, fork);
        let block = if is_new { pg_sys::InvalidBlockNumber } else { block };
        let mode = pg_sys::ReadBufferMode::RBM_ZERO_AND_LOCK;
        let buffer = pg_sys::ReadBufferExtended(relation, fork, block, mode, std::ptr::null_mut());
        std::ptr::copy_nonoverlapping(page.as_ptr(), pg_sys::BufferGetPage(buffer).cast(), page.len());
        pg_sys::MarkBufferDirty(buffer);
        pg_sys::UnlockReleaseBuffer(buffer);
    }
}

/// Returns a descriptor of rows with these attributes.
///
/// # Safety
/// Within a function that the server has called.
unsafe fn descriptor(attributes: &[Attribute]) -> pg_sys::TupleDesc {
    // SAFETY: attribute numbers from 1 up to the number of attributes; the types exist.
    unsafe {
        let descriptor = pg_sys::CreateTemplateTupleDesc(attributes.len() as i32);
        for (number, attribute) in (1..).zip(attributes) {
            let oid = oid_of(&type_name(*attribute), "regtype");
            pg_sys::TupleDescInitEntry(descriptor, number, c"a".as_ptr(), oid, -1, 0);
        }
        descriptor
    }
}

fn type_name(attribute: Attribute) -> String {
    let Attribute { len, align, by_value, packable } = attribute;
    match (len, by_value) {
        (1, true) => "\"char\"".to_owned(),
        (len, true) => format!("int{len}"),
        (-2, _) => "cstring".to_owned(),
        (-1, _) => format!("{}_{align}", if packable { "extended" } else { "plain" }),
        _ => format!("fixed_{len}_{align}"),
    }
}

/// Returns the OID of a relation or a type. Each one is looked up once.
fn oid_of(name: &str, kind: &str) -> pg_sys::Oid {
    let look_up = || {
        let oid = Spi::get_one_with_args::<pg_sys::Oid>(&format!("SELECT $1::{kind}::oid"), &[name.into()]);
        oid.ok().flatten().unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    TYPES.with_borrow_mut(|types| *types.entry(name.to_owned()).or_insert_with(look_up))
}
