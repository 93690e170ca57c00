"""Documents in Office Open XML (ECMA-376): PowerPoint, and the drawings of all kinds of them.

The caller has checked the bounds of the archive. Each part is parsed without entities.
"""
