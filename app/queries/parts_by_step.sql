-- Median of each part per step over the ranks ($rank null) or of one rank, steps joined so that at most $most remain.
-- A step counts as normal when most of its ranks say so; its medians then use only the normal ones.
WITH marked AS (
  SELECT s.*, 2 * count(*) FILTER (label = 'normal') OVER (PARTITION BY step) > count(*) OVER (PARTITION BY step) AS counted
  FROM step AS s WHERE $rank IS NULL OR rank = $rank
), placed AS (
  SELECT *, (dense_rank() OVER (ORDER BY step) - 1) // greatest(1, ((SELECT count(DISTINCT step) FROM step) + $most - 1) // $most) AS place
  FROM marked
), kept AS (
  SELECT *, bool_or(counted) OVER (PARTITION BY place) AS any_counted FROM placed
)
SELECT min(k.step) AS first_step, max(k.step) AS last_step, bool_or(k.counted) AS counted,
       string_agg(DISTINCT k.label, ', ' ORDER BY k.label) FILTER (k.label <> 'normal') AS labels, max(k.why) AS why, count(DISTINCT k.rank) AS ranks,
       median(k.step_ns) AS step_ns, median(b.compute_ns) AS compute_ns, median(b.exposed_comm_ns) AS exposed_comm_ns,
       median(b.exposed_wait_ns) AS exposed_wait_ns, median(b.exposed_transfer_ns) AS exposed_transfer_ns, median(b.exposed_memcpy_ns) AS exposed_memcpy_ns,
       median(b.idle_ns) AS idle_ns, median(b.idle_input_ns) AS idle_input_ns, median(b.idle_host_ns) AS idle_host_ns,
       median(b.idle_sync_ns) AS idle_sync_ns, median(b.idle_bubble_ns) AS idle_bubble_ns, median(b.idle_other_ns) AS idle_other_ns
FROM kept AS k LEFT JOIN breakdown AS b USING (rank, step)
WHERE NOT k.any_counted OR (k.counted AND k.label = 'normal')
GROUP BY k.place ORDER BY first_step
