-- Kinds of collectives, dearest first.
SELECT collective, count(*) AS count FROM collective GROUP BY collective ORDER BY sum(coalesce(transfer_ns, 0)) DESC, collective
