// SPDX-License-Identifier: MIT
//! The graph's file: a header, then four zstd frames (JSON of `Meta`, vertices, their details,
//! edges that made no vertex begin), each with length and checksum.

use std::borrow::Cow;
use std::fs;
use std::io::Write;
use std::path::Path;

use bytemuck::{allocation::try_zeroed_vec, Pod};
use flagfinder_events::{EventsError, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::edge::{edge_records, Edge, NOBODY};
use crate::graph::{Graph, Meta};
use crate::parallel::both;
use crate::vertex::{Details, Vertex, Vertices};

const MAGIC: &[u8; 8] = b"FFGRAPH\n";
const VERSION: u32 = 4;
const LEVEL: i32 = 1;
/// A damaged length must not become an allocation: what a part may unpack to, whatever its size,
/// and for each of its bytes. No real graph comes near that.
const UNPACKED: u64 = 1 << 20;
const UNPACKED_PER_BYTE: u64 = 1024;
/// The same for the JSON, whose lists take ten times as much once they are read.
const JSON_PER_BYTE: u64 = 64;

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
            let (rows, details) = self.vertices.records();
            let others = [&self.others[..], &self.awaits[..]].concat();
            let (rows, rest) = both(
                || Part::pack(rows),
                || -> std::io::Result<_> {
                    Ok((Part::pack(details)?, Part::pack(edge_records(&others))?))
                },
            );
            let (details, others) = rest?;
            let parts = [Part::pack(&meta)?, rows?, details, others];
            flagfinder_files::write_private(path, |file| {
                file.write_all(MAGIC)?;
                file.write_all(&VERSION.to_le_bytes())?;
                file.write_all(&[0; 4])?;
                parts.iter().try_for_each(|part| part.write(file))
            })
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
        let mut next = || {
            Part::take(&mut rest).ok_or_else(|| {
                bad("a file that is cut, or a part that does not match its checksum")
            })
        };
        let (meta, rows, details, others) = (next()?, next()?, next()?, next()?);
        let meta: Vec<u8> = meta.unpack(JSON_PER_BYTE)?;
        let meta: Meta = serde_json::from_slice(&meta).map_err(|error| bad(error.to_string()))?;
        let (rows, rest) = both(
            || rows.unpack(UNPACKED_PER_BYTE),
            || {
                Ok((
                    details.unpack(UNPACKED_PER_BYTE)?,
                    others.unpack(UNPACKED_PER_BYTE)?,
                ))
            },
        );
        let rows: Vec<Vertex> = rows?;
        let (details, others): (Vec<Details>, Vec<Edge>) = rest?;
        let is_vertex = |index: u32| (index as usize) < rows.len();
        let is_cause = |index: u32| index == NOBODY || is_vertex(index);
        let is_sound = |row: &Vertex| {
            (row.thread as usize) < meta.threads.len()
                && (row.details as usize) < details.len()
                && is_cause(row.from)
                && row.start <= row.end
        };
        let sound = !details.is_empty()
            && rows.iter().all(is_sound)
            && others.iter().all(|e| is_vertex(e.to) && is_cause(e.from));
        if !sound {
            return Err(bad(
                "edges, threads or details that are not there, or times that go back",
            ));
        }
        let vertices = Vertices::new(rows, details, meta.threads.len());
        Ok(Graph::new(meta, vertices, others))
    }
}

/// A zstd frame and how many bytes it holds.
struct Part<'b> {
    bytes: u64,
    packed: Cow<'b, [u8]>,
}

impl<'b> Part<'b> {
    fn pack(raw: &[u8]) -> std::io::Result<Part<'static>> {
        Ok(Part {
            bytes: raw.len() as u64,
            packed: zstd::bulk::compress(raw, LEVEL)?.into(),
        })
    }

    /// With the length as seed, so that it is covered too.
    fn checksum(&self) -> u64 {
        xxh3_64_with_seed(&self.packed, self.bytes)
    }

    fn write(&self, output: &mut impl Write) -> std::io::Result<()> {
        for number in [self.bytes, self.packed.len() as u64, self.checksum()] {
            output.write_all(&number.to_le_bytes())?;
        }
        output.write_all(&self.packed)
    }

    fn take(rest: &mut &'b [u8]) -> Option<Part<'b>> {
        let mut numbers = [0u64; 3];
        for number in &mut numbers {
            let (head, tail) = rest.split_at_checked(8)?;
            *number = u64::from_le_bytes(head.try_into().ok()?);
            *rest = tail;
        }
        let [bytes, stored, checksum] = numbers;
        let (packed, tail) = rest.split_at_checked(usize::try_from(stored).ok()?)?;
        *rest = tail;
        let part = Part {
            bytes,
            packed: packed.into(),
        };
        (part.checksum() == checksum).then_some(part)
    }

    /// Unpacks into the memory of the values themselves.
    fn unpack<T: Pod>(&self, per_byte: u64) -> Result<Vec<T>> {
        let most = (self.packed.len() as u64).saturating_mul(per_byte);
        if self.bytes > most.saturating_add(UNPACKED) {
            return Err(bad("a part that announces far more than it holds"));
        }
        let bytes = self.bytes as usize;
        if bytes % size_of::<T>() != 0 {
            return Err(bad("a part of odd length"));
        }
        let count = bytes / size_of::<T>();
        let values = try_zeroed_vec(count);
        let mut values: Vec<T> = values.map_err(|()| bad("more than the memory holds"))?;
        let room: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        let unpacked = zstd::bulk::decompress_to_buffer(&self.packed, room);
        match unpacked {
            Ok(found) if found == bytes => Ok(values),
            Ok(_) => Err(bad("a part that is shorter than announced")),
            Err(error) => Err(bad(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> Vec<u8> {
        let meta = Meta {
            threads: vec![crate::graph::ThreadMeta::default()],
            ..Meta::default()
        };
        serde_json::to_vec(&meta).unwrap()
    }

    /// A graph's file whose second part, the vertices, announces so many bytes and holds these,
    /// with the right checksum.
    fn opened(announced: u64, raw: &[u8]) -> Result<Graph> {
        opened_with(&meta(), announced, raw)
    }

    fn opened_with(meta: &[u8], announced: u64, raw: &[u8]) -> Result<Graph> {
        let name = format!("flagfinder-graph-{:?}", std::thread::current().id());
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let mut file = fs::File::create(&path).unwrap();
        let details = Details::default();
        file.write_all(&[&MAGIC[..], &VERSION.to_le_bytes(), &[0; 4]].concat())
            .unwrap();
        for (bytes, raw) in [
            (None, meta),
            (Some(announced), raw),
            (None, bytemuck::bytes_of(&details)),
            (None, &[]),
        ] {
            let part = Part::pack(raw).unwrap();
            let bytes = bytes.unwrap_or(part.bytes);
            Part { bytes, ..part }.write(&mut file).unwrap();
        }
        let graph = Graph::open(&path);
        fs::remove_file(&path).unwrap();
        graph
    }

    #[test]
    fn lengths_that_are_not_true_are_refused() {
        let rows = [Vertex::default(); 4];
        let raw: &[u8] = bytemuck::cast_slice(&rows);
        let bytes = raw.len() as u64;
        assert_eq!(opened(bytes, raw).unwrap().vertices.len(), 4);
        let row = size_of::<Vertex>() as u64;
        for lie in [
            bytes - row,
            bytes + row,
            bytes + 1,
            row << 20,
            row << 50,
            u64::MAX,
        ] {
            let refused = opened(lie, raw).err().expect("a refusal");
            assert_eq!(refused.exit_code, 65, "{lie}");
        }
    }

    #[test]
    fn a_small_part_that_unpacks_to_much_is_refused() {
        let raw = vec![0u8; size_of::<Vertex>() << 20];
        let refused = opened(raw.len() as u64, &raw).err().expect("a refusal");
        assert!(refused.found.contains("far more"), "{}", refused.found);
    }

    /// Each of its lists would take eight bytes of memory for each of its own.
    #[test]
    fn small_json_that_unpacks_to_much_is_refused() {
        let noise = (0..8000u64).map(|n| format!("{:016x}", xxh3_64_with_seed(&[], n)));
        let stacks = vec!["[]"; 8 << 20].join(",");
        let text = String::from_utf8(meta()).unwrap();
        let text = text.replace("\"stacks\":[]", &format!("\"stacks\":[{stacks}]"));
        let noisy = format!("\"syscalls\":\"{}\"", noise.collect::<String>());
        let text = text.replace("\"syscalls\":\"\"", &noisy);
        let packed = Part::pack(text.as_bytes()).unwrap().packed.len();
        // As dense as the vertices may be.
        assert!(text.len() < packed << 10 && packed < 96 << 10, "{packed}");
        let raw = bytemuck::bytes_of(&Vertex::default()).to_vec();
        let refused = opened_with(text.as_bytes(), raw.len() as u64, &raw);
        let refused = refused.err().expect("a refusal");
        assert!(refused.found.contains("far more"), "{}", refused.found);
    }

    #[test]
    fn times_that_go_back_are_refused() {
        let row = Vertex {
            start: 2,
            end: 1,
            ..Vertex::default()
        };
        let raw = bytemuck::bytes_of(&row);
        assert!(opened(raw.len() as u64, raw).is_err());
    }
}
