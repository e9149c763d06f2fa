// SPDX-License-Identifier: MIT
//! What kind of file an event file is.

use flagfinder_container::Format;

pub const FORMAT: Format = Format {
    magic: *b"FFEVENT\n",
    version: 4,
    minimum_reader: 4,
    oldest: 1,
    name: "an event file",
    made_by: "flagfinder events record",
    still_works: "Other event files are unaffected.",
};
