"""Databases (`type = "database"`): SQLite, PostgreSQL, and the other databases of SQLAlchemy. Read-only."""
