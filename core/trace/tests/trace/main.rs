// SPDX-License-Identifier: MIT
//! Traces that are written and read: as they should be, and damaged.

mod damage;
mod roundtrip;
