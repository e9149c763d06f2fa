//! Whether this process may use BPF and perf events, asked before anything is tried: the kernel's own answer is a bare EPERM.

use std::fs;

use crate::error::{BpfError, Result};

/// A Linux capability, by its number (linux/capability.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    SysAdmin = 21,
    Perfmon = 38,
    Bpf = 39,
}

impl Capability {
    pub fn name(self) -> &'static str {
        match self {
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::Perfmon => "CAP_PERFMON",
            Capability::Bpf => "CAP_BPF",
        }
    }
}

fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

fn has(mask: u64, capability: Capability) -> bool {
    mask >> capability as u32 & 1 == 1
}

/// CAP_SYS_ADMIN stands for all that were split off from it.
fn missing(mask: u64, needed: &[Capability]) -> Vec<&'static str> {
    let lacks = |c: &&Capability| !has(mask, **c) && !has(mask, Capability::SysAdmin);
    needed.iter().filter(lacks).map(|c| c.name()).collect()
}

fn setting(path: &str) -> String {
    let value = fs::read_to_string(path).map(|text| text.trim().to_owned());
    let name = path.rsplit('/').next().unwrap_or(path);
    format!("{name} is {}", value.unwrap_or_else(|e| e.to_string()))
}

/// Returns when this process has the capabilities.
///
/// # Errors
/// Names those that are missing, and the settings that matter.
pub fn require(what: &str, needed: &[Capability]) -> Result<()> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let missing = missing(effective(&status), needed);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" and ");
    let letters = missing.join(",").to_lowercase();
    Err(BpfError {
        exit_code: 77,
        what: format!("{what} needs {names}"),
        found: format!(
            "this process lacks {names} ({}, {})",
            setting("/proc/sys/kernel/perf_event_paranoid"),
            setting("/proc/sys/kernel/unprivileged_bpf_disabled"),
        ),
        fix: format!(
            "Run it as root (sudo), or give the Python interpreter of this installation the capabilities:\n\
             setcap {letters}+ep $(readlink -f $(command -v python3))"
        ),
        still_works: "`flagfinder record` and `diff` need no privileges; `flagfinder spin` needs only ptrace.".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status() {
        let mask = effective("Name:\tx\nCapEff:\t000000c000000000\nCapBnd:\t0\n");
        assert_eq!(
            missing(mask, &[Capability::Bpf, Capability::Perfmon]),
            Vec::<&str>::new()
        );
        assert_eq!(
            missing(1 << 39, &[Capability::Bpf, Capability::Perfmon]),
            ["CAP_PERFMON"]
        );
        assert_eq!(missing(1 << 21, &[Capability::Bpf]), Vec::<&str>::new());
        assert_eq!(
            missing(0, &[Capability::Bpf, Capability::Perfmon]),
            ["CAP_BPF", "CAP_PERFMON"]
        );
    }
}
