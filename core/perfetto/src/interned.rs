// SPDX-License-Identifier: MIT
//! Texts that are written once: each has a number from then on (perfetto's `InternedData`).

use std::collections::HashMap;

use prost::Message;

/// All of perfetto's messages of a number and a text are alike on the wire.
#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(uint64, tag = "1")]
    iid: u64,
    #[prost(string, tag = "2")]
    text: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InternedData {
    #[prost(message, repeated, tag = "1")]
    event_categories: Vec<Entry>,
    #[prost(message, repeated, tag = "2")]
    event_names: Vec<Entry>,
    #[prost(message, repeated, tag = "3")]
    debug_annotation_names: Vec<Entry>,
    #[prost(message, repeated, tag = "29")]
    debug_annotation_string_values: Vec<Entry>,
}

/// What has a number, and what of that was not written yet. Numbers begin at 1.
#[derive(Default)]
pub(crate) struct Interned {
    categories: HashMap<String, u64>,
    names: HashMap<String, u64>,
    facts: HashMap<String, u64>,
    texts: HashMap<String, u64>,
    new: InternedData,
}

fn number(known: &mut HashMap<String, u64>, new: &mut Vec<Entry>, text: &str) -> u64 {
    if let Some(&iid) = known.get(text) {
        return iid;
    }
    let iid = known.len() as u64 + 1;
    known.insert(text.to_owned(), iid);
    let text = text.to_owned();
    new.push(Entry { iid, text });
    iid
}

impl Interned {
    pub fn category(&mut self, text: &str) -> u64 {
        number(&mut self.categories, &mut self.new.event_categories, text)
    }

    pub fn name(&mut self, text: &str) -> u64 {
        number(&mut self.names, &mut self.new.event_names, text)
    }

    pub fn fact(&mut self, text: &str) -> u64 {
        let new = &mut self.new.debug_annotation_names;
        number(&mut self.facts, new, text)
    }

    pub fn text(&mut self, text: &str) -> u64 {
        let new = &mut self.new.debug_annotation_string_values;
        number(&mut self.texts, new, text)
    }

    /// What the next packet must bring.
    pub fn take(&mut self) -> Option<InternedData> {
        let new = std::mem::take(&mut self.new);
        (new != InternedData::default()).then_some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_written_once_and_numbers_are_of_one_kind() {
        let mut interned = Interned::default();
        let numbers = ["a", "b", "a"].map(|text| interned.name(text));
        assert_eq!(numbers, [1, 2, 1]);
        assert_eq!(interned.text("b"), 1);
        let written = interned.take().expect("three are new");
        assert_eq!(written.event_names.len(), 2);
        assert_eq!(written.debug_annotation_string_values.len(), 1);
        assert_eq!(interned.name("b"), 2);
        assert_eq!(interned.take(), None);
    }
}
