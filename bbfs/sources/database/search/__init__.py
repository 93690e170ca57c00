"""Searches without a full-text index: the columns that the option `search` names are scanned for words."""
