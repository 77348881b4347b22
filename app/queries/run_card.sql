-- One run in a row of the list, cheap: no rules are evaluated.
WITH steps AS (
  SELECT median(step_ns) AS step_ns, count(DISTINCT step) AS steps FROM step WHERE label = 'normal'
)
SELECT r.name, r.start_ns, r.world_size, (SELECT count(*) FROM host) AS hosts, r.backend, array_to_string(r.device_names, ', ') AS devices,
       s.steps AS steps_used, s.step_ns::BIGINT AS step_ns, (SELECT count(*) FROM source) AS files
FROM run AS r, steps AS s
