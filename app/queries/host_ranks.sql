-- Hosts with their ranks, from the traces, else from the logs.
WITH logged AS (
  SELECT host, list(DISTINCT coalesce(rank, device) ORDER BY coalesce(rank, device)) AS ranks FROM comm_process WHERE host IS NOT NULL GROUP BY host
)
SELECT coalesce(h.host, l.host) AS host, coalesce(h.full_name, l.host) AS full_name, coalesce(h.ranks, l.ranks) AS ranks
FROM host AS h FULL JOIN logged AS l ON l.host = h.host ORDER BY host
