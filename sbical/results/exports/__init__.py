"""Registry of exports: the members of this package, and what other packages add as ``sbical.exports`` entry points."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points

from sbical.errors import OutputError, unknown
from sbical.results.exports import mjcf, ranges, table
from sbical.results.exports.base import Export

__all__ = ["Export", "find", "registered"]

_MEMBERS: tuple[Export, ...] = (mjcf, ranges, table)


@cache
def registered() -> Mapping[str, Export]:
    """All exports by name; an entry point may not replace a member."""
    found = {member.NAME: member for member in _MEMBERS}
    for point in entry_points(group="sbical.exports"):
        found.setdefault(point.name, point.load())
    return found


def find(kind: str) -> Export:
    """An export by name. Raises OutputError naming those that exist."""
    if kind not in registered():
        raise OutputError(unknown("export", kind, registered()))
    return registered()[kind]
