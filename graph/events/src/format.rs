// SPDX-License-Identifier: MIT
//! What kind of file an event file is.

use flagfinder_container::Format;

/// What the file header says of an event file, and which versions are read.
pub const FORMAT: Format = Format {
    magic: *b"FFEVENT\n",
    version: 7,
    minimum_reader: 7,
    oldest: 1,
    name: "an event file",
    made_by: "flagfinder events record",
    still_works: "Other event files are unaffected.",
};
