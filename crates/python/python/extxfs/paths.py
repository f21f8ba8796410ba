"""Paths inside an image, as `pathlib.Path`."""

from __future__ import annotations

import fnmatch
import io
import os
import re
import stat as stat_bits
from collections.abc import Callable, Iterator, Sequence
from errno import EINVAL, ELOOP
from pathlib import PurePosixPath
from typing import IO, Any, Self, cast

from .filesystem import FileSystem

MAGIC = re.compile("[*?[]")
"""What makes a part of a pattern more than a name."""


class Path:
    """A path inside an image, with the methods of `pathlib.Path`.

    It begins at the root of the image: `a` is `/a`. It is no `os.PathLike`, so that the host's
    `open` refuses it instead of opening another file. `str(path)` is the path, `path.fs` the image.
    """

    __slots__ = ("_pure", "fs")

    def __init__(self, fs: FileSystem, *segments: str | os.PathLike[str] | Path) -> None:
        self.fs = fs
        names = (s._inside if isinstance(s, Path) else s for s in segments)
        pure = PurePosixPath("/", *names)
        if pure.root != "/":
            pure = PurePosixPath("/", *pure.parts[1:])
        self._pure = pure

    @property
    def _inside(self) -> str:
        return str(self._pure)

    def __str__(self) -> str:
        return self._inside

    def __bytes__(self) -> bytes:
        return os.fsencode(self._inside)

    def __repr__(self) -> str:
        return f"<extxfs.Path {self.fs.image}:{self}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Path):
            return NotImplemented
        return self.fs is other.fs and self._pure == other._pure

    def __hash__(self) -> int:
        return hash((id(self.fs), self._pure))

    def __lt__(self, other: Path) -> bool:
        return self._pure < other._pure

    def __le__(self, other: Path) -> bool:
        return self._pure <= other._pure

    def __gt__(self, other: Path) -> bool:
        return self._pure > other._pure

    def __ge__(self, other: Path) -> bool:
        return self._pure >= other._pure

    # What needs no image

    def with_segments(self, *segments: str | os.PathLike[str] | Path) -> Self:
        """A path of the same image."""
        return type(self)(self.fs, *segments)

    def __truediv__(self, segment: str | os.PathLike[str] | Path) -> Self:
        return self.with_segments(self, segment)

    def joinpath(self, *segments: str | os.PathLike[str] | Path) -> Self:
        """The path with these behind it."""
        return self.with_segments(self, *segments)

    @property
    def parts(self) -> tuple[str, ...]:
        """Its components, the root first."""
        return self._pure.parts

    @property
    def name(self) -> str:
        """The last component; empty for the root."""
        return self._pure.name

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return self._pure.stem

    @property
    def suffix(self) -> str:
        """The suffix of the name, with its dot."""
        return self._pure.suffix

    @property
    def suffixes(self) -> list[str]:
        """All suffixes of the name."""
        return self._pure.suffixes

    @property
    def root(self) -> str:
        """`/`."""
        return "/"

    @property
    def anchor(self) -> str:
        """`/`."""
        return "/"

    @property
    def parent(self) -> Self:
        """The directory it is in; the root's own."""
        return self.with_segments(self._pure.parent)

    @property
    def parents(self) -> Sequence[Self]:
        """The directories above it, the nearest first."""
        return tuple(self.with_segments(pure) for pure in self._pure.parents)

    def as_posix(self) -> str:
        """The same as `str`."""
        return self._inside

    def is_absolute(self) -> bool:
        """Always."""
        return True

    def absolute(self) -> Self:
        """Itself."""
        return self

    def is_relative_to(self, other: str | os.PathLike[str] | Path) -> bool:
        """Does it lie below `other`?"""
        return self._pure.is_relative_to(self.with_segments(other)._pure)

    def relative_to(self, other: str | os.PathLike[str] | Path) -> PurePosixPath:
        """What is behind `other`; ValueError if it does not lie below."""
        return self._pure.relative_to(self.with_segments(other)._pure)

    def match(self, pattern: str) -> bool:
        """Does it match a pattern, from its end?"""
        return self._pure.match(pattern)

    def with_name(self, name: str) -> Self:
        """With another name."""
        return self.with_segments(self._pure.with_name(name))

    def with_stem(self, stem: str) -> Self:
        """With another stem."""
        return self.with_segments(self._pure.with_stem(stem))

    def with_suffix(self, suffix: str) -> Self:
        """With another suffix."""
        return self.with_segments(self._pure.with_suffix(suffix))

    # Attributes

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """The attributes; `st_dev` is 0."""
        return self.fs.stat(self, follow_symlinks=follow_symlinks)

    def lstat(self) -> os.stat_result:
        """The attributes of a symbolic link itself."""
        return self.fs.lstat(self)

    def _is(self, test: Callable[[int], bool], follow: bool = True) -> bool:
        return test(self.fs._mode(self, follow))

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Does it lead to something?"""
        return self._is(bool, follow_symlinks)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Is it a directory?"""
        return self._is(stat_bits.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Is it a regular file?"""
        return self._is(stat_bits.S_ISREG, follow_symlinks)

    def is_symlink(self) -> bool:
        """Is it a symbolic link?"""
        return self._is(stat_bits.S_ISLNK, False)

    def is_fifo(self) -> bool:
        """Is it a FIFO?"""
        return self._is(stat_bits.S_ISFIFO)

    def is_socket(self) -> bool:
        """Is it a socket?"""
        return self._is(stat_bits.S_ISSOCK)

    def is_block_device(self) -> bool:
        """Is it a block device?"""
        return self._is(stat_bits.S_ISBLK)

    def is_char_device(self) -> bool:
        """Is it a character device?"""
        return self._is(stat_bits.S_ISCHR)

    def is_mount(self) -> bool:
        """Is it the root?"""
        return self._inside == "/"

    def samefile(self, other: str | os.PathLike[str] | Path) -> bool:
        """Do both lead to one file?"""
        if isinstance(other, Path) and other.fs is not self.fs:
            return False
        return self.stat().st_ino == self.fs.stat(other).st_ino

    def chmod(self, mode: int) -> None:
        """Set permission, set-id and sticky bits."""
        self.fs.chmod(self, mode)

    def readlink(self) -> PurePosixPath:
        """What a symbolic link holds: maybe a relative path."""
        return PurePosixPath(self.fs.readlink(self))

    def resolve(self, strict: bool = False) -> Self:
        """Without symbolic links, `.` and `..`; what does not exist stays as it is."""
        if strict:
            return self.with_segments(self.fs.realpath(self))
        at, links = "/", 0
        rest = list(reversed(self.parts[1:]))
        while rest:
            name = rest.pop()
            if name == "..":
                at = os.path.dirname(at)
                continue
            if not self.fs.islink(os.path.join(at, name)):
                at = os.path.join(at, name)
                continue
            links += 1
            if links > 40:
                raise OSError(ELOOP, os.strerror(ELOOP), f"{self.fs.image}:{self}")
            target = self.fs.readlink(os.path.join(at, name))
            at = "/" if target.startswith("/") else at
            rest.extend(part for part in reversed(PurePosixPath(target).parts) if part != "/")
        return self.with_segments(at)

    # Directories

    def iterdir(self) -> Iterator[Self]:
        """What is in the directory."""
        for name in self.fs.listdir(self):
            yield self / name

    def walk(
        self,
        top_down: bool = True,
        on_error: Callable[[OSError], object] | None = None,
        follow_symlinks: bool = False,
    ) -> Iterator[tuple[Self, list[str], list[str]]]:
        """Everything below: (directory, names of directories, other names)."""
        walk = self.fs.walk(self, top_down, on_error, follow_symlinks, links_are_files=True)
        for folder, dirs, files in walk:
            yield self.with_segments(folder), dirs, files

    def glob(self, pattern: str, *, recurse_symlinks: bool = False) -> Iterator[Self]:
        """What matches a pattern; `**` stands for any number of directories, and at the end for
        files, too (as in Python 3.13)."""
        pure = PurePosixPath(pattern)
        if not pure.parts:
            raise ValueError(f"Unacceptable pattern: {pattern!r}")
        if pure.is_absolute():
            raise NotImplementedError("Non-relative patterns are unsupported")
        only_dirs = pattern.endswith("/")
        seen = set()
        for found in self._select(self._inside, pure.parts, only_dirs, recurse_symlinks):
            if found not in seen:
                seen.add(found)
                yield self.with_segments(found)

    def rglob(self, pattern: str, *, recurse_symlinks: bool = False) -> Iterator[Self]:
        """The same with `**/` before the pattern."""
        return self.glob(f"**/{pattern}", recurse_symlinks=recurse_symlinks)

    def _select(
        self, folder: str, parts: tuple[str, ...], only_dirs: bool, links: bool
    ) -> Iterator[str]:
        part, rest = parts[0], parts[1:]
        needs_dir = only_dirs or bool(rest)
        found: Iterator[str]
        if part == "**":
            found = self._below(folder, needs_dir, links)
        elif MAGIC.search(part):
            found = self._matching(folder, part, needs_dir)
        else:
            path = os.path.join(folder, part)
            there = self.fs.isdir(path) if needs_dir else self.fs.lexists(path)
            found = iter([path] if there else [])
        for path in found:
            if rest:
                yield from self._select(path, rest, only_dirs, links)
            else:
                yield path

    def _matching(self, folder: str, pattern: str, needs_dir: bool) -> Iterator[str]:
        matches = re.compile(fnmatch.translate(pattern)).match
        try:
            with self.fs.scandir(folder) as entries:
                names = [e.path for e in entries if matches(e.name) and _fits(e, needs_dir)]
        except (FileNotFoundError, NotADirectoryError):
            return
        yield from names

    def _below(self, folder: str, needs_dir: bool, links: bool) -> Iterator[str]:
        for at, dirs, files in self.fs.walk(folder, followlinks=links, links_are_files=True):
            yield at
            for name in files:
                path = os.path.join(at, name)
                if not needs_dir or (links and self.fs.isdir(path)):
                    yield path
            dirs.sort()

    def mkdir(self, mode: int = 0o755, parents: bool = False, exist_ok: bool = False) -> None:
        """Make a directory."""
        try:
            if parents:
                self.parent.fs.makedirs(self.parent, exist_ok=True)
            self.fs.mkdir(self, mode)
        except FileExistsError:
            if not exist_ok or not self.is_dir():
                raise

    def rmdir(self) -> None:
        """Remove an empty directory."""
        self.fs.rmdir(self)

    # Files

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Open the file, as the built-in `open`."""
        encoding = encoding if "b" in mode else io.text_encoding(encoding)
        return self.fs.open(self, mode, buffering, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        """The content."""
        return self.fs.read_bytes(self)

    def read_text(
        self, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> str:
        """The content as text."""
        with self.open("r", -1, encoding, errors, newline) as file:
            return cast(str, file.read())

    def write_bytes(self, data: Any) -> int:
        """Replace the content."""
        return self.fs.write_bytes(self, data)

    def write_text(
        self,
        data: str,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> int:
        """Replace the content by text; answers the characters."""
        if not isinstance(data, str):
            raise TypeError(f"data must be str, not {type(data).__name__}")
        with self.open("w", -1, encoding, errors, newline) as file:
            return file.write(data)

    def touch(self, mode: int = 0o644, exist_ok: bool = True) -> None:
        """Make an empty file, or set the times of the one that is there to now."""
        try:
            self.fs.open(self, "xb", 0, permissions=mode).close()
        except FileExistsError:
            if not exist_ok:
                raise
            self.fs.utime(self)

    # Names

    def rename(self, target: str | os.PathLike[str] | Path) -> Self:
        """Move it; what `target` was is replaced in one step. Answers the new path."""
        new = self._of_this_image(target)
        self.fs.rename(self, new)
        return new

    replace = rename

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the name."""
        try:
            self.fs.unlink(self)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def symlink_to(
        self, target: str | os.PathLike[str] | Path, target_is_directory: bool = False
    ) -> None:
        """Make it a symbolic link that holds `target`."""
        self.fs.symlink(target, self)

    def hardlink_to(self, target: str | os.PathLike[str] | Path) -> None:
        """Make it a further name of `target`."""
        self.fs.link(self._of_this_image(target), self)

    def copy(self, target: str | os.PathLike[str] | Path) -> Self:
        """Copy content and permission bits of a file within the image; answers the new path."""
        new = self._of_this_image(target)
        self.fs.copy(self, new)
        return new

    def _of_this_image(self, target: str | os.PathLike[str] | Path) -> Self:
        if isinstance(target, Path) and target.fs is not self.fs:
            raise OSError(EINVAL, "the path is in another image", str(target))
        return self.with_segments(target)


def _fits(entry: Any, needs_dir: bool) -> bool:
    return not needs_dir or bool(entry.is_dir())
