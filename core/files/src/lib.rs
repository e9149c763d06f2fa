// SPDX-License-Identifier: MIT
//! The one way to open files that a trace or a process names, and to create files that hold
//! memory of programs.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{fchown, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const OWNER_ONLY: u32 = 0o600;

/// Opens a regular file to read it.
///
/// A FIFO's or a device's open may block or act (rewind a tape, arm a watchdog), so a handle
/// that only names the file comes first. It also keeps anybody from putting another file there
/// between the check and the open.
///
/// # Errors
/// When there is no such file, or it may not be read; `InvalidInput`: it is not regular.
pub fn open_regular(path: &Path) -> Result<File> {
    let handle = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)?;
    if !handle.metadata()?.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    File::open(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

/// Creates a file to read and write, or empties the one that is there, for its owner only. Under
/// sudo a new file belongs to the user who called sudo. What is no regular file stays as it is
/// (`/dev/stdout`), and a file system without owners is no obstacle.
///
/// # Errors
/// When the file can't be created or emptied.
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
            let file = options.create(true).truncate(true).open(path)?;
            if file.metadata()?.is_file() {
                let _ = file.set_permissions(Permissions::from_mode(OWNER_ONLY));
            }
            Ok(file)
        }
        Err(error) => Err(error),
    }
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
    use std::ffi::CString;
    use std::io::{Read, Write};
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("ff-files-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn refused(path: &Path) -> bool {
        open_regular(path).is_err_and(|error| error.kind() == ErrorKind::InvalidInput)
    }

    #[test]
    fn what_is_not_regular_is_refused_and_not_waited_for() {
        let folder = folder("special");
        let fifo = folder.join("fifo");
        let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
        // SAFETY: a path that ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(refused(&fifo));
        let link = folder.join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        assert!(refused(&link) && refused(&folder));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_link_to_a_regular_file_is_followed() {
        let folder = folder("link");
        std::fs::write(folder.join("file"), "text").unwrap();
        std::os::unix::fs::symlink("file", folder.join("link")).unwrap();
        let mut text = String::new();
        let mut file = open_regular(&folder.join("link")).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        std::fs::remove_dir_all(&folder).unwrap();
    }

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
        let fifo = folder.join("fifo");
        let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
        // SAFETY: a path that ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let failed: Result<()> = write_private(&fifo, |_| Err(Error::other("no space left")));
        assert!(failed.is_err() && fifo.exists());
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
}
