"""Pictures as text: what their metadata say. Nothing decodes the picture itself."""
