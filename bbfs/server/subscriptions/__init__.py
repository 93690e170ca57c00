"""Which clients follow which resources, and how changes reach them."""
