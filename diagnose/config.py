"""The configuration: nearest `diagnose.yaml` from the working directory upward, or --config; flags win over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from diagnose.errors import ConfigError

_T = TypeVar("_T")

FILE_NAME = "diagnose.yaml"
_BASE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster where PyYAML was built with libyaml


class Hardware(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the fabric should carry, when the user knows it; the last resort of the network reference."""

    intra_node_busbw_bytes_per_s: float | None = None
    inter_node_busbw_bytes_per_s: float | None = None
    nic_bytes_per_s: float | None = None
    nics_per_node: int | None = None


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one analysis. The defaults of `network_bound` are the contract's."""

    network_bound_above_ratio: float = 0.15
    network_bound_below_ratio: float = 0.10
    price_per_gpu_hour: float | None = None
    currency: str = "USD"
    app_address: str | None = None
    topology: dict[str, str] = {}
    """Host name to leaf (rack) name."""
    hardware: Hardware = Hardware()
    thresholds: dict[str, dict[str, dict[str, float]]] = {}
    """Overrides: rule code, threshold name, severity, value."""
    cluster: dict[str, Any] = {}


def load_config(path: Path | None = None, *, start: Path | None = None) -> Config:
    """The configuration from ``path``, or from the nearest file upward of ``start`` (default: working directory).

    Raises:
        ConfigError: the file is missing, is no YAML, or has an unknown or ill-typed key.
    """
    found = path or _nearest(start or Path.cwd())
    if found is None:
        return Config()
    try:
        text = found.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {found}: {error.strerror}") from error
    return decode_yaml(text, Config, str(found))


def decode_yaml(text: str, type_: type[_T], where: str) -> _T:
    """YAML text as a typed value; duplicate keys are an error, not a silent override.

    Raises:
        ConfigError: no YAML, a duplicate key, an unknown key or a wrong type, with its path.
    """
    try:
        raw = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader that also refuses duplicate keys
        return msgspec.convert({} if raw is None else raw, type_)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ConfigError(f"{where}: {error}") from error


def _nearest(start: Path) -> Path | None:
    for folder in (start, *start.parents):
        if (candidate := folder / FILE_NAME).is_file():
            return candidate
    return None


class _StrictLoader(_BASE_LOADER):  # type: ignore[misc,valid-type]
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key!r}", key_node.start_mark)
            seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping
