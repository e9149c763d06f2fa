// SPDX-License-Identifier: MIT
//! Files that a stranger names: what is taken out of nothing, led out of no root, shown to nobody
//! who may not read it, and waited for by nobody.

mod fuse;

use std::fs::{self, File, Permissions};
use std::io::{Error, ErrorKind, Read};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use flagfinder_files::{
    facts_of, kind_of, open_as, open_named, open_of_process, openers, read_at, resolve_within,
    Kind, OfCopy,
};
use fuse::Served;

const NOBODY: u32 = 65_534;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ff-named-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Tests that need root say so where they run without.
fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("not tested: this needs root");
    }
    is_root
}

fn text_of(mut file: File) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).expect("a text");
    text
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that stands in this folder as this user.
fn process(cwd: &Path, user: u32) -> Ended {
    let mut command = Command::new("/bin/sleep");
    command.arg("1000").current_dir(cwd).uid(user).gid(user);
    Ended(command.spawn().expect("started"))
}

#[test]
fn what_the_kernel_hands_out_is_not_read() {
    let path = Path::new("/proc/kmsg");
    let error = open_named(path).expect_err("refused");
    let kind = error.kind();
    assert!(
        matches!(kind, ErrorKind::InvalidInput | ErrorKind::PermissionDenied),
        "{error}"
    );
    assert_eq!(kind_of(path).expect("told").0, Kind::Other);
    assert!(read_at(path, 64, 0).is_err());
}

#[test]
fn a_pipe_of_the_tracer_is_not_read() {
    if !is_root() {
        return;
    }
    let folder = folder("tracefs");
    let place = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes()).expect("no zero");
    // SAFETY: texts of ours.
    let mounted = unsafe {
        let kind = c"tracefs".as_ptr();
        libc::mount(kind, place.as_ptr(), kind, 0, std::ptr::null())
    };
    assert_eq!(mounted, 0, "{}", Error::last_os_error());
    let error = open_named(&folder.join("trace_pipe")).expect_err("refused");
    // SAFETY: a text of ours.
    unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) };
    fs::remove_dir(&folder).expect("removed");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}

#[test]
fn a_file_of_this_machine_is_opened_and_read() {
    let folder = folder("plain");
    let path = folder.join("file");
    fs::write(&path, "0123456789").expect("a file");
    assert_eq!(text_of(open_named(&path).expect("opened")), "0123456789");
    assert_eq!(kind_of(&path).expect("told").0, Kind::Local);
    assert_eq!(read_at(&path, 4, 3).expect("read"), b"3456");
    let facts = facts_of(&path).expect("told");
    assert!(facts.is(libc::S_IFREG) && facts.size == 10);
    fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn a_file_of_a_server_comes_as_a_copy_and_a_silent_server_holds_nobody() {
    if !is_root() {
        return;
    }
    let content: Vec<u8> = (0..300_000u32).map(|byte| byte as u8).collect();
    let served = Served::mount(content.clone()).expect("FUSE");
    let mut copy = Vec::new();
    let mut file = open_named(&served.file()).expect("opened");
    file.read_to_end(&mut copy).expect("read");
    assert!(copy == content);
    // A descriptor of our own would wait for the server when it is closed.
    let path = served.file();
    assert_eq!(kind_of(&path).expect("told").0, Kind::Served);
    let before = served.reads.load(Ordering::SeqCst);
    assert!(
        read_at(&path, 8, 0).is_err(),
        "what a read does is the server's affair"
    );
    assert_eq!(served.reads.load(Ordering::SeqCst), before);

    served.is_silent.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        let error = open_named(&served.file()).expect_err("silent");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        let told = format!(
            "the file system of {} does not answer: its server is process {}",
            served.file().display(),
            std::process::id()
        );
        assert!(error.to_string().starts_with(&told), "{error}");
        let error = facts_of(&served.place.join("other")).expect_err("silent");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }
    assert!(!openers().is_empty());
    let here = std::env::current_exe().expect("a path");
    open_named(&here).expect("other files are opened as before");
}

#[test]
fn no_link_leads_out_of_the_root_of_a_process() {
    if !is_root() {
        return;
    }
    let outside = folder("outside");
    fs::write(outside.join("secret"), "of the host").expect("a file");
    let root = folder("root");
    let inside = root.join(outside.strip_prefix("/").expect("absolute"));
    symlink(outside.join("secret"), root.join("link")).expect("a link");
    symlink("/proc/self/root/etc/passwd", root.join("magic")).expect("a link");
    symlink("../../../../../etc/passwd", root.join("up")).expect("a link");
    fs::create_dir(root.join("home")).expect("a folder");
    fs::write(root.join("home/own"), "inside").expect("a file");
    assert_eq!(
        resolve_within(&root, Path::new("/home/own")).expect("there"),
        root.join("home/own")
    );
    for name in ["/link", "/up", "/magic"] {
        let found = resolve_within(&root, Path::new(name));
        assert_eq!(found.expect_err(name).kind(), ErrorKind::NotFound);
    }
    let pid = standing_in(&root);
    let open =
        |name: &str| open_of_process(pid.0, Path::new(name)).map(|found| text_of(found.file));
    assert_eq!(open("/home/own").expect("opened"), "inside");
    assert_eq!(open("own").expect("it stands there"), "inside");
    assert_eq!(open("../home/own").expect("it stands there"), "inside");
    for name in ["/link", "/up", "/magic", "../../../../etc/passwd"] {
        assert_eq!(open(name).expect_err(name).kind(), ErrorKind::NotFound);
    }
    fs::create_dir_all(&inside).expect("folders");
    fs::write(inside.join("secret"), "of the root").expect("a file");
    assert_eq!(open("/link").expect("opened"), "of the root");
    drop(pid);
    fs::remove_dir_all(&root).expect("removed");
    fs::remove_dir_all(&outside).expect("removed");
}

/// A process in this root, which stands in its folder `home`.
fn standing_in(root: &Path) -> Standing {
    let root = std::ffi::CString::new(root.as_os_str().as_encoded_bytes()).expect("no zero");
    // SAFETY: the child makes system calls only, with texts of ours.
    let pid = unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::chroot(root.as_ptr());
            libc::chdir(c"/home".as_ptr());
            libc::raise(libc::SIGSTOP);
            libc::_exit(0);
        }
        libc::waitpid(pid, std::ptr::null_mut(), libc::WUNTRACED);
        pid
    };
    Standing(pid as u32)
}

struct Standing(u32);

impl Drop for Standing {
    fn drop(&mut self) {
        // SAFETY: our own child.
        unsafe {
            libc::kill(self.0 as i32, libc::SIGKILL);
            libc::waitpid(self.0 as i32, std::ptr::null_mut(), 0);
        }
    }
}

#[test]
fn what_a_process_may_not_read_is_not_opened_for_it() {
    if !is_root() {
        return;
    }
    let folder = folder("rights");
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("its mode");
    let (secret, public) = (folder.join("secret"), folder.join("public"));
    fs::write(&secret, "hunter2").expect("a file");
    fs::write(&public, "for all").expect("a file");
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("its mode");
    fs::set_permissions(&public, Permissions::from_mode(0o644)).expect("its mode");
    let stranger = process(&folder, NOBODY);
    let own = process(&folder, 0);
    for name in [secret.as_path(), Path::new("secret")] {
        let error = open_of_process(stranger.0.id(), name).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        let found = open_of_process(own.0.id(), name).expect("root may");
        assert_eq!(text_of(found.file), "hunter2");
    }
    let found = open_of_process(stranger.0.id(), &public).expect("all may");
    assert_eq!(text_of(found.file), "for all");
    let closed = folder.join("closed");
    fs::create_dir(&closed).expect("a folder");
    fs::write(closed.join("file"), "hunter2").expect("a file");
    fs::set_permissions(closed.join("file"), Permissions::from_mode(0o644)).expect("its mode");
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).expect("its mode");
    for name in [&secret, &closed.join("file")] {
        let error = open_as(name, (NOBODY, NOBODY)).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert_eq!(text_of(open_as(name, (0, 0)).expect("root may")), "hunter2");
    }
    let found = open_as(&public, (NOBODY, NOBODY)).expect("all may");
    assert_eq!(text_of(found), "for all");
    // Our own rights are back.
    assert_eq!(text_of(open_named(&secret).expect("we may")), "hunter2");
    fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn a_name_is_not_opened_with_the_rights_of_a_later_program() {
    if !is_root() {
        return;
    }
    let folder = folder("later");
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("its mode");
    let (secret, public) = (folder.join("secret"), folder.join("public"));
    let program = folder.join("sleeps");
    fs::write(&secret, "hunter2").expect("a file");
    fs::write(&public, "for all").expect("a file");
    fs::copy("/bin/sleep", &program).expect("a program");
    for (file, mode) in [(&secret, 0o600), (&public, 0o644), (&program, 0o4755)] {
        fs::set_permissions(file, Permissions::from_mode(mode)).expect("its mode");
    }
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "read sign; exec ./sleeps 1000"]);
    command.current_dir(&folder).uid(NOBODY).gid(NOBODY);
    let mut patient = Ended(command.stdin(Stdio::piped()).spawn().expect("started"));
    let pid = patient.0.id();
    let found = open_of_process(pid, &public).expect("all may");
    assert_eq!(text_of(found.file), "for all");
    drop(patient.0.stdin.take());
    let is_root_now = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        status.contains(&format!("Uid:\t{NOBODY}\t0\t"))
    };
    let until = Instant::now() + Duration::from_secs(10);
    while !is_root_now() {
        assert!(Instant::now() < until, "a program of root's begins");
        std::thread::sleep(Duration::from_millis(5));
    }
    let error = open_of_process(pid, &secret).expect_err("it was nobody's to read");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn who_may_not_become_another_user_opens_nothing_for_it() {
    const ASKED: &str = "FF_TEST_ASKED_FOR";
    const CAP_SETUID: libc::c_ulong = 7;
    if let Ok(asked) = std::env::var(ASKED) {
        let (pid, file) = asked.split_once(' ').expect("two words");
        let pid = pid.parse().expect("a process");
        let error = open_of_process(pid, Path::new(file)).expect_err("its folder is closed");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        return;
    }
    if !is_root() {
        return;
    }
    let folder = folder("closed");
    let closed = folder.join("closed");
    fs::create_dir(&closed).expect("a folder");
    fs::write(closed.join("file"), "hunter2").expect("a file");
    for (file, mode) in [
        (closed.join("file"), 0o644),
        (closed, 0o700),
        (folder.clone(), 0o755),
    ] {
        fs::set_permissions(file, Permissions::from_mode(mode)).expect("its mode");
    }
    let stranger = process(&folder, NOBODY);
    let mut again = Command::new(std::env::current_exe().expect("a path"));
    again.args([
        "--exact",
        "who_may_not_become_another_user_opens_nothing_for_it",
    ]);
    let file = folder.join("closed/file");
    again.env(ASKED, format!("{} {}", stranger.0.id(), file.display()));
    // SAFETY: a system call of plain numbers.
    unsafe {
        again.pre_exec(
            || match libc::prctl(libc::PR_CAPBSET_DROP, CAP_SETUID, 0, 0, 0) {
                0 => Ok(()),
                _ => Err(Error::last_os_error()),
            },
        );
    }
    assert!(again.status().expect("started").success());
    fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn a_path_of_a_copy_that_leads_through_proc_is_not_answered() {
    let base = PathBuf::from("/proc/self/root");
    let stat = |path: &str| {
        let path = PathBuf::from(path);
        let of = OfCopy {
            base: &base,
            path: &path,
        };
        of.call(libc::SYS_newfstatat, 0, 0)
            .map(|(result, _)| result)
    };
    assert_eq!(stat("/etc/passwd").expect("answered"), 0);
    let missing = stat("/no/such/file").expect_err("nothing is there");
    assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
    for path in ["/proc/self/status", "/etc/../proc/self/no", "/dev/fd/0"] {
        assert_eq!(stat(path).expect_err(path).kind(), ErrorKind::Unsupported);
    }
}
