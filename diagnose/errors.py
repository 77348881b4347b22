"""Every error a user can meet: what happened, where, what to do next; each with its exit code."""

from __future__ import annotations


class DiagnoseError(Exception):
    """Base of all errors that end a command with a message instead of a traceback."""

    exit_code = 2


class UsageError(DiagnoseError):
    """The command line or the call does not make sense."""


class ConfigError(DiagnoseError):
    """A configuration, rule or map file is wrong."""


class SourceError(DiagnoseError):
    """An input cannot be read at all."""


class StoreError(DiagnoseError):
    """A run store cannot be written, opened or understood."""


class RuleError(ConfigError):
    """A rule file is wrong."""
