// SPDX-License-Identifier: MIT
//! Whether this process may use BPF and perf events, asked before anything is tried: the kernel's
//! own answer is a bare EPERM.

use std::fs;

use flagfinder_privileges::{how_to_get, is_in_user_namespace, missing, Capability};

use flagfinder_failure::{Failure, Result, DENIED};

const STILL_WORKS: &str =
    "`flagfinder record` and `diff` need no privileges; `flagfinder spin` needs only ptrace.";

fn setting(path: &str) -> String {
    let value = fs::read_to_string(path).map(|text| text.trim().to_owned());
    let name = path.rsplit('/').next().unwrap_or(path);
    format!("{name} is {}", value.unwrap_or_else(|e| e.to_string()))
}

/// Returns when this process has the capabilities.
///
/// # Errors
/// Names those that are missing, and the settings that matter; or says why those that are there do
/// not count.
pub fn require(what: &str, needed: &[Capability]) -> Result<()> {
    let missing = missing(needed);
    let names = |of: &[Capability]| {
        let names: Vec<&str> = of.iter().map(|capability| capability.name()).collect();
        names.join(" and ")
    };
    let refused = |found: String, fix: String| {
        let what = format!("{what} needs {}", names(needed));
        Err(Failure::new(DENIED, what, found, fix, STILL_WORKS))
    };
    if is_in_user_namespace() {
        return refused(
            "this process is in a user namespace (a rootless container), where they do not count \
             for BPF"
                .into(),
            "Run it outside, or in a container of the machine's own root.".into(),
        );
    }
    if missing.is_empty() {
        return Ok(());
    }
    let found = format!(
        "this process lacks {} ({}, {})",
        names(&missing),
        setting("/proc/sys/kernel/perf_event_paranoid"),
        setting("/proc/sys/kernel/unprivileged_bpf_disabled"),
    );
    refused(found, how_to_get(needed))
}
