"""What a source changes, as events of inotify: programs that watch the mount hear of it as of a local change.

The kernel makes events of the system calls of programs alone, so a process of the daemon, the `toucher`, makes calls on
the mount. `calls` recognises them: the daemon answers them, and nothing changes. `events` says which are made.
"""
