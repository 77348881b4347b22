-- The run's own row.
SELECT * FROM run
