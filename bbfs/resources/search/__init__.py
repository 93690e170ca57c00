"""Search: the local index of texts, and the plan of a grep over it."""
