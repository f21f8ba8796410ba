"""The functions of a file system beside those of `os`."""

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import extxfs
import pytest


class Host:
    """`os` on a directory, with paths from its root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(os, name, None) or getattr(os.path, name)

        def call(*args: Any, **words: Any) -> Any:
            given = [
                str(self.folder) + a if isinstance(a, str) and a.startswith("/") else a
                for a in args
            ]
            return function(*given, **words)

        return call


def build(side: Any) -> None:
    """The same tree on both sides."""
    side.mkdir("/d")
    side.makedirs("/a/b/c")
    side.symlink("b/c", "/a/link")
    side.symlink("nowhere", "/broken")
    side.symlink("loop", "/loop")


CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("stat", ("/no",)),
    ("stat", ("/a/b/no/x",)),
    ("stat", ("/file/x",)),
    ("stat", ("/broken",)),
    ("stat", ("/loop",)),
    ("mkdir", ("/d",)),
    ("mkdir", ("/no/x",)),
    ("makedirs", ("/a/b",)),
    ("makedirs", ("/file/x",)),
    ("rmdir", ("/a",)),
    ("rmdir", ("/file",)),
    ("rmdir", ("/no",)),
    ("unlink", ("/a",)),
    ("unlink", ("/no",)),
    ("rename", ("/a", "/a/b/x")),
    ("rename", ("/no", "/x")),
    ("rename", ("/file", "/a")),
    ("rename", ("/d", "/a")),
    ("link", ("/no", "/x")),
    ("link", ("/file", "/d")),
    ("readlink", ("/file",)),
    ("readlink", ("/no",)),
    ("symlink", ("x", "/d")),
    ("listdir", ("/file",)),
    ("listdir", ("/no",)),
    ("scandir", ("/file",)),
    ("chmod", ("/no", 0o600)),
    ("truncate", ("/no", 1)),
    ("truncate", ("/a", 1)),
    ("mkdir", ("/" + "n" * 256,)),
    ("getxattr", ("/file", "user.none")),
]


def test_errors_have_the_class_and_the_errno_of_the_host(
    fs: extxfs.FileSystem, host: Path
) -> None:
    theirs = Host(host)
    for side in (fs, theirs):
        build(side)
    fs.write_bytes("/file", b"")
    (host / "file").write_bytes(b"")
    for name, args in CALLS:
        with pytest.raises(OSError) as expected:  # noqa: PT011
            getattr(theirs, name)(*args)
        with pytest.raises(OSError) as found:  # noqa: PT011
            getattr(fs, name)(*args)
        ours, his = found.value, expected.value
        numbers = {ours.errno, his.errno}
        # POSIX lets a file system choose between the two.
        assert len(numbers) == 1 or numbers == {errno.EEXIST, errno.ENOTEMPTY}, (name, args, ours)
        assert type(ours) is type(his) or len(numbers) == 2
        assert ours.filename.startswith(f"{fs.image}:/"), ours.filename
        assert str(os.strerror(ours.errno)) in str(ours)


def test_questions_have_the_answers_of_the_host(fs: extxfs.FileSystem, host: Path) -> None:
    theirs = Host(host)
    for side in (fs, theirs):
        build(side)
    for path in ("/", "/d", "/a/link", "/broken", "/loop", "/no", "/a/b/../link", "/no/x"):
        for name in ("exists", "lexists", "isdir", "isfile", "islink"):
            assert getattr(fs, name)(path) == getattr(theirs, name)(path), (name, path)
    assert fs.realpath("/a/link/../../d") == "/a/d" if fs.exists("/a/d") else True
    assert fs.realpath("/a/link") == "/a/b/c" and fs.realpath("a/../d/.") == "/d"
    with pytest.raises(FileNotFoundError):
        fs.realpath("/broken")
    with pytest.raises(OSError, match="loop") as loop:
        fs.realpath("/loop")
    assert loop.value.errno == errno.ELOOP
    with pytest.raises(ValueError, match="null"):
        fs.stat("/a\0b")
    with pytest.raises(TypeError):
        fs.stat(7)  # type: ignore[arg-type]


def test_attributes_are_set_and_found_again(fs: extxfs.FileSystem) -> None:
    fs.write_bytes("f", b"12345")
    fs.symlink("f", "s")
    fs.chown("f", 1000, 100_000)
    fs.chown("f", -1, 7)
    fs.chmod("s", 0o4751)
    fs.chown("s", 55, -1, follow_symlinks=False)
    fs.utime("s", ns=(-77_000_000_005, 2**33 * 10**9 + 999_999_999))
    found = fs.stat("s")
    assert stat.S_IMODE(found.st_mode) == 0o4751 and stat.S_ISREG(found.st_mode)
    assert (found.st_uid, found.st_gid, found.st_size, found.st_nlink) == (1000, 7, 5, 1)
    assert found.st_atime_ns == -77_000_000_005 and found.st_atime == -77.000000005
    assert found.st_mtime_ns == 2**33 * 10**9 + 999_999_999
    assert (fs.lstat("s").st_uid, fs.lstat("s").st_size) == (55, 1)
    fs.utime("s", (1.5, 2.25), follow_symlinks=False)
    assert fs.lstat("s").st_mtime == 2.25 and fs.stat("s").st_mtime_ns == found.st_mtime_ns
    fs.utime("f")
    assert abs(fs.stat("f").st_mtime - fs.stat("f").st_ctime) < 60
    assert (fs.birth_ns("f") or 0) > 10**18
    fs.setxattr("f", "user.x", b"value")
    fs.setxattr("f", "user.gone", bytearray(b""))
    fs.removexattr("f", "user.gone")
    assert fs.listxattr("f") == ["user.x"] and fs.getxattr("f", "user.x") == b"value"
    fs.mknod("pipe", stat.S_IFIFO | 0o600)
    fs.mknod("null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    assert stat.S_ISFIFO(fs.stat("pipe").st_mode)
    assert fs.stat("null").st_rdev == os.makedev(1, 3)
    fs.link("f", "g")
    assert fs.stat("g").st_ino == fs.stat("f").st_ino and fs.stat("g").st_nlink == 2
    fs.truncate("g", 3)
    assert fs.read_bytes("f") == b"123"
    fs.copy("f", "h")
    assert fs.read_bytes("h") == b"123" and stat.S_IMODE(fs.stat("h").st_mode) == 0o4751
    with pytest.raises(OSError, match="Invalid"):
        fs.copy("f", "g")


def test_names_are_moved_exchanged_and_kept(fs: extxfs.FileSystem) -> None:
    fs.write_bytes("a", b"A")
    fs.write_bytes("b", b"B")
    with pytest.raises(FileExistsError):
        fs.rename_noreplace("a", "b")
    fs.exchange("a", "b")
    assert (fs.read_bytes("a"), fs.read_bytes("b")) == (b"B", b"A")
    fs.replace("a", "b")
    assert fs.read_bytes("b") == b"B" and not fs.exists("a")
    with pytest.raises(FileExistsError):
        fs.write_bytes("b", b"", exclusive=True)
    fs.makedirs("x/y/z")
    fs.makedirs("x/y/z", exist_ok=True)
    fs.rmtree("x")
    assert sorted(fs.listdir()) in (["b"], ["b", "lost+found"])


def test_names_that_are_no_utf8_go_through(fs: extxfs.FileSystem) -> None:
    raw = b"caf\xe9 \xff\xfe"
    text = os.fsdecode(raw)
    fs.write_bytes(raw, b"1")
    assert text in fs.listdir() and fs.read_bytes(text) == b"1"
    fs.symlink(raw, "link")
    assert fs.readlink("link") == text and fs.realpath("link") == "/" + text
    with pytest.raises(FileNotFoundError) as error:
        fs.open(text + "x")
    assert error.value.filename == f"{fs.image}:{text}x"
    assert [path for path in fs.root.glob("caf*") if path.read_bytes() == b"1"]
    fs.rename(text, "plain")
    with fs.scandir(b"/") as entries:
        assert "plain" in [entry.name for entry in entries]


def test_scandir_knows_types_and_long_directories(fs: extxfs.FileSystem) -> None:
    fs.mkdir("many")
    fs.symlink("many", "link")
    fs.symlink("nowhere", "broken")
    for number in range(1500):
        fs.write_bytes(f"many/{number}", b"")
    with fs.scandir("many") as entries:
        found = list(entries)
    assert {entry.name for entry in found} == {str(number) for number in range(1500)}
    assert all(entry.is_file() and not entry.is_dir() for entry in found)
    assert found[0].inode() == fs.stat(found[0].path).st_ino == found[0].stat().st_ino
    with fs.scandir() as entries:
        kinds = {entry.name: entry for entry in entries}
    assert kinds["link"].is_symlink() and kinds["link"].is_dir()
    assert not kinds["link"].is_dir(follow_symlinks=False)
    assert not kinds["broken"].is_file() and not kinds["broken"].is_dir()


def tree(side: Any) -> None:
    side.makedirs("/t/a/b")
    side.makedirs("/t/c")
    side.symlink("../a", "/t/c/up")
    side.symlink("b", "/t/a/same")


@pytest.mark.parametrize("topdown", [True, False])
def test_walks_as_the_host_does(fs: extxfs.FileSystem, host: Path, topdown: bool) -> None:
    for side in (fs, Host(host)):
        tree(side)
    fs.write_bytes("/t/a/f", b"")
    (host / "t/a/f").write_bytes(b"")

    def sort(walk: Any, cut: int) -> list[Any]:
        return sorted((at[cut:], sorted(dirs), sorted(files)) for at, dirs, files in walk)

    assert sort(fs.walk("/t", topdown), 0) == sort(
        os.walk(host / "t", topdown), len(str(host))
    )
    order = [at for at, _, _ in fs.walk("/t", topdown)]
    assert (order[0] == "/t") == topdown and len(order) == 4
    if topdown:
        seen = []
        for at, dirs, _ in fs.walk("/t"):
            seen.append(at)
            dirs[:] = [name for name in dirs if name == "c"]
        assert seen == ["/t", "/t/c"]
    # A link to a directory above ends the walk instead of going on for ever.
    fs.symlink("..", "/t/a/b/top")
    wrong: list[OSError] = []
    assert len(list(fs.walk("/t", topdown, wrong.append, followlinks=True))) == 4
    assert {error.errno for error in wrong} == {errno.ELOOP}
    missing: list[OSError] = []
    assert list(fs.walk("/no", onerror=missing.append)) == [] and len(missing) == 1


def test_space_is_told(fs: extxfs.FileSystem) -> None:
    before = fs.statvfs()
    fs.write_bytes("f", b"x" * (4 << 20))
    fs.sync()
    after = fs.statvfs()
    assert before.f_bfree - after.f_bfree >= (4 << 20) // after.f_frsize
    assert before.f_ffree > after.f_ffree or fs.format == "xfs"
    assert (after.f_namemax, after.f_flag) == (255, 0)


def test_a_tree_goes_in_by_shutil_and_out_again(fs: extxfs.FileSystem, host: Path) -> None:
    (host / "f").write_bytes(b"x" * 300_000)
    with open(host / "f", "rb") as source, fs.open("/f", "wb") as target:
        shutil.copyfileobj(source, target)
    with fs.open("/f", "rb") as source, open(host / "g", "wb") as target:
        shutil.copyfileobj(source, target)
    assert (host / "g").read_bytes() == (host / "f").read_bytes()
