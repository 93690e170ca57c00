"""What agents with a shell read: a skill on bbfs, and the tools of a source as functions."""
