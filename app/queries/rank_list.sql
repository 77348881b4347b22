-- Ranks with place and role.
SELECT rank, host, local_rank, device, device_name, role, lost_capture, trace FROM rank ORDER BY rank
