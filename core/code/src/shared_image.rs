// SPDX-License-Identifier: MIT
//! Images that several processes have are read once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use flagfinder_files::facts_of;

use crate::budget::ask_for_room;
use crate::image::Image;
use crate::ModuleInput;

/// Images that are kept for the next process; the one that was asked for last is at the end.
static SHARED: Mutex<Vec<Known>> = Mutex::new(Vec::new());
/// So many are kept, or as many as have so many bytes in their files: an image takes about as much
/// as its file, once all of it was asked for.
const MOST_SHARED: usize = 256;
const MOST_BYTES: u64 = 256 << 20;
/// How often the list is tried, which others hold for moments only, and the time in between.
const ATTEMPTS: usize = 100;
const BETWEEN: Duration = Duration::from_micros(500);

/// By what a module is known to have the same content.
struct Known {
    build_id: Arc<[u8]>,
    file: PathBuf,
    path: String,
    /// Of the file and of its separate debug information, which a build does not change together.
    stamps: [Option<Stamp>; 2],
    image: Arc<Image>,
}

impl Known {
    fn bytes(&self) -> u64 {
        let [own, debug] = self.stamps.map(|stamp| stamp.map_or(0, |(.., size)| size));
        own.max(debug)
    }
}

/// Device, number, seconds and ns of the last change, size.
type Stamp = (u64, u64, i64, i64, u64);

fn stamp(path: &Path) -> Option<Stamp> {
    let file = facts_of(path).ok()?;
    let changed = (file.modified, file.modified_ns);
    Some((file.device, file.inode, changed.0, changed.1, file.size))
}

fn stamps(module: &ModuleInput, image: &Image) -> [Option<Stamp>; 2] {
    [
        stamp(&module.file),
        image.debug_file.as_deref().and_then(stamp),
    ]
}

/// The image of a module that many processes have is read once: it is the same one if path, device,
/// inode, size and time of the file are, and the build-id where one is known. A module that is
/// believed for code of its own process is read each time.
pub(crate) fn shared_image(module: &ModuleInput) -> Arc<Image> {
    if !module.samples.is_empty() {
        return Arc::new(Image::load(module));
    }
    let is_like_it = |known: &&Known| {
        known.build_id == module.identity.build_id
            && known.file == module.file
            && known.path == module.path
    };
    let known = all().and_then(|all| {
        let known = all.iter().rfind(is_like_it)?;
        Some((known.image.clone(), known.stamps))
    });
    // File systems are asked while nobody waits for the list.
    if let Some((image, before)) = known {
        if before == stamps(module, &image) {
            if let Some(mut all) = all() {
                if let Some(at) = all.iter().position(|one| Arc::ptr_eq(&one.image, &image)) {
                    let known = all.remove(at);
                    all.push(known);
                }
            }
            return image;
        }
    }
    let image = Arc::new(Image::load(module));
    if image.file.is_some() {
        ask_for_room(forget_unused);
        let known = Known {
            build_id: module.identity.build_id.clone(),
            file: module.file.clone(),
            path: module.path.clone(),
            stamps: stamps(module, &image),
            image: image.clone(),
        };
        if let Some(mut all) = all() {
            all.push(known);
            while all.len() > MOST_SHARED || all.iter().map(Known::bytes).sum::<u64>() > MOST_BYTES
            {
                all.remove(0);
            }
        }
    }
    image
}

/// What no process needs now gives back what it takes.
fn forget_unused() {
    let Some(mut all) = all() else { return };
    let is_unused = |known: &Known| Arc::strong_count(&known.image) == 1;
    let (unused, kept): (Vec<_>, Vec<_>) = all.drain(..).partition(is_unused);
    *all = kept;
    drop((all, unused));
}

/// The list; `None`: a fork of this process holds it for ever, and nothing is shared.
fn all() -> Option<MutexGuard<'static, Vec<Known>>> {
    for _ in 0..ATTEMPTS {
        match SHARED.try_lock() {
            Ok(all) => return Some(all),
            Err(_) => std::thread::sleep(BETWEEN),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_bytes::map;
    use crate::ModuleIdentity;
    use object::Object;

    fn module(path: &Path, build_id: &[u8]) -> ModuleInput {
        ModuleInput {
            identity: ModuleIdentity::new(&path.to_string_lossy(), build_id),
            path: path.to_string_lossy().into_owned(),
            file: path.to_owned(),
            base: 0,
            segments: Vec::new(),
            samples: Vec::new(),
        }
    }

    #[test]
    fn a_module_of_several_processes_is_read_once_unless_it_is_checked_with_their_code() {
        let own = std::env::current_exe().expect("a path");
        let bytes = map(&own).expect("its bytes");
        let file = object::File::parse(&bytes[..]).expect("an ELF file");
        let is_shared = |of: &ModuleInput| Arc::ptr_eq(&shared_image(of), &shared_image(of));
        // This linker may write no build-id.
        if let Some(build_id) = file.build_id().ok().flatten() {
            assert!(is_shared(&module(&own, build_id)));
        }
        assert!(is_shared(&module(&own, &[])));
        let checked = ModuleInput {
            samples: vec![(0x1000, Box::new([0x90; 16]))],
            ..module(&own, &[])
        };
        assert!(!is_shared(&checked));
        let replaced = shared_image(&module(&own, &[7; 20]));
        assert!(replaced
            .note
            .as_ref()
            .is_some_and(|note| note.contains("put the old file back")));
    }

    #[test]
    fn a_file_that_was_written_anew_is_read_anew() {
        let own = std::env::current_exe().expect("a path");
        let name = format!("ff-shared-image-{}", std::process::id());
        let copy = std::env::temp_dir().join(name);
        std::fs::copy(&own, &copy).expect("a copy");
        let before = shared_image(&module(&copy, &[]));
        std::fs::remove_file(&copy).expect("removed");
        std::fs::copy(&own, &copy).expect("another copy");
        let after = shared_image(&module(&copy, &[]));
        std::fs::remove_file(&copy).expect("removed");
        assert!(!Arc::ptr_eq(&before, &after));
    }
}
