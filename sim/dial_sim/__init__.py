"""A service of many backends behind a load balancer, simulated request by request.

:mod:`dial_sim.engine`
    Requests, queues and balancing policies, compiled.
:mod:`dial_sim.neighbours`
    Who takes how much of which backend, and when.
:mod:`dial_sim.pool`
    What a controller sees of it each interval, as it would of a real balancer.
:mod:`dial_sim.run`
    One scenario under one policy, from start to figures.

How far it is from what was measured on the lab's machines: ``python -m benchmarks.sim``.
"""
