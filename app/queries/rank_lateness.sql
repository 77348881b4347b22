-- How much later than the first member a rank entered its collectives of a step: the latest one, without clocks
-- (members end together, so the shortest duration came last). Only collectives seen whole; sends and receives are left out.
WITH whole AS (
  SELECT instance, step FROM collective
  WHERE seen = members AND members > 1 AND collective NOT IN ('send', 'recv', 'broadcast', 'reduce', 'gather', 'scatter')
), entered AS (
  SELECT m.rank, w.step, max(m.dur_ns) OVER (PARTITION BY m.instance) - m.dur_ns AS late_ns
  FROM collective_rank AS m JOIN whole AS w USING (instance)
)
SELECT e.rank, r.host, r.role, e.step, max(e.late_ns) AS value_ns
FROM entered AS e LEFT JOIN rank AS r USING (rank) WHERE e.step IS NOT NULL
GROUP BY e.rank, r.host, r.role, e.step ORDER BY e.rank, e.step
