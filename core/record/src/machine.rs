// SPDX-License-Identifier: MIT
//! INFO: the circumstances of a recording.

use std::collections::BTreeMap;

use flagfinder_trace::Info;
use serde_json::Value;

use crate::options::{RecordOptions, Then};

pub fn info(options: &RecordOptions) -> Info {
    let mut settings = options.facts.clone();
    let mut set = |key: &str, value: Value| {
        settings.insert(key.to_owned(), value);
    };
    set("follow_children", options.follow_children.into());
    set(
        "then",
        if options.then == Then::Kill {
            "kill"
        } else {
            "leave"
        }
        .into(),
    );
    if let Some(last) = options.last {
        set("last_bytes", last.bytes.into());
        set("last_limits_flow", last.flow.into());
    }
    if let Some(wanted) = options.stop_when_spinning {
        set("stop_when_spinning_seconds", wanted.as_secs_f64().into());
    }
    if let Some(wanted) = options.stop_after {
        set("stop_after_seconds", wanted.as_secs_f64().into());
    }
    Info {
        recorder: env!("CARGO_PKG_VERSION").to_owned(),
        tracer: options.tracer_name.clone(),
        level: options.level,
        command: options.command.clone(),
        working_directory: std::env::current_dir()
            .map(|path| path.display().to_string())
            .unwrap_or_default(),
        machine: machine(),
        options: settings,
    }
}

fn machine() -> BTreeMap<String, Value> {
    let mut facts = BTreeMap::new();
    let mut file = |key: &str, path: &str| {
        if let Ok(text) = std::fs::read_to_string(path) {
            facts.insert(key.to_owned(), Value::from(text.trim()));
        }
    };
    file("kernel", "/proc/sys/kernel/osrelease");
    file("boot_id", "/proc/sys/kernel/random/boot_id");
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    facts.insert("cpus".into(), cpus.into());
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    for (key, field) in [("cpu", "model name"), ("cpu_flags", "flags")] {
        let line = text.lines().find(|line| {
            line.split(':')
                .next()
                .is_some_and(|name| name.trim() == field)
        });
        if let Some((_, value)) = line.and_then(|line| line.split_once(':')) {
            facts.insert(key.to_owned(), Value::from(value.trim()));
        }
    }
    facts
}
