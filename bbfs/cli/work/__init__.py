"""The work of commands on their targets, with trio. Commands import it late: their help and errors need none of it."""
