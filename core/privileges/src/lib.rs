// SPDX-License-Identifier: MIT
//! What this process may do: its capabilities, whether they count, and how one command gets those
//! that it lacks.
//!
//! In: /proc/self. Out: names of missing capabilities, and the one piece of advice that all errors
//! and `doctor` give. The advice gives the capabilities to one command, for as long as it runs.
//! Capabilities of a file would do so for all that its interpreter is ever asked to run, by any
//! user.

use std::fs;

/// The inode of the first user namespace (PROC_USER_INIT_INO of the kernel's proc_ns.h).
const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";

/// A Linux capability, by its number (linux/capability.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// To stop and read processes of others, and one's own where Yama forbids it.
    SysPtrace = 19,
    /// Stands for `Perfmon` and `Bpf`, which older kernels do not have.
    SysAdmin = 21,
    /// To open perf events of all processes, and for BPF programs to read memory.
    Perfmon = 38,
    /// To load BPF programs.
    Bpf = 39,
}

impl Capability {
    /// In order of their numbers.
    pub const ALL: [Capability; 4] = [
        Capability::SysPtrace,
        Capability::SysAdmin,
        Capability::Perfmon,
        Capability::Bpf,
    ];

    /// As capabilities(7) has it: `CAP_BPF`.
    pub fn name(self) -> &'static str {
        match self {
            Capability::SysPtrace => "CAP_SYS_PTRACE",
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

/// CAP_SYS_ADMIN stands for those that were split off from it.
fn covers(mask: u64, capability: Capability) -> bool {
    let split_off = matches!(capability, Capability::Perfmon | Capability::Bpf);
    has(mask, capability) || split_off && has(mask, Capability::SysAdmin)
}

fn lacking(mask: u64, needed: &[Capability]) -> Vec<Capability> {
    let lacks = |capability: &Capability| !covers(mask, *capability);
    needed.iter().copied().filter(lacks).collect()
}

/// Those of `needed` that this process does not have.
pub fn missing(needed: &[Capability]) -> Vec<Capability> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    lacking(effective(&status), needed)
}

/// Whether this process is in a user namespace of a container's: its capabilities count there only,
/// not for what concerns the whole machine, such as BPF.
pub fn is_in_user_namespace() -> bool {
    let found = fs::read_link("/proc/self/ns/user");
    found.is_ok_and(|link| link.as_os_str() != FIRST_USER_NAMESPACE)
}

/// How one command gets these capabilities, as a `fix`.
pub fn how_to_get(capabilities: &[Capability]) -> String {
    let words = capabilities.iter().map(|capability| {
        let name = capability.name().trim_start_matches("CAP_");
        format!("+{}", name.to_lowercase())
    });
    let words = words.collect::<Vec<_>>().join(",");
    let names: Vec<&str> = capabilities.iter().map(|one| one.name()).collect();
    let names = names.join(", ");
    format!(
        "Run it as root (sudo), or give this one command what it needs ({names}), in place of `flagfinder ..`:\n\
         sudo setpriv --reuid $(id -u) --regid $(id -g) --init-groups --reset-env --inh-caps {words} --ambient-caps \
         {words} $(command -v flagfinder) .."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status() {
        let both = [Capability::Bpf, Capability::Perfmon];
        let mask = effective("Name:\tx\nCapEff:\t000000c000000000\nCapBnd:\t0\n");
        assert_eq!(lacking(mask, &both), []);
        assert_eq!(lacking(1 << 39, &both), [Capability::Perfmon]);
        assert_eq!(lacking(1 << 21, &both), []);
        assert_eq!(lacking(0, &both), both);
        assert_eq!(effective("no such line"), 0);
    }

    #[test]
    fn the_administrator_s_capability_does_not_stand_for_tracing() {
        let ptrace = [Capability::SysPtrace];
        assert_eq!(lacking(1 << 21, &ptrace), ptrace);
        assert_eq!(lacking(1 << 19, &ptrace), []);
    }

    #[test]
    fn the_advice_is_for_one_command_and_no_file() {
        let advice = how_to_get(&[Capability::Bpf, Capability::Perfmon]);
        assert!(advice.contains("--inh-caps +bpf,+perfmon --ambient-caps +bpf,+perfmon"));
        assert!(!advice.contains("setcap"));
        let one = how_to_get(&[Capability::SysPtrace]);
        assert!(one.contains("--ambient-caps +sys_ptrace "));
    }
}
