//! Option names of `bulk_load` and the other functions that have options.
//!
//! Each name has a [`Reach`]: the rights that the author of the option can use through it. A SECURITY DEFINER function
//! may hand on options that its caller has written. An option is [`Reach::Code`] if it does one of these with the
//! rights of the function's owner:
//!
//! - It runs SQL or a program.
//! - It reads something other than the file that the function names.
//! - It needs a right other than INSERT on the target.
//!
//! [`definer`](super::definer) refuses these. All others are [`Reach::Data`]: they describe the bytes of the file,
//! select the rows, and choose how the rows are written. An option that is not in this table does not exist.

/// Rights that the author of an option can use through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Loads the given file into the given table, and nothing else.
    Data,
    /// Uses other rights of the current user.
    Code,
}

/// An enum of option names, in the order in which messages list them.
macro_rules! option_names {
    ($(#[$about:meta])* $enum:ident { $($variant:ident: $name:literal, $reach:ident;)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $enum { $($variant),* }

        impl $enum {
            pub const ALL: &[$enum] = &[$($enum::$variant),*];

            pub const fn name(self) -> &'static str {
                match self { $($enum::$variant => $name),* }
            }

            pub const fn reach(self) -> Reach {
                match self { $($enum::$variant => Reach::$reach),* }
            }

            pub fn by_name(name: &str) -> Option<$enum> {
                Self::ALL.iter().copied().find(|option| option.name() == name)
            }
        }
    };
}

option_names! {
    /// An option of a load, a check, `bulk_read` or `bulk_sniff`.
    OptionName {
        Format: "format", Data;
        Header: "header", Data;
        Delimiter: "delimiter", Data;
        TrailingDelimiter: "trailing_delimiter", Data;
        SkipBlankLines: "skip_blank_lines", Data;
        Comment: "comment", Data;
        LineEnd: "line_end", Data;
        Quote: "quote", Data;
        Escape: "escape", Data;
        LenientQuotes: "lenient_quotes", Data;
        Null: "null", Data;
        Default: "default", Data;
        Encoding: "encoding", Data;
        ForceNotNull: "force_not_null", Data;
        ForceNull: "force_null", Data;
        OnError: "on_error", Data;
        RejectLimit: "reject_limit", Data;
        LogVerbosity: "log_verbosity", Data;
        Skip: "skip", Data;
        Limit: "limit", Data;
        Compression: "compression", Data;
        MatchBy: "match_by", Data;
        RecordLength: "record_length", Data;
        LineEnds: "line_ends", Data;
        Units: "units", Data;
        Trim: "trim", Data;
        NullIf: "null_if", Data;
        EncodingErrors: "encoding_errors", Data;
        ShortRows: "short_rows", Data;
        LongRows: "long_rows", Data;
        // Data, except expressions, which have a name of their own (`ColumnOption`).
        Columns: "columns", Data;
        Program: "program", Code;
        Server: "server", Code;
        Where: "where", Code;
        // Needs TRUNCATE on the table.
        Truncate: "truncate", Code;
        Freeze: "freeze", Data;
        Analyze: "analyze", Data;
        Writer: "writer", Data;
        Workers: "workers", Data;
        Lock: "lock", Data;
        Indexes: "indexes", Data;
        // With "keep_new", needs DELETE on the table.
        OnDuplicate: "on_duplicate", Code;
        ConflictIndex: "conflict_index", Data;
        DuplicateLimit: "duplicate_limit", Data;
        Once: "once", Data;
        Force: "force", Data;
        Filter: "filter", Code;
        // Needs CREATE in the schema.
        Create: "create", Code;
        Query: "query", Code;
        LargeObject: "large_object", Code;
        EachFile: "each_file", Data;
        // Settings choose the schemas that functions are found in, and whether triggers fire.
        Settings: "settings", Code;
        Sample: "sample", Data;
        Table: "table", Data;
    }
}

option_names! {
    /// A member of an object among the `columns`.
    ColumnOption {
        Column: "column", Data;
        Source: "source", Data;
        Start: "start", Data;
        Length: "length", Data;
        Trim: "trim", Data;
        NullIf: "nullif", Data;
        BinaryType: "binary_type", Data;
        Name: "name", Data;
        Expr: "expr", Code;
        NullIfs: "null_if", Data;
        Decimal: "decimal", Data;
        Thousands: "thousands", Data;
        DateFormat: "date_format", Data;
        Key: "key", Data;
        Rest: "rest", Data;
    }
}

impl OptionName {
    /// Is the option one of loads? The others are options of `bulk_sniff` and `bulk_create`.
    pub fn is_of_load(self) -> bool {
        !matches!(self, OptionName::Sample | OptionName::Table)
    }
}
