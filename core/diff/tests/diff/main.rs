// SPDX-License-Identifier: MIT
//! All in one program: the alignment is generic over its input, and each program compiles it anew.

mod cycles;
mod disturbances;
mod images;
mod partings;
mod times;
mod toy;
mod trace_files;
mod waiting;
