-- The members of one instance with their aligned start: where a window around it begins and ends.
SELECT min(start_ns) AS first_ns, max(start_ns + dur_ns) AS last_ns, count(*) AS members FROM collective_rank WHERE instance = $instance
