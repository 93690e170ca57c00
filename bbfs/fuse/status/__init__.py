"""How a mount is: its state as a document, as metrics, and the files and the endpoint that show them."""
