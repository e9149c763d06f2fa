// SPDX-License-Identifier: MIT
//! Tenet traces of a loop, behind its code.

use std::path::Path;

use crate::{CODE_BASE, CODE_BYTES};

pub fn write(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let folder = directory.join("tenet");
    std::fs::create_dir_all(&folder)?;
    // mov rax, [rbx]; test rax, rax; jne +2; jmp CODE_BASE; ret
    let mut code = vec![
        0x48, 0x8b, 0x03, 0x48, 0x85, 0xc0, 0x75, 0x02, 0xeb, 0xf6, 0xc3,
    ];
    code.resize(CODE_BYTES, 0x90);
    let at = |offset: u64| CODE_BASE + offset;
    let mut text = format!("rax=0x1,rbx=0x5000,rsp=0x7ffc0,rip={:#x}\n", at(0));
    for _ in 0..3 {
        text += &format!("rax=0x0,rip={:#x},mr=0x5000:0000000000000000\n", at(3));
        text += &format!("rip={:#x}\nrip={:#x}\nrip={:#x}\n", at(6), at(8), at(0));
    }
    text += &format!("rax=0x1,rip={:#x},mr=0x5000:0100000000000000\n", at(3));
    text += &format!(
        "rip={:#x}\nrip={:#x}\nrsp=0x7ffc8,rip=0x401000,mw=0x7ffc0:00\n",
        at(6),
        at(10)
    );
    let mut seed = code;
    seed.extend(text.as_bytes());
    std::fs::write(folder.join("loop"), seed)?;
    Ok(())
}
