"""Write the generated reference pages: report.schema.json and schema.md. With --check only compare."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from diagnose.report.document import json_schema

FOLDER = Path(__file__).parent


def report_schema() -> str:
    """The JSON Schema of the report."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def store_schema() -> str:
    """All tables of the run store as Markdown."""
    from diagnose.store.schema import SCHEMA_VERSION, TABLES

    lines = [
        "# The run store",
        "",
        "Generated from `diagnose.store.schema` by `python docs/generate.py`; do not edit.",
        "",
        f"One DuckDB file a run, schema version {SCHEMA_VERSION}. Names carry their unit; unknown is NULL, never 0.",
    ]
    for table in TABLES:
        key = ", ".join(f"`{name}`" for name in table.key) or "none (one row)"
        lines += ["", f"## {table.name}", "", f"One row: {table.grain}. Key: {key}.", ""]
        lines += ["| Column | Type | Unit | Meaning |", "|---|---|---|---|"]
        lines += [
            f"| `{column.name}` | {column.type} | {column.unit or ''} | {_cell(column.meaning)} |"
            for column in table.columns
        ]
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """File name and content of every generated page."""
    return {"report.schema.json": report_schema(), "schema.md": store_schema()}


def main() -> int:
    """Write the pages, or say which are out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when a page is out of date")
    stale = []
    check = parser.parse_args().check
    for name, text in pages().items():
        path = FOLDER / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(("out of date: " if check else "written: ") + ", ".join(stale))
    return 1 if check and stale else 0


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.exit(main())
