// SPDX-License-Identifier: MIT
//! Does a file system hold files? By what fstatfs(2) says of its kind.
//!
//! A regular file may be one of the kernel's (`/proc/kmsg`, a trace pipe): whoever reads it takes
//! away what others wait for, or waits for ever. So only kinds are named here whose files are the
//! same after they were read. Blind spot: layers of an overlay may lie on another machine.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Who answers for the files of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// This kernel, and disks or memory of this machine.
    Local,
    /// Another machine. Reading changes nothing, but the answer may never come.
    Remote,
    /// A process (FUSE). What reading does is its affair.
    Served,
    /// Its files are no files: what the kernel tells, asks or hands out once. Or an unknown kind.
    Other,
}

const LOCAL: [u32; 32] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0xca45_1a4e, // bcachefs
    0x2fc1_2fc1, // zfs
    0xf2f5_2010, // f2fs
    0x3153_464a, // jfs
    0x5265_4973, // reiserfs
    0x3434,      // nilfs
    0x0102_1994, // tmpfs, memfd, shared memory, devtmpfs
    0x8584_58f6, // ramfs
    0x9584_58f6, // hugetlbfs
    0x794c_7630, // overlay
    0x6175_6673, // aufs
    0xf15f,      // ecryptfs
    0xe0f5_e1e2, // erofs
    0x7371_7368, // squashfs
    0x28cd_3d45, // cramfs
    0x7275,      // romfs
    0x9660,      // iso9660
    0x1501_3346, // udf
    0x4d44,      // vfat
    0x2011_bab0, // exfat
    0x7366_746e, // ntfs3
    0x5346_544e, // ntfs
    0x482b,      // hfsplus
    0x4244,      // hfs
    0x0001_1954, // ufs
    0x72b6,      // jffs2
    0x2405_1905, // ubifs
    0x137f,      // minix
    0x5a4f_4653, // zonefs
];
const REMOTE: [u32; 16] = [
    0x6969,      // nfs
    0xff53_4d42, // cifs
    0xfe53_4d42, // smb2
    0x517b,      // smb
    0x0102_1997, // 9p
    0x00c3_6400, // ceph
    0x5346_414f, // afs
    0x6b41_4653, // kafs
    0x7375_7245, // coda
    0x0116_1970, // gfs2
    0x7461_636f, // ocfs2
    0x0bd0_0bd0, // lustre
    0x4750_4653, // gpfs
    0x1983_0326, // beegfs
    0x2003_0528, // orangefs
    0x786f_4256, // vboxsf
];
/// The kernel makes their files up. Unlike [`Kind::Other`] this leaves out what is not known.
const MADE_UP: [u32; 9] = [
    PROC,
    0x6265_6572, // sys
    0x7472_6163, // trace
    0x6462_6720, // debug
    0x7363_6673, // security
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0xcafe_4a11, // bpf
    0x6265_6570, // config
];
const FUSE: u32 = 0x6573_5546;
const PROC: u32 = 0x9fa0;

impl Kind {
    /// `f_type` of `struct statfs`.
    pub(crate) fn of(f_type: i64) -> Kind {
        let number = f_type as u32;
        if LOCAL.contains(&number) {
            Kind::Local
        } else if REMOTE.contains(&number) {
            Kind::Remote
        } else if number == FUSE {
            Kind::Served
        } else {
            Kind::Other
        }
    }

    pub(crate) fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Is a file there none, whatever its kind is? It may take something away from others to read it.
pub(crate) fn is_made_up(file: &File) -> bool {
    // SAFETY: a structure of plain numbers, which the kernel fills; an open descriptor.
    unsafe {
        let mut told: libc::statfs = std::mem::zeroed();
        libc::fstatfs(file.as_raw_fd(), &mut told) == 0 && MADE_UP.contains(&(told.f_type as u32))
    }
}

/// /proc means something else to each process.
pub(crate) fn is_proc(f_type: i64) -> bool {
    f_type as u32 == PROC
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &std::ffi::CStr) -> Option<Kind> {
        // SAFETY: a structure of plain numbers, which the kernel fills; a text of ours.
        unsafe {
            let mut told: libc::statfs = std::mem::zeroed();
            (libc::statfs(path.as_ptr(), &mut told) == 0).then(|| Kind::of(told.f_type))
        }
    }

    #[test]
    fn what_the_kernel_tells_is_no_file() {
        for path in [c"/proc/kmsg", c"/sys/kernel/uevent_seqnum"] {
            assert_eq!(of(path), Some(Kind::Other), "{path:?}");
        }
    }

    #[test]
    fn the_files_of_this_machine_are_files() {
        let own = std::env::current_exe().expect("a path").into_os_string();
        let own = std::ffi::CString::new(own.into_encoded_bytes()).expect("no zero");
        assert_ne!(of(&own), Some(Kind::Other));
        assert_eq!(of(c"/dev"), Some(Kind::Local));
    }
}
