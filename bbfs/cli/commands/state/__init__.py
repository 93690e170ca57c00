"""How a mount is, and which paths it uses: `bbfs status`, `bbfs top` and `bbfs info`."""
