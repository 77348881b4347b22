from __future__ import annotations

import sys
from pathlib import Path

for part in ("benchmarks", "sample_traces"):
    sys.path.insert(0, str(Path(__file__).parents[2] / part))
