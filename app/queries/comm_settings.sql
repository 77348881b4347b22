-- Settings of the communication library: value and how many processes have it.
SELECT name, value, origin, count(DISTINCT (path, host, pid)) AS processes, count(DISTINCT host) AS hosts FROM comm_env
GROUP BY name, value, origin ORDER BY name, processes DESC LIMIT 500
