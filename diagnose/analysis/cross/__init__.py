"""What only several ranks together tell: matched collectives, clocks, waits, the network, who is slow and why."""
