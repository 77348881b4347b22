-- Hosts with their ranks: from the traces, else as the logs tell them, or as members of the communicator of the whole job.
WITH whole AS (
  SELECT path, pid, any_value(comm_rank) AS rank FROM communicator WHERE nranks = (SELECT max(nranks) FROM communicator) GROUP BY path, pid
), logged AS (
  SELECT p.host, list(DISTINCT coalesce(p.rank, w.rank) ORDER BY coalesce(p.rank, w.rank)) AS ranks
  FROM comm_process AS p LEFT JOIN whole AS w ON w.path = p.path AND w.pid IS NOT DISTINCT FROM p.pid WHERE p.host IS NOT NULL GROUP BY p.host
)
SELECT coalesce(h.host, l.host) AS host, coalesce(h.full_name, l.host) AS full_name, coalesce(h.ranks, l.ranks) AS ranks
FROM host AS h FULL JOIN logged AS l ON l.host = h.host ORDER BY host
