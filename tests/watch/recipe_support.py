"""Running the recipes as a user does, with a test's folders in the place of the example's."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watch_support import Room

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "docs" / "recipes"


def write_program(folder: Path, name: str, command: str) -> None:
    """A program of that name."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{command}\n")
    (folder / name).chmod(0o755)


def write_diagnose(folder: Path) -> None:
    """`diagnose` as this interpreter has it, whatever its environment."""
    where = shlex.quote(os.environ.get("PYTHONPATH", ""))
    write_program(folder, "diagnose", f'PYTHONPATH={where} exec {shlex.quote(sys.executable)} -m diagnose "$@"')


def placed(text: str, room: Room, tools: Path) -> str:
    """The recipe's example paths replaced by the test's."""
    text = text.replace("/usr/local/bin/diagnose", str(tools / "diagnose"))
    text = re.sub(r"/srv/training/inbox|(?<=[ \"])/inbox\b", str(room.inbox), text)
    text = re.sub(r"/srv/training/reports|(?<=[ \"])/reports\b", str(room.out), text)
    return re.sub(r"--settle 120", "--settle 0", text)


def shell(command: str | list[str], tools: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run it with little more than the tools in the environment, as cron and epilogs do."""
    env = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(tools.parent), "LANG": "C.UTF-8"} | extra
    return subprocess.run(
        command, shell=isinstance(command, str), env=env, capture_output=True, text=True, check=False, timeout=120
    )
