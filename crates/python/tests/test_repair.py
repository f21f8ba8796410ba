"""Damaged images are whole again for e2fsck and xfs_repair, and undo gives the damage back."""

import errno
import hashlib
from pathlib import Path

import extxfs
import pytest

DAMAGE = {"ext4": (4096, 512), "xfs": (512, 512)}
"""Where zeroes are written: the table of groups; the free space of the first group."""


def digest(image: Path) -> str:
    with open(image, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_a_damaged_image_is_repaired_and_damaged_again(image: Path, format: str) -> None:
    undo = image.with_suffix(".undo")
    with extxfs.open(image, "r+") as fs:
        fs.write_bytes("/f", b"content" * 1000)
    assert extxfs.repair_plan(image).clean
    assert extxfs.repair(image, undo).clean and not undo.exists()

    with open(image, "r+b") as file:
        at, size = DAMAGE[format]
        file.seek(at)
        file.write(bytes(size))
    damaged = digest(image)
    assert not extxfs.check(image)
    plan = extxfs.repair_plan(image)
    assert not plan.clean and not plan.left and plan.findings and plan.blocks
    assert plan.size % plan.blocks == 0 and plan.size >= plan.blocks * 512
    for found in plan.findings:
        assert found.rule and found.at and found.detail and found.action
    assert plan.safe == all(found.safe for found in plan.findings)
    assert digest(image) == damaged and not undo.exists()

    assert extxfs.repair(image, undo) == plan
    assert extxfs.check(image) and extxfs.repair_plan(image).clean
    extxfs.undo(image, undo)
    assert digest(image) == damaged
    with pytest.raises(FileExistsError):
        extxfs.repair(image, undo)
    undo.unlink()
    assert extxfs.repair(image, bytes(undo)) == plan
    with extxfs.open(image) as fs:
        assert fs.read_bytes("/f") == b"content" * 1000
    # The fixture's judge comes after this.


def test_what_a_repair_refuses(image: Path, tmp_path: Path) -> None:
    undo = tmp_path / "undo"
    with extxfs.open(image, "r+"), pytest.raises(OSError) as busy:  # noqa: PT011
        extxfs.repair(image, undo)
    assert busy.value.errno == errno.EBUSY and busy.value.filename == str(image)
    undo.write_text("no undo file")
    for call in (extxfs.repair, extxfs.undo):
        with pytest.raises(OSError, match="disk.img") as other:
            call(image, undo)
        assert other.value.errno == errno.EINVAL
    with pytest.raises(FileNotFoundError):
        extxfs.repair_plan(tmp_path / "none.img")
    with pytest.raises(OSError, match="partition") as part:
        extxfs.repair_plan(image, partition=1)
    assert part.value.errno == errno.ENXIO
