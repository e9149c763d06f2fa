// SPDX-License-Identifier: MIT
//! The recordings of several hosts as one graph.
//!
//! In: event files that were recorded with `--network`. Out: a graph in the first one's time, whose
//! threads know their host. A vertex that something from another host set off has an edge from the
//! vertex that sent it; a thread that waits to the end for an answer has one from the thread at the
//! other end. Blind spots: who accepts, closes or resets a connection; what is sent by other means
//! than the kernel's TCP and UDP.

mod clocks;
mod edges;
mod pairs;
mod part;
mod table;
mod times;

use std::collections::BTreeSet;

use flagfinder_events::EventFile;
use flagfinder_failure::{Failure, Result};

use crate::build::build_with_exchanges;
use crate::edge::Edge;
use crate::graph::{Gap, Graph, Host, Meta};
use crate::hot_call::HotCall;
use crate::stops::Stop;
use crate::targets::Target;
use crate::vertex::{Details, Vertex};
use crate::vertices::Vertices;
use pairs::{messages, Side};
use part::{Numbers, Part, Sent, STILL_WORKS};
pub use table::{build_with_table, exchange_records, Exchanged};
use times::Times;

/// Builds the graph of the recordings of several hosts. `watched` as in [`crate::build`], of the
/// first.
///
/// # Errors
/// When two hosts have the same name, or the clocks of some can't be compared: they exchanged
/// nothing, or in one direction only, or received what was not yet sent.
pub fn build_hosts(files: &[&EventFile], watched: &[String]) -> Result<Graph> {
    let mut names = BTreeSet::new();
    let mut parts = Vec::new();
    for (place, file) in files.iter().enumerate() {
        let info = &file.info;
        let found = match &info.host[..] {
            "" => Some("one does not say of which host it is: it is imported, or older".into()),
            name if !names.insert(name) => {
                Some(format!("two of them are of a host that is called {name}"))
            }
            _ => None,
        };
        if let Some(found) = found {
            return Err(Failure::usage(
                "The recordings can't be joined",
                found,
                "Record with `--network --host NAME`, with another name on each host.",
                STILL_WORKS,
            ));
        }
        let own = if place == 0 { watched } else { &[] };
        let (graph, exchanges) = build_with_exchanges(file, own);
        parts.push(Part {
            graph,
            exchanges,
            flows: file.flows.clone(),
            name: info.host.clone(),
            boot_id: info.boot_id.clone(),
            pids: info.pids.clone(),
            command: info.command.clone(),
        });
    }
    let sides: Vec<Side> = parts
        .iter()
        .map(|part| Side::new(&part.flows, &part.exchanges))
        .collect();
    let mut sent = Sent::new();
    for from in 0..parts.len() {
        for to in (0..parts.len()).filter(|&to| to != from) {
            sent.insert((from, to), messages(&sides[from], &sides[to]));
        }
    }
    let times = Times::told(&parts, &sent)?;
    Ok(joined(&parts, &sent, &times))
}

fn joined(parts: &[Part], sent: &Sent, times: &Times) -> Graph {
    let mut meta = Meta {
        pids: parts[0].pids.clone(),
        command: parts[0].command.clone(),
        syscalls: parts[0].graph.meta.syscalls.clone(),
        first: u64::MAX,
        ..Meta::default()
    };
    let mut details: Vec<Details> = vec![Details::default()];
    let mut numbers = Vec::new();
    // In order of time, as in a graph of one host.
    let mut order: Vec<(u64, u32, u32)> = Vec::new();
    for (host, part) in (0..).zip(parts) {
        let of = |time| times.of(host as usize, time);
        let own = &part.graph.meta;
        let mine = Numbers {
            vertices: vec![0; part.graph.vertices.len()],
            threads: meta.threads.len() as u32,
            stacks: meta.stacks.len() as u32,
            details: details.len() as u32,
        };
        details.extend(part.graph.vertices.details.iter().map(|one| Details {
            stack: mine.stack(one.stack),
            waker_stack: mine.stack(one.waker_stack),
            ..*one
        }));
        let rows = part.graph.vertices.iter().zip(0..);
        order.extend(rows.map(|(row, vertex)| (of(row.start), host, vertex)));
        let sites = meta.sites.len() as u32;
        let stacks = own.stacks.iter();
        meta.stacks
            .extend(stacks.map(|stack| stack.iter().map(|site| site + sites).collect()));
        meta.sites.extend(own.sites.iter().cloned());
        meta.places.extend(own.places.iter().cloned());
        meta.threads.extend(own.threads.iter().map(|thread| {
            let mut thread = thread.clone();
            thread.name = format!("{}@{}", thread.name, part.name);
            thread.host = host;
            thread
        }));
        meta.targets.extend(own.targets.iter().map(|one| Target {
            ts: of(one.ts),
            text: one.text.clone(),
            host,
            ..*one
        }));
        meta.marks.extend(own.marks.iter().map(|mark| {
            let mut mark = mark.clone();
            (mark.ts, mark.host) = (of(mark.ts), Some(part.name.clone()));
            mark
        }));
        meta.gaps.extend(own.gaps.iter().map(|gap| Gap {
            since: of(gap.since),
            until: of(gap.until),
            ..*gap
        }));
        meta.done.join(&own.done, mine.threads, of);
        meta.events += own.events;
        meta.flags += own.flags;
        let (first, last) = (of(own.first), of(own.last));
        (meta.first, meta.last) = (meta.first.min(first), meta.last.max(last));
        let to_it = sent.iter().filter(|((_, to), _)| *to == host as usize);
        meta.hosts.push(Host {
            name: part.name.clone(),
            first,
            last,
            pids: part.pids.clone(),
            command: part.command.clone(),
            added: first as i64 - own.first as i64,
            widths: times.widths(host as usize),
            by: times.by(host as usize).map(|by| by as u32),
            received: to_it.map(|(_, all)| all.len() as u64).sum(),
        });
        numbers.push(mine);
    }
    meta.targets.sort_by_key(Target::place);
    meta.marks.sort_by_key(|mark| mark.ts);
    order.sort_unstable();
    for (number, (_, host, vertex)) in (0..).zip(&order) {
        numbers[*host as usize].vertices[*vertex as usize] = number;
    }
    let mut vertices = Vertices::of_details(details);
    for &(start, host, vertex) in &order {
        let (mine, part) = (&numbers[host as usize], &parts[host as usize]);
        let row = part.graph.vertex(vertex);
        let end = times.of(host as usize, row.end).max(start);
        vertices.push(Vertex {
            start,
            end,
            run: row.run.min(end - start),
            thread: row.thread + mine.threads,
            from: mine.vertex(row.from),
            details: match row.details {
                0 => 0,
                own => own + mine.details,
            },
            ..row
        });
    }
    let mut others = Vec::new();
    for (host, part) in parts.iter().enumerate() {
        let mine = &numbers[host];
        let edges = part.graph.others.iter().chain(&part.graph.awaits);
        others.extend(edges.map(|edge| Edge {
            from: mine.vertex(edge.from),
            to: mine.vertex(edge.to),
            ts: times.of(host, edge.ts),
            stack: mine.stack(edge.stack),
            ..*edge
        }));
        let hot = part.graph.meta.hot.iter().map(|hot| {
            let mut hot: HotCall = hot.clone();
            hot.vertex = mine.vertex(hot.vertex);
            for opened in hot.opened.iter_mut().flatten() {
                opened.thread += mine.threads;
                opened.vertex = mine.vertex(opened.vertex);
                opened.ts = times.of(host, opened.ts);
            }
            hot
        });
        meta.hot.extend(hot);
        let ran = part.graph.meta.ran.iter();
        let ran = ran.map(|(&vertex, ran)| (mine.vertex(vertex), ran.clone()));
        meta.ran.extend(ran);
        let stopped = part.graph.meta.stopped.iter();
        meta.stopped.extend(stopped.map(|(&vertex, stop)| {
            let by = stop.by.map(|by| by + mine.threads);
            (mine.vertex(vertex), Stop { by, ..stop.clone() })
        }));
    }
    meta.hot.sort_by_key(|hot| hot.vertex);
    for (between, messages) in sent {
        edges::cross(
            parts,
            &numbers,
            times,
            *between,
            messages,
            &mut vertices,
            &mut others,
        );
    }
    others.extend(edges::awaited(parts, &numbers, times, sent));
    Graph::new(meta, vertices, others)
}
