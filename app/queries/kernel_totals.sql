-- Time per step and rank of each kernel name, for comparing two runs.
WITH used AS (SELECT rank, step FROM step WHERE label = 'normal'),
scale AS (SELECT greatest(1, count(*)) AS rank_steps FROM used)
SELECT k.name, any_value(k.class) AS class, sum(k.total_ns) / any_value(s.rank_steps) AS ns_per_step, sum(k.count) / any_value(s.rank_steps) AS calls_per_step
FROM kernel_stat AS k, scale AS s
WHERE EXISTS (SELECT 1 FROM used AS u WHERE u.rank = k.rank AND u.step = k.step) OR NOT EXISTS (SELECT 1 FROM used)
GROUP BY k.name ORDER BY ns_per_step DESC LIMIT 500
