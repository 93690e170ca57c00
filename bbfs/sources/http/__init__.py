"""HTTP for sources: statuses as errors, bounds, redirects, and connections to checked addresses."""
