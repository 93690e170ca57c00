"""Events of inotify for the changes of sources: a program that watches the mount gets one as for a local change.

The kernel makes events of the system calls of programs alone, so a process of the daemon, the `toucher`, makes calls on
the mount. `calls` recognises them: the daemon answers them, and nothing changes. `events` says which are made.
"""
