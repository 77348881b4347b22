"""What communication records say about the fabric: transports, networks, settings, first causes, hangs."""

from __future__ import annotations

from diagnose.analysis.comm_audit.links import node_links

__all__ = ["node_links"]
