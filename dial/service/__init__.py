"""What the controller shows over HTTP, and the door for agents' samples.

The service reads published snapshots and fills the inbox; it never reaches into the
runtime, so nothing it does can delay or change a tick other than by a checked sample.
"""
