// SPDX-License-Identifier: MIT
//! Files that hold memory of programs: their owner's only.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{fchown, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const OWNER_ONLY: u32 = 0o600;

/// Creates a file to read and write, or empties the one that is there, for its owner only. Under
/// sudo a new file belongs to the user who called sudo. What is no regular file stays as it is, and
/// a file system without owners is no obstacle. A link may lead to a terminal or the like, to our
/// own output (`/dev/stdout`) or to what is open (`/proc/self/fd/3`); a file elsewhere is not
/// emptied by it.
///
/// # Errors
/// When the file can't be created or emptied; `InvalidInput`: a link leads to a file, or it is a
/// disk; `PermissionDenied`: it is another user's.
pub fn create_private(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(OWNER_ONLY);
    match options.clone().create_new(true).open(path) {
        Ok(file) => {
            if let Some((uid, gid)) = caller_of_sudo() {
                let _ = fchown(&file, Some(uid), gid);
            }
            Ok(file)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let handle = writable(path)?;
            let file = options.open(format!("/proc/self/fd/{}", handle.as_raw_fd()))?;
            if file.metadata()?.is_file() {
                file.set_len(0)?;
                let _ = file.set_permissions(Permissions::from_mode(OWNER_ONLY));
            }
            Ok(file)
        }
        Err(error) => Err(error),
    }
}

/// Is it this user, or the one who called sudo?
fn is_ours(uid: u32) -> bool {
    // SAFETY: no arguments, cannot fail.
    uid == unsafe { libc::geteuid() } || caller_of_sudo().is_some_and(|(caller, _)| caller == uid)
}

/// A handle on what is there, if we may write to it: nothing of it is opened before that is known.
fn writable(path: &Path) -> Result<File> {
    let refused = |kind, text: &str| Err(Error::new(kind, text));
    let handle = |flags| {
        let mut only_name = OpenOptions::new();
        only_name.read(true).custom_flags(libc::O_PATH | flags);
        only_name.open(path)
    };
    let mut found = handle(libc::O_NOFOLLOW)?;
    let mut known = found.metadata()?;
    let is_link = known.is_symlink();
    // The kernel makes the links of /proc, to what a process has open.
    let proc = std::fs::metadata("/proc").map(|proc| proc.dev());
    let is_of_kernel = is_link && proc.is_ok_and(|device| device == known.dev());
    if is_link {
        if known.uid() != 0 && !is_ours(known.uid()) {
            let text = "it is another user's link: remove it first";
            return refused(ErrorKind::PermissionDenied, text);
        }
        found = handle(0)?;
        known = found.metadata()?;
    }
    let is_output = [libc::STDOUT_FILENO, libc::STDERR_FILENO].iter().any(|fd| {
        let own = std::fs::metadata(format!("/proc/self/fd/{fd}"));
        own.is_ok_and(|own| (own.dev(), own.ino()) == (known.dev(), known.ino()))
    });
    let kind = known.file_type();
    if kind.is_block_device() {
        return refused(ErrorKind::InvalidInput, "it is a disk: name a file");
    }
    if is_of_kernel || is_output || kind.is_char_device() {
        return Ok(found);
    }
    if is_link && known.is_file() {
        let text = "it is a link to a file: name that file, or remove the link";
        return refused(ErrorKind::InvalidInput, text);
    }
    if !is_ours(known.uid()) {
        let text = "it belongs to another user, who could read it: remove it first";
        return refused(ErrorKind::PermissionDenied, text);
    }
    Ok(found)
}

/// Creates such a file and has it written. One that can't be written to its end is removed: a part
/// of it would pass for the whole.
///
/// # Errors
/// When the file can't be created, and those of `write`.
pub fn write_private<T, E: From<Error>>(
    path: &Path,
    write: impl FnOnce(&mut File) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let mut file = create_private(path)?;
    write(&mut file).inspect_err(|_| discard(path))
}

/// Removes a file that could not be written. A device or a FIFO stays.
pub fn discard(path: &Path) {
    if std::fs::metadata(path).is_ok_and(|kind| kind.is_file()) {
        let _ = std::fs::remove_file(path);
    }
}

/// User and group behind sudo; `None` when this process is not root under sudo.
fn caller_of_sudo() -> Option<(u32, Option<u32>)> {
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let number = |name| std::env::var(name).ok()?.parse().ok();
    Some((number("SUDO_UID")?, number("SUDO_GID")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::{fifo_in, folder};
    use std::io::Write;

    #[test]
    fn what_fails_leaves_no_file_behind() {
        let folder = folder("partly");
        let path = folder.join("file");
        let failed: Result<()> = write_private(&path, |file| {
            file.write_all(b"a part")?;
            Err(Error::other("no space left"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no space left");
        assert!(!path.exists());
        write_private(&path, |file| file.write_all(b"all")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"all");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_fifo_that_can_not_be_written_stays() {
        let folder = folder("stays");
        let fifo = fifo_in(&folder);
        let failed: Result<()> = write_private(&fifo, |_| Err(Error::other("no space left")));
        assert!(failed.is_err() && fifo.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn another_user_s_file_is_refused_and_stays_as_it_is() {
        let folder = folder("foreign");
        let file = folder.join("file");
        std::fs::write(&file, "theirs").unwrap();
        if std::os::unix::fs::chown(&file, Some(65534), None).is_err() {
            return; // only root may give files away, and only root could meet this
        }
        let refused = create_private(&file).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "theirs");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn another_user_s_fifo_or_link_is_refused_and_so_is_a_disk() {
        let folder = folder("others");
        let (fifo, link, disk) = (fifo_in(&folder), folder.join("link"), folder.join("disk"));
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        if std::os::unix::fs::lchown(&link, Some(65534), None).is_err() {
            return; // only root may give files away, and only root could meet this
        }
        std::os::unix::fs::chown(&fifo, Some(65534), None).unwrap();
        let name = std::ffi::CString::new(disk.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: a text of ours. No driver has this number.
        let made = unsafe { libc::mknod(name.as_ptr(), libc::S_IFBLK | 0o600, 0xff_ff) };
        let refused = |path: &Path| create_private(path).unwrap_err().kind();
        assert_eq!(refused(&fifo), ErrorKind::PermissionDenied);
        assert_eq!(refused(&link), ErrorKind::PermissionDenied);
        if made == 0 {
            assert_eq!(refused(&disk), ErrorKind::InvalidInput);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn created_files_are_their_owner_s_only() {
        let folder = folder("private");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let (fresh, old) = (folder.join("fresh"), folder.join("old"));
        std::fs::write(&old, "longer than what comes").unwrap();
        std::fs::set_permissions(&old, Permissions::from_mode(0o644)).unwrap();
        for path in [&fresh, &old] {
            create_private(path).unwrap().write_all(b"new").unwrap();
            assert_eq!(std::fs::read(path).unwrap(), b"new");
            assert_eq!(mode(path), 0o600);
        }
        let before = mode(Path::new("/dev/null"));
        create_private(Path::new("/dev/null")).unwrap();
        assert_eq!(mode(Path::new("/dev/null")), before);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_to_which_a_link_leads_is_not_emptied() {
        let folder = folder("linked");
        let (elsewhere, link) = (folder.join("elsewhere"), folder.join("link"));
        std::fs::write(&elsewhere, "kept").unwrap();
        std::fs::set_permissions(&elsewhere, Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        let error = create_private(&link).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(std::fs::read(&elsewhere).unwrap(), b"kept");
        assert_eq!(
            elsewhere.metadata().unwrap().permissions().mode() & 0o777,
            0o644
        );
        // One that leads nowhere makes no file there.
        std::fs::remove_file(&elsewhere).unwrap();
        assert!(create_private(&link).is_err() && !elsewhere.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_link_to_a_device_or_to_our_output_is_written_through() {
        let folder = folder("device");
        let link = folder.join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        create_private(&link).unwrap().write_all(b"gone").unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        create_private(Path::new("/dev/stdout")).unwrap();
    }
}
