-- Time per step of each kernel on one rank against the median of its peers (same role, the rank itself left out).
WITH used AS (
  SELECT rank, step FROM step WHERE label = 'normal'
), counted AS (
  SELECT k.rank, k.signature, any_value(k.name) AS name, any_value(k.class) AS class, sum(k.total_ns) AS total_ns, sum(k.count) AS count
  FROM kernel_stat AS k
  WHERE EXISTS (SELECT 1 FROM used AS u WHERE u.rank = k.rank AND u.step = k.step) OR NOT EXISTS (SELECT 1 FROM used)
  GROUP BY k.rank, k.signature
), steps AS (
  SELECT rank, greatest(1, count(*)) AS steps FROM used GROUP BY rank
), per_step AS (
  SELECT c.*, r.role, c.total_ns / coalesce(s.steps, 1) AS ns_per_step, c.count / coalesce(s.steps, 1) AS per_step
  FROM counted AS c LEFT JOIN steps AS s USING (rank) LEFT JOIN rank AS r USING (rank)
), mine AS (
  SELECT * FROM per_step WHERE rank = $rank
), peers AS (
  SELECT p.signature, median(p.ns_per_step) AS peers_ns, count(*) AS peers
  FROM per_step AS p WHERE p.rank <> $rank AND p.role IS NOT DISTINCT FROM (SELECT role FROM rank WHERE rank = $rank)
  GROUP BY p.signature
)
SELECT mine.name, mine.class, mine.per_step AS calls_per_step, mine.ns_per_step AS rank_ns, peers.peers_ns, mine.ns_per_step - peers.peers_ns AS more_ns,
       mine.ns_per_step / nullif(peers.peers_ns, 0) - 1 AS more_ratio, peers.peers, mine.signature::VARCHAR AS signature
FROM mine LEFT JOIN peers USING (signature)
ORDER BY abs(coalesce(mine.ns_per_step - peers.peers_ns, 0)) DESC, mine.ns_per_step DESC LIMIT 200
