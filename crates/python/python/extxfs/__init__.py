"""Files inside disk images of ext2, ext3, ext4 and XFS, without root and without a mount.

    >>> import extxfs
    >>> extxfs.mkfs("disk.img", 64 << 20)
    >>> with extxfs.open("disk.img", "r+") as fs:
    ...     (fs / "etc").mkdir()
    ...     (fs / "etc/hostname").write_text("box\\n")
    ...     print(fs.listdir("/etc"))
    4
    ['hostname']
    >>> extxfs.check("disk.img").clean
    True

`open` mounts an image: a `FileSystem` has the functions of `os`, `Path` the methods of
`pathlib.Path`, and its files are those of `io`. With fsspec, `image://`, `ext4://` and `xfs://`
name files inside images: `image://data/a.parquet::file:///srv/disk.img`. `check` looks for damage,
`repair` puts it right. `extxfs.lab` has the results of `iopath lab` as data frames of pandas.

An error is an `OSError` with errno; its `filename` is the place, `disk.img:/etc/hostname`. Calls
have root's rights inside the image. Other threads run while a call waits.
"""

from ._native import CorruptError, __version__
from .files import RawFile
from .filesystem import DirEntry, FileSystem, open
from .make import Report, check, mkfs
from .paths import Path
from .repairs import Mistake, Plan, repair, repair_plan, undo

__all__ = [
    "CorruptError",
    "DirEntry",
    "FileSystem",
    "Mistake",
    "Path",
    "Plan",
    "RawFile",
    "Report",
    "__version__",
    "check",
    "mkfs",
    "open",
    "repair",
    "repair_plan",
    "undo",
]
