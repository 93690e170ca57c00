"""Values, names and grammars that every room shares. Pure: no I/O."""
