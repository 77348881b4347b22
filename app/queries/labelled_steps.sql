-- Each step with its label and reason, and its time over the ranks.
SELECT step, mode(label) AS label, max(why) AS why, count(*) AS ranks, median(step_ns) AS median_step_ns, min(step_ns) AS fastest_rank_ns,
       max(step_ns) AS slowest_rank_ns
FROM step GROUP BY step ORDER BY step
