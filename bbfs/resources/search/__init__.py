"""Search: `engine` merges what the sources and the local index find; `index` holds texts, and plans a grep."""
