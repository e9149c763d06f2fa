// SPDX-License-Identifier: MIT
//! A toy machine for synthetic runs: blocks by name, flows as lists of names.

use flagfinder_diff::input::{
    BlockHome, Ending, Event, Flow, FlowError, ProcessInput, RawBlock, Run, Sink, ThreadInput,
};
use flagfinder_diff::{align, CodePlace, Divergence, Options};
use std::collections::HashMap;

pub const SIZE: u64 = 0x10;

/// Blocks of the one module "app"; every block is 16 bytes, its last instruction 2.
#[derive(Clone)]
pub struct Code {
    names: HashMap<&'static str, (u32, u64)>,
    blocks: Vec<(u64, Ending)>,
}

/// Endings with offsets instead of addresses.
#[derive(Clone, Copy)]
pub enum End {
    Fall,
    If(u64),
    Jump(u64),
    Dyn,
    Call(u64),
    DynCall,
    Ret,
    Sys,
}

impl Code {
    pub fn new(list: &[(&'static str, u64, End)]) -> Code {
        let mut code = Code {
            names: HashMap::new(),
            blocks: Vec::new(),
        };
        for &(name, offset, end) in list {
            code.blocks.push((
                offset,
                match end {
                    End::Fall => Ending::Fallthrough,
                    End::If(target) => Ending::Conditional { target },
                    End::Jump(target) => Ending::Jump { target },
                    End::Dyn => Ending::IndirectJump,
                    End::Call(target) => Ending::Call { target },
                    End::DynCall => Ending::IndirectCall,
                    End::Ret => Ending::Return,
                    End::Sys => Ending::Syscall,
                },
            ));
            code.names.insert(name, (code.blocks.len() as u32, offset));
        }
        code
    }

    pub fn id(&self, name: &str) -> u32 {
        self.names
            .get(name)
            .unwrap_or_else(|| panic!("no block {name}"))
            .0
    }

    /// The blocks as a process loaded at `base` sees them, ids shuffled by `salt`.
    pub fn load(&self, base: u64, salt: u32) -> Vec<RawBlock> {
        self.blocks
            .iter()
            .enumerate()
            .map(|(index, &(offset, ending))| RawBlock {
                id: (index as u32 + 1) ^ salt,
                home: BlockHome::Module { module: 0, base },
                start: base + offset,
                last: base + offset + SIZE - 2,
                end: base + offset + SIZE,
                ending: match ending {
                    Ending::Conditional { target } => Ending::Conditional {
                        target: base + target,
                    },
                    Ending::Jump { target } => Ending::Jump {
                        target: base + target,
                    },
                    Ending::Call { target } => Ending::Call {
                        target: base + target,
                    },
                    other => other,
                },
            })
            .collect()
    }
}

#[derive(Clone, Debug)]
pub enum Item {
    Block(u32),
    /// Blocks that repeat, and how many in all.
    Cycle(Vec<u32>, u64),
    Event(Event),
}

/// A flow spelled out.
#[derive(Clone, Default)]
pub struct Script {
    pub items: Vec<Item>,
}

impl Flow for Script {
    fn walk<S: Sink>(&self, sink: &mut S) -> Result<(), FlowError> {
        for item in &self.items {
            match item {
                Item::Block(id) => sink.block(*id),
                Item::Cycle(round, count) => sink.cycle(round, *count),
                Item::Event(event) => sink.event(*event),
            }
        }
        Ok(())
    }
}

/// Writes a thread's flow.
pub struct Pen<'a> {
    code: &'a Code,
    salt: u32,
    pub script: Script,
}

impl Pen<'_> {
    /// Runs blocks: names separated by blanks.
    pub fn run(&mut self, names: &str) -> &mut Self {
        for name in names.split_whitespace() {
            self.script
                .items
                .push(Item::Block(self.code.id(name) ^ self.salt));
        }
        self
    }

    pub fn times(&mut self, count: usize, names: &str) -> &mut Self {
        for _ in 0..count {
            self.run(names);
        }
        self
    }

    /// Runs `count` blocks that go through `names` over and over, handed over as a cycle.
    pub fn cycle(&mut self, count: u64, names: &str) -> &mut Self {
        let ids = names.split_whitespace();
        let round = ids.map(|name| self.code.id(name) ^ self.salt).collect();
        self.script.items.push(Item::Cycle(round, count));
        self
    }

    pub fn event(&mut self, event: Event) -> &mut Self {
        self.script.items.push(Item::Event(event));
        self
    }

    pub fn exit(&mut self) -> &mut Self {
        self.event(Event::Exit { ts: 0 })
    }

    /// A clone that gives `child`.
    pub fn clone_thread(&mut self, child: u32) -> &mut Self {
        self.event(Event::SyscallEnter { number: 56, ts: 0 });
        self.event(Event::SyscallExit {
            number: 56,
            result: i64::from(child),
            ts: 0,
        })
    }
}

/// A run at its own base, with its own block and thread ids.
pub struct World<'a> {
    code: &'a Code,
    base: u64,
    salt: u32,
    pub run: Run<Script>,
}

impl<'a> World<'a> {
    pub fn new(code: &'a Code, number: u32) -> World<'a> {
        let base = 0x5555_0000_0000 + u64::from(number) * 0x12_3000;
        let salt = number << 6;
        let process = ProcessInput {
            pid: 100 * number,
            image: 1,
            replaced: false,
            started_by: Vec::new(),
            program: "app".into(),
            blocks: code.load(base, salt),
            killed: false,
        };
        World {
            code,
            base,
            salt,
            run: Run {
                processes: vec![process],
                threads: Vec::new(),
                end_ts: 0,
            },
        }
    }

    /// The process calls exec: `code` at a base and with ids of its own takes the place of what
    /// ran.
    pub fn exec(&mut self, program: &str) -> &mut Self {
        self.base += 0x10_0000_0000;
        self.salt ^= 0x20;
        let before = self.run.processes.last_mut().expect("a process");
        before.replaced = true;
        let mut started_by = before.started_by.clone();
        started_by.insert(0, before.program.clone());
        let after = ProcessInput {
            pid: before.pid,
            image: before.image + 1,
            replaced: false,
            started_by,
            program: program.into(),
            blocks: self.code.load(self.base, self.salt),
            killed: false,
        };
        self.run.processes.push(after);
        self
    }

    /// The name of the program that runs.
    pub fn program(&mut self, name: &str) -> &mut Self {
        let process = self.run.processes.last_mut().expect("a process");
        process.program = name.into();
        self
    }

    pub fn thread(&mut self, tid: u32, creator: u32, write: impl FnOnce(&mut Pen)) -> &mut Self {
        let mut pen = Pen {
            code: self.code,
            salt: self.salt,
            script: Script::default(),
        };
        write(&mut pen);
        let name = format!("t{tid}");
        self.run.threads.push(ThreadInput {
            tid,
            process: self.run.processes.len() - 1,
            name,
            creator,
            flow: pen.script,
        });
        self
    }
}

/// A run with one thread.
pub fn single(code: &Code, number: u32, write: impl FnOnce(&mut Pen)) -> Run<Script> {
    let mut world = World::new(code, number);
    world.thread(100 * number, 0, write);
    world.run
}

pub fn diff(normals: &[Run<Script>], spin: &Run<Script>) -> Divergence {
    align(
        normals,
        spin,
        vec!["app".into()],
        &Options::default(),
        &|_| {},
    )
    .expect("toy flows can be read")
}

/// The place of the last instruction of the block at `offset`.
pub fn branch_of(offset: u64) -> Option<CodePlace> {
    at(offset + SIZE - 2)
}

pub fn at(offset: u64) -> Option<CodePlace> {
    Some(CodePlace {
        module: "app".into(),
        offset,
    })
}
