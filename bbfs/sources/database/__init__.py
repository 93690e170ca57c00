"""Databases (`type = "database"`): SQLite, PostgreSQL, and whatever else SQLAlchemy reaches. Read-only."""
