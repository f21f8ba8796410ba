"""Making and checking images."""

import os
from dataclasses import dataclass

from . import _native

StrPath = str | bytes | os.PathLike[str]


def mkfs(
    image: StrPath,
    size: int,
    format: str = "ext4",
    *,
    label: str = "",
    uuid: str | None = None,
    block_size: int | None = None,
    features: str = "",
    overwrite: bool = False,
) -> None:
    """Make an image file of `size` bytes with a file system in it.

    `format` is `ext2`, `ext3`, `ext4` or `xfs`, with the defaults of mke2fs or mkfs.xfs. `label` has
    at most 16 bytes, 12 for XFS. `features` changes the features of ext as `mke2fs -O` does, for
    instance `^has_journal`. The file is sparse.

    Raises FileExistsError unless `overwrite`; ValueError for an unknown format or UUID; OSError
    (EINVAL) where size or options make no file system.
    """
    _native.mkfs(image, size, format, label, uuid, block_size, features, overwrite)


@dataclass(frozen=True)
class Report:
    """What a check found."""

    clean: bool
    """Nothing is wrong; what the next mount puts right by itself does not count."""
    findings: tuple[str, ...]
    """Rule, place and numbers of each finding, at most 10,000."""
    more: int
    """Findings that are not listed."""

    def __bool__(self) -> bool:
        return self.clean


def check(image: StrPath, *, partition: int | None = None) -> Report:
    """Check an image without changing it, as fsck does; a dirty journal is replayed in memory.

    What is wrong with the file system is no exception: it is in the report. Raises OSError where the
    image cannot be opened or is none.
    """
    clean, findings, more = _native.check(image, partition)
    return Report(clean, tuple(findings), more)
