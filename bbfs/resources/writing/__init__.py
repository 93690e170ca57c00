"""Writing to sources: what is not handed over yet, what is not listed yet, and what a source did not take."""
