"""diagnose: why is this training run slow, and what would fixing it buy?

``diagnose.run(paths)`` reads and analyses a run, ``diagnose.open(store)`` opens a stored one; both give a ``Run``
whose tables are polars frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diagnose.api import Run, open, run

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "open", "run"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - module attributes have any type
    """Import the API on first use: `import diagnose` stays fast."""
    if name in ("Run", "open", "run"):
        from diagnose import api

        return getattr(api, name)
    raise AttributeError(f"module 'diagnose' has no attribute {name!r}")
