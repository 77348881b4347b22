"""Scaling curves: comparable points, the fit by scaling type, predictions with intervals, what bends them."""
