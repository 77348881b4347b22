"""What one rank's trace tells by itself: steps, split, idle causes, communication calls. Runs where the trace is."""
