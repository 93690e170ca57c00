"""Local folders that may be written: a mount passes them through, file by file, as the kernel has them."""
