"""SQLite files as a database source."""
