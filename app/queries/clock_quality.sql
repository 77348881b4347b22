-- How well the clocks fit.
SELECT max(residual_ns) AS residual_ns, count(DISTINCT component) AS components, count(*) AS hosts FROM clock
