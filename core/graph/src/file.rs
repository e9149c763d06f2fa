//! The graph's file: a header, then three zstd frames (JSON of `Meta`, vertices, edges), each with length and checksum.

use std::fs;
use std::path::Path;

use flagfinder_events::{EventsError, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::graph::{Edge, Graph, Meta, Vertex, NOBODY};

const MAGIC: &[u8; 8] = b"FFGRAPH\n";
const VERSION: u32 = 2;
const LEVEL: i32 = 1;
/// A damaged length must not become an allocation.
const MOST: u64 = 64 << 30;

fn bad(found: impl Into<String>) -> EventsError {
    EventsError {
        exit_code: 65,
        what: "This is not a graph that can be read".into(),
        found: found.into(),
        fix: "Build it again with `flagfinder graph build RUN.events -o FILE`.".into(),
        still_works: "The event file it was built from is unaffected.".into(),
    }
}

pub(crate) fn failed(what: &str, path: &Path, error: &std::io::Error) -> EventsError {
    EventsError {
        exit_code: if error.kind() == std::io::ErrorKind::PermissionDenied {
            77
        } else {
            2
        },
        what: format!("The graph {} can't be {what}", path.display()),
        found: error.to_string(),
        fix: "Check the path, its permissions and the disk.".into(),
        still_works: "The event file it was built from is unaffected.".into(),
    }
}

impl Graph {
    /// Writes the graph.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let write = || -> std::io::Result<()> {
            let meta = serde_json::to_vec(&self.meta)?;
            let mut bytes = MAGIC.to_vec();
            bytes.extend(VERSION.to_le_bytes());
            bytes.extend([0; 4]);
            let parts = [
                &meta,
                bytemuck::cast_slice(&self.vertices),
                bytemuck::cast_slice(&self.edges),
            ];
            for raw in parts {
                let packed = zstd::bulk::compress(raw, LEVEL)?;
                // With the length as seed, so that it is covered too.
                let checksum = xxh3_64_with_seed(&packed, raw.len() as u64);
                for number in [raw.len() as u64, packed.len() as u64, checksum] {
                    bytes.extend(number.to_le_bytes());
                }
                bytes.extend(packed);
            }
            fs::write(path, bytes)
        };
        write().map_err(|error| failed("written", path, &error))
    }

    /// Reads a graph.
    ///
    /// # Errors
    /// When the file can't be read, is no graph, is damaged or of another version.
    pub fn open(path: &Path) -> Result<Graph> {
        let bytes = fs::read(path).map_err(|error| failed("read", path, &error))?;
        let rest = bytes
            .strip_prefix(MAGIC)
            .ok_or_else(|| bad("a file that does not begin with \"FFGRAPH\""))?;
        let (version, mut rest) = rest
            .split_at_checked(8)
            .ok_or_else(|| bad("a file cut inside its header"))?;
        if version[..4] != VERSION.to_le_bytes() {
            return Err(bad("another version of the format"));
        }
        let mut parts = Vec::new();
        for _ in 0..3 {
            let part = next(&mut rest).ok_or_else(|| {
                bad("a file that is cut, or a part that does not match its checksum")
            })?;
            parts.push(part);
        }
        let meta: Meta =
            serde_json::from_slice(&parts[0]).map_err(|error| bad(error.to_string()))?;
        let vertices: Vec<Vertex> = values(&parts[1])?;
        let edges: Vec<Edge> = values(&parts[2])?;
        let sound = vertices
            .iter()
            .all(|v| (v.thread as usize) < meta.threads.len())
            && edges.iter().all(|e| {
                (e.to as usize) < vertices.len()
                    && (e.from == NOBODY || (e.from as usize) < vertices.len())
            });
        if !sound {
            return Err(bad("edges or threads that are not there"));
        }
        Ok(Graph::new(meta, vertices, edges))
    }
}

/// Bytes to values; the bytes need not be aligned.
fn values<T: bytemuck::Pod>(bytes: &[u8]) -> Result<Vec<T>> {
    if bytes.len() % size_of::<T>() != 0 {
        return Err(bad("a part of odd length"));
    }
    let chunks = bytes.chunks_exact(size_of::<T>());
    Ok(chunks.map(bytemuck::pod_read_unaligned).collect())
}

fn next(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let mut numbers = [0u64; 3];
    for number in &mut numbers {
        let (head, tail) = rest.split_at_checked(8)?;
        *number = u64::from_le_bytes(head.try_into().ok()?);
        *rest = tail;
    }
    let [raw, stored, checksum] = numbers;
    let (packed, tail) = rest.split_at_checked(usize::try_from(stored).ok()?)?;
    *rest = tail;
    if raw > MOST || xxh3_64_with_seed(packed, raw) != checksum {
        return None;
    }
    zstd::bulk::decompress(packed, raw as usize).ok()
}
