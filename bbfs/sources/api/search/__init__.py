"""The search of an API by one of its operations."""
