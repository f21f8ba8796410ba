"""Results of `iopath lab run` as data frames of pandas.

    >>> from extxfs import lab
    >>> runs = lab.frame("report.json")                     # of `iopath lab run NAME --json`
    >>> runs.groupby("variant")["rate"].median()
    >>> cells = lab.frame("report.json", "cells")

A report (`--json FILE`) has all tables; lines (`--results FILE`) have runs only, and what is drawn
of them. Whether a figure was changed by hand is checked by `iopath lab report FILE`, not here.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas

SCHEMA = 2
"""The version of the format that is read."""

Table = Literal[
    "runs",
    "cells",
    "relations",
    "comparisons",
    "sweeps",
    "series",
    "latencies",
    "requests",
]

Source = str | os.PathLike[str] | IO[str] | IO[bytes] | Mapping[str, Any] | list[Any]

_Row = dict[str, Any]


def frame(source: Source, table: Table = "runs") -> "pandas.DataFrame":
    """A table of results.

    `source` is a path or an open file of `iopath lab run --json` or `--results`, or what `json`
    made of one. The tables, and what a row of each is:

    - `runs`: a run. Its metrics are columns by their names (`value.NAME` where another column has
      the name); `NAME.low`, `NAME.high` and `NAME.pairs` tell how sure one is that comes from many
      pairs; what was counted is in `count.NAME`; `idle_ns.CAUSE` are nanoseconds in which the
      device had nothing to do.
    - `cells`: a figure beside the published one.
    - `relations`: a relation between cells, and its range.
    - `comparisons`: a metric of one variant beside that of another; `change` is a part of `before`,
      positive where it became better.
    - `sweeps`: a point of a sweep.
    - `series`: a rate over a run's time, the mean of `step_seconds` from `seconds` on. Only some
      runs are drawn; the same holds for the next two.
    - `latencies`: a bucket of a distribution of latencies.
    - `requests`: a request in the middle of a run.

    What is not known is NaN or None. A last line that a killed run left without its end is dropped.

    Raises ImportError without pandas; ValueError for an unknown table, what are no results, and
    another version of them; OSError where the file cannot be read.
    """
    if table not in _TABLES:
        raise ValueError(f"no table: {table!r}; {', '.join(_TABLES)}")
    import pandas

    rows, columns, of_runs = _TABLES[table]
    documents = _documents(source)
    if not of_runs and any("key" in document for document in documents):
        words = f"lines of results have no {table}: make a report, `iopath lab report FILE --json`"
        raise ValueError(words)
    units = _runs(documents) if of_runs else iter(documents)
    made = pandas.DataFrame([row for unit in units for row in rows(unit)])
    made = made.reindex(columns=[*columns, *(name for name in made if name not in columns)])
    numbers = [name for name in made if name in _NUMBERS]
    return made.astype(dict.fromkeys(numbers, float))


def _documents(source: Source) -> list[Mapping[str, Any]]:
    """Reports and records."""
    if isinstance(source, str | os.PathLike):
        with open(source, encoding="utf-8") as file:
            parsed = _parse(file.read())
    elif isinstance(source, Mapping | list):
        parsed = source
    else:
        text = source.read()
        parsed = _parse(text.decode() if isinstance(text, bytes) else text)
    documents = parsed if isinstance(parsed, list) else [parsed]
    for document in documents:
        if not isinstance(document, Mapping) or not ("runs" in document or "key" in document):
            raise ValueError("neither a report nor a record of `iopath lab run`")
        if document.get("schema") != SCHEMA:
            raise ValueError(f"results of version {document.get('schema')} instead of {SCHEMA}")
    return documents


def _parse(text: str) -> Any:
    """One document, or lines of them."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        lines = text[: text.rfind("\n") + 1].splitlines()
        if not lines:
            raise
        return [json.loads(line) for line in lines if line.strip()]


def _runs(documents: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        yield from [document] if "key" in document else document["runs"]


def _key(run: Mapping[str, Any]) -> _Row:
    key = run["key"]
    point = key.get("point", {})
    return {
        "experiment": run["experiment"],
        "filesystem": key["filesystem"],
        "case": key["case"],
        "vary": point.get("vary"),
        "point": point.get("value"),
        "variant": key["variant"],
        "seed": key["seed"],
    }


def _run(run: Mapping[str, Any]) -> Iterator[_Row]:
    made = run["made"]
    row = _key(run) | {
        "simulated_seconds": run["seconds"],
        "event_hash": run["event_hash"] or None,
        "machine": made.get("machine") or None,
        "host": made.get("host") or None,
        "commit": made.get("build", {}).get("commit") or None,
    }
    row |= {f"value.{name}" if name in row else name: run["values"][name] for name in run["values"]}
    for name, spread in run.get("spreads", {}).items():
        row |= {f"{name}.{part}": value for part, value in spread.items()}
    row |= {f"count.{name}": value for name, value in run["counts"].items()}
    row |= {f"idle_ns.{cause}": value for cause, value in run["idle_ns"].items()}
    yield row


def _within(ends: list[float | None] | None) -> tuple[float | None, float | None]:
    """A range, which may have no end on a side."""
    if ends is None:
        return None, None
    low, high = ends
    return -math.inf if low is None else low, math.inf if high is None else high


def _cell(experiment: str, table: str, title: str, cell: Mapping[str, Any]) -> _Row:
    variant, _, rest = cell["cell"].partition(".")
    case, _, metric = rest.partition(".")
    low, high = cell["range"] or (None, None)
    within_low, within_high = _within(cell.get("within"))
    return {
        "experiment": experiment,
        "table": table,
        "filesystem": cell["filesystem"],
        "case": case,
        "variant": variant,
        "title": title,
        "metric": metric,
        "low": low,
        "high": high,
        "within_low": within_low,
        "within_high": within_high,
        "reason": cell.get("reason"),
    } | {name: cell[name] for name in _OF_CELL}


def _cells(report: Mapping[str, Any]) -> Iterator[_Row]:
    for table in report["tables"]:
        for row in table["rows"]:
            for cell in row["cells"]:
                yield _cell(report["experiment"], table["title"], row["title"], cell)


def _relations(report: Mapping[str, Any]) -> Iterator[_Row]:
    for relation in report["relations"]:
        within_low, within_high = _within(relation["within"])
        row = {"experiment": report["experiment"]}
        row |= {name: relation.get(name) for name in _OF_RELATION}
        yield row | {"within_low": within_low, "within_high": within_high}


def _comparisons(report: Mapping[str, Any]) -> Iterator[_Row]:
    for table in report["tables"]:
        for one in table["comparisons"]:
            figures = one["figures"]
            interval = figures["change_interval"]
            yield {
                "experiment": report["experiment"],
                "table": table["title"],
                "filesystem": table["filesystem"],
                "metric": one["metric"],
                "unit": one["unit"],
                "better": one["better"],
                "title_before": one["before"],
                "title_after": one["after"],
                "n_before": figures["n"][0],
                "n_after": figures["n"][1],
                "paired": figures["paired"],
                "before": figures["before"],
                "after": figures["after"],
                "change": figures["change"],
                "change_low": interval and interval["low"],
                "change_high": interval and interval["high"],
                "effect": figures["effect"],
                "p": figures["p"],
                "verdict": figures["verdict"],
                "reason": figures["reason"],
            }


def _sweeps(report: Mapping[str, Any]) -> Iterator[_Row]:
    for sweep in report["sweeps"]:
        for line in sweep["lines"]:
            for point, obtained in line["points"]:
                yield {
                    "experiment": report["experiment"],
                    "sweep": sweep["title"],
                    "filesystem": sweep["filesystem"],
                    "vary": sweep["vary"],
                    "unit": sweep["unit"],
                    "variant": line["variant"],
                    "title": line["title"],
                    "point": point,
                    "metric": sweep["metric"],
                    "obtained": obtained,
                }


def _drawn(run: Mapping[str, Any], what: str) -> Iterator[tuple[_Row, Mapping[str, Any]]]:
    for one in (run.get("detail") or {}).get(what, ()):
        yield _key(run), one


def _series(run: Mapping[str, Any]) -> Iterator[_Row]:
    for key, one in _drawn(run, "series"):
        key |= {"series": one["name"], "unit": one["unit"]}
        step = one["step_ns"] / 1e9
        for index, value in enumerate(one["values"]):
            yield key | {"seconds": index * step, "step_seconds": step, "value": value}


def _latencies(run: Mapping[str, Any]) -> Iterator[_Row]:
    for key, one in _drawn(run, "latencies"):
        for below, count in one["buckets"]:
            yield key | {"of": one["name"], "up_to_ns": below, "requests": count}


def _requests(run: Mapping[str, Any]) -> Iterator[_Row]:
    tasks = (run.get("detail") or {}).get("tasks", {})
    for key, one in _drawn(run, "timeline"):
        yield key | {
            "task": tasks.get(str(one["ioc"])),
            "queued_ns": one["queued"],
            "dispatched_ns": one["dispatched"],
            "completed_ns": one["completed"],
            "sector": one["sector"],
            "sectors": one["count"],
            "write": one["write"],
            "sync": one["sync"],
        }


_KEY = ("experiment", "filesystem", "case", "vary", "point", "variant", "seed")
_OF_CELL = ("unit", "published", "obtained", "n", "ratio", "basis", "role", "band", "command")
_OF_RELATION = ("filesystem", "title", "value", "published", "obtained", "band", "accepted", "goal")

_NUMBERS = {
    "point",
    "published",
    "obtained",
    "low",
    "high",
    "ratio",
    "within_low",
    "within_high",
    "change_low",
    "change_high",
}
"""Columns of numbers, some or all of which may be missing."""

_TABLES: dict[str, tuple[Callable[[Mapping[str, Any]], Iterator[_Row]], tuple[str, ...], bool]] = {
    "runs": (_run, _KEY, True),
    "cells": (_cells, ("experiment", "table", "filesystem", "case", "variant", "metric"), False),
    "relations": (_relations, ("experiment", *_OF_RELATION), False),
    "comparisons": (_comparisons, ("experiment", "table", "filesystem", "metric"), False),
    "sweeps": (_sweeps, ("experiment", "sweep", "filesystem", "variant", "point"), False),
    "series": (_series, (*_KEY, "series", "unit", "seconds"), True),
    "latencies": (_latencies, (*_KEY, "of", "up_to_ns", "requests"), True),
    "requests": (_requests, (*_KEY, "task", "queued_ns", "dispatched_ns", "completed_ns"), True),
}
"""Of each table: its rows, its first columns, whether it is of runs."""
