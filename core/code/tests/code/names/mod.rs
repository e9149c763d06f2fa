// SPDX-License-Identifier: MIT
//! Names against compiled programs: running ones, and ones that a trace recorded.

mod live;
mod support;
mod trace;
mod variables;
