# SPDX-License-Identifier: MIT
"""Names of code and data as people read them: without what a compiler put in for itself.

Only what a terminal shows is shortened: ``--json`` and ``--explain`` keep the names as they are.
"""

from __future__ import annotations

import re

_MORE = "…"
# Arguments that are as short as this say something and take little room: `Channel<u32>`.
_SHORT_TYPES = 12
_SHORT_ARGUMENTS = 32

_RUST_HASH = re.compile(r"::h[0-9a-f]{16}(?![0-9a-f])")
_ABI_TAG = re.compile(r"\[abi:\w+\]")
_STRING = re.compile(
    r"std::(?:__\w+::)?basic_string<char, ?std::(?:__\w+::)?char_traits<char>, "
    r"?std::(?:__\w+::)?allocator<char> ?>"
)
# Namespaces that hold one version of the standard library: `std::__cxx11::list`, `std::__1::mutex`.
_VERSION = re.compile(r"\bstd::__(?:cxx11|1|ndk1|8)::")
# An operator's own signs are no brackets. What follows may be its template arguments: `operator<
# <int>`.
_OPERATOR = re.compile(r"\boperator ?(?:<=>|->\*|<<=|>>=|<<|>>|<=|>=|->|\(\)|<|>)")
_WORD = re.compile(r"\w")
# The packages of a class of Java, and the folders of a package of Go.
_PACKAGES = re.compile(r"(?<![\w.])(?:[a-z_]\w*\.){2,}(?=[A-Z]\w*\.)")
_FOLDERS = re.compile(r"^[\w.~/-]*/(?=[\w-]+\.)")
# A type whose method it is, and perhaps the trait, in Rust: `<Bank as Drop>::drop`.
_OF_TRAIT = re.compile(r"^<([^<>]*?)(?: as [^<>]*)?>(?=::)")
# What a function is called that was handed to another, in JavaScript: `it('works')`.
_TITLED = re.compile(r"[\w$.]+\((['\"`]).*\1\)", re.DOTALL)
_CLOSING = {"<": ">", "(": ")", "{": "}", "[": "]"}


def short_name(text: str) -> str:
    """The text with every name in it shortened; all else stays as it is.

    Template arguments and long parameter lists become ``…``, ``std::__cxx11::basic_string<..>``
    becomes ``std::string``, hashes of Rust and ABI tags of C++ go, of a lambda its number stays.
    """
    text = _STRING.sub("std::string", _ABI_TAG.sub("", _RUST_HASH.sub("", text)))
    return _without_arguments(_VERSION.sub("std::", text))


def _without_arguments(text: str) -> str:
    out: list[str] = []
    at = 0
    while at < len(text):
        operator = _OPERATOR.match(text, at)
        if operator is not None and (at == 0 or not _WORD.match(text[at - 1])):
            out.append(operator[0])
            at = operator.end()
            spaced = at + text.startswith(" <", at)
            end = _end(text, spaced) if text.startswith("<", spaced) else None
            if end is not None:
                out.append(text[at:spaced] + _bracket("operator", "<", text[spaced + 1 : end - 1]))
                at = end
            continue
        end = _end(text, at) if text[at] in "<({" else None
        if end is None:
            out.append(text[at])
            at += 1
            continue
        out.append(_bracket("".join(out), text[at], text[at + 1 : end - 1]))
        at = end
    return "".join(out)


def _bracket(before: str, opening: str, inside: str) -> str:
    """A bracket as it is shown, with what stands before it."""
    closing = _CLOSING[opening]
    if opening == "{" and inside.startswith("lambda("):
        return "{lambda" + inside[inside.rfind("#") :] + "}" if "#" in inside else "{lambda}"
    short = _without_arguments(inside)
    after_name = bool(before) and (before[-1] in "_>)" or before[-1].isalnum())
    is_long = {
        "<": len(inside) > _SHORT_TYPES,
        "(": len(short) > _SHORT_ARGUMENTS and _is_list(inside),
    }
    if after_name and is_long.get(opening, False):
        return f"{opening}{_MORE}{closing}"
    return f"{opening}{short}{closing}"


def _is_list(inside: str) -> bool:
    """Whether these are a function's parameters, by their types, and no remark in a sentence."""
    return bool(re.search(r"[<>*&]|::", inside)) and not re.search(r"\b(?:of|in|as|by) ", inside)


def _end(text: str, at: int) -> int | None:
    """Behind the bracket that closes the one at ``at``; ``None`` where none does."""
    open_ones = [_CLOSING[text[at]]]
    at += 1
    while at < len(text):
        operator = _OPERATOR.match(text, at)
        if operator is not None:
            at = operator.end()
            continue
        sign = text[at]
        if sign in "<({[":
            open_ones.append(_CLOSING[sign])
        elif sign == ">" and text[at - 1] in "-=":
            pass  # an arrow: `fn() -> u8`
        elif sign in ">)}]":
            if open_ones.pop() != sign:
                return None
            if not open_ones:
                return at + 1
        at += 1
    return None


def short_path(text: str, room: int) -> str:
    """A path (``/a/b/c/file.c:12``) of at most ``room`` columns if that can be: folders in its
    middle go.
    """
    parts = text.split("/")
    while len(text) > room and len(parts) > 3:
        middle = parts.index(_MORE) if _MORE in parts else len(parts) // 2
        if middle + 1 < len(parts) - 1:
            parts[middle : middle + 2] = [_MORE]
        elif middle > 1:
            parts[middle - 1 : middle + 1] = [_MORE]
        else:
            break
        text = "/".join(parts)
    return text


def short_function(name: str) -> str:
    """A function as its author calls it: without parameters, result, packages and the trait that a
    method belongs to; with `()` behind it where it has a name.
    """
    if _TITLED.fullmatch(name):
        return name
    name = _OF_TRAIT.sub(r"\1", short_name(name))
    name = _PACKAGES.sub("", _FOLDERS.sub("", _without_parameters(name)))
    return name if re.fullmatch(r"<\w+>", name) else f"{name}()"


def _without_parameters(name: str) -> str:
    """`int app::take<..>(int) const` is `app::take<..>`; `main.(*Box).wait` stays."""
    depth, start = 0, 0
    for at, sign in enumerate(name):
        is_name = at == start or name[at - 1] in ".:" or name[:at].endswith("operator")
        if sign == "(" and depth == 0 and not is_name:
            return name[start:at]
        if sign in "<([{":
            depth += 1
        elif sign in ">)]}":
            depth -= 1
        elif sign == " " and depth == 0 and "operator" not in name[:at]:
            start = at + 1
    return name[start:]
