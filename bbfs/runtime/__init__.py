"""What every program of bbfs runs on: private files, signals, extras, the bus of changes. Imports no other room."""
