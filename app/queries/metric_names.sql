-- Metrics with unit, kind and reach.
SELECT metric, any_value(unit) AS unit, any_value(kind) AS kind, count(*) AS samples, count(DISTINCT host) AS hosts, count(DISTINCT (host, entity)) AS entities,
       min(t_ns) AS first_ns, max(t_ns) AS last_ns
FROM metric_sample WHERE t_ns IS NOT NULL AND value IS NOT NULL GROUP BY metric ORDER BY metric
