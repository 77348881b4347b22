"""Scaling curves: which points compare, the fit by scaling type, predictions with intervals, and what bends the curve."""
