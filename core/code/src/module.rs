// SPDX-License-Identifier: MIT
//! Which module an address lies in, said so that another run understands it.

use std::fmt;
use std::sync::Arc;

/// A module as every run knows it: by build-id, or by file name when there is none.
/// Two runs of the same files agree whatever the load addresses and folders.
#[derive(Clone, Debug)]
pub struct ModuleIdentity {
    /// File name without its folder; the whole text for `[vdso]` and its like.
    pub name: Arc<str>,
    /// GNU build-id note; empty when there is none.
    pub build_id: Arc<[u8]>,
}

impl ModuleIdentity {
    /// `path` may carry the kernel's mark of a deleted file, which is left out.
    pub fn new(path: &str, build_id: &[u8]) -> Self {
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let name = path.rsplit('/').next().unwrap_or(path);
        ModuleIdentity {
            name: name.into(),
            build_id: build_id.into(),
        }
    }

    fn key(&self) -> (&[u8], &str) {
        if self.build_id.is_empty() {
            (&[], &self.name)
        } else {
            (&self.build_id, "")
        }
    }

    /// The build-id in hex, as `file` and `readelf` print it.
    pub fn build_id_hex(&self) -> Option<String> {
        let hex = |byte: &u8| format!("{byte:02x}");
        (!self.build_id.is_empty()).then(|| self.build_id.iter().map(hex).collect())
    }
}

impl PartialEq for ModuleIdentity {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for ModuleIdentity {}
impl std::hash::Hash for ModuleIdentity {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// An address as every run knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// `None`: code or data without a file (JIT, heap); then `offset` is the run-time
    /// address and means nothing in another run.
    pub module: Option<ModuleIdentity>,
    /// ELF virtual address within the module (run-time address minus load base).
    pub offset: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.module {
            Some(module) => write!(f, "{}+{:#x}", module.name, self.offset),
            None => write!(f, "{:#x}", self.offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_id_outweighs_the_name() {
        let a = ModuleIdentity::new("/usr/lib/libx.so.1", &[1, 2]);
        assert_eq!(a, ModuleIdentity::new("/tmp/copy", &[1, 2]));
        assert_ne!(a, ModuleIdentity::new("/usr/lib/libx.so.1", &[3]));
        assert_ne!(a, ModuleIdentity::new("/usr/lib/libx.so.1", &[]));
        let plain = ModuleIdentity::new("/a/x (deleted)", &[]);
        assert_eq!(plain, ModuleIdentity::new("/b/x", &[]));
        assert_eq!(a.build_id_hex().as_deref(), Some("0102"));
    }
}
