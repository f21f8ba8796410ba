"""The fsspec file system: `image://`, `ext4://` and `xfs://`.

    image://dir/a.parquet::file:///srv/disk.img
    image://dir/a.parquet::s3://bucket/disk.img
    fsspec.filesystem("image", fo="disk.img", mode="r+")

fsspec finds it by the package's entry points. A protocol names no format: the image does.
"""

from __future__ import annotations

import io
import os
import threading
import uuid
from datetime import UTC, datetime
from errno import EROFS
from typing import Any, cast

import fsspec
from fsspec.caching import BlockCache
from fsspec.core import split_protocol
from fsspec.spec import AbstractFileSystem

from . import _native
from .files import BUFFER_SIZE, RawFile
from .filesystem import FileSystem
from .filesystem import open as open_image

BLOCK_SIZE = 1 << 20
"""Bytes that are fetched of a remote image at once."""
BLOCKS = 64
"""Blocks of a remote image that are kept."""


class FileDevice:
    """The sectors of an image in a file object, for the native side."""

    def __init__(self, file: Any, writable: bool) -> None:
        self._file = file
        self._lock = threading.Lock()
        self.size = file.seek(0, os.SEEK_END)
        self.writable = writable

    def read(self, offset: int, size: int) -> bytes:
        with self._lock:
            self._file.seek(offset)
            parts = []
            while size > 0 and (part := self._file.read(size)):
                parts.append(bytes(part))
                size -= len(part)
        return b"".join(parts)

    def write(self, offset: int, data: bytes) -> None:
        view = memoryview(data)
        with self._lock:
            self._file.seek(offset)
            while view:
                written = self._file.write(view)
                view = view[len(view) if written is None else written :]

    def flush(self) -> None:
        with self._lock:
            self._file.flush()

    def close(self) -> None:
        self._file.close()


class RangeDevice:
    """The sectors of an image that another file system has, fetched in blocks and kept."""

    writable = False

    def __init__(self, fs: AbstractFileSystem, path: str, block_size: int, blocks: int) -> None:
        def fetch(start: int, end: int) -> bytes:
            return cast(bytes, fs.cat_file(path, start=start, end=end))

        self.size = fs.info(path)["size"]
        if self.size is None:
            raise OSError(f"{path}: its size is not known, so that no part of it can be read")
        self._cache = BlockCache(block_size, fetch, self.size, blocks)
        self._lock = threading.Lock()

    def read(self, offset: int, size: int) -> bytes:
        with self._lock:
            return bytes(self._cache._fetch(offset, offset + size))

    def write(self, offset: int, data: bytes) -> None:
        raise OSError(EROFS, "the image is opened for reading")

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class Uncommitted(io.BufferedWriter):
    """A file of a transaction: it gets its name when the transaction ends."""

    def __init__(self, raw: RawFile, fs: FileSystem, target: str) -> None:
        super().__init__(raw, BUFFER_SIZE)
        self._fs, self._target = fs, target

    def commit(self) -> None:
        """Give it its name, in one step."""
        self._fs.rename(self.name, self._target)

    def discard(self) -> None:
        """Remove it."""
        self._fs.unlink(self.name)


class ImageFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Files inside an image, for fsspec.

    fo: the image: a path or URL, a file object, or a `FileSystem`.
    mode: `r`, or `r+` for images on this machine, in memory, or in a file object.
    target_protocol, target_options: how fsspec opens `fo`.
    partition, cache_size: as `extxfs.open`.
    auto_mkdir: writing a file makes the directories above it.
    fetch_size, fetch_count: bytes of a remote image that are fetched at once, and how many of these
        are kept.

    An instance keeps the image open until `close`, or until it is collected; it can be pickled if
    `fo` is a path. Paths begin with `/`; `a` is `/a`. Symbolic links are followed.
    """

    root_marker = "/"
    protocol = ("image", "ext4", "xfs")
    cachable = False

    def __init__(
        self,
        fo: Any = "",
        mode: str = "r",
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        partition: int | None = None,
        cache_size: int | None = None,
        auto_mkdir: bool = False,
        fetch_size: int = BLOCK_SIZE,
        fetch_count: int = BLOCKS,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if mode not in ("r", "r+"):
            raise ValueError(f"invalid mode: {mode!r}; 'r' or 'r+'")
        self.auto_mkdir = auto_mkdir
        self.image: FileSystem
        self._device: Any = None
        self._owned = not isinstance(fo, FileSystem)
        if not self._owned:
            self.image = fo
            return
        writable = mode == "r+"
        if isinstance(fo, str | os.PathLike):
            name = os.fspath(fo)
            if (target_protocol or split_protocol(name)[0]) == "nbd":
                self.image = open_image(name, mode, partition=partition, cache_size=cache_size)
                return
            of = fsspec.open(name, "rb", protocol=target_protocol, **(target_options or {}))
            if getattr(of.fs, "local_file", False):
                with of.fs.open(of.path, "rb") as local:
                    path = local.name
                self.image = open_image(path, mode, partition=partition, cache_size=cache_size)
                return
            if writable:
                self._device = FileDevice(of.fs.open(of.path, "r+b"), True)
            else:
                self._device = RangeDevice(of.fs, of.path, fetch_size, fetch_count)
            name = of.fs.unstrip_protocol(of.path)
        else:
            self._device = FileDevice(fo, writable)
            name = str(getattr(fo, "name", None) or type(fo).__name__)
        native = _native.Fs(name, writable, partition, cache_size, self._device)
        self.image = FileSystem(native, name, writable)

    def close(self) -> None:
        """Unmount the image, unless `fo` was a `FileSystem`."""
        if self._owned and "image" in self.__dict__:
            self.image.close()
            if self._device is not None:
                self._device.close()

    def __del__(self) -> None:
        if not getattr(self, "_owned", False) or "image" not in self.__dict__:
            return
        # Files that are still open keep the mount; the last one unmounts.
        del self.image

    @property
    def fsid(self) -> str:
        """The image."""
        return f"image://{self.image.image}"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(p) for p in path]
        return "/" + super()._strip_protocol(path).lstrip("/")

    def _inside(self, path: str) -> str:
        return cast(str, self._strip_protocol(path))

    # Looking

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Attributes: name, size, type (`file`, `directory`, `other`), mode, owner, times, .."""
        path = self._strip_protocol(path)
        return self._info(path, self.image.lstat(path))

    def _info(self, path: str, found: os.stat_result) -> dict[str, Any]:
        import stat as bits

        info: dict[str, Any] = {"name": path, "islink": bits.S_ISLNK(found.st_mode)}
        if info["islink"]:
            info["destination"] = self.image.readlink(path)
            if self.image.exists(path):
                found = self.image.stat(path)
        is_file, is_dir = bits.S_ISREG(found.st_mode), bits.S_ISDIR(found.st_mode)
        info["type"] = "file" if is_file else "directory" if is_dir else "other"
        info["size"] = found.st_size if is_file else 0
        names = ("mode", "uid", "gid", "mtime", "ino", "nlink")
        info |= {name: getattr(found, "st_" + name) for name in names}
        info["created"] = found.st_ctime
        return info

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """What is in a directory; a file is its own list."""
        path = self._strip_protocol(path)
        info = self.info(path)
        if info["type"] != "directory":
            return [info] if detail else [path]
        with self.image.scandir(path) as entries:
            if not detail:
                return [entry.path for entry in entries]
            return [self._info(e.path, e.stat(follow_symlinks=False)) for e in entries]

    def exists(self, path: str, **_: Any) -> bool:
        return self.image.exists(self._inside(path))

    def lexists(self, path: str, **_: Any) -> bool:
        return self.image.lexists(self._inside(path))

    def isfile(self, path: str) -> bool:
        return self.image.isfile(self._inside(path))

    def isdir(self, path: str) -> bool:
        return self.image.isdir(self._inside(path))

    def created(self, path: str) -> datetime:
        """Birth; where the format does not record it the last change of the inode."""
        birth = self.image.birth_ns(self._inside(path))
        birth = self.image.stat(self._inside(path)).st_ctime_ns if birth is None else birth
        return datetime.fromtimestamp(birth / 1e9, UTC)

    def modified(self, path: str) -> datetime:
        """Last change of the content."""
        return datetime.fromtimestamp(self.image.stat(self._inside(path)).st_mtime, UTC)

    # Reading

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **_: Any,
    ) -> Any:
        target = self._inside(path)
        if "r" not in mode:
            self._make_parent(target)
        if autocommit or "r" in mode:
            return self.image.open(target, mode)
        if "a" in mode:
            raise NotImplementedError("a transaction replaces files; it appends to none")
        if "x" in mode and self.image.lexists(target):
            self.image.open(target, mode)  # raises
        temporary = f"{target}.{uuid.uuid4().hex[:8]}"
        raw = cast(RawFile, self.image.open(temporary, "xb", 0))
        return self.image._opened(Uncommitted(raw, self.image, target))

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        """The content of a file, or a part of it."""
        name = self._inside(path)
        if start is None and end is None:
            return self.image.read_bytes(name)
        return self.image.read_ranges(name, [self._range(name, start, end)])[0]

    def _range(self, name: str, start: int | None, end: int | None) -> tuple[int, int]:
        start = 0 if start is None else start
        if start < 0 or end is None or end < 0:
            size = self.image.stat(name).st_size
            start = max(0, size + start) if start < 0 else start
            end = size if end is None else max(0, size + end) if end < 0 else end
        return start, end

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        """Parts of files; each file is opened once."""
        count = len(paths)
        starts = starts if isinstance(starts, list) else [starts] * count
        ends = ends if isinstance(ends, list) else [ends] * count
        if len(starts) != count or len(ends) != count:
            raise ValueError(f"{count} paths, {len(starts)} starts, {len(ends)} ends")
        places: dict[str, list[int]] = {}
        for place, path in enumerate(paths):
            places.setdefault(self._inside(path), []).append(place)
        parts: list[Any] = [None] * count
        for name, at in places.items():
            try:
                ranges = [self._range(name, starts[i], ends[i]) for i in at]
                found: list[Any] = list(self.image.read_ranges(name, ranges))
            except OSError as error:
                if on_error == "raise":
                    raise
                found = [error] * len(at)
            for place, part in zip(at, found, strict=True):
                parts[place] = part
        return parts

    # Writing

    def _make_parent(self, target: str) -> None:
        if self.auto_mkdir:
            self.image.makedirs(os.path.dirname(target), exist_ok=True)

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        """Write a whole file; `mode="create"`: one that is there is FileExistsError."""
        target = self._inside(path)
        self._make_parent(target)
        self.image.write_bytes(target, value, exclusive=mode == "create")

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        """Make an empty file; without `truncate` keep what is there and set its times."""
        target = self._inside(path)
        self._make_parent(target)
        if truncate or not self.image.exists(target):
            self.image.write_bytes(target, b"")
        else:
            self.image.utime(target)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Make a directory; FileExistsError if it is there."""
        target = self._inside(path)
        if create_parents:
            self.image.makedirs(target)
        else:
            self.image.mkdir(target)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory and those above it."""
        self.image.makedirs(self._inside(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        self.image.rmdir(self._inside(path))

    def rm_file(self, path: str) -> None:
        """Remove a file or a link."""
        self.image.unlink(self._inside(path))

    _rm = rm_file

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove files, and with `recursive` directories with everything below."""
        if maxdepth is not None:
            super().rm(path, recursive, maxdepth)
            return
        for one in self.expand_path(path, recursive=False):
            name = self._inside(one)
            if self.image.islink(name) or not self.image.isdir(name):
                self.image.unlink(name)
            elif recursive:
                self.image.rmtree(name)
            else:
                self.image.rmdir(name)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copy a file, or make a directory like another one."""
        source, target = self._inside(path1), self._inside(path2)
        self._make_parent(target)
        if self.image.isdir(source):
            self.image.makedirs(target, exist_ok=True)
        else:
            self.image.copy(source, target)

    def mv(
        self,
        path1: str,
        path2: str,
        recursive: bool = False,
        maxdepth: int | None = None,
        **_: Any,
    ) -> None:
        """Move a file or a directory, in one step; into `path2` if that is a directory."""
        source, target = self._inside(path1), self._inside(path2)
        if self.image.isdir(target):
            target = os.path.join(target, os.path.basename(source))
        self._make_parent(target)
        self.image.rename(source, target)
