// SPDX-License-Identifier: MIT
//! Looks at processes that are texts in a made-up /proc: no panic, bounded memory.
//!
//! An input is a list of files: a line `@NAME` begins one, `@NAME>` a link whose target is the next
//! line, and names are below /proc. The first input takes the process into a root folder of its own
//! in memory, where there is nothing else. It needs CAP_SYS_ADMIN and CAP_SYS_CHROOT there.

use std::cell::Cell;
use std::ffi::CString;
use std::fs;
use std::io::{Error, Result};
use std::os::unix::fs::{symlink, FileExt};
use std::path::{Path, PathBuf};
use std::ptr::null;
use std::time::Duration;

use flagfinder_code::{own_id, AddressSpace, Maps, Names, NamesInput};
use flagfinder_linux::arguments::title;
use flagfinder_linux::proc::{self as linux, Stat, Status};
use flagfinder_waits::hot_call::{told, HotCall};
use flagfinder_waits::{
    awaited, call, children, descendants, descriptor, futex, internet, ipc, locks, look,
    proc as waits, unix, untaken, Owners,
};

/// Processes and descriptors that are asked about.
const PIDS: [u32; 2] = [1007, 1008];
const DESCRIPTORS: i32 = 10;
/// A folder that stays where it is, for what the fuzzer writes.
const KEPT: &str = "FF_FUZZ_FOLDER";
/// What a made-up /proc may have.
const MOST_FILES: usize = 200;
const LONGEST_NAME: usize = 60;

/// See the module.
pub fn run(data: &[u8]) {
    thread_local! {
        static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_INSIDE.replace(true) {
        enter().expect("a root folder of its own");
    }
    write(&String::from_utf8_lossy(data)).expect("written to memory");
    ask();
}

fn done(result: libc::c_int) -> Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Mounts what is in memory, or what another folder has.
fn mount(place: &Path, from: Option<&Path>) -> Result<()> {
    let text = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes());
    let how = from.map_or(0, |_| libc::MS_BIND);
    let (from, place) = (text(from.unwrap_or(place))?, text(place)?);
    let kind = c"tmpfs".as_ptr();
    // SAFETY: our own texts.
    done(unsafe { libc::mount(from.as_ptr(), place.as_ptr(), kind, how, null()) })
}

fn enter() -> Result<()> {
    let kept = std::env::var_os(KEPT).map(PathBuf::from);
    // A folder that is there on every machine; what is in it is not needed any more.
    let root = Path::new("/proc");
    let private = libc::MS_REC | libc::MS_PRIVATE;
    let slash = c"/".as_ptr();
    // SAFETY: plain system calls, and texts of ours. The mounts are seen by this thread alone.
    unsafe {
        done(libc::unshare(libc::CLONE_NEWNS))?;
        done(libc::mount(slash, slash, null(), private, null()))?;
    }
    mount(root, None)?;
    if let Some(kept) = kept {
        let inside = root.join(kept.strip_prefix("/").unwrap_or(&kept));
        fs::create_dir_all(&inside)?;
        mount(&inside, Some(&kept))?;
    }
    fs::create_dir(root.join("proc"))?;
    std::os::unix::fs::chroot(root)?;
    std::env::set_current_dir("/")
}

/// Replaces /proc by what the text says.
fn write(text: &str) -> Result<()> {
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path)?;
        } else {
            fs::remove_file(path)?;
        }
    }
    let is_name = |name: &str| {
        let is_part =
            |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric());
        name.len() <= LONGEST_NAME && name.split('/').all(is_part)
    };
    let text = format!("\n{text}");
    for file in text.split("\n@").skip(1).take(MOST_FILES) {
        let (name, content) = file.split_once('\n').unwrap_or((file, ""));
        let link = name.strip_suffix('>');
        let name = link.unwrap_or(name);
        if !is_name(name) {
            continue;
        }
        let path = Path::new("/proc").join(name);
        // A file may stand where a folder should, or the other way round.
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        let _ = folder.and_then(|()| match link {
            Some(_) => symlink(content.lines().next().unwrap_or_default(), &path),
            None if path.is_symlink() => Ok(()),
            None => fs::write(&path, content),
        });
    }
    Ok(())
}

fn ask() {
    let mut owners = Owners::within(Duration::from_secs(1));
    let _ = look(&PIDS, Duration::from_secs(1), || 0);
    let _ = descendants(&PIDS);
    for pid in linux::processes().into_iter().chain(PIDS).take(4) {
        let _ = (title(pid), linux::program(pid), linux::lives(pid));
        let _ = (children(pid), ipc::is_ours(pid));
        if let Some(stat) = Stat::of(pid) {
            let _ = (stat.state(), stat.field::<i64>(Stat::NICE));
            let _ = stat.field::<u64>(Stat::ARGUMENTS);
        }
        for tid in linux::threads(pid).unwrap_or_default().into_iter().take(4) {
            ask_thread(pid, tid, &mut owners);
        }
        for fd in 0..DESCRIPTORS {
            let found = descriptor::describe(pid, fd, &mut owners);
            let _ = (descriptor::wakes_itself(pid, fd), untaken(pid, fd));
            let _ = (linux::file_kind(pid, fd), locks::on_file(pid, fd));
            let watches = descriptor::watches_of(pid, fd);
            let _ = watches.iter().map(descriptor::tells_once).count();
            if let Some(inode) = descriptor::socket(&found.target) {
                let _ = (internet::connection(pid, inode), unix::name(pid, inode));
            }
        }
        let text = linux::text_of(pid, "maps").unwrap_or_default();
        let maps = Maps::parse(&text);
        for mapping in maps.all() {
            let _ = (maps.at(mapping.start), mapping.file());
        }
        let names = [
            NamesInput::from_live(pid).ok(),
            Some(NamesInput::from_code_maps(&text, 0)),
        ];
        for input in names.into_iter().flatten() {
            let names = Names::new(input);
            for mapping in maps.all().iter().take(8) {
                let _ = (names.code(mapping.start), names.data(mapping.end));
            }
        }
    }
}

/// A file in place of a process's memory.
struct Memory(fs::File);

impl AddressSpace for Memory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let is_place = i64::try_from(address).is_ok();
        let read = is_place.then(|| self.0.read_at(buffer, address).ok());
        read.flatten().unwrap_or(0)
    }
}

fn ask_thread(pid: u32, tid: u32, owners: &mut Owners) {
    let _ = (
        waits::times(pid, tid),
        waits::transfers(pid, tid),
        own_id(pid, tid),
    );
    if let Ok(status) = Status::of_thread(pid, tid) {
        let _ = (status.mask("SigBlk:"), status.numbers("Uid:"));
    }
    let Some(in_call) = waits::look(pid, tid).and_then(|seen| seen.call) else {
        return;
    };
    let Ok(memory) = fs::File::open(linux::path(pid, "mem")).map(Memory) else {
        return;
    };
    let threads = [(tid, tid)].into_iter().collect();
    let _ = (
        call::timeout(&in_call, &memory),
        call::descriptors(&in_call, &memory),
    );
    let _ = (
        futex::word(&in_call, &memory, &threads),
        ipc::waits(&in_call, &memory),
    );
    let _ = awaited(pid, in_call.number, &in_call.args);
    for result in [None, Some(0), Some(-11)] {
        let hot = HotCall {
            number: in_call.number,
            args: in_call.args,
            result,
            found: Vec::new(),
        };
        let _ = told(Some(pid), &hot, &memory, owners);
    }
}
