"""Reading NCCL and RCCL logs and what the layers above them print about communication."""

from __future__ import annotations

from diagnose.ingest.nccl_log.reader import NcclLog

FORMATS = (NcclLog(),)
