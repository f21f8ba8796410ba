"""Images to test on. Every one that is written is judged by e2fsck or xfs_repair at the end."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import extxfs
import pytest

SIZES = {"ext4": 64 << 20, "xfs": 400 << 20}


def judge(image: Path, format: str) -> None:
    """The outside check must find nothing."""
    command = ["xfs_repair", "-n"] if format == "xfs" else ["e2fsck", "-fn"]
    done = subprocess.run([*command, image], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(params=["ext4", "xfs"])
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def image(tmp_path: Path, format: str) -> Iterator[Path]:
    path = tmp_path / "disk.img"
    extxfs.mkfs(path, SIZES[format], format)
    yield path
    judge(path, format)


@pytest.fixture
def fs(image: Path) -> Iterator[extxfs.FileSystem]:
    with extxfs.open(image, "r+") as fs:
        yield fs
    report = extxfs.check(image)
    assert report.clean, report.findings


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A directory of the host, for the same calls as on an image."""
    folder = tmp_path / "host"
    folder.mkdir()
    return folder
