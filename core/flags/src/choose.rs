//! Which thread to report when several spin.
//!
//! In: a report for each, the most telling parting first. Out: the one to begin with; the others are named
//! in its reason and notes.

use crate::report::{Report, Verdict};

/// A thread whose answer is this much less certain than the best is not the one.
const LESS_CERTAIN: f64 = 0.35;

/// Of the clear answers the first whose word is not owed by another thread that spins itself: that one
/// comes before it. `None`: there are no reports.
pub fn choose(reports: Vec<Report>) -> Option<Report> {
    let best = reports.iter().map(weight).fold(0.0, f64::max);
    let clear: Vec<usize> = (0..reports.len())
        .filter(|&index| {
            weight(&reports[index]) > 0.0 && weight(&reports[index]) + LESS_CERTAIN >= best
        })
        .collect();
    let chosen = clear
        .first()
        .map_or(0, |&first| root(first, &clear, &reports));
    let mut others: Vec<String> = Vec::new();
    let mut notes = Vec::new();
    for (index, report) in reports.iter().enumerate() {
        let same = tid(report) == tid(&reports[chosen]);
        if index != chosen && !same && has_flag(report) {
            let thread = name(report);
            notes.push(format!("{thread} waits as well: {}", report.reason));
            if clear.contains(&index) {
                others.push(thread);
            }
        }
    }
    let mut report = reports.into_iter().nth(chosen)?;
    if !others.is_empty() {
        report.reason = format!(
            "{}: {}; {} spins as well",
            name(&report),
            report.reason,
            others.join(", ")
        );
    }
    report.notes.append(&mut notes);
    Some(report)
}

/// Does it name what is waited for?
pub fn has_flag(report: &Report) -> bool {
    weight(report) > 0.0
}

fn weight(report: &Report) -> f64 {
    match report.verdict {
        Verdict::NoFlag | Verdict::NoDivergence => 0.0,
        _ => report.flags.first().map_or(0.0, |flag| flag.confidence),
    }
}

/// Follows who owes whom a write, as the normal run shows it, to a thread that owes but waits for none
/// of them. Threads that wait for each other stay in their order.
fn root(first: usize, clear: &[usize], reports: &[Report]) -> usize {
    let mut at = first;
    let mut seen = vec![first];
    loop {
        let owes = |debtor: &usize| {
            !seen.contains(debtor)
                && is_owed_by(&reports[at], &reports[*debtor])
                && !is_owed_by(&reports[*debtor], &reports[at])
        };
        let Some(&debtor) = clear.iter().find(|debtor| owes(debtor)) else {
            return at;
        };
        at = debtor;
        seen.push(at);
    }
}

/// Did `debtor`'s counterpart alone write the word in the normal run?
fn is_owed_by(report: &Report, debtor: &Report) -> bool {
    let (Some(flag), Some(debtor)) = (report.flags.first(), debtor.threads.normal.as_ref()) else {
        return false;
    };
    let own = report.threads.normal.as_ref().map(|thread| thread.tid);
    let mut writers = flag
        .writers
        .iter()
        .filter(|writer| writer.run == "normal" && Some(writer.tid) != own)
        .peekable();
    writers.peek().is_some() && writers.all(|writer| writer.tid == debtor.tid)
}

fn tid(report: &Report) -> Option<u32> {
    report.threads.spin.as_ref().map(|thread| thread.tid)
}

fn name(report: &Report) -> String {
    match &report.threads.spin {
        Some(thread) if thread.name.is_empty() => format!("thread {}", thread.tid),
        Some(thread) => format!("thread {} ({})", thread.tid, thread.name),
        None => "a thread".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Addresses, Flag, FlagKind, ThreadName, Values, Writer};
    use flagfinder_code::Code;

    /// A thread's answer: which thread of the normal run (1000 + its own number) wrote its word.
    fn report(tid: u32, confidence: f64, writers: &[u32]) -> Report {
        let mut report = Report::nothing(Verdict::DataFlag, format!("polls word {tid}"));
        let thread = |tid| {
            Some(ThreadName {
                tid,
                name: String::new(),
            })
        };
        report.threads.spin = thread(tid);
        report.threads.normal = thread(1000 + tid);
        let writers = writers.iter().map(|&tid| Writer {
            run: "normal".into(),
            tid: 1000 + tid,
            thread: String::new(),
            code: Code::default(),
            value: None,
            stack: Vec::new(),
            count: 1,
        });
        report.flags.push(Flag {
            rank: 1,
            confidence,
            kind: FlagKind::Global,
            name: format!("word {tid}"),
            module: None,
            offset: None,
            symbol: None,
            field: None,
            address: Addresses::default(),
            size: 4,
            value: Values::default(),
            exit_when: String::new(),
            access_path: None,
            readers: Vec::new(),
            reader_stack: Vec::new(),
            writers: writers.collect(),
            evidence: Vec::new(),
        });
        report
    }

    fn chosen(reports: Vec<Report>) -> Option<u32> {
        choose(reports).as_ref().and_then(tid)
    }

    #[test]
    fn the_first_clear_one() {
        assert_eq!(
            chosen(vec![report(1, 0.7, &[]), report(2, 0.9, &[])]),
            Some(1)
        );
        assert_eq!(
            chosen(vec![report(1, 0.5, &[]), report(2, 0.9, &[])]),
            Some(2)
        );
        let nothing = Report::nothing(Verdict::NoFlag, "progress");
        assert_eq!(chosen(vec![nothing, report(2, 0.6, &[])]), Some(2));
    }

    #[test]
    fn the_one_that_owes_the_write_comes_first() {
        let found = choose(vec![report(1, 0.9, &[2]), report(2, 0.8, &[3])]).expect("two reports");
        assert_eq!(tid(&found), Some(2));
        assert_eq!(
            found.reason,
            "thread 2: polls word 2; thread 1 spins as well"
        );
        assert_eq!(found.notes, ["thread 1 waits as well: polls word 1"]);
    }

    #[test]
    fn who_wait_for_each_other_stay_in_order() {
        assert_eq!(
            chosen(vec![report(1, 0.9, &[2]), report(2, 0.9, &[1])]),
            Some(1)
        );
        // Written by many, it is owed by nobody in particular.
        assert_eq!(
            chosen(vec![report(1, 0.9, &[2, 3]), report(2, 0.9, &[])]),
            Some(1)
        );
    }
}
