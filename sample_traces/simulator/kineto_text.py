"""The text of Kineto's trace files, as the profilers of two torch versions lay it out.

Times come in as integer ns relative to the file's base and leave as microseconds with three decimals.
"""

from __future__ import annotations

import json


def us(ns: int) -> str:
    """Microseconds with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


class Text213:
    """One key a line, metadata first, base time before the events."""

    device_gap = ""
    arg_gap = " "

    def complete(self, cat: str, name: str, pid: object, tid: object, ts: int, dur: int, args: str) -> str:
        """A complete event."""
        tail = f'\n    ,\n    "args": {{\n      {args}\n    }}' if args else "\n    "
        return (
            f'\n  {{\n    "ph": "X",\n    "cat": "{cat}",\n    "name": "{name}",\n    "pid": {pid},\n'
            f'    "tid": {tid},\n    "ts": {us(ts)},\n    "dur": {us(dur)}{tail}\n  }}'
        )

    def flow(self, phase: str, ident: int, pid: int, tid: int, ts: int) -> str:
        """One end of the arrow from a launch to its kernel."""
        bind = ', "bp": "e"' if phase == "f" else ""
        return (
            f'\n  {{\n    "ph": "{phase}",\n    "id": {ident},\n    "pid": {pid},\n    "tid": {tid},\n'
            f'    "ts": {us(ts)},\n    "cat": "ac2g",\n    "name": "ac2g"\n    {bind}\n  }}'
        )

    def meta(self, name: str, pid: object, tid: int, ts: int, key: str, value: object) -> str:
        """A metadata event."""
        return (
            f'\n  {{\n    "ph": "M",\n    "name": "{name}",\n    "ts": {us(ts)},\n    "pid": {pid},\n'
            f'    "tid": {tid},\n    "args": {{\n      "{key}": {json.dumps(value)}\n    }}\n  }}'
        )

    def instant(self, name: str, pid: str, tid: str, ts: int) -> str:
        """A marker of the profiler itself."""
        return (
            f'\n  {{\n    "ph": "i",\n    \n    "s": "g",\n    "name": "{name}",\n    "pid": "{pid}",\n'
            f'    "tid": "{tid}",\n    "ts": {us(ts)}\n    \n  }}'
        )

    def document(self, head: dict[str, object], devices: str, base_ns: int, events: list[str], name: str) -> str:
        """The whole file. The values of head are written as JSON on one line each."""
        lines = "".join(f"\n      {json.dumps(k)}: {json.dumps(v)}," for k, v in head.items())
        return (
            f' {{\n    "schemaVersion": 1,\n    "deviceProperties": [{devices}],\n    {lines}\n'
            f'    "displayTimeUnit": "ms",\n    "baseTimeNanoseconds": {base_ns},\n    "traceEvents": [\n    '
            + ",".join(events)
            + f'\n  ],"traceName": "{name}" }}'
        )


class Text24:
    """Several keys a line, metadata after the events, base time at the end."""

    arg_gap = "      "

    def complete(self, cat: str, name: str, pid: object, tid: object, ts: int, dur: int, args: str) -> str:
        """A complete event."""
        tail = f',\n    "args": {{\n      {args}\n    }}' if args else ""
        if cat == "Trace":
            return (
                f'\n  {{\n    "ph": "X", "cat": "Trace", "ts": {us(ts)}, "dur": {us(dur)},\n'
                f'    "pid": {pid}, "tid": {tid},\n    "name": "{name}"{tail}\n  }}'
            )
        return (
            f'\n  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
            f'    "ts": {us(ts)}, "dur": {us(dur)}{tail}\n  }}'
        )

    def flow(self, phase: str, ident: int, pid: int, tid: int, ts: int) -> str:
        """One end of the arrow from a launch to its kernel."""
        bind = ', "bp": "e"' if phase == "f" else ""
        return (
            f'\n  {{\n    "ph": "{phase}", "id": {ident}, "pid": {pid}, "tid": {tid}, "ts": {us(ts)},\n'
            f'    "cat": "ac2g", "name": "ac2g"{bind}\n  }}'
        )

    def meta(self, name: str, pid: object, tid: int, ts: int, key: str, value: object) -> str:
        """A metadata event."""
        return (
            f'\n  {{\n    "name": "{name}", "ph": "M", "ts": {us(ts)}, "pid": {pid}, "tid": {tid},\n'
            f'    "args": {{\n      "{key}": {json.dumps(value)}\n    }}\n  }}'
        )

    def instant(self, name: str, pid: str, tid: str, ts: int) -> str:
        """A marker of the profiler itself."""
        return (
            f'\n  {{\n    "name": "{name}", "ph": "i", "s": "g",\n    "pid": "{pid}", "tid": "{tid}", '
            f'"ts": {us(ts)}\n  }}'
        )

    def document(self, head: dict[str, object], devices: str, base_ns: int, events: list[str], name: str) -> str:
        """The whole file. The values of head are written as JSON on one line each."""
        lines = "".join(f"\n  {json.dumps(k)}: {json.dumps(v)}," for k, v in head.items())
        return (
            f'\n{{\n  "schemaVersion": 1,\n  "deviceProperties": [{devices}\n  ],{lines}\n  "traceEvents": ['
            + ",".join(events)
            + f'\n  ],\n  "traceName": "{name}",\n  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": {base_ns}\n}}'
        )


def shown(values: list[int] | tuple[int, ...]) -> str:
    """A list as PyTorch writes it into an event: text, cut after 30 entries."""
    cut = ", ".join(map(str, values[:30]))
    return f"[{cut}, ...]" if len(values) > 30 else f"[{cut}]"


_MEMORY = {"H100": 85_017_624_576, "A100": 85_097_971_712, "H200": 150_110_011_392}


def device_properties(names: list[str]) -> str:
    """The devices of a host."""
    parts = []
    for ident, name in enumerate(names):
        hopper = "A100" not in name
        memory = next((v for k, v in _MEMORY.items() if k in name), 85_017_624_576)
        parts.append(
            f'\n    {{\n      "id": {ident}, "name": "{name}", "totalGlobalMem": {memory},\n'
            f'      "computeMajor": {9 if hopper else 8}, "computeMinor": 0,\n'
            '      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,\n'
            '      "regsPerBlock": 65536, "warpSize": 32,\n'
            f'      "sharedMemPerBlock": 49152, "numSms": {132 if hopper else 108}\n'
            f'    , "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": {232448 if hopper else 166912}, '
            f'"sharedMemPerMultiprocessor": {233472 if hopper else 167936}\n    }}'
        )
    return ",".join(parts)
