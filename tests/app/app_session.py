"""Reading what a page of the dashboard shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from streamlit.testing.v1 import AppTest


def frames(session: AppTest) -> list[pl.DataFrame]:
    """The tables of a page."""
    return [pl.from_pandas(item.value) for item in session.dataframe]


def texts(session: AppTest) -> str:
    """All words of a page, without the escapes of Markdown."""
    main = session.main
    found = [
        *main.markdown,
        *main.caption,
        *main.title,
        *main.subheader,
        *main.info,
        *main.warning,
        *main.error,
        *main.success,
    ]
    titles = [item.proto.title for item in (*main.info, *main.warning, *main.error) if item.proto.title]
    return "\n".join([*(item.value for item in found), *titles]).replace("\\", "")
