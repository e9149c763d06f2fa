//! The graph's file: a header, then four zstd frames (JSON of `Meta`, vertices, their details, edges that
//! made no vertex begin), each with length and checksum.

use std::borrow::Cow;
use std::fs;
use std::io::Write;
use std::path::Path;

use bytemuck::{allocation::zeroed_vec, Pod};
use flagfinder_events::{EventsError, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::edge::{edge_records, Edge, NOBODY};
use crate::graph::{Graph, Meta};
use crate::parallel::both;
use crate::vertex::{Details, Vertex, Vertices};

const MAGIC: &[u8; 8] = b"FFGRAPH\n";
const VERSION: u32 = 3;
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
            let (rows, details) = self.vertices.records();
            let (rows, rest) = both(
                || Part::pack(rows),
                || -> std::io::Result<_> {
                    Ok((
                        Part::pack(details)?,
                        Part::pack(edge_records(&self.others))?,
                    ))
                },
            );
            let (details, others) = rest?;
            let mut file = fs::File::create(path)?;
            file.write_all(MAGIC)?;
            file.write_all(&VERSION.to_le_bytes())?;
            file.write_all(&[0; 4])?;
            for part in [Part::pack(&meta)?, rows?, details, others] {
                part.write(&mut file)?;
            }
            Ok(())
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
        let meta: Vec<u8> = meta.unpack()?;
        let meta: Meta = serde_json::from_slice(&meta).map_err(|error| bad(error.to_string()))?;
        let (rows, rest) = both(
            || rows.unpack(),
            || Ok((details.unpack()?, others.unpack()?)),
        );
        let rows: Vec<Vertex> = rows?;
        let (details, others): (Vec<Details>, Vec<Edge>) = rest?;
        let is_vertex = |index: u32| (index as usize) < rows.len();
        let is_cause = |index: u32| index == NOBODY || is_vertex(index);
        let is_sound = |row: &Vertex| {
            (row.thread as usize) < meta.threads.len()
                && (row.details as usize) < details.len()
                && is_cause(row.from)
        };
        let sound = !details.is_empty()
            && rows.iter().all(is_sound)
            && others.iter().all(|e| is_vertex(e.to) && is_cause(e.from));
        if !sound {
            return Err(bad("edges, threads or details that are not there"));
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
        (bytes <= MOST && part.checksum() == checksum).then_some(part)
    }

    /// Unpacks into the memory of the values themselves.
    fn unpack<T: Pod>(&self) -> Result<Vec<T>> {
        let bytes = self.bytes as usize;
        if bytes % size_of::<T>() != 0 {
            return Err(bad("a part of odd length"));
        }
        let count = bytes / size_of::<T>();
        let mut values: Vec<T> = zeroed_vec(count);
        let room: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        let unpacked = zstd::bulk::decompress_to_buffer(&self.packed, room);
        match unpacked {
            Ok(found) if found == bytes => Ok(values),
            Ok(_) => Err(bad("a part that is shorter than announced")),
            Err(error) => Err(bad(error.to_string())),
        }
    }
}
