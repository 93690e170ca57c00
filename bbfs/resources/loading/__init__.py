"""How a content comes to its readers: from a tier or its source, through one load, into the record; and its end."""
