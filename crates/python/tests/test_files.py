"""Files of an image beside files of the host: the same calls, the same answers."""

import array
import csv
import io
import os
import tarfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import extxfs
import pytest

Open = Callable[..., IO[Any]]


def both(fs: extxfs.FileSystem, host: Path, work: Callable[[Open], Any]) -> Any:
    """Runs work on an opener of either side; both answers are equal."""

    def answer(opener: Open) -> Any:
        try:
            return work(opener)
        except (OSError, ValueError) as error:
            return type(error), getattr(error, "errno", None)

    theirs = answer(lambda name, *args, **words: open(host / name, *args, **words))
    ours = answer(fs.open)
    assert ours == theirs
    return ours


def test_modes_open_and_refuse_as_the_host_does(fs: extxfs.FileSystem, host: Path) -> None:
    for mode in ("r", "rb", "r+", "wb", "x", "xb", "w+b", "a+", "ab", "rb+", "x+b", "w", "a"):

        def work(opener: Open, mode: str = mode) -> Any:
            with opener("f", mode) as file:
                text = "b" not in mode
                done: list[Any] = [file.readable(), file.writable(), file.seekable(), file.tell()]
                if file.writable():
                    done.append(file.write("text" if text else b"bytes"))
                if file.readable():
                    file.seek(0)
                    done.append(file.read())
                return done

        both(fs, host, work)
    for mode in ("", "rw", "rbt", "q", "br+w", "rr", "U"):
        both(fs, host, lambda opener, mode=mode: opener("f", mode))
    both(fs, host, lambda opener: opener("f", "r", 0))
    both(fs, host, lambda opener: opener("f", "rb", -1, "utf-8"))


@pytest.mark.parametrize("buffering", [0, -1, 512])
def test_binary_files_read_write_seek_and_cut(
    fs: extxfs.FileSystem, host: Path, buffering: int
) -> None:
    def work(opener: Open) -> Any:
        done: list[Any] = []
        with opener("f", "w+b", buffering) as file:
            done.append(file.write(bytes(range(256)) * 100))
            done.append(file.write(array.array("i", [1, 2, 3])))
            done.append(file.write(memoryview(b"abcdef")[1:4]))
            done += [file.seek(-100, os.SEEK_END), file.read(10), file.tell()]
            done += [file.seek(-5, os.SEEK_CUR), file.read(3)]
            done += [file.seek(40_000), file.write(b"behind a hole"), file.tell()]
            done += [file.seek(30_000), file.read()]
            buffer = bytearray(100)
            done += [file.seek(7), file.readinto(memoryview(buffer)[10:50]), bytes(buffer)]
            numbers = array.array("H", [0] * 4)
            done += [file.readinto(numbers), numbers.tolist(), file.tell()]
            done += [file.truncate(50), file.tell(), file.seek(0, 2)]
            done += [file.truncate(), file.read(), file.read(5), file.read(0)]
            with pytest.raises((OSError, ValueError)):
                file.seek(-1)
            with pytest.raises((TypeError, BufferError)):
                file.readinto(b"read-only")
        with pytest.raises(ValueError, match="closed"):
            file.read(1)
        with opener("f", "ab", buffering) as file:
            done += [file.tell(), file.write(b"end"), file.tell()]
        with opener("f", "rb", buffering) as file:
            done.append(file.read())
            with pytest.raises(io.UnsupportedOperation):
                file.write(b"x")
        return done

    both(fs, host, work)


def test_text_files_decode_translate_and_iterate(fs: extxfs.FileSystem, host: Path) -> None:
    def work(opener: Open) -> Any:
        done: list[Any] = []
        with opener("t", "w", encoding="utf-16", newline="\r\n") as file:
            file.writelines(f"Zeile {number} äöü\n" for number in range(5000))
            print("and print", file=file)
        with opener("t", encoding="utf-16") as file:
            done += [file.readline(), len(file.readlines()), file.encoding, file.mode]
        with opener("t", encoding="ascii", errors="replace") as file:
            done.append(len(file.read()))
        with opener("t", encoding="ascii") as file, pytest.raises(UnicodeDecodeError):
            file.read()
        with opener("c", "w", newline="") as file:
            csv.writer(file).writerows([["a", "b\n"], [1, '"']])
        with opener("c", newline="") as file:
            done.append(list(csv.reader(file)))
        return done

    both(fs, host, work)


def test_a_raw_file_is_a_raw_io_base(fs: extxfs.FileSystem) -> None:
    with fs.open("/f", "wb", 0) as raw:
        assert isinstance(raw, extxfs.RawFile) and isinstance(raw, io.RawIOBase)
        raw.write(b"x" * 100_000)
        assert raw.name == "/f" and raw.mode == "wb" and not raw.isatty()
        with pytest.raises(io.UnsupportedOperation):
            raw.fileno()
        with pytest.raises(io.UnsupportedOperation):
            raw.read()
    with io.BufferedReader(fs.open("/f", "rb", 0), 4096) as file:  # type: ignore[type-var]
        assert file.peek(1)[:1] == b"x" and len(file.read1(10)) == 10
        assert len(file.read()) == 99_990


def test_archives_live_in_an_image(fs: extxfs.FileSystem) -> None:
    with fs.open("/a.zip", "wb") as file, zipfile.ZipFile(file, "w") as made:
        made.writestr("in/side", "content" * 1000, zipfile.ZIP_DEFLATED)
    with fs.open("/a.zip", "rb") as file, zipfile.ZipFile(file) as read:
        assert read.testzip() is None and read.read("in/side") == b"content" * 1000
    with fs.open("/a.tar", "wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
        member = tarfile.TarInfo("name")
        member.size = 5
        tar.addfile(member, io.BytesIO(b"12345"))
    with fs.open("/a.tar", "rb") as file, tarfile.open(fileobj=file) as tar:
        found = tar.extractfile("name")
        assert found is not None and found.read() == b"12345"


def test_holes_are_found_and_space_is_reserved(fs: extxfs.FileSystem) -> None:
    with fs.open("/sparse", "w+b", 0) as file:
        assert isinstance(file, extxfs.RawFile)
        file.write_at(1 << 20, b"data")
        file.sync()
        assert file.seek(0, os.SEEK_DATA) == 1 << 20
        assert file.seek(0, os.SEEK_HOLE) == 0
        assert file.seek(1 << 20, os.SEEK_HOLE) == (1 << 20) + 4
        with pytest.raises(OSError, match="sparse") as error:
            file.seek(2 << 20, os.SEEK_DATA)
        assert error.value.errno == 6  # ENXIO
        assert file.stat().st_blocks < 1 << 12
        file.allocate(0, 2 << 20)
        file.sync()
        assert file.stat().st_blocks >= 1 << 12
        assert file.stat().st_size == 2 << 20


def test_threads_share_a_file_and_a_file_system(fs: extxfs.FileSystem) -> None:
    """Eight threads write and read by place in one file, and each makes files of its own."""
    failed: list[BaseException] = []
    with fs.open("/shared", "w+b", 0) as shared:
        assert isinstance(shared, extxfs.RawFile)

        def work(number: int) -> None:
            try:
                block = bytes([number]) * 10_000
                fs.mkdir(f"/{number}")
                for step in range(30):
                    at = (step * 8 + number) * 10_000
                    shared.write_at(at, block)
                    assert shared.read_at(at, 10_000) == block
                    fs.write_bytes(f"/{number}/{step}", block)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed
        assert shared.stat().st_size == 30 * 8 * 10_000
    for number in range(8):
        assert sorted(map(int, fs.listdir(f"/{number}"))) == list(range(30))
