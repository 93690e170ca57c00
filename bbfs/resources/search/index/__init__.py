"""The local index of texts: words with their places, and the parts of words for substrings."""
