# SPDX-License-Identifier: MIT
"""Names as people read them, of real programs and libraries."""

from __future__ import annotations

import pytest

from flagfinder.report.names import short_pieces, wrapped
from flagfinder.shared.short_names import short_function, short_name, short_path

STRING = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"


@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("main", "main"),
        (
            "Eigen::internal::product<Eigen::Matrix<double, -1, -1, 0, -1, -1>, 8>::run",
            "Eigen::internal::product<…>::run",
        ),
        (f"std::map<{STRING}, int>::find", "std::map<…>::find"),
        (f"parse({STRING} const&)", "parse(std::string const&)"),
        ("Channel<u32>::recv", "Channel<u32>::recv"),
        ("operator<", "operator<"),
        ("bool operator< <std::vector<int, std::allocator<int> > >", "bool operator< <…>"),
        ("Ptr<Node<int, long, short> >::operator->", "Ptr<…>::operator->"),
        ("Ptr<Node<int, long, short> >::operator->*", "Ptr<…>::operator->*"),
        ("std::ostream& operator<< <std::char_traits<char> >", "std::ostream& operator<< <…>"),
        (
            "serve()::{lambda(std::unique_ptr<Job>)#2}::operator()(std::unique_ptr<Job>) const",
            "serve()::{lambda#2}::operator()(std::unique_ptr<Job>) const",
        ),
        ("Job::name[abi:cxx11]() const", "Job::name() const"),
        ("core::ptr::drop_in_place::h0123456789abcdef", "core::ptr::drop_in_place"),
        ("app::run::{{closure}}::hfedcba9876543210+0x4f", "app::run::{{closure}}+0x4f"),
        (
            "<alloc::vec::Vec<core::option::Option<u64>> as core::ops::Deref>::deref",
            "<alloc::vec::Vec<…> as core::ops::Deref>::deref",
        ),
        (
            "tokio::task::Core<F, fn(alloc::sync::Arc<X>) -> bool>::poll",
            "tokio::task::Core<…>::poll",
        ),
        ("on(void (*)(int, std::map<int, long>), std::function<void (int)>)", "on(…)"),
        ("run<void (*)(int, long, char)>", "run<…>"),
        ("(anonymous namespace)::wait", "(anonymous namespace)::wait"),
        ("std::__1::mutex::lock", "std::mutex::lock"),
        ("value < 0x5 (signed)", "value < 0x5 (signed)"),
        ("field <unbalanced", "field <unbalanced"),
        (
            "p->state (4 bytes of a heap object allocated in main)",
            "p->state (4 bytes of a heap object allocated in main)",
        ),
    ],
)
def test_short_name(full: str, short: str) -> None:
    assert short_name(full) == short


def test_a_name_of_a_screen_becomes_a_line() -> None:
    inner = "Eigen::Matrix<double, -1, -1, 0, -1, -1>"
    full = f"Eigen::internal::product<{', '.join([inner] * 14)}>::evaluate"
    assert len(full) > 600
    assert short_name(full) == "Eigen::internal::product<…>::evaluate"


def test_short_text_keeps_its_styles() -> None:
    pieces = [("polls ", ""), ("queue<std::pair<int, long> >::head", "bold"), (" twice", "")]
    short = short_pieces(pieces)
    assert short == [("polls ", ""), ("queue<…>::head", "bold"), (" twice", "")]
    lines = [[("polls ", ""), ("queue<…>::head", "bold")], [("twice", "")]]
    assert wrapped(short, 22, 2) == lines


def test_a_path_loses_its_middle() -> None:
    path = "/home/user/projects/server/build/../src/network/connection/pool.cc:1234"
    assert short_path(path, 100) == path
    short = short_path(path, 40)
    assert len(short) <= 40
    assert short.startswith("/home/") and short.endswith("/pool.cc:1234") and "/…/" in short


@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("one", "one()"),
        ("int app::Queue<int>::take(int)", "app::Queue<int>::take()"),
        ("main::{lambda()#1}::operator()() const", "main::{lambda#1}::operator()()"),
        ("(anonymous namespace)::go(int)", "(anonymous namespace)::go()"),
        ("rt::main::{closure#0}", "rt::main::{closure#0}()"),
        ("<rt::Bank as core::ops::drop::Drop>::drop", "rt::Bank::drop()"),
        ("<rt::Bank>::forth", "rt::Bank::forth()"),
        ("rt::Bank::forth::h0123456789abcdef", "rt::Bank::forth()"),
        ("github.com/x/y/pkg.(*T).Run", "pkg.(*T).Run()"),
        ("main.main.func1", "main.main.func1()"),
        ("gopkg.in/x.v1.F", "x.v1.F()"),
        ("com.example.app.Dead.take", "Dead.take()"),
        ("<module>", "<module>"),
        ("it('waits, (long)')", "it('waits, (long)')"),
    ],
)
def test_short_function(full: str, short: str) -> None:
    assert short_function(full) == short
