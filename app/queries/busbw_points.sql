-- Bus bandwidth of each kind, tier and size: median and the middle eight tenths of the instances.
SELECT c.collective, coalesce(g.tier, 'tier unknown') AS tier, g.size AS group_size, c.msg_bytes, count(*) AS count,
       median(c.busbw_bytes_per_s) AS busbw_bytes_per_s, quantile_cont(c.busbw_bytes_per_s, 0.1) AS low_bytes_per_s,
       quantile_cont(c.busbw_bytes_per_s, 0.9) AS high_bytes_per_s, median(c.transfer_ns) AS transfer_ns
FROM collective AS c LEFT JOIN process_group AS g USING (group_id)
WHERE c.busbw_bytes_per_s > 0 AND c.msg_bytes > 0
GROUP BY ALL ORDER BY sum(c.transfer_ns) DESC LIMIT 1500
