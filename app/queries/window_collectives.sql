-- Collective members of the asked ranks within the window, on the aligned clock.
SELECT m.rank, r.host, m.instance, c.collective, coalesce(g.description, g.name) AS process_group, c.msg_bytes, c.step, m.start_ns, m.dur_ns, m.wait_ns,
       c.last_rank, c.busbw_bytes_per_s
FROM collective_rank AS m JOIN collective AS c USING (instance) LEFT JOIN process_group AS g USING (group_id) LEFT JOIN rank AS r USING (rank)
WHERE list_contains($ranks, m.rank) AND m.start_ns < $to_ns AND m.start_ns + m.dur_ns > $from_ns
ORDER BY m.rank, m.start_ns LIMIT 50000
