// SPDX-License-Identifier: MIT
//! The event graph (Argus, section 4) and the diagnosis on it (Algorithm 1).
//!
//! Argus: Weng et al., *Argus: Debugging Performance Issues in Modern Desktop Applications with
//! Annotated Causal Tracing* (USENIX ATC 2021).
//!
//! In: an event file, lines of `flagfinder watch`. Out: [`Graph`]; [`diagnose`] names culprits.
//! Knows nothing of recorders. A vertex is what a thread did between two blocking waits. Edges say
//! why it began. Blind spots: what a program hands on in memory without waking anybody leaves no
//! edge, unless it is watched.

mod activity;
mod ahead;
mod answers;
mod awaits;
mod baseline;
mod bottleneck;
mod build;
mod critical;
mod diagnose;
mod diagnosis;
mod done;
mod edge;
pub mod file;
mod flags;
mod graph;
mod hangs;
mod hosts;
mod hot;
mod hot_call;
mod inversion;
mod items;
mod knots;
mod left;
mod lives;
mod messages;
mod parallel;
mod perfetto;
mod polled;
mod profile;
mod query;
mod question;
mod ran;
mod request;
mod requests;
mod retries;
mod site;
mod slice;
mod stacks;
mod starved;
mod stops;
mod submissions;
mod targets;
mod threads;
mod timeline;
mod top;
mod vertex;
mod vertices;
mod wakes;
mod work;

pub use activity::Class;
pub use bottleneck::{bottleneck, Bottleneck, BottleneckRequest, Object, Row, Thing};
pub use build::build;
pub use critical::{critical_path, CriticalPath, PathRequest};
pub use diagnose::{diagnose, hangs};
pub use diagnosis::{Diagnosis, Outcome};
pub use edge::{edge_records, Edge, EdgeKind, KINDS, NOBODY};
pub use graph::Graph;
pub use hangs::{Hang, Why};
pub use hosts::{build_hosts, build_with_table, exchange_records, Exchanged};
pub use hot::Hot;
pub use profile::profile;
pub use query::{query, QueryRequest};
pub use request::Request;
pub use timeline::{timeline, TimelineRequest};
pub use top::top;
pub use vertex::{Details, Vertex};
