"""Open files: `io.RawIOBase` on a native handle, and `open` as `io.open` stacks it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import IO, Any, NoReturn, cast

from . import _native

BUFFER_SIZE = max(io.DEFAULT_BUFFER_SIZE, 32 << 10)
"""Bytes of the buffer of an open file: a call costs little here, so a small one is enough."""

SEEK_DATA = getattr(os, "SEEK_DATA", 3)
SEEK_HOLE = getattr(os, "SEEK_HOLE", 4)


class RawFile(io.RawIOBase):
    """An open file without a buffer. `read_at` and `write_at` are for threads that share it."""

    def __init__(self, file: _native.File, name: str, mode: str) -> None:
        super().__init__()
        self._file = file
        self._reads = "r" in mode or "+" in mode
        self._writes = mode != "rb"
        self.name = name
        """The path in the image."""
        self.mode = mode
        # The methods that matter for speed are those of the handle itself.
        if self._reads:
            self.readinto = file.readinto  # type: ignore[method-assign]
            self.read_at = file.read_at
            self.readinto_at = file.readinto_at
        if self._writes:
            self.write_at = file.write_at

    def __repr__(self) -> str:
        return f"<extxfs.RawFile name={self.name!r} mode={self.mode!r}>"

    def readable(self) -> bool:
        self._check()
        return self._reads

    def writable(self) -> bool:
        self._check()
        return self._writes

    def seekable(self) -> bool:
        self._check()
        return True

    def fileno(self) -> NoReturn:
        """There is none: the host does not know this file."""
        raise io.UnsupportedOperation("fileno: this file is inside of an image")

    def isatty(self) -> bool:
        self._check()
        return False

    def read(self, size: int | None = -1, /) -> bytes:
        self._check_reads()
        return self._file.read(-1 if size is None else size)

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        self._check_reads()
        return self._file.readinto(buffer)

    def write(self, data: Any, /) -> int:
        self._check_writes()
        return self._file.write(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position. `os.SEEK_DATA` and `os.SEEK_HOLE` find what is written."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.seek(0, os.SEEK_CUR)

    def truncate(self, size: int | None = None, /) -> int:
        self._check_writes()
        size = self.tell() if size is None else size
        self._file.truncate(size)
        return size

    def stat(self) -> os.stat_result:
        """The attributes now, as `os.fstat`."""
        return stat_result(self._file.stat())

    def sync(self, data_only: bool = False) -> None:
        """Return when content (and attributes, unless `data_only`) survive a power cut.

        For a buffered file: `file.flush(); file.raw.sync()`.
        """
        self._file.sync(data_only)

    def allocate(self, offset: int, size: int) -> None:
        """Reserve space, as `os.posix_fallocate`."""
        self._check_writes()
        self._file.allocate(offset, size)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._file.close()

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _check_reads(self) -> None:
        self._check()
        if not self._reads:
            raise io.UnsupportedOperation("File not open for reading")

    def _check_writes(self) -> None:
        self._check()
        if not self._writes:
            raise io.UnsupportedOperation("File not open for writing")


def stat_result(stat: _native._Stat) -> os.stat_result:
    """The result of `os.stat`; `st_dev` is 0."""
    mode, ino, nlink, uid, gid, size, times, blksize, blocks, rdev = stat
    seconds = [time // 1_000_000_000 for time in times]
    named: dict[str, Any] = {"st_blksize": blksize, "st_blocks": blocks, "st_rdev": rdev}
    for name, time in zip(("st_atime", "st_mtime", "st_ctime"), times, strict=True):
        named[name] = time / 1e9
        named[name + "_ns"] = time
    return os.stat_result((mode, ino, 0, nlink, uid, gid, size, *seconds), named)


LETTERS = {"r": "r", "w": "wct", "a": "ac", "x": "wcx"}
"""What a mode of `open` asks of the native one."""


def parse(mode: str) -> tuple[str, bool]:
    """Which of `rwax` with `b` and maybe `+` it is, and whether it is text."""
    letters = set(mode)
    kinds = letters & set("rwax")
    if letters - set("rwaxbt+") or len(letters) != len(mode) or len(kinds) != 1:
        raise ValueError(f"invalid mode: {mode!r}")
    if {"b", "t"} <= letters:
        raise ValueError("can't have text and binary mode at once")
    return kinds.pop() + "b" + ("+" if "+" in letters else ""), "b" not in letters


def open_file(
    native: Callable[[str], _native.File],
    name: str,
    mode: str,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> IO[Any]:
    """What `io.open` makes of a raw file; `native` opens it, given the letters."""
    raw_mode, text = parse(mode)
    if not text and not (encoding is None and errors is None and newline is None):
        raise ValueError("binary mode takes no encoding, errors or newline argument")
    if buffering == 0 and text:
        raise ValueError("can't have unbuffered text I/O")
    plus = "+" in raw_mode
    letters = LETTERS[raw_mode[0]] + ("rw" if plus else "")
    raw = RawFile(native(letters), name, raw_mode)
    try:
        if raw_mode[0] == "a":
            raw.seek(0, os.SEEK_END)
        if buffering == 0:
            return cast(IO[Any], raw)
        size = BUFFER_SIZE if buffering in (-1, 1) else buffering
        buffered: io.BufferedRandom | io.BufferedReader | io.BufferedWriter
        if plus:
            buffered = io.BufferedRandom(raw, size)
        elif raw_mode == "rb":
            buffered = io.BufferedReader(raw, size)
        else:
            buffered = io.BufferedWriter(raw, size)
        if not text:
            return buffered
        wrapped = io.TextIOWrapper(buffered, encoding, errors, newline, buffering == 1)
        wrapped.mode = mode  # type: ignore[misc]
        return wrapped
    except BaseException:
        raw.close()
        raise
