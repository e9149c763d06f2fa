// SPDX-License-Identifier: MIT
//! Numbers in sentences.

/// `once`, `7 times`.
pub fn times(count: u64) -> String {
    match count {
        1 => "once".into(),
        _ => format!("{count} times"),
    }
}
