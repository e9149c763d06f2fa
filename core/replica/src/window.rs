// SPDX-License-Identifier: MIT
//! What a copy does, instruction by instruction, as a [`Window`].

use std::io::Result;
use std::time::{Duration, Instant};

use flagfinder_machine::decoded::is_syscall;
use flagfinder_machine::Window;
use flagfinder_step::{ReadMemory, WindowBuilder};

use crate::ahead::MOST_DECODED;
use crate::answer::Halt;
use crate::replica::{Event, Replica};

/// What was seen of a copy.
pub struct Round {
    /// What it executed, up to where it was left.
    pub window: Window,
    /// Why the copy went no further; `None`: enough was seen, or a limit was reached.
    pub halt: Option<Halt>,
}

/// Instructions before `enough` is asked first; later ever more seldom.
const FIRST_QUESTION: u32 = 1000;
/// The clock is read once in so many instructions.
const CLOCK: u32 = 64;

impl ReadMemory for Replica<'_> {
    fn read(&mut self, address: u64, buffer: &mut [u8]) -> usize {
        match Replica::read(self, address, buffer) {
            Ok(true) => buffer.len(),
            // The bytes of an instruction may end where the mapping ends.
            _ => (1..buffer.len())
                .rev()
                .find(|&some| matches!(Replica::read(self, address, &mut buffer[..some]), Ok(true)))
                .unwrap_or(0),
        }
    }
}

/// Lets the copy go on for so many instructions and so long, or until `enough` says so.
///
/// # Errors
/// When the copy's process is gone.
pub fn go_round(
    replica: &mut Replica<'_>,
    most: u32,
    time: Duration,
    mut enough: impl FnMut(&Window) -> bool,
) -> Result<Round> {
    let begin = Instant::now();
    let mut builder = WindowBuilder::default();
    let mut next_question = FIRST_QUESTION;
    let mut halt = None;
    let mut made: u32 = 0;
    while builder.window.len() < most
        && builder.window.code_count() < MOST_DECODED
        && (made % CLOCK != 0 || begin.elapsed() < time)
    {
        made += 1;
        let before = *replica.registers();
        let step = builder.decode(replica, before.rip);
        if let Some((_, code)) = step {
            builder.begin(replica, &before, code);
        }
        if let Event::Halt(why) = replica.step()? {
            halt = Some(why);
            break;
        }
        if let Some((instruction, _)) = step {
            let after = *replica.registers();
            builder.finish(replica, &before, &after, is_syscall(&instruction));
        }
        if builder.window.len() >= next_question {
            next_question = next_question.max(builder.window.len() * 3 / 2);
            if enough(&builder.window) {
                break;
            }
        }
    }
    builder.window.duration = begin.elapsed().as_nanos() as u64;
    Ok(Round {
        window: builder.window,
        halt,
    })
}
