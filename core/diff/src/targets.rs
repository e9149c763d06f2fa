// SPDX-License-Identifier: MIT
//! The calls worth looking at: those open at the end of a spinning thread, and their likes
//! elsewhere.

use crate::call_stack::Frame;
use crate::space::PlaceId;
use rustc_hash::FxHashMap;

/// Longest chain of callers that is compared if whole contexts differ.
const SUFFIX_LIMIT: usize = 64;
/// Of a very deep stack only so many innermost frames are looked at.
const CHAIN_LIMIT: usize = 256;
/// Of one function only so many frames of a stack are told apart (deep recursion).
const SAME_FUNCTION_LIMIT: usize = 8;

/// How well a call's context agrees with a target's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The very frame that is open at the end.
    Final,
    /// The same chain of call sites up to the thread's root.
    Full,
    /// The same call site, another way there.
    Caller,
    /// The same function only.
    Function,
}

const CLASSES: [Class; 4] = [Class::Final, Class::Full, Class::Caller, Class::Function];

/// One call context of interest.
#[derive(Clone, Debug)]
pub struct Target {
    pub function: u32,
    pub call_site: PlaceId,
    /// The caller's target, if that is one.
    pub parent: Option<u32>,
}

#[derive(Debug, Default)]
pub struct Targets {
    list: Vec<Target>,
    by_context: FxHashMap<u64, u32>,
    by_function: FxHashMap<u32, Vec<u32>>,
}

impl Targets {
    /// Adds the frames of a stack; gives for each frame its target (`None` where the stack is too
    /// deep).
    pub fn add_stack(&mut self, frames: &[Frame]) -> Vec<Option<u32>> {
        let skipped = frames.len().saturating_sub(CHAIN_LIMIT);
        let mut chain = vec![None; skipped];
        let mut parent = None;
        for frame in &frames[skipped..] {
            let number = match self.by_context.get(&frame.context) {
                Some(&number) => number,
                None => {
                    let number = self.list.len() as u32;
                    self.list.push(Target {
                        function: frame.function,
                        call_site: frame.call_site,
                        parent,
                    });
                    self.by_context.insert(frame.context, number);
                    self.by_function
                        .entry(frame.function)
                        .or_default()
                        .push(number);
                    number
                }
            };
            parent = Some(number);
            chain.push(parent);
        }
        chain
    }

    /// Bounds the work per call; to be called when all stacks are in.
    pub fn seal(&mut self) {
        for numbers in self.by_function.values_mut() {
            let surplus = numbers.len().saturating_sub(SAME_FUNCTION_LIMIT);
            numbers.drain(..surplus);
        }
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn get(&self, target: u32) -> &Target {
        &self.list[target as usize]
    }

    /// The target that the last frame of `stack` is like, how well, and how many callers agree.
    pub fn classify(&self, stack: &[Frame]) -> Option<(u32, Class, usize)> {
        let top = stack.last()?;
        let numbers = self.by_function.get(&top.function)?;
        if let Some(&target) = self.by_context.get(&top.context) {
            return Some((target, Class::Full, stack.len()));
        }
        let (shared, target) = numbers
            .iter()
            .map(|&number| (self.shared_callers(number, stack), number))
            .max_by_key(|&(shared, number)| (shared, number))?;
        let class = if shared > 0 {
            Class::Caller
        } else {
            Class::Function
        };
        Some((target, class, shared))
    }

    fn shared_callers(&self, target: u32, stack: &[Frame]) -> usize {
        let mut next = Some(target);
        let mut shared = 0;
        for frame in stack.iter().rev().take(SUFFIX_LIMIT) {
            let Some(number) = next else { break };
            let known = self.get(number);
            if known.function != frame.function
                || known.call_site != frame.call_site
                || frame.call_site == 0
            {
                break;
            }
            shared += 1;
            next = known.parent;
        }
        shared
    }
}

/// A frame's mark: 0 none, else target and class.
pub fn tag(target: u32, class: Class) -> u32 {
    1 + target * 4 + class as u32
}

/// Undoes [`tag`]; `None` for 0.
pub fn untag(tag: u32) -> Option<(u32, Class)> {
    let tag = tag.checked_sub(1)?;
    Some((tag / 4, CLASSES[tag as usize % 4]))
}
