//! OIDs of the types in pg_type.dat that have a decoder. They never change.

pub(super) const BOOL: u32 = 16;
pub(super) const BYTEA: u32 = 17;
pub(super) const CHAR: u32 = 18;
pub(super) const INT8: u32 = 20;
pub(super) const INT2: u32 = 21;
pub(super) const INT4: u32 = 23;
pub(super) const TEXT: u32 = 25;
pub(super) const OID: u32 = 26;
pub(super) const JSON: u32 = 114;
pub(super) const FLOAT4: u32 = 700;
pub(super) const FLOAT8: u32 = 701;
pub(super) const INET: u32 = 869;
pub(super) const BPCHAR: u32 = 1042;
pub(super) const VARCHAR: u32 = 1043;
pub(super) const DATE: u32 = 1082;
pub(super) const TIME: u32 = 1083;
pub(super) const TIMESTAMP: u32 = 1114;
pub(super) const TIMESTAMPTZ: u32 = 1184;
pub(super) const INTERVAL: u32 = 1186;
pub(super) const BIT: u32 = 1560;
pub(super) const VARBIT: u32 = 1562;
pub(super) const NUMERIC: u32 = 1700;
pub(super) const UUID: u32 = 2950;
pub(super) const JSONB: u32 = 3802;

/// Array types and their element types.
pub(super) const ARRAYS: &[(u32, u32)] = &[
    (1000, BOOL),
    (1005, INT2),
    (1007, INT4),
    (1009, TEXT),
    (1015, VARCHAR),
    (1016, INT8),
    (1022, FLOAT8),
    (1115, TIMESTAMP),
    (1182, DATE),
    (1185, TIMESTAMPTZ),
    (1231, NUMERIC),
    (2951, UUID),
];
pub(super) const INT4RANGE: u32 = 3904;
pub(super) const INT8RANGE: u32 = 3926;
