// SPDX-License-Identifier: MIT
//! Functions of the kernel by addresses in them, as /proc/kallsyms tells.
//!
//! In: call sites of a thread that blocks. Out: names of those that tell what it waits for. Blind
//! spot: where `kptr_restrict` hides the addresses, nothing is told.

use std::fs;

/// Most functions that are told of a wait.
const MOST: usize = 4;
/// In the names of functions by which a thread gives the processor up. The kernel leaves out most
/// of them, but those stay that call the recorder, whose call sites are the innermost.
const GIVE_UP: [&str; 3] = ["__traceiter_", "bpf_", "schedule"];

#[derive(Default)]
pub(crate) struct Kernel {
    /// Where each begins, in order, and where its name ends in `names`.
    starts: Vec<(u64, usize)>,
    names: String,
}

impl Kernel {
    pub fn read() -> Kernel {
        Kernel::parse(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    fn parse(table: &str) -> Kernel {
        let lines = table.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let start = u64::from_str_radix(words.next()?, 16).ok()?;
            let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
            (is_code && start != 0).then_some((start, words.next()?))
        });
        let mut lines: Vec<(u64, &str)> = lines.collect();
        lines.sort_by_key(|&(start, _)| start);
        let mut kernel = Kernel::default();
        for (start, name) in lines {
            kernel.names.push_str(name);
            kernel.starts.push((start, kernel.names.len()));
        }
        kernel
    }

    fn name(&self, address: u64) -> Option<&str> {
        let after = self.starts.partition_point(|&(start, _)| start <= address);
        let end = self.starts.get(after.checked_sub(1)?)?.1;
        let before = after
            .checked_sub(2)
            .map_or(0, |before| self.starts[before].1);
        self.names.get(before..end)
    }

    /// Functions that wait, innermost first, of the call sites of a thread that blocks.
    pub fn waiting(&self, sites: &[u64]) -> Vec<&str> {
        let names: Vec<&str> = sites.iter().filter_map(|&at| self.name(at)).collect();
        let gives_up = |name: &&str| GIVE_UP.iter().any(|part| name.contains(part));
        let gave_up = names.iter().rposition(gives_up);
        let waits = gave_up.map_or(&[][..], |at| &names[at + 1..]);
        waits.iter().take(MOST).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_wait_stand_behind_those_that_give_up_the_processor() {
        let kernel = Kernel::parse(
            "ffffffff81000300 T io_schedule\n\
             ffffffff81000100 t __schedule\n\
             ffffffff81000200 D no_code\n\
             ffffffff81000400 t folio_wait\n\
             ffffffffc0000500 t read_page\t[ext4]\n",
        );
        let sites = [
            0x1,
            0xffffffff81000210,
            0xffffffff81000304,
            0xffffffff81000499,
        ];
        assert_eq!(kernel.waiting(&sites), ["folio_wait"]);
        assert_eq!(kernel.name(0xffffffffc0000501), Some("read_page"));
        assert_eq!(kernel.waiting(&sites[3..]), [""; 0]);
        assert_eq!(Kernel::parse("0 T hidden").waiting(&sites), [""; 0]);
    }
}
