"""Network tiers of a run, their cost models, and who makes groups slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from diagnose.analysis.cross.network import network_tiers, place_tiers
from diagnose.analysis.cross.oversubscription import oversubscription
from diagnose.analysis.cross.references import tier_references
from diagnose.analysis.cross.suspects import find_suspects, world_suspects
from diagnose.analysis.cross.tails import tail_suspects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.config import Config
    from diagnose.pipeline.identify import Member
    from diagnose.store.writer import StoreWriter

_WHOLE = """
SELECT c.*, e.exposed_transfer_ns FROM collective AS c
JOIN (SELECT instance, avg(exposed_transfer_ns) AS exposed_transfer_ns FROM collective_rank GROUP BY instance) AS e USING (instance)
WHERE c.transfer_ns IS NOT NULL AND c.step IS NOT NULL ORDER BY c.instance
"""

_PAIRS = """
SELECT r.instance, list(r.rank ORDER BY r.rank) AS ranks FROM collective_rank AS r JOIN collective AS c USING (instance)
WHERE c.transfer_ns IS NOT NULL AND c.step IS NOT NULL
AND (c.match_method = 'p2p' OR c.group_id IN (SELECT group_id FROM process_group WHERE ranks IS NULL))
GROUP BY r.instance ORDER BY r.instance
"""


def judge_network(writer: StoreWriter, members: Sequence[Member], config: Config, calls: pl.DataFrame) -> None:
    """Tiers, their cost models, and who makes groups slow."""
    hosts = {member.rank: member.host for member in members if member.rank >= 0}
    whole = writer.query(_WHOLE)
    if whole.is_empty():
        return
    pairs = writer.query(_PAIRS)
    unique = pairs.select("ranks").unique(maintain_order=True).with_row_index("pair")
    pairs = pairs.join(unique, on="ranks").select("instance", (-1 - pl.col("pair").cast(pl.Int64)).alias("pair"))
    whole = (
        whole.join(pairs, on="instance", how="left", maintain_order="left")
        .with_columns(pl.coalesce("pair", "group_id").alias("place"))
        .drop("pair")
    )
    groups = writer.query("SELECT group_id AS place, ranks FROM process_group WHERE ranks IS NOT NULL")
    sets = pl.concat([groups, unique.select((-1 - pl.col("pair").cast(pl.Int64)).alias("place"), "ranks")])
    places = place_tiers(
        sets.filter(pl.col("place").is_in(whole.get_column("place").unique().to_list())).sort("place"),
        hosts,
        config.topology,
    )
    instances = whole.join(places.select("place", "nodes", "tier"), on="place", how="left", maintain_order="left")
    if calls.get_column("handshake").any():
        ours = writer.query("SELECT instance, rank, call FROM collective_rank").join(
            calls.filter("handshake").select("rank", "call"), on=["rank", "call"]
        )
        instances = instances.join(ours.select("instance").unique(), on="instance", how="anti", maintain_order="left")
    references = tier_references(config, writer.query("SELECT * FROM bandwidth_reference"))
    writer.insert("network_tier", network_tiers(instances, references, len(hosts)))
    crossing = instances.filter(pl.col("tier").is_not_null() & (pl.col("tier") != "intra-node"))
    suspects = find_suspects(instances, places, hosts)
    if suspects.filter(pl.col("tier") != "intra-node").is_empty():  # who is slow all the time has the slow outliers too
        suspects = pl.concat([suspects, tail_suspects(crossing, places, hosts)])
    if suspects.is_empty() and len(crossing) and crossing.get_column("group_id").n_unique() == 1:
        suspects = world_suspects(sorted({host for host in hosts.values() if host is not None}))
    writer.insert("network_suspect", suspects)
    ratio = oversubscription(instances)
    if ratio is not None:
        names = [f"oversubscription_{field}" for field in ratio._fields]
        writer.insert("job_stat", pl.DataFrame({"name": names, "value": list(ratio)}))
