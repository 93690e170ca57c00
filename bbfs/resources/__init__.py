"""Everything known about the resources of all sources: catalogs, caches, requests, freshness."""
