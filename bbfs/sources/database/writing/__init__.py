"""Rows that are written: their JSON, and the transaction of each."""
