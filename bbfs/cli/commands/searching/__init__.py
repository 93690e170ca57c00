"""Commands that find resources by their texts, and that prepare for it."""
