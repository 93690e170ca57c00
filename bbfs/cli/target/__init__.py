"""What the operand of a command means, and how the command reaches it: through a mount, or directly."""
