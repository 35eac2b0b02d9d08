//! Bytes of files: sources, compression, patterns of names, encodings, and chunks in order.
//!
//! ```text
//!   path, program, client, value ─► source ─► coding: compression, UTF-16, JSON ─► encoding ─► stream: records
//!   several processes: chunk_order gives out chunks of a file; ring shares the bytes of a compressed one
//! ```
//!
//! The tricky point: reads may block, and an interrupt must still end the statement. All reads go through [`source`].

pub mod chunk;
pub mod chunk_order;
pub mod client;
pub mod coding;
pub mod compression;
pub mod decompressor;
pub mod digest;
pub mod directory;
pub mod encoding;
pub mod file_figures;
pub mod file_identity;
pub mod files;
pub mod lz4_frames;
pub mod pattern;
pub mod ring;
pub mod source;
pub mod stream;
pub mod zstd_frames;
