// SPDX-License-Identifier: MIT
//! Which thread to report when several spin.
//!
//! In: a report for each, the most telling parting first. Out: the one to begin with; the others
//! are named in its reason and notes.

use crate::report::{Flag, Report, ThreadName, Verdict, Writer};

/// A thread whose score is lower than the best by this much is not reported first.
const LESS_CERTAIN: f64 = 0.35;

/// The first of the clear answers, unless another thread that spins itself owes its word: then that
/// thread comes before it. `None`: there are no reports.
pub fn choose(reports: Vec<Report>) -> Option<Report> {
    // A thread that does not run waits for nobody, whatever it looked at last: its condition may
    // hold by now.
    let runs = |report: &Report| report.stood_still.is_none();
    let any_runs = reports
        .iter()
        .any(|report| has_flag(report) && runs(report));
    let counts = |report: &&Report| has_flag(report) && (runs(report) || !any_runs);
    let best = reports
        .iter()
        .filter(counts)
        .map(weight)
        .fold(0.0, f64::max);
    let clear: Vec<usize> = (0..reports.len())
        .filter(|&index| {
            let report = &reports[index];
            counts(&report) && weight(report) + LESS_CERTAIN >= best
        })
        .collect();
    let chosen = clear
        .first()
        .map_or(0, |&first| root(first, &clear, &reports));
    let mut others: Vec<String> = Vec::new();
    let mut notes = Vec::new();
    let mut chains = Vec::new();
    for (index, report) in reports.iter().enumerate() {
        let same = tid(report) == tid(&reports[chosen]);
        if index != chosen && !same && has_flag(report) {
            let thread = name(report);
            if let Some(seconds) = report.stood_still {
                notes.push(format!(
                    "{thread} has not run for the last {seconds} s: it is stopped, not waiting ({} \
                     when it was seen last)",
                    report.reason
                ));
            } else if let Some(chain) = chain(index, chosen, &reports) {
                chains.push(chain);
            } else {
                notes.push(format!("{thread} waits as well: {}", report.reason));
            }
            if clear.contains(&index) {
                others.push(thread);
            }
        }
    }
    let stopped = reports
        .iter()
        .filter(|other| other.stood_still.is_some() && is_owed_by(&reports[chosen], other));
    for other in stopped {
        chains.push(link(&reports[chosen], other) + ", but that one does not run any more");
    }
    let mut report = reports.into_iter().nth(chosen)?;
    report.chains = chains;
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

/// `thread 1 polls word 1, which thread 2 is to write`
fn link(report: &Report, debtor: &Report) -> String {
    let flag = report.flags.first().map_or("a word", |flag| &flag.name);
    format!(
        "{} polls {flag}, which {} is to write",
        name(report),
        name(debtor)
    )
}

/// The threads from one to the reported thread, each of which waits for a write of the next;
/// `None`: that one does not wait for it.
fn chain(from: usize, chosen: usize, reports: &[Report]) -> Option<String> {
    let mut links: Vec<String> = Vec::new();
    let mut seen = vec![from];
    let mut at = from;
    while at != chosen {
        let owes =
            |debtor: &usize| !seen.contains(debtor) && is_owed_by(&reports[at], &reports[*debtor]);
        let debtor = (0..reports.len()).find(owes)?;
        links.push(link(&reports[at], &reports[debtor]));
        at = debtor;
        seen.push(at);
    }
    Some(links.join("; "))
}

/// Follows who owes whom a write, as the normal run shows it, to a thread that owes one and waits
/// for none of them. Threads that wait for each other stay in their order.
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
pub fn is_owed_by(report: &Report, debtor: &Report) -> bool {
    let (Some(flag), Some(debtor)) = (report.flags.first(), debtor.threads.normal.as_ref()) else {
        return false;
    };
    let mut writers = foreign_writers(flag, report.threads.normal.as_ref()).peekable();
    writers.peek().is_some() && writers.all(|tid| tid == debtor.tid)
}

/// The threads of the normal run that wrote the word, but for the one that reads it there.
pub fn foreign_writers<'f>(
    flag: &'f Flag,
    reader: Option<&ThreadName>,
) -> impl Iterator<Item = u32> + 'f {
    let own = reader.map(|thread| thread.tid);
    let of_others =
        move |writer: &&Writer| writer.run == "normal" && writer.foreign && Some(writer.tid) != own;
    flag.writers
        .iter()
        .filter(of_others)
        .map(|writer| writer.tid)
}

/// If no branch of the loop's own function tells the runs apart, a function that it calls may leave
/// the loop: it ends the thread, or jumps to a caller. Then the normal run went the other way at a
/// test in that function, of a word that another thread had written.
pub fn is_left_below(report: &Report) -> bool {
    let took = report.divergence.as_ref();
    let left = took.is_some_and(|parting| parting.normal_target.is_some());
    let reader = report.threads.normal.as_ref();
    let mut flag = report.flags.first().into_iter();
    left && has_flag(report) && flag.any(|flag| foreign_writers(flag, reader).next().is_some())
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
    use crate::report::{DivergenceReport, FlagKind};
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
            foreign: true,
        });
        report.flags.push(Flag {
            rank: 1,
            confidence,
            size: 4,
            writers: writers.collect(),
            ..Flag::new(FlagKind::Global, format!("word {tid}"))
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
        assert_eq!(
            found.chains,
            ["thread 1 polls word 1, which thread 2 is to write"]
        );
        assert!(found.notes.is_empty());
    }

    #[test]
    fn a_thread_that_writes_its_own_word_owes_nothing() {
        let mut worker = report(1, 0.9, &[2, 3]);
        worker.flags[0].writers[1].foreign = false;
        let found = choose(vec![worker, report(2, 0.8, &[4])]).expect("two reports");
        assert_eq!(tid(&found), Some(2), "thread 3 has a word of its own");
    }

    #[test]
    fn a_called_function_leaves_where_the_normal_run_did() {
        let mut left = report(1, 0.9, &[2]);
        assert!(!is_left_below(&left), "no branch");
        let place = |offset| Code {
            offset,
            ..Code::default()
        };
        left.divergence = Some(DivergenceReport {
            branch: place(1),
            normal_target: Some(place(2)),
            spin_target: place(3),
        });
        assert!(is_left_below(&left));
        let nobodys = Report {
            flags: report(1, 0.9, &[]).flags,
            ..left.clone()
        };
        assert!(!is_left_below(&nobodys), "nobody else wrote it");
        if let Some(parting) = &mut left.divergence {
            parting.normal_target = None;
        }
        assert!(!is_left_below(&left), "the normal run never went there");
    }

    #[test]
    fn a_chain_goes_over_those_between() {
        let all = vec![
            report(1, 0.9, &[2]),
            report(2, 0.9, &[3]),
            report(3, 0.9, &[4]),
            report(5, 0.9, &[6]),
        ];
        let found = choose(all).expect("four reports");
        assert_eq!(tid(&found), Some(3));
        let second = "thread 2 polls word 2, which thread 3 is to write";
        let first = format!("thread 1 polls word 1, which thread 2 is to write; {second}");
        assert_eq!(found.chains, [first.as_str(), second]);
        assert_eq!(found.notes, ["thread 5 waits as well: polls word 5"]);
    }

    #[test]
    fn a_thread_that_does_not_run_does_not_wait() {
        let mut worker = report(1, 0.99, &[2]);
        worker.stood_still = Some(9);
        let found = choose(vec![worker.clone(), report(2, 0.7, &[1])]).expect("two reports");
        assert_eq!(tid(&found), Some(2), "the one that it lets down");
        assert_eq!(
            found.chains,
            [
                "thread 2 polls word 2, which thread 1 is to write, but that one does not run any \
              more"
            ]
        );
        assert!(found.notes[0].contains("has not run for the last 9 s"));
        assert_eq!(chosen(vec![worker]), Some(1), "better than none");
    }

    #[test]
    fn threads_that_wait_for_each_other_stay_in_order() {
        assert_eq!(
            chosen(vec![report(1, 0.9, &[2]), report(2, 0.9, &[1])]),
            Some(1)
        );
        // A word that many threads wrote is owed by no single one.
        assert_eq!(
            chosen(vec![report(1, 0.9, &[2, 3]), report(2, 0.9, &[])]),
            Some(1)
        );
    }
}
