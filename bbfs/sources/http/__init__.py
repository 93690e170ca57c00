"""HTTP for sources: statuses as errors, bounds, redirects, and connections to addresses that were checked."""
