"""Judging: rules as data, checks that apply them to the stored tables, the verdict."""
