//! The memory of another process, and what its files held at the start.

use std::fs::File;
use std::os::unix::fs::FileExt;

use flagfinder_code::Names;
use flagfinder_flags::LiveMemory;
use object::{Object, ObjectSegment};

/// Reads through /proc/PID/mem; nothing is stopped.
pub struct Memory {
    file: File,
}

impl Memory {
    /// # Errors
    /// When the process is gone or may not be looked at.
    pub fn open(pid: u32) -> std::io::Result<Memory> {
        let file = File::open(format!("/proc/{pid}/mem"))?;
        Ok(Memory { file })
    }

    /// Bytes that could be read.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let offset = i64::try_from(address);
        offset.map_or(0, |at| self.file.read_at(buffer, at as u64).unwrap_or(0))
    }

    /// A little-endian number of `bytes` (at most 8) bytes.
    pub fn number(&self, address: u64, bytes: usize) -> Option<u64> {
        let mut buffer = [0u8; 8];
        let wanted = bytes.min(8);
        (self.read(address, &mut buffer[..wanted]) == wanted).then(|| u64::from_le_bytes(buffer))
    }

    pub fn word(&self, address: u64) -> Option<u64> {
        self.number(address, 8)
    }
}

/// Memory with the names of what lies there.
pub struct NamedMemory<'a> {
    pub memory: &'a Memory,
    pub names: &'a Names,
}

impl LiveMemory for NamedMemory<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        self.memory.read(address, buffer)
    }

    fn initial(&self, address: u64, bytes: u32) -> Option<u64> {
        let modules = &self.names.input().modules;
        let module = modules.iter().find(|module| {
            let mut segments = module.segments.iter();
            segments.any(|s| (s.start..s.end).contains(&address))
        })?;
        let offset = address.wrapping_sub(module.base);
        let content = std::fs::read(&module.file).ok()?;
        let parsed = object::File::parse(&content[..]).ok()?;
        let segment = parsed
            .segments()
            .find(|s| (s.address()..s.address() + s.size()).contains(&offset))?;
        let data = segment.data().ok()?;
        let at = usize::try_from(offset - segment.address()).ok()?;
        // Beyond the file's part lies .bss: zeroes.
        let mut word = [0u8; 8];
        let wanted = (bytes as usize).min(8);
        for (index, byte) in word[..wanted].iter_mut().enumerate() {
            *byte = data.get(at + index).copied().unwrap_or(0);
        }
        Some(u64::from_le_bytes(word))
    }
}
