// SPDX-License-Identifier: MIT
//! Whom the target runs as: under sudo, the user who called it.

use std::ffi::{CStr, CString};

/// A user as whom the target runs.
#[derive(Clone, Debug)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub name: String,
    pub home: String,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl User {
    /// The user behind sudo; `None` when this process is not root under sudo.
    pub fn behind_sudo() -> Option<User> {
        // SAFETY: no arguments, cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            return None;
        }
        let uid: u32 = std::env::var("SUDO_UID").ok()?.parse().ok()?;
        if uid == 0 {
            return None;
        }
        Self::lookup(uid)
    }

    fn lookup(uid: u32) -> Option<User> {
        let mut buffer = vec![0 as libc::c_char; 16384];
        // SAFETY: getpwuid_r fills `entry` with pointers into `buffer`, which lives
        // through the copies below.
        unsafe {
            let mut entry: libc::passwd = std::mem::zeroed();
            let mut found = std::ptr::null_mut();
            let status = libc::getpwuid_r(
                uid,
                &mut entry,
                buffer.as_mut_ptr(),
                buffer.len(),
                &mut found,
            );
            if status != 0 || found.is_null() {
                return None;
            }
            let text = |pointer| CStr::from_ptr(pointer).to_string_lossy().into_owned();
            let (name, home, gid) = (text(entry.pw_name), text(entry.pw_dir), entry.pw_gid);
            let groups = groups_of(&name, gid);
            Some(User {
                uid,
                gid,
                name,
                home,
                groups,
            })
        }
    }
}

fn groups_of(name: &str, gid: u32) -> Vec<u32> {
    let Ok(name) = CString::new(name) else {
        return vec![gid];
    };
    let mut groups = vec![0; 256];
    let mut count = groups.len() as i32;
    // SAFETY: writes at most `count` entries and sets it to how many there are.
    let status = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
    if status < 0 {
        return vec![gid];
    }
    groups.truncate(count as usize);
    groups
}
