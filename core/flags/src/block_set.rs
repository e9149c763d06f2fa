// SPDX-License-Identifier: MIT
//! Sets of blocks of one process.

use flagfinder_trace::BlockId;

/// A set of blocks. Ids are dense, so each block has one bit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockSet {
    words: Vec<u64>,
}

impl BlockSet {
    #[inline]
    pub fn insert(&mut self, id: BlockId) {
        let word = id as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (id % 64);
    }

    #[inline]
    pub fn contains(&self, id: BlockId) -> bool {
        let word = self.words.get(id as usize / 64);
        word.is_some_and(|word| word >> (id % 64) & 1 == 1)
    }

    pub fn extend(&mut self, other: &BlockSet) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine |= theirs;
        }
    }

    pub fn is_subset(&self, of: &BlockSet) -> bool {
        let theirs = of.words.iter().copied().chain(std::iter::repeat(0));
        self.words.iter().zip(theirs).all(|(a, b)| a & !b == 0)
    }

    pub fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| index as BlockId * 64 + bit)
        })
    }
}

impl FromIterator<BlockId> for BlockSet {
    fn from_iter<I: IntoIterator<Item = BlockId>>(ids: I) -> Self {
        let mut set = BlockSet::default();
        ids.into_iter().for_each(|id| set.insert(id));
        set
    }
}
