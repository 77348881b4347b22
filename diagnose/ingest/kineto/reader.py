"""A Kineto trace file to one RankTrace with its issues."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diagnose.errors import SourceError
from diagnose.ingest.kineto.chunks import TraceText
from diagnose.ingest.kineto.decode import Decoder
from diagnose.ingest.kineto.meta import Metadata, may_lack_devices, parse_metadata, trace_header
from diagnose.ingest.kineto.neighbours import place_uncategorised
from diagnose.ingest.kineto.sanity import reference, sound_activities, sound_calls
from diagnose.memory import free_large_at_once, give_back_freed
from diagnose.store.rank_trace import Calls, RankTrace

if TYPE_CHECKING:
    from diagnose.ingest.base import Source
    from diagnose.model import Issue


_LARGE_EVENTS = 1_000_000
"""From some 250 MB of JSON on memory counts more than the time to give it back."""


class DecodedTrace(NamedTuple):
    """A trace and what was wrong with its file.

    ``rank`` is what its communication records say of this rank, None when they do not or disagree.
    """

    trace: RankTrace
    rank: int | None
    issues: list[Issue]
    truncated: bool
    size_bytes: int


def read_trace(source: Source) -> DecodedTrace:
    """Decode a whole file in bounded chunks; memory grows with the kept columns only.

    Raises:
        SourceError: there is no event list, or not one event with a time.
    """
    stream = source.open()
    try:
        text = TraceText(stream)
        decoder = _decode(text)
    finally:
        stream.close()
    if not text.found_events:
        why = (
            f"it {stream.damage}"
            if stream.damage
            else "there is no list of trace events in it; is it a profiler trace?"
        )
        raise SourceError(f"{source.label}: {why}")
    cut = decoder.rest is None and (text.truncated_at is not None or stream.damage is not None)
    trailer = b"" if cut else decoder.rest if decoder.rest is not None else text.trailer
    metadata = parse_metadata(text.header, trailer, is_list=text.is_list)
    _note_document(decoder, text, metadata, stream.damage, cut=cut)
    trace = _assemble(decoder, metadata)
    if not (trace.has_device_work or any(len(calls.start_ns) for calls in _host(trace))):
        raise SourceError(f"{source.label}: {_nothing(decoder)}")
    ranks = decoder.rows.ranks
    return DecodedTrace(
        trace, min(ranks) if len(ranks) == 1 else None, decoder.damage.issues(source.label), cut, text.size_bytes
    )


def _decode(text: TraceText) -> Decoder:
    decoder: Decoder | None = None
    large = False
    for chunk in text.chunks():
        if decoder is None:
            decoder = Decoder(is_list=text.is_list, shapes=may_lack_devices(text.header, is_list=text.is_list))
        decoder.add(chunk)
        if decoder.events > _LARGE_EVENTS and not large:
            large = True
            free_large_at_once()
        if decoder.rest is not None:
            return decoder
    decoder = decoder or Decoder()
    decoder.finish(text.tail)
    return decoder


def _note_document(decoder: Decoder, text: TraceText, metadata: Metadata, damage: str | None, *, cut: bool) -> None:
    note = decoder.damage.note
    if cut and text.truncated_at is not None:
        note("truncated", f"byte {text.truncated_at}", text.truncated_at)
    if damage and decoder.rest is None:
        note("compressed_stream_damaged", damage, text.size_bytes)
    for kind, count in metadata.kinds.items():
        note(kind, "in the metadata around the events", None, count)
    if not metadata.sound:
        note("metadata_damaged", text.trailer[:160].strip() or text.header[-160:])
    if metadata.extra or decoder.rest is not None:
        note("extra_data", metadata.extra[:80])


def _host(trace: RankTrace) -> tuple[Calls, ...]:
    return trace.runtime, trace.operators, trace.annotations


def _nothing(decoder: Decoder) -> str:
    if not decoder.events:
        return "the list of trace events is empty"
    if "device_record_without_time" in decoder.damage or "time_out_of_range" in decoder.damage:
        return f"none of its {decoder.events} events has a usable time"
    return f"its {decoder.events} events are metadata and marks only, none tells what was done when"


def _assemble(decoder: Decoder, metadata: Metadata) -> RankTrace:
    header = trace_header(metadata.values)
    if decoder.uncategorised and not decoder.categories["kernel"]:
        place_uncategorised(decoder)

    def note(kind: str, example: str, count: int) -> None:
        decoder.damage.note(kind, example, None, count)

    base = header.base_ns
    window = decoder.window
    large = decoder.events > _LARGE_EVENTS
    activities = decoder.activities.activities()
    order = decoder.names.order()
    calls = []
    for part in (decoder.operators, decoder.runtime, decoder.annotations, decoder.python_calls):
        if large:
            give_back_freed()  # what the part before was joined from
        calls.append(part.calls(order))
    if large:
        give_back_freed()
    host = reference(calls)
    activities = sound_activities(activities, base, host, note)
    for place in range(len(calls)):  # one after the other: the columns of large traces fill gigabytes
        calls[place] = sound_calls(calls[place], base, host, note)
    operators, runtime, annotations, python_calls = calls
    if large:
        give_back_freed()
    return RankTrace(
        header=header,
        names=list(decoder.names),
        activities=activities,
        runtime=runtime,
        operators=operators,
        annotations=annotations,
        python_calls=python_calls,
        comm_args=decoder.rows.comm_args,
        thread_names=decoder.thread_names,
        window_ns=(window["Iteration Start"] + base, window["Record Window End"] + base) if len(window) == 2 else None,
        events=decoder.events,
    )
