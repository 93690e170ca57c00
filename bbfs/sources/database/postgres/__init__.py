"""PostgreSQL as a database source."""
