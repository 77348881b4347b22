"""Runs as they appear: find, claim, analyse, publish, alert, each exactly once."""
