"""The controller: a pure step, and the runtime around it.

:mod:`dial.controller.policy`
    The strategies and parameters that a plan depends on, fixed at start.
:mod:`dial.controller.state`
    What one tick leaves for the next.
:mod:`dial.controller.guards`
    Small rules that keep a plan from doing harm.
:mod:`dial.controller.step`
    ``step(policy, state, observation) -> (state, plan)``: no clock, no I/O.
:mod:`dial.controller.recording`
    Every tick as a JSON line, and the way back.
:mod:`dial.controller.replay`
    A recording run again, compared bit for bit.
:mod:`dial.controller.runtime`
    The only place that schedules, sleeps or talks to anything.
"""
