"""Writing to a REST API: the operations that may be sent, and the bodies of requests."""
