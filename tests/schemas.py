# SPDX-License-Identifier: MIT
"""JSON Schemas of what `--json` prints, made from the types of the package: `python3
tests/schemas.py` writes them to docs/formats.
"""

from __future__ import annotations

import inspect
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import (
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1]))  # what is installed comes first

import jsonschema
from harness import ROOT

from flagfinder.chain.fields import DoctorFields
from flagfinder.cli.fields import ErrorFields
from flagfinder.flags import fields as flags
from flagfinder.graph import diagnosis_fields as diagnosis
from flagfinder.graph import event_fields as events
from flagfinder.graph import fields as graph
from flagfinder.graph.call_fields import CompareFields
from flagfinder.graph.path_fields import (
    BottleneckFields,
    CriticalPathFields,
    NoBottleneckFields,
    NoCriticalPathFields,
)
from flagfinder.graph.top_fields import EventsTopFields
from flagfinder.hosts import fields as hosts
from flagfinder.live import fields as live
from flagfinder.record import fields as record
from flagfinder.trace import fields as trace
from flagfinder.watch.fields import WatchFields

FOLDER = ROOT / "docs/formats"
# By the name in `schema`: one object, or one of several.
REPORTS: dict[str, Any] = {
    "record": record.RecordFields,
    "record-check": record.RecordCheckFields,
    "trace-info": trace.TraceInfoFields,
    "trace-check": trace.TraceCheckFields,
    "trace-dump": trace.TraceDumpFields,
    "trace-export": trace.TraceExportFields,
    "trace-import": trace.TraceImportFields,
    "diff": flags.DiffFields,
    "discover": flags.DiscoverFields,
    "registers": flags.RegistersFields,
    "spin": live.SpinFields,
    "why": live.WhyFields,
    "why-all": live.WhyAllFields,
    "guard": live.GuardFields,
    "watch": WatchFields,
    "poke": live.PokeFields,
    "events-record": events.EventsRecordFields,
    "events-import": events.EventsImportFields,
    "events-info": events.EventsInfoFields,
    "events-check": events.EventsCheckFields,
    "events-dump": events.EventsDumpFields,
    "events-top": EventsTopFields,
    "mark": events.MarkedFields,
    "graph-build": graph.GraphBuildFields,
    "graph-info": graph.GraphInfoFields,
    "graph-query": graph.GraphQueryFields,
    "graph-export": graph.GraphExportFields,
    "graph-bottleneck": BottleneckFields | NoBottleneckFields,
    "hosts-ingest": hosts.HostsIngestFields,
    "hosts-top": hosts.HostsTopFields,
    "hosts-waits": hosts.HostsWaitsFields,
    "hosts-path": hosts.HostsShareFields,
    "hosts-bottleneck": hosts.HostsShareFields,
    "diagnose": diagnosis.DiagnosisFields | diagnosis.NoDiagnosisFields,
    "diagnose-hangs": diagnosis.HangsFields,
    "report": diagnosis.ReportFields,
    "critical-path": CriticalPathFields | NoCriticalPathFields,
    "compare": CompareFields,
    "overhead": events.OverheadFields,
    "doctor": DoctorFields,
    "error": ErrorFields,
}
_PLAIN: dict[Any, dict[str, str]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    types.NoneType: {"type": "null"},
    object: {},
}
_NAMED = "#/$defs/"
_WIDTH = 100

Schema = dict[str, Any]


def schema_of(name: str) -> Schema:
    """The schema of ``flagfinder.NAME/1``; objects that it holds are in ``$defs``."""
    defs: dict[str, Schema] = {}
    mark = {"schema": {"const": f"flagfinder.{name}/1"}}
    roots = [_object(kind, defs, mark) for kind in _choices(REPORTS[name])]
    body = roots[0] if len(roots) == 1 else {"anyOf": roots}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"flagfinder.{name}/1",
    }
    return {**head, **body, **({"$defs": dict(sorted(defs.items()))} if defs else {})}


def text_of(name: str) -> str:
    return _lines(schema_of(name), 0) + "\n"


def _lines(value: Any, indent: int) -> str:
    """JSON with a line for what fits in one: for each property, mostly."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(line) + indent <= _WIDTH:
        return line
    parts = (
        [f"{json.dumps(key)}: {_lines(part, indent + 2)}" for key, part in value.items()]
        if isinstance(value, dict)
        else [_lines(part, indent + 2) for part in value]
    )
    space = "\n" + " " * indent
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + f"{space}  " + f",{space}  ".join(parts) + space + closing


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.schema.json"


def validate(fields: dict[str, Any]) -> None:
    """Raises jsonschema.ValidationError unless the object is what its schema's file says."""
    name = fields["schema"].removeprefix("flagfinder.").removesuffix("/1")
    schema = json.loads(path_of(name).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(fields)


def _choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _object(kind: Any, defs: dict[str, Schema], first: Schema) -> Schema:
    """An object that has what the type says, and nothing else."""
    properties, required = dict(first), list(first)
    # Not `__required_keys__`: it takes annotations that are text for required.
    for name, field in get_type_hints(kind, include_extras=True).items():
        is_optional = get_origin(field) is NotRequired
        properties.setdefault(name, _schema(get_args(field)[0] if is_optional else field, defs))
        if not is_optional and name not in required:
            required.append(name)
    text = {"description": " ".join(inspect.cleandoc(kind.__doc__).replace("``", "`").split())}
    return {
        **text,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _schema(kind: Any, defs: dict[str, Schema]) -> Schema:
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if is_typeddict(kind):
        name = kind.__name__.removesuffix("Fields")
        if name not in defs:
            defs[name] = {}  # it may hold itself
            defs[name] = _object(kind, defs, {})
        return {"$ref": _NAMED + name}
    arguments = get_args(kind)
    match get_origin(kind):
        case origin if origin is Literal:
            return {"enum": list(arguments)}
        case origin if origin is list:
            return {"type": "array", "items": _schema(arguments[0], defs)}
        case origin if origin is dict:
            return {"type": "object", "additionalProperties": _schema(arguments[1], defs)}
        case origin if origin in (Union, types.UnionType):
            return _any_of([_schema(choice, defs) for choice in arguments])
    raise TypeError(f"no schema for {kind}")


def _any_of(schemas: list[Schema]) -> Schema:
    """Types without further demands become one list, and null joins an enumeration."""
    null = {"type": "null"}
    others = [schema for schema in schemas if schema != null]
    if len(others) < len(schemas) and len(others) == 1 and "enum" in others[0]:
        return {"enum": [*others[0]["enum"], None]}
    plain = [schema["type"] for schema in schemas if set(schema) == {"type"}]
    return {"type": plain} if len(plain) == len(schemas) else {"anyOf": schemas}


def stale() -> Iterator[str]:
    """Names of the files that are not as they would be written, or should not be there."""
    for name in REPORTS:
        if not path_of(name).is_file() or path_of(name).read_text(encoding="utf-8") != text_of(
            name
        ):
            yield path_of(name).name
    yield from sorted(
        {path.name for path in FOLDER.iterdir()} - {path_of(name).name for name in REPORTS}
    )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for report in REPORTS:
        path_of(report).write_text(text_of(report), encoding="utf-8")
