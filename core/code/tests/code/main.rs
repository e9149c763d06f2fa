// SPDX-License-Identifier: MIT
//! Code and its names: made up, and of compiled programs.

mod codemap;
mod graph;
mod names;
