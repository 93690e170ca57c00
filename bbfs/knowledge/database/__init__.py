"""The SQLite file of a knowledge base."""
