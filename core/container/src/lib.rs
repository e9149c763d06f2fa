// SPDX-License-Identifier: MIT
//! The shape that the project's own files share: a header, then sections, each with a sealed header
//! and a payload with a checksum. A killed writer leaves whole sections; damage costs the sections
//! it is in.

mod format;
mod section;
mod storage;

pub use format::{FileHeader, Format, FILE_HEADER_BYTES};
pub use section::{checksum, payload_damage, scan, Damage, Loader, Payload, Sealed, Section};
pub use storage::Storage;
