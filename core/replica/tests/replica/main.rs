// SPDX-License-Identifier: MIT
//! Copies of threads, and core files, of living programs.

mod patient;
mod software;
mod written_core;
