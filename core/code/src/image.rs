// SPDX-License-Identifier: MIT
//! One ELF file on disk, believed only when it is the one that ran.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flagfinder_files::{facts_of, open_named};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Object, ObjectSection};

use crate::debug::{Debug, Unread};
use crate::file_bytes::{map, unpacked};
use crate::go::GoFunctions;
use crate::input::ModuleInput;
use crate::symbols::Symbols;
use crate::unwind::Unwind;

/// A file of so many bytes is read in a tenth of a second.
const SMALL: u64 = 16 << 20;
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// PT_LOAD, in ELF virtual addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub start: u64,
    /// By p_memsz: the last page may hold other memory behind it.
    pub end: u64,
    pub writable: bool,
    pub executable: bool,
    /// Where its bytes begin in the file, and how many of them are there.
    pub in_file: u64,
    pub bytes_in_file: u64,
}

/// PT_TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TlsSegment {
    pub start: u64,
    pub bytes: u64,
    pub align: u64,
}

/// A GOT entry that the dynamic linker fills with a fact about this module's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsRelocation {
    /// The word at `address` is the module's number in the dtv.
    ModuleNumber { address: u64 },
    /// The word at `address`, less `offset`, is the block's distance from fs_base.
    Distance { address: u64, offset: u64 },
}

#[derive(Debug, Default)]
pub(crate) struct Image {
    pub loads: Vec<Load>,
    /// Written by the dynamic linker only.
    pub relocated: Vec<Range<u64>>,
    /// GOT and PLT.
    pub linkage: Vec<Range<u64>>,
    pub tls: Option<TlsSegment>,
    pub tls_relocations: Vec<TlsRelocation>,
    /// Extents and names of writable sections; a stripped file may lack them.
    sections: Vec<(Range<u64>, String)>,
    pub symbols: Symbols,
    pub go: Option<GoFunctions>,
    /// Why its file is not used, or not fully.
    pub note: Option<String>,
    pub debug_file: Option<PathBuf>,
    debug: OnceLock<Result<Debug, Unread>>,
    /// The module's own file, as far as it is believed.
    pub file: Option<PathBuf>,
    unwind: OnceLock<Option<Unwind>>,
}

impl Image {
    /// Opens and checks the module's file; on failure an empty image with a note.
    pub fn load(module: &ModuleInput) -> Image {
        Self::try_load(module).unwrap_or_else(|note| Image {
            note: Some(note),
            ..Image::default()
        })
    }

    fn try_load(module: &ModuleInput) -> Result<Image, String> {
        if !module.path.starts_with('/') {
            // [vdso] and its like have no file; nothing is wrong.
            return Ok(Image::default());
        }
        let name = &module.path;
        let fail = |why: String| format!("symbols of {name} are not available: {why}");
        let bytes = map(&module.file).map_err(|e| fail(e.to_string()))?;
        let file = object::File::parse(&bytes[..]).map_err(|e| fail(e.to_string()))?;
        let found = file.build_id().ok().flatten().unwrap_or(&[]);
        let recorded = &module.identity.build_id[..];
        let mut note = None;
        if !recorded.is_empty() && found != recorded {
            return Err(fail(format!(
                "the file has build-id {}, the process ran {}; put the old file back",
                hex(found),
                hex(recorded)
            )));
        }
        let mut image = Image::default();
        image
            .read_headers(&bytes)
            .map_err(|e| fail(e.to_string()))?;
        if recorded.is_empty() {
            let (same, different) = compare(&file, &module.samples);
            if different > 0 {
                return Err(fail(format!(
                    "it has no build-id, and {different} of {} blocks of code that ran are \
                     not in the file; it was replaced",
                    same + different
                )));
            }
            if same == 0 {
                note = Some(format!(
                    "{name} has no build-id: its symbols are used without a check"
                ));
            }
        }
        image.note = note;
        image.file = Some(module.file.clone());
        image.read_sections(&file);
        image.symbols.add_file(&file);
        image.debug_file = if file.section_by_name(".debug_info").is_some() {
            Some(module.file.clone())
        } else {
            separate_debug(&file, &module.file, Path::new(&module.path))
        };
        if let Some(path) = image.debug_file.as_ref().filter(|p| **p != module.file) {
            if let Ok(bytes) = map(path) {
                if let Ok(file) = object::File::parse(&bytes[..]) {
                    image.symbols.add_file(&file);
                }
            }
        }
        image.symbols.seal();
        Ok(image)
    }

    fn read_headers(&mut self, bytes: &[u8]) -> object::Result<()> {
        let header = object::elf::FileHeader64::<object::Endianness>::parse(bytes)?;
        let endian = header.endian()?;
        for segment in header.program_headers(endian, bytes)? {
            let start = segment.p_vaddr(endian);
            let size = segment.p_memsz(endian);
            let end = start.saturating_add(size);
            match segment.p_type(endian) {
                object::elf::PT_LOAD => self.loads.push(Load {
                    start,
                    end,
                    writable: segment.p_flags(endian) & object::elf::PF_W != 0,
                    executable: segment.p_flags(endian) & object::elf::PF_X != 0,
                    in_file: segment.p_offset(endian),
                    bytes_in_file: segment.p_filesz(endian),
                }),
                object::elf::PT_GNU_RELRO => self.relocated.push(start..end),
                object::elf::PT_TLS => {
                    let align = segment.p_align(endian).max(1);
                    self.tls = Some(TlsSegment {
                        start,
                        bytes: size,
                        align,
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn read_sections(&mut self, file: &object::File<'_>) {
        for section in file.sections() {
            let range = section.address()..section.address().saturating_add(section.size());
            if let (true, Ok(name)) = (is_variable(&section), section.name()) {
                self.sections.push((range.clone(), name.to_owned()));
            }
            match section.name() {
                Ok(".got" | ".got.plt" | ".plt" | ".plt.got" | ".plt.sec") => {
                    self.linkage.push(range);
                }
                Ok(".gopclntab" | ".data.rel.ro.gopclntab") => {
                    let text = file.section_by_name(".text").map_or(0, |s| s.address());
                    self.go = unpacked(&section)
                        .and_then(|data| GoFunctions::parse(&data, file.entry(), text));
                }
                _ => {}
            }
        }
        if self.tls.is_some() {
            self.read_tls_relocations(file);
        }
    }

    fn read_tls_relocations(&mut self, file: &object::File<'_>) {
        use object::{ObjectSymbol, ObjectSymbolTable, RelocationFlags, RelocationTarget};
        let Some(relocations) = file.dynamic_relocations() else {
            return;
        };
        for (address, relocation) in relocations {
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                continue;
            };
            let is_tls = matches!(
                r_type,
                object::elf::R_X86_64_DTPMOD64 | object::elf::R_X86_64_TPOFF64
            );
            if !is_tls {
                continue;
            }
            // Symbol 0 means this module; others are followed only if local, as another
            // module may define a global one too.
            let offset = match relocation.target() {
                RelocationTarget::Symbol(index) if index.0 != 0 => {
                    let symbol = file
                        .dynamic_symbol_table()
                        .and_then(|table| table.symbol_by_index(index).ok());
                    match symbol {
                        Some(symbol) if symbol.is_local() && !symbol.is_undefined() => {
                            symbol.address()
                        }
                        _ => continue,
                    }
                }
                _ => 0,
            };
            self.tls_relocations.push(match r_type {
                object::elf::R_X86_64_DTPMOD64 => TlsRelocation::ModuleNumber { address },
                _ => TlsRelocation::Distance {
                    address,
                    offset: offset.wrapping_add_signed(relocation.addend()),
                },
            });
        }
    }

    /// The segment that holds a virtual address.
    pub fn load_at(&self, address: u64) -> Option<&Load> {
        self.loads
            .iter()
            .find(|load| (load.start..load.end).contains(&address))
    }

    /// The bytes that a segment without write permission has at a virtual address, as far as they
    /// are there.
    pub fn constants(&self, address: u64, count: usize) -> Option<Vec<u8>> {
        let load = self.load_at(address).filter(|load| !load.writable)?;
        let at = address - load.start;
        let there = load.bytes_in_file.saturating_sub(at).min(count as u64);
        let mut bytes = vec![0; there as usize];
        let file = open_named(self.file.as_ref()?).ok()?;
        file.read_exact_at(&mut bytes, load.in_file + at).ok()?;
        Some(bytes)
    }

    /// Extent of the segment that holds a virtual address; empty without one.
    pub fn segment(&self, address: u64) -> Range<u64> {
        self.load_at(address)
            .map_or(0..0, |load| load.start..load.end)
    }

    /// Name of the writable section that holds a virtual address.
    pub fn section(&self, address: u64) -> Option<&str> {
        let mut sections = self.sections.iter();
        let found = sections.find(|(range, _)| range.contains(&address))?;
        Some(&found.1)
    }

    /// DWARF, parsed at first use.
    pub fn debug(&self) -> Option<&Debug> {
        let load = || {
            let file = self.debug_file.as_deref().ok_or(Unread::Unusable)?;
            let bytes = map(file).map_err(|_| Unread::Unusable)?;
            Debug::load(&bytes, file)
        };
        self.debug.get_or_init(load).as_ref().ok()
    }

    /// Says so if its debug information was wanted, and is too large.
    pub fn without_debug(&self) -> Option<String> {
        let Some(Err(Unread::TooLarge(bytes))) = self.debug.get() else {
            return None;
        };
        let file = self.debug_file.as_deref()?.display();
        Some(format!(
            "the debug information of {file} was not read: with its {} MiB, that of all files \
             would take too much memory; what is in it is told by symbols",
            bytes >> 20
        ))
    }

    /// Reads variables now, if that takes little.
    pub fn warm(&self) {
        let bytes = self
            .debug_file
            .as_ref()
            .and_then(|file| facts_of(file).ok());
        if bytes.is_some_and(|file| file.size <= SMALL) {
            self.debug().map(Debug::warm);
        }
    }

    /// Frame layout, parsed at first use.
    pub fn unwind(&self) -> Option<&Unwind> {
        let load = || Unwind::load(&map(self.file.as_ref()?).ok()?);
        self.unwind.get_or_init(load).as_ref()
    }
}

/// Does the file of this path hold debug information, or is there a file that does? `path` may be
/// one that a process names.
pub fn has_debug_info(path: &Path) -> bool {
    let look = || {
        let bytes = map(path).ok()?;
        let file = object::File::parse(&bytes[..]).ok()?;
        let is_own = file.section_by_name(".debug_info").is_some();
        Some(is_own || separate_debug(&file, path, path).is_some())
    };
    look().unwrap_or(false)
}

/// Holds variables, and none that are thread-local: their addresses are no addresses.
fn is_variable<'d>(section: &impl ObjectSection<'d>) -> bool {
    let object::SectionFlags::Elf { sh_flags } = section.flags() else {
        return false;
    };
    let has = |flag: u32| sh_flags & u64::from(flag) != 0;
    use object::elf::{SHF_ALLOC, SHF_TLS, SHF_WRITE};
    has(SHF_ALLOC) && has(SHF_WRITE) && !has(SHF_TLS)
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "none".into();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// How many samples of code the file has as they ran, and how many it has not.
fn compare(file: &object::File<'_>, samples: &[(u64, Box<[u8]>)]) -> (usize, usize) {
    let mut counts = (0, 0);
    for (address, code) in samples {
        let holds = file.sections().any(|section| {
            let data = section.data_range(*address, code.len() as u64);
            matches!(data, Ok(Some(data)) if data == &code[..])
        });
        if holds {
            counts.0 += 1;
        } else {
            counts.1 += 1;
        }
    }
    counts
}

/// A file of debug information for `file`, by build-id or by its debug link, with the
/// same build-id. `path` is where the file can be read now, `installed` where it was.
fn separate_debug(file: &object::File<'_>, path: &Path, installed: &Path) -> Option<PathBuf> {
    let build_id = file.build_id().ok().flatten().filter(|id| id.len() > 1)?;
    let root = Path::new(DEBUG_ROOT);
    let (first, rest) = build_id.split_at(1);
    let by_id = format!(".build-id/{}/{}.debug", hex(first), hex(rest));
    let mut candidates = vec![root.join(by_id)];
    if let Ok(Some((name, _crc))) = file.gnu_debuglink() {
        candidates.extend(linked(name, path, installed).into_iter().flatten());
    }
    candidates.into_iter().find(|candidate| {
        let Ok(bytes) = map(candidate) else {
            return false;
        };
        let parsed = object::File::parse(&bytes[..]);
        parsed.is_ok_and(|found| found.build_id().ok().flatten() == Some(build_id))
    })
}

/// Where the file that a debug link names may be. The link is a file's name: folders in it, which
/// would lead anywhere, are left out.
fn linked(name: &[u8], path: &Path, installed: &Path) -> Option<[PathBuf; 3]> {
    let name = Path::new(OsStr::from_bytes(name)).file_name()?;
    let (folder, was_in) = (path.parent()?, installed.parent()?);
    let below = was_in.strip_prefix("/").unwrap_or(was_in);
    Some([
        folder.join(name),
        folder.join(".debug").join(name),
        Path::new(DEBUG_ROOT).join(below).join(name),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModuleIdentity;

    fn note_of(path: &Path) -> String {
        let module = ModuleInput {
            identity: ModuleIdentity::new(&path.to_string_lossy(), &[]),
            path: path.to_string_lossy().into_owned(),
            file: path.to_owned(),
            base: 0,
            segments: Vec::new(),
            samples: Vec::new(),
        };
        Image::load(&module).note.unwrap_or_default()
    }

    #[test]
    fn a_module_that_is_a_fifo_or_a_device_is_not_opened() {
        let fifo = std::env::temp_dir().join(format!("ff-image-{}", std::process::id()));
        let name = std::ffi::CString::new(fifo.as_os_str().as_bytes()).unwrap();
        // SAFETY: a path that ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        for path in [&fifo, Path::new("/dev/zero")] {
            let note = note_of(path);
            assert!(
                note.ends_with("not available: it is no regular file"),
                "{note}"
            );
        }
        std::fs::remove_file(&fifo).unwrap();
    }

    #[test]
    fn a_debug_link_leads_nowhere_else() {
        let (path, installed) = (Path::new("/proc/7/root/opt/app"), Path::new("/opt/app"));
        let expected = [
            "/proc/7/root/opt/app.debug",
            "/proc/7/root/opt/.debug/app.debug",
            "/usr/lib/debug/opt/app.debug",
        ];
        for name in ["app.debug", "/etc/app.debug", "../../app.debug"] {
            let found = linked(name.as_bytes(), path, installed).unwrap();
            assert_eq!(found, expected.map(PathBuf::from));
        }
        assert_eq!(linked(b"..", path, installed), None);
    }
}
