"""URI templates (RFC 6570): expanding them, and matching paths against them. Pure."""
