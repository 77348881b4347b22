"""Runs against runs: is the new side slower, by how much, and where did the time go. Runs are the samples, never steps."""
