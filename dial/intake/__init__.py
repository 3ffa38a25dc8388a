"""What comes in from outside: agents' samples (and, later, operators' commands).

:mod:`dial.intake.samples` turns the bytes of one post into checked values;
:mod:`dial.intake.inbox` keeps them until the next tick takes them.
"""
