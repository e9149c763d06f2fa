// SPDX-License-Identifier: MIT
//! Answers that take long to find and are asked for again and again.

use std::hash::Hash;
use std::sync::{PoisonError, RwLock};

use rustc_hash::FxHashMap;

/// Answers by question; several threads may ask. If two find the same answer at once, both answers
/// are the same.
#[derive(Debug)]
pub(crate) struct Memo<K, V>(RwLock<FxHashMap<K, V>>);

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Memo(RwLock::default())
    }
}

impl<K: Eq + Hash, V: Clone> Memo<K, V> {
    pub fn get(&self, key: K, find: impl FnOnce() -> V) -> V {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = known.get(&key) {
            return answer.clone();
        }
        drop(known);
        let answer = find();
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(key, answer.clone());
        answer
    }
}
