"""The operands of commands, and the ways to their resources: through a mount, or directly."""
