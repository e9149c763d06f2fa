// SPDX-License-Identifier: MIT
//! Where a thread serves several requests in one wake-up, what it does is split into *items*: each
//! begins with a message that has nothing to do with the one before. A wait that blocks splits by
//! itself.
//!
//! In: messages, and who is at the other end of their connections (recorded with `--syscalls
//! target`). Out: where the next item begins. Only what is received begins one. What is sent on
//! belongs to the request that led to it, also if its receiver is not the one who asked. Blind
//! spots: requests that are read together and served later; those that are handed over in memory.

/// What a thread has exchanged since its vertex began. Connections are numbers of
/// [`crate::messages::Messages`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Item {
    /// Connection of the newest message.
    last: Option<u32>,
    /// Connection of the first message, if that was received.
    asked: Option<u32>,
    /// The thread that asked has got an answer.
    answered: bool,
    /// Since the newest message it has looked for events, and found some.
    looked: bool,
}

impl Item {
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// A call that waits for events found some.
    pub fn looks(&mut self) {
        self.looked = true;
    }

    /// `same`: whether two connections may have the same peer.
    pub fn sends(&mut self, to: u32, same: impl Fn(u32, u32) -> bool) {
        self.answered |= self.asked.is_some_and(|asked| same(asked, to));
        (self.last, self.looked) = (Some(to), false);
    }

    /// Whether a received message begins the next item: it comes from other peers than the one
    /// before, or in the next turn of an event loop, or after the answer to the message with which
    /// this item began.
    pub fn receives(&mut self, from: u32, same: impl Fn(u32, u32) -> bool) -> bool {
        let is_next = self.last.is_some_and(|last| {
            let is_answered = self.answered && self.asked.is_some_and(|asked| same(asked, from));
            self.looked || is_answered || !same(last, from)
        });
        if is_next {
            *self = Item::default();
        }
        if self.last.is_none() {
            self.asked = Some(from);
        }
        (self.last, self.looked) = (Some(from), false);
        is_next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a thread does: receives from a connection, sends to one, looks for events.
    enum Does {
        Gets(u32),
        Sends(u32),
        Looks,
    }
    use Does::{Gets, Looks, Sends};

    /// For each received message, whether it begins an item. Connections whose numbers differ only
    /// in the last digit have the same peer.
    fn beginnings(all: &[Does]) -> Vec<bool> {
        let mut item = Item::default();
        let same = |a: u32, b: u32| a / 10 == b / 10;
        let mut found = Vec::new();
        for what in all {
            match what {
                Gets(from) => found.push(item.receives(*from, same)),
                Sends(to) => item.sends(*to, same),
                Looks => item.looks(),
            }
        }
        found
    }

    #[test]
    fn the_first_message_belongs_to_the_wake() {
        assert_eq!(beginnings(&[Looks, Gets(10)]), [false]);
        assert_eq!(beginnings(&[Sends(20), Gets(20)]), [false]);
    }

    #[test]
    fn other_peers_begin_an_item() {
        assert_eq!(
            beginnings(&[Gets(10), Gets(20), Gets(10)]),
            [false, true, true]
        );
        assert_eq!(beginnings(&[Gets(10), Sends(20), Gets(30)]), [false, true]);
    }

    #[test]
    fn what_is_sent_on_and_its_answer_belong_to_the_request() {
        assert_eq!(
            beginnings(&[Gets(10), Sends(20), Gets(20), Sends(10)]),
            [false, false]
        );
    }

    #[test]
    fn a_message_in_pieces_is_one() {
        assert_eq!(beginnings(&[Gets(10), Gets(11), Gets(10)]), [false; 3]);
    }

    #[test]
    fn a_request_after_the_answer_is_the_next() {
        assert_eq!(
            beginnings(&[Gets(10), Sends(11), Gets(10), Gets(10)]),
            [false, true, false]
        );
    }

    #[test]
    fn a_turn_of_an_event_loop_is_an_item() {
        assert_eq!(
            beginnings(&[Gets(10), Looks, Gets(10), Sends(10)]),
            [false, true]
        );
        assert_eq!(
            beginnings(&[Gets(10), Looks, Sends(10), Gets(10)]),
            [false, true]
        );
    }
}
