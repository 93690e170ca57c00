"""Documents as text: they become Markdown, in worker processes. The table of kinds is in docs/documents.md."""
