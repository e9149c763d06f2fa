// SPDX-License-Identifier: MIT
//! The arguments of a process, and the title that some write in their place.

use std::fs::File;
use std::io::{ErrorKind, Read, Result};

use crate::pagemap::Pagemap;
use crate::proc::{path, Stat};

/// The arguments of a process, each with a zero behind it. They are memory of the process, and so
/// they are read only where it has the pages: for others whoever asks may wait for ever.
///
/// # Errors
/// The system's; `WouldBlock`: pages are missing.
pub fn arguments(pid: u32) -> Result<Vec<u8>> {
    /// The kernel takes 6 MiB of arguments and environment.
    const MOST: u64 = 8 << 20;
    let stat = Stat::of(pid).ok_or(ErrorKind::NotFound)?;
    // Behind them lies the environment, into which a process may write its title. Whoever may not
    // look at its memory is told 0, and can't ask for its pages either.
    let ranges = [Stat::ARGUMENTS, Stat::ENVIRONMENT].map(|first| {
        let place = |number| stat.field::<u64>(number).unwrap_or(0);
        (place(first), place(first + 1))
    });
    if let Ok(pages) = Pagemap::open(pid) {
        for (start, end) in ranges.into_iter().filter(|(start, end)| end > start) {
            let there = end - start <= MOST && pages.are_all_there(start, end);
            if !there {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
    }
    // Meanwhile it may have told the kernel of another place.
    let mut bytes = Vec::new();
    let file = File::open(path(pid, "cmdline"))?;
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What a process calls itself in place of its arguments, as `postgres: app db [local] idle` or
/// `nginx: worker process`; by custom its name comes first, and a colon. `None`: it shows its
/// arguments.
pub fn title(pid: u32) -> Option<String> {
    let arguments = arguments(pid).ok()?;
    title_of(&String::from_utf8_lossy(&arguments)).map(str::to_owned)
}

fn title_of(arguments: &str) -> Option<&str> {
    // It overwrites its arguments, and what is left of them is empty.
    let title = arguments.trim_end_matches(['\0', ' ']);
    let (name, text) = title.split_once(": ")?;
    let is_name = !name.is_empty() && !name.contains(['/', ' ', '\0']);
    (is_name && !text.contains('\0')).then_some(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_those_that_the_kernel_tells() {
        let own = std::process::id();
        let told = std::fs::read("/proc/self/cmdline").unwrap();
        assert!(!told.is_empty());
        assert_eq!(arguments(own).unwrap(), told);
    }

    #[test]
    fn a_title_is_told_from_arguments() {
        let waits = "postgres: app db [local] UPDATE waiting";
        assert_eq!(title_of(&format!("{waits}\0\0\0")), Some(waits));
        assert_eq!(
            title_of("nginx: worker process   "),
            Some("nginx: worker process")
        );
        assert_eq!(title_of("sh\0-c\0echo: a\0"), None);
        assert_eq!(title_of("/bin/a: b"), None);
        assert_eq!(title_of("cat\0"), None);
    }
}
