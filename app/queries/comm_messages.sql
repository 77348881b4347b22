-- Messages of the logs by signature, causes first.
SELECT code, role, level, sum(count)::BIGINT AS count, count(DISTINCT host) AS hosts, any_value(message) AS message, any_value(path) AS path, min(line) AS line
FROM comm_event GROUP BY code, role, level
ORDER BY CASE role WHEN 'cause' THEN 0 WHEN 'echo' THEN 1 WHEN 'advice' THEN 2 ELSE 3 END, count DESC LIMIT 300
