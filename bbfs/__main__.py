"""`python -m bbfs` is `bbfs`."""

from bbfs.cli import main

if __name__ == "__main__":
    main(prog_name="bbfs")
