// SPDX-License-Identifier: MIT
//! Where a process runs: in which container and pod, of which unit, and by which id it knows
//! itself.
//!
//! In: its control groups and ids in /proc. Out: a [`Home`]. Blind spots: the names that people
//! gave to containers; containers whose engine chose its own name for the control group; in a
//! namespace of control groups what lies above its root.

use flagfinder_linux::proc;

use super::report::Home;

/// Digits of a container's id, and how many of them people use.
const ID: usize = 64;
const SHORT: usize = 12;
/// What engines put in front of an id, and who they are.
const ENGINES: &[(&str, &str)] = &[
    ("docker-", "docker"),
    ("libpod-", "podman"),
    ("cri-containerd-", "containerd"),
    ("containerd-", "containerd"),
    ("crio-", "cri-o"),
];

/// `None`: it is gone.
pub fn of(pid: u32) -> Option<Home> {
    let groups = proc::text_of(pid, "cgroup").ok()?;
    let ids = proc::Status::of(pid)?.numbers("NSpid:");
    let inner = ids.last().copied().filter(|_| ids.len() > 1);
    Some(by_groups(pid, inner, &groups))
}

fn by_groups(pid: u32, inner_pid: Option<u32>, groups: &str) -> Home {
    let lines = groups.lines().filter_map(super::stopped::parse_group);
    let paths: Vec<(&str, &str)> = lines.collect();
    let holds_one = |path: &&(&str, &str)| container(path.1).is_some();
    let is_systemd = |path: &&(&str, &str)| matches!(path.0, "" | "name=systemd") && path.1 != "/";
    let told = paths.iter().find(holds_one);
    let told = told.or_else(|| paths.iter().find(is_systemd));
    let told = told.or_else(|| paths.iter().max_by_key(|(_, path)| path.len()));
    let path = told.map_or("/", |(_, path)| *path);
    let found = container(path);
    Home {
        pid,
        inner_pid,
        engine: found.and_then(|(engine, _)| engine).map(Into::into),
        container: found.map(|(_, id)| id.into()),
        pod: path.split('/').find_map(pod),
        unit: path.rsplit('/').find(|part| is_unit(part)).map(Into::into),
        cgroup: path.into(),
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The innermost container's engine, if that can be told, and its id.
fn container(path: &str) -> Option<(Option<&'static str>, &str)> {
    let mut parts = path.rsplit('/').enumerate();
    let (at, (engine, id)) = parts.find_map(|(at, part)| Some((at, of_container(part)?)))?;
    let above = path.rsplit('/').nth(at + 1);
    Some((engine.or((above == Some("docker")).then_some("docker")), id))
}

fn of_container(part: &str) -> Option<(Option<&'static str>, &str)> {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let own = ENGINES.iter().find(|(begins, _)| part.starts_with(begins));
    let id = own.map_or(part, |(begins, _)| &part[begins.len()..]);
    (id.len() == ID && is_hex(id)).then_some((own.map(|(_, engine)| *engine), id))
}

/// `kubepods-burstable-pod0a1b_..slice`, `pod0a1b-..`: the pod's uid.
fn pod(part: &str) -> Option<String> {
    let part = part.strip_suffix(".slice").unwrap_or(part);
    let uid = part
        .strip_prefix("pod")
        .or_else(|| Some(part.rsplit_once("-pod")?.1))?;
    let digits: String = uid
        .chars()
        .filter(|sign| !matches!(sign, '-' | '_'))
        .collect();
    (digits.len() == 32 && is_hex(&digits)).then(|| uid.replace('_', "-"))
}

fn is_unit(part: &str) -> bool {
    let is_one = part.ends_with(".service") || part.ends_with(".scope");
    is_one && of_container(part).is_none()
}

/// In words, where it is not where `own` is, which is this command's.
pub fn told(home: &Home, own: Option<&Home>) -> Option<String> {
    let differs = |of: fn(&Home) -> &Option<String>| {
        of(home)
            .as_ref()
            .filter(|_| own.and_then(|own| of(own).as_ref()) != of(home).as_ref())
    };
    let mut parts = Vec::new();
    if let Some(id) = differs(|home| &home.container) {
        let engine = home
            .engine
            .as_ref()
            .map_or_else(String::new, |engine| format!(" ({engine})"));
        parts.push(format!("is in container {}{engine}", &id[..SHORT]));
    }
    if let Some(pod) = differs(|home| &home.pod) {
        parts.push(format!("is of pod {pod}"));
    }
    // Sessions and applications of a user's desktop are no news.
    let unit = differs(|home| &home.unit);
    if let Some(unit) = unit.filter(|unit| unit.ends_with(".service") && !unit.starts_with("user@"))
    {
        parts.push(format!("is of unit {unit}"));
    }
    if let Some(inner) = home.inner_pid {
        parts.push(format!("has id {inner} in its own pid namespace"));
    }
    (!parts.is_empty()).then(|| format!("process {} {}", home.pid, parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn home(
        groups: &str,
    ) -> (
        Option<String>,
        Option<String>,
        Option<String>,
        Option<String>,
    ) {
        let home = by_groups(7, None, &groups.replace("ID", ONE));
        (
            home.engine,
            home.container.map(|id| id[..SHORT].into()),
            home.pod,
            home.unit,
        )
    }

    #[test]
    fn engines_pods_and_units_are_read_from_the_control_groups() {
        let id = || Some("0123456789ab".to_owned());
        let text = |text: &str| Some(text.to_owned());
        let uid = || text("0a1b2c3d-0000-1111-2222-333344445555");
        for (groups, engine, id, pod, unit) in [
            (
                "0::/system.slice/docker-ID.scope",
                text("docker"),
                id(),
                None,
                None,
            ),
            ("3:cpu:/docker/ID\n0::/", text("docker"), id(), None, None),
            (
                "0::/machine.slice/libpod-ID.scope/container",
                text("podman"),
                id(),
                None,
                None,
            ),
            (
                "0::/kubepods.slice/kubepods-burstable.slice/\
                 kubepods-burstable-pod0a1b2c3d_0000_1111_2222_333344445555.slice/\
                 cri-containerd-ID.scope",
                text("containerd"),
                id(),
                uid(),
                None,
            ),
            (
                "4:memory:/kubepods/besteffort/pod0a1b2c3d-0000-1111-2222-333344445555/ID",
                None,
                id(),
                uid(),
                None,
            ),
            (
                "0::/system.slice/nginx.service",
                None,
                None,
                None,
                text("nginx.service"),
            ),
            (
                "2:cpu:/\n1:name=systemd:/user.slice/session-3.scope",
                None,
                None,
                None,
                text("session-3.scope"),
            ),
            ("0::/", None, None, None, None),
            ("0::/pods/ID0/podcast", None, None, None, None),
        ] {
            assert_eq!(home(groups), (engine, id, pod, unit), "{groups}");
        }
    }

    #[test]
    fn what_this_command_shares_is_not_told() {
        let of = |groups: &str| by_groups(7, None, &groups.replace("ID", ONE));
        let docker = of("0::/system.slice/docker-ID.scope");
        let service = of("0::/system.slice/nginx.service");
        assert_eq!(
            told(&docker, Some(&service)).as_deref(),
            Some("process 7 is in container 0123456789ab (docker)")
        );
        assert_eq!(told(&docker, Some(&docker)), None);
        assert_eq!(
            told(&service, None).as_deref(),
            Some("process 7 is of unit nginx.service")
        );
        assert_eq!(told(&of("0::/user.slice/session-3.scope"), None), None);
        let inner = by_groups(7, Some(1), "0::/");
        assert_eq!(
            told(&inner, None).as_deref(),
            Some("process 7 has id 1 in its own pid namespace")
        );
    }
}
