"""Files and names that programs change: drafts, and the requests that make them."""
