"""The examples of the pages run, and the README's."""

import re
import shutil
from pathlib import Path

import extxfs
import pytest

CRATE = Path(__file__).parents[1]
PAGES = [CRATE / "README.md", CRATE.parents[1] / "docs/python.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run(
    page: Path, tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks of a page run one after the other in one folder, except for those that name a
    place of this machine."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(results / "report.json", tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    blocks = [block for block in blocks if "/srv/" not in block]
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
    assert extxfs.check("disk.img").clean


def test_every_name_has_a_docstring() -> None:
    for name in extxfs.__all__:
        thing = getattr(extxfs, name)
        assert name == "__version__" or thing.__doc__, name
        if isinstance(thing, type) and thing.__module__.startswith("extxfs"):
            for word, member in vars(thing).items():
                inherited = any(hasattr(base, word) for base in thing.__mro__[1:])
                if callable(member) and not word.startswith("_") and not inherited:
                    assert member.__doc__, f"{name}.{word}"
