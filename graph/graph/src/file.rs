// SPDX-License-Identifier: MIT
//! The graph's file: four parts, each a zstd frame (JSON of `Meta`, vertices, their details, edges
//! that made no vertex begin).

use std::io::{Read, Write};
use std::path::Path;

use bytemuck::{allocation::try_zeroed_vec, cast_slice_mut, Pod, Zeroable};
use flagfinder_container::{checksum, scan, Format, Loader, Payload, Sealed, Section, Storage};
use flagfinder_failure::{Failure, Result};

use crate::edge::{edge_records, Edge, NOBODY};
use crate::graph::{Graph, Meta};
use crate::parallel::both;
use crate::vertex::{Details, Vertex};
use crate::vertices::{Vertices, PIECE};

/// How the file begins, and which versions are read.
pub const FORMAT: Format = Format {
    magic: *b"FFGRAPH\n",
    version: 6,
    minimum_reader: 6,
    oldest: 6,
    name: "a graph",
    made_by: "flagfinder graph build",
    still_works: "The event file it was built from is unaffected.",
};
const LEVEL: i32 = 1;
/// What a part may unpack to, whatever its size, and for each of its bytes: a damaged length must
/// not become an allocation. No real graph comes near that.
const UNPACKED: u64 = 1 << 20;
const UNPACKED_PER_BYTE: u64 = 1024;
/// The same for the JSON, whose lists take ten times as much once they are read.
const JSON_PER_BYTE: u64 = 64;

fn bad(found: impl Into<String>) -> Failure {
    Failure::bad_file(
        "This is not a graph that can be read",
        found,
        "Build it again with `flagfinder graph build RUN.events -o FILE`.",
        FORMAT.still_works,
    )
}

pub(crate) fn failed(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::io(
        format!("The graph {} can't be {what}", path.display()),
        error,
        "Check the path, its permissions and the disk.",
        FORMAT.still_works,
    )
}

impl Graph {
    /// Writes the graph.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let write = || -> std::io::Result<()> {
            let meta = serde_json::to_vec(&self.meta)?;
            let details = self.vertices.details_records();
            let others = [&self.others[..], &self.awaits[..]].concat();
            let (rows, rest) = both(
                || packed_vertices(&self.vertices),
                || -> std::io::Result<_> { Ok((packed(details)?, packed(edge_records(&others))?)) },
            );
            let (details, others) = rest?;
            let parts = [packed(&meta)?, rows?, details, others];
            flagfinder_files::write_private(path, |file| {
                file.write_all(bytemuck::bytes_of(&FORMAT.header()))?;
                parts.iter().try_for_each(|part| file.write_all(part))
            })
        };
        write().map_err(|error| failed("written", path, &error))
    }

    /// Reads a graph.
    ///
    /// # Errors
    /// When the file can't be read, is no graph, is damaged or of another version.
    pub fn open(path: &Path) -> Result<Graph> {
        let (storage, _) = FORMAT.open(path)?;
        let (parts, damage) = scan(&storage).map_err(|error| failed("read", path, &error))?;
        let (Ok([meta, rows, details, others]), []) = (<[Part; 4]>::try_from(parts), &damage[..])
        else {
            return Err(bad("a file that is cut, or a damaged header"));
        };
        let meta: Vec<u8> = unpacked(&storage, &meta, JSON_PER_BYTE)?;
        let meta: Meta = serde_json::from_slice(&meta).map_err(|error| bad(error.to_string()))?;
        let details: Vec<Details> = unpacked(&storage, &details, UNPACKED_PER_BYTE)?;
        let others: Vec<Edge> = unpacked(&storage, &others, UNPACKED_PER_BYTE)?;
        let announced = bytes_of::<Vertex>(&rows, UNPACKED_PER_BYTE)? / size_of::<Vertex>();
        let is_vertex = |index: u32| (index as usize) < announced;
        let is_cause = |index: u32| index == NOBODY || is_vertex(index);
        let known = details.len();
        let is_sound = |row: &Vertex| {
            (row.thread as usize) < meta.threads.len()
                && (row.details as usize) < known
                && is_cause(row.from)
                && row.start <= row.end
        };
        let mut vertices = Vertices::of_details(details);
        let mut sound = known > 0 && others.iter().all(|e| is_vertex(e.to) && is_cause(e.from));
        unpacked_pieces(&storage, &rows, announced, |piece| {
            sound = sound && piece.iter().all(is_sound);
            if sound {
                for row in piece {
                    vertices.push(*row);
                }
            }
        })?;
        if !sound {
            return Err(bad(
                "edges, threads or details that are not there, or times that go back",
            ));
        }
        Ok(Graph::new(meta, vertices, others))
    }
}

/// What stands before a part.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct PartHeader {
    magic: u32,
    header_checksum: u32,
    /// What it unpacks to.
    pub raw_bytes: u64,
    /// What it takes in the file, the header apart.
    pub stored_bytes: u64,
    /// Of what is stored, see [`flagfinder_container::checksum`].
    pub payload_checksum: u64,
}

impl Sealed for PartHeader {
    const MAGIC: u32 = u32::from_le_bytes(*b"FFGP");
    /// What a part may unpack to depends on its size, see `unpacked`.
    const MOST_RAW: u64 = 1 << 56;

    fn seals(&mut self) -> (&mut u32, &mut u32) {
        (&mut self.magic, &mut self.header_checksum)
    }

    fn payload(&self) -> Payload {
        Payload {
            raw_bytes: self.raw_bytes,
            stored_bytes: self.stored_bytes,
            checksum: self.payload_checksum,
        }
    }
}

type Part = Section<PartHeader>;

/// A part as it stands in the file.
fn packed(raw: &[u8]) -> std::io::Result<Vec<u8>> {
    Ok(part(&zstd::bulk::compress(raw, LEVEL)?, raw.len() as u64))
}

/// The vertices as they stand in the file. Never all in that layout at once.
fn packed_vertices(vertices: &Vertices) -> std::io::Result<Vec<u8>> {
    let bytes = vertices.len() as u64 * size_of::<Vertex>() as u64;
    let mut packer = zstd::stream::write::Encoder::new(Vec::new(), LEVEL)?;
    packer.set_pledged_src_size(Some(bytes))?;
    vertices.records(|piece| packer.write_all(piece))?;
    Ok(part(&packer.finish()?, bytes))
}

fn part(stored: &[u8], raw_bytes: u64) -> Vec<u8> {
    let mut header = PartHeader {
        raw_bytes,
        stored_bytes: stored.len() as u64,
        payload_checksum: checksum(stored),
        ..PartHeader::zeroed()
    };
    header.seal();
    [bytemuck::bytes_of(&header), stored].concat()
}

/// How many bytes a part of such values announces.
fn bytes_of<T>(part: &Part, per_byte: u64) -> Result<usize> {
    let Payload {
        raw_bytes,
        stored_bytes,
        ..
    } = part.header.payload();
    let most = stored_bytes.saturating_mul(per_byte);
    if raw_bytes > most.saturating_add(UNPACKED) {
        return Err(bad("a part that announces far more than it holds"));
    }
    let bytes = raw_bytes as usize;
    if bytes % size_of::<T>() != 0 {
        return Err(bad("a part of odd length"));
    }
    Ok(bytes)
}

/// Unpacks the vertices, which are so many, piece by piece.
fn unpacked_pieces(
    storage: &Storage,
    part: &Part,
    count: usize,
    mut take: impl FnMut(&[Vertex]),
) -> Result<()> {
    let mut loader = Loader::default();
    let stored = loader.read(storage, part);
    let stored = stored.map_err(|error| bad(error.to_string()))?;
    let mut read = || -> std::io::Result<bool> {
        let mut unpacker = zstd::stream::read::Decoder::with_buffer(stored)?.single_frame();
        let mut piece = vec![Vertex::zeroed(); PIECE.min(count)];
        let mut left = count;
        while left > 0 {
            let piece = &mut piece[..PIECE.min(left)];
            unpacker.read_exact(cast_slice_mut(piece))?;
            take(piece);
            left -= piece.len();
        }
        Ok(unpacker.read(&mut [0])? == 0)
    };
    match read() {
        Ok(true) => Ok(()),
        Ok(false) => Err(bad("vertices that are more than announced")),
        Err(error) => Err(bad(error.to_string())),
    }
}

/// Unpacks a part into the memory of the values themselves.
fn unpacked<T: Pod>(storage: &Storage, part: &Part, per_byte: u64) -> Result<Vec<T>> {
    let bytes = bytes_of::<T>(part, per_byte)?;
    let values = try_zeroed_vec(bytes / size_of::<T>());
    let mut values: Vec<T> = values.map_err(|()| bad("more than the memory holds"))?;
    let room: &mut [u8] = cast_slice_mut(&mut values);
    let mut loader = Loader::default();
    let read = loader.read(storage, part).map(drop);
    match read.and_then(|()| loader.unpack(room)) {
        Ok(found) if found == bytes => Ok(values),
        Ok(_) => Err(bad("a part that is shorter than announced")),
        Err(error) => Err(bad(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        file.write_all(bytemuck::bytes_of(&FORMAT.header()))
            .unwrap();
        for (bytes, raw) in [
            (None, meta),
            (Some(announced), raw),
            (None, bytemuck::bytes_of(&details)),
            (None, &[]),
        ] {
            let stored = zstd::bulk::compress(raw, LEVEL).unwrap();
            let bytes = bytes.unwrap_or(raw.len() as u64);
            file.write_all(&part(&stored, bytes)).unwrap();
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

    /// Each of its lists would take eight bytes of memory for each of its own bytes.
    #[test]
    fn small_json_that_unpacks_to_much_is_refused() {
        let noise = (0..8000u64).map(|n| format!("{:016x}", checksum(&n.to_le_bytes())));
        let stacks = vec!["[]"; 8 << 20].join(",");
        let text = String::from_utf8(meta()).unwrap();
        let text = text.replace("\"stacks\":[]", &format!("\"stacks\":[{stacks}]"));
        let noisy = format!("\"syscalls\":\"{}\"", noise.collect::<String>());
        let text = text.replace("\"syscalls\":\"\"", &noisy);
        let packed = packed(text.as_bytes()).unwrap().len();
        // The vertices as dense as they may be.
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
