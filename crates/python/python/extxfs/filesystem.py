"""A mounted image, in the words of `os`."""

from __future__ import annotations

import atexit
import os
import stat as stat_bits
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from errno import ELOOP
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, cast

from . import _native
from .files import open_file, stat_result

if TYPE_CHECKING:
    from .paths import Path

AnyPath: TypeAlias = "str | bytes | os.PathLike[str] | Path"

T = TypeVar("T")

os.register_at_fork(after_in_child=_native.forked)

MOUNTED: weakref.WeakSet[FileSystem] = weakref.WeakSet()
"""What is mounted: a program that ends without closing it loses nothing."""


@atexit.register
def _close_all() -> None:
    for fs in list(MOUNTED):
        try:
            fs.close()
        except RuntimeError:
            pass  # in a child process
        except OSError as error:
            print(f"extxfs: {error}", file=sys.stderr)


def inside(path: AnyPath) -> str | bytes | os.PathLike[str]:
    """A path for the native side. A `Path` of an image is none for the host: it has no fspath."""
    name: str | None = getattr(path, "_inside", None)
    return cast(str | bytes | os.PathLike[str], path) if name is None else name


def text(path: AnyPath) -> str:
    """The same as str."""
    return os.fsdecode(inside(path))


class DirEntry:
    """A name of a directory, as `os.DirEntry`: type and inode number cost no further call."""

    __slots__ = ("_fs", "_ino", "_type", "name", "path")

    def __init__(self, fs: FileSystem, folder: str, name: str, ino: int, kind: int) -> None:
        self._fs = fs
        self._ino = ino
        self._type = kind
        self.name = name
        self.path = folder + name if folder.endswith("/") or not folder else f"{folder}/{name}"

    def __repr__(self) -> str:
        return f"<extxfs.DirEntry {self.name!r}>"

    def inode(self) -> int:
        """The inode number."""
        return self._ino

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """The attributes."""
        return self._fs.stat(self.path, follow_symlinks=follow_symlinks)

    def is_symlink(self) -> bool:
        """Is it a symbolic link?"""
        return self._is(stat_bits.S_IFLNK, False)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Is it a directory?"""
        return self._is(stat_bits.S_IFDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Is it a regular file?"""
        return self._is(stat_bits.S_IFREG, follow_symlinks)

    def _is(self, kind: int, follow: bool) -> bool:
        if self._type == 0:
            self._type = stat_bits.S_IFMT(self.stat(follow_symlinks=False).st_mode)
        if self._type != stat_bits.S_IFLNK or not follow:
            return self._type == kind
        try:
            return stat_bits.S_IFMT(self.stat().st_mode) == kind
        except FileNotFoundError:
            return False


class ScandirIterator:
    """The names of a directory, fetched in batches; a context manager as that of `os.scandir`."""

    def __init__(self, fs: FileSystem, folder: str, names: _native.Names) -> None:
        self._names = names
        self._entries = (
            DirEntry(fs, folder, name, ino, kind) for batch in names for name, ino, kind in batch
        )

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> DirEntry:
        return next(self._entries)

    def close(self) -> None:
        """Give the directory back."""
        self._entries.close()
        self._names.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FileSystem:
    """A mounted image with the functions of `os`, on paths from the root of the image.

    Paths are `str` (names that are no UTF-8 with surrogate escapes), `bytes` or `Path`; `a` is
    `/a`. Symbolic links are followed inside of the image and never lead out of it. Any number of
    threads may use one. Close it, best by `with`, to see errors of the last writes.
    """

    def __init__(self, native: _native.Fs, image: str, writable: bool) -> None:
        self._fs = native
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()
        self.image = image
        """The image, as messages name it."""
        self.writable = writable
        MOUNTED.add(self)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "r+" if self.writable else "r"
        return f"<extxfs.FileSystem {self.image!r} {state}>"

    @property
    def format(self) -> str:
        """The family: `ext` or `xfs`."""
        return self._fs.format

    # Life

    @property
    def closed(self) -> bool:
        """Is it unmounted?"""
        return self._fs.closed

    def close(self) -> None:
        """Close the files that are open, write everything out and unmount.

        Raises the first OSError of it; the image is unmounted then, too. EBUSY: another thread is
        in a call; the image is unmounted when that returns.
        """
        if self.closed:
            return
        failed: OSError | None = None
        with self._lock:
            files = list(self._open)
        for file in files:
            try:
                file.close()
            except OSError as error:
                failed = failed or error
        try:
            self._fs.close()
        finally:
            if failed:
                raise failed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _opened(self, file: T) -> T:
        """Notes what is closed with the file system."""
        with self._lock:
            self._open.add(file)
        return file

    def sync(self) -> None:
        """Return when everything done before survives a power cut."""
        self._fs.sync()

    # Paths

    def path(self, *segments: str | os.PathLike[str] | Path) -> Path:
        """A path in this image."""
        from .paths import Path

        return Path(self, *segments)

    def __truediv__(self, segment: str | os.PathLike[str] | Path) -> Path:
        return self.path(segment)

    @property
    def root(self) -> Path:
        """The root directory."""
        return self.path()

    # Files

    def open(
        self,
        path: AnyPath,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o644,
    ) -> IO[Any]:
        """Open a file, as the built-in `open`; a new one gets `permissions`."""
        name = inside(path)

        def native(letters: str) -> _native.File:
            return self._fs.open(name, letters, permissions)

        name_text = os.fsdecode(name)
        return self._opened(
            open_file(native, name_text, mode, buffering, encoding, errors, newline)
        )

    def read_bytes(self, path: AnyPath) -> bytes:
        """The content of a file."""
        return self._fs.read_bytes(inside(path))

    def write_bytes(self, path: AnyPath, data: Any, *, exclusive: bool = False) -> int:
        """Make a file with this content; `exclusive`: one that is there is FileExistsError."""
        return self._fs.write_bytes(inside(path), data, exclusive)

    def read_ranges(self, path: AnyPath, ranges: list[tuple[int, int]]) -> list[bytes]:
        """Parts of a file, (first byte, byte behind the last), clipped to its end."""
        return self._fs.read_ranges(inside(path), ranges)

    def copy(self, source: AnyPath, target: AnyPath) -> int:
        """Copy content and permission bits, as `shutil.copy`; answers the bytes."""
        return self._fs.copy(inside(source), inside(target))

    def truncate(self, path: AnyPath, length: int) -> None:
        """Cut a file, or let it grow by a hole."""
        file = self._fs.open(inside(path), "w")
        try:
            file.truncate(length)
        finally:
            file.close()

    # Directories

    def listdir(self, path: AnyPath = "/") -> list[str]:
        """The names in a directory, in the order of the file system."""
        return [name for batch in self._fs.names(inside(path)) for name, _, _ in batch]

    def scandir(self, path: AnyPath = "/") -> ScandirIterator:
        """The names in a directory with their types."""
        name = inside(path)
        entries = ScandirIterator(self, os.fsdecode(name), self._fs.names(name))
        return self._opened(entries)

    def walk(
        self,
        top: AnyPath = "/",
        topdown: bool = True,
        onerror: Callable[[OSError], object] | None = None,
        followlinks: bool = False,
        *,
        links_are_files: bool = False,
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """Everything below a directory, as `os.walk`.

        Ends on damaged images and on links to directories above, too: a directory that was reached
        before is not walked again, and is an OSError (ELOOP) for `onerror`. A link to a directory
        that is not followed is among the directories, or with `links_are_files` among the others,
        as in `pathlib`.
        """
        reached: set[int] = set()
        # A stack of our own, not recursion: trees are deeper than Python's. What is no path waits
        # for the walk below it.
        stack: list[str | tuple[str, list[str], list[str]]] = [text(top)]
        while stack:
            at = stack.pop()
            if not isinstance(at, str):
                yield at
                continue
            try:
                dirs, files = self._listed(at, reached, links_are_files and not followlinks)
            except OSError as error:
                if onerror is not None:
                    onerror(error)
                continue
            if topdown:
                # Who walks may change `dirs`.
                yield at, dirs, files
            else:
                stack.append((at, dirs, files))
            below = (os.path.join(at, name) for name in reversed(dirs))
            stack.extend(path for path in below if followlinks or not self.islink(path))

    def _listed(
        self, folder: str, reached: set[int], links_are_files: bool
    ) -> tuple[list[str], list[str]]:
        """The names of directories and of others; notes the directory as reached."""
        ino = self.stat(folder).st_ino
        if ino in reached:
            words = "this directory was reached before"
            raise OSError(ELOOP, words, f"{self.image}:{folder}")
        reached.add(ino)
        dirs: list[str] = []
        files: list[str] = []
        with self.scandir(folder) as entries:
            for entry in entries:
                is_dir = entry.is_dir(follow_symlinks=not links_are_files)
                (dirs if is_dir else files).append(entry.name)
        return dirs, files

    def mkdir(self, path: AnyPath, mode: int = 0o755) -> None:
        """Make a directory."""
        self._fs.mkdir(inside(path), mode)

    def makedirs(self, path: AnyPath, mode: int = 0o755, exist_ok: bool = False) -> None:
        """Make a directory and those above it."""
        if not exist_ok and self.lexists(path):
            self._fs.mkdir(inside(path), mode)  # raises
        self._fs.mkdir(inside(path), mode, True)

    def rmdir(self, path: AnyPath) -> None:
        """Remove an empty directory."""
        self._fs.rmdir(inside(path))

    def rmtree(self, path: AnyPath) -> None:
        """Remove a directory and everything below it, as `shutil.rmtree`."""
        self._fs.rmtree(inside(path))

    # Names

    def unlink(self, path: AnyPath) -> None:
        """Remove a name of anything but a directory."""
        self._fs.unlink(inside(path))

    remove = unlink

    def rename(self, old: AnyPath, new: AnyPath) -> None:
        """Move a name; what the new one was is replaced in one step."""
        self._fs.rename(inside(old), inside(new))

    replace = rename

    def rename_noreplace(self, old: AnyPath, new: AnyPath) -> None:
        """Move a name; FileExistsError if the new one exists."""
        self._fs.rename(inside(old), inside(new), 1)

    def exchange(self, one: AnyPath, other: AnyPath) -> None:
        """Two names change places, in one step."""
        self._fs.rename(inside(one), inside(other), 2)

    def link(self, old: AnyPath, new: AnyPath) -> None:
        """Make a further name for a file."""
        self._fs.link(inside(old), inside(new))

    def symlink(self, target: AnyPath, path: AnyPath) -> None:
        """Make a symbolic link `path` that holds `target`."""
        self._fs.symlink(inside(target), inside(path))

    def readlink(self, path: AnyPath) -> str:
        """What a symbolic link holds."""
        return self._fs.readlink(inside(path))

    def realpath(self, path: AnyPath) -> str:
        """The path without symbolic links, `.` and `..`; it exists."""
        return self._fs.canonical(inside(path))

    def mknod(self, path: AnyPath, mode: int, device: int = 0) -> None:
        """Make a FIFO, a socket, a device or an empty file: `mode` with the type in it."""
        self._fs.mknod(inside(path), mode, device)

    # Attributes

    def stat(self, path: AnyPath, *, follow_symlinks: bool = True) -> os.stat_result:
        """The attributes; `st_dev` is 0."""
        return stat_result(self._fs.stat(inside(path), follow_symlinks))

    def lstat(self, path: AnyPath) -> os.stat_result:
        """The attributes of a symbolic link itself."""
        return self.stat(path, follow_symlinks=False)

    def birth_ns(self, path: AnyPath) -> int | None:
        """When it was made, nanoseconds since 1970; None where the format does not record it."""
        return self._fs.birth(inside(path))

    def exists(self, path: AnyPath) -> bool:
        """Does the path lead to something?"""
        return self._mode(path, True) != 0

    def lexists(self, path: AnyPath) -> bool:
        """Is there such a name? A link that leads nowhere is one."""
        return self._mode(path, False) != 0

    def isdir(self, path: AnyPath) -> bool:
        """Does it lead to a directory?"""
        return stat_bits.S_ISDIR(self._mode(path, True))

    def isfile(self, path: AnyPath) -> bool:
        """Does it lead to a regular file?"""
        return stat_bits.S_ISREG(self._mode(path, True))

    def islink(self, path: AnyPath) -> bool:
        """Is it a symbolic link?"""
        return stat_bits.S_ISLNK(self._mode(path, False))

    def _mode(self, path: AnyPath, follow: bool) -> int:
        try:
            return self._fs.stat(inside(path), follow)[0]
        except (FileNotFoundError, NotADirectoryError):
            return 0
        except OSError as error:
            if error.errno == ELOOP:
                return 0
            raise

    def chmod(self, path: AnyPath, mode: int) -> None:
        """Set permission, set-id and sticky bits."""
        self._fs.chmod(inside(path), mode & 0o7777)

    def chown(self, path: AnyPath, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        """Set owner and group; -1 leaves what is there."""
        owner, group = (None if n == -1 else n for n in (uid, gid))
        self._fs.chown(inside(path), owner, group, follow_symlinks)

    def utime(
        self,
        path: AnyPath,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Set the times of access and of change: seconds, or nanoseconds by `ns`; else now."""
        import time

        if times is not None and ns is not None:
            raise ValueError("utime: you may specify either 'times' or 'ns' but not both")
        if times is not None:
            ns = (_nanoseconds(times[0]), _nanoseconds(times[1]))
        now = time.time_ns()
        self._fs.utime(inside(path), *(ns or (now, now)), follow_symlinks)

    def getxattr(self, path: AnyPath, name: str) -> bytes:
        """The value of an extended attribute, `name` with its prefix (`user.x`)."""
        return self._fs.getxattr(inside(path), name)

    def setxattr(self, path: AnyPath, name: str, value: Any) -> None:
        """Set an extended attribute."""
        self._fs.setxattr(inside(path), name, value)

    def listxattr(self, path: AnyPath) -> list[str]:
        """The names of the extended attributes."""
        return self._fs.listxattr(inside(path))

    def removexattr(self, path: AnyPath, name: str) -> None:
        """Remove an extended attribute."""
        self._fs.removexattr(inside(path), name)

    def statvfs(self) -> os.statvfs_result:
        """Space and inodes."""
        block, total, free, available, inodes, inodes_free, name_max, ident = self._fs.space()
        blocks = (total // block, free // block, available // block)
        files = (inodes, inodes_free, inodes_free)
        flag = 0 if self.writable else os.ST_RDONLY
        numbers = (block, block, *blocks, *files, flag, name_max, ident & 0xFFFF_FFFF_FFFF_FFFF)
        return os.statvfs_result(numbers)


def _nanoseconds(seconds: float) -> int:
    whole = int(seconds // 1)
    return whole * 1_000_000_000 + round((seconds - whole) * 1e9)


def open(
    image: str | bytes | os.PathLike[str],
    mode: str = "r",
    *,
    partition: int | None = None,
    cache_size: int | None = None,
) -> FileSystem:
    """Mount an image file, a block device or `nbd://host/export`.

    `mode` is `r`, which never changes the image (a dirty journal is replayed in memory), or `r+`.
    `partition` counts from 1 (GPT or MBR). `cache_size` is in bytes, 256 MiB unless given.

    Raises OSError: the host refuses it, somebody else has it open (EBUSY), or it holds no file
    system that is supported (EINVAL, EOPNOTSUPP); CorruptError where it is damaged.
    """
    if mode not in ("r", "r+"):
        raise ValueError(f"invalid mode: {mode!r}; 'r' or 'r+'")
    writable = mode == "r+"
    native = _native.Fs(image, writable, partition, cache_size, None)
    return FileSystem(native, os.fsdecode(image), writable)
