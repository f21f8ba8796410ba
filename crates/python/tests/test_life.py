"""Opening, closing, forking, threads, damage: the life of a mounted image."""

import errno
import gc
import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import extxfs
import pytest
from conftest import judge
from extxfs import _native
from extxfs.spec import FileDevice


def test_opening_refuses_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        extxfs.open(tmp_path / "no.img")
    assert missing.value.filename == str(tmp_path / "no.img")
    (tmp_path / "x.img").write_bytes(b"x" * (1 << 20))
    with pytest.raises(OSError, match="neither ext2, ext3, ext4 nor XFS"):
        extxfs.open(tmp_path / "x.img")
    with pytest.raises(ValueError, match="mode"):
        extxfs.open(tmp_path / "x.img", "w")
    with pytest.raises(FileExistsError):
        extxfs.mkfs(tmp_path / "x.img", 64 << 20)
    extxfs.mkfs(tmp_path / "x.img", 64 << 20, "ext2", overwrite=True)
    with pytest.raises(ValueError, match="btrfs"):
        extxfs.mkfs(tmp_path / "y.img", 64 << 20, "btrfs")
    with pytest.raises(ValueError, match="UUID"):
        extxfs.mkfs(tmp_path / "y.img", 64 << 20, uuid="7")
    with pytest.raises(OSError, match="nonsense"):
        extxfs.mkfs(tmp_path / "y.img", 64 << 20, features="nonsense")
    assert not (tmp_path / "y.img").exists()
    with pytest.raises(OSError, match="partition") as part:
        extxfs.open(tmp_path / "x.img", partition=2)
    assert part.value.errno == errno.ENXIO


def test_mkfs_makes_what_was_asked(tmp_path: Path) -> None:
    ident = "01234567-89ab-cdef-0123-456789abcdef"
    for format, label in (("ext2", "two"), ("ext3", "three"), ("ext4", "four"), ("xfs", "ex")):
        image = tmp_path / format
        extxfs.mkfs(image, 400 << 20, format, label=label, uuid=ident)
        blkid = subprocess.run(
            ["blkid", "-p", "-o", "export", image], capture_output=True, text=True, check=True
        )
        assert {f"LABEL={label}", f"UUID={ident}", f"TYPE={format}"} <= set(
            blkid.stdout.splitlines()
        )
        judge(image, format)


def test_an_image_is_locked_while_it_is_written(image: Path) -> None:
    with extxfs.open(image, "r+") as fs:
        with pytest.raises(OSError) as busy:  # noqa: PT011
            extxfs.open(image)
        assert busy.value.errno == errno.EBUSY
        assert not fs.closed
    with extxfs.open(image) as one, extxfs.open(image) as other:
        assert one.listdir() == other.listdir()
        for change in (lambda: one.mkdir("/x"), lambda: one.open("/x", "w")):
            with pytest.raises(OSError) as refused:  # noqa: PT011
                change()
            assert refused.value.errno == errno.EROFS


def test_closing_writes_what_buffers_hold(image: Path) -> None:
    fs = extxfs.open(image, "r+")
    binary, text = fs.open("/b", "wb"), fs.open("/t", "w")
    binary.write(b"held")
    text.write("back")
    entries = fs.scandir()
    next(entries)
    fs.close()
    fs.close()
    assert fs.closed and binary.closed and text.closed
    for call in (lambda: fs.listdir(), lambda: fs.open("/b"), lambda: fs.sync()):
        with pytest.raises(ValueError, match="closed"):
            call()
    with extxfs.open(image) as fs:
        assert (fs.read_bytes("/b"), fs.read_bytes("/t")) == (b"held", b"back")


def test_a_program_that_ends_without_closing_loses_nothing(image: Path) -> None:
    code = (
        "import extxfs, sys\n"
        "fs = extxfs.open(sys.argv[1], 'r+')\n"
        "file = fs.open('/f', 'w')\n"
        "file.write('kept')\n"
    )
    subprocess.run([sys.executable, "-c", code, image], check=True)
    with extxfs.open(image) as fs:
        assert fs.read_bytes("/f") == b"kept"


def test_a_file_outlives_its_file_system_object(image: Path) -> None:
    file = extxfs.open(image, "r+").open("/f", "wb")
    gc.collect()
    file.write(b"still")
    file.close()
    with extxfs.open(image) as fs:
        assert fs.read_bytes("/f") == b"still"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_of_fork_is_refused_and_harms_nothing(image: Path) -> None:
    """The threads of the file system are not in the child: each call raises, and neither its end
    nor collecting the handles unmounts what the parent has."""
    fs = extxfs.open(image, "r+")
    file = fs.open("/f", "w+b", 0)
    file.write(b"parent")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            refused = 0
            for call in (lambda: fs.listdir(), lambda: file.write(b"child"), lambda: fs.close()):
                try:
                    call()
                except RuntimeError as error:
                    refused += "before fork" in str(error)
            del fs, file
            gc.collect()
            code = 0 if refused == 3 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    file.write(b" goes on")
    fs.close()
    with extxfs.open(image) as fs:
        assert fs.read_bytes("/f") == b"parent goes on"


def test_a_damaged_image_raises_corrupt_error(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    extxfs.mkfs(image, 64 << 20)
    with extxfs.open(image, "r+") as fs:
        fs.write_bytes("/f", b"content")
        ino = fs.stat("/f").st_ino
    # Its extents become nonsense; so does the inode's checksum.
    subprocess.run(
        ["debugfs", "-w", "-R", f"sif <{ino}> block[0] 0x12345678", image],
        capture_output=True,
        check=True,
    )
    with extxfs.open(image) as fs, pytest.raises(extxfs.CorruptError) as damaged:
        fs.read_bytes("/f")
    assert damaged.value.errno == errno.EUCLEAN and isinstance(damaged.value, OSError)
    assert damaged.value.filename == f"{image}:/f"
    report = extxfs.check(image)
    assert not report and report.findings and str(ino) in "".join(report.findings)


class Gate(FileDevice):
    """A device whose reads wait for another thread."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, False)
        self.shut, self.asked = threading.Event(), threading.Event()
        self.shut.set()

    def read(self, offset: int, size: int) -> bytes:
        self.asked.set()
        assert self.shut.wait(60)
        return super().read(offset, size)


def test_other_threads_run_while_a_call_waits(image: Path) -> None:
    """A read waits for a device that only this thread opens: with the interpreter's lock held it
    would wait for ever."""
    with extxfs.open(image, "r+") as fs:
        fs.write_bytes("/f", b"x" * 100_000)
    with open(image, "rb") as file:
        gate = Gate(file)
        fs = extxfs.FileSystem(_native.Fs("gate", False, None, None, gate), "gate", False)
        gate.shut.clear()
        gate.asked.clear()
        answers: list[bytes] = []
        reader = threading.Thread(target=lambda: answers.append(fs.read_bytes("/f")))
        reader.start()
        assert gate.asked.wait(60)
        assert not answers
        gate.shut.set()
        reader.join()
        assert answers == [b"x" * 100_000]
        fs.close()


class Failing(FileDevice):
    """A device that fails when told to."""

    fails = False

    def read(self, offset: int, size: int) -> bytes:
        if self.fails:
            raise ConnectionError("the cable is out")
        return super().read(offset, size)


def test_an_exception_of_a_device_is_the_cause(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    extxfs.mkfs(image, 16 << 20)
    with extxfs.open(image, "r+") as fs:
        fs.write_bytes("/f", b"x" * 100_000)
    device = Failing(io.BytesIO(image.read_bytes()), False)
    fs = extxfs.FileSystem(_native.Fs("far", False, None, None, device), "far", False)
    device.fails = True
    with pytest.raises(OSError, match="far:/f") as failed:
        fs.read_bytes("/f")
    assert failed.value.errno == errno.EIO
    assert isinstance(failed.value.__cause__, ConnectionError)
    device.fails = False
    assert len(fs.read_bytes("/f")) == 100_000
    fs.close()
