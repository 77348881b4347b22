-- Instances by what they cost their members: transfer plus mean wait. $collective null: all kinds.
SELECT c.instance, c.collective, coalesce(g.description, g.name) AS process_group, c.step, c.msg_bytes, c.transfer_ns, c.wait_ns / c.members AS mean_wait_ns,
       c.start_skew_ns, c.last_rank, r.host AS last_host, c.busbw_bytes_per_s, c.members, c.seen, g.tier, c.seq
FROM collective AS c LEFT JOIN process_group AS g USING (group_id) LEFT JOIN rank AS r ON r.rank = c.last_rank
WHERE $collective IS NULL OR c.collective = $collective
ORDER BY CASE $order WHEN 'wait' THEN c.wait_ns / c.members WHEN 'transfer' THEN c.transfer_ns WHEN 'skew' THEN c.start_skew_ns
         ELSE coalesce(c.transfer_ns, 0) + coalesce(c.wait_ns, 0) / c.members END DESC NULLS LAST, c.instance
LIMIT 200
