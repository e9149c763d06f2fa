// SPDX-License-Identifier: MIT
//! Opens arbitrary bytes as a core file: no panic, bounded memory. Its memory is read where the
//! threads' registers point, and everything there is named. No code of it is executed here.

use flagfinder_code::{AddressSpace, Names};
use flagfinder_replica::{Pages, Source, PAGE};

use super::cores::opened;
use crate::MemoryFile;

/// Regions that are looked at; inputs have room for a thousand.
const REGIONS: usize = 64;

/// See the module.
pub fn run(data: &[u8]) {
    let file = MemoryFile::new(data).expect("a file in memory");
    let Some(core) = opened(&file.path(), None) else {
        return;
    };
    let names = Names::new(core.names_input());
    let pages = Pages::new(&*core);
    for thread in core.threads() {
        let registers = &thread.state.registers;
        for address in [registers.rip, registers.rsp, registers.fs_base] {
            pages.page(address & !(PAGE - 1));
            let _ = (names.code(address), names.data(address));
        }
        let mut stack = [0; 4096];
        let got = AddressSpace::read(&*core, registers.rsp, &mut stack);
        assert!(got <= stack.len());
    }
    for region in core.regions().iter().take(REGIONS) {
        assert!(region.start < region.end);
        pages.page(region.start & !(PAGE - 1));
        let _ = names.data(region.start);
    }
}
