"""Databases (`type = "database"`): SQLite, PostgreSQL, and whatever else SQLAlchemy reaches. Read-only."""

from bbfs.sources.database.handler import DatabaseHandler

__all__ = ["DatabaseHandler"]
