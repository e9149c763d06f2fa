// SPDX-License-Identifier: MIT
//! Patterns of thread names, in the form that `bpf/events.bpf.c` matches them.
//!
//! All patterns are followed at once, letter by letter of the name: bit i of a state says that the
//! i letters of the patterns before it fit so far. A letter moves each bit on that it fits
//! (`next`); before a `*` it also stays (`repeats`). Source: bit-parallel simulation of automata,
//! as in Baeza-Yates and Gonnet, A new approach to text searching (1992).

/// `*` stands for any letters, `?` for one; everything else for itself.
#[derive(Debug, PartialEq, Eq)]
pub struct NamePatterns {
    /// By letter: the bits that it moves on.
    pub(crate) next: [u64; 256],
    pub(crate) begins: u64,
    pub(crate) repeats: u64,
    pub(crate) ends: u64,
}

impl NamePatterns {
    /// Without patterns every name fits. `None`: they have more than 64 letters, where each
    /// pattern's end counts as one.
    pub(crate) fn new(patterns: &[String]) -> Option<NamePatterns> {
        let mut made = NamePatterns::default();
        let mut place = 0;
        for pattern in patterns {
            made.begins |= bit(place)?;
            for letter in pattern.bytes() {
                let here = bit(place)?;
                match letter {
                    b'*' => {
                        made.repeats |= here;
                        continue;
                    }
                    b'?' => made.next.iter_mut().for_each(|moved| *moved |= here),
                    _ => made.next[usize::from(letter)] |= here,
                }
                place += 1;
            }
            made.ends |= bit(place)?;
            place += 1;
        }
        Some(made)
    }

    /// Whether a name fits one of the patterns.
    pub fn fits(&self, name: &str) -> bool {
        let state = name.bytes().fold(self.begins, |state, letter| {
            (state & self.next[usize::from(letter)]) << 1 | state & self.repeats
        });
        self.ends == 0 || state & self.ends != 0
    }
}

/// No pattern: every name fits.
impl Default for NamePatterns {
    fn default() -> Self {
        NamePatterns {
            next: [0; 256],
            begins: 0,
            repeats: 0,
            ends: 0,
        }
    }
}

fn bit(place: u32) -> Option<u64> {
    1u64.checked_shl(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(list: &[&str]) -> Option<NamePatterns> {
        let owned: Vec<String> = list.iter().map(|text| (*text).to_owned()).collect();
        NamePatterns::new(&owned)
    }

    /// What the patterns mean, by definition.
    fn fits(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|from| fits(rest, &name[from..])),
            Some((letter, rest)) => {
                let first = name.split_first();
                first.is_some_and(|(n, tail)| (*letter == b'?' || letter == n) && fits(rest, tail))
            }
        }
    }

    /// All texts of at most three letters of this alphabet.
    fn texts(alphabet: &str) -> Vec<String> {
        let mut all = vec![String::new()];
        for _ in 0..3 {
            let longer = all
                .iter()
                .flat_map(|text| alphabet.chars().map(move |c| format!("{text}{c}")));
            let longer: Vec<String> = longer.collect();
            all.extend(longer);
        }
        all
    }

    #[test]
    fn patterns_mean_what_they_should() {
        let names = texts("ab");
        for pattern in texts("ab*?") {
            // The second pattern must not be reached by the way of the first.
            let both = patterns(&[&pattern, "ba"]).unwrap();
            for name in &names {
                let expected = fits(pattern.as_bytes(), name.as_bytes()) || name == "ba";
                assert_eq!(both.fits(name), expected, "{pattern} {name}");
            }
        }
    }

    #[test]
    fn no_pattern_fits_all_and_too_many_are_refused() {
        assert!(patterns(&[]).unwrap().fits("anything"));
        assert!(patterns(&["x"; 32]).is_some());
        assert_eq!(patterns(&["x"; 33]), None);
    }
}
