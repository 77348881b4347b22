"""Sections of the JSON report, one module each."""
