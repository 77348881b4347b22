-- Idle gaps above 50 us of one rank and the median of its peers, by cause.
WITH peers AS (
  SELECT r.rank FROM rank AS r WHERE r.rank <> $rank AND r.role IS NOT DISTINCT FROM (SELECT role FROM rank WHERE rank = $rank)
), sums AS (
  SELECT rank, cause, coalesce(detail, '') AS detail, count(*) AS gaps, sum(dur_ns) AS total_ns, max(dur_ns) AS longest_ns FROM host_gap WHERE beside_comm IS NOT true GROUP BY ALL
), causes AS (
  SELECT DISTINCT cause, detail FROM sums
)
SELECT c.cause, c.detail, coalesce(m.gaps, 0) AS gaps, coalesce(m.total_ns, 0) AS rank_ns, m.longest_ns,
       (SELECT median(coalesce(s.total_ns, 0)) FROM peers LEFT JOIN sums AS s ON s.rank = peers.rank AND s.cause = c.cause AND s.detail = c.detail) AS peers_ns
FROM causes AS c LEFT JOIN sums AS m ON m.rank = $rank AND m.cause = c.cause AND m.detail = c.detail
ORDER BY rank_ns DESC LIMIT 50
