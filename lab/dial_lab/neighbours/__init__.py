"""Neighbours that are programs of the lab's own, where no ready one does what is needed."""
