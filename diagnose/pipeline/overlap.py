"""Two things at once: while one item is worked on, the caller uses the result before it and fetches the next item."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Item = TypeVar("Item")
Result = TypeVar("Result")


def overlapped(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Results in the order of the items, which are worked on one after the other in a thread of their own.

    At most two items and two results exist at a time. Arrays and frames are worked on without the interpreter's lock.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="diagnose") as thread:
        before = None
        for item in items:
            now = thread.submit(work, item)
            if before is not None:
                yield before.result()
            before = now
            del item, now
        if before is not None:
            yield before.result()
