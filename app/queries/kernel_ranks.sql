-- One kernel on every rank: time per call and per step.
SELECT k.rank, r.host, any_value(k.name) AS name, any_value(k.class) AS class, sum(k.count) AS calls, sum(k.total_ns) / nullif(sum(k.count), 0) AS call_ns,
       median(k.total_ns) AS step_ns
FROM kernel_stat AS k LEFT JOIN rank AS r USING (rank)
WHERE k.signature = TRY_CAST($signature AS BIGINT) GROUP BY k.rank, r.host ORDER BY k.rank
