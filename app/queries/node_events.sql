-- Events of the kernel logs, those with a time first in time.
SELECT host, t_ns, kind, device, code, fatal, text, source FROM node_event ORDER BY t_ns NULLS LAST, host LIMIT 1000
