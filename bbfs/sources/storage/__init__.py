"""Object stores, archives and remote file systems (`type = "storage"`), one backend a kind behind one handler."""
