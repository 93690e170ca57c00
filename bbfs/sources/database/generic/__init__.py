"""Any other database that SQLAlchemy reaches."""
