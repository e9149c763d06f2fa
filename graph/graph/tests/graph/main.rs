// SPDX-License-Identifier: MIT
//! What graphs of recordings tell, most of them made up.

mod awaits;
mod baselines;
mod bottleneck;
mod earlier;
mod hangs;
mod hosts;
mod hot;
mod inversions;
mod items;
mod left;
mod lives;
mod made_up;
mod owners;
mod polled;
mod polling;
mod timeouts;
mod unusual;
