// SPDX-License-Identifier: MIT
//! Tenet's text traces as recordings, so that they can be compared. See `tenet.rs` for the format.

use std::io::{BufRead, ErrorKind, Read};

use flagfinder_machine::decoded::Decoded;
use flagfinder_trace::{End, Info, ModuleId};
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};
use rustc_hash::FxHashMap;

use crate::assemble::{Assembler, Known, Start, Step};
use crate::error::{foreign, ExportError};
use crate::image::Image;
use crate::tenet::REGISTERS;

/// The recording has one process with one thread of this number: the format names none.
const PID: u32 = 1;
/// Bytes of a line, which has the registers and accesses of one instruction.
const LONGEST: u64 = 16 << 20;

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Lines but for the first.
    pub instructions: u64,
    /// Instructions outside all images: they are gaps.
    pub outside: u64,
}

/// What one line says.
#[derive(Default)]
struct Line {
    registers: Vec<(usize, u64)>,
    pc: Option<u64>,
    /// Address, bytes, value.
    reads: Vec<(u64, u32, u64)>,
}

/// Reads a Tenet trace of a program whose code is in `images`; returns the recording's bytes.
///
/// # Errors
/// When the text can't be read or is no Tenet trace.
pub fn import_tenet(
    text: &mut dyn BufRead,
    images: &[Image],
    name: &str,
) -> Result<(Vec<u8>, Imported), ExportError> {
    let mut importer = Importer {
        pc: None,
        registers: Known::default(),
        codes: FxHashMap::default(),
        factory: InstructionInfoFactory::new(),
        counts: Imported::default(),
    };
    let mut assembler: Option<(Assembler, Vec<ModuleId>)> = None;
    for number in 0.. {
        let mut line = String::new();
        let bytes = text.take(LONGEST).read_line(&mut line);
        let bytes = bytes.map_err(|error| match error.kind() {
            ErrorKind::InvalidData => not_tenet(number + 1, "it is no text".into()),
            _ => error.into(),
        })?;
        if bytes as u64 == LONGEST {
            return Err(not_tenet(number + 1, "it does not end".into()));
        }
        if bytes == 0 {
            break;
        }
        if line.trim().is_empty() {
            continue;
        }
        let read = Line::parse(&line).map_err(|found| not_tenet(number + 1, found))?;
        let pc = read
            .pc
            .or(importer.pc)
            .ok_or_else(|| not_tenet(number + 1, "the first line does not say rip".into()))?;
        let (assembler, modules) = match &mut assembler {
            Some(known) => known,
            unknown => unknown.insert(begin(images, name, pc)?),
        };
        importer.line(&read, pc, images, assembler, modules);
    }
    let Some((assembler, _)) = assembler else {
        return Err(not_tenet(1, "it is empty".into()));
    };
    Ok((assembler.finish(End::default())?, importer.counts))
}

fn begin(images: &[Image], name: &str, pc: u64) -> Result<(Assembler, Vec<ModuleId>), ExportError> {
    let info = Info {
        tracer: "tenet".into(),
        command: vec![name.into()],
        ..Info::default()
    };
    let path = images.first().map(|image| image.module().path);
    let path = path.unwrap_or_else(|| name.into());
    let start = Start {
        pid: PID,
        tid: PID,
        path,
        name: name.into(),
        pc,
        ..Start::default()
    };
    let mut assembler = Assembler::new(&info, &start)?;
    let modules = images.iter().map(|image| assembler.module(image.module()));
    let modules = modules.collect();
    Ok((assembler, modules))
}

fn not_tenet(line: usize, found: String) -> ExportError {
    foreign(
        "This is no Tenet trace",
        format!("line {line}: {found}"),
        "Give a text trace: each line as rax=0x1,rip=0x401000,mr=0x7ffc0:0011.",
        "Nothing was written.",
    )
}

impl Line {
    fn parse(text: &str) -> Result<Line, String> {
        let mut line = Line::default();
        for part in text.trim().split(',') {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?} is no KEY=VALUE"))?;
            let key = key.trim().to_ascii_lowercase();
            match key.as_str() {
                "mr" | "mrw" | "mw" => {
                    let (address, bytes) =
                        memory(value).ok_or_else(|| format!("{part:?} is no ADDRESS:BYTES"))?;
                    if key != "mw" && bytes.len() <= 8 {
                        let mut word = [0; 8];
                        word[..bytes.len()].copy_from_slice(&bytes);
                        let value = u64::from_le_bytes(word);
                        line.reads.push((address, bytes.len() as u32, value));
                    }
                }
                "rip" | "eip" => {
                    line.pc = Some(hex(value).ok_or_else(|| format!("{part:?} is no number"))?)
                }
                name => {
                    // Registers that we don't follow (flags, segments) may stand there.
                    let value = hex(value).ok_or_else(|| format!("{part:?} is no number"))?;
                    if let Some(number) = REGISTERS.iter().position(|known| *known == name) {
                        line.registers.push((number, value));
                    }
                }
            }
        }
        Ok(line)
    }
}

fn hex(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).ok()
}

/// `0x1000:0a0b` as address and bytes.
fn memory(text: &str) -> Option<(u64, Vec<u8>)> {
    let (address, digits) = text.split_once(':')?;
    let digits = digits.trim().as_bytes();
    let bytes = digits.chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    Some((hex(address)?, bytes.collect::<Option<Vec<u8>>>()?))
}

struct Importer {
    /// Of the instruction whose effect the next line tells.
    pc: Option<u64>,
    registers: Known,
    codes: FxHashMap<u64, (Decoded, Vec<u8>, usize)>,
    factory: InstructionInfoFactory,
    counts: Imported,
}

impl Importer {
    fn line(
        &mut self,
        line: &Line,
        next: u64,
        images: &[Image],
        assembler: &mut Assembler,
        modules: &[ModuleId],
    ) {
        let before = self.registers;
        for (number, value) in &line.registers {
            self.registers[*number] = Some(*value);
        }
        let Some(pc) = self.pc.replace(next) else {
            return;
        };
        self.counts.instructions += 1;
        if !self.codes.contains_key(&pc) {
            let found = images
                .iter()
                .enumerate()
                .find_map(|(image, held)| Some((image, held.code(pc)?)));
            if let Some((image, bytes)) = found {
                let instruction = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
                let decoded = Decoded::new(&instruction, &mut self.factory);
                self.codes
                    .insert(pc, (decoded, bytes[..instruction.len()].to_vec(), image));
            }
        }
        let Some((decoded, bytes, image)) = self.codes.get(&pc) else {
            self.counts.outside += 1;
            assembler.lost();
            return;
        };
        let step = Step {
            decoded,
            bytes,
            reads: &line.reads,
            before: &before,
            after: &self.registers,
            next,
        };
        assembler.step(&step, modules.get(*image).copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{drcov, tenet};
    use flagfinder_trace::{check, Trace};

    /// The code of this program at addresses that end where memory does, or begin there.
    #[test]
    fn addresses_at_the_end_of_memory_and_lines_of_any_length_are_taken_as_they_are() {
        let program = std::env::current_exe().unwrap();
        for base in [0, u64::MAX - 0xfff, 1 << 63] {
            let images = [Image::open(&program, base).unwrap()];
            let module = images[0].module();
            let long = "00".repeat(1 << 20);
            let mut text = format!("rax=ffffffffffffffff,rip={:x}\n", module.start);
            for pc in [module.start, module.end, u64::MAX, u64::MAX - 1, 0, 1] {
                text += &format!("rsp=ffffffffffffffff,rip={pc:x},mr=ffffffffffffffff:{long}\n");
                text += &format!("rip={pc:#x},mr=fffffffffffffffc:0011223344556677,mw=0:\n");
            }
            let (recording, counts) = import_tenet(&mut text.as_bytes(), &images, "end").unwrap();
            assert_eq!(counts.instructions, 12);
            let trace = Trace::from_bytes(recording).unwrap();
            check(&trace).unwrap();
            let process = &trace.processes()[0];
            drcov(process, &mut std::io::sink()).unwrap();
            tenet(
                process,
                &process.threads()[0],
                u64::MAX,
                &mut std::io::sink(),
            )
            .unwrap();
        }
    }

    #[test]
    fn a_line_that_does_not_end_is_refused() {
        let text = std::io::BufReader::new(std::io::repeat(b'0'));
        let error = import_tenet(&mut { text }, &[], "endless").unwrap_err();
        let ExportError::Trace(failure) = error else {
            panic!("{error:?}");
        };
        assert!(
            failure.found.contains("line 1: it does not end"),
            "{failure:?}"
        );
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused_with_their_line() {
        let all = [
            "rip=1ffffffffffffffff",
            "rip=1\nmr=10000000000000000:00",
            "rip=1\nrax=-1",
        ];
        for (text, line) in all.into_iter().zip([1, 2, 2]) {
            let Err(ExportError::Trace(refused)) = import_tenet(&mut text.as_bytes(), &[], "x")
            else {
                panic!("{text} is taken");
            };
            let found = &refused.found;
            assert!(found.starts_with(&format!("line {line}:")), "{found}");
        }
    }

    #[test]
    fn what_is_no_text_is_refused_as_no_trace() {
        let Err(ExportError::Trace(refused)) = import_tenet(&mut &b"rip=1\n\xff\xfe"[..], &[], "x")
        else {
            panic!("it is taken, or said to be unreadable");
        };
        assert_eq!(&refused.found, "line 2: it is no text");
    }
}
