// SPDX-License-Identifier: MIT
//! Is the loop an interpreter's (or a virtual machine's)? Then the words it reads are the
//! interpreter's: objects, caches, its own state. The machine code does not say which of them is
//! the program's variable.
//!
//! Such a loop goes from one piece of a program to the next by jumps to addresses it loads, several
//! times an iteration and to different places, or calls their routines through one pointer in turn.
//! A jump through a linkage table always goes to one place and does not count.
//!
//! Blind spot: code that a JIT compiler made jumps like any other.

use std::collections::BTreeSet;

use flagfinder_machine::{Reader, Window};
use iced_x86::{FlowControl, Register};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::dependence::{Dependence, Input};
use crate::spin_loop::SpinLoop;
use crate::way::Pointer;

/// A loop that jumps to fewer different places an iteration has a `switch` or two.
const JUMPS: usize = 3;
/// The same if the jump itself loads its target from data that also say where the next target lies:
/// a program of one or two pieces.
const PIECES: usize = 1;
/// One instruction that calls fewer different routines makes callbacks.
const CALLS: usize = 6;

/// Largest part of a frame that holds the operands of an interpreter which was made as the program
/// ran: it pushes and pops operands from piece to piece.
const OPERANDS: u64 = 256;
/// Jumps and calls from which the interpreted program is read.
const DISPATCHES: usize = 2000;
/// Most instructions between a load and the jump that depends on it.
const BETWEEN: usize = 8;
/// Largest size of an instruction of the interpreted program, with its operands.
const PIECE: u64 = 32;
/// Most pointers from an object to a word of its own: one to its slots. What lies behind more is
/// held by other objects (a scope, a function).
const OF_OBJECT: u32 = 2;
/// Largest distance of the program's constants from its instructions.
const FUNCTION: u64 = 4096;

pub fn interprets(window: &Window, spin: &SpinLoop) -> bool {
    !dispatches(window, spin, 1, JUMPS).is_empty()
}

/// The steps by which the loop goes from piece to piece; empty: it is no interpreter's. Frames
/// whose stack pointers differ by less than `frame` count as one. `jumps`: the loop has to jump to
/// so many different places.
fn dispatches(window: &Window, spin: &SpinLoop, frame: u64, jumps: usize) -> Vec<u32> {
    let rounds = spin.starts.len() - 1;
    let top = window.rsp(spin.first_step());
    // Jumps by the frame they are made in; calls also by the instruction. (Several iterations of
    // the loop that was found may be one of the interpreted program's.)
    let mut ways: FxHashMap<(u64, u64), (FxHashSet<u64>, Vec<u32>)> = FxHashMap::default();
    let mut count = 0;
    for step in spin.first_step()..spin.end {
        let instruction = &window.code(step).instruction;
        let site = match instruction.flow_control() {
            FlowControl::IndirectBranch => 0,
            FlowControl::IndirectCall => instruction.ip(),
            _ => continue,
        };
        let fixed = matches!(instruction.memory_base(), Register::RIP | Register::EIP);
        if let Some(target) = window.next_pc(step).filter(|_| !fixed) {
            let level = top.wrapping_sub(window.rsp(step)) / frame;
            let (targets, steps) = ways.entry((level, site)).or_default();
            targets.insert(target);
            steps.push(step);
            count += 1;
        }
    }
    if count < rounds {
        return Vec::new();
    }
    let is_many = |site: u64, targets: usize| targets >= if site == 0 { jumps } else { CALLS };
    let mut groups = ways.iter();
    if !groups.any(|((_, site), (targets, _))| is_many(*site, targets.len())) {
        return Vec::new();
    }
    // An interpreter that calls its own functions runs few pieces at other depths.
    let all = ways.into_iter().filter(|((_, site), (targets, _))| {
        *site == 0 && frame > 1 || is_many(*site, targets.len())
    });
    let mut steps: Vec<u32> = all.flat_map(|(_, (_, steps))| steps).collect();
    steps.sort_unstable();
    steps
}

/// The program that an interpreter runs, as far as the interpreter's reads show it.
#[derive(Clone, Debug, Default)]
pub struct Interpreted {
    /// Addresses of words that chose a piece, in order.
    words: Vec<u64>,
    /// Instructions that read them.
    pub readers: Vec<Reader>,
    /// By address of a word that decides an exit: the pointers by which the loop comes to it.
    pub(crate) ways: FxHashMap<u64, Vec<Pointer>>,
}

impl Interpreted {
    /// Of the loop. `is_made`: its code was made as the program ran. `is_data`: a word lies neither
    /// in a module nor on a stack.
    pub fn of(
        window: &Window,
        dependence: &Dependence,
        spin: &SpinLoop,
        is_made: bool,
        is_data: &impl Fn(u64) -> bool,
    ) -> Option<Interpreted> {
        let frame = if is_made { OPERANDS } else { 1 };
        let mut steps = dispatches(window, spin, frame, JUMPS);
        if steps.is_empty() {
            steps = dispatches(window, spin, frame, PIECES);
            steps.retain(|&step| is_piece(window, step, is_data));
            let leads_on = |&step: &u32| leads_on(window, dependence, step);
            if !goes_on(window, &steps) && !steps.iter().any(leads_on) {
                return None;
            }
        }
        let mut words = Vec::new();
        let mut readers = FxHashSet::default();
        for &step in steps.iter().rev().take(DISPATCHES) {
            chosen_by(window, dependence, step, &mut words, &mut readers);
        }
        words.sort_unstable();
        words.dedup();
        let readers = readers.into_iter().collect();
        Some(Interpreted {
            words,
            readers,
            ..Interpreted::default()
        })
    }

    /// Does the word lie with the program's instructions, as its constants may?
    pub fn is_near(&self, address: u64) -> bool {
        self.is_within(address, FUNCTION)
    }

    /// Does the word lie with those that choose what is done next? Then it is an operand of the
    /// program's code, and no variable.
    pub fn holds(&self, address: u64) -> bool {
        self.is_within(address, PIECE)
    }

    /// How many pointers, one behind the other, lead to the word that decides an exit.
    pub fn hops(&self, address: u64) -> Option<u32> {
        let way = self.ways.get(&address)?;
        way.iter().map(|pointer| pointer.hops).max()
    }

    /// Words that decide exits and lie in an object to which both a variable and a constant of the
    /// program lead. The two share it until one of them is written: the writer makes a copy first.
    /// `word` reads 8 bytes.
    pub fn shared(&self, word: impl Fn(u64) -> Option<u64>) -> FxHashSet<u64> {
        let is_by_variable =
            |way: &[Pointer]| !way.is_empty() && !way.iter().any(|p| self.is_near(p.at));
        let by_variable = self.ways.iter().filter(|(_, way)| is_by_variable(way));
        let by_variable: Vec<_> = by_variable.collect();
        if by_variable.is_empty() {
            return FxHashSet::default();
        }
        let places: BTreeSet<u64> = self
            .ways
            .keys()
            .flat_map(|at| self.constants(*at))
            .collect();
        let constants: FxHashSet<u64> = places.into_iter().filter_map(word).collect();
        let leads = |p: &Pointer| p.hops <= OF_OBJECT && constants.contains(&p.object);
        let is_shared = |way: &[Pointer]| way.iter().any(leads);
        let shared = by_variable.into_iter().filter(|(_, way)| is_shared(way));
        shared.map(|(address, _)| *address).collect()
    }

    /// Places from the program's instructions to a constant of theirs at `address`, if one is
    /// there. Beyond these other objects may lie.
    fn constants(&self, address: u64) -> impl Iterator<Item = u64> {
        let near = |word: &&u64| word.abs_diff(address) < FUNCTION;
        let mut near = self.words.iter().filter(near);
        let first = near.next().copied();
        let last = near.next_back().copied().or(first);
        let ends = first.zip(last);
        let ends = ends.map(|(first, last)| (first.min(address) & !7, last.max(address)));
        let (first, last) = ends.unwrap_or((1, 0));
        (first..=last).step_by(8)
    }

    fn is_within(&self, address: u64, distance: u64) -> bool {
        let next = self.words.partition_point(|&word| word < address);
        let around = self.words[next.saturating_sub(1)..].iter().take(2);
        around
            .copied()
            .any(|word| word.abs_diff(address) < distance)
    }
}

/// Does the step jump to an address that it loads from data itself?
fn is_piece(window: &Window, step: u32, is_data: &impl Fn(u64) -> bool) -> bool {
    let is_jump = window.code(step).instruction.flow_control() == FlowControl::IndirectBranch;
    is_jump && read_at(window, step).is_some_and(is_data)
}

/// Do jumps by the same register and displacement read addresses that lie close together, as pieces
/// of a program do? (Tail calls through the fields of one object have different displacements.)
fn goes_on(window: &Window, steps: &[u32]) -> bool {
    let mut named: FxHashMap<(Option<u8>, u64), Vec<u64>> = FxHashMap::default();
    for &step in steps {
        let memory = window.code(step).memory.first();
        if let Some((memory, word)) = memory.zip(read_at(window, step)) {
            let words = named.entry((memory.base, memory.displacement));
            words.or_default().push(word);
        }
    }
    named.into_values().any(|mut words| {
        words.sort_unstable();
        words.dedup();
        words.windows(2).any(|pair| pair[1] - pair[0] <= PIECE)
    })
}

/// Does a word beside the piece say where the next piece is?
fn leads_on(window: &Window, dependence: &Dependence, step: u32) -> bool {
    let inputs = dependence.inputs(step).iter();
    let mut makers = inputs.filter(|edge| edge.input == Input::Address);
    let word = read_at(window, step);
    makers.any(|edge| {
        let number = load(window, dependence, edge.from);
        let distance = number.and_then(|number| read_at(window, number)).zip(word);
        distance.is_some_and(|(number, word)| number != word && number.abs_diff(word) < 2 * PIECE)
    })
}

/// Adds the place of the word from which the step's target comes, and the number by which it was
/// looked up in a table, if it was. The last of these is the program's: its reader is added.
fn chosen_by(
    window: &Window,
    dependence: &Dependence,
    step: u32,
    words: &mut Vec<u64>,
    readers: &mut FxHashSet<Reader>,
) {
    let Some(target) = load(window, dependence, step) else {
        return;
    };
    words.extend(read_at(window, target));
    let index = window.code(target).memory.iter().find_map(|m| m.index);
    let Some(index) = index else {
        readers.extend(Reader::of(window.code(target)));
        return;
    };
    let inputs = dependence.inputs(target).iter();
    let mut makers = inputs.filter(|edge| edge.input == Input::Address);
    let is_index = |from: u32| window.results(from).iter().any(|(r, _)| *r == index);
    let maker = makers.find(|edge| is_index(edge.from));
    let number = maker.and_then(|edge| load(window, dependence, edge.from));
    words.extend(number.and_then(|number| read_at(window, number)));
    readers.extend(number.and_then(|number| Reader::of(window.code(number))));
}

/// The step, or the one that its value comes from, that reads memory.
fn load(window: &Window, dependence: &Dependence, step: u32) -> Option<u32> {
    let mut work = vec![step];
    for _ in 0..BETWEEN {
        let step = work.pop()?;
        if read_at(window, step).is_some() {
            return Some(step);
        }
        let inputs = dependence.inputs(step).iter();
        let values = inputs.filter(|edge| edge.input == Input::Value);
        work.extend(values.map(|edge| edge.from));
    }
    None
}

fn read_at(window: &Window, step: u32) -> Option<u64> {
    let mut reads = window.accesses(step).iter().filter(|access| !access.write);
    reads.next()?.address
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::evaluator::Access;
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    const NOP: &[u8] = &[0x90];
    /// jmp rax
    const DISPATCH: &[u8] = &[0xff, 0xe0];
    /// jmp [rip+0x100]
    const LINKAGE: &[u8] = &[0xff, 0x25, 0, 1, 0, 0];
    /// call [rax]
    const CALL: &[u8] = &[0xff, 0x10];

    /// Four iterations that begin with a nop and go through the code at these addresses.
    fn repeats(lap: &[(u64, &[u8])]) -> bool {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        let mut starts = Vec::new();
        for _ in 0..4 {
            starts.push(window.len());
            for &(address, code) in [(0x1000, NOP)].iter().chain(lap) {
                let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
                let index = window.intern(&decoder.decode(), 0, &mut factory);
                window.push(index, Value::of(0x7000));
            }
        }
        let end = window.len();
        let spin = SpinLoop {
            marker: 0,
            starts,
            iterations: 3,
            end,
        };
        interprets(&window, &spin)
    }

    #[test]
    fn threaded_code_is_an_interpreter() {
        let lap = [0x2000, 0x3000, 0x4000].map(|address| (address, DISPATCH));
        assert!(repeats(&lap));
        assert!(!repeats(&lap[..2]), "a switch or two");
    }

    #[test]
    fn routines_called_in_turn_are_too() {
        let routine = |number: u64| [(0x2000, CALL), (0x5000 + number * 0x100, NOP)];
        let lap: Vec<_> = (0..7).flat_map(routine).collect();
        assert!(repeats(&lap));
        assert!(!repeats(&lap[..8]), "callbacks");
    }

    /// Is a loop with one jump to what `lap` finds at these addresses an interpreter's?
    fn is_program(lap: &[(&[u8], Option<u64>)], is_data: bool) -> bool {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        let mut starts = Vec::new();
        for _ in 0..4 {
            starts.push(window.len());
            for (number, &(code, address)) in lap.iter().enumerate() {
                let pc = 0x1000 + 0x10 * number as u64;
                let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
                let index = window.intern(&decoder.decode(), 0, &mut factory);
                window.push(index, Value::of(0x7000));
                if address.is_some() {
                    window.push_access(Access {
                        address,
                        bytes: 8,
                        write: false,
                        value: Value::of(0x1000),
                    });
                }
            }
        }
        let spin = SpinLoop {
            marker: 0,
            iterations: 3,
            end: window.len(),
            starts,
        };
        let dependence = Dependence::new(&window);
        Interpreted::of(&window, &dependence, &spin, false, &|_| is_data).is_some()
    }

    #[test]
    fn data_that_hold_the_place_of_the_next_piece_are_a_program() {
        // movsxd rax, [rbx+44]; add rbx, rax; jmp [rbx]
        let offset: &[u8] = &[0x48, 0x63, 0x43, 44];
        let add: &[u8] = &[0x48, 0x01, 0xc3];
        let jump: &[u8] = &[0xff, 0x23];
        let lap = |word| [(offset, Some(0x902c)), (add, None), (jump, Some(word))];
        assert!(is_program(&lap(0x9000), true));
        assert!(!is_program(&lap(0x9000), false), "a module's table");
        assert!(!is_program(&lap(0xa000), true), "a list's next element");
    }

    #[test]
    fn jumps_to_pieces_that_lie_in_a_row_are_a_program() {
        let jump: &[u8] = &[0xff, 0x23];
        let other: &[u8] = &[0xff, 0x63, 0x20];
        let lap = |second| [(jump, Some(0x9000)), (second, Some(0x9020))];
        assert!(is_program(&lap(jump), true));
        assert!(!is_program(&lap(other), true), "tail calls by two fields");
    }

    #[test]
    fn a_word_beside_a_piece_of_the_program_is_an_operand() {
        let program = Interpreted {
            words: vec![0x1000, 0x1008, 0x9000],
            ..Interpreted::default()
        };
        assert!(program.holds(0x100c), "behind the last");
        assert!(program.holds(0x8fff) && program.holds(0x9000));
        assert!(!program.holds(0x1100) && !program.holds(0x8000));
        assert!(!Interpreted::default().holds(0x1000));
    }

    #[test]
    fn an_object_of_a_variable_and_a_constant_is_copied_on_write() {
        let pointer = |at, object| Pointer {
            at,
            object,
            hops: 1,
        };
        let shared = |way: &[Pointer], holds: u64| {
            let program = Interpreted {
                words: vec![0x9000, 0x9020],
                ways: [(0x30020, way.to_vec()), (0x9100, Vec::new())]
                    .into_iter()
                    .collect(),
                ..Interpreted::default()
            };
            let word = |at| Some(if at == holds { 0x20000 } else { 0 });
            program.shared(word).contains(&0x30020)
        };
        let by_variable = [pointer(0x20010, 0x30000), pointer(0x50000, 0x20000)];
        assert!(shared(&by_variable, 0x9080));
        assert!(!shared(&by_variable, 0x9180), "behind the constants");
        let by_constant = [pointer(0x20010, 0x30000), pointer(0x9080, 0x20000)];
        assert!(!shared(&by_constant, 0x9080));
        assert!(!shared(&[], 0x9080));
    }

    #[test]
    fn linkage_is_not() {
        let lap = [0x2000, 0x3000, 0x4000, 0x5000].map(|address| (address, LINKAGE));
        assert!(!repeats(&lap));
    }
}
