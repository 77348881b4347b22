-- Work that waits for nobody, against the median of the ranks of the same role in the same step.
SELECT b.rank, r.host, r.role, b.step, b.local_work_ns,
       b.local_work_ns - median(b.local_work_ns) OVER (PARTITION BY r.role, b.step) AS value_ns
FROM breakdown AS b LEFT JOIN rank AS r USING (rank)
WHERE b.step >= 0 AND b.local_work_ns IS NOT NULL ORDER BY b.rank, b.step
