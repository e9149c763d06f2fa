// SPDX-License-Identifier: MIT
//! Programs that hold what a virtual machine of Java, a program of Go and node hold.

use std::path::Path;
use std::process::Command;

use object::{Object, ObjectSymbol};

use crate::targets::runtimes::{BASE, PROGRAMS};

const SOURCES: [&str; 3] = [
    include_str!("hotspot.c"),
    include_str!("goes.c"),
    include_str!("node.c"),
];
/// Where the calls of threads return to, and their stacks, by their symbols.
const THREADS: [(&str, &str); 3] = [("start", "stack"), ("park", "one"), ("start", "stack")];
const MAP: &str = r#"{"version":3,"sources":["a.ts","b.ts"],"mappings":";ACEA,QACA;AADA"}"#;

pub fn write(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let folder = directory.join("runtimes");
    std::fs::create_dir_all(&folder)?;
    let sources = SOURCES.iter().zip(PROGRAMS).zip(THREADS).zip(0u8..);
    for (((source, path), (pc, sp)), number) in sources {
        let text = folder.join(".c");
        std::fs::write(&text, source)?;
        let name = path.rsplit('/').next().unwrap_or(path);
        let program = folder.join(name);
        // One segment, which lies in memory as in the file.
        let base = format!("-Wl,-e,start,-N,--build-id=none,-Ttext-segment={BASE:#x}");
        let mut compiler = Command::new("cc");
        let options = [
            "-nostdlib",
            "-static",
            "-no-pie",
            "-fno-pic",
            "-O0",
            "-w",
            "-g0",
        ];
        // What is zero lies in the file, too.
        compiler
            .args(options)
            .arg("-fno-zero-initialized-in-bss")
            .arg(base);
        // Some linkers warn of a segment that can be written and executed.
        let ran = compiler.arg("-o").arg(&program).arg(&text).output()?;
        if !ran.status.success() {
            return Err(String::from_utf8_lossy(&ran.stderr).into());
        }
        let bytes = std::fs::read(&program)?;
        std::fs::write(&program, seed(number, &bytes, pc, sp)?)?;
        std::fs::remove_file(text)?;
    }
    Ok(())
}

fn seed(kind: u8, program: &[u8], pc: &str, sp: &str) -> object::Result<Vec<u8>> {
    let file = object::File::parse(program)?;
    let place = |name: &str| {
        let mut symbols = file.symbols();
        let found = symbols.find(|symbol| symbol.name() == Ok(name));
        found.map_or(0, |symbol| symbol.address())
    };
    let mut seed = vec![kind];
    for call in [libc::SYS_futex, libc::SYS_read, libc::SYS_futex] {
        let word = place("channel").max(place("stack"));
        seed.extend(
            [call as u64, word, place(pc), place(sp)]
                .map(u64::to_le_bytes)
                .concat(),
        );
    }
    seed.extend((MAP.len() as u16).to_le_bytes());
    seed.extend(MAP.as_bytes());
    seed.extend(program);
    Ok(seed)
}
