"""The words of texts and of queries: the same for both, so that a query finds what a text has."""
