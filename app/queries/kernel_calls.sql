-- The longest single executions of one kernel name on one rank; times count from the first of all its executions.
SELECT step, start_ns - min(start_ns) OVER () AS after_first_ns, dur_ns, stream, device
FROM kernel WHERE rank = $rank AND name = $kernel ORDER BY dur_ns DESC LIMIT 100
