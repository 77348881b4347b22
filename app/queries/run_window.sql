-- When the traced steps ran; without steps, the run's own times.
SELECT coalesce((SELECT min(start_ns) FROM step), start_ns) AS first_ns, coalesce((SELECT max(end_ns) FROM step), end_ns) AS last_ns FROM run
