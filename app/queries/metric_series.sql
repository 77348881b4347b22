-- One metric over time in $most windows: of each entity (or host) the mean; counters as increase per second.
WITH raw AS (
  SELECT coalesce(host, 'host unknown') AS host, entity, t_ns, value, kind, format,
         value - lag(value) OVER series AS grown, (t_ns - lag(t_ns) OVER series) / 1e9 AS seconds
  FROM metric_sample WHERE metric = $metric AND t_ns IS NOT NULL AND value IS NOT NULL
  WINDOW series AS (PARTITION BY host, entity, format, source ORDER BY t_ns)
), read AS (
  SELECT host, entity, t_ns, CASE WHEN kind = 'counter' THEN CASE WHEN grown >= 0 AND seconds > 0 THEN grown / seconds END ELSE value END AS value FROM raw
), limits AS (
  SELECT min(t_ns) AS first_ns, greatest(1, (max(t_ns) - min(t_ns)) // $most + 1) AS width_ns FROM read
)
SELECT host, entity, l.first_ns + ((t_ns - l.first_ns) // l.width_ns) * l.width_ns AS t_ns, avg(value) AS value
FROM read, limits AS l WHERE value IS NOT NULL GROUP BY ALL ORDER BY host, entity, t_ns
