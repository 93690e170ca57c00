"""The control socket of a mount: the daemon's end, the client's end, and the messages between them."""
