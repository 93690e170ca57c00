"""Loading the files that a program will read next."""
