"""Sections of the report, each from its tables."""
