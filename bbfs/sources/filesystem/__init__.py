"""Local folders (`type = "filesystem"`), which cannot be left."""
