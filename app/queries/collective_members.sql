-- The members of one instance on the aligned clock, first arrival first.
SELECT m.rank, r.host, m.start_ns - min(m.start_ns) OVER () AS arrived_ns, m.wait_ns, m.dur_ns, m.dur_ns - m.wait_ns AS transfer_ns,
       m.start_ns - min(m.start_ns) OVER () + m.dur_ns AS ended_ns, m.exposed_wait_ns, m.exposed_transfer_ns
FROM collective_rank AS m LEFT JOIN rank AS r USING (rank) WHERE m.instance = $instance ORDER BY arrived_ns, m.rank
