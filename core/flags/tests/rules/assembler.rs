// SPDX-License-Identifier: MIT
//! Machine code from the text that GNU `as` reads, with the destination first.
//!
//! A library that assembles takes the compiler longer than all else that the tests need.

use std::io::Write;
use std::process::{Command, Stdio};

use object::{Object, ObjectSection, RelocationTarget};

/// The code as it lies at `start`, where the text may say `code`. A number that it jumps to is an
/// address.
pub fn assemble(start: u64, text: &str) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().expect("a file for code");
    let mut assembler = Command::new("as")
        .args(["--64", "-msyntax=intel", "-mnaked-reg", "-o"])
        .arg(file.path())
        .stdin(Stdio::piped())
        .spawn()
        .expect("`as` of the package binutils");
    let input = assembler.stdin.take().expect("its input");
    writeln!(&input, "code: {text}").expect("the text is read");
    drop(input);
    let ended = assembler.wait().expect("its end");
    assert!(ended.success(), "this is not what `as` reads: {text}");
    linked(start, &std::fs::read(file.path()).expect("its output"))
}

/// The section .text with the distances to what lies outside, which only a linker knows.
fn linked(start: u64, file: &[u8]) -> Vec<u8> {
    let file = object::File::parse(file).expect("an object file");
    let section = file.section_by_name(".text").expect("a section");
    let mut bytes = section.data().expect("its bytes").to_vec();
    for (at, to) in section.relocations() {
        assert_eq!(to.target(), RelocationTarget::Absolute, "an unknown name");
        let distance = to.addend() - (start + at) as i64;
        let at = at as usize;
        bytes[at..at + 4].copy_from_slice(&(distance as i32).to_le_bytes());
    }
    bytes
}
