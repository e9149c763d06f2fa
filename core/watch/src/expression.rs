// SPDX-License-Identifier: MIT
//! `pool->workers[2].state`: an access path, followed through debug information and the live
//! process's memory.
//!
//! Grammar: `*`s, a variable, then `.name`, `->name` and `[number]`. `.` and `->` mean the same:
//! pointers on the way are followed, the last one is not, so that a pointer can be watched itself.

use flagfinder_code::{AddressSpace, Names, ProcessMemory, TypeRef};

/// What an expression names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evaluated {
    pub address: u64,
    /// 0: unknown.
    pub size: u64,
}

/// One step from a value to a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Member(String),
    Index(u64),
}

/// An expression, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub variable: String,
    steps: Vec<Step>,
    dereferences: usize,
}

impl Path {
    /// # Errors
    /// Says what is not understood.
    pub fn parse(text: &str) -> Result<Path, String> {
        let mut rest = text.trim();
        let mut dereferences = 0;
        while let Some(inner) = rest.strip_prefix('*') {
            dereferences += 1;
            rest = inner.trim_start();
        }
        let (variable, mut rest) = name(rest).ok_or_else(|| format!("no variable in {text:?}"))?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix('[') {
                let (digits, after) = inner.split_once(']').ok_or("a [ without ]")?;
                steps.push(Step::Index(number(digits.trim())?));
                rest = after.trim_start();
                continue;
            }
            let dotted = rest.strip_prefix("->").or_else(|| rest.strip_prefix('.'));
            let member = dotted.and_then(|inner| name(inner.trim_start()));
            let (member, after) = member.ok_or_else(|| format!("{rest:?} is not understood"))?;
            steps.push(Step::Member(member));
            rest = after;
        }
        Ok(Path {
            variable,
            steps,
            dereferences,
        })
    }

    /// Follows the path from the variable at `address`.
    ///
    /// # Errors
    /// Says which step failed and why.
    pub fn follow(
        &self,
        names: &Names,
        memory: &ProcessMemory,
        address: u64,
        kind: TypeRef,
    ) -> Result<Evaluated, String> {
        let mut at = (address, kind);
        let mut path = self.variable.clone();
        let mut steps = &self.steps[..];
        while let Some(step) = steps.first() {
            match step {
                Step::Member(member) => {
                    while names.member(at.1, member).is_none() {
                        at = load(names, memory, at, &path)
                            .map_err(|why| format!("{path} has no member {member} ({why})"))?;
                    }
                    let (offset, kind) = names.member(at.1, member).ok_or("unreachable")?;
                    at = (at.0.wrapping_add(offset), kind);
                    path = format!("{path}.{member}");
                    steps = &steps[1..];
                }
                Step::Index(index) => {
                    let Some((element, counts)) = names.array(at.1) else {
                        at = load(names, memory, at, &path)?;
                        let size = names.type_size(at.1).ok_or("its elements have no size")?;
                        at.0 = at.0.wrapping_add(size.wrapping_mul(*index));
                        path = format!("{path}[{index}]");
                        steps = &steps[1..];
                        continue;
                    };
                    let mut flat = 0u64;
                    for (dimension, count) in counts.iter().enumerate() {
                        let Some(Step::Index(index)) = steps.get(dimension) else {
                            return Err(format!("{path} has {} dimensions", counts.len()));
                        };
                        if *count > 0 && index >= count {
                            return Err(format!("{path} has {count} elements, not {index}"));
                        }
                        flat = flat.wrapping_mul(*count).wrapping_add(*index);
                        path = format!("{path}[{index}]");
                    }
                    let size = names
                        .type_size(element)
                        .ok_or("its elements have no size")?;
                    at = (at.0.wrapping_add(flat.wrapping_mul(size)), element);
                    steps = &steps[counts.len().max(1)..];
                }
            }
        }
        for _ in 0..self.dereferences {
            at = load(names, memory, at, &path)?;
            path = format!("*{path}");
        }
        Ok(Evaluated {
            address: at.0,
            size: names.type_size(at.1).unwrap_or(0),
        })
    }
}

/// Follows the pointer at a place.
fn load(
    names: &Names,
    memory: &ProcessMemory,
    at: (u64, TypeRef),
    path: &str,
) -> Result<(u64, TypeRef), String> {
    let target = names.pointee(at.1);
    let target = target.ok_or_else(|| format!("{path} is no pointer"))?;
    match memory.number(at.0, 8) {
        Some(0) => Err(format!("{path} is a null pointer now")),
        Some(address) => Ok((address, target)),
        None => Err(format!("{path} can't be read at {:#x}", at.0)),
    }
}

/// A C or C++ name (`app::server` too) and what follows it.
fn name(text: &str) -> Option<(String, &str)> {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':' || c == '$'));
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    let starts = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
    starts.then(|| (name.to_owned(), rest.trim_start()))
}

fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text:?} is no index"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        let path = Path::parse("*pool->workers[0x2] . state").expect("understood");
        let member = |name: &str| Step::Member(name.into());
        assert_eq!((&path.variable[..], path.dereferences), ("pool", 1));
        assert_eq!(
            path.steps,
            [member("workers"), Step::Index(2), member("state")]
        );
        for wrong in ["", "[1]", "a[", "a[x]", "a..b", "a + b", "a->"] {
            assert!(Path::parse(wrong).is_err(), "{wrong}");
        }
    }
}
