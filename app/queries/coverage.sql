-- What was read, by kind of source.
SELECT coalesce(kind, 'unknown') AS kind, count(*) AS files, count(*) FILTER (status = 'ok') AS ok, count(*) FILTER (status = 'partial') AS partial,
       count(*) FILTER (status = 'skipped') AS skipped, count(*) FILTER (status = 'failed') AS failed, sum(bytes)::BIGINT AS bytes, count(DISTINCT rank) AS ranks,
       count(DISTINCT host) AS hosts
FROM source GROUP BY ALL ORDER BY ok DESC, files DESC
