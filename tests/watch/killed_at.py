"""`diagnose watch` that is killed at a chosen call, as by the machine: no handler, no cleanup.

python killed_at.py WHEN MODULE FUNCTION COUNT ARGUMENT...   WHEN: before or after the COUNT-th call of MODULE.FUNCTION
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from importlib import import_module


def arm(when: str, module: str, function: str, count: int) -> None:
    head, _, tail = module.partition(":")
    place = getattr(import_module(head), tail) if tail else import_module(head)
    original = getattr(place, function)
    left = [count]

    def armed(*arguments: object, **named: object) -> object:
        left[0] -= 1
        if left[0] == 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **named)
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(place, function, armed)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    arm(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
    from diagnose.cli.main import main

    main(["watch", *sys.argv[5:]])
