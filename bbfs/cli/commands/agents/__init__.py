"""Texts for agents with a shell: a skill on bbfs, and the tools of a source as Python functions."""
