"""Collections of vectors (`type = "vector_search"`): in SQLite files, PostgreSQL and Qdrant."""
