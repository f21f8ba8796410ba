"""Repairing images."""

from dataclasses import dataclass
from typing import NamedTuple

from . import _native
from .make import StrPath


class Mistake(NamedTuple):
    """One thing that is wrong, what is done about it, and what is lost by it."""

    rule: str
    """The rule of the check that is broken."""
    at: str
    """The structure, in words."""
    detail: str
    """What is wrong, with its numbers."""
    action: str
    """What is done."""
    loss: str | None
    """What is lost or may be wrong afterwards."""
    safe: bool
    """The action follows from what is there: nothing is guessed, nothing is lost."""


@dataclass(frozen=True)
class Plan:
    """What a repair does, or has done."""

    findings: tuple[Mistake, ...]
    """What is wrong."""
    left: tuple[str, ...]
    """What would stay wrong. `repair` raises where there is any."""
    blocks: int
    """Blocks that change."""
    size: int
    """Their bytes."""

    @property
    def clean(self) -> bool:
        """There is nothing to do."""
        return not (self.findings or self.left or self.blocks)

    @property
    def safe(self) -> bool:
        """No action guesses or loses anything."""
        return all(finding.safe for finding in self.findings)


def _plan(planned: "_native._Planned") -> Plan:
    findings, left, blocks, size = planned
    return Plan(tuple(Mistake(*found) for found in findings), tuple(left), blocks, size)


def repair_plan(image: StrPath, *, partition: int | None = None) -> Plan:
    """What `repair` would do. Reads only.

    Raises CorruptError where nothing is left to repair from; OSError (EOPNOTSUPP) for features that
    cannot be repaired yet.
    """
    return _plan(_native.repair_plan(image, partition))


def repair(image: StrPath, undo: StrPath, *, partition: int | None = None) -> Plan:
    """Repair an image, and return what was done.

    Before the first write the new file `undo` holds the old content of every block that changes:
    `extxfs.undo` puts it back. There is no such file where nothing is wrong. A repair that was cut
    is finished by the same call.

    Raises what `repair_plan` raises; CorruptError where something would stay wrong;
    FileExistsError where `undo` is there already. Nothing was written then. An image that is open
    is refused with EBUSY.
    """
    return _plan(_native.repair(image, undo, partition))


def undo(image: StrPath, undo: StrPath, *, partition: int | None = None) -> None:
    """Put back what `repair` changed, byte for byte.

    Raises OSError (EINVAL) where `undo` is no undo file, or where the image is not as the repair
    has left it. Nothing was written then.
    """
    _native.undo(image, undo, partition)
