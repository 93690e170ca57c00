"""The listings of `bbfs serve`: resources, directories and templates, by walks and in pages."""
