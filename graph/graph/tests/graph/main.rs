// SPDX-License-Identifier: MIT
//! What graphs of recordings tell, most of them made up.

mod awaits;
mod baselines;
mod earlier;
mod hosts;
mod hot;
mod inversions;
mod items;
mod lives;
mod made_up;
mod polled;
mod polling;
mod timeouts;
