"""Start the server with everything loaded and the first run read, so that the first page does not wait for imports."""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path

HERE = Path(__file__).parent
_MODULES = (
    "pandas",
    "pyarrow",
    "altair",
    "jinja2",
    "engines",
    "charts_comm",
    "charts_other",
    "perfetto",
    "export",
    "heat_view",
    "runs_view",
)


def warm() -> None:
    """Import what the pages import, and read the run that is shown first; what is wrong with it is told on its page."""
    # Nothing is kept on disk, so that the caches say they stay in memory is no news.
    logging.getLogger("streamlit.runtime.caching.cache_data_api").setLevel(logging.ERROR)
    import ahead
    import catalog
    import data

    from diagnose.errors import DiagnoseError

    for name in _MODULES:
        importlib.import_module(name)
    try:
        data.rules()
        listed = catalog.discover(catalog.root())
        if listed.runs:
            run = catalog.open_run(listed, next(iter(listed.runs)))
            data.report_of(str(run.path), run.fingerprint)
            ahead.start(listed)
    except DiagnoseError as error:
        logging.getLogger("diagnose.app").info("the first run cannot be read: %s", error)


def main(arguments: list[str]) -> None:
    """Serve the dashboard; arguments are those of `streamlit run`."""
    from streamlit.web import cli

    sys.path.insert(0, str(HERE))
    warm()
    cli.main(["run", str(HERE / "main.py"), *arguments], prog_name="streamlit")


if __name__ == "__main__":
    main(sys.argv[1:])
