// SPDX-License-Identifier: MIT
//! A file system of FUSE with one file, which stops answering when it is told to.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const ROOT: u64 = 1;
const CHILD: u64 = 2;
const HEADER: usize = 40;

pub struct Served {
    pub place: PathBuf,
    pub is_silent: Arc<AtomicBool>,
    /// Requests to read that came.
    pub reads: Arc<AtomicUsize>,
    device: Arc<File>,
}

impl Served {
    /// The file is called `app`. `None`: this machine lets us mount nothing.
    pub fn mount(content: Vec<u8>) -> Option<Served> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ff-fuse-{}-{number}", std::process::id());
        let place = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&place).expect("a folder");
        let mut options = File::options();
        let device = options.read(true).write(true).open("/dev/fuse").ok()?;
        let facts = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
            device.as_raw_fd()
        );
        let text = |text: &[u8]| std::ffi::CString::new(text).expect("no zero");
        let (at, facts) = (text(place.as_os_str().as_bytes()), text(facts.as_bytes()));
        // SAFETY: texts of ours.
        let mounted = unsafe {
            let kind = c"fuse.ff".as_ptr();
            libc::mount(c"ff".as_ptr(), at.as_ptr(), kind, 0, facts.as_ptr().cast())
        };
        if mounted != 0 {
            return None;
        }
        let served = Served {
            place,
            is_silent: Arc::default(),
            reads: Arc::default(),
            device: Arc::new(device),
        };
        let (device, silent) = (served.device.clone(), served.is_silent.clone());
        let reads = served.reads.clone();
        std::thread::spawn(move || serve(&device, &silent, &reads, &content));
        Some(served)
    }

    pub fn file(&self) -> PathBuf {
        self.place.join("app")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let place = std::ffi::CString::new(self.place.as_os_str().as_bytes()).expect("no zero");
        // SAFETY: a text of ours.
        unsafe { libc::umount2(place.as_ptr(), libc::MNT_FORCE | libc::MNT_DETACH) };
        let _ = std::fs::remove_dir(Path::new(&self.place));
    }
}

fn attributes(node: u64, size: u64) -> Vec<u8> {
    let (mode, size) = match node {
        ROOT => (libc::S_IFDIR | 0o755, 4096),
        _ => (libc::S_IFREG | 0o755, size),
    };
    let blocks = size.div_ceil(512);
    let long = [node, size, blocks, 0, 0, 0].map(u64::to_le_bytes).concat();
    let short = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0]
        .map(u32::to_le_bytes)
        .concat();
    [long, short].concat()
}

fn serve(device: &File, is_silent: &AtomicBool, reads: &AtomicUsize, content: &[u8]) {
    let mut request = vec![0; 1 << 20];
    let (mut from, mut to) = (device, device);
    while let Ok(got) = from.read(&mut request) {
        let short = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap());
        let (what, unique, node) = (short(4), long(8), long(16));
        if is_silent.load(Ordering::SeqCst) || what == FORGET {
            continue;
        }
        let size = content.len() as u64;
        let zeroes = |count: usize| vec![0; count];
        let answer: Result<Vec<u8>, i32> = match what {
            INIT => {
                let version = [7u32, 31, 0, 0].map(u32::to_le_bytes).concat();
                let limits = [12u16, 10].map(u16::to_le_bytes).concat();
                Ok([
                    version,
                    limits,
                    131_072u32.to_le_bytes().to_vec(),
                    zeroes(40),
                ]
                .concat())
            }
            LOOKUP if request[HEADER..got].starts_with(b"app\0") => {
                let entry = [CHILD.to_le_bytes().to_vec(), zeroes(32)].concat();
                Ok([entry, attributes(CHILD, size)].concat())
            }
            LOOKUP => Err(libc::ENOENT),
            GETATTR => Ok([zeroes(16), attributes(node, size)].concat()),
            OPEN => Ok(zeroes(16)),
            READ => {
                reads.fetch_add(1, Ordering::SeqCst);
                let at = (long(HEADER + 8) as usize).min(content.len());
                let end = (at + short(HEADER + 16) as usize).min(content.len());
                Ok(content[at..end].to_vec())
            }
            STATFS => Ok(zeroes(80)),
            RELEASE | FLUSH => Ok(Vec::new()),
            _ => Err(libc::ENOSYS),
        };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(error) => (-error, Vec::new()),
        };
        let length = (16 + body.len()) as u32;
        let head = [length.to_le_bytes(), error.to_le_bytes()].concat();
        let _ = to.write_all(&[head, unique.to_le_bytes().to_vec(), body].concat());
    }
}
