"""A max-plus simulator of distributed training jobs with known faults.

It stands apart from the analyser on purpose: it imports nothing from it and shares no number with it,
so that an agreement between the two is evidence and not an echo.
"""
