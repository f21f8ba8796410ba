"""The fsspec file system: fsspec's own suite, chains, pandas and pyarrow."""

import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import extxfs
import fsspec
import fsspec.tests.abstract as abstract
import pandas
import pyarrow.dataset
import pytest
from conftest import SIZES, judge
from extxfs.spec import ImageFileSystem
from fsspec.implementations.memory import MemoryFileSystem


class Fixtures(abstract.AbstractFixtures):  # type: ignore[misc]
    """An image of a format, and once one that is behind memory://."""

    @pytest.fixture(scope="class", params=["ext4", "xfs", "memory"])
    @classmethod
    def mounted(
        cls, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[ImageFileSystem]:
        format = "ext4" if request.param == "memory" else request.param
        image = tmp_path_factory.mktemp("abstract") / "disk.img"
        extxfs.mkfs(image, SIZES[format], format)
        memory = MemoryFileSystem()
        fo = str(image)
        if request.param == "memory":
            memory.pipe_file("/disk.img", image.read_bytes())
            fo = "memory://disk.img"
        fs = fsspec.filesystem("image", fo=fo, mode="r+", auto_mkdir=True)
        yield fs
        fs.close()
        if request.param == "memory":
            image.write_bytes(memory.cat_file("/disk.img"))
            memory.rm("/disk.img")
        judge(image, format)

    @pytest.fixture
    def fs(self, mounted: ImageFileSystem) -> Iterator[ImageFileSystem]:
        """The same image for every test of a class, emptied after each."""
        yield mounted
        for entry in mounted.ls("/"):
            mounted.rm(entry["name"], recursive=True)

    @pytest.fixture
    def fs_path(self) -> str:
        return "/"


class TestCopy(abstract.AbstractCopyTests, Fixtures):  # type: ignore[misc]
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):  # type: ignore[misc]
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):  # type: ignore[misc]
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):  # type: ignore[misc]
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):  # type: ignore[misc]
    pass


@pytest.fixture
def frame() -> pandas.DataFrame:
    numbers = range(20_000)
    return pandas.DataFrame({"n": numbers, "square": [n * n for n in numbers]})


def test_pandas_reads_and_writes_parquet_in_an_image(image: Path, frame: pandas.DataFrame) -> None:
    fs = fsspec.filesystem("image", fo=str(image), mode="r+")
    frame.to_parquet("data.parquet", filesystem=fs)
    with fs.open("data.csv", "w") as file:
        frame.to_csv(file, index=False)
    fs.close()
    for protocol in ("image", "ext4", "xfs"):
        url = f"{protocol}://data.parquet::file://{image}"
        assert pandas.read_parquet(url).equals(frame)
        assert pandas.read_parquet(f"{protocol}://data.parquet::{image}").equals(frame)
    assert pandas.read_csv(f"image://data.csv::file://{image}").equals(frame)
    columns = pandas.read_parquet(f"image://data.parquet::file://{image}", columns=["square"])
    assert list(columns) == ["square"]


def test_pyarrow_reads_a_dataset_in_an_image(image: Path, frame: pandas.DataFrame) -> None:
    fs = fsspec.filesystem("image", fo=str(image), mode="r+", auto_mkdir=True)
    for part in range(4):
        frame[frame.n % 4 == part].to_parquet(f"/set/part={part}/x.parquet", filesystem=fs)
    found = pyarrow.dataset.dataset("/set", filesystem=fs, partitioning="hive")
    assert found.count_rows() == len(frame)
    chosen = found.to_table(filter=pyarrow.dataset.field("part") == 3).to_pandas()
    assert set(chosen.n % 4) == {3} and len(chosen) == 5000
    fs.close()


def test_a_remote_image_is_read_by_blocks(tmp_path: Path, frame: pandas.DataFrame) -> None:
    """The image behind memory:// stands for one on a server: few requests, not all of it."""
    path = tmp_path / "disk.img"
    extxfs.mkfs(path, 64 << 20)
    with extxfs.open(path, "r+") as fs, fs.open("/data.parquet", "wb") as file:
        frame.to_parquet(file)
    asked: list[tuple[int, int]] = []

    class Counting(MemoryFileSystem):  # type: ignore[misc]
        protocol = "counting"

        @classmethod
        def _strip_protocol(cls, path: str) -> Any:
            return super()._strip_protocol(path.removeprefix("counting:/"))

        def cat_file(self, path: str, start: Any = None, end: Any = None, **words: Any) -> Any:
            asked.append((start, end))
            return super().cat_file(path, start, end, **words)

    fsspec.register_implementation("counting", Counting, clobber=True)
    Counting().pipe_file("/disk.img", path.read_bytes())
    url = "image://data.parquet::counting://disk.img"
    assert pandas.read_parquet(url).equals(frame)
    read = sum(end - start for start, end in asked)
    assert 0 < len(asked) <= 12 and read <= 12 << 20, (len(asked), read)
    with pytest.raises(OSError, match="opened for reading|Read-only") as refused:
        fsspec.filesystem("image", fo="counting://disk.img").pipe_file("x", b"")
    assert refused.value.errno == 30
    Counting().rm("/disk.img")


def test_an_image_in_a_file_object_or_a_file_system(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    extxfs.mkfs(image, 16 << 20)
    with extxfs.open(image, "r+") as mounted:
        fs = ImageFileSystem(mounted)
        fs.pipe_file("f", b"1")
        del fs
        assert mounted.read_bytes("/f") == b"1"
    memory = io.BytesIO(image.read_bytes())
    fs = ImageFileSystem(memory, mode="r+")
    fs.pipe({"g": b"2", "h": b"3"})
    assert fs.cat(["f", "g", "h"]) == {"/f": b"1", "/g": b"2", "/h": b"3"}
    fs.image.close()
    image.write_bytes(memory.getvalue())
    judge(image, "ext4")
    with extxfs.open(image) as mounted:
        assert mounted.read_bytes("/h") == b"3"


@pytest.fixture
def spec(image: Path) -> Iterator[ImageFileSystem]:
    fs = fsspec.filesystem("image", fo=str(image), mode="r+")
    yield fs
    fs.close()


def test_it_tells_what_is_there(spec: ImageFileSystem) -> None:
    spec.makedirs("d/e")
    spec.pipe_file("d/f", b"12345")
    spec.image.symlink("f", "/d/link")
    spec.image.symlink("nowhere", "/d/broken")
    info = spec.info("image://d/f")
    assert (info["name"], info["size"], info["type"]) == ("/d/f", 5, "file")
    assert spec.info("d/link")["type"] == "file" and spec.info("d/link")["islink"]
    assert spec.info("d/link")["destination"] == "f" and spec.size("d/link") == 5
    assert spec.info("d/broken")["type"] == "other" and spec.info("d")["type"] == "directory"
    assert spec.info("")["type"] == "directory"
    assert sorted(spec.ls("d", detail=False)) == ["/d/broken", "/d/e", "/d/f", "/d/link"]
    assert [entry["name"] for entry in spec.ls("d/f")] == ["/d/f"]
    assert spec.find("d") == ["/d/broken", "/d/f", "/d/link"]
    assert spec.glob("d/*") == ["/d/broken", "/d/e", "/d/f", "/d/link"]
    assert spec.exists("d/f") and not spec.exists("d/broken") and spec.lexists("d/broken")
    assert spec.isdir("d/e") and spec.isfile("d/link") and not spec.isfile("no")
    assert abs((spec.modified("d/f") - spec.created("d/f")).total_seconds()) < 60
    with pytest.raises(FileNotFoundError):
        spec.ls("no")
    assert spec.unstrip_protocol("/d/f") == "image:///d/f"


def test_it_reads_parts(spec: ImageFileSystem) -> None:
    spec.pipe_file("f", bytes(range(100)))
    assert spec.cat_file("f", 10, 20) == bytes(range(10, 20))
    assert spec.cat_file("f", -5) == bytes(range(95, 100))
    assert spec.cat_file("f", 90, -2) == bytes(range(90, 98))
    assert spec.cat_file("f", 90, 1000) == bytes(range(90, 100)) and spec.head("f", 3) == b"\0\1\2"
    found = spec.cat_ranges(["f", "no", "f"], [0, 0, -3], [2, 9, None])
    assert found[0] == b"\0\1" and found[2] == bytes([97, 98, 99])
    assert isinstance(found[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        spec.cat_ranges(["no"], 0, 1, on_error="raise")


def test_it_moves_removes_and_touches(spec: ImageFileSystem) -> None:
    spec.makedirs("d/e")
    spec.pipe_file("d/e/f", b"1")
    spec.mv("d/e/f", "g")
    spec.mv("g", "d")
    assert spec.cat("d/g") == b"1"
    spec.touch("d/g", truncate=False)
    assert spec.cat("d/g") == b"1"
    spec.touch("d/g")
    assert spec.cat("d/g") == b""
    with pytest.raises(FileExistsError):
        spec.mkdir("d")
    with pytest.raises(FileNotFoundError):
        spec.mkdir("x/y", create_parents=False)
    with pytest.raises(FileNotFoundError):
        spec.pipe_file("x/y", b"")
    with pytest.raises(OSError, match="not empty"):
        spec.rm("d")
    spec.rm("d", recursive=True)
    assert not spec.exists("d")
    with pytest.raises(FileNotFoundError):
        spec.rm("d")


def test_a_transaction_replaces_at_its_end(spec: ImageFileSystem) -> None:
    spec.pipe_file("f", b"old")
    with spec.transaction:
        with spec.open("f", "wb") as file:
            file.write(b"new")
        assert spec.cat("f") == b"old"
    assert spec.cat("f") == b"new"
    with pytest.raises(RuntimeError, match="stop"), spec.transaction:
        with spec.open("f", "wb") as file:
            file.write(b"never")
        raise RuntimeError("stop")
    assert spec.cat("f") == b"new" and spec.glob("f*") == ["/f"]


def test_it_can_be_pickled(image: Path) -> None:
    with extxfs.open(image, "r+") as fs:
        fs.write_bytes("/f", b"1")
    one = fsspec.filesystem("xfs", fo=str(image))
    other = pickle.loads(pickle.dumps(one))
    assert other.cat("f") == b"1"
    one.close()
    other.close()
