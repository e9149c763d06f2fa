// SPDX-License-Identifier: MIT
//! Finding the loop that holds the tail of a window.
//!
//! A loop shows as a recurring (instruction, stack pointer): of those with the highest
//! stack pointer (the outermost frame that repeats) the rarest, which then happens once
//! an iteration. Calls and returns are not counted: JITs and signals unbalance them.

use flagfinder_machine::Window;
use rustc_hash::FxHashMap;

use crate::interpreter::interprets;
use crate::spin_loop::SpinLoop;

/// Fewer recurrences are no loop.
const LEAST: usize = 3;
/// Most iterations that are looked at.
const ITERATIONS: usize = 96;
/// Iterations of a loop around another one that are compared.
const ROUNDS: usize = 12;
/// The rounds of one loop differ by less than this in length.
const UNEVEN: u32 = 4;
/// A gap that is so many times the middle one is no iteration, unless it comes regularly.
const FAR: u32 = 24;
/// It comes regularly if one gap of so many is as long: an interpreter that goes round for each
/// piece of its program does most in one of them.
const REGULAR: usize = 12;

/// The loop at the window's end; `None`: nothing repeats. `preferred` are pcs of a loop
/// that is known from elsewhere (the diff): where one of them recurs, it is the marker.
pub fn find(window: &Window, preferred: &[u64]) -> Option<SpinLoop> {
    let by_preference = preferred.iter().find_map(|&pc| {
        let steps: Vec<u32> = (0..window.len()).filter(|&s| window.pc(s) == pc).collect();
        let last = *steps.last()?;
        let rsp = window.rsp(last);
        let same: Vec<u32> = steps
            .iter()
            .copied()
            .filter(|&s| window.rsp(s) == rsp)
            .collect();
        (same.len() >= LEAST).then(|| (window.code_index(last), same))
    });
    let found = || by_marker(window, true).or_else(|| by_marker(window, false));
    let Some((marker, steps)) = by_preference else {
        return found();
    };
    let around = found().filter(|around| goes_round(window, around, &steps));
    let around = around.or_else(|| instead_of(window, &steps));
    Some(around.unwrap_or_else(|| build(window, marker, steps)))
}

/// The interpreter's loop in which the marker's frame now repeats without passing the marker. All
/// loops of a program are one loop for code that only knows the interpreter, and its head may be a
/// part that is seldom used.
fn instead_of(window: &Window, marker: &[u32]) -> Option<SpinLoop> {
    let last = *marker.last()?;
    let longest = marker.windows(2).map(|pair| pair[1] - pair[0]).max()?;
    if window.len() - last <= longest.saturating_mul(UNEVEN) {
        return None; // a loop within its round
    }
    let frame = window.rsp(last);
    let mut seen: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for step in (last..window.len()).filter(|&step| window.rsp(step) == frame) {
        seen.entry(window.code_index(step)).or_default().push(step);
    }
    let regular = seen.into_iter().filter_map(|(code, steps)| {
        let tail = steady_tail(window, steps)?;
        let last = &tail[tail.len().checked_sub(ROUNDS + 1)?..];
        let mut gaps: Vec<u32> = last.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps.push(window.len() - last[ROUNDS]);
        gaps.sort_unstable();
        let usual = gaps[ROUNDS / 2];
        (gaps[ROUNDS] <= usual * UNEVEN).then_some((usual, last[ROUNDS], code, tail))
    });
    let (_, _, code, tail) = regular.max_by_key(|(usual, last, code, _)| (*usual, *last, *code))?;
    Some(build(window, code, tail)).filter(|spin| interprets(window, spin))
}

/// Does the loop that begins at the steps of `inner` end again and again, once in each iteration of
/// a loop `around` it? Then the thread does not wait in the inner loop alone.
fn goes_round(window: &Window, around: &SpinLoop, inner: &[u32]) -> bool {
    let last = &around.starts[around.starts.len().saturating_sub(ROUNDS + 1)..];
    let (Some(first), Some(end)) = (last.first(), last.last()) else {
        return false;
    };
    let within = |from: u32, to: u32| {
        let at = |start: u32| inner.partition_point(|&other| other < start);
        at(to) - at(from)
    };
    let rounds = last.windows(2).map(|pair| within(pair[0], pair[1]));
    let most = rounds.clone().max().unwrap_or(0);
    let is_outside = window.rsp(around.starts[0]) >= window.rsp(inner[0]);
    is_outside
        && last.len() > LEAST
        && rounds.min().is_some_and(|least| least > 0)
        && within(*first, *end) > last.len() - 1
        && within(*end, window.len()) <= 2 * most
}

fn by_marker(window: &Window, with_stack: bool) -> Option<SpinLoop> {
    let mut seen: FxHashMap<(u32, u64), Vec<u32>> = FxHashMap::default();
    for step in 0..window.len() {
        let rsp = if with_stack { window.rsp(step) } else { 0 };
        if rsp != 0 || !with_stack {
            seen.entry((window.code_index(step), rsp))
                .or_default()
                .push(step);
        }
    }
    let mut candidates: Vec<_> = seen
        .into_iter()
        .filter(|(_, steps)| steps.len() >= LEAST)
        .collect();
    // The highest frame comes first, in it the rarest, then the last in the iteration.
    candidates.sort_by_key(|((code, rsp), steps)| {
        (
            std::cmp::Reverse(*rsp),
            steps.len(),
            std::cmp::Reverse(steps.last().copied()),
            *code,
        )
    });
    candidates.into_iter().find_map(|((code, _), steps)| {
        let tail = steady_tail(window, steps)?;
        Some(build(window, code, tail))
    })
}

/// The recurrences at the end of the window that are not far apart, if they reach its
/// very end.
fn steady_tail(window: &Window, steps: Vec<u32>) -> Option<Vec<u32>> {
    let mut gaps: Vec<u32> = steps.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_unstable();
    let far = gaps.get(gaps.len() / 2)?.saturating_mul(FAR).max(64);
    let long = gaps.len() / REGULAR;
    let regular = gaps[gaps.len() - long.max(1)];
    let far = match long >= LEAST {
        true => far.max(regular.saturating_mul(UNEVEN)),
        false => far,
    };
    let last = *steps.last()?;
    if window.len() - last > far {
        return None;
    }
    let mut first = steps.len() - 1;
    while first > 0 && steps[first] - steps[first - 1] <= far {
        first -= 1;
    }
    let tail = steps[first..].to_vec();
    (tail.len() >= LEAST).then_some(tail)
}

fn build(window: &Window, marker: u32, mut starts: Vec<u32>) -> SpinLoop {
    let iterations = starts.len() as u64 - 1;
    let skip = starts.len().saturating_sub(ITERATIONS + 1);
    starts.drain(..skip);
    SpinLoop {
        marker,
        starts,
        iterations,
        end: window.len(),
    }
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::evaluator::Access;
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    const AROUND: u64 = 0x1000;
    const INNER: u64 = 0x2000;

    /// What the preference for the inner loop makes of rounds of so many inner ones each.
    fn marker(rounds: &[usize]) -> Option<u64> {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        for &inner in rounds {
            for pc in std::iter::once(AROUND).chain(std::iter::repeat_n(INNER, inner)) {
                let mut decoder = Decoder::with_ip(64, &[0x90], pc, DecoderOptions::NONE);
                let index = window.intern(&decoder.decode(), 0, &mut factory);
                window.push(index, Value::of(0x7000));
            }
        }
        find(&window, &[INNER]).map(|spin| window.code_at(spin.marker).pc())
    }

    /// jmp rax
    const JUMP: &[u8] = &[0xff, 0xe0];

    /// What the preference for `AROUND` makes of these instructions of one frame.
    fn marker_of(code: &[u64], bytes: &[u8]) -> Option<u64> {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        for &pc in code {
            let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
            let index = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(index, Value::of(0x7000));
        }
        find(&window, &[AROUND]).map(|spin| window.code_at(spin.marker).pc())
    }

    #[test]
    fn a_loop_that_its_frame_has_left_for_another_does_not_hold_it() {
        let mut code = [AROUND, 0x3000, 0x3001, 0x3000, 0x3002].repeat(3);
        assert_eq!(marker_of(&code, JUMP), Some(AROUND));
        let mut inner = code.clone();
        inner.extend([INNER].repeat(13));
        assert_eq!(
            marker_of(&inner, JUMP),
            Some(AROUND),
            "a loop within its round"
        );
        code.extend([0x3000, 0x3001, 0x3000, INNER].repeat(20));
        assert_eq!(marker_of(&code, JUMP), Some(INNER));
        assert_eq!(marker_of(&code, &[0x90]), Some(AROUND), "no interpreter");
        // It does pass the marker.
        code.push(AROUND);
        assert_eq!(marker_of(&code, JUMP), Some(AROUND));
    }

    /// Iterations of a loop that calls a short routine four times and then, if `at` says so of the
    /// round, a long one.
    fn pieces(at: impl Fn(u64) -> bool) -> Option<u64> {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        for round in 0..20 {
            for piece in 0..5 {
                let steps = if piece == 4 && at(round) { 400 } else { 2 };
                let routine = std::iter::repeat_n((INNER, 0x6000), steps);
                for (pc, rsp) in std::iter::once((AROUND, 0x7000)).chain(routine) {
                    let mut decoder = Decoder::with_ip(64, &[0x90], pc, DecoderOptions::NONE);
                    let index = window.intern(&decoder.decode(), 0, &mut factory);
                    window.push(index, Value::of(rsp));
                }
            }
        }
        find(&window, &[]).map(|spin| spin.iterations)
    }

    #[test]
    fn a_long_piece_that_comes_in_each_round_is_a_part_of_the_loop() {
        assert_eq!(pieces(|_| true), Some(99));
        assert_eq!(pieces(|round| round == 10), Some(44), "it comes once");
    }

    #[test]
    fn the_loop_that_was_named_holds_the_thread() {
        assert_eq!(marker(&[4, 4, 4, 4, 4, 4, 40]), Some(INNER));
        assert_eq!(marker(&[60]), Some(INNER));
    }

    #[test]
    fn a_loop_that_is_left_in_each_round_of_another_does_not() {
        assert_eq!(marker(&[4, 4, 4, 5, 4, 4, 2]), Some(AROUND));
        assert_eq!(marker(&[1, 1, 1, 1, 1, 1]), Some(INNER), "the same loop");
    }

    /// Iterations left of so many of a failing `lock cmpxchg`, if an `xchg` stores something else
    /// in one of them.
    fn left(iterations: u32, marks_in: &[u32]) -> usize {
        const WORD: u64 = 0x5000;
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        let mut starts = Vec::new();
        for number in 0..iterations {
            starts.push(window.len());
            let tries = (AROUND, &[0xf0, 0x0f, 0xb1, 0x13][..], 2, 2);
            let marks = (INNER, &[0x87, 0x03][..], 1, 2);
            let marks = marks_in.contains(&number).then_some(marks);
            for (pc, code, old, new) in std::iter::once(tries).chain(marks) {
                let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
                let index = window.intern(&decoder.decode(), 0, &mut factory);
                window.push(index, Value::of(0x7000));
                for (write, value) in [(false, old), (true, new)] {
                    window.push_access(Access {
                        address: Some(WORD),
                        bytes: 4,
                        write,
                        value: Value::of(value),
                    });
                }
            }
        }
        let spin = SpinLoop {
            marker: 0,
            iterations: u64::from(iterations),
            end: window.len(),
            starts,
        };
        spin.without_first_marks(&window).starts.len()
    }

    #[test]
    fn a_thread_that_marked_a_lock_once_does_not_write_it_again() {
        assert_eq!(left(20, &[0]), 19);
        assert_eq!(left(20, &[0, 9]), 20, "now and then");
        assert_eq!(left(20, &[18]), 20, "just now");
        assert_eq!(left(20, &[]), 20);
    }
}
