"""Scratches: what programs write over a mount, kept in a directory until it is applied or discarded.

An overlay shows the read-only mount of the sources as its lower layer, and puts every change into the upper layer.
"""
