"""A Kineto trace file to one RankTrace with its issues."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diagnose.errors import SourceError
from diagnose.ingest.kineto.chunks import TraceText
from diagnose.ingest.kineto.decode import Decoder
from diagnose.ingest.kineto.meta import parse_metadata, trace_header
from diagnose.ingest.kineto.neighbours import place_uncategorised
from diagnose.ingest.kineto.sanity import sound_activities, sound_calls
from diagnose.model import Issue
from diagnose.store.rank_trace import RankTrace

if TYPE_CHECKING:
    from diagnose.ingest.base import Source

_EXPLAIN = {
    "truncated": ("warning", "the file ends inside an event: read up to there"),
    "compressed_stream_damaged": ("warning", "read up to the damage"),
    "metadata_damaged": ("warning", "text around the events is no JSON; the keys that matter were searched for"),
    "not_utf8": ("info", "bytes that are no UTF-8 were replaced"),
    "bare_word": ("info", "bare inf, nan or N/A was read as null"),
    "backslash": ("info", "unescaped backslashes were mended"),
    "unescaped_quote": ("info", "unescaped quotes in a name were mended"),
    "control_character": ("info", "control characters were replaced"),
    "empty_value": ("info", "a missing value was read as null"),
    "unreadable_event": ("warning", "text that is no event, even mended; whole events inside it were kept"),
    "device_record_without_time": ("warning", "device records with time 0 are lost records; dropped"),
    "host_event_without_time": ("info", "host events without time; dropped"),
    "negative_duration": ("warning", "negative durations; device records dropped, host events set to zero"),
    "time_out_of_range": ("warning", "device records more than a day from the others; dropped"),
    "impossible_duration": ("warning", "device records that run over their successor on the stream; cut there"),
}


class DecodedTrace(NamedTuple):
    """A trace and what was wrong with its file."""

    trace: RankTrace
    issues: list[Issue]
    truncated: bool
    size_bytes: int


def read_trace(source: Source) -> DecodedTrace:
    """Decode a whole file in bounded chunks; memory grows with the kept columns only.

    Raises:
        SourceError: there is no event list, or not one readable event.
    """
    stream = source.open()
    text = TraceText(stream)
    decoder = Decoder()
    for chunk in text.chunks():
        decoder.add(chunk)
    stream.close()
    if not text.found_events:
        raise SourceError(f"{source.label}: no list of trace events in it; is it a profiler trace?")
    if text.truncated_at is not None:
        decoder.note("truncated", f"byte {text.truncated_at}", text.truncated_at)
    if stream.damage:
        decoder.note("compressed_stream_damaged", stream.damage, text.size_bytes)
    cut = text.truncated_at is not None or stream.damage is not None
    metadata, sound = parse_metadata(text.header, b"" if cut else text.trailer)
    if not sound:
        decoder.note("metadata_damaged", text.trailer[:160] or text.header[-160:], None)
    trace = _assemble(decoder, metadata)
    issues = [
        Issue(
            kind, _EXPLAIN[kind][0], damage.count, f"{_EXPLAIN[kind][1]}: {damage.example}", source.label, damage.offset
        )  # type: ignore[arg-type]
        for kind, damage in sorted(decoder.damage.items())
    ]
    return DecodedTrace(trace, issues, cut, text.size_bytes)


def _assemble(decoder: Decoder, metadata: dict[str, object]) -> RankTrace:
    header = trace_header(metadata)
    if decoder.uncategorised and not decoder.categories["kernel"]:
        place_uncategorised(decoder)

    def note(kind: str, example: str, count: int) -> None:
        decoder.note(kind, example, None, count)

    base = header.base_ns
    window = decoder.window
    return RankTrace(
        header=header,
        names=list(decoder.names),
        activities=sound_activities(decoder.activities.activities(), base, note),
        runtime=sound_calls(decoder.runtime.calls(), base, note),
        operators=sound_calls(decoder.operators.calls(), base, note),
        annotations=sound_calls(decoder.annotations.calls(), base, note),
        python_calls=sound_calls(decoder.python_calls.calls(), base, note),
        comm_args=decoder.comm_args,
        thread_names=decoder.thread_names,
        window_ns=(window["Iteration Start"] + base, window["Record Window End"] + base) if len(window) == 2 else None,
        events=decoder.events,
    )
