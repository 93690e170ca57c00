"""Contents that are kept on disk before a program asks for them, to be read while their sources are away."""
