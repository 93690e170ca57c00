"""The audit log of a mount: which program has changed what, and has read what if that is asked for."""
