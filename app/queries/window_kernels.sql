-- Device activities of the asked ranks within a window of the aligned clock; each rank's shift is that of its collectives
-- nearest to the window, else its host's fitted offset.
WITH shifts AS (
  SELECT m.rank, arg_min(c.start_ns - m.start_ns, abs(m.start_ns - $from_ns)) AS shift_ns
  FROM collective_rank AS m JOIN comm_call AS c USING (rank, call) GROUP BY m.rank
), placed AS (
  SELECT r.rank, r.host, coalesce(s.shift_ns, k.offset_ns, 0) AS shift_ns
  FROM rank AS r LEFT JOIN shifts AS s USING (rank) LEFT JOIN clock AS k ON k.host = coalesce(r.host, 'rank' || r.rank)
  WHERE list_contains($ranks, r.rank)
)
SELECT k.rank, p.host, k.device, k.stream, k.start_ns - p.shift_ns AS start_ns, k.dur_ns, k.class, k.name, k.step, k.correlation
FROM kernel AS k JOIN placed AS p USING (rank)
WHERE k.start_ns - p.shift_ns < $to_ns AND k.start_ns + k.dur_ns - p.shift_ns > $from_ns
ORDER BY k.rank, k.stream, k.start_ns LIMIT 200000
