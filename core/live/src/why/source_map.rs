// SPDX-License-Identifier: MIT
//! Where a compiled script of JavaScript comes from, as it says itself.
//!
//! In: a script's text, whose last comment is a source map (what jest, vitest and `tsc
//! --inlineSourceMap` leave). Out: the file and line that a place in it was compiled from. Maps in
//! files of their own are not asked: there the place in the script is one that a reader can find.

use serde::Deserialize;

const COMMENT: &str = "//# sourceMappingURL=data:application/json";
const BASE64: &str = ";base64,";
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[derive(Deserialize)]
pub struct SourceMap {
    sources: Vec<String>,
    /// Of each line, split by `;`, its pieces, split by `,`: the column, and the differences of
    /// source, line and column to the piece before, which may stand in a line before.
    mappings: String,
}

impl SourceMap {
    /// `None`: the text has no map in it.
    pub fn of(text: &str) -> Option<SourceMap> {
        let (_, comment) = text.rsplit_once(COMMENT)?;
        let (_, code) = comment.split_once(BASE64)?;
        let code = code.split_ascii_whitespace().next()?;
        serde_json::from_slice(&bytes(code.trim_end_matches('='))?).ok()
    }

    /// The file, and the line from 1, of this place in the script, both counted from 0. `None`:
    /// the compiler wrote that line on its own.
    pub fn origin(&self, line: usize, column: i64) -> Option<(&str, u32)> {
        let (mut source, mut from) = (0, 0);
        let mut found = None;
        for (number, pieces) in self.mappings.split(';').enumerate().take(line + 1) {
            let mut at = 0;
            for piece in pieces.split(',').filter(|piece| !piece.is_empty()) {
                let mut numbers = numbers(piece);
                at += numbers.next()?;
                let (Some(other), Some(further)) = (numbers.next(), numbers.next()) else {
                    continue;
                };
                (source, from) = (source + other, from + further);
                if number == line && (found.is_none() || at <= column) {
                    found = Some((source, from));
                }
            }
        }
        let (source, from) = found?;
        let source = self.sources.get(usize::try_from(source).ok()?)?;
        Some((source, u32::try_from(from).ok()?.checked_add(1)?))
    }
}

fn digit(of: u8) -> Option<u32> {
    Some(DIGITS.iter().position(|digit| *digit == of)? as u32)
}

fn bytes(code: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for four in code.as_bytes().chunks(4) {
        let digits = four.iter().map(|of| digit(*of));
        let bits = digits.rev().enumerate().try_fold(0, |bits, (at, one)| {
            Some(bits | one? << (6 * (at + 4 - four.len())))
        })?;
        bytes.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    Some(bytes)
}

/// Five bits a digit, the lowest first; the sixth says that more follow, the lowest is the sign.
fn numbers(piece: &str) -> impl Iterator<Item = i64> + '_ {
    let mut digits = piece.bytes();
    std::iter::from_fn(move || {
        let (mut sum, mut shift) = (0i64, 0);
        loop {
            let bits = digit(digits.next()?)?;
            if shift > 30 {
                return None;
            }
            sum |= i64::from(bits & 31) << shift;
            shift += 5;
            if bits & 32 == 0 {
                let number = sum >> 1;
                return Some(if sum & 1 == 1 { -number } else { number });
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_led_back_to_the_line_that_it_was_compiled_from() {
        // Line 0 is the compiler's own; line 1 has columns 0 and 8 from lines 3 and 4 of b.ts.
        let map = r#"{"version":3,"sources":["a.ts","b.ts"],"mappings":";ACEA,QACA;AADA"}"#;
        let map: SourceMap = serde_json::from_str(map).expect("a map");
        assert_eq!(map.origin(0, 0), None);
        assert_eq!(map.origin(1, 7), Some(("b.ts", 3)));
        assert_eq!(map.origin(1, 8), Some(("b.ts", 4)));
        assert_eq!(map.origin(2, 0), Some(("b.ts", 3)), "one line back");
        assert_eq!(map.origin(3, 0), None);
    }

    #[test]
    fn the_last_comment_has_the_map() {
        let code = "eyJzb3VyY2VzIjpbImEudHMiXSwibWFwcGluZ3MiOiJBQUFBIn0=";
        let script = |url: &str| format!("x();\n//# sourceMappingURL={url}\n");
        let inline = script(&format!(
            "data:application/json;charset=utf-8;base64,{code}"
        ));
        let map = SourceMap::of(&inline).expect("a map");
        assert_eq!(map.origin(0, 0), Some(("a.ts", 1)));
        assert!(SourceMap::of(&script("a.js.map")).is_none());
        assert!(SourceMap::of(&script("data:application/json;base64,?!")).is_none());
    }
}
