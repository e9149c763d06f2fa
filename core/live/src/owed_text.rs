// SPDX-License-Identifier: MIT
//! What has to happen before a thread writes, as a sentence.

use flagfinder_code::Names;
use flagfinder_linux::syscalls::{self, Role};
use flagfinder_linux::{futex, timeout};
use flagfinder_replica::{Replica, Supposed, Supposition};

/// Most answers that are told.
const MOST: usize = 16;

/// The call that the thread stands before.
pub(crate) struct Before {
    call: Option<(u32, [u64; 6])>,
}

impl Before {
    /// # Errors
    /// When the copy's process is gone.
    pub fn of(copy: &mut Replica) -> std::io::Result<Before> {
        let is_before = copy.is_before_call()?;
        let r = copy.registers();
        let call = (r.rax as u32, [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]);
        Ok(Before {
            call: is_before.then_some(call),
        })
    }
}

/// `supposed`: what was answered meanwhile, as `how` says.
pub(crate) fn after(
    before: &Before,
    supposed: &[Supposed],
    how: Supposition,
    names: &Names,
) -> String {
    let Some(first) = supposed.first() else {
        return by_itself(before);
    };
    let text = answered(first, how, names);
    match supposed.len() {
        1 => text,
        2 => format!("{text}, and one more call comes back like that"),
        count => format!("{text}, and {} more calls come back like that", count - 1),
    }
}

/// Each answer that was supposed, of those that are alike one.
pub(crate) fn each(supposed: &[Supposed], how: Supposition, names: &Names) -> Vec<String> {
    let mut all: Vec<String> = supposed
        .iter()
        .map(|call| answered(call, how, names))
        .collect();
    all.dedup();
    all.truncate(MOST);
    all
}

/// Nothing but time had to pass for the calls.
fn by_itself(before: &Before) -> String {
    let Some((number, arguments)) = &before.call else {
        return "the thread goes on computing".into();
    };
    let name = syscalls::name(*number);
    match syscalls::role(*number, arguments) {
        Role::Sleep => "its sleep ends".into(),
        _ if timeout::limit(*number, arguments).is_some() => format!("its `{name}` times out"),
        _ => format!("its `{name}` returns"),
    }
}

fn answered(supposed: &Supposed, how: Supposition, names: &Names) -> String {
    use Supposition::{End, Failure, Line, Nothing, Number};
    let (number, arguments) = (supposed.number, &supposed.arguments);
    let name = syscalls::name(number);
    if futex::is_futex(number) {
        let word = names.data(arguments[0]).name;
        return match how {
            Line | Number | Nothing => format!("its wait for {word} ends"),
            End => format!("its wait for {word} ends early"),
            Failure => format!("its wait for {word} times out"),
        };
    }
    let descriptor = supposed
        .descriptor
        .or_else(|| syscalls::descriptor(number, arguments));
    let its = match descriptor {
        Some(descriptor) => format!("its `{name}` on fd {descriptor}"),
        None => format!("its `{name}`"),
    };
    let number = i64::from(number);
    let ready = syscalls::role(supposed.number, arguments) == Role::Poll;
    let happens = match how {
        Failure if ready => "finds an error",
        Failure => "fails",
        End if ready => "finds the other end closed",
        End => "returns end of file",
        _ if ready => "finds something",
        _ if matches!(number, libc::SYS_accept | libc::SYS_accept4) => "returns a connection",
        _ if syscalls::consumes(supposed.number) => "returns data",
        _ if number == libc::SYS_wait4 => "tells that the child has ended",
        _ => "succeeds",
    };
    format!("{its} {happens}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new(flagfinder_code::NamesInput::default())
    }

    fn told(number: i64, how: Supposition, descriptor: Option<i32>) -> String {
        let supposed = Supposed {
            number: number as u32,
            arguments: [3, 1, 0, 0, 0, 0],
            descriptor,
            result: 0,
        };
        after(&Before { call: None }, &[supposed], how, &names())
    }

    #[test]
    fn each_call_says_what_has_to_happen() {
        use Supposition::{End, Failure, Line};
        assert_eq!(
            told(libc::SYS_read, Line, None),
            "its `read` on fd 3 returns data"
        );
        assert_eq!(
            told(libc::SYS_read, End, None),
            "its `read` on fd 3 returns end of file"
        );
        assert_eq!(
            told(libc::SYS_recvmsg, Failure, None),
            "its `recvmsg` on fd 3 fails"
        );
        let polled = told(libc::SYS_poll, Line, Some(7));
        assert_eq!(polled, "its `poll` on fd 7 finds something");
    }

    #[test]
    fn what_happens_by_itself_needs_no_answer() {
        let alone = |call| after(&Before { call }, &[], Supposition::Line, &names());
        assert_eq!(alone(None), "the thread goes on computing");
        let sleep = (libc::SYS_nanosleep as u32, [0; 6]);
        assert_eq!(alone(Some(sleep)), "its sleep ends");
        let poll = (libc::SYS_poll as u32, [0, 1, 5, 0, 0, 0]);
        assert_eq!(alone(Some(poll)), "its `poll` times out");
    }
}
