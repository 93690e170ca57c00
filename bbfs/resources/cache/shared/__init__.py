"""The content cache that machines share, on Valkey or Redis."""
