-- Hosts with metrics or events.
SELECT DISTINCT host FROM metric_sample WHERE host IS NOT NULL UNION SELECT DISTINCT host FROM node_event WHERE host IS NOT NULL ORDER BY host
