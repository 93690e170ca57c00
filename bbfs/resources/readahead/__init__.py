"""Readahead: load the files that a program will read next."""
