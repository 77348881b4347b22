"""Keys: what was analysed, and by which rules. The same key is the same result, so it is never made twice."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from diagnose.errors import SourceError
from diagnose.store.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from diagnose.config import Config
    from diagnose.findings.rules import RuleBook
    from diagnose.watch.inbox import RunFolder

_EDGE_BYTES = 65_536


class RunKey(NamedTuple):
    """``key`` names the analysis, ``sources`` only its input."""

    key: str
    sources: str


def rules_hash(config: Config, book: RuleBook) -> str:
    """Changes with any rule, threshold or setting, and with the schema of the store."""
    rules = [msgspec.json.encode(rule, order="deterministic") for rule in book]
    settings = msgspec.json.encode(config, order="deterministic")
    return hashlib.sha256(b"\0".join((*rules, settings, str(SCHEMA_VERSION).encode()))).hexdigest()


def run_key(run: RunFolder, rules: str) -> RunKey:
    """From the names, sizes, first and last bytes of the run's files: touching or copying a run does not change it.

    Raises:
        SourceError: a file vanished or cannot be read; the run is looked at again later.
    """
    digest = hashlib.sha256(f"{run.job}\0{run.name}".encode())
    for file in run.files:
        path = run.path / file.path if run.path.is_dir() else run.path
        try:
            with path.open("rb") as handle:
                edges = handle.read(_EDGE_BYTES)
                if file.size > 2 * _EDGE_BYTES:
                    handle.seek(-_EDGE_BYTES, 2)
                edges += handle.read(_EDGE_BYTES)
        except OSError as error:
            raise SourceError(f"cannot read {path}: {error.strerror or error}") from error
        digest.update(f"{file.path}\0{file.size}\0".encode() + hashlib.sha256(edges).digest())
    sources = digest.hexdigest()
    return RunKey(hashlib.sha256(f"{sources}\0{rules}".encode()).hexdigest(), sources)
