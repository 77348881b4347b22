"""What was wrong with a trace file: each kind counted, with one example and its place, explained for the report."""

from __future__ import annotations

from typing import NamedTuple

from diagnose.model import Issue, IssueSeverity

_EXAMPLE_BYTES = 160
_EXPLAIN: dict[str, tuple[IssueSeverity, str]] = {
    "truncated": ("warning", "the file ends inside its events; what stands before was read"),
    "compressed_stream_damaged": ("warning", "read up to the damage"),
    "extra_data": ("warning", "text follows the end of the trace (two writers in one file?); the first trace is used"),
    "metadata_damaged": ("warning", "text around the events is no JSON; the keys that matter were searched for"),
    "not_utf8": ("info", "bytes that are no UTF-8 were replaced"),
    "bare_word": ("info", "bare inf, nan or N/A was read as null"),
    "backslash": ("info", "unescaped backslashes were mended"),
    "unescaped_quote": ("info", "unescaped quotes in texts were mended"),
    "control_character": ("info", "control characters in texts were mended"),
    "empty_value": ("info", "a missing value was read as null"),
    "unusable_value": ("info", "values of an impossible type or size were left out"),
    "unreadable_event": ("warning", "text that is no event, even mended; whole events inside it were kept"),
    "device_record_without_time": ("warning", "device records with time 0 are lost records; dropped"),
    "host_event_without_time": ("info", "host events without time, or from before the profiler's time base; dropped"),
    "negative_duration": ("warning", "negative durations; device records dropped, host events set to zero"),
    "duplicate_record": ("info", "device records that repeat another one exactly; kept once"),
    "time_out_of_range": ("warning", "times more than a day from the others; dropped"),
    "impossible_duration": (
        "warning",
        "device records that last beyond their successor on the stream or beyond the profile; cut there",
    ),
}


class Damage(NamedTuple):
    """One kind of damage: how often, and one example with its place."""

    times: int
    example: str
    offset: int | None


class DamageLog(dict[str, Damage]):
    """Damage by kind; the first example of each stays."""

    def note(self, kind: str, example: bytes | str, offset: int | None = None, count: int = 1) -> None:
        """Count damage of a kind.

        Raises:
            KeyError: a kind that has no explanation.
        """
        if isinstance(example, bytes):
            example = example[:_EXAMPLE_BYTES].decode("utf-8", "replace")
        old = self.get(kind)
        if old is None:
            _EXPLAIN[kind]
            self[kind] = Damage(count, example, offset)
        else:
            self[kind] = old._replace(times=old.times + count)

    def issues(self, path: str) -> list[Issue]:
        """One issue a kind, in the order of their names."""
        return [
            Issue(
                kind,
                _EXPLAIN[kind][0],
                damage.times,
                ": ".join(filter(None, (_EXPLAIN[kind][1], damage.example))),
                path,
                damage.offset,
            )
            for kind, damage in sorted(self.items())
        ]
