// SPDX-License-Identifier: MIT
//! Opening a trace: sections are found by their headers and put back into threads
//! and processes. Sections may stand in any order in the file; `seq` within a
//! stream and `ts_open` between streams decide.
//!
//! Blind spots: payloads other than META, and the first bytes of each thread, are
//! not verified here; cursors do that as they reach them, `check` does it at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::block::BlockTable;
use crate::container::{
    scan_sections, Damage, Section, SectionKind, SectionLoader, Storage, FORMAT,
};
use crate::decoder::DecodedFlow;
use crate::error::{Failure, Result, STILL_WORKS};
use crate::event::Event;
use crate::flow::{Flow, GapReason};
use crate::images::number_images;
use crate::info::{End, Info, Note, NoteLevel};
use crate::process::{add_fault, MapsSnapshot, MetaReader, Process};
use crate::streams::{latest, split_streams, Stream};
use crate::thread::{Thread, ThreadStart};

/// A recording, opened for reading.
#[derive(Debug)]
pub struct Trace {
    info: Info,
    notes: Vec<Note>,
    end: Option<End>,
    processes: Vec<Process>,
    damage: Vec<Damage>,
    faults: Vec<String>,
}

impl Trace {
    /// Opens a trace file. Errors: the system's, or `BadTrace` (exit status 65) for
    /// an empty, foreign or newer file or one without a single whole section.
    pub fn open(path: &Path) -> Result<Trace> {
        let (storage, _) = FORMAT.open(path)?;
        Self::from_storage(storage)
    }

    /// Opens a trace that stands in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Trace> {
        let storage = Storage::memory(bytes);
        FORMAT.check(&storage)?;
        Self::from_storage(storage)
    }

    fn from_storage(storage: Storage) -> Result<Trace> {
        let (sections, damage) = scan_sections(&storage)?;
        if sections.is_empty() {
            return Err(Failure::bad_file(
                "The trace holds nothing",
                format!(
                    "a header, then {} bytes without one whole section",
                    storage.bytes().saturating_sub(64)
                ),
                "Record again; was the recorder killed at once, or the disk full?",
                STILL_WORKS,
            ));
        }
        let file_bytes = storage.bytes();
        let mut opener = Opener {
            storage: Arc::new(storage),
            room: UNPACKED.saturating_add(file_bytes.saturating_mul(UNPACKED_PER_BYTE)),
            loader: SectionLoader::default(),
            buffer: Vec::new(),
            faults: Vec::new(),
            notes: Vec::new(),
        };
        let (mut info, mut end, mut file_notes) = (Info::default(), None, Vec::new());
        opener.json(&sections, SectionKind::Info, |read| info = read);
        opener.json(&sections, SectionKind::End, |read| end = Some(read));
        opener.json(&sections, SectionKind::Note, |read| file_notes.push(read));
        opener.notes.extend(file_notes);
        let processes = opener.processes(&sections)?;
        Ok(Trace {
            info,
            notes: opener.notes,
            end,
            processes,
            damage,
            faults: opener.faults,
        })
    }

    /// Image `number`, from 1, of the process `pid`.
    pub fn image(&self, pid: u32, number: u32) -> Option<&Process> {
        let mut processes = self.processes().iter();
        processes.find(|process| process.pid == pid && process.image == number)
    }

    /// The programs that led to the image, the latest first: those that its process ran before,
    /// then those of its parent, and so on.
    pub fn started_by<'a>(&'a self, image: &'a Process) -> Vec<&'a str> {
        let mut programs = Vec::new();
        let mut at = image;
        loop {
            let before = at.image.checked_sub(1).and_then(|n| self.image(at.pid, n));
            let of_parent = || {
                let mut earlier = self.processes().iter().rev();
                earlier.find(|p| p.pid == at.parent_pid && p.start_ts < at.start_ts)
            };
            match before.or_else(of_parent) {
                Some(starter) => at = starter,
                None => return programs,
            }
            // A child that has not called exec yet runs its parent's program.
            if programs.last().copied().unwrap_or(image.program()) != at.program() {
                programs.push(at.program());
            }
        }
    }

    /// All defaults when the INFO section was damaged.
    pub fn info(&self) -> &Info {
        &self.info
    }
    /// Everything that was announced while recording.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }
    /// `None`: the recording was not closed in order (the recorder was killed), or
    /// the end of the file is missing.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }
    /// In the order in which they started; the recorded command comes first.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }
    /// Closed in order, and no byte of the file is damaged as far as opening looked.
    pub fn is_complete(&self) -> bool {
        self.end.is_some() && self.damage.is_empty() && self.faults.is_empty()
    }
    /// Bytes of the file that are no whole section.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }
    /// What opening found wrong inside sections, in words.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }
}

/// Opening may unpack so many bytes, and so many more for each byte of the file. Real files stay
/// far below.
const UNPACKED: u64 = 16 << 20;
const UNPACKED_PER_BYTE: u64 = 64;
/// One section of JSON may unpack to so many bytes, and to so many more for each of its bytes. Its
/// lists take ten times as much once they are read, and more in Python.
const JSON_UNPACKED: u64 = 1 << 20;
const JSON_PER_BYTE: u64 = 32;
struct Opener {
    storage: Arc<Storage>,
    /// Bytes that may still be unpacked.
    room: u64,
    loader: SectionLoader,
    buffer: Vec<u8>,
    faults: Vec<String>,
    notes: Vec<Note>,
}

impl Opener {
    fn fault(&mut self, text: String) {
        add_fault(&mut self.faults, text);
    }

    /// Loads a section; damage becomes a fault. Errors: I/O.
    fn load(&mut self, section: &Section) -> Result<bool> {
        let Some(room) = self.room.checked_sub(section.header.raw_bytes) else {
            self.fault("sections that unpack to far more than the file holds are left out".into());
            return Ok(false);
        };
        self.room = room;
        match self.loader.load(&self.storage, section, &mut self.buffer) {
            Ok(()) => Ok(true),
            Err(error) if error.is_bad_file() => {
                self.fault(format!("{} ({})", error.what, error.found));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Hands what the sections of a kind say to `take`, in the file's order.
    fn json<T: serde::de::DeserializeOwned>(
        &mut self,
        sections: &[Section],
        kind: SectionKind,
        mut take: impl FnMut(T),
    ) {
        let of_kind = |section: &&Section| section.header.section_kind() == Some(kind);
        for section in sections.iter().filter(of_kind) {
            if let Ok(Some(value)) = self.parsed(section) {
                take(value);
            }
        }
    }

    /// What a section of JSON says; damage becomes a fault. Errors: I/O.
    fn parsed<T: serde::de::DeserializeOwned>(&mut self, section: &Section) -> Result<Option<T>> {
        let header = &section.header;
        let kind = header.section_kind();
        let kind = kind.map_or_else(String::new, |kind| format!("{kind:?}"));
        let most = header.stored_bytes.saturating_mul(JSON_PER_BYTE);
        if header.raw_bytes > most.saturating_add(JSON_UNPACKED) {
            self.fault(format!(
                "a {kind} section that unpacks to far more than it holds is left out"
            ));
            return Ok(None);
        }
        if !self.load(section)? {
            return Ok(None);
        }
        let parsed = serde_json::from_slice(&self.buffer);
        if let Err(error) = &parsed {
            self.fault(format!("a {kind} section is no such JSON: {error}"));
        }
        Ok(parsed.ok())
    }

    fn processes(&mut self, sections: &[Section]) -> Result<Vec<Process>> {
        // Streams of one image; where the tracer does not tell images apart (0), times do.
        let mut groups: BTreeMap<(u32, u64), Vec<Section>> = BTreeMap::new();
        for section in sections {
            let kind = section.header.section_kind();
            if let Some(SectionKind::Meta | SectionKind::Flow | SectionKind::Values) = kind {
                let key = (section.header.pid, section.header.image_ts);
                groups.entry(key).or_default().push(*section);
            }
        }
        let mut processes = Vec::new();
        for ((pid, _), group) in &groups {
            let streams = |kind| split_streams(group, kind);
            self.images(
                *pid,
                streams(SectionKind::Meta),
                streams(SectionKind::Flow),
                streams(SectionKind::Values),
                &mut processes,
            )?;
        }
        let mut pids: Vec<u32> = groups.keys().map(|(pid, _)| *pid).collect();
        pids.dedup();
        for pid in pids {
            self.annotate(pid, sections, &mut processes)?;
        }
        processes.sort_by_key(|process| process.start_ts);
        number_images(&mut processes);
        Ok(processes)
    }

    /// Adds one `Process` per image that ran under `pid`.
    fn images(
        &mut self,
        pid: u32,
        meta: Vec<Stream>,
        flow: Vec<Stream>,
        values: Vec<Stream>,
        processes: &mut Vec<Process>,
    ) -> Result<()> {
        let first = processes.len();
        let starts: Vec<u64> = meta.iter().map(|stream| stream[0].header.ts_open).collect();
        for stream in &meta {
            processes.push(self.image(pid, stream)?);
        }
        if meta.is_empty() {
            processes.push(Process {
                pid,
                ..Process::default()
            });
        }
        let mut owners: Vec<Vec<Thread>> = (first..processes.len()).map(|_| Vec::new()).collect();
        let mut flow: Vec<(usize, Stream)> = flow
            .into_iter()
            .map(|stream| (latest(&starts, stream[0].header.ts_open), stream))
            .collect();
        flow.sort_by_key(|(owner, stream)| {
            (*owner, stream[0].header.ts_open, stream[0].header.tid)
        });
        for (owner, stream) in flow {
            let blocks = Arc::clone(&processes[first + owner].blocks);
            owners[owner].push(self.thread(stream, blocks));
        }
        for stream in values {
            let header = stream[0].header;
            let owner = latest(&starts, header.ts_open);
            // A tid may be reused: its latest life that had begun by then.
            let lives = || {
                owners[owner]
                    .iter()
                    .enumerate()
                    .filter(|(_, thread)| thread.tid == header.tid)
            };
            let begun = lives()
                .rev()
                .find(|(_, t)| t.opened().is_some_and(|(ts, _)| ts <= header.ts_open));
            match begun.or_else(|| lives().next()).map(|(index, _)| index) {
                Some(index) => owners[owner][index].values_sections.extend(stream),
                None => self.fault(format!("thread {} has values but no flow", header.tid)),
            }
        }
        for (process, threads) in processes[first..].iter_mut().zip(owners) {
            process.threads = threads;
            if process.start_ts == 0 {
                process.start_ts = process
                    .threads
                    .first()
                    .and_then(Thread::opened)
                    .map_or(0, |(ts, _)| ts);
            }
        }
        Ok(())
    }

    fn image(&mut self, pid: u32, stream: &Stream) -> Result<Process> {
        let mut process = Process {
            pid,
            start_ts: stream[0].header.ts_open,
            ..Process::default()
        };
        let mut blocks = BlockTable::default();
        let mut tracer_notes = Vec::new();
        for section in stream {
            if self.load(section)? {
                let mut reader = MetaReader {
                    process: &mut process,
                    blocks: &mut blocks,
                    notes: &mut tracer_notes,
                    faults: &mut self.faults,
                };
                reader.read(&self.buffer, section.header.is_partial());
            }
        }
        process.blocks = Arc::new(blocks);
        self.notes.extend(tracer_notes.into_iter().map(|text| Note {
            level: NoteLevel::Warning,
            text,
        }));
        Ok(process)
    }

    fn thread(&mut self, flow_sections: Stream, blocks: Arc<BlockTable>) -> Thread {
        let header = flow_sections[0].header;
        let mut thread = Thread {
            pid: header.pid,
            tid: header.tid,
            name: String::new(),
            start: None,
            storage: Arc::clone(&self.storage),
            blocks,
            flow_sections,
            values_sections: Vec::new(),
            ended_open: false,
            ended_by_exec: false,
        };
        let ending = ending(&thread);
        thread.ended_open = ending == Ending::Open;
        thread.ended_by_exec = ending == Ending::Exec;
        let first = thread.flow().next();
        let start = match first {
            Some(Ok(Flow::Event { event, .. })) => event,
            _ => return thread,
        };
        if let Event::ThreadStart {
            creator_tid,
            ts,
            fs_base,
            stack_pointer,
            start_pc,
            ..
        } = start
        {
            let creator_tid = (creator_tid != 0).then_some(creator_tid);
            thread.start = Some(ThreadStart {
                creator_tid,
                ts,
                fs_base,
                stack_pointer,
                start_pc,
            });
        }
        thread
    }

    /// Gives maps and thread names to the image that ran when they were read.
    fn annotate(
        &mut self,
        pid: u32,
        sections: &[Section],
        processes: &mut [Process],
    ) -> Result<()> {
        let mut starts: Vec<(u64, usize)> = processes
            .iter()
            .enumerate()
            .filter(|(_, process)| process.pid == pid)
            .map(|(index, process)| (process.start_ts, index))
            .collect();
        starts.sort_unstable();
        let times: Vec<u64> = starts.iter().map(|(ts, _)| *ts).collect();
        let of = |kind: SectionKind| {
            sections
                .iter()
                .filter(move |s| s.header.pid == pid && s.header.kind == kind as u16)
        };
        let (maps, names) = (of(SectionKind::Maps), of(SectionKind::Names));
        for section in maps {
            if self.load(section)? {
                let text = String::from_utf8_lossy(&self.buffer).into_owned();
                let owner = starts[latest(&times, section.header.ts_open)].1;
                processes[owner].maps.push(MapsSnapshot {
                    ts: section.header.ts_open,
                    text,
                });
            }
        }
        for section in names {
            let parsed: Option<BTreeMap<u32, String>> = self.parsed(section)?;
            let Some(named) = parsed else { continue };
            let owner = starts[latest(&times, section.header.ts_open)].1;
            for (tid, name) in named {
                if let Some(thread) = processes[owner]
                    .threads
                    .iter_mut()
                    .rev()
                    .find(|t| t.tid == tid)
                {
                    thread.name = name;
                }
            }
        }
        Ok(())
    }
}

/// The event with which a thread's flow ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Exit,
    Exec,
    Open,
}

/// A damaged end shows nothing; it counts as an exit.
fn ending(thread: &Thread) -> Ending {
    if thread.flow_is_partial() {
        return Ending::Open;
    }
    let mut last = DecodedFlow::default();
    let index = thread.flow_section_count().saturating_sub(1);
    if thread.flow_decoder().decode(index, &mut last).is_err()
        || last.gap == Some(GapReason::Damaged)
    {
        return Ending::Exit;
    }
    let ending = last
        .events
        .last()
        .filter(|(before, _, _)| *before == last.blocks.len());
    match ending {
        Some((_, _, Event::ThreadExit { .. })) => Ending::Exit,
        Some((_, _, Event::Exec { .. })) => Ending::Exec,
        _ => Ending::Open,
    }
}
