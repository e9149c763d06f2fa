// SPDX-License-Identifier: MIT
//! A system call in an event, packed into a word.

use flagfinder_linux::{syscalls, traits};

use crate::protocol::{CALL_SHIFT, SHORT_SHIFT};

const ARGUMENT: u64 = (1 << CALL_SHIFT) - 1;

/// A call and its first argument (its lower 48 bits, which hold any user address).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// As x86-64 numbers them.
    pub number: u16,
    /// Lower 48 bits of the first argument, without a sign.
    pub first: u64,
}

impl Call {
    /// From the word of an event; `None`: no call.
    pub fn unpack(word: u64) -> Option<Call> {
        let number = ((word >> CALL_SHIFT) as u16).checked_sub(1)?;
        Some(Call {
            number,
            first: word & ARGUMENT,
        })
    }

    /// The word that an event has for it.
    pub fn pack(self) -> u64 {
        (u64::from(self.number) + 1) << CALL_SHIFT | self.first & ARGUMENT
    }

    /// `futex`, or `syscall_999` where the number is nobody's.
    pub fn name(self) -> String {
        Call::name_of(self.number)
    }

    /// The descriptor that the call works on, when its first argument is one.
    pub fn descriptor(self) -> Option<i32> {
        (traits::has_descriptor(self.number.into()) && self.first < 1 << 20)
            .then_some(self.first as i32)
    }
}

/// The word of a call, and its argument or result, from the two fields of a short record.
pub(crate) fn lengthen(flags: u8, b: u32) -> u64 {
    let number = u64::from(flags) | u64::from(b >> SHORT_SHIFT) << 8;
    let signed = ((b << (32 - SHORT_SHIFT)) as i32) >> (32 - SHORT_SHIFT);
    (number + 1) << CALL_SHIFT | signed as u64 & ARGUMENT
}

/// A call and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallEnd {
    /// As x86-64 numbers them.
    pub number: u16,
    /// The lower 48 bits, sign-extended: descriptors, sizes, -errno and addresses come out whole.
    pub result: i64,
}

impl CallEnd {
    /// From the word of an event; `None`: no call.
    pub fn unpack(word: u64) -> Option<CallEnd> {
        let number = ((word >> CALL_SHIFT) as u16).checked_sub(1)?;
        let result = ((word << (64 - CALL_SHIFT)) as i64) >> (64 - CALL_SHIFT);
        Some(CallEnd { number, result })
    }
}

impl Call {
    /// It can pass data or a connection to another thread.
    pub fn sends(number: u16) -> bool {
        traits::sends(number.into())
    }

    /// It takes data from its descriptor.
    pub fn receives(number: u16) -> bool {
        traits::receives(number.into())
    }

    /// It waits for any of several things, and its result is how many of them there are: poll,
    /// select, epoll.
    pub fn looks(number: u16) -> bool {
        traits::looks(number.into())
    }

    /// It may block until something happens.
    pub fn waits(number: u16) -> bool {
        traits::waits(number.into())
    }

    /// It gives the CPU away and has no other purpose.
    pub fn yields(number: u16) -> bool {
        traits::yields(number.into())
    }

    /// The reverse of [`Call::name_of`].
    pub fn number_of(name: &str) -> Option<u16> {
        syscalls::number(name).and_then(|number| number.try_into().ok())
    }

    /// The name of the call with this number.
    pub fn name_of(number: u16) -> String {
        syscalls::name(number.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_has_a_name_that_leads_back_to_it() {
        let waits = [
            (libc::SYS_msgrcv, "msgrcv"),
            (libc::SYS_semtimedop, "semtimedop"),
            (libc::SYS_mq_timedreceive, "mq_timedreceive"),
            (libc::SYS_newfstatat, "newfstatat"),
            (libc::SYS_getdents64, "getdents64"),
        ];
        for (number, name) in waits {
            assert_eq!(Call::name_of(number as u16), name);
            assert_eq!(Call::number_of(name), Some(number as u16));
        }
        assert_eq!(Call::name_of(999), "syscall_999");
    }

    #[test]
    fn calls_and_results_survive_packing() {
        let call = Call {
            number: 0,
            first: 0x7fff_ffff_f000,
        };
        assert_eq!(Call::unpack(call.pack()), Some(call));
        assert_eq!(Call::unpack(0), None);
        let failed = CallEnd::unpack(203 << CALL_SHIFT | (-110i64 as u64 & ARGUMENT));
        assert_eq!(
            failed,
            Some(CallEnd {
                number: 202,
                result: -110
            })
        );
    }
}
