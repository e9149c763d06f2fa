// SPDX-License-Identifier: MIT
//! A small program with its debug information, the lines that map it, and words that lie in it.

use std::path::Path;
use std::process::Command;

use crate::targets::stacks::PROGRAM;

const CODE: &str = "
struct job { int done; struct job *next; };
static volatile struct job first;
__attribute__((noinline)) static int look(struct job *job) { return job->done; }
__attribute__((noinline)) int wait_for(struct job *job) {
    int rounds = 0;
    while (!look(job)) rounds += 1;
    return rounds;
}
void start(void) { wait_for((struct job *)&first); for (;;) {} }
";
/// Where the program is mapped: pages of 4096 bytes of its file, all of them code.
const BASE: u64 = 0x55_5555_0000;
const PAGES: u64 = 16;

pub fn write(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let folder = directory.join("stacks");
    std::fs::create_dir_all(&folder)?;
    let source = folder.join(".c");
    std::fs::write(&source, CODE)?;
    for (name, options) in [
        ("static", &["-nostdlib", "-static", "-Wl,-e,start"][..]),
        ("shared", &["-nostdlib", "-shared", "-fPIC"]),
        ("stripped", &["-nostdlib", "-shared", "-fPIC", "-s"]),
    ] {
        let program = folder.join(name);
        let mut compiler = Command::new("cc");
        compiler
            .args(["-g", "-O1", "-w", "-Wl,--build-id"])
            .args(options);
        let ran = compiler.arg("-o").arg(&program).arg(&source).status()?;
        if !ran.success() {
            return Err("cc did not compile a program".into());
        }
        let bytes = std::fs::read(&program)?;
        std::fs::write(&program, seed(&bytes))?;
    }
    std::fs::remove_file(source)?;
    Ok(())
}

fn seed(program: &[u8]) -> Vec<u8> {
    let mut maps = String::new();
    for page in 0..PAGES {
        let (start, offset) = (BASE + 4096 * page, 4096 * page);
        let end = start + 4096;
        maps += &format!("{start:x}-{end:x} r-xp {offset:08x} 08:01 7 {PROGRAM}\n");
    }
    maps += "7fff00000000-7fff00001000 r-xp 00000000 00:00 0 [vdso]\n";
    maps += "7f0000000000-7f0000001000 rw-p 00000000 00:00 0\n";
    let mut seed = (maps.len() as u16).to_le_bytes().to_vec();
    seed.extend(maps.as_bytes());
    // In the second page, where linkers put the code.
    let words: Vec<u64> = (0..32).map(|step| BASE + 4096 + 8 * step).collect();
    seed.push(words.len() as u8);
    seed.extend(words.into_iter().flat_map(u64::to_le_bytes));
    seed.extend(program);
    seed
}
