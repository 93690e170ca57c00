"""tar and zip archives as a storage source."""
