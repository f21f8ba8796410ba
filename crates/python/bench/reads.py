"""Times reads through Python beside the same reads in Rust (`read_speed` of crates/image).

    python reads.py --rust target/release/examples/read_speed --count 1000000

Rounds of both alternate, and the median round of each is told. The module should be built with
optimization, too: `maturin build --release`.
"""

import argparse
import re
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import extxfs

LENGTH = 64 << 20
"""Bytes of the file that is read round and round: it stays in the cache."""


def children_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def in_rust(program: str, image: Path, size: int, count: int, cpu: bool) -> float:
    before = children_time()
    done = subprocess.run(
        [program, image, "/data", str(size), str(count)], capture_output=True, text=True, check=True
    )
    if cpu:
        used = children_time() - before
        # Less what the mount and the first round take, which fills the cache.
        return used - in_rust(program, image, size, 0, cpu) if count else used
    found = re.search(r"in ([\d.]+) s", done.stdout)
    assert found, done.stdout
    return float(found[1])


def timed(work: Callable[[], None], cpu: bool) -> float:
    clock = time.process_time if cpu else time.perf_counter
    start = clock()
    work()
    return clock() - start


def ways(image: Path, size: int, count: int) -> dict[str, Callable[[], None]]:
    fs = extxfs.open(image)
    raw = fs.open("/data", "rb", 0)
    assert isinstance(raw, extxfs.RawFile)
    buffered = fs.open("/data", "rb")
    blocks = LENGTH // size
    places = [block * size for block in range(blocks)]
    buffer = bytearray(size)
    fs.read_bytes("/data")

    def at_place() -> None:
        readinto_at = raw.readinto_at
        for turn in range(count):
            readinto_at(places[turn % blocks], buffer)

    def stream(read: Callable[[], object]) -> Callable[[], None]:
        def work() -> None:
            left = count
            while left > 0:
                raw.seek(0)
                buffered.seek(0)
                for _ in range(min(left, blocks)):
                    read()
                left -= blocks

        return work

    return {
        "readinto_at": at_place,
        "readinto": stream(lambda: raw.readinto(buffer)),
        "read, new bytes": stream(lambda: raw.read(size)),
        "buffered read": stream(lambda: buffered.read(size)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rust", required=True, help="the program read_speed")
    parser.add_argument("--size", type=int, default=65536, help="bytes of a read")
    parser.add_argument("--count", type=int, default=100_000, help="reads of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="processor time: for a busy machine")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "disk.img"
        extxfs.mkfs(image, 4 * LENGTH)
        with extxfs.open(image, "r+") as fs:
            fs.write_bytes("/data", bytes(range(256)) * (LENGTH // 256))
        python = ways(image, given.size, given.count)
        times: dict[str, list[float]] = {name: [] for name in ["rust", *python]}
        for _ in range(given.rounds):
            rust = in_rust(given.rust, image, given.size, given.count, given.cpu)
            times["rust"].append(rust)
            for name, work in python.items():
                times[name].append(timed(work, given.cpu))
    rust = statistics.median(times["rust"])
    for name, rounds in times.items():
        middle = statistics.median(rounds)
        each = middle * 1e6 / given.count
        print(f"{name:16} {middle:8.3f} s {each:8.3f} us each {middle / rust:6.2f} of Rust")


if __name__ == "__main__":
    main()
