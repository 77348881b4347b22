"""What node metrics say: increases of counters, comparison with peers, outliers, correlation with steps."""
