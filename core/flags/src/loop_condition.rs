// SPDX-License-Identifier: MIT
//! What would end a loop, as the program tests it: `p->n >= p->want or p->closed != 0x0`.
//!
//! In: the tests of the branches out of the loop, and the words that are told. Out: a
//! [`LoopCondition`]. Blind spots: what the loop would test only behind such a branch; a test of
//! words that are not told.

use crate::report::{Facts, Flag, FlagKind, Group, Joined, LoopCondition, Part};

/// `flags`: the told ones by rank, each with the threads that would write it. `None`: there is
/// none.
pub fn loop_condition(
    facts: &Facts,
    groups: &[Group],
    flags: &[(&Flag, Vec<u32>)],
) -> Option<LoopCondition> {
    let part = |(text, operator, tests_more), of: &[&(&Flag, Vec<u32>)]| {
        let (first, _) = of.first()?;
        let mut owed: Vec<u32> = of.iter().flat_map(|(_, owed)| owed).copied().collect();
        owed.sort_unstable();
        owed.dedup();
        Some(Part {
            text,
            flag: first.rank,
            word: first.name.clone(),
            operator,
            value: first.value.spin,
            standing: first.standing,
            owed,
            tests_more,
        })
    };
    let mut parts: Vec<Part> = Vec::new();
    // Of a virtual machine's tests most are its own; a flag has the one that ended a copy.
    let is_programs = facts.machine.is_none();
    let groups = groups.iter().filter(|_| is_programs);
    for test in groups.flat_map(|group| &group.tests) {
        let is_of = |flag: &&(&Flag, Vec<u32>)| {
            flag.0.kind != FlagKind::Syscall
                && flag
                    .0
                    .address
                    .spin
                    .is_some_and(|at| test.words.contains(&at))
        };
        let of: Vec<_> = flags.iter().filter(is_of).collect();
        let facts = (test.text.clone(), test.operator.clone(), test.tests_more);
        parts.extend(part(facts, &of).filter(|new| parts.iter().all(|old| old.text != new.text)));
    }
    // What no test is known of has a text of its own.
    for flag in flags {
        let is_known = |part: &Part| part.flag == flag.0.rank;
        let is_call = flag.0.kind == FlagKind::Syscall;
        if (is_call || flag.0.rank == 1) && !parts.iter().any(is_known) {
            let text = match is_call {
                true => flag.0.exit_when.clone(),
                false => format!("{}: {}", flag.0.name, flag.0.exit_when),
            };
            parts.extend(part((text, None, false), &[flag]));
        }
    }
    parts.sort_by_key(|part| part.flag);
    let texts: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
    let text = texts.join(" or ");
    (!parts.is_empty()).then_some(LoopCondition {
        text,
        parts,
        joined: Joined::Or,
    })
}

#[cfg(test)]
mod tests {
    use flagfinder_code::Code;

    use super::*;
    use crate::report::Test;

    fn word(rank: u32, address: u64) -> Flag {
        let mut flag = Flag::new(FlagKind::Heap, format!("word {rank}"));
        (flag.rank, flag.address.spin, flag.value.spin) = (rank, Some(address), Some(4));
        flag.exit_when = "value != 0x0".into();
        flag
    }

    fn group(tests: &[(&str, &[u64])]) -> Group {
        let test = |(text, words): &(&str, &[u64])| Test {
            text: text.to_string(),
            operator: Some("!=".into()),
            words: words.to_vec(),
            tests_more: false,
        };
        Group {
            branch: Code::default(),
            exit_when: None,
            flags: Vec::new(),
            tests: tests.iter().map(test).collect(),
        }
    }

    #[test]
    fn each_test_of_a_told_word_is_a_part_and_the_likeliest_comes_first() {
        let groups = [
            group(&[("closed != 0x0", &[0x10]), ("n >= want", &[0x20, 0x28])]),
            group(&[("closed != 0x0", &[0x10]), ("other == 0x1", &[0x99])]),
        ];
        let (n, closed, want) = (word(1, 0x20), word(2, 0x10), word(3, 0x28));
        let flags = [(&n, vec![7]), (&closed, vec![]), (&want, vec![7, 8])];
        let facts = Facts::default();
        let told = loop_condition(&facts, &groups, &flags).expect("a condition");
        assert_eq!(told.text, "n >= want or closed != 0x0");
        let first = &told.parts[0];
        assert_eq!((first.flag, first.value), (1, Some(4)));
        assert_eq!(first.owed, [7, 8]);
        assert_eq!(told.parts.len(), 2);
    }

    #[test]
    fn a_call_is_a_part_and_so_is_the_first_word_without_a_test() {
        let mut call = Flag::new(FlagKind::Syscall, "read on fd 3 returns 0");
        (call.rank, call.exit_when) = (2, "read on fd 3 answers differently".into());
        let (first, third) = (word(1, 0x10), word(3, 0x20));
        let flags = [(&first, vec![]), (&call, vec![]), (&third, vec![])];
        let facts = Facts::default();
        let told = loop_condition(&facts, &[], &flags).expect("a condition");
        let text = "word 1: value != 0x0 or read on fd 3 answers differently";
        assert_eq!(told.text, text);
        assert!(loop_condition(&facts, &[], &[]).is_none());
    }
}
