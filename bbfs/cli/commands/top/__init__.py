"""`bbfs top`: a running mount on the whole terminal."""
