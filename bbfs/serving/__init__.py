"""The parts that the programs of bbfs share. Imports nothing of the other rooms."""
