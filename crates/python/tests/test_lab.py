"""Results of the lab as frames: their figures follow from each other."""

import io
import json
import runpy
import sys
from pathlib import Path
from typing import Any, get_args

import matplotlib.pyplot
import pandas
import pytest
from extxfs import lab

SEEDS = 5


def test_a_run_is_a_row(results: Path) -> None:
    """Report, lines, open files and what json made of them give the same."""
    path = results / "report.json"
    runs = lab.frame(path)
    parsed = json.loads(path.read_text())
    assert len(runs) == len(parsed["runs"])
    for row, run in zip(runs.to_dict("records"), parsed["runs"], strict=True):
        assert (row["variant"], row["seed"]) == (run["key"]["variant"], run["key"]["seed"])
        assert row["simulated_seconds"] == run["seconds"]
        for name, value in run["values"].items():
            assert row[name] == value
        for name, value in run["counts"].items():
            assert row[f"count.{name}"] == value
        for cause, value in run["idle_ns"].items():
            assert row[f"idle_ns.{cause}"] == value
    assert runs["seed"].nunique() == SEEDS and not runs["event_hash"].isna().any()
    for same in (parsed, [parsed], str(path)):
        pandas.testing.assert_frame_equal(lab.frame(same), runs)
    with open(path, "rb") as file:
        pandas.testing.assert_frame_equal(lab.frame(file), runs)
    key = ["case", "point", "variant", "seed"]
    lines = lab.frame(results / "runs.jsonl").sort_values(key, ignore_index=True)
    runs = runs.sort_values(key, ignore_index=True)
    pandas.testing.assert_frame_equal(lines[runs.columns], runs)
    both = lab.frame([parsed, json.loads((results / "drawn.json").read_text())])
    assert set(both["experiment"]) == {"dio-boundary-sata", "today"}
    assert len(both) == len(runs) + 2


def test_cells_relations_and_sweeps_follow_from_runs(results: Path) -> None:
    """Medians over the seeds, and their quotients, computed here."""
    path = results / "report.json"
    runs = lab.frame(path)
    alone = runs[runs["point"].isna()].groupby(["case", "variant"])
    cells = lab.frame(path, "cells")
    cells = cells[cells["obtained"].notna()]
    for cell in cells.itertuples():
        metrics = alone.get_group((cell.case, cell.variant))[cell.metric]
        figures = metrics.median(), metrics.min(), metrics.max(), metrics.count()
        assert figures == (cell.obtained, cell.low, cell.high, cell.n), cell
    assert {"rate", "bios", "read-rate"} <= set(cells["metric"])

    relations = lab.frame(path, "relations")
    quotients = relations[relations["value"].str.fullmatch(r"[\w.-]+ / [\w.-]+")]
    assert len(quotients) > 3
    for relation in quotients.itertuples():
        over, under = (
            alone.get_group((case, variant))[metric].median()
            for variant, case, metric in (name.split(".") for name in relation.value.split(" / "))
        )
        assert relation.obtained == pytest.approx(over / under)
        inside = relation.within_low <= relation.obtained <= relation.within_high
        assert relation.band == ("inside" if inside else "outside")

    sweeps = lab.frame(path, "sweeps")
    swept = runs.groupby(["vary", "point", "variant"])["rate"].median()
    for point in sweeps.itertuples():
        assert swept[point.vary, point.point, point.variant] == point.obtained
    assert len(sweeps) == len(swept)

    comparisons = lab.frame(path, "comparisons")
    assert len(comparisons) > 3 and set(comparisons["n_before"]) == {SEEDS}
    for one in comparisons.itertuples():
        for title, median in ((one.title_before, one.before), (one.title_after, one.after)):
            among = cells[(cells["title"] == title) & (cells["unit"] == one.unit)]
            assert median in set(among["obtained"])
        sign = 1 if one.better == "higher" else -1
        assert one.change == pytest.approx(sign * (one.after / one.before - 1))
        # Nothing in this experiment varies from seed to seed.
        assert pandas.isna(one.change_low) and one.reason == "the same at every seed"


def test_what_is_drawn_follows_from_runs(results: Path) -> None:
    """A rate over time, summed, is what was read and written; requests come after each other."""
    path = results / "drawn.json"
    runs = lab.frame(path).set_index("variant")
    series = lab.frame(path, "series")
    for word in ("read", "write"):
        one = series[series["series"] == f"{word}s of the device"]
        moved = (one["value"] * one["step_seconds"] * 1e6).groupby(one["variant"]).sum()
        assert set(one["unit"]) == {"MB/s"} and len(moved) == 2
        for variant, size in moved.items():
            counted = runs.loc[variant, f"count.device_{word}_bytes"]
            # The last block is written after the end of what is drawn.
            assert size == pytest.approx(counted, rel=1e-4)
    latencies = lab.frame(path, "latencies")
    assert (latencies["requests"] > 0).all() and set(latencies["variant"]) == {"none", "kyber"}
    requests = lab.frame(path, "requests")
    assert (requests["queued_ns"] <= requests["dispatched_ns"]).all()
    assert (requests["dispatched_ns"] < requests["completed_ns"]).all()
    assert {"journal", "fs_mark-0"} <= set(requests["task"])
    ends = requests["variant"].map(runs["simulated_seconds"]) * 1e9
    assert len(requests) and (requests["queued_ns"] <= ends).all()


def test_what_is_no_table_is_refused(results: Path, tmp_path: Path) -> None:
    lines = (results / "runs.jsonl").read_text()
    for table in get_args(lab.Table):
        assert len(lab.frame(results / "report.json", table).columns) > 4
    with pytest.raises(ValueError, match="no table: 'run'; runs, cells"):
        lab.frame(io.StringIO(lines), "run")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="have no cells: make a report"):
        lab.frame(io.StringIO(lines), "cells")
    # A killed run has left half a line.
    torn = lab.frame(io.StringIO(lines[:-20]))
    assert len(torn) == len(lab.frame(io.StringIO(lines))) - 1
    for text in ("", "{}", "[1]", '{"a"'):
        with pytest.raises(ValueError):  # noqa: PT011
            lab.frame(io.StringIO(text))
    other: dict[str, Any] = json.loads(lines.splitlines()[0]) | {"schema": 1}
    with pytest.raises(ValueError, match="version 1 instead of 2"):
        lab.frame(other)
    with pytest.raises(FileNotFoundError):
        lab.frame(tmp_path / "none.json")
    odd = json.loads(lines.splitlines()[0])
    odd["values"] = {"seed": 7.5, "rate": None}
    (row,) = lab.frame(odd).to_dict("records")
    assert row["seed"] == odd["key"]["seed"] and row["value.seed"] == 7.5


def test_the_example_draws(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bars are the medians, the lines the sweep and the series; the picture is a PNG."""
    example = Path(__file__).parents[1] / "examples/lab_plots.py"
    plot = tmp_path / "plot.png"
    report = results / "report.json"
    monkeypatch.setattr(sys, "argv", [str(example), str(report), str(plot)])
    matplotlib.pyplot.switch_backend("agg")
    names = runpy.run_path(str(example))
    bars, sweep, time = names["figure"].axes
    cells = lab.frame(report, "cells").set_index(["case", "metric"]).sort_index()["obtained"]
    drawn = [bar.get_width() for bar in bars.patches]
    assert drawn == sorted(cells["stream", "rate"])
    points = lab.frame(report, "sweeps")
    assert len(sweep.lines) == points["variant"].nunique() == len(drawn)
    assert sorted(y for line in sweep.lines for y in line.get_ydata()) == sorted(
        points["obtained"]
    )
    assert len(time.lines) == len(drawn) and all(len(line.get_ydata()) > 9 for line in time.lines)
    assert plot.read_bytes().startswith(b"\x89PNG") and plot.stat().st_size > 10_000
    matplotlib.pyplot.close(names["figure"])
