-- Who arrived last: of the collectives a rank took part in, in how many it came last, and what the others waited there.
WITH taken AS (
  SELECT m.rank, count(*) AS collectives, sum(m.wait_ns) AS waited_ns FROM collective_rank AS m GROUP BY m.rank
), last AS (
  SELECT last_rank AS rank, count(*) AS last, sum(wait_ns) AS caused_ns FROM collective WHERE last_rank IS NOT NULL GROUP BY last_rank
)
SELECT t.rank, r.host, t.collectives, coalesce(l.last, 0) AS last, coalesce(l.last, 0) / t.collectives AS last_ratio,
       t.waited_ns / t.collectives AS waits_ns, coalesce(l.caused_ns, 0) / t.collectives AS makes_wait_ns
FROM taken AS t LEFT JOIN last AS l USING (rank) LEFT JOIN rank AS r USING (rank) ORDER BY last DESC, t.rank
