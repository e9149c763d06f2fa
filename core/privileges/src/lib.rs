// SPDX-License-Identifier: MIT
//! What this process may do: its capabilities, whether they count, and how one command gets those
//! that it lacks.
//!
//! In: /proc/self, the marks that containers leave. Out: names of missing capabilities, and the one
//! piece of advice that all errors and `doctor` give. The advice gives the capabilities to one
//! command, for as long as it runs. Capabilities of a file would do so for all that its interpreter
//! is ever asked to run, by any user.

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

/// A set of capabilities, by its name in the status: `CapEff:`.
fn set(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn effective(status: &str) -> u64 {
    set(status, "CapEff:").unwrap_or(0)
}

fn status(of: &str) -> String {
    fs::read_to_string(format!("/proc/{of}/status")).unwrap_or_default()
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
    lacking(effective(&status("self")), needed)
}

/// Why the kernel does not let this process look into that one.
pub fn why_unreadable(pid: u32) -> String {
    unreadable(&status("self"), &status(&pid.to_string()))
}

fn unreadable(own: &str, other: &str) -> String {
    if !lacking(effective(own), &[Capability::SysPtrace]).is_empty() {
        return "it needs CAP_SYS_PTRACE".into();
    }
    let own = set(own, "CapPrm:").unwrap_or(0);
    let more = set(other, "CapPrm:").unwrap_or(0) & !own;
    let reason = match more {
        0 => "",
        _ => "; that process has capabilities that this one lacks",
    };
    format!("the system refuses it, although this process has CAP_SYS_PTRACE{reason}")
}

/// How this process gets to look into one of the same user, as a `fix`.
pub fn how_to_look() -> String {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    how_to_look_in(scope.trim(), &how_to_get(&[Capability::SysPtrace]))
}

fn how_to_look_in(scope: &str, otherwise: &str) -> String {
    match scope {
        "0" => otherwise.into(),
        // Nor does any capability help.
        "3" => "kernel.yama.ptrace_scope is 3, which stays until the machine starts again: until \
                then nobody looks into a process, root neither."
            .into(),
        _ => format!(
            "For a process of your own, sudo sysctl kernel.yama.ptrace_scope=0 is enough. \
             {otherwise}"
        ),
    }
}

/// Whether this process is in a user namespace of a container's: its capabilities count there only,
/// not for what concerns the whole machine, such as BPF.
pub fn is_in_user_namespace() -> bool {
    let found = fs::read_link("/proc/self/ns/user");
    found.is_ok_and(|link| link.as_os_str() != FIRST_USER_NAMESPACE)
}

/// What made the container that this process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    Docker,
    Podman,
    Kubernetes,
    /// There is one, or a service without these rights.
    Unknown,
}

/// By the marks that each of them leaves.
fn container() -> Container {
    let is_there = |path: &str| fs::exists(path).unwrap_or(false);
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
        || is_there("/var/run/secrets/kubernetes.io")
    {
        Container::Kubernetes
    } else if is_there("/run/.containerenv") {
        Container::Podman
    } else if is_there("/.dockerenv") {
        Container::Docker
    } else {
        Container::Unknown
    }
}

/// How one command gets these capabilities, as a `fix`. Where no command can, as in most
/// containers, how to start one in which it can.
pub fn how_to_get(capabilities: &[Capability]) -> String {
    match set(&status("self"), "CapBnd:") {
        Some(bound) if !lacking(bound, capabilities).is_empty() => {
            how_to_start(container(), capabilities)
        }
        _ => how_to_run(capabilities),
    }
}

/// What is not in the bounding set nobody gets here, by no `sudo`.
fn how_to_start(container: Container, capabilities: &[Capability]) -> String {
    let names: Vec<&str> = capabilities.iter().map(|one| one.name()).collect();
    let adds = capabilities.iter().map(|one| {
        let name = one.name().trim_start_matches("CAP_");
        format!("--cap-add {name}")
    });
    let adds = adds.collect::<Vec<_>>().join(" ");
    let (place, command) = match container {
        Container::Docker => ("container", format!("docker run {adds} .. IMAGE ..")),
        Container::Podman => ("container", format!("podman run {adds} .. IMAGE ..")),
        Container::Kubernetes => (
            "container",
            "kubectl debug -it POD --target=CONTAINER --profile=sysadmin --image=IMAGE -- \
             flagfinder .."
                .into(),
        ),
        Container::Unknown => (
            "container or service",
            format!(
                "docker run {adds} .. (podman run takes the same; kubectl debug: \
                 --profile=sysadmin)"
            ),
        ),
    };
    format!(
        "No command in this {place} can get {}, by sudo neither. Run flagfinder on the machine \
         that hosts it, or start one with what is needed:\n{command}",
        names.join(", ")
    )
}

fn how_to_run(capabilities: &[Capability]) -> String {
    // Its own names for the newest ones are not in each setpriv (Ubuntu 22.04): numbers are.
    let words = capabilities.iter().map(|capability| match *capability {
        new @ (Capability::Perfmon | Capability::Bpf) => format!("+cap_{}", new as u32),
        old => format!("+{}", old.name().trim_start_matches("CAP_").to_lowercase()),
    });
    let words = words.collect::<Vec<_>>().join(",");
    let names: Vec<&str> = capabilities.iter().map(|one| one.name()).collect();
    let names = names.join(", ");
    format!(
        "Run it as root (sudo), or give this one command what it needs ({names}), in place of \
         `flagfinder ..`:\n\
         sudo setpriv --reuid $(id -u) --regid $(id -g) --init-groups --reset-env --inh-caps \
         {words} --ambient-caps {words} $(command -v flagfinder) .."
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
        let advice = how_to_run(&[Capability::Bpf, Capability::Perfmon]);
        assert!(advice.contains("--inh-caps +cap_39,+cap_38 --ambient-caps +cap_39,+cap_38"));
        assert!(!advice.contains("setcap"));
        let one = how_to_run(&[Capability::SysPtrace]);
        assert!(one.contains("--ambient-caps +sys_ptrace "));
    }

    #[test]
    fn where_nobody_can_get_them_the_advice_is_how_to_start_the_container() {
        let needed = [Capability::Bpf, Capability::SysPtrace];
        let advice = |container| how_to_start(container, &needed);
        for container in [Container::Docker, Container::Podman, Container::Unknown] {
            assert!(advice(container).contains(" run --cap-add BPF --cap-add SYS_PTRACE .."));
            assert!(!advice(container).contains("setpriv"));
        }
        assert!(advice(Container::Podman).contains("\npodman run"));
        assert!(advice(Container::Kubernetes).contains("\nkubectl debug -it POD"));
    }

    #[test]
    fn the_advice_fits_yama_s_scope() {
        let [none, off, on, never] = ["", "0", "1", "3"].map(|scope| how_to_look_in(scope, "sudo"));
        assert!(none.contains("ptrace_scope=0 is enough. sudo") && on == none);
        assert_eq!(off, "sudo");
        assert!(!never.contains("sudo") && never.contains("starts again"));
    }

    #[test]
    fn a_refusal_is_put_down_to_a_missing_capability_only_if_it_is_missing() {
        let with = "CapPrm:\t0000000000080000\nCapEff:\t0000000000080000\n";
        let more = "CapPrm:\t0000000001080000\n";
        assert_eq!(unreadable("", more), "it needs CAP_SYS_PTRACE");
        assert!(unreadable(with, more).ends_with("capabilities that this one lacks"));
        assert!(unreadable(with, with).ends_with("this process has CAP_SYS_PTRACE"));
    }
}
