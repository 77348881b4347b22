-- One instance.
SELECT c.*, coalesce(g.description, g.name) AS process_group, g.tier FROM collective AS c LEFT JOIN process_group AS g USING (group_id)
WHERE c.instance = $instance
