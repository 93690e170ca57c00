"""Resources held in memory (`type = "memory"`)."""
