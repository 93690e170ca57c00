"""Writing to a workspace: Markdown as blocks, the changes that lead from some blocks to others, values of rows."""
