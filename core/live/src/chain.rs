// SPDX-License-Identifier: MIT
//! Who waits for whom: locks that a thread holds, threads whose end is waited for.
//!
//! The thread at the end of a chain is the one to look at; a circle is a deadlock.

use crate::report::ThreadReport;

fn waits_for(threads: &[ThreadReport], tid: u32) -> Option<u32> {
    let thread = threads.iter().find(|thread| thread.tid == tid)?;
    thread.wait.as_ref()?.futex.as_ref()?.owner
}

/// From the thread on, each waiting for the next; a thread that comes twice closes a circle.
fn chain(threads: &[ThreadReport], tid: u32) -> Vec<u32> {
    let mut chain = vec![tid];
    while let Some(next) = waits_for(threads, chain[chain.len() - 1]) {
        chain.push(next);
        if is_circle(&chain) {
            break;
        }
    }
    chain
}

/// Puts threads that wait for another in front of those that don't, after `fixed` that stay where
/// they are: those next to the end of the longest chain first. Returns a line for people for each
/// chain of several, the longest first.
pub fn sort(threads: &mut [ThreadReport], fixed: usize) -> Vec<String> {
    let mut chains: Vec<Vec<u32>> = threads
        .iter()
        .map(|thread| chain(threads, thread.tid))
        .filter(|chain| chain.len() > 1)
        .collect();
    chains.sort_by_key(|chain| std::cmp::Reverse(chain.len()));
    let mut order: Vec<u32> = Vec::new();
    let mut told: Vec<String> = Vec::new();
    for chain in &chains {
        let is_new = |tid: &&u32| !order.contains(tid);
        let new: Vec<u32> = chain.iter().rev().filter(is_new).copied().collect();
        let begins = new.contains(&chain[0]);
        // The end itself waits for no thread; whoever waits for it tells more.
        let at_end = usize::from(new.first() == chain.last() && new.len() > 1);
        order.extend(&new[at_end..]);
        order.extend(&new[..at_end]);
        if begins && (chain.len() > 2 || is_circle(chain)) {
            told.push(line(threads, chain));
        }
    }
    let place = |thread: &ThreadReport| order.iter().position(|tid| *tid == thread.tid);
    threads[fixed..].sort_by_key(|thread| place(thread).unwrap_or(usize::MAX));
    told
}

fn is_circle(chain: &[u32]) -> bool {
    let (last, before) = chain.split_last().expect("it begins with a thread");
    before.contains(last)
}

fn line(threads: &[ThreadReport], chain: &[u32]) -> String {
    let last = chain[chain.len() - 1];
    let mut text = match is_circle(chain) {
        true => "deadlock: ".to_owned(),
        false => String::new(),
    };
    for (index, tid) in chain.iter().enumerate() {
        let link = match index {
            0 => "thread ",
            1 => " waits for thread ",
            _ => ", which waits for thread ",
        };
        text += &format!("{link}{tid}");
    }
    let at_end = threads.iter().find(|thread| thread.tid == last);
    if let Some(wait) = at_end.and_then(|thread| thread.wait.as_ref()) {
        if !is_circle(chain) {
            text += &format!(", which is in {}", wait.summary);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::futex::Futex;
    use crate::report::Class;
    use crate::wait::Wait;

    fn thread(tid: u32, owner: Option<u32>) -> ThreadReport {
        let futex = Futex {
            address: "0x1000".into(),
            name: "lock".into(),
            kind: "mutex",
            value: Some(2),
            expected: 2,
            owner,
            held: None,
            is_nameless: false,
        };
        let wait = Wait {
            summary: "clock_nanosleep".into(),
            syscall: None,
            args: Vec::new(),
            timeout: None,
            descriptors: Vec::new(),
            futex: Some(futex),
            kernel: String::new(),
            stack: Vec::new(),
        };
        ThreadReport {
            wait: Some(wait),
            ..ThreadReport::blank(tid, Class::LongWait)
        }
    }

    fn sorted(mut threads: Vec<ThreadReport>, fixed: usize) -> (Vec<u32>, Vec<String>) {
        let told = sort(&mut threads, fixed);
        (threads.iter().map(|thread| thread.tid).collect(), told)
    }

    #[test]
    fn the_thread_next_to_the_end_of_a_chain_comes_first() {
        let threads = vec![
            thread(1, Some(4)),
            thread(2, None),
            thread(3, None),
            thread(4, Some(3)),
        ];
        let (order, told) = sorted(threads, 0);
        assert_eq!(order, [4, 1, 3, 2]);
        let chain =
            "thread 1 waits for thread 4, which waits for thread 3, which is in clock_nanosleep";
        assert_eq!(told, [chain]);
    }

    #[test]
    fn a_circle_is_a_deadlock() {
        let (order, told) = sorted(
            vec![thread(9, None), thread(1, Some(2)), thread(2, Some(1))],
            1,
        );
        assert_eq!(order[0], 9);
        let circle = "deadlock: thread 1 waits for thread 2, which waits for thread 1";
        assert_eq!(told, [circle]);
    }

    #[test]
    fn a_thread_may_wait_for_itself() {
        let (_, told) = sorted(vec![thread(1, Some(1))], 0);
        assert_eq!(told, ["deadlock: thread 1 waits for thread 1"]);
    }

    #[test]
    fn one_that_waits_for_another_is_told_by_its_own_line() {
        let (order, told) = sorted(vec![thread(1, None), thread(2, Some(1))], 0);
        assert_eq!(order, [2, 1]);
        assert!(told.is_empty());
    }
}
