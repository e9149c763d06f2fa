# SPDX-License-Identifier: MIT
"""Dataclasses whose methods are made with the first object: to make those of all classes takes
longer than a short command, which needs few of them.

In place of the names of ``dataclasses``, which mean the same. Blind spot: until there is an object
of it, a class shows neither its fields to ``dataclasses.fields`` nor its ``__init__`` to ``help``.
"""

# ruff: noqa: PLC0415  # `dataclasses` takes as long as all else that --version needs
from __future__ import annotations

from _thread import RLock
from typing import TYPE_CHECKING, Any

__all__ = ["asdict", "dataclass", "field", "fields", "replace"]

if TYPE_CHECKING:
    from dataclasses import asdict, dataclass, field, fields, replace
else:
    _left: dict[type, dict[str, bool]] = {}  # classes without methods, and what was asked for them
    _lock = RLock()

    class _Field:
        def __init__(self, options: dict[str, Any]) -> None:
            self.options = options

    def asdict(one: Any) -> dict[str, Any]:
        """As that of ``dataclasses``; so are all here."""
        import dataclasses

        return dataclasses.asdict(one)

    def replace(one: Any, **changes: Any) -> Any:
        """Of an object, so its class is made."""
        import dataclasses

        return dataclasses.replace(one, **changes)

    def fields(kind: type) -> tuple[Any, ...]:
        """Of a class."""
        import dataclasses

        _make(kind)
        return dataclasses.fields(kind)

    def field(**options: Any) -> _Field:
        """One with options."""
        return _Field(options)

    def dataclass(kind: type | None = None, **options: bool) -> Any:
        """A class that has no ``__init__`` of its own, and no slots."""
        if kind is None:
            return lambda kind: dataclass(kind, **options)
        if "__init__" in vars(kind) or "slots" in options:
            raise TypeError(f"{kind.__name__} needs dataclasses.dataclass")

        def __init__(self: Any, *values: Any, **named: Any) -> None:
            _make(kind)
            self.__init__(*values, **named)

        def __setstate__(self: Any, state: dict[str, Any]) -> None:
            _make(kind)
            vars(self).update(state)  # as pickle does

        kind.__init__, kind.__setstate__ = __init__, __setstate__
        _left[kind] = options
        return kind

    def _make(kind: type) -> None:
        import dataclasses

        with _lock:
            for one in reversed(kind.__mro__):
                options = _left.get(one)
                if options is None:
                    continue
                for name, value in list(vars(one).items()):
                    if isinstance(value, _Field):
                        setattr(one, name, dataclasses.field(**value.options))
                # Another thread may make an object meanwhile: `__init__` is changed in one step.
                dataclasses.dataclass(**options)(one)
                only = {"repr": False, "eq": False, "frozen": options.get("frozen", False)}
                like = type(one.__name__, (one,), {})
                one.__init__ = dataclasses.dataclass(**only)(like).__init__
                del one.__setstate__, _left[one]
