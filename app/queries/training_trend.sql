-- What the training log says over the steps, at most $most points.
WITH seen AS (
  SELECT *, coalesce(rank, min(rank) OVER ()) IS NOT DISTINCT FROM min(rank) OVER () AS leads FROM training_log
), placed AS (
  SELECT *, (dense_rank() OVER (ORDER BY restart, step) - 1) // greatest(1, (count(*) OVER () + $most - 1) // $most) AS place FROM seen WHERE leads
)
SELECT min(step) AS step, min(restart) AS restart, median(step_time_ns) AS step_time_ns, max(step_time_ns) AS slowest_ns, median(loss) AS loss,
       median(throughput) AS throughput, any_value(throughput_unit) AS throughput_unit
FROM placed GROUP BY place ORDER BY place
