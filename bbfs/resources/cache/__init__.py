"""Contents and metadata kept between reads: in memory, on disk, and shared between machines."""
