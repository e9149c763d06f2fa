// SPDX-License-Identifier: MIT
//! Files that the user names.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::file_system::is_made_up;

/// Opens a regular file to read it. What a patient, a core or a trace names is opened by
/// [`crate::open_named`].
///
/// A FIFO's or a device's open may block or act (rewind a tape, arm a watchdog), so a handle that
/// only names the file comes first. It also keeps anybody from putting another file there between
/// the check and the open. A link may lead to a file of the kernel's, which may be emptied by
/// reading it (`/proc/kmsg`).
///
/// # Errors
/// When there is no such file, or it may not be read; `InvalidInput`: it is not regular.
pub fn open_regular(path: &Path) -> Result<File> {
    let handle = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)?;
    if !handle.metadata()?.is_file() || is_made_up(&handle) {
        return Err(Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    File::open(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::{fifo_in, folder};
    use std::io::Read;

    fn refused(path: &Path) -> bool {
        open_regular(path).is_err_and(|error| error.kind() == ErrorKind::InvalidInput)
    }

    #[test]
    fn what_is_not_regular_is_refused_and_not_waited_for() {
        let folder = folder("special");
        let fifo = fifo_in(&folder);
        assert!(refused(&fifo));
        let link = folder.join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        assert!(refused(&link) && refused(&folder));
        assert!(refused(Path::new("/proc/self/maps")));
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
}
