"""What bbfs remembers: contents in memory, metadata on disk, and the policy of what to load ahead."""
