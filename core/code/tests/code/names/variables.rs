// SPDX-License-Identifier: MIT
//! Variables at instructions of running programs: in registers, in frames, and what
//! pointers lead to.

use super::support::{folder, source, tool, Running};
use flagfinder_code::{Names, NamesInput, ValuePlace};

const RSP: u8 = 4;

/// `None`: the compiler is not installed.
fn pointers(test: &str, compiler: &str, flags: &[&str]) -> Option<(Running, Names)> {
    let program = folder(test).join("pointers");
    let (text, path) = (
        source("pointers.cpp"),
        program.to_string_lossy().into_owned(),
    );
    let mut arguments = vec!["-o", &path, &text];
    arguments.extend(flags);
    if !tool(compiler, &arguments) {
        return None;
    }
    let running = Running::start(&program, "wait");
    let input = NamesInput::from_live(running.pid()).expect("its /proc can be read");
    Some((running, Names::new(input)))
}

/// Every address of the function at which `server` is visible, with its place.
fn places(running: &Running, names: &Names) -> Vec<(u64, ValuePlace)> {
    let (start, end) = names.function(running.at("wait")).expect("its extent");
    let at = |pc: u64| {
        let variables = names.variables(pc);
        let mut variables = variables.iter();
        Some((pc, variables.find(|v| v.name == "server")?.place))
    };
    (start..end).filter_map(at).collect()
}

#[test]
fn a_parameter_is_found_in_a_register_and_followed() {
    for (test, flags) in [
        ("O2", &["-O2", "-g"][..]),
        ("O1", &["-O1", "-g", "-fno-omit-frame-pointer"]),
        (
            "dwarf4",
            &["-O2", "-g", "-gdwarf-4", "-fomit-frame-pointer"],
        ),
    ] {
        let Some((running, names)) = pointers(test, "g++", flags) else {
            return;
        };
        let found = places(&running, &names);
        let in_register =
            |(_, place): &&(u64, ValuePlace)| matches!(place, ValuePlace::Register { add: 0, .. });
        let (pc, _) = *found
            .iter()
            .find(in_register)
            .expect("in a register somewhere");
        let variables = names.variables(pc);
        let server = variables.iter().find(|v| v.name == "server").expect("it");
        let pointee = names.pointee(server.kind).expect("a pointer");
        let session = names.word(pointee, 8).expect("a member");
        assert_eq!(session.path, ".session", "{test}");
        let target = names.pointee(session.kind).expect("a pointer as well");
        let phase = names.word(target, 48).expect("a member");
        assert_eq!(phase.path, ".phase", "an atomic is the variable itself");
        assert_eq!(names.size(phase.kind), Some(4));
        assert_eq!(names.word(target, 4096), None, "outside");
    }
}

#[test]
fn a_parameter_is_found_in_its_frame() {
    let Some((running, names)) = pointers("O0", "g++", &["-O0", "-g"]) else {
        return;
    };
    let found = places(&running, &names);
    let (pc, place) = *found.last().expect("visible");
    let ValuePlace::Frame { add } = place else {
        panic!("{place:?}");
    };
    let cfa = 0x7fff_0000_1000_u64;
    let address = cfa.wrapping_add_signed(add);
    let nothing = |_: u8| None;
    let inside = |address| names.frame_variable(pc, Some(cfa), &nothing, address);
    assert_eq!(inside(address).expect("the variable").name, "server");
    assert_eq!(inside(address - 0x400), None);
    // At its entry only the return address is on the stack.
    assert_eq!(names.frame_address(running.at("wait")), Some((RSP, 8)));
}

#[test]
fn frames_are_known_without_debug_information() {
    let Some((running, names)) = pointers("bare", "g++", &["-O2", "-s"]) else {
        return;
    };
    let start = running.at("wait");
    assert_eq!(names.frame_address(start), Some((RSP, 8)));
    assert_eq!(names.function(start).map(|f| f.0), Some(start));
    assert!(names.variables(start).is_empty());
}

#[test]
fn the_insides_of_atomics_are_left_out() {
    for flags in [&["-O0", "-g"][..], &["-O2", "-g"]] {
        let Some((running, names)) = pointers("atomics", "g++", flags) else {
            return;
        };
        let named = |what: &str| {
            let word = names.data(running.at(what));
            format!(
                "{}{}",
                word.symbol.unwrap_or_default(),
                word.field.unwrap_or_default()
            )
        };
        assert_eq!(named("stop"), "server.control[2].stop");
        assert_eq!(named("ready"), "ready");
        assert_eq!(named("busy"), "busy");
        assert_eq!(named("owner"), "owner");
    }
}
