// SPDX-License-Identifier: MIT
//! Threads that serve a virtual machine: HotSpot's compilers, timers and collectors wait for work
//! in loops of their own, with a time limit.
//!
//! In: a thread's report. Out: without a flag, if HotSpot's own code reads that and the thread
//! looks seldom. What a program of Java polls is read by the code that was made from it. Where
//! HotSpot itself waits for the program (for all threads to stand still), it looks often.

use serde_json::{json, Value};

use crate::pick::HOT;
use crate::report::ThreadReport;
use crate::sure::text;
use crate::why::HOTSPOT;

/// A thread that sleeps so many times a second looks often.
const OFTEN: f64 = 100.0;

/// If it is such a thread, it then has no flag.
pub(crate) fn leave(thread: &mut ThreadReport) {
    let first = &thread.flags[0];
    let is_own = first["readers"][0]["module"] == HOTSPOT;
    if !is_own || thread.wants >= HOT || thread.sleeps_per_second >= OFTEN {
        return;
    }
    let name = text(&first["name"]);
    thread.reason = format!("it serves the virtual machine, and polls {name} until it has work");
    thread.verdict = Some("no-flag".into());
    thread.serves = true;
    if let (Value::Array(considered), Value::Array(flags)) =
        (&mut thread.considered, thread.flags.take())
    {
        considered.splice(..0, flags);
    }
    thread.flags = json!([]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Class;

    fn reads(module: &str, sleeps_per_second: f64) -> ThreadReport {
        let flag = json!({
            "name": "WatcherThread::_should_terminate",
            "readers": [{ "module": module }],
        });
        let mut thread = ThreadReport {
            flags: json!([flag]),
            sleeps_per_second,
            ..ThreadReport::blank(1, Class::RepeatedYield)
        };
        leave(&mut thread);
        thread
    }

    #[test]
    fn a_word_that_hotspot_polls_for_itself_is_no_flag() {
        let timer = reads(HOTSPOT, 20.0);
        assert!(timer.serves && !timer.has_flag());
        assert!(timer.reason.contains("_should_terminate"));
        assert_eq!(timer.considered.as_array().map(Vec::len), Some(1));
        assert!(reads(HOTSPOT, 900.0).has_flag(), "it waits for the program");
        assert!(reads("libmine.so", 20.0).has_flag());
    }
}
