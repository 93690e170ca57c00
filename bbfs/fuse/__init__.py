"""The mount: the daemon, the adapter for pyfuse3, mount points, and the control socket of a mount."""
