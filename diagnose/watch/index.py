"""The page that lists every job with its trend, and every run with its verdict: one static file, links beside it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from jinja2 import Environment, PackageLoader, PrefixLoader, StrictUndefined

from diagnose import __version__
from diagnose.report.view import clean, shorten
from diagnose.units import format_ns
from diagnose.watch.attempts import Attempts
from diagnose.watch.places import Places, write_whole
from diagnose.watch.record import Record, current, write_history
from diagnose.watch.trend import trend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jinja2 import Template

    from diagnose.watch.record import Records

ROWS = 50
WORDS = {
    "first": "first run",
    "regression": "slower",
    "improvement": "faster",
    "equivalent": "no change",
    "inconclusive": "no change shown",
    "not comparable": "other work",
}


def refresh(places: Places, records: Records) -> None:
    """Write history and page until nobody published meanwhile: of two watchers the later listing stays."""
    known = None
    while (listing := [record.key for record in records.all()]) != known:
        known = listing
        write_index(records.all(), places)


def up_to_date(places: Places, records: Records) -> bool:
    """Whether the written history holds every run that is there and knows which folders are kept."""
    import polars as pl

    if not places.page.is_file():
        return False
    try:
        written = pl.read_parquet(places.history, columns=["key", "kept"])
    except (OSError, pl.exceptions.PolarsError):
        return False
    wanted = [(record.key, (places.out / record.folder).is_dir()) for record in records.all()]
    return list(
        written.iter_rows()
    ) == wanted and f'data-failed="{len(list(places.failed.glob("*.json")))}"' in places.page.read_text(
        encoding="utf-8"
    )


def write_index(records: Sequence[Record], places: Places) -> None:
    """History first: the page never shows a run that the table lacks."""
    write_history(records, places)
    write_whole(places.page, page(records, places).encode())


def page(records: Sequence[Record], places: Places) -> str:
    """The page's HTML; the same records and folders give the same bytes."""
    newest = current(records)
    names = sorted({record.job for record in newest})
    jobs = [
        _job(name, place, [record for record in newest if record.job == name], places)
        for place, name in enumerate(names, 1)
    ]
    text: str = _template().render(
        version=__version__, jobs=jobs, slower=[job for job in jobs if job["last"].change == "regression"],
        failed=_failed(places), words=WORDS, replaced=len(records) - len(newest), total=len(newest),
    )  # fmt: skip
    return text if text.endswith("\n") else text + "\n"


@cache
def _template() -> Template:
    """Compiled once a process: that takes longer than to fill it in."""
    environment = Environment(
        loader=PrefixLoader({"watch": PackageLoader("diagnose.watch"), "report": PackageLoader("diagnose.report")}), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"clean": clean, "ns": format_ns}
    return environment.get_template("watch/index.html.j2")


def _job(job: str, place: int, records: Sequence[Record], places: Places) -> dict[str, Any]:
    last = records[-1]
    rows = []
    for record in reversed(records[-ROWS:]):
        there = (places.out / record.folder / "report.html").is_file()
        compared = (places.out / record.folder / "compare.html").is_file()
        counts = {level: sum(note.severity == level for note in record.findings) for level in ("critical", "warning")}
        rows.append(
            {"record": record, "there": there, "compared": compared, "since": shorten(record.since, 300), **counts}
        )
    return {
        "name": job,
        "place": place,
        "last": last,
        "rows": rows,
        "left": max(0, len(records) - ROWS),
        "trend": trend(records, f"Step time of {job} over its runs"),
    }


def _failed(places: Places) -> list[Attempts]:
    found = []
    for path in sorted(places.failed.glob("*.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Attempts))
        except (OSError, msgspec.DecodeError):
            continue
    return found
