"""Sources and their options as people type them after a command."""
