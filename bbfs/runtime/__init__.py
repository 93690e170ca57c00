"""The floor of all programs of bbfs: private files, signals, extras, the bus of changes. Imports no other room."""
