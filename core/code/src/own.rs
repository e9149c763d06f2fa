// SPDX-License-Identifier: MIT
//! Whose code a place is: the author's of the program, a package's that was installed for it, or
//! what serves any program.
//!
//! In: an address, or what an interpreter says of a frame. Out: a [`Spot`], and whose it is. The
//! first place of the author's own in a stack is what a reader looks for. Blind spots: a library
//! of the author's that was installed among the system's; a standard library that was linked in
//! and has neither symbols nor lines.

use serde::{Deserialize, Serialize};

use crate::name::{hex_option, is_standard_module, is_standard_name, of_hex_option};
use crate::names::Names;
use crate::symbols::demangle;

/// A place in a program, as its author knows it. Absent knowledge is null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spot {
    /// As its language writes it.
    pub function: Option<String>,
    /// The path of the source, as debug information or an interpreter has it.
    pub file: Option<String>,
    /// Of that file, from 1.
    pub line: Option<u32>,
    /// File name of the module; null: an interpreter runs it.
    #[serde(default)]
    pub module: Option<String>,
    /// ELF virtual address of the call in the module.
    #[serde(
        default,
        serialize_with = "hex_option",
        deserialize_with = "of_hex_option"
    )]
    pub offset: Option<u64>,
    /// Of the innermost place of the author's: where the author's code called its function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called_at: Option<Box<Spot>>,
}

/// So many callers are told of a place: what an author wraps a wait in has few more.
const CALLERS: usize = 3;

/// The nearer to the author the smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// The author's of the program.
    Own,
    /// Installed for the program.
    Package,
    /// What serves any program: the system's, a language's, a virtual machine's.
    System,
}

/// Folders of the system's modules, and of sources of languages' libraries.
const SYSTEM_FOLDERS: &[&str] = &[
    "/lib/",
    "/lib32/",
    "/lib64/",
    "/bin/",
    "/sbin/",
    "/usr/lib/",
    "/usr/lib32/",
    "/usr/lib64/",
    "/usr/libexec/",
    "/usr/bin/",
    "/usr/sbin/",
    "/usr/include/",
    "/usr/local/go/src/",
    "/usr/share/go",
    "/usr/share/perl",
    "/rustc/",
    "<frozen ",
    "<built-in",
];
/// Parts of such paths that lie anywhere.
const SYSTEM_PARTS: &[&str] = &["/lib/rustlib/src/", "/include/c++/"];
/// Parts of paths of packages.
const PACKAGE_PARTS: &[&str] = &[
    "/site-packages/",
    "/dist-packages/",
    "/.cargo/registry/",
    "/.cargo/git/",
    "/pkg/mod/",
    "/node_modules/",
    "/vendor/",
    "/local/share/perl",
    "/lib/perl5/",
];
/// What the file names of virtual machines begin with.
const MACHINES: &[&str] = &[
    "python",
    "libpython",
    "node",
    "libnode",
    "ruby",
    "libruby",
    "perl",
    "libperl",
    "php",
    "java",
    "libjvm.so",
    "libjli.so",
    "lua",
    "libasan.so",
    "libtsan.so",
    "libubsan.so",
];
/// What is there in front of the program's first function, and around each thread's.
const STARTS: &[&str] = &["_start", "__libc_start", "_rt0_", "runtime."];

fn begins(text: &str, list: &[&str]) -> bool {
    list.iter().any(|one| text.starts_with(one))
}

fn holds(text: &str, list: &[&str]) -> bool {
    list.iter().any(|one| text.contains(one))
}

/// Whose the file of a source or of a module is.
pub fn whose_file(path: &str) -> Whose {
    if holds(path, PACKAGE_PARTS) {
        Whose::Package
    } else if begins(path, SYSTEM_FOLDERS) || holds(path, SYSTEM_PARTS) || is_of_python(path) {
        Whose::System
    } else {
        Whose::Own
    }
}

/// Python's own library: `/lib/python3.11/..`.
fn is_of_python(path: &str) -> bool {
    ["/lib/python3", "/lib64/python3"].iter().any(|part| {
        let behind = path.split_once(part).map(|(_, behind)| behind);
        behind.is_some_and(|behind| behind.contains('/'))
    })
}

/// First parts of the names of Go's own packages.
const GO_PACKAGES: &str =
    "archive bufio bytes cmp compress container context crypto database debug \
    embed encoding errors expvar flag fmt go hash html image index internal io iter log maps math \
    mime net os path plugin reflect regexp runtime slices sort strconv strings structs sync \
    syscall testing text time unicode unique vendor weak";

/// Is it a function of Go's own library?
pub fn is_of_go(function: &str) -> bool {
    let package = function.split(['/', '.', ':']).next().unwrap_or_default();
    GO_PACKAGES.split_whitespace().any(|one| one == package)
}

impl Spot {
    /// Whose it is where an interpreter runs it.
    pub fn whose(&self) -> Whose {
        self.file.as_deref().map_or(Whose::System, whose_file)
    }

    /// The innermost of the author's own, or else of a package, with the next ones as its callers.
    pub fn first_own<'s>(spots: impl IntoIterator<Item = (Whose, &'s Spot)>) -> Option<Spot> {
        let mut known: Vec<(Whose, &Spot)> = spots
            .into_iter()
            .filter(|(whose, _)| *whose < Whose::System)
            .collect();
        // Those that are alike stay in their order.
        known.sort_by_key(|(whose, _)| *whose);
        let (whose, _) = *known.first()?;
        let alike = known.iter().take_while(|(of, _)| *of == whose);
        let told: Vec<&Spot> = alike.map(|(_, spot)| *spot).take(1 + CALLERS).collect();
        let outermost_first = told.into_iter().rev().cloned();
        outermost_first.fold(None, |caller, spot| {
            let called_at = caller.map(Box::new);
            Some(Spot { called_at, ..spot })
        })
    }
}

impl Names {
    /// The places of a call, which goes on at `return_address`: the function that holds it, and in
    /// front of that those that were inlined into it, innermost first.
    pub fn spots(&self, return_address: u64) -> Vec<(Whose, Spot)> {
        let Some((index, probe)) = self.locate(return_address.wrapping_sub(1)) else {
            return Vec::new();
        };
        let module = &self.input().modules[index];
        let image = self.image(index);
        let symbol = image.symbols.code.covering(probe, &image.segment(probe));
        let go = image.go.as_ref().and_then(|go| go.function(probe));
        let outer = symbol
            .map(|found| demangle(found.name))
            .or_else(|| go.as_ref().map(|function| function.name.clone()));
        let lines = image.debug().map(|debug| debug.lines_at(probe));
        let mut lines = lines.unwrap_or_default();
        if lines.is_empty() {
            let table = image.go.as_ref().zip(go.as_ref());
            let line = table.and_then(|(table, function)| table.line(function, probe));
            let (file, line) = line.unzip();
            lines.push((outer.clone(), file, line));
        }
        let of_module = whose_module(&module.path, &module.identity.name);
        let spot = |(function, file, line): (Option<String>, Option<String>, Option<u32>)| {
            let function = function.or_else(|| outer.clone());
            let whose = match (of_module, function.as_deref()) {
                (Whose::Own, Some(name)) if image.go.is_some() && is_of_go(name) => Whose::System,
                (Whose::Own, Some(name)) if is_standard_name(name) || begins(name, STARTS) => {
                    Whose::System
                }
                (Whose::Own, _) => file.as_deref().map_or(Whose::Own, whose_file),
                (other, _) => other,
            };
            let spot = Spot {
                function,
                file,
                line,
                module: Some(module.identity.name.to_string()),
                offset: Some(probe),
                called_at: None,
            };
            (whose, spot)
        };
        lines.into_iter().map(spot).collect()
    }
}

pub(crate) fn whose_module(path: &str, name: &str) -> Whose {
    match path.starts_with('/') && !is_standard_module(name) && !begins(name, MACHINES) {
        true => whose_file(path),
        false => Whose::System,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_go_itself_are_told_from_the_programs() {
        for own in [
            "main.main.func1",
            "example.org/app/v2.(*Pool).Run",
            "gopkg.in/x.v1.F",
            "shop.TestOrder",
            "shop/store.(*Store).Get",
        ] {
            assert!(!is_of_go(own), "{own}");
        }
        for library in [
            "runtime.gopark",
            "net/http.(*conn).serve",
            "vendor/golang.org/x/net.F",
        ] {
            assert!(is_of_go(library), "{library}");
        }
    }

    #[test]
    fn files_of_languages_and_packages_are_told_from_the_authors() {
        for (path, whose) in [
            ("/home/me/app/dead.c", Whose::Own),
            ("src/main.rs", Whose::Own),
            ("/rustc/4d91de/library/std/src/sync/mutex.rs", Whose::System),
            ("/usr/include/c++/12/bits/std_mutex.h", Whose::System),
            (
                "/home/me/.pyenv/versions/3.11.7/lib/python3.11/queue.py",
                Whose::System,
            ),
            (
                "/venv/lib/python3.11/site-packages/_pytest/runner.py",
                Whose::Package,
            ),
            ("<frozen importlib._bootstrap>", Whose::System),
            ("<string>", Whose::Own),
            (
                "/home/me/.cargo/registry/src/x/tokio-1.0/src/park.rs",
                Whose::Package,
            ),
            ("/usr/share/perl/5.36/Thread/Queue.pm", Whose::System),
            ("/usr/local/share/perl/5.36.0/Moose.pm", Whose::Package),
        ] {
            assert_eq!(whose_file(path), whose, "{path}");
        }
        assert_eq!(
            whose_module("/home/me/v/bin/python3.11", "python3.11"),
            Whose::System
        );
        assert_eq!(whose_module("/home/me/app", "app"), Whose::Own);
        assert_eq!(whose_module("[vdso]", "[vdso]"), Whose::System);
    }

    #[test]
    fn a_package_is_told_only_where_nothing_is_the_authors() {
        let spot = |name: &str| Spot {
            function: Some(name.into()),
            ..Spot::default()
        };
        let (wait, park, own) = (spot("wait"), spot("park"), spot("own"));
        let all = [
            (Whose::System, &wait),
            (Whose::Package, &park),
            (Whose::Own, &own),
        ];
        assert_eq!(Spot::first_own(all), Some(own.clone()));
        assert_eq!(
            Spot::first_own(all[..2].iter().copied()),
            Some(park.clone())
        );
        assert_eq!(Spot::first_own(all[..1].iter().copied()), None);
        let main = spot("main");
        let found = Spot::first_own(all.into_iter().chain([(Whose::Own, &main)]));
        let called_at = Some(Box::new(main.clone()));
        let own = own.clone();
        assert_eq!(found, Some(Spot { called_at, ..own }));
    }
}
