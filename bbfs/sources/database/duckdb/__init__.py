"""DuckDB files, and folders of Parquet, CSV and JSON files, as a database source."""
