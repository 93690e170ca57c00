"""Notion workspaces (`type = "notion"`): pages as Markdown, databases as directories."""
