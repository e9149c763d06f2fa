// SPDX-License-Identifier: MIT
//! What a jump by a table tests: which numbers of the case lead where.
//!
//! ```text
//!     cmp eax, 7                     ; absent where the compiler knows that there are no others
//!     ja default
//!     movsxd rax, [rdx + rax*4]      ; the distance of the case's code from the table
//!     add rax, rdx
//!     jmp rax
//! ```
//!
//! The table is a constant of the program, so its file tells the other cases. Addresses in it (`jmp
//! [rdx + rax*8]`) are filled in when the program is loaded if that may lie anywhere; then only the
//! case that was seen is known.

use flagfinder_code::Names;
use flagfinder_machine::decoded::{general, sign_extend, Operand};
use flagfinder_machine::Window;
use iced_x86::FlowControl;

use crate::condition::Condition;
use crate::expression::Expression;
use crate::operands::{last_writer, Builder, DEPTH};
use crate::relation::Relation;

/// Most definitions between the table and the jump.
const NEAR: usize = 8;
/// Most instructions between the check of the bounds and the jump.
const CHECK: u32 = 24;
/// Most cases that are read without such a check.
const MOST: u64 = 512;

/// Of the jump at `step`, which repeats the loop: the numbers with which it would go elsewhere.
/// `None`: it is no jump by a table.
pub fn condition(window: &Window, names: &Names, step: u32) -> Option<Condition> {
    let target = window.next_pc(step)?;
    let load = table_load(window, step, &|address| names.is_fixed(address))?;
    let code = window.code(load);
    let memory = code.memory.iter().find(|memory| memory.read)?;
    let access = window.accesses(load).iter().find(|access| !access.write)?;
    let of = Builder::new(window).register(load, memory.index?, DEPTH);
    let now = of.evaluate(u64::MAX, 0)?;
    let entry = Entry {
        bits: access.bytes * 8,
        found: access.value.get(access.bytes * 8)?,
        target,
    };
    let first = access
        .address?
        .wrapping_sub(now.wrapping_mul(u64::from(memory.scale)));
    let count = bound(window, step, &of).map_or(MOST, |last| last.saturating_add(1));
    let bytes = u64::from(access.bytes);
    let is_dense = u64::from(memory.scale) == bytes && now < count.min(MOST);
    let table = match is_dense {
        true => names.constants(first, (count.min(MOST) * bytes) as usize),
        false => Vec::new(),
    };
    let function = names.function(target);
    let is_code = |pc: u64| function.is_none_or(|(start, end)| (start..end).contains(&pc));
    let mut targets = entry.targets(&table, &is_code);
    if !targets.contains(&(now, target)) {
        targets = vec![(now, target)];
    }
    Some(Condition {
        left: Expression::Case {
            of: Box::new(of),
            targets,
        },
        right: Expression::Number(target),
        leaves: Relation::NotEqual,
        bits: 64,
    })
}

/// How an entry of the table becomes an address: by the one that was seen.
struct Entry {
    bits: u32,
    found: u64,
    target: u64,
}

impl Entry {
    /// Cases and where they lead, up to the first that leads to no code of the function: there the
    /// table ends.
    fn targets(&self, table: &[u8], is_code: &dyn Fn(u64) -> bool) -> Vec<(u64, u64)> {
        let signed = |value: u64| sign_extend(value, self.bits) as u64;
        let begin = self.target.wrapping_sub(signed(self.found));
        let entries = table.chunks_exact((self.bits / 8) as usize).map(|bytes| {
            let mut value = [0; 8];
            value[..bytes.len()].copy_from_slice(bytes);
            begin.wrapping_add(signed(u64::from_le_bytes(value)))
        });
        (0..)
            .zip(entries)
            .take_while(|(_, pc)| is_code(*pc))
            .collect()
    }
}

/// The step that loads the entry from constants: the jump itself, or a definition of its register.
fn table_load(window: &Window, step: u32, is_fixed: &dyn Fn(u64) -> bool) -> Option<u32> {
    let mut work = vec![step];
    for _ in 0..NEAR {
        let at = work.pop()?;
        let code = window.code(at);
        let mut read = window.accesses(at).iter().filter(|access| !access.write);
        if let Some(access) = read.next() {
            let by_number = code
                .memory
                .iter()
                .any(|memory| memory.read && memory.index.is_some());
            let is_entry = access.bytes <= 8 && access.address.is_some_and(is_fixed);
            if by_number && is_entry {
                return Some(at);
            }
            continue;
        }
        let registers = code.operands.iter().filter_map(|operand| match operand {
            Operand::Register { number, .. } => Some(*number),
            _ => None,
        });
        let is_read = |number: &u8| code.reads & general(*number) != 0;
        let definitions = registers
            .filter(is_read)
            .filter_map(|r| last_writer(window, at, general(r)));
        work.extend(definitions);
    }
    None
}

/// The largest number that the check before the jump lets pass.
fn bound(window: &Window, step: u32, of: &Expression) -> Option<u64> {
    let rsp = window.rsp(step);
    let mut before = (step.saturating_sub(CHECK)..step).rev();
    let check = before.find(|&at| {
        let flow = window.code(at).instruction.flow_control();
        flow == FlowControl::ConditionalBranch && window.rsp(at) == rsp
    })?;
    let taken = window.next_pc(check)? != window.code(check).instruction.next_ip();
    let test = Condition::of(window, check, taken)?;
    let is_same = test.left.evaluate(u64::MAX, 0)? == of.evaluate(u64::MAX, 0)?;
    match (test.leaves, test.right) {
        (Relation::Above, Expression::Number(last)) if is_same => Some(last),
        (Relation::AboveOrEqual, Expression::Number(behind)) if is_same => behind.checked_sub(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a table of distances from 0x9000 says, in which the case that was seen leads to 0x1100.
    fn targets(entries: &[u32]) -> Vec<(u64, u64)> {
        let entry = Entry {
            bits: 32,
            found: u64::from(0x1100u32.wrapping_sub(0x9000)),
            target: 0x1100,
        };
        let distances = entries
            .iter()
            .map(|pc| pc.wrapping_sub(0x9000).to_le_bytes());
        let table: Vec<u8> = distances.flatten().collect();
        entry.targets(&table, &|pc| (0x1000..0x2000).contains(&pc))
    }

    #[test]
    fn a_table_ends_where_it_leads_out_of_the_function() {
        let found = targets(&[0x1040, 0x1100, 0x1080, 0x7000, 0x1090]);
        assert_eq!(found, [(0, 0x1040), (1, 0x1100), (2, 0x1080)]);
    }

    /// Of a jump by these cases, which goes to 0x1100: the text, and whether 7 leaves.
    fn tested(targets: &[(u64, u64)]) -> (String, Option<bool>) {
        let of = Expression::Load {
            address: 0x5000,
            bits: 32,
            value: 1,
        };
        let condition = Condition {
            left: Expression::Case {
                of: Box::new(of),
                targets: targets.to_vec(),
            },
            right: Expression::Number(0x1100),
            leaves: Relation::NotEqual,
            bits: 64,
        };
        let text = condition.text(&|_| "state".into());
        (text, condition.lets_go(0x5000, 4, 7))
    }

    #[test]
    fn the_smaller_set_of_cases_is_shown() {
        let (here, there) = (0x1100, 0x1200);
        let one_stays = tested(&[(0, there), (1, here), (2, there)]);
        assert_eq!(one_stays, ("state != 0x1".into(), Some(true)));
        let one_leaves = tested(&[(0, here), (1, here), (7, there)]);
        assert_eq!(one_leaves, ("state == 0x7".into(), Some(true)));
        let other_leaves = tested(&[(1, here), (7, here), (8, there)]);
        assert_eq!(other_leaves, ("state == 0x8".into(), Some(false)));
        assert_eq!(tested(&[(1, here)]), ("state != 0x1".into(), Some(true)));
    }
}
