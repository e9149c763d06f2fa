// SPDX-License-Identifier: MIT
//! Numbers of /proc/PID/stat.

/// One of them, counted from 1 as proc(5) does. The name, which may hold anything, is passed over.
pub fn stat_field(stat: &str, number: usize) -> Option<u64> {
    const FIRST_BEHIND_NAME: usize = 3;
    let behind_name = stat.rsplit_once(')')?.1;
    let mut fields = behind_name.split_whitespace();
    fields.nth(number - FIRST_BEHIND_NAME)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_fields() {
        assert_eq!(stat_field("7 (a) R 1 (b) S 42 9", 4), Some(42));
        assert_eq!(stat_field("7 (a) S 42", 5), None);
    }
}
