"""Readers and parsers with bounds: on bytes, on structure, on time. Every byte of a source goes through one of them."""
