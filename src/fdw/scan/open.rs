//! The start of a scan: its state and its file.
//!
//! The file is opened when the scan begins, so that errors are raised at once. Two kinds of scans wait. A scan that
//! EvalPlanQual makes opens the file when a row is requested ([`Scan::open_late`]). The scan of a parallel worker opens it
//! when it has received the leader's file ([`Scan::open_in_worker`]).

use std::rc::Rc;

use pgrx::pg_sys;

use super::{Scan, SlotSink};
use crate::error::Result;
use crate::fdw::aggregate::sums::Aggregation;
use crate::fdw::node::ScanNode;
use crate::fdw::options::TableOptions;
use crate::fdw::order::OrderCheck;
use crate::fdw::private::Private;
use crate::input::file_identity::Identity;
use crate::input::files::FileList;
use crate::input::source::{Descriptor, Location};
use crate::program::copy_question;
use crate::rows::ragged::Ragged;
use crate::rows::row::pump::{Policy, Pump};
use crate::rows::row::{Rows, leaders_rows};
use crate::server::database::{process_number, subtransaction};
use crate::server::memory_context::MemoryContext;
use crate::server::option_value::HeaderOption;
use crate::server::progress::Progress;
use crate::server::relation::Relation;

/// Opens a table's file and prepares its columns. Guarded; the current memory context must outlive the rows.
pub fn open_rows(relation: Relation<'_>, options: &TableOptions) -> Result<Rows> {
    let columns = options.columns(relation)?;
    let location = options.location()?;
    let stream = options.copy.open(location, options.copy.header())?;
    let known = options.copy.by_name().then(|| columns.clone());
    let match_header = options.copy.header == HeaderOption::Match;
    let mut rows = Rows::new(stream, columns, relation.name(), location.described(), match_header);
    rows.treat_ragged(&options.copy.ragged);
    if options.filter.is_some() {
        rows.fill_missing();
    }
    if let Some(known) = known {
        rows.name_by(known);
    }
    Ok(rows)
}

/// BeginForeignScan.
pub fn begin(mut node: ScanNode<'_>, flags: i32) -> Result<()> {
    if flags.cast_unsigned() & pg_sys::EXEC_FLAG_EXPLAIN_ONLY != 0 {
        return Ok(());
    }
    // SAFETY: callbacks use the parts until EndForeignScan; the scan, which is dropped later, does not touch them then.
    let (row, econtext, relation) = unsafe { node.parts() };
    let (relid, estate) = (relation.oid(), node.estate());
    let options = TableOptions::of_table(relid)?;
    let private = Private::of(node.private());
    let order = OrderCheck::new(&private.order, relation);
    let filter = options.filter.as_ref().map(|filter| filter.begin(relation, &options.copy, estate)).transpose()?;
    // EvalPlanQual rechecks its own rows with the node's quals, so these stay in the plan state, and nothing is read
    // unless a row is requested.
    let rechecks = !estate.es_epq_active.is_null();
    // A worker of a parallel scan receives the leader's file before it opens it.
    let receives_file = process_number() > 0 && node.is_parallel_aware();
    let mut rows = None;
    if !rechecks && !receives_file {
        copy_question::may_read(options.location()?);
        rows = Some(open_rows(relation, &options)?);
    }
    let mut aggregation = private.aggregates.map(|aggregates| Aggregation::new(&aggregates, relation));
    let mut qual = std::ptr::null_mut();
    if !rechecks || aggregation.is_some() {
        qual = node.take_qual();
    }
    let arrays = match &mut aggregation {
        // SAFETY: the scan keeps the aggregation, whose arrays stay where they are.
        Some(aggregation) => unsafe { aggregation.arrays() },
        None => row,
    };
    // Columns that are not read are NULL in every row.
    arrays.clear();
    let is_program = matches!(options.location, Some(Location::Program(_)));
    let progress = match &rows {
        Some(rows) => Progress::start(relid, is_program, rows.stream().file_size()),
        None => Progress::none(),
    };
    let sink = SlotSink {
        arrays: match &filter {
            Some(filter) => filter.arguments(),
            None => arrays,
        },
        econtext,
        wanted: private.wanted,
        has_qual: !qual.is_null(),
        has_filter: filter.is_some(),
        first_attributes: Vec::new(),
        rest: Vec::new(),
        has_raw: false,
        progress,
        reported: 0,
        participant: None,
    };
    let mut scan = Scan {
        rows: None,
        pump: Pump { policy: Policy::of(&options.copy), sink },
        relid,
        relation,
        begun_in: subtransaction(),
        order,
        options,
        filter,
        qual,
        aggregation,
        bytes_before: 0,
        ragged_of_others: Ragged::default(),
        is_replaced: false,
    };
    if let Some(rows) = rows {
        scan.begin(rows);
    }
    node.begin(scan);
    Ok(())
}

impl Scan {
    /// Opens the leader's files in a worker, or the file that the leader has open as `leaders`, in this encoding. Guarded.
    pub fn open_in_worker(
        &mut self,
        encoding: i32,
        list: Option<FileList>,
        leaders: Descriptor,
        file: Identity,
    ) -> Result<()> {
        self.options.copy.encoding = Some(encoding);
        let location = self.options.location()?.clone();
        let rows = match list {
            Some(list) => {
                self.options.location = Some(Location::Files(Rc::new(list.made_of(&location))));
                open_rows(self.relation, &self.options)?
            }
            None => leaders_rows(&location, leaders, file, |opened| {
                let named = self.options.location.replace(opened.clone());
                let rows = open_rows(self.relation, &self.options);
                self.options.location = named;
                let mut rows = rows?;
                rows.context.described = location.described();
                Ok(rows)
            })?,
        };
        self.begin(rows);
        Ok(())
    }

    /// Opens the file that BeginForeignScan has left closed. `memory` is the query's. Guarded.
    pub(super) fn open_late(&mut self, memory: MemoryContext) -> Result<()> {
        let within = memory.enter();
        let rows = open_rows(self.relation, &self.options)?;
        drop(within);
        self.begun_in = subtransaction();
        self.begin(rows);
        Ok(())
    }
}
