"""Commands that change resources, hand over what a source has not taken, and work in a scratch."""
