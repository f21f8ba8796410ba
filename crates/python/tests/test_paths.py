"""Paths of an image beside `pathlib`."""

import itertools
import os
import pathlib
from typing import Any

import extxfs
import pytest

PATTERNS = [
    "*",
    "*.py",
    "a*",
    "a/*",
    "*/*",
    "**/*.py",
    "**/b*",
    "a/**/*.py",
    "**/",
    "*/",
    "a/../*.txt",
    "[ab]",
    "[!a]*",
    "?",
    "no/*",
    "a/x.py",
    "a/x.py/*",
    "link/*",
    "**/link/*",
    "*/**/*",
    ".*",
    "**/.hidden",
    "broken",
    "a/b/c/deep.py",
]


def build(root: Any) -> None:
    """The same tree in both worlds."""
    (root / "a/b/c").mkdir(parents=True)
    (root / "b").mkdir()
    for name in ("a/x.py", "a/b/y.py", "a/b/c/deep.py", "top.txt", ".hidden", "b/.hidden"):
        (root / name).write_text(name)
    (root / "link").symlink_to("a")
    (root / "broken").symlink_to("nowhere")


@pytest.fixture
def roots(fs: extxfs.FileSystem, host: pathlib.Path) -> tuple[extxfs.Path, pathlib.Path]:
    ours = fs / "t"
    ours.mkdir()
    for root in (ours, host):
        build(root)
    return ours, host


def test_patterns_find_what_pathlib_finds(roots: tuple[extxfs.Path, pathlib.Path]) -> None:
    ours, theirs = roots
    for pattern, find in itertools.product(PATTERNS, ("glob", "rglob")):
        expected = sorted(str(p.relative_to(theirs)) for p in set(getattr(theirs, find)(pattern)))
        found = [str(path.relative_to(ours)) for path in getattr(ours, find)(pattern)]
        if "broken" in pattern:
            # Before Python 3.13 a name in a pattern had to lead somewhere.
            expected = ["broken"]
        assert sorted(found) == expected, (find, pattern)
    with pytest.raises(ValueError, match="Unacceptable"):
        list(ours.glob(""))
    with pytest.raises(NotImplementedError):
        list(ours.glob("/x"))


def test_pure_parts_are_those_of_pathlib(fs: extxfs.FileSystem) -> None:
    for text in ("/", "/a", "/a/b.tar.gz", "//a//b/", "a/./b", "/a/../b", ""):
        ours, pure = fs.path(text), pathlib.PurePosixPath("/", text.lstrip("/"))
        assert str(ours) == str(pure)
        for name in ("parts", "name", "stem", "suffix", "suffixes", "root", "anchor"):
            assert getattr(ours, name) == getattr(pure, name), (text, name)
        assert str(ours.parent) == str(pure.parent)
        assert [str(path) for path in ours.parents] == [str(path) for path in pure.parents]
        assert ours.is_absolute() and ours.absolute() == ours
    path = fs / "a/b.txt"
    assert path == fs.path("a", "b.txt") == fs.root.joinpath("a", pathlib.PurePath("b.txt"))
    assert path != fs / "a" and path != "/a/b.txt" and len({path, fs / "a/b.txt"}) == 1
    assert str(path.with_suffix(".py")) == "/a/b.py" and str(path.with_stem("c")) == "/a/c.txt"
    assert str(path.with_name("x")) == "/a/x" and path.match("*.txt")
    assert path.relative_to("/a") == pathlib.PurePosixPath("b.txt")
    assert path.is_relative_to(fs / "a") and not path.is_relative_to("/b")
    assert sorted([path, fs / "a"]) == [fs / "a", path] and bytes(path) == b"/a/b.txt"
    assert repr(path) == f"<extxfs.Path {fs.image}:/a/b.txt>"


def test_a_path_is_none_of_the_host(fs: extxfs.FileSystem) -> None:
    with pytest.raises(TypeError):
        open(fs / "etc")  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        os.fspath(fs / "etc")  # type: ignore[call-overload]


def test_calls_answer_as_pathlib(roots: tuple[extxfs.Path, pathlib.Path]) -> None:
    ours, theirs = roots
    for name in (".", "a", "link", "broken", "top.txt", "no", "top.txt/x"):
        for test in ("exists", "is_dir", "is_file", "is_symlink", "is_fifo", "is_socket"):
            found, expected = getattr(ours / name, test)(), getattr(theirs / name, test)()
            assert found == expected, (name, test)
    assert sorted(p.name for p in ours.iterdir()) == sorted(p.name for p in theirs.iterdir())
    assert (ours / "link").readlink() == (theirs / "link").readlink()
    assert (ours / "link/b/../x").resolve() == ours / "a/x"
    assert (ours / "no/../a").resolve() == ours / "a"
    with pytest.raises(FileNotFoundError):
        (ours / "no").resolve(strict=True)
    assert (ours / "a").samefile(ours / "link") and not (ours / "a").samefile(ours / "b")

    def walked(root: Any) -> list[Any]:
        # pathlib's own walk came with Python 3.12: links are among the files there.
        return sorted((str(at), sorted(dirs), sorted(files)) for at, dirs, files in root.walk())

    base = str(ours)
    assert walked(ours) == sorted(
        [
            (base, ["a", "b"], [".hidden", "broken", "link", "top.txt"]),
            (f"{base}/a", ["b"], ["x.py"]),
            (f"{base}/a/b", ["c"], ["y.py"]),
            (f"{base}/a/b/c", [], ["deep.py"]),
            (f"{base}/b", [], [".hidden"]),
        ]
    )


def test_files_are_made_moved_and_removed(fs: extxfs.FileSystem) -> None:
    path = fs / "d/e/f.txt"
    with pytest.raises(FileNotFoundError):
        path.parent.mkdir()
    path.parent.mkdir(parents=True)
    path.parent.mkdir(exist_ok=True, parents=True)
    with pytest.raises(FileExistsError):
        path.parent.mkdir()
    assert path.write_text("zwölf\n", encoding="utf-8") == 6
    assert path.read_bytes() == "zwölf\n".encode() and path.read_text("utf-8") == "zwölf\n"
    with path.open("ab") as file:
        file.write(b"more")
    moved = path.rename(fs / "d/g.txt")
    assert moved == fs / "d/g.txt" and not path.exists() and moved.stat().st_size == 11
    path.hardlink_to(moved)
    assert path.samefile(moved)
    copied = moved.copy(fs / "copy")
    assert copied.read_bytes() == moved.read_bytes()
    copied.chmod(0o600)
    assert copied.lstat().st_mode & 0o7777 == 0o600
    copied.touch()
    with pytest.raises(FileExistsError):
        copied.touch(exist_ok=False)
    (fs / "new").touch(0o640)
    assert (fs / "new").stat().st_mode & 0o7777 == 0o640
    (fs / "new").unlink()
    (fs / "new").unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        (fs / "new").unlink()
    with pytest.raises(OSError, match="not empty"):
        (fs / "d").rmdir()
    with pytest.raises(TypeError):
        copied.write_text(b"bytes")  # type: ignore[arg-type]
