-- Parts of each rank in one step; $step null: the median over its normal steps (without any: its whole trace).
WITH used AS (
  SELECT rank, step FROM step WHERE CASE WHEN $step IS NULL THEN label = 'normal' ELSE step = $step END
), picked AS (
  SELECT rank, step FROM used
  UNION ALL
  SELECT rank, step FROM breakdown WHERE step = -1 AND $step IS NULL AND NOT EXISTS (SELECT 1 FROM used)
)
SELECT b.rank, r.host, r.role, count(*) AS steps, median(coalesce(s.step_ns, b.span_ns)) AS step_ns, median(b.compute_ns) AS compute_ns,
       median(b.exposed_comm_ns) AS exposed_comm_ns, median(b.exposed_wait_ns) AS exposed_wait_ns, median(b.exposed_transfer_ns) AS exposed_transfer_ns,
       median(b.overlapped_comm_ns) AS overlapped_comm_ns, median(b.exposed_memcpy_ns) AS exposed_memcpy_ns, median(b.idle_ns) AS idle_ns,
       median(b.idle_input_ns) AS idle_input_ns, median(b.idle_host_ns) AS idle_host_ns, median(b.idle_sync_ns) AS idle_sync_ns,
       median(b.idle_bubble_ns) AS idle_bubble_ns, median(b.idle_other_ns) AS idle_other_ns, median(b.local_work_ns) AS local_work_ns
FROM breakdown AS b JOIN picked USING (rank, step) LEFT JOIN step AS s USING (rank, step) LEFT JOIN rank AS r USING (rank)
GROUP BY b.rank, r.host, r.role ORDER BY b.rank
