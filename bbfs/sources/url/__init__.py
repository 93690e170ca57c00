"""Web pages (`type = "url"`): those of a list, an llms.txt, a sitemap."""
