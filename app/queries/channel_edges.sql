-- Connections between hosts as the logs print them; the far end's host is known by the communicator's shared id.
WITH place AS (
  SELECT DISTINCT comm_id, comm_rank, host FROM communicator WHERE comm_id IS NOT NULL AND host IS NOT NULL
), seen AS (
  SELECT ch.host, ch.family, ch.network, ch.kind, ch.gdr, ch.nic, ch.source, ch.target, ch.direction, ch.lines, co.comm_id,
         coalesce(ch.source = co.comm_rank, false) AS prints_source
  FROM channel AS ch LEFT JOIN communicator AS co ON co.path = ch.path AND co.host IS NOT DISTINCT FROM ch.host AND co.pid = ch.pid AND co.comm = ch.comm
)
SELECT coalesce(CASE WHEN s.direction = 'receive' THEN far.host ELSE s.host END, 'host unknown') AS source_host,
       coalesce(CASE WHEN s.direction = 'receive' THEN s.host WHEN s.family IN ('P2P', 'SHM') THEN s.host ELSE near.host END, 'host unknown') AS target_host,
       s.family, CASE WHEN s.family = 'NET' THEN concat_ws('/', s.family, s.network) ELSE s.family END AS transport, s.gdr, count(*) AS connections,
       sum(s.lines)::BIGINT AS lines, string_agg(DISTINCT s.nic::VARCHAR, ', ' ORDER BY s.nic::VARCHAR) AS nics
FROM seen AS s
LEFT JOIN place AS near ON near.comm_id = s.comm_id AND near.comm_rank = s.target
LEFT JOIN place AS far ON far.comm_id = s.comm_id AND far.comm_rank = s.source
GROUP BY ALL ORDER BY connections DESC, source_host, target_host LIMIT 2000
