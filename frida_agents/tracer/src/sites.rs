// SPDX-License-Identifier: MIT
//! Hooked instructions. One byte of each is replaced (`int3`), so no jump leads into the middle of
//! a hook; the instruction itself runs from a copy that jumps back behind it.
//!
//! Blind spots: while a copy runs, the program counter is there, which a handler of the program for
//! faults would see. Calls are refused: a copy would push its own address.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, Instruction,
    InstructionBlock,
};

use crate::protocol::{Config, SITE_MAX};
use crate::{ring, sys};

const INT3: u8 = 0xcc;
const LONGEST: usize = 15;
const PAGE: u64 = 4096;
/// A copy may stand so far from its instruction: operands are relative to the program counter.
const REACH: u64 = 1 << 30;
const STEP: u64 = 1 << 20;

/// Where the copy of a site's instruction is.
static COPIES: [AtomicU64; SITE_MAX] = [const { AtomicU64::new(0) }; SITE_MAX];
/// The bytes that were replaced.
static BYTES: [AtomicU64; SITE_MAX] = [const { AtomicU64::new(0) }; SITE_MAX];

fn count(config: &Config) -> usize {
    (config.sites as usize).min(SITE_MAX)
}

/// The number of the site at `ip`, and where its copy is.
pub fn at(ip: u64) -> Option<(usize, u64)> {
    let config = ring::config();
    let mut sites = config.site[..count(config)].iter();
    let place = sites.position(|site| site.ip == ip)?;
    let copy = COPIES[place].load(Ordering::Acquire);
    (copy != 0).then_some((place, copy))
}

/// A page of ours within reach of `ip`.
fn page_near(ip: u64) -> Option<u64> {
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED_NOREPLACE;
    let prot = sys::PROT_READ | sys::PROT_WRITE;
    let page = ip & !(PAGE - 1);
    (1..REACH / STEP)
        .flat_map(|n| [page.wrapping_add(n * STEP), page.wrapping_sub(n * STEP)])
        .filter(|at| (1 << 16..1 << 47).contains(at))
        .find_map(|at| {
            let got = sys::map(at as usize, PAGE as usize, prot, flags, -1)? as u64;
            if got != at {
                sys::unmap(got as usize, PAGE as usize);
            }
            (got == at).then_some(at)
        })
}

fn copy_of(ip: u64) -> Result<u64, &'static CStr> {
    let mut bytes = [0; LONGEST];
    let got = sys::peek(ip, &mut bytes);
    let decoded = Decoder::with_ip(64, &bytes[..got], ip, DecoderOptions::NONE).decode();
    match decoded.flow_control() {
        FlowControl::Next | FlowControl::IndirectBranch => {}
        _ => return Err(c"the instruction is a call, or no instruction"),
    }
    let page = page_near(ip).ok_or(c"there is no address space near the instruction")?;
    let back = Instruction::with_branch(Code::Jmp_rel32_64, decoded.next_ip());
    let code = [decoded, back.unwrap_or_default()];
    let block = InstructionBlock::new(&code, page);
    let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE)
        .map_err(|_| c"the instruction can't be copied")?;
    let bytes = encoded.code_buffer;
    // SAFETY: a page of ours, which is longer.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), page as *mut u8, bytes.len()) };
    sys::call3(
        sys::MPROTECT,
        page as usize,
        PAGE as usize,
        sys::PROT_READ | sys::PROT_EXEC,
    );
    Ok(page)
}

/// Writes bytes of code, in pages that may not be written.
fn put(writes: &[(u64, u8)]) -> bool {
    let Some(fd) = sys::open(c"/proc/self/mem") else {
        return false;
    };
    let all = writes.iter().all(|(at, byte)| {
        let from = std::ptr::from_ref(byte) as usize;
        // SAFETY: one byte is read; the kernel checks where it goes.
        unsafe { sys::call(sys::PWRITE, [fd as usize, from, 1, *at as usize, 0, 0]) == 1 }
    });
    sys::call3(sys::CLOSE, fd as usize, 0, 0);
    all
}

/// Hooks every site, or none.
pub fn hook() -> Result<(), &'static CStr> {
    let config = ring::config();
    let sites = &config.site[..count(config)];
    let mut writes = Vec::new();
    for (place, site) in sites.iter().enumerate() {
        COPIES[place].store(copy_of(site.ip)?, Ordering::Release);
        let mut first = [0];
        sys::peek(site.ip, &mut first);
        BYTES[place].store(u64::from(first[0]), Ordering::Release);
        writes.push((site.ip, INT3));
    }
    if writes.is_empty() || put(&writes) {
        return Ok(());
    }
    unhook();
    Err(c"the program's code can't be written")
}

/// Puts the instructions back. The copies stay: threads may be in them.
pub fn unhook() {
    let config = ring::config();
    let sites = config.site[..count(config)].iter().zip(&BYTES);
    let writes: Vec<(u64, u8)> = sites
        .map(|(site, byte)| (site.ip, byte.load(Ordering::Acquire) as u8))
        .collect();
    if !writes.is_empty() {
        put(&writes);
    }
}
