"""Images to test on. Every one that is written is judged by e2fsck or xfs_repair at the end."""

import os
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


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with results of the lab: `report.json` and its runs as lines, `drawn.json`."""
    folder = tmp_path_factory.mktemp("lab")
    program = os.environ["IOPATH_BIN"]  # Of `cargo xtask python`.
    for line in (
        "dio-boundary-sata --seeds 1..5 --json report.json --results runs.jsonl",
        "today --case alone --variant none --variant kyber --seeds 1 --json drawn.json",
    ):
        command = [program, "lab", "--quiet", "run", *line.split()]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=False)
        assert done.returncode in (0, 3), line  # 3: a figure lies outside of its range.
    return folder
