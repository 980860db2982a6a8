"""Tensor parallelism: one model split over several processes, one of which decides.

Rank 0 owns requests, scheduler, sampling and results. The other ranks follow: they receive each step as a few hundred
bytes, run their part of the model over their part of the cache, and report how long they waited. Nobody but rank 0
plans, so no two schedulers have to agree.

    launch     what torchrun says about this process
    sharding   which heads a rank holds, and which numbers of ranks are possible
    ranks      the two process groups: one for plans (gloo), one for tensors
    frames     messages and their framing
    wire       a step plan as bytes, and back as index tensors
    forward    the model over one batch, with the ranks in step
    leader     the runner of rank 0
    attach     a split model as the engine sees it
    follower   the loop of all other ranks
    worker     what stands behind a manager on all other ranks
"""
