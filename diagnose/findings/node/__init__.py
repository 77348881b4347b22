"""Rules of node metrics: GPUs, links, congestion, hosts, and the quality of what was collected."""
