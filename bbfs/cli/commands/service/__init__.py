"""`bbfs service`: mounts as units of systemd."""
